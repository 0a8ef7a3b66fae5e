"""Rotary position embedding (RoPE): each pair of features turns by an angle that grows with the position."""

import math

import numpy as np

from .config import YARN
from .primitives import as_float


def inverse_frequencies(head_dim, theta, scaling=None, dtype=np.float32):
    """Angle per position of each pair: ``theta^(-2i/D)``, i = 0 … D/2 − 1; with YaRN, slow pairs slower.

    Parameters
    ----------
    head_dim : int
        D, even.
    theta : float
    scaling : dict or None
        YaRN (Peng et al. 2023): pairs that turn more than ``beta_fast`` times within the trained
        length stay as they are, those that turn less than ``beta_slow`` times are slowed down by
        ``factor``, a ramp lies between.

    Returns
    -------
    array [D/2], radians per position

    Examples
    --------
    >>> inverse_frequencies(4, theta=100.0, dtype=np.float64)
    array([1. , 0.1])
    """
    pair = np.arange(0, head_dim, 2).astype(dtype)
    frequencies = 1 / np.asarray(theta, dtype) ** (pair / head_dim)  # [D/2]
    if scaling is None:
        return frequencies
    scaling = YARN | scaling

    def pair_turning(turns):  # the (fractional) index of the pair that turns so often in the trained length
        trained = scaling["original_max_position_embeddings"]
        return head_dim * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(pair_turning(scaling["beta_fast"])), 0)
    high = min(math.ceil(pair_turning(scaling["beta_slow"])), head_dim // 2 - 1)
    ramp = (np.arange(head_dim // 2).astype(dtype) - low) / max(high - low, 0.001)
    ramp = np.clip(ramp, 0, 1)
    return frequencies * (1 - ramp + ramp / float(scaling["factor"]))


def rope_tables(head_dim, length, theta, scaling=None, start=0, dtype=np.float32):
    """Cosine and sine of the angle of each pair, at positions ``start … start + length − 1``.

    Parameters
    ----------
    head_dim : int
        D, even.
    length : int
        How many positions.
    theta : float
        1e6 in MiniMind2 and 3, 1e4 in MiniMind-1.
    scaling : dict or None
        A YaRN dict is applied whatever the length; a key that it lacks has MiniMind's value
        (``config.YARN``).
    start : int
        The first position: with a cache, the number of cached tokens (chapter 10.3, ``start_pos``).
    dtype : numpy dtype
        Also the dtype in which the angles are computed.

    Returns
    -------
    cos, sin : arrays [length, D]
        The D/2 angles stand twice, once for each half.

    Notes
    -----
    Source: Su et al. 2021, "RoFormer"; upstream ``precompute_freqs_cis``. Differs from upstream: there
    the function itself ignores YaRN where the table is not longer than the trained length; here the
    caller decides (``MiniMindConfig.yarn``), so that a few rows can be computed without the table.

    Examples
    --------
    >>> cos, sin = rope_tables(head_dim=4, length=2, theta=100.0, dtype=np.float64)
    >>> sin.round(4)    # position 0: no turn; position 1: 1 rad and 0.1 rad
    array([[0.    , 0.    , 0.    , 0.    ],
           [0.8415, 0.0998, 0.8415, 0.0998]])
    """
    if head_dim < 2 or head_dim % 2:
        raise ValueError(f"head_dim must be even and positive, not {head_dim}")
    if length < 0 or start < 0:
        raise ValueError(f"positions start at 0: start is {start}, length is {length}")
    if not (theta > 0 and math.isfinite(theta)):
        raise ValueError(f"theta must be positive and finite, not {theta}")
    frequencies = inverse_frequencies(head_dim, theta, scaling, dtype)
    position = np.arange(start, start + length).astype(dtype)
    angle = position[:, None] * frequencies  # [length, D/2]
    angle = np.concatenate([angle, angle], axis=-1)  # -> [length, D]
    attention_factor = float((YARN | scaling)["attention_factor"]) if scaling else 1.0
    return np.cos(angle) * attention_factor, np.sin(angle) * attention_factor


def rotate_half(x):
    """``[a, b] -> [-b, a]``, a and b the two halves of the last axis.

    Examples
    --------
    >>> rotate_half(np.array([1, 2, 3, 4]))
    array([-3, -4,  1,  2])
    """
    x = np.asarray(x)
    if x.shape[-1] % 2:
        raise ValueError(f"{x.shape[-1]} features have no two halves")
    half = x.shape[-1] // 2
    return np.concatenate([-x[..., half:], x[..., :half]], axis=-1)


def apply_rope(q, k, cos, sin, *, rotate_half=rotate_half):
    """Turn queries and keys to their positions: ``x * cos + rotate_half(x) * sin``.

    Feature i is paired with i + D/2, the *other half*, and not with its neighbour. Which of the two
    it must be is a fact of the checkpoint: the weights were trained with it.

    Parameters
    ----------
    q : array [B, S, N, D]
    k : array [B, S, K, D]
    cos, sin : arrays [S, D]

    Returns
    -------
    q, k : rotated arrays, same shapes and dtypes

    Notes
    -----
    Source: upstream ``apply_rotary_pos_emb``. A dot product of two rotated vectors depends on the
    difference of their positions only.

    Examples
    --------
    head_dim 4, first unit vector, position 1 (facts: neighbours would give cos 1, sin 1, 0, 0):

    >>> e0 = np.array([1.0, 0, 0, 0]).reshape(1, 1, 1, 4)
    >>> cos, sin = rope_tables(4, length=1, theta=1e6, start=1, dtype=np.float64)
    >>> apply_rope(e0, e0, cos, sin)[0].round(4).ravel()
    array([0.5403, 0.    , 0.8415, 0.    ])
    """
    q, k, cos, sin = as_float(q), as_float(k), as_float(cos), as_float(sin)
    for x in (q, k):
        if x.ndim != 4 or cos.shape != sin.shape or (x.shape[1], x.shape[3]) != cos.shape:
            shapes = f"q {q.shape}, k {k.shape}, cos {cos.shape}, sin {sin.shape}"
            raise ValueError(f"need q and k [B, S, heads, D], tables [S, D]; got {shapes}")

    def turned(x):  # [S, D] -> [S, 1, D]: the same angle for all heads
        return (x * cos[:, None] + rotate_half(x) * sin[:, None]).astype(x.dtype, copy=False)

    return turned(q), turned(k)
