"""Mistakes in the rotary position embedding."""

import math

import numpy as np

from ...config import YARN
from ...rope import apply_rope, inverse_frequencies, rope_tables, rotate_half
from .mistake import wrong


def rotate_neighbours(x):
    """``[a, b, c, d] -> [-b, a, -d, c]``"""
    x = np.asarray(x)
    return np.stack([-x[..., 1::2], x[..., ::2]], axis=-1).reshape(x.shape)


def apply_rope_neighbours(q, k, cos, sin):
    half = cos.shape[-1] // 2
    cos, sin = (np.repeat(table[..., :half], 2, axis=-1) for table in (cos, sin))
    return apply_rope(q, k, cos, sin, rotate_half=rotate_neighbours)


def apply_rope_k_twice(q, k, cos, sin):
    q, once = apply_rope(q, k, cos, sin)
    return q, apply_rope(once, once, cos, sin)[1]


def tables_with_theta(head_dim, length, theta, scaling=None, start=0, dtype=np.float32):
    return rope_tables(head_dim, length, 1e4 if theta != 1e4 else 1e6, scaling, start, dtype)


def tables_with_exponent(factor):
    """Frequencies ``theta^(-factor * 2i/D)``; what YaRN makes of each pair stays."""

    def tables(head_dim, length, theta, scaling=None, start=0, dtype=np.float32):
        slowed = inverse_frequencies(head_dim, theta, scaling, dtype) / inverse_frequencies(
            head_dim, theta, None, dtype
        )
        frequencies = inverse_frequencies(head_dim, theta**factor, None, dtype) * slowed
        angle = np.arange(start, start + length).astype(dtype)[:, None] * np.tile(frequencies, 2)  # [length, D]
        attention_factor = (YARN | scaling)["attention_factor"] if scaling else 1.0
        return np.cos(angle) * attention_factor, np.sin(angle) * attention_factor

    return tables


def tables_shifted(head_dim, length, theta, scaling=None, start=0, dtype=np.float32):
    return rope_tables(head_dim, length, theta, scaling, start + 1, dtype)


def tables_restarting(head_dim, length, theta, scaling=None, start=0, dtype=np.float32):
    return rope_tables(head_dim, length, theta, scaling, 0, dtype)


def tables_one_late(head_dim, length, theta, scaling=None, start=0, dtype=np.float32):
    """With a cache, the first new token gets the position of the last cached one."""
    return rope_tables(head_dim, length, theta, scaling, max(start - 1, 0), dtype)


def tables_with_scaling(change):
    """``change(scaling) -> scaling`` or None."""

    def tables(head_dim, length, theta, scaling=None, start=0, dtype=np.float32):
        return rope_tables(head_dim, length, theta, change(scaling), start, dtype)

    return tables


def tables_interpolated(head_dim, length, theta, scaling=None, start=0, dtype=np.float32):
    """All angles divided by the factor, fast pairs too."""
    if scaling is None:
        return rope_tables(head_dim, length, theta, None, start, dtype)
    frequencies = inverse_frequencies(head_dim, theta, None, dtype) / scaling["factor"]
    angle = np.arange(start, start + length).astype(dtype)[:, None] * np.tile(frequencies, 2)
    return np.cos(angle), np.sin(angle)


def rope_wrong(name, id, bug_type, description, effect, function, **others):
    return wrong(name, function, id=id, bug_type=bug_type, description=description, effect=effect, **others)


def has_yarn(config):
    return config.yarn is not None


YARN_ATTENTION_FACTOR = 0.1 * math.log(YARN["factor"]) + 1  # HF's default, 1.277 for factor 16
EVERYWHERE = "right at position 0, wrong from position 1 on"
YARN_EFFECT = "slow pairs turn at another speed: right at position 0, small errors that grow with distance"

MISTAKES = (
    rope_wrong("apply_rope", "rope-neighbours", "layout", "rotates neighbours (2i, 2i+1) instead of halves (i, i+D/2)",
               EVERYWHERE + "; gibberish after some 20 tokens", apply_rope_neighbours),
    rope_wrong("rotate_half", "rope-neighbours-half-tables", "layout",
               "rotates neighbours with tables that are laid out for halves", EVERYWHERE, rotate_neighbours),
    rope_wrong("rotate_half", "rope-sign", "sign", "rotates the other way: [b, -a] instead of [-b, a]", EVERYWHERE,
               lambda x: -rotate_half(x)),
    rope_wrong("apply_rope", "rope-missing", "missing-step", "does not rotate at all", EVERYWHERE,
               lambda q, k, cos, sin: (q, k)),
    rope_wrong("apply_rope", "rope-q-only", "missing-step", "rotates the queries, not the keys", EVERYWHERE,
               lambda q, k, cos, sin: (apply_rope(q, k, cos, sin)[0], k)),
    rope_wrong("apply_rope", "rope-k-only", "missing-step", "rotates the keys, not the queries", EVERYWHERE,
               lambda q, k, cos, sin: (q, apply_rope(q, k, cos, sin)[1])),
    rope_wrong("apply_rope", "rope-k-twice", "extra-step", "rotates the keys twice", EVERYWHERE, apply_rope_k_twice),
    rope_wrong("rope_tables", "rope-positions-restart", "position",
               "counts positions from 0 in every call, cache or not",
               "the prefill is right, everything after it wrong", tables_restarting),
    rope_wrong("rope_tables", "rope-positions-late", "position",
               "starts at past - 1: the first new token repeats the last cached position",
               "the prefill is right, everything after it wrong", tables_one_late),
    rope_wrong("rope_tables", "rope-positions-from-one", "position", "counts positions from 1",
               "tables, rotated q and k differ; logits do not, RoPE is relative", tables_shifted),
    rope_wrong("rope_tables", "rope-theta", "constant", "uses theta 10,000 (1,000,000 where 10,000 is right)",
               EVERYWHERE,
               tables_with_theta),
    rope_wrong("rope_tables", "rope-exponent-without-two", "constant",
               "frequencies theta^(-i/D) instead of theta^(-2i/D), as with a head_dim twice as wide", EVERYWHERE,
               tables_with_exponent(0.5)),
    rope_wrong("rope_tables", "rope-exponent-doubled", "constant",
               "frequencies theta^(-4i/D) instead of theta^(-2i/D), as with half the head_dim", EVERYWHERE,
               tables_with_exponent(2.0)),
    rope_wrong("rope_tables", "yarn-attention-factor", "constant",
               "multiplies the tables by YaRN's attention factor 1.277; MiniMind fixes it at 1",
               "scores grow by 1.63, at position 0 too", tables_with_scaling(
                   lambda s: s and s | {"attention_factor": YARN_ATTENTION_FACTOR}), applies=has_yarn),
    rope_wrong("rope_tables", "yarn-factor-4", "constant", "uses YaRN factor 4, as upstream's help text says, not 16",
               YARN_EFFECT, tables_with_scaling(lambda s: s and s | {"factor": 4}), applies=has_yarn),
    rope_wrong("rope_tables", "yarn-off", "missing-step", "ignores rope_scaling", YARN_EFFECT,
               tables_with_scaling(lambda s: None), applies=has_yarn),
    rope_wrong("rope_tables", "yarn-all-pairs", "rule", "divides every frequency by the factor, not only the slow ones",
               EVERYWHERE, tables_interpolated, applies=has_yarn),
    rope_wrong("rope_tables", "yarn-always", "extra-step", "applies YaRN though the config does not ask for it",
               YARN_EFFECT,
               tables_with_scaling(lambda s: s or YARN), applies=lambda config: config.yarn is None),
)  # fmt: skip
