"""What the size and the pattern of an error say."""

import itertools
import math

import numpy as np

from .compare_arrays import rms_of
from .compare_run import dims_of, place_of

# The size of an error, relative to the root mean square, that rounding the weights alone makes: measured from q_proj
# of the first layer to the logits, on the same ten models as the float32 floor.
FLOAT16_SIZE = (3e-4, 1.1e-2)
BFLOAT16_SIZE = (2.5e-3, 1e-1)
AXES = {"B": "row", "S": "position", "T": "position", "N": "head", "K": "head"}


def explain(name, ours, theirs, apart, limit, run=None):
    """Sentences on how a candidate's array differs, the most telling first.

    Parameters
    ----------
    name : str
    ours, theirs : arrays of one shape
    apart : array
        Their distance, 0 where nothing counts.
    limit : float
        What may differ, absolute.
    run : Run or None

    Returns
    -------
    list of str

    Examples
    --------
    >>> a = np.arange(1.0, 13.0).reshape(1, 4, 3)
    >>> explain("model.norm", a, 2 * a, a, 1e-6)
    ['scaled: 2 times the reference']
    """
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    wrong = apart > limit
    found = not_finite(ours, theirs, wrong) or []
    if not found:
        for look in (rounded, zeros, scaled, shifted_by, transposed, heads_moved, reordered):
            sentence = look(name, ours, theirs, limit)
            if sentence:
                found = [sentence]
                break
    places = where(name, wrong, run)
    if not found:
        found = size(apart, ours, everywhere=not places)
    return found + places


def not_finite(ours, theirs, wrong):
    bad = ~np.isfinite(theirs) & np.isfinite(ours) & wrong
    if not bad.any():
        return None
    kind = "NaN" if np.isnan(theirs[bad]).any() else "infinity"
    at = tuple(int(i) for i in np.argwhere(bad)[0])
    share = f"{bad.sum()} of {bad.size} entries"
    return [f"{kind} starts here, first at {list(at)} ({share})"]


def rounded(name, ours, theirs, limit):
    """Exactly the reference, in fewer bits."""
    with np.errstate(over="ignore"):
        for bits, cast in (("float16", lambda x: x.astype(np.float16)), ("bfloat16", to_bfloat16)):
            if close(np.asarray(cast(ours), np.float64), theirs, limit):
                what = "its weights were" if name.endswith("embed_tokens") else "the array was"
                return f"the reference rounded to {bits}: {what} stored in {bits}"
    return None


def to_bfloat16(x):
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def zeros(name, ours, theirs, limit):
    return "the candidate is all zeros" if not theirs.any() and ours.any() else None


def scaled(name, ours, theirs, limit):
    factor = fit(ours, theirs)
    if factor is None or abs(factor - 1) < 1e-9 or not close(factor * ours, theirs, limit * max(1, abs(factor))):
        return None
    if abs(factor + 1) < 1e-6:
        return "the sign is flipped"
    if abs(factor - 1) < 1e-4:
        return None
    return f"scaled: {factor:.6g} times the reference{named(factor, ours, name)}"


def fit(ours, theirs):
    """The factor that brings one closest to the other."""
    both = np.isfinite(ours) & np.isfinite(theirs)
    a, b = ours[both], theirs[both]
    return float(a @ b / (a @ a)) if both.any() and a.any() else None


def named(factor, ours, name):
    """Recognise a factor as made of the array's own dims."""
    sizes = dict(zip(dims_of(name), ours.shape))
    for letter, n in sizes.items():
        if letter not in ("D", "H", "N"):
            continue
        for text, value in ((f"sqrt({letter})", math.sqrt(n)), (letter, n)):
            if n > 1 and abs(factor / value - 1) < 1e-5:
                return f", {text} with {letter} = {n}"
            if n > 1 and abs(factor * value - 1) < 1e-5:
                return f", 1/{text} with {letter} = {n}"
    return ""


def shifted_by(name, ours, theirs, limit):
    with np.errstate(invalid="ignore"):
        offset = float(np.nanmean(theirs - ours)) if np.isfinite(theirs).all() and np.isfinite(ours).all() else 0.0
    return f"a constant {offset:.6g} was added" if offset and close(ours + offset, theirs, limit) else None


def transposed(name, ours, theirs, limit):
    """The same numbers with two axes exchanged, or read in another order."""
    dims = dims_of(name) if len(dims_of(name)) == ours.ndim else [f"axis {i}" for i in range(ours.ndim)]
    pairs = list(itertools.combinations([i for i in range(ours.ndim) if ours.shape[i] > 1], 2))
    for i, j in pairs:
        if ours.shape[i] == ours.shape[j] and close(ours.swapaxes(i, j), theirs, limit):
            return f"transposed: {dims[i]} and {dims[j]} are exchanged"
    for i, j in pairs:
        if close(ours.swapaxes(i, j).reshape(ours.shape), theirs, limit):
            return f"transposed: {dims[i]} and {dims[j]} are exchanged, then read in this shape"
    if ours.ndim and ours.shape[-1] % 2 == 0:
        halves = ours.reshape(*ours.shape[:-1], 2, -1).swapaxes(-1, -2).reshape(ours.shape)
        if close(halves, theirs, limit):
            return "the two halves of the last axis are woven together"
    return None


def heads_moved(name, ours, theirs, limit):
    dims = dims_of(name)
    axis = next((dims.index(letter) for letter in "NK" if letter in dims), None)
    if axis is None or ours.shape[axis] > 64:
        return None
    a, b = np.moveaxis(ours, axis, 0), np.moveaxis(theirs, axis, 0)
    order = [next((i for i in range(len(a)) if close(a[i], b[j], limit)), None) for j in range(len(b))]
    return None if None in order or order == list(range(len(a))) else f"the heads are in another order: {order}"


def reordered(name, ours, theirs, limit):
    if ours.size < 2 or not close(np.sort(ours, axis=None), np.sort(theirs, axis=None), limit):
        return None
    return "the same numbers in another order"


def close(a, b, limit):
    with np.errstate(invalid="ignore"):
        return bool(np.all((np.abs(a - b) <= limit) | (a == b)))


# ---------------------------------------------------------------------------------------------
# Where


def where(name, wrong, run):
    """Which rows, positions and heads are wrong, where not all are."""
    dims, found = dims_of(name), []
    if len(dims) != wrong.ndim or wrong.all() or not wrong.any():
        return []
    for axis, letter in enumerate(dims):
        if letter not in AXES or wrong.shape[axis] < 2:
            continue
        bad = np.flatnonzero(wrong.any(axis=tuple(i for i in range(wrong.ndim) if i != axis)))
        if len(bad) < wrong.shape[axis]:
            found.append(sentence(AXES[letter], bad.tolist(), wrong.shape[axis], name, run))
    if "T" in dims and "S" in dims:  # keys say nothing that queries don't say better
        found = found[:-1] if len(found) > 1 and "position" in found[-1] else found
    return found


def sentence(what, bad, count, name, run):
    first, contiguous = bad[0], bad == list(range(bad[0], count))
    if what == "row":
        mask = run.mask_of_round(place_of(name)[0]) if run else None
        if mask is not None and bad == np.flatnonzero((mask == 0).any(axis=1)).tolist():
            return f"only padded rows are wrong: {bad}"
    if what == "position" and contiguous and first == 1:
        return "right at position 0 and wrong later"
    if what == "position" and contiguous and first:
        return f"right up to position {first - 1} and wrong from {first} on"
    if what == "position" and bad == list(range(count - 1)):
        return "only the last position is right"
    listed = ", ".join(map(str, bad[:8])) + (" …" if len(bad) > 8 else "")
    return f"only {what}{'s' if len(bad) > 1 else ''} {listed} of {count}"


# ---------------------------------------------------------------------------------------------
# How much


def size(apart, ours, everywhere):
    """The ladder of error sizes. Rounded weights spare no position and no head."""
    rms = rms_of(ours)
    relative = float(apart.max(initial=0)) / rms if rms else math.inf
    if relative < FLOAT16_SIZE[0]:
        return ["small, but more than float32 rounding: a constant (eps), or a sum in lower precision"]
    sizes = [
        bits
        for bits, (low, high) in (("float16", FLOAT16_SIZE), ("bfloat16", BFLOAT16_SIZE))
        if low <= relative <= high
    ]
    if sizes and not everywhere:
        return []
    if sizes:
        return [f"of the size that weights rounded to {' or '.join(sizes)} make"]
    return ["too large for rounding: something else was computed"]
