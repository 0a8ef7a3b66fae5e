"""Choices between what is equal within the floor: either is right."""

import numpy as np

from .compare_floor import FLOAT32, SLACK
from .compare_run import place_of

FLOAT64_SUM = 1e-12  # what the order of a float64 sum can change


def near_tie(name, ours, theirs, reference, run, floors, given=()):
    """Whether the candidate chose otherwise only where rounding decides.

    Parameters
    ----------
    name : str
        ``topk_idx``, ``after_top_k``, ``after_top_p`` or ``next_token``; any other is no choice.
    ours, theirs : arrays
    reference : dict of str -> array
        What the choice was made from stands there.
    run : Run or None
    floors : dict of str -> float
    given : names
        What the candidate has shown itself is no matter of rounding.

    Returns
    -------
    bool
    """
    choice = place_of(name)[1].rsplit(".", 1)[-1]
    head = name.removesuffix(choice)

    def source(other):
        array = reference.get(head + other)
        return array, SLACK * max(floors.get(head + other, 0.0), FLOAT32)

    if choice == "topk_idx":
        return equal_scores(ours, theirs, *source("router_probs"))
    if choice in ("after_top_k", "after_top_p"):
        p = run.arguments.get("top_p", 0.85) if run and choice == "after_top_p" else None
        logits, slack = source("after_repetition_penalty" if choice == "after_top_k" else "after_top_k")
        return equal_sets(ours, theirs, slack, logits, p)
    if choice == "next_token":
        return equal_tokens(ours, theirs, reference, head, floors, given)
    return False


def equal_scores(ours, theirs, probs, slack):
    """Each chosen expert is as probable as the one in its place, within the floor."""
    if probs is None or ours.shape != theirs.shape or theirs.min() < 0 or theirs.max() >= probs.shape[-1]:
        return False
    a, b = np.take_along_axis(probs, ours, -1), np.take_along_axis(probs, theirs.astype(np.int64), -1)
    distinct = np.all(np.diff(np.sort(theirs, axis=-1), axis=-1) > 0)
    return bool(distinct and np.all(np.abs(a - b) <= slack * np.abs(a).max()))


def equal_sets(ours, theirs, slack, logits, p):
    """The kept logits are the same numbers, or the sum hits p within the floor."""
    kept, other = np.isfinite(ours), np.isfinite(theirs)
    scale = np.abs(ours[kept]).max(initial=1)
    both = kept & other
    if np.abs(np.where(both, ours, 0) - np.where(both, theirs, 0)).max(initial=0) > slack * scale:
        return False
    return all(
        equal_row(ours[row], theirs[row], slack * scale, None if logits is None else logits[row], p)
        for row in np.flatnonzero((kept != other).any(axis=-1))
    )


def equal_row(ours, theirs, slack, logits, p):
    kept, other = np.sort(ours[np.isfinite(ours)]), np.sort(theirs[np.isfinite(theirs)])
    if len(kept) == len(other):
        return bool(np.all(np.abs(kept - other) <= slack))
    if p is None or logits is None:
        return False
    return abs(nucleus_sum(logits, min(len(kept), len(other))) - p) <= slack


def nucleus_sum(logits, count):
    """The probability of the ``count`` most likely."""
    weights = np.exp(np.sort(logits.astype(np.float64))[::-1] - logits.max())
    return float(weights[:count].sum() / weights.sum())


def nucleus_undecided(logits, p, slack):
    """Whether the running sum of some row comes so close to p that rounding decides who is in the nucleus."""
    if p is None or p >= 1:
        return False
    weights = np.exp(np.sort(logits.astype(np.float64), axis=-1)[:, ::-1] - logits.max(axis=-1, keepdims=True))
    cumulative = np.cumsum(weights, axis=-1) / weights.sum(axis=-1, keepdims=True)
    return bool((np.abs(cumulative - p) <= slack).any())


def equal_tokens(ours, theirs, reference, head, floors, given=()):
    """u lies at an edge of the candidate's token, or its logit is as great as the greatest."""
    probs, u, logits = (reference.get(head + other) for other in ("probs", "u", "after_top_p"))
    if logits is None or theirs.shape != ours.shape or theirs.min() < 0 or theirs.max() >= logits.shape[-1]:
        return False
    rows = np.flatnonzero(ours[:, 0] != theirs[:, 0])
    source = "after_top_p" if u is None else "probs"
    slack = 0.0 if head + source in given else SLACK * max(floors.get(head + source, 0.0), FLOAT32)
    if u is None:
        return slack > 0 and all(
            logits[row, theirs[row, 0]] >= logits[row].max() - slack * np.abs(logits[row].max()) for row in rows
        )
    slack = max(slack * float(np.sqrt(np.mean(probs**2))), FLOAT64_SUM)
    return all(beside_edge(probs[row], u[row], int(theirs[row, 0]), slack) for row in rows)


def beside_edge(probs, u, token, slack):
    """Whether u comes so close to an edge of this token that rounding decides if it is drawn.

    Examples
    --------
    >>> beside_edge(np.array([0.5, 0.5]), 0.5, 0, 1e-6), beside_edge(np.array([0.5, 0.5]), 0.6, 0, 1e-6)
    (True, False)
    """
    cumulative = np.cumsum(probs, dtype=np.float64)
    edges = np.array([cumulative[token] - probs[token], cumulative[token]])
    return bool(probs[token] > 0 and (np.abs(edges - u * cumulative[-1]) <= slack).any())
