"""Grouped-query attention: every query looks at the keys up to its own position."""

import math

import numpy as np

from .primitives import as_float, softmax
from .tapping import checked, no_tap

PADDED = -1e9  # what the padding mask adds; finite, as upstream, so that a row of pads is no 0/0
BLOCK_ROWS = 64  # queries at a time without a tap: fewer make slow products, more leave the processor's caches
TAPPED_SCORES = 2**28  # with a tap all scores are one array: 1 GiB in float32


def repeat_kv(x, n_rep):
    """Each key/value head as often as query heads share it: ``[A, B] -> [A, A, B, B]``.

    Parameters
    ----------
    x : array [B, T, K, D]
    n_rep : int
        N / K.

    Returns
    -------
    array [B, T, K * n_rep, D]

    Examples
    --------
    >>> repeat_kv(np.array([7, 8]).reshape(1, 1, 2, 1), 2).ravel()
    array([7, 7, 8, 8])
    """
    return np.repeat(x, n_rep, axis=2)


def causal_mask(s, t, dtype=np.float32):
    """0 where a query may look, −inf where the key lies in its future.

    Parameters
    ----------
    s : int
        New tokens.
    t : int
        All tokens, cached ones included.

    Returns
    -------
    array [s, t]: the last s rows of the t × t triangle

    Examples
    --------
    Two new tokens after one cached one (chapter 10.3):

    >>> causal_mask(2, 3)
    array([[  0.,   0., -inf],
           [  0.,   0.,   0.]], dtype=float32)
    """
    if not 0 <= s <= t:
        raise ValueError(f"{s} new tokens of {t}: s must lie between 0 and t")
    query, key = np.arange(t - s, t)[:, None], np.arange(t)
    return np.where(key <= query, 0, -np.inf).astype(dtype)


def attention(q, k, v, attention_mask=None, tap=None, *, softmax=softmax, causal_mask=causal_mask, repeat_kv=None):
    """``softmax(q kᵀ / √D + mask) v`` for each head, the heads side by side.

    Parameters
    ----------
    q : array [B, S, N, D]
    k, v : arrays [B, T, K, D]
        T ≥ S; query s stands at position T − S + s. N is a multiple of K: query heads
        ``g * N/K … (g + 1) * N/K − 1`` read key/value head g.
    attention_mask : array [B, T] or None
        1 for tokens, 0 for pads.
    tap : function (name, array) -> array, or None
        Sees ``scores``, ``masked_scores``, ``probs``, ``context``.
    softmax, causal_mask, repeat_kv : functions
        Put others in their place to study them. Given ``repeat_kv``, the heads are really repeated: the
        definition. Without it the queries are grouped, which is equal and copies no keys.

    Returns
    -------
    context : array [B, S, N * D]

    Raises
    ------
    ValueError
        Shapes that do not fit; with a tap, more scores than fit into one array of 2²⁸.

    Notes
    -----
    Source: Ainslie et al. 2023 (grouped queries); chapter 10.3; upstream ``Attention.forward``. Without a
    tap the queries are taken in blocks, each with all keys that it may see, so memory stays bounded and
    every softmax sees its whole row.

    Examples
    --------
    Equal scores: the second token averages both values.

    >>> q = k = np.zeros((1, 2, 1, 2)); v = np.array([[1.0, 2.0], [3.0, 4.0]]).reshape(1, 2, 1, 2)
    >>> attention(q, k, v)
    array([[[1., 2.],
            [2., 3.]]])
    """
    q, k, v, tap = as_float(q), as_float(k), as_float(v), checked(tap)
    check_shapes(q, k, v, attention_mask)
    (b, s, n, _), t = q.shape, k.shape[1]
    if repeat_kv is not None:
        k, v = repeat_kv(k, n // k.shape[2]), repeat_kv(v, n // v.shape[2])
    padding = padding_mask(attention_mask, q.dtype)

    # A tap sees one array a name. A causal mask of somebody else may look past a block's end.
    if tap is not no_tap or causal_mask is not attention.__kwdefaults__["causal_mask"]:
        if b * n * s * t > TAPPED_SCORES:
            raise ValueError(f"{b} x {n} x {s} x {t} scores are too many to keep whole; use a shorter input")
        mask = np.asarray(causal_mask(s, t, q.dtype))
        if mask.shape != (s, t):
            raise ValueError(f"causal_mask({s}, {t}) must return [{s}, {t}], 0 or -inf; got {mask.shape}")
        return attend(q, k, v, mask, padding, tap, softmax)
    if s == 1:  # a single query is the last of its keys: nothing lies in its future
        return attend(q, k, v, None, padding, no_tap, softmax)
    return attend_in_blocks(q, k, v, padding, softmax)


def attend_in_blocks(q, k, v, padding, softmax):
    """The same, a few queries and one key/value head at a time: what is in hand stays in the processor's cache."""
    (b, s, n, d), (t, n_kv) = q.shape, k.shape[1:3]
    group = n // n_kv
    context = np.empty((b, s, n * d), q.dtype)
    for first in range(0, s, BLOCK_ROWS):
        last = min(first + BLOCK_ROWS, s)
        end = t - s + last  # keys that the last of these queries may see
        mask = causal_mask(last - first, last - first, q.dtype)  # all keys before the block may be seen
        pads = None if padding is None else padding[..., :end]
        for g in range(n_kv):
            heads, columns = slice(g * group, (g + 1) * group), slice(g * group * d, (g + 1) * group * d)
            keys, values = k[:, :end, g : g + 1], v[:, :end, g : g + 1]
            block = attend(q[:, first:last, heads], keys, values, mask, pads, no_tap, softmax)
            context[:, first:last, columns] = block
    return context


def attend(q, k, v, mask, padding, tap, softmax):
    """The formula, step by step. ``mask`` [S, …] belongs to the last keys, or is None: no query may look ahead."""
    (b, s, n, d), (t, n_kv) = q.shape, k.shape[1:3]
    q = q.reshape(b, s, n_kv, n // n_kv, d).transpose(0, 2, 3, 1, 4)  # [B,S,N,D] -> [B,K,N/K,S,D]
    q = q / math.sqrt(d)  # scaled here: S*D numbers instead of S*T
    scores = rows_times(q, k.transpose(0, 2, 3, 1))  # [B,K,N/K,S,D] @ [B,K,D,T] -> [B,K,N/K,S,T]
    scores = tap("scores", scores.reshape(b, n, s, t))  # -> [B,N,S,T]
    masked_scores = scores if tap is no_tap else scores.copy()  # a tap may have kept them
    if mask is not None:
        masked_scores[..., t - mask.shape[-1] :] += mask  # the same for every row and head
    if padding is not None:
        masked_scores += padding  # [B,1,1,T], the same for every head and query
    masked_scores = tap("masked_scores", masked_scores)
    probs = tap("probs", softmax(masked_scores))
    grouped = probs.reshape(b, n_kv, -1, s, t)  # [B,N,S,T] -> [B,K,N/K,S,T]
    context = rows_times(grouped, v.transpose(0, 2, 1, 3))  # @ [B,K,T,D] -> [B,K,N/K,S,D]
    context = context.reshape(b, n, s, d).transpose(0, 2, 1, 3)  # -> [B,N,S,D] -> [B,S,N,D]
    return tap("context", context.reshape(b, s, n * d))


def rows_times(grouped, shared):
    """Every query head of a group times what the group shares: ``[B,K,N/K,S,x] @ [B,K,x,y] -> [B,K,N/K,S,y]``."""
    b, n_kv, group, s, x = grouped.shape
    if s == 1:  # single rows: matrix times vector, which runs at the speed of the memory
        return grouped @ shared[:, :, None]
    rows = grouped.reshape(b, n_kv, group * s, x)  # many rows: one product for the group
    return (rows @ shared).reshape(b, n_kv, group, s, -1)


def padding_mask(attention_mask, dtype):
    """``[B, T]`` of 0/1 -> ``[B, 1, 1, T]`` of −1e9/0; None where nothing is padded."""
    if attention_mask is None:
        return None
    pads = np.equal(attention_mask, 0)
    if not (pads | np.equal(attention_mask, 1)).all():  # an additive mask would be taken the wrong way round
        raise ValueError("attention_mask must hold 1 for tokens and 0 for pads")
    padded = max(PADDED, float(np.finfo(dtype).min))  # float16 ends at −65,504
    return np.where(pads, padded, 0).astype(dtype)[:, None, None, :] if pads.any() else None


def check_shapes(q, k, v, attention_mask):
    if q.ndim != 4 or k.ndim != 4 or k.shape != v.shape:
        raise ValueError(f"need q [B,S,N,D] and equal k, v [B,T,K,D]; got {q.shape}, {k.shape}, {v.shape}")
    if 0 in q.shape or 0 in k.shape:
        raise ValueError(f"nothing to attend with or to: q {q.shape}, k {k.shape}")
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3] or q.shape[2] % k.shape[2]:
        raise ValueError(f"q {q.shape} does not fit k {k.shape}: B and D equal, N a multiple of K")
    if q.shape[1] > k.shape[1]:
        raise ValueError(f"{q.shape[1]} queries but only {k.shape[1]} keys: keys hold past and new tokens")
    if attention_mask is not None and np.shape(attention_mask) != (k.shape[0], k.shape[1]):
        raise ValueError(f"attention_mask has shape {np.shape(attention_mask)}, need {k.shape[:2]}: past + new")
