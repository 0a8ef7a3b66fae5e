"""Mistakes in attention: scale, mask, heads, softmax."""

import math

import numpy as np

from ...attention import attention
from ...primitives import softmax
from .mistake import wrong


def scaled_by(factor):
    """Attention whose scores come out ``factor(N, D)`` times as great."""

    def scaled(q, k, v, attention_mask=None, tap=None):
        q = np.asarray(q)
        q = q * np.asarray(factor(*q.shape[2:]), q.dtype)
        return attention(q, k, v, attention_mask, tap)

    return scaled


def mask_where(allowed):
    """A causal mask from ``allowed(query, key, past)``."""

    def causal_mask(s, t, dtype=np.float32):
        query, key = np.arange(s)[:, None], np.arange(t)
        return np.where(allowed(query, key, t - s), 0, -np.inf).astype(dtype)

    return causal_mask


def softmax_over(axis):
    def wrong_axis(q, k, v, attention_mask=None, tap=None):
        return attention(q, k, v, attention_mask, tap or keep, softmax=lambda scores: softmax(scores, axis=axis))

    return wrong_axis


def keep(name, array):
    """A tap that only makes attention keep all scores in one array."""
    return array


def without_padding(q, k, v, attention_mask=None, tap=None):
    return attention(q, k, v, None, tap)


def new_keys_only(q, k, v, attention_mask=None, tap=None):
    s = np.shape(q)[1]
    mask = None if attention_mask is None else np.asarray(attention_mask)[:, -s:]
    return attention(q, np.asarray(k)[:, -s:], np.asarray(v)[:, -s:], mask, tap)


def heads_not_transposed(q, k, v, attention_mask=None, tap=None):
    """[B,N,S,D] read as [B,S,N*D] without moving the heads back."""
    inner = tap and (lambda name, array: array if name == "context" else tap(name, array))
    context = attention(q, k, v, attention_mask, inner)
    b, s, n, d = np.shape(q)
    context = context.reshape(b, s, n, d).transpose(0, 2, 1, 3).reshape(b, s, n * d)
    return tap("context", context) if tap else context


def repeat_tiled(x, n_rep):
    """``[A, B] -> [A, B, A, B]``"""
    return np.tile(x, (1, 1, n_rep, 1))


def grouped(config):
    return config.num_attention_heads > config.num_key_value_heads > 1


def attention_wrong(name, id, bug_type, description, effect, function, **others):
    return wrong(name, function, id=id, bug_type=bug_type, description=description, effect=effect, **others)


SCORES = "scores are off by a constant factor; right where a token sees only itself"

MISTAKES = (
    attention_wrong("attention", "attention-scale-missing", "missing-step", "does not divide the scores by sqrt(D)",
                    SCORES,
                    scaled_by(lambda n, d: math.sqrt(d))),
    attention_wrong("attention", "attention-scale-hidden", "constant", "divides the scores by sqrt(N * D), not sqrt(D)",
                    SCORES, scaled_by(lambda n, d: 1 / math.sqrt(n))),
    attention_wrong("attention", "attention-scale-twice", "extra-step", "divides the scores by D, not sqrt(D)", SCORES,
                    scaled_by(lambda n, d: 1 / math.sqrt(d))),
    attention_wrong("repeat_kv", "heads-tiled", "layout",
                    "tiles the key/value heads, A B A B, instead of repeating each, A A B B",
                    "half or more of the query heads read the wrong keys, at position 0 too", repeat_tiled,
                    applies=grouped),
    attention_wrong("causal_mask", "causal-missing", "mask", "has no causal mask",
                    "only the last position is right, and with it greedy decoding from a cache of right entries",
                    mask_where(lambda query, key, past: (query >= 0) & (key >= 0))),
    attention_wrong("causal_mask", "causal-shifted", "mask", "lets each token see the next one too",
                    "only the last position is right", mask_where(lambda query, key, past: key <= query + past + 1)),
    attention_wrong("causal_mask", "causal-excludes-self", "mask", "hides each token from itself",
                    "nan at position 0, wrong elsewhere", mask_where(lambda query, key, past: key < query + past)),
    attention_wrong("causal_mask", "causal-square-only", "mask",
                    "builds the mask for new tokens only, laid against the left edge of the keys",
                    "right without a cache; with one, new tokens see only the oldest keys",
                    mask_where(lambda query, key, past: key <= query)),
    attention_wrong("attention", "padding-ignored", "mask", "ignores the padding mask", "only padded rows are wrong",
                    without_padding),
    attention_wrong("attention", "cache-ignored", "mask", "attends to the new tokens only, not to the cached ones",
                    "the prefill is right, everything after it wrong", new_keys_only),
    attention_wrong("attention", "softmax-over-queries", "axis", "normalises over the queries instead of the keys",
                    "rows of probs do not sum to one", softmax_over(-2)),
    attention_wrong("attention", "softmax-over-heads", "axis", "normalises over the heads instead of the keys",
                    "rows of probs do not sum to one", softmax_over(1)),
    attention_wrong("attention", "heads-not-transposed", "layout",
                    "reads [B,N,S,D] as [B,S,N*D] without moving the head axis back",
                    "scores and probs are right, context is shuffled; one token at a time is right",
                    heads_not_transposed),
)  # fmt: skip
