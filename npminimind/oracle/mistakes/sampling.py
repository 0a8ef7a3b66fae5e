"""Mistakes inside a sampling stage."""

import numpy as np

from ...primitives import as_float, softmax
from ...sampling import Nucleus, top_k_threshold, top_p_mask
from .mistake import wrong


def seen_ids(logits, input_ids):
    logits = as_float(logits)
    ids = np.asarray(input_ids, np.int64)
    return logits, np.broadcast_to(ids, logits.shape[:-1] + ids.shape[-1:])


def penalty_with(rule):
    """``rule(logits, count, penalty)``: count says how often each id has occurred."""

    def apply_repetition_penalty(logits, input_ids, penalty):
        logits, ids = seen_ids(logits, input_ids)
        count = np.zeros(logits.shape, np.int64)
        rows = np.indices(ids.shape)[:-1]
        np.add.at(count, (*rows, ids), 1)
        return np.where(count > 0, rule(logits, count, np.asarray(penalty, logits.dtype)), logits).astype(logits.dtype)

    return apply_repetition_penalty


def sign_rule(logits, penalty):
    return np.where(logits > 0, logits / penalty, logits * penalty)


def top_k_exactly(logits, k, *, top_k_threshold=top_k_threshold):
    """Exactly k stay, of equals the lowest ids."""
    logits = as_float(logits)
    if not k or k >= logits.shape[-1]:
        return logits.copy()
    kept = np.argsort(-logits, axis=-1, kind="stable")[..., :k]
    result = np.full_like(logits, -np.inf)
    np.put_along_axis(result, kept, np.take_along_axis(logits, kept, -1), -1)
    return result


def top_k_strict(logits, k, *, top_k_threshold=top_k_threshold):
    """The k-th itself is removed; the greatest always stays."""
    logits = as_float(logits)
    if not k or k >= logits.shape[-1]:
        return logits.copy()
    removed = (logits <= top_k_threshold(logits, k)) & (logits < logits.max(-1, keepdims=True))
    return np.where(removed, -np.inf, logits)


def nucleus_where(shifted_of):
    """A nucleus whose removed entries, in sorted order, are ``shifted_of(steps, p)``."""

    def mask(logits, p, *, softmax=softmax):
        steps = top_p_mask(logits, p, softmax=softmax)
        shifted = shifted_of(steps, p)
        removed = np.empty_like(shifted)
        np.put_along_axis(removed, steps.sorted_indices, shifted, -1)
        return steps._replace(shifted=shifted, mask=removed)

    return mask


def shift(exceeds):
    shifted = np.zeros_like(exceeds)
    shifted[..., 1:] = exceeds[..., :-1]
    return shifted


def not_shifted(steps, p):
    removed = steps.exceeds.copy()
    removed[..., 0] = False  # else nothing is left where the first token alone exceeds p
    return removed


def nucleus_unsorted(logits, p, *, softmax=softmax):
    """Sums up in the order of the ids."""
    logits = as_float(logits)
    index = np.broadcast_to(np.arange(logits.shape[-1]), logits.shape)
    cumulative = np.cumsum(softmax(logits), axis=-1, dtype=np.float64).astype(logits.dtype)
    exceeds = cumulative > p
    return Nucleus(logits, index, cumulative, exceeds, shift(exceeds), shift(exceeds))


def draw_where(index_of):
    """``index_of(probs, u[..., None]) -> id``"""

    def multinomial(probs, u):
        probs = as_float(probs)
        return np.asarray(index_of(probs, np.asarray(u, np.float64)[..., None])).astype(np.int64)

    return multinomial


def draw_float32(probs, u):
    cumulative = np.cumsum(probs.astype(np.float32), axis=-1, dtype=np.float32)
    return np.argmax(cumulative > u.astype(np.float32) * cumulative[..., -1:], axis=-1)


def draw_sorted(probs, u):
    order = np.argsort(-probs, axis=-1, kind="stable")
    cumulative = np.cumsum(np.take_along_axis(probs, order, -1), axis=-1, dtype=np.float64)
    place = np.argmax(cumulative > u * cumulative[..., -1:], axis=-1)
    return np.take_along_axis(order, place[..., None], -1)[..., 0]


def draw_inclusive(probs, u):
    cumulative = np.cumsum(probs, axis=-1, dtype=np.float64)
    return np.argmax(cumulative >= u * cumulative[..., -1:], axis=-1)


def greedy_last(logits):
    logits = as_float(logits)
    return (logits.shape[-1] - 1 - np.argmax(logits[..., ::-1], axis=-1)).astype(np.int64)


def stage(name, id, bug_type, description, effect, function):
    return wrong(name, function, id=id, bug_type=bug_type, description=description, effect=effect)


OFF = "more tokens stay than should"

MISTAKES = (
    stage("apply_temperature", "temperature-multiplies", "function",
          "multiplies with the temperature instead of dividing",
          "flat where it should be sharp", lambda logits, temperature: as_float(logits) * temperature),
    stage("apply_temperature", "temperature-ignored", "missing-step", "does not apply the temperature",
          "another candidate set and other probabilities", lambda logits, temperature: as_float(logits).copy()),
    stage("apply_repetition_penalty", "penalty-divides-negatives", "rule", "divides negative logits too",
          "a penalised negative logit rises", penalty_with(lambda s, count, p: s / p)),
    stage("apply_repetition_penalty", "penalty-counts-multiplicity", "rule", "applies the penalty once per occurrence",
          "tokens that occur often are pushed too far", penalty_with(lambda s, count, p: sign_rule(s, p**count))),
    stage("apply_repetition_penalty", "penalty-inverted", "sign", "favours what has occurred instead of penalising it",
          "repeats itself", penalty_with(lambda s, count, p: sign_rule(s, 1 / p))),
    stage("apply_repetition_penalty", "penalty-subtracts", "function",
          "subtracts the penalty, as a presence penalty does",
          "other probabilities for what has occurred", penalty_with(lambda s, count, p: s - p)),
    stage("apply_repetition_penalty", "penalty-ignored", "missing-step", "does not apply the repetition penalty",
          "repeats itself", lambda logits, input_ids, penalty: as_float(logits).copy()),
    stage("apply_top_k", "top-k-drops-ties", "rule", "keeps exactly k where several equal the k-th",
          "only on ties", top_k_exactly),
    stage("apply_top_k", "top-k-strict", "rule", "removes the k-th greatest too", "one candidate less", top_k_strict),
    stage("apply_top_k", "top-k-ignored", "missing-step", "does not apply top-k", OFF,
          lambda logits, k: as_float(logits).copy()),
    stage("top_p_mask", "top-p-not-shifted", "rule", "removes the token that crosses p", "one candidate less",
          nucleus_where(not_shifted)),
    stage("top_p_mask", "top-p-exact-hit", "rule", "compares with >= as HF does, not >",
          "only where the sum hits p exactly",
          nucleus_where(lambda steps, p: shift(steps.cumulative >= p))),
    stage("top_p_mask", "top-p-one-more", "rule", "shifts twice: keeps one token after the one that crosses p",
          "one candidate more", nucleus_where(lambda steps, p: shift(shift(steps.exceeds)))),
    stage("top_p_mask", "top-p-unsorted", "order", "sums up in id order, without sorting",
          "low ids stay, likely ones go",
          nucleus_unsorted),
    stage("apply_top_p", "top-p-ignored", "missing-step", "does not apply top-p", OFF,
          lambda logits, p: as_float(logits).copy()),
    stage("multinomial", "cdf-float32", "precision", "sums the probabilities in float32",
          "about one draw in 600 falls to another token", draw_where(draw_float32)),
    stage("multinomial", "cdf-sorted", "order", "sums in order of probability, not in id order",
          "the same distribution, other tokens for the same u", draw_where(draw_sorted)),
    stage("multinomial", "cdf-inclusive", "rule", "takes the first id whose sum reaches u instead of exceeding it",
          "only where u hits an edge exactly, such as 0", draw_where(draw_inclusive)),
    stage("multinomial", "draw-argmax", "function", "takes the most likely token instead of drawing", "no randomness",
          draw_where(lambda probs, u: np.argmax(probs, axis=-1))),
    stage("greedy", "argmax-last", "rule", "takes the last of several greatest logits", "only on ties", greedy_last),
)  # fmt: skip
