"""How far the stored truth is from computations that are not npminimind's; the manifest says it."""

from importlib.metadata import version

import exact
import hf_truth
import numpy as np
import torch_truth

from npminimind.oracle.judging import distance
from npminimind.oracle.vectors import load_vectors

MPMATH = f"mpmath {version('mpmath')} with 50 digits, and exact fractions (make/exact.py)"
TORCH = f"torch {version('torch')} in float64 (make/torch_truth.py)"
HF = f"transformers {version('transformers')}, models in float32 (make/hf_truth.py)"
SOURCES = [
    (exact.EXACT, MPMATH),
    (torch_truth.OPERATORS | torch_truth.MODELS, TORCH),
    (hf_truth.KNOWN, HF),
]


def cross_checks(suite, folder=None):
    """For each independent source that knows this suite: its name and the greatest distance.

    ``relative`` is to the greatest number of the result. Whole numbers, texts and infinities must be equal.

    Returns
    -------
    list of {"with", "cases", "max_distance", "max_relative"}
    """
    cases = [case for case in load_vectors(suite, folder) if case.result != "invalid"]
    found = []
    for functions, name in SOURCES:
        if cases[0].operator in functions:
            apart = [compared(case, functions[case.operator]) for case in cases]
            greatest, relative = np.max(np.array(apart), axis=0)
            how_far = {"max_distance": float(f"{greatest:.2g}"), "max_relative": float(f"{relative:.2g}")}
            found.append({"with": name, "cases": len(cases)} | how_far)
    return found


def compared(case, function):
    """Greatest distance of a case from what the function answers, absolute and relative."""
    answer = function(as_lists(case.args))
    pairs = [(right, answer[name], case.free.get(name, False)) for name, right in case.expected.items()]
    alternatives = [np.asarray(other["out"]) for other in case.alternatives if "out" in other]
    return np.max([apart(*pair, alternatives if case.result == "acceptable" else []) for pair in pairs], axis=0)


def apart(right, other, free, alternatives):
    if isinstance(right, str):
        assert right == other, (right, other)
        return 0.0, 0.0
    other = other.numpy() if hasattr(other, "numpy") else np.array(other, dtype=object)
    other = other.astype(np.float64).reshape(np.shape(right))
    distances = [np.where(free, 0, distance(one, other)).max(initial=0) for one in [right, *alternatives]]
    finite = np.abs(right[np.isfinite(right)]) if right.dtype.kind == "f" else np.ones(1)
    return min(distances), min(distances) / max(finite.max(initial=0), np.finfo(float).tiny)


def as_lists(value):
    if isinstance(value, dict):
        return {key: as_lists(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_lists(inner) for inner in value]
    return value.tolist() if isinstance(value, np.ndarray) else value
