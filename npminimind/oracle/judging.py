"""Is an answer right? Shapes, kinds of numbers, and a tolerance that was measured."""

from typing import NamedTuple

import numpy as np

SLACK = 10  # an answer may be ten times as far from the truth as our own float32
FLOAT32 = float(np.finfo(np.float32).eps)


class Problem(NamedTuple):
    """What is wrong with an answer.

    Attributes
    ----------
    kind : str
        ``unsolved``, ``raised``, ``results``, ``shape``, ``type``, ``value``, ``changed``, ``accepted``.
    message : str
    at : tuple of int or None
        Where the answer is furthest from the truth.
    """

    kind: str
    message: str
    at: tuple | None = None


def tolerance(expected, floor, dtype):
    """How far an answer in ``dtype`` may be from the float64 truth.

    Parameters
    ----------
    expected : array
    floor : float
        How far float32 was measured to be off. It counts as at least half a unit in the last place of the greatest
        number, which is what writing the truth down in float32 costs.
    dtype : numpy dtype
        float64 gets the float32 tolerance scaled by the ratio of the two precisions. Lower precision than float32
        gets no more than float32.

    Examples
    --------
    >>> tolerance(np.array([1.0]), floor=2e-7, dtype=np.float32)
    2e-06
    """
    finite = np.abs(expected[np.isfinite(expected)])
    least = finite.max(initial=0) * FLOAT32 / 2
    eps = min(float(np.finfo(dtype).eps), FLOAT32)
    return float(SLACK * max(floor, least) * eps / FLOAT32)


def distance(expected, got):
    """Element by element, how far apart; infinite where one is inf or nan and the other is not just that.

    Examples
    --------
    >>> distance(np.array([1.0, -np.inf, np.nan]), np.array([1.5, -np.inf, 0.0]))
    array([0.5, 0. , inf])
    """
    expected, got = np.asarray(expected, np.float64), np.asarray(got, np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.abs(expected - got)
    apart = np.where((expected == got) | np.isnan(expected) & np.isnan(got), 0, apart)
    return np.where(np.isnan(apart), np.inf, apart)


def judge_array(expected, got, floor=0.0, name="out", free=False):
    """None where an answer is right, else the Problem.

    Parameters
    ----------
    expected : array or str
        float64, int64 or bool.
    got : anything
    floor : float
    name : str
        What the message calls it.
    free : bool array, or False
        True where any number will do: rows of pads.
    """
    called = "the answer" if name == "out" else name
    if isinstance(expected, str):
        return None if got == expected else Problem("value", f"{called} is {got!r}, expected {expected!r}")
    if got is None:
        return Problem("type", f"{called} is None: is a return missing?")
    try:
        got = np.asarray(got)
    except ValueError:
        return Problem("shape", f"{called} is a ragged list, need an array of shape {expected.shape}")
    if got.shape != expected.shape:
        return Problem("shape", f"{called} has shape {got.shape}, need {expected.shape}")
    if got.dtype.kind not in {"f": "fiu", "i": "iu", "b": "biu"}[expected.dtype.kind]:
        wanted = {"f": "numbers", "i": "whole numbers", "b": "true or false"}[expected.dtype.kind]
        return Problem("type", f"{called} is of type {got.dtype}, need {wanted}")
    apart = np.where(free, 0, distance(expected, got))
    allowed = tolerance(expected, floor, got.dtype if got.dtype.kind == "f" else np.float64)
    if expected.dtype.kind != "f":
        allowed = 0.0
    if not apart.size or apart.max() <= allowed:
        return None
    at = tuple(int(i) for i in np.unravel_index(np.argmax(apart), apart.shape))
    where = f" at {list(at)}" if at else ""
    words = f"{called}{where} is {got[at]!s}, expected {expected[at]!s}"
    if np.isfinite(apart[at]) and allowed:
        words += f": off by {apart[at]:.2g}, allowed {allowed:.2g} ({got.dtype})"
    return Problem("value", words, at)


def judge(expected, got, floors=None, free=None):
    """The same for a dict of results: the first Problem, or None.

    Parameters
    ----------
    expected, got : dicts of str -> array
    floors : dict of str -> float
    free : dict of str -> bool array

    Examples
    --------
    >>> judge({"out": np.array([1.0, 2.0])}, {"out": [1.0, 2.5]}).message
    'the answer at [1] is 2.5, expected 2.0: off by 0.5, allowed 2.2e-15 (float64)'
    """
    for name, array in expected.items():
        if name not in got:
            return Problem("results", f"{name} is missing; need {', '.join(expected)}")
        problem = judge_array(array, got[name], (floors or {}).get(name, 0.0), name, (free or {}).get(name, False))
        if problem:
            return problem
    return None
