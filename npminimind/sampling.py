"""From logits to a token, in MiniMind's order: temperature, repetition penalty, top-k, top-p, softmax, draw.

Every stage takes logits ``[..., V]`` (lists are fine) and returns a new array of the same shape and dtype.
"""

from typing import NamedTuple

import numpy as np

from .inputs import check_no_overflow, ids_within, logits_of, number, probabilities, whole_number
from .primitives import as_float, softmax

__all__ = [
    "apply_repetition_penalty",
    "apply_temperature",
    "apply_top_k",
    "apply_top_p",
    "greedy",
    "multinomial",
    "softmax",
    "top_k_threshold",
    "top_p_mask",
]


def apply_temperature(logits, temperature):
    """``logits / temperature``: below 1 sharper, above 1 flatter.

    Parameters
    ----------
    logits : array [..., V]
    temperature : float ≥ 0
        0 gives the limit T → 0: all probability on the greatest logit (shared, where several are equal).
        ``inf`` gives the limit T → ∞: uniform over all that is not −inf.

    Returns
    -------
    array [..., V]

    Raises
    ------
    ValueError
        A negative or nan temperature, or one so small that the quotients overflow.

    Notes
    -----
    Source: chapter 10.4. Differs from upstream: at T = 0 it divides by zero.

    Examples
    --------
    >>> apply_temperature([2.0, 1.0, 0.5], 0.5)
    array([4., 2., 1.])
    >>> apply_temperature([2.0, 1.0, 0.5], 0)
    array([  0., -inf, -inf])
    """
    logits, temperature = logits_of(logits), number("temperature", temperature)
    if not temperature >= 0:
        raise ValueError(f"temperature must be 0 or more, not {temperature}")
    if temperature == 0:
        return np.where(logits == logits.max(axis=-1, keepdims=True), 0, -np.inf).astype(logits.dtype)
    if temperature == np.inf:
        return np.where(logits == -np.inf, -np.inf, 0).astype(logits.dtype)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        scaled = logits / temperature
    check_no_overflow("temperature", temperature, logits, scaled, "use 0 for its limit, greedy")
    return scaled


def apply_repetition_penalty(logits, input_ids, penalty):
    """Make tokens that have occurred less likely: ``s / p`` where s > 0, ``s * p`` elsewhere.

    Parameters
    ----------
    logits : array [..., V]
    input_ids : int array [..., L]
        Everything in the row so far: prompt, pads and what was generated. An id counts once.
    penalty : float > 0
        1 changes nothing; below 1 favours repetition.

    Returns
    -------
    array [..., V]

    Raises
    ------
    ValueError, TypeError
        A penalty ≤ 0, not finite, or so extreme that the products overflow; ids outside the vocabulary.

    Notes
    -----
    Source: chapter 10.7; Keskar et al. 2019, "CTRL". A penalised logit never rises, a logit of exactly 0
    does not move. A *probability* can rise, where its rivals are penalised more.

    Examples
    --------
    Ids 0 and 1 have occurred:

    >>> apply_repetition_penalty([2.0, -2.0, 1.0], [0, 1, 1], 1.5).round(3)
    array([ 1.333, -3.   ,  1.   ])
    """
    logits, penalty = logits_of(logits), number("repetition_penalty", penalty)
    if not (penalty > 0 and np.isfinite(penalty)):
        raise ValueError(f"repetition_penalty must be positive and finite, not {penalty}")
    ids = np.atleast_1d(ids_within(input_ids, logits.shape[-1]))
    ids = np.broadcast_to(ids, logits.shape[:-1] + ids.shape[-1:])
    seen = np.zeros(logits.shape, bool)
    np.put_along_axis(seen, ids, True, axis=-1)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        penalised = np.where(seen, np.where(logits > 0, logits / penalty, logits * penalty), logits)
    check_no_overflow("repetition_penalty", penalty, logits, penalised, "1 changes nothing, 1.1 is usual")
    return penalised


def top_k_threshold(logits, k):
    """The k-th greatest logit.

    Parameters
    ----------
    logits : array [..., V]
    k : int, 1 … V

    Returns
    -------
    array [..., 1]

    Examples
    --------
    Chapter 10.5:

    >>> top_k_threshold([2.0, 5.0, 1.0, 4.0, 0.5, 3.0], 3)
    array([3.])
    """
    logits = logits_of(logits)
    k, v = whole_number("k", k), logits.shape[-1]
    if not 1 <= k <= v:
        raise ValueError(f"the k-th greatest of {v} logits: k must be 1 … {v}, not {k}")
    return np.partition(logits, v - k, axis=-1)[..., v - k, None]  # [..., V] -> [..., 1]


def apply_top_k(logits, k, *, top_k_threshold=top_k_threshold):
    """Keep the k greatest logits, set the others to −inf. Ties of the k-th all stay.

    Parameters
    ----------
    logits : array [..., V]
    k : int ≥ 0, or None
        0 and None are off; more than V keeps everything.

    Returns
    -------
    array [..., V]

    Notes
    -----
    Source: chapter 10.5; Fan et al. 2018. Differs from upstream: k > V and None raise there.

    Examples
    --------
    >>> apply_top_k([2.0, 5.0, 1.0, 4.0, 0.5, 3.0], 3)
    array([-inf,   5., -inf,   4., -inf,   3.])
    >>> apply_top_k([1.0, 2.0, 2.0, 2.0], 2)
    array([-inf,   2.,   2.,   2.])
    """
    logits = logits_of(logits)
    if k is None:
        return logits.copy()
    k = whole_number("top_k", k, least=0)
    if k == 0 or k >= logits.shape[-1]:
        return logits.copy()
    return np.where(logits < top_k_threshold(logits, k), -np.inf, logits)


class Nucleus(NamedTuple):
    """The steps of top-p, in the chapter's order. All ``[..., V]``; all but the last in sorted order."""

    sorted_logits: np.ndarray
    sorted_indices: np.ndarray
    cumulative: np.ndarray
    exceeds: np.ndarray
    shifted: np.ndarray
    mask: np.ndarray


def top_p_mask(logits, p, *, softmax=softmax):
    """What lies outside the nucleus, with every step on the way.

    Parameters
    ----------
    logits : array [..., V]
    p : float ≥ 0
        Compared in the dtype of the logits, as torch does.

    Returns
    -------
    sorted_logits : array [..., V]
        Descending; of equals, the lowest id first.
    sorted_indices : int64 array [..., V]
    cumulative : array [..., V]
        Running sum of the sorted probabilities, added up in float64 and rounded to the dtype of the
        logits, as ``torch.cumsum`` does.
    exceeds : bool array [..., V]
        ``cumulative > p``
    shifted : bool array [..., V]
        The same one place to the right, so that the token which crosses p stays; the first is never masked.
    mask : bool array [..., V]
        ``shifted`` in the original order: True is removed.

    Notes
    -----
    Source: chapter 10.6, steps 1–4; Holtzman et al. 2019. Where ``cumulative`` hits p exactly, one token
    more stays than in HF, and than the chapter's text (not its code) says.

    Examples
    --------
    The chapter's example, p = 0.85:

    >>> steps = top_p_mask(np.log([0.5, 0.3, 0.15, 0.04, 0.01]), 0.85)
    >>> steps.cumulative.round(2)
    array([0.5 , 0.8 , 0.95, 0.99, 1.  ])
    >>> steps.exceeds, steps.shifted
    (array([False, False,  True,  True,  True]), array([False, False, False,  True,  True]))
    """
    logits, p = logits_of(logits), number("top_p", p)
    if not p >= 0:
        raise ValueError(f"top_p must be 0 or more, not {p}")
    sorted_indices = np.argsort(-logits, axis=-1, kind="stable")
    sorted_logits = np.take_along_axis(logits, sorted_indices, axis=-1)
    probs = softmax(sorted_logits)
    cumulative = np.cumsum(probs, axis=-1, dtype=np.float64).astype(logits.dtype)
    exceeds = cumulative > p
    shifted = np.zeros_like(exceeds)
    shifted[..., 1:] = exceeds[..., :-1]
    mask = np.empty_like(shifted)
    np.put_along_axis(mask, sorted_indices, shifted, axis=-1)
    return Nucleus(sorted_logits, sorted_indices, cumulative, exceeds, shifted, mask)


def apply_top_p(logits, p, *, top_p_mask=top_p_mask):
    """Keep the nucleus, the most likely tokens that together reach p; set the others to −inf.

    Parameters
    ----------
    logits : array [..., V]
    p : float ≥ 0, or None
        None and 1 or more are off; 0 keeps the single most likely token.

    Returns
    -------
    array [..., V]

    Notes
    -----
    Source: chapter 10.6. The steps are :func:`top_p_mask`'s.

    Examples
    --------
    >>> np.exp(apply_top_p(np.log([0.15, 0.5, 0.04, 0.3, 0.01]), 0.85)).round(2)
    array([0.15, 0.5 , 0.  , 0.3 , 0.  ])
    """
    logits = logits_of(logits)
    if p is None:
        return logits.copy()
    if number("top_p", p) >= 1:
        return logits.copy()
    return np.where(top_p_mask(logits, p).mask, -np.inf, logits)


def greedy(logits):
    """The id of the greatest logit; of equals, the lowest id.

    Parameters
    ----------
    logits : array [..., V]

    Returns
    -------
    int64 array [...]

    Notes
    -----
    Source: chapter 10.8.

    Examples
    --------
    >>> int(greedy([0.0, 3.0, 3.0]))
    1
    """
    return np.argmax(logits_of(logits), axis=-1).astype(np.int64)


def multinomial(probs, u):
    """Draw by inverting the cumulative distribution: the first id at which it exceeds ``u * total``.

    Parameters
    ----------
    probs : array [..., V]
        Not negative; the sum need not be exactly one.
    u : array [...] of floats in [0, 1)
        The random number is an argument: the same u gives the same token, in any language.

    Returns
    -------
    int64 array [...]. Never an id of probability 0.

    Raises
    ------
    ValueError
        Negative, nan or all-zero probabilities; u outside [0, 1).

    Notes
    -----
    The sum runs in ascending id order in float64: in float32 about one draw in 600 falls to another
    token. Differs from upstream: ``torch.multinomial`` draws otherwise; see
    :class:`npminimind.TorchGenerator` for its very tokens.

    Examples
    --------
    Cumulative .25, .25, 1: u just below .25 is id 0, from .25 on id 2; id 1 has probability 0.

    >>> multinomial([[0.25, 0.0, 0.75]] * 3, [0.0, 0.2499, 0.25])
    array([0, 0, 2])
    """
    probs, u = probabilities(probs), as_float(u)
    if not np.all((u >= 0) & (u < 1)):
        raise ValueError(f"u must lie in [0, 1), got {u}")
    if u.ndim and u.shape != probs.shape[:-1]:
        raise ValueError(f"u has shape {u.shape}, need one number a row, {probs.shape[:-1]}")
    cumulative = np.cumsum(probs, axis=-1, dtype=np.float64)  # [..., V]
    total = cumulative[..., -1]
    # u * total may round up to total, which no sum exceeds: stay just below.
    target = np.minimum(u * total, np.nextafter(total, 0))
    return np.argmax(cumulative > target[..., None], axis=-1).astype(np.int64)
