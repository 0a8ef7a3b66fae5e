"""Checks of what comes from outside: token ids, padding masks, logits, numbers."""

import operator

import numpy as np

from .primitives import as_float


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
        raise ValueError("rows of input_ids differ in length; model.tokenizer.batch(texts) pads them") from None
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


def check_logits_to_keep(logits_to_keep, length):
    """How many last positions (0: all), or which ones: something that indexes axis 1."""
    if np.ndim(logits_to_keep) == 1:
        positions = np.asarray(logits_to_keep)
        if positions.dtype.kind not in "iu" or positions.size == 0:
            raise TypeError(f"logits_to_keep must be an int or a list of positions, not {logits_to_keep!r}")
        if positions.max() >= length or positions.min() < -length:
            raise ValueError(f"logits_to_keep names a position outside the {length} new ones: {positions.tolist()}")
        return positions
    return slice(-whole_number("logits_to_keep", logits_to_keep, least=0), None)


def logits_of(logits):
    logits = as_float(logits)
    if logits.ndim == 0 or logits.shape[-1] == 0:
        raise ValueError(f"need one number for each id of the vocabulary, got an array of shape {logits.shape}")
    if np.isnan(logits).any():
        raise ValueError("nan among the logits: what made them went wrong, and any choice from them would too")
    return logits


def probabilities(probs):
    """An array [..., V] that can be drawn from: finite, not negative, not all zero."""
    probs = logits_of(probs)
    if not np.all((probs >= 0) & np.isfinite(probs)):
        raise ValueError("probabilities must be finite and not negative")
    if not probs.any(axis=-1).all():
        raise ValueError("all probabilities are 0: nothing to draw")
    return probs


def number(name, value):
    """A Python float: NumPy's float64 scalar would widen a float32 array."""
    refused = isinstance(value, (bool, np.bool_, str, bytes)) or np.iscomplexobj(value) or np.ndim(value) != 0
    if refused or not hasattr(value, "__float__"):
        raise TypeError(f"{name} must be a number, not {value!r}")
    return float(value)


def whole_number(name, value, least=None):
    if isinstance(value, (bool, np.bool_)) or not hasattr(value, "__index__"):  # NumPy before 2.3: True_ is an index
        raise TypeError(f"{name} must be an int, not {value!r}")
    if least is not None and value < least:
        raise ValueError(f"{name} must be {least} or more, not {value}")
    return operator.index(value)


def flag(name, value):
    if isinstance(value, (str, bytes)) or np.ndim(value) != 0 or value not in (True, False):
        raise TypeError(f"{name} must be True or False, not {value!r}")
    return bool(value)


def check_no_overflow(name, value, before, after, advice):
    if not np.array_equal(np.isfinite(before), np.isfinite(after)):
        raise ValueError(f"{name} {value} overflows {before.dtype}; {advice}")


def ids_within(ids, vocab_size):
    """Token ids as int64, refused where NumPy would take a negative one from the end."""
    ids = np.asarray(ids)
    if ids.size == 0:
        return ids.astype(np.int64)
    if ids.dtype.kind not in "iu":
        raise TypeError(f"token ids must be integers, not {ids.dtype}")
    low, high = ids.min(), ids.max()
    if low < 0 or high >= vocab_size:
        wrong = low if low < 0 else high
        raise ValueError(f"token id {wrong} is outside the vocabulary of {vocab_size} (0 … {vocab_size - 1})")
    return ids.astype(np.int64, copy=False)
