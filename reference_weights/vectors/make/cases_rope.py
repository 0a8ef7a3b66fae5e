"""Cases of RoPE: the tables, the rotation, both YaRN states."""

import numpy as np
from declare import Suite, case, floats, grid, invalid

from npminimind import rope_tables as reference_tables
from npminimind.config import YARN

FOUR_TIMES = YARN | {"factor": 4}


def tables(head_dim, length, theta, start=0, scaling=None):
    """Tables as arguments of apply_rope: rounded to float32, so that every port gets the same ones."""
    cos, sin = reference_tables(head_dim, length, theta, scaling, start, dtype=np.float64)
    return {"cos": floats(cos), "sin": floats(sin)}


TABLES = [
    case(2001, "two_pairs", "1 rad and 0.1 rad a position, by hand", head_dim=4, length=3, theta=100.0),
    case(2002, "one_pair", "the only pair turns 1 rad a position, whatever theta is", head_dim=2, length=3, theta=1e6),
    case(2003, "theta_1e4", "MiniMind-1's theta", head_dim=8, length=4, theta=1e4),
    case(2004, "theta_1e6", "MiniMind-3's theta", head_dim=8, length=4, theta=1e6),
    case(2005, "offset.start5", "with a cache of 5 tokens the next one stands at 5, not at 0",
         head_dim=8, length=2, theta=1e6, start=5),
    case(2006, "offset.start2047", "across the trained length", head_dim=8, length=2, theta=1e6, start=2047),
    case(2007, "table_end.start32766", "the last two positions of MiniMind-3's table: float32 angles are off by 1e-3",
         head_dim=8, length=2, theta=1e6, start=32766),
    case(2008, "empty", "no new token", head_dim=4, length=0, theta=1e6),
    case(2009, "real_width.d96", "MiniMind-3's head_dim", head_dim=96, length=1, theta=1e6, start=7),
    case(2010, "yarn.d96", "low 8, high 21: pairs 0-8 as they were, pairs 21-47 sixteen times slower",
         head_dim=96, length=1, theta=1e6, scaling=YARN, start=7),
    case(2011, "yarn.d16", "YaRN changes short contexts too", head_dim=16, length=4, theta=1e6, scaling=YARN),
    case(2012, "yarn.d16.start32767", "the last position of the long table",
         head_dim=16, length=1, theta=1e6, scaling=YARN, start=32767),
    case(2013, "yarn.factor4", "the factor is read from the config; upstream's help says 4, its code 16",
         head_dim=16, length=2, theta=1e6, scaling=FOUR_TIMES, start=3),
    case(2014, "yarn.attention_factor", "a factor on both tables, where the config has one",
         head_dim=16, length=2, theta=1e6, scaling=YARN | {"attention_factor": 1.25}, start=1),
    invalid(2015, "odd_width", "an odd head has no second half", head_dim=5, length=2, theta=1e6),
]  # fmt: skip

HALVES = [
    case(3001, "one_to_four", "[a, b] -> [-b, a], a and b the halves", x=[1.0, 2.0, 3.0, 4.0]),
    case(3002, "one_pair", "D = 2: halves and neighbours are the same", x=[3.0, 5.0]),
    case(3003, "rows", "each row by itself", x=[[1.0, 2.0, 3.0, 4.0], [-1.0, 0.5, 8.0, -2.0]]),
    case(3004, "heads.d8", "[B, S, N, D]", x=grid(3004, 1, 2, 2, 8)),
    case(3005, "twice_is_minus", "rotating twice is a turn by 180 degrees: the second step of it",
         x=[-3.0, -4.0, 1.0, 2.0]),
]  # fmt: skip

E0 = [[[[1.0, 0.0, 0.0, 0.0]]]]
ROTATION = [
    case(4001, "unit_vector", "e0 at position 1 -> [cos 1, 0, sin 1, 0]; neighbours would give [cos 1, sin 1, 0, 0]",
         q=E0, k=E0, **tables(4, 1, 1e6, start=1)),
    case(4002, "position_zero", "no turn at all", q=grid(1, 1, 1, 2, 4), k=grid(2, 1, 1, 1, 4), **tables(4, 1, 1e6)),
    case(4003, "grouped.n4.k2", "four query heads, two key heads, three positions",
         q=grid(3, 1, 3, 4, 8), k=grid(4, 1, 3, 2, 8), **tables(8, 3, 1e6)),
    case(4004, "batch.b2", "the same angles for every row",
         q=grid(5, 2, 2, 2, 4), k=grid(6, 2, 2, 2, 4), **tables(4, 2, 1e4)),
    case(4005, "offset.start9", "decoding behind nine cached tokens",
         q=grid(7, 1, 1, 2, 8), k=grid(8, 1, 1, 2, 8), **tables(8, 1, 1e6, start=9)),
    case(4006, "yarn.d16", "with YaRN's tables",
         q=grid(9, 1, 2, 2, 16), k=grid(10, 1, 2, 1, 16), **tables(16, 2, 1e6, 300, YARN)),
    case(4007, "plain.d16", "the same without YaRN",
         q=grid(9, 1, 2, 2, 16), k=grid(10, 1, 2, 1, 16), **tables(16, 2, 1e6, 300)),
    case(4008, "table_end.start32767", "the last position",
         q=grid(11, 1, 1, 1, 8), k=grid(12, 1, 1, 1, 8), **tables(8, 1, 1e6, start=32767)),
    case(4009, "quarter_turn", "cos 0, sin 1: q becomes rotate_half(q)",
         q=grid(13, 1, 1, 1, 4), k=grid(14, 1, 1, 1, 4), cos=[[0.0] * 4], sin=[[1.0] * 4]),
    invalid(4010, "tables_too_short", "three positions, tables of two",
            q=grid(3, 1, 3, 2, 4), k=grid(4, 1, 3, 2, 4), **tables(4, 2, 1e6)),
]  # fmt: skip

SUITES = [
    Suite("rope_tables", "Su et al. 2021, RoFormer; Peng et al. 2023, YaRN; chapter 10.3", TABLES),
    Suite("rotate_half", "upstream apply_rotary_pos_emb", HALVES),
    Suite("apply_rope", "Su et al. 2021; upstream apply_rotary_pos_emb", ROTATION),
]
