"""Wrong answers to the exercises, as learners write them: operator -> mistake -> function.

The course must catch each of them and name the mistake (``tests/test_notebooks.py``). The names are those of
``npminimind.oracle``. Every function is written from scratch: none uses the oracle's own table of mistakes.
"""

import numpy as np


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def sorted_out(logits, p, shift=True, reaches=np.greater, sort=True):
    """Top-p with a switch for each way to get it wrong."""
    if p >= 1:
        return logits.copy()
    order = np.argsort(-logits, axis=-1, kind="stable") if sort else np.indices(logits.shape)[-1]
    running = np.cumsum(softmax(np.take_along_axis(logits, order, axis=-1)), axis=-1)
    cut = reaches(running, p)
    if shift:
        cut[..., 1:], cut[..., 0] = cut[..., :-1].copy(), False
    mask = np.zeros_like(cut)
    np.put_along_axis(mask, order, cut, axis=-1)
    return np.where(mask, -np.inf, logits)


def not_shifted(logits, p):
    return sorted_out(logits, p, shift=False)


def exact_hit(logits, p):
    return sorted_out(logits, p, reaches=np.greater_equal)


def unsorted(logits, p):
    return sorted_out(logits, p, sort=False)


def drops_ties(logits, k):
    if not k or k >= logits.shape[-1]:
        return logits.copy()
    kept = np.argsort(-logits, axis=-1, kind="stable")[..., :k]
    result = np.full_like(logits, -np.inf)
    np.put_along_axis(result, kept, np.take_along_axis(logits, kept, axis=-1), axis=-1)
    return result


def strict(logits, k):
    if not k or k >= logits.shape[-1]:
        return logits.copy()
    cut = logits <= np.sort(logits, axis=-1)[..., -k, None]
    return np.where(cut & (logits < logits.max(axis=-1, keepdims=True)), -np.inf, logits)


def multiplies(logits, temperature):
    return logits * temperature


def penalised(logits, input_ids, change):
    result = logits.copy()
    rows = result.reshape(-1, result.shape[-1])
    ids = np.broadcast_to(input_ids, (*logits.shape[:-1], np.shape(input_ids)[-1])).reshape(len(rows), -1)
    for row, seen in zip(rows, ids):
        change(row, seen)
    return rows.reshape(logits.shape)


def divides_negatives(logits, input_ids, penalty):
    def change(row, seen):
        row[np.unique(seen)] /= penalty

    return penalised(logits, input_ids, change)


def counts_multiplicity(logits, input_ids, penalty):
    def change(row, seen):
        for token in seen:
            row[token] = row[token] / penalty if row[token] > 0 else row[token] * penalty

    return penalised(logits, input_ids, change)


def eps_outside_root(x, weight, eps):
    return weight * x / (np.sqrt((x**2).mean(axis=-1, keepdims=True)) + eps)


def mean_subtracted(x, weight, eps):
    x = x - x.mean(axis=-1, keepdims=True)
    return weight * x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)


def neighbours(q, k, cos, sin):
    def turn(x):
        half = x.shape[-1] // 2
        c, s = cos[:, None, :half], sin[:, None, :half]
        even, odd = x[..., ::2], x[..., 1::2]
        return np.stack([even * c - odd * s, odd * c + even * s], axis=-1).reshape(x.shape)

    return turn(q), turn(k)


def wrong_sign(q, k, cos, sin):
    def turn(x):
        half = x.shape[-1] // 2
        return x * cos[:, None] + np.concatenate([x[..., half:], -x[..., :half]], axis=-1) * sin[:, None]

    return turn(q), turn(k)


def attend(q, k, v, attention_mask, repeat, scale=True):
    (s, n, d), t = q.shape[1:], k.shape[1]
    k, v = repeat(k, n // k.shape[2]), repeat(v, n // v.shape[2])
    scores = np.einsum("bsnd,btnd->bnst", q, k) / (np.sqrt(d) if scale else 1)
    scores = scores + np.where(np.tri(t, dtype=bool)[t - s :], 0.0, -np.inf)
    if attention_mask is not None:
        scores = scores + np.where(np.asarray(attention_mask)[:, None, None] == 0, -1e9, 0.0)
    return np.einsum("bnst,btnd->bsnd", softmax(scores), v).reshape(len(q), s, n * d)


def heads_tiled(q, k, v, attention_mask=None):
    return attend(q, k, v, attention_mask, lambda x, n: np.tile(x, (1, 1, n, 1)))


def not_scaled(q, k, v, attention_mask=None):
    return attend(q, k, v, attention_mask, lambda x, n: np.repeat(x, n, axis=2), scale=False)


def square_only(s, t):
    return np.where(np.tri(s, t, dtype=bool), 0.0, -np.inf)  # the first s rows instead of the last


def silu(x):
    return x / (1 + np.exp(-x))


def gate_and_up_swapped(x, gate_proj, up_proj, down_proj, act=silu):
    return ((x @ gate_proj.T) * act(x @ up_proj.T)) @ down_proj.T


def inclusive(probs, u):
    cumulative = np.cumsum(probs, axis=-1)
    return np.argmax(cumulative >= (u * cumulative[..., -1])[..., None], axis=-1)


def always_the_greatest(probs, u):
    return np.argmax(probs, axis=-1)


WRONG = {
    "apply_temperature": {"temperature-multiplies": multiplies},
    "apply_repetition_penalty": {
        "penalty-divides-negatives": divides_negatives,
        "penalty-counts-multiplicity": counts_multiplicity,
    },
    "apply_top_k": {"top-k-drops-ties": drops_ties, "top-k-strict": strict},
    "apply_top_p": {"top-p-not-shifted": not_shifted, "top-p-exact-hit": exact_hit, "top-p-unsorted": unsorted},
    "multinomial": {"cdf-inclusive": inclusive, "draw-argmax": always_the_greatest},
    "rms_norm": {"norm-eps-outside-root": eps_outside_root, "norm-mean-subtracted": mean_subtracted},
    "apply_rope": {"rope-neighbours": neighbours, "rope-sign": wrong_sign},
    "attention": {"heads-tiled": heads_tiled, "attention-scale-missing": not_scaled},
    "causal_mask": {"causal-square-only": square_only},
    "swiglu": {"gate-up-swapped": gate_and_up_swapped},
}
