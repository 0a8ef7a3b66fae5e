"""Checks of what comes from outside: token ids, padding masks, positions to keep."""

import operator

import numpy as np

from .sampling import ids_within


def check_input_ids(input_ids, vocab_size):
    """Token ids as an int64 array [B, S], or an error that says what is wrong.

    Examples
    --------
    >>> check_input_ids([[1, 2]], vocab_size=10)
    array([[1, 2]])
    """
    if isinstance(input_ids, str):
        raise TypeError("input_ids are numbers; text goes to model.stream(text) or model.tokenizer.encode(text)")
    try:
        ids = np.asarray(input_ids)
    except ValueError:
        raise ValueError("rows of input_ids differ in length; model.tokenizer.batch(texts) pads and masks them") from None
    if ids.ndim != 2:
        raise ValueError(f"input_ids must be [batch, length], not of shape {ids.shape}; one prompt is [[…]]")
    if ids.size == 0:
        raise ValueError(f"input_ids are empty, of shape {ids.shape}: there must be at least one token")
    return ids_within(ids, vocab_size)


def check_mask(attention_mask, batch, length):
    """A padding mask as an int64 array [B, length] of 0/1, or None."""
    if attention_mask is None:
        return None
    try:
        mask = np.asarray(attention_mask)
    except ValueError:
        raise ValueError("rows of attention_mask differ in length") from None
    if mask.shape != (batch, length):
        raise ValueError(
            f"attention_mask has shape {mask.shape}, need {(batch, length)}: it covers past and new positions"
        )
    if mask.dtype.kind not in "biuf" or not np.isin(mask, (0, 1)).all():
        raise ValueError("attention_mask must hold 1 for tokens and 0 for pads")
    if not mask.any(axis=1).all():
        raise ValueError(f"row {int(np.argmin(mask.any(axis=1)))} of attention_mask is all 0: nothing to attend to")
    return mask.astype(np.int64)


def check_logits_to_keep(logits_to_keep):
    """How many last positions (0: all), or which ones: something that indexes axis 1."""
    if np.ndim(logits_to_keep) == 1:
        return np.asarray(logits_to_keep)
    if isinstance(logits_to_keep, bool) or not hasattr(logits_to_keep, "__index__"):
        raise TypeError(f"logits_to_keep must be an int or a list of positions, not {logits_to_keep!r}")
    count = operator.index(logits_to_keep)
    if count < 0:
        raise ValueError(f"logits_to_keep must be 0 (all) or more, not {count}")
    return slice(-count, None)
