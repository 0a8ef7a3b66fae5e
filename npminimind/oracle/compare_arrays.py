"""How far apart two arrays of one name are, counting only what means something."""

from typing import NamedTuple

import numpy as np

from .compare_run import dims_of, place_of

MASKED = -1e3  # a masked score is anything below: -inf, -1e9, float16's least …


class Difference(NamedTuple):
    """The distance of a candidate from the reference.

    Attributes
    ----------
    max_abs : float
        Infinite where one is nan or infinite and the other is not.
    relative : float
        ``max_abs`` over the root mean square of the reference.
    cosine : float
    at : tuple of int or None
        Where it is greatest.
    apart : array
        Element by element.
    """

    max_abs: float
    relative: float
    cosine: float
    at: tuple | None
    apart: np.ndarray


def rms_of(array, counted=True):
    """Root mean square of the finite numbers that count.

    Examples
    --------
    >>> rms_of(np.array([3.0, 4.0, -np.inf]))
    3.5355339059327378
    """
    finite = array[np.isfinite(array) & counted]
    return float(np.sqrt(np.mean(np.square(finite, dtype=np.float64)))) if finite.size else 0.0


def difference(reference, candidate, counted=True):
    """Compare two arrays of one shape.

    Parameters
    ----------
    reference, candidate : arrays
    counted : bool array or True
        What is left out has distance 0.

    Returns
    -------
    Difference

    Examples
    --------
    >>> d = difference(np.array([3.0, 4.0, 0.0]), np.array([3.0, 4.5, 9.0]), np.array([True, True, False]))
    >>> d.max_abs, round(d.relative, 3), d.at
    (0.5, 0.141, (1,))
    """
    ours, theirs = np.asarray(reference, np.float64), np.asarray(candidate, np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.abs(ours - theirs)
    apart[(ours == theirs) | np.isnan(ours) & np.isnan(theirs)] = 0
    apart = np.where(counted, np.where(np.isnan(apart), np.inf, apart), 0)
    if not apart.size:
        return Difference(0.0, 0.0, 1.0, None, apart)
    at = tuple(int(i) for i in np.unravel_index(np.argmax(apart), apart.shape))
    rms = rms_of(ours, counted)
    worst = float(apart[at])
    return Difference(worst, worst / rms if rms else np.inf if worst else 0.0, cosine(ours, theirs, counted), at, apart)


def cosine(ours, theirs, counted):
    both = np.isfinite(ours) & np.isfinite(theirs) & counted
    a, b = ours[both], theirs[both]
    norms = np.sqrt(a @ a) * np.sqrt(b @ b)
    return min(float(a @ b / norms), 1.0) if norms else 1.0 if np.array_equal(a, b) else 0.0


# ---------------------------------------------------------------------------------------------
# What does not count


def counted(name, shape, run, arrays):
    """Which entries mean something: no pads, no masked scores.

    Parameters
    ----------
    name : str
    shape : tuple
    run : Run or None
        Where the padding mask is known from.
    arrays : dict
        The trace that the name is from: which tokens an expert has seen stands there.

    Returns
    -------
    bool array of this shape (or broadcastable), or True
    """
    round_, rest, kind = place_of(name)
    result = np.True_
    if rest.endswith("self_attn.masked_scores"):
        s, t = shape[-2:]
        result = np.arange(t) <= np.arange(t - s, t)[:, None]
    mask = run.mask_of_round(round_) if run else None
    if mask is None:
        return result
    dims = dims_of(name)
    if dims and dims[0] == "tokens_of_e":
        return result & tokens_of_expert(name, shape, mask, arrays)
    if "T" in dims and "S" in dims:
        scores = not rest.endswith("probs")  # the probability of a pad is 0, a fact that counts
        keys = mask[:, None, None, -shape[-1] :] == 1 if scores else np.True_
        return result & keys & (mask[:, None, -shape[-2] :, None] == 1)
    if dims[:2] in (["B", "S"], ["B", "T"]):
        real = mask[:, -shape[1] :] == 1
        return result & real.reshape(real.shape + (1,) * (len(shape) - 2))
    if dims[:1] == ["B*S"]:
        return result & (mask[:, -(shape[0] // len(mask)) :] == 1).reshape(-1, 1)
    return result


def tokens_of_expert(name, shape, mask, arrays):
    """The rows of an expert's arrays that belong to tokens, not to pads."""
    tokens, real = expert_tokens(name, arrays), real_tokens(name, mask, arrays)
    return np.True_ if tokens is None or len(tokens) != shape[0] else real[tokens][:, None]


def expert_tokens(name, arrays):
    """Which tokens the rows of an expert's array belong to; None where the router's choice is not known."""
    before, _, after = name.partition("experts.")
    chosen = arrays.get(f"{before}topk_idx")
    return None if chosen is None else np.flatnonzero((np.asarray(chosen) == int(after.split(".")[0])).any(axis=1))


def real_tokens(name, mask, arrays):
    chosen = arrays.get(f"{name.partition('experts.')[0]}topk_idx")
    return None if chosen is None else (mask[:, -(len(chosen) // len(mask)) :] == 1).ravel()


def comparable(name, theirs, run):
    """Whether a port has said enough: with pads, an expert's rows need the router's choice beside them."""
    if dims_of(name)[:1] != ["tokens_of_e"] or not run or run.mask_of_round(place_of(name)[0]) is None:
        return True
    return f"{name.partition('experts.')[0]}topk_idx" in theirs


def only_pads(name, arrays, run):
    """Whether an expert has seen nothing but pads: another program may have sent these elsewhere."""
    mask = run.mask_of_round(place_of(name)[0])
    if mask is None or dims_of(name)[:1] != ["tokens_of_e"]:
        return False
    tokens = expert_tokens(name, arrays)
    return tokens is not None and not real_tokens(name, mask, arrays)[tokens].any()


def aligned(name, ours, theirs, our_arrays, their_arrays, run):
    """An expert's rows in our order: pads mean nothing, so they may have gone to other experts in a port.

    Returns
    -------
    array
        Of our shape, with their numbers for all tokens that are no pads; ``theirs`` as it is where that can't be said.
    """
    mask = run.mask_of_round(place_of(name)[0]) if run else None
    if mask is None or dims_of(name)[:1] != ["tokens_of_e"]:
        return theirs
    first, second = expert_tokens(name, our_arrays), expert_tokens(name, their_arrays)
    if first is None or second is None or len(first) != len(ours) or len(second) != len(theirs):
        return theirs
    real = real_tokens(name, mask, our_arrays)
    if not np.array_equal(first[real[first]], second[real[second]]):
        return theirs
    result = np.array(ours, np.result_type(ours, theirs))
    result[real[first]] = theirs[real[second]]
    return result


def unmasked(name, candidate, run):
    """Entries of masked scores that should be masked and are not: a future token can be seen."""
    if not name.endswith("self_attn.masked_scores"):
        return None
    s, t = candidate.shape[-2:]
    hidden = np.broadcast_to(np.arange(t) > np.arange(t - s, t)[:, None], candidate.shape)
    mask = run.mask_of_round(place_of(name)[0]) if run else None
    if mask is not None:
        rows = mask[:, None, -s:, None] == 1
        hidden = (hidden | (mask[:, None, None, -t:] == 0)) & rows
    with np.errstate(invalid="ignore"):
        return hidden & ~(candidate < MASKED)
