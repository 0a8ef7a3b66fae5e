"""Cases of the small functions: RMSNorm, softmax, the activations, repeated heads, the causal mask."""

import numpy as np
from declare import Suite, acceptable, case, floats, grid, invalid, normal

INF = float("inf")

NORM = [
    case(1001, "three_four", "mean(x²) = 12.5, by hand", x=[[3.0, 4.0]], weight=[1.0, 10.0], eps=1e-6),
    case(1002, "zero_row", "0 / sqrt(0 + eps) is 0; without eps it is 0/0", x=[[0.0] * 4], weight=[1.0, 2.0, 3.0, 4.0],
         eps=1e-6),
    case(1003, "eps_dominated", "mean(x²) = 2^-28 is far below eps", x=[[2.0**-14, -(2.0**-14)]], weight=[1.0, 1.0],
         eps=1e-6),
    case(1004, "eps_1e5", "MiniMind-1's and 2's eps, where it matters", x=[[0.001953125, 0.00390625]],
         weight=[1.0, 0.5], eps=1e-5),
    case(1005, "half_overflow", "the squares do not fit into float16 (65504): square in float32",
         x=[[300.0, -400.0, 60000.0, 1.0]], weight=[1.0] * 4, eps=1e-6),
    case(1006, "nonzero_mean", "the mean is not subtracted: this is no LayerNorm", x=[[10.0, 11.0, 12.0, 13.0]],
         weight=[1.0] * 4, eps=1e-6),
    case(1007, "weights", "negative and zero weights", x=[[1.0, -2.0, 3.0, -4.0]], weight=[-1.0, 0.0, 0.5, 2.0],
         eps=1e-6),
    case(1008, "rows.n8", "[B, S, H], each token by itself", x=grid(1008, 2, 3, 8), weight=grid(18, 8, step=0.25),
         eps=1e-6),
    case(1009, "heads.d4", "q_norm: [B, S, N, D], each head by itself, not the whole width",
         x=grid(1009, 1, 2, 3, 4) * np.array([1.0, 4.0, 16.0])[:, None], weight=[1.0, 0.5, 2.0, 1.0], eps=1e-6),
    case(1010, "one_feature", "x / |x| is the sign", x=[[-3.0], [0.25]], weight=[2.0], eps=1e-6),
    case(1011, "odd.n7", "a width that no vector unit likes", x=grid(1011, 2, 7), weight=grid(19, 7), eps=1e-6),
    case(1012, "one_dimension", "a single vector [n]", x=[1.0, 2.0, 2.0], weight=[1.0, 1.0, 1.0], eps=1e-6),
    case(1013, "outlier", "one feature a thousand times the others", x=[[1000.0, 1.0, -1.0, 0.5]], weight=[1.0] * 4,
         eps=1e-6),
    case(1014, "real_width.n96", "bell-shaped numbers, MiniMind-3's head_dim", x=normal(1014, 1, 96),
         weight=1 + normal(14, 96, scale=0.125), eps=1e-6),
    case(1015, "half_underflow", "2^-14 squared is below what float16 can hold: eps alone would remain",
         x=[[2.0**-13, 2.0**-14, -(2.0**-13), 2.0**-12]], weight=[1.0] * 4, eps=1e-9),
    invalid(1016, "weight_too_short", "three weights, four features", x=[[1.0, 2.0, 3.0, 4.0]], weight=[1.0] * 3,
            eps=1e-6),
]  # fmt: skip

NOTHING = [
    {"out": np.zeros((1, 3))},
]
SOFTMAX = [
    case(7001, "chapter", "chapter 10.4; its printed table does not sum to one", x=[[2.0, 1.0, 0.5]]),
    case(7002, "large", "exp(1000) overflows everything: subtract the greatest first", x=[[1000.0, 999.0, 998.0]]),
    case(7003, "float32_overflow", "exp(100) overflows float32", x=[[100.0, 99.5, -100.0]]),
    case(7004, "half_overflow", "exp(12) overflows float16", x=[[12.0, 11.0, 0.0]]),
    case(7005, "masked", "−inf becomes exactly 0", x=[[1.0, -INF, 0.0, -INF]]),
    acceptable(7006, "fully_masked_row", "0/0: nan as in torch; zeros, as fused kernels give, or a refusal will do",
               NOTHING, True, x=[[-INF] * 3]),
    case(7007, "equal", "a quarter each, exactly", x=[[3.0] * 4]),
    case(7008, "rows", "each row sums to one: the last axis", x=[[1.0, 2.0, 3.0], [3.0, 3.0, -1.0]]),
    case(7009, "axis0", "over the first axis", x=[[1.0, 2.0, 3.0], [3.0, 3.0, -1.0]], axis=0),
    case(7010, "single", "one number is certain", x=[[-7.0]]),
    case(7011, "padding", "the finite −1e9 of a padding mask", x=[[0.5, -1e9, 0.25]]),
    case(7012, "all_padding", "only −1e9: an ordinary row, not 0/0", x=[[-1e9, -1e9]]),
    case(7013, "wide.v64", "bell-shaped logits", x=normal(7013, 1, 64, scale=3.0)),
    case(7014, "negative", "far below zero: without the subtraction all underflow", x=[[-1000.0, -1001.0]]),
]  # fmt: skip

POINTS = floats([-8, -5, -3, -2, -1.5, -1, -0.75, -0.5, -0.125, 0, 0.125, 0.5, 0.75, 1, 1.5, 2, 3, 5, 8])
SILU = [
    case(8001, "curve", "from −8 to 8", x=POINTS),
    case(8002, "far_left", "exp(100) overflows float32; the answer is −0, not nan", x=[-100.0, -90.0, -1000.0]),
    case(8003, "far_right", "the identity", x=[100.0, 1000.0]),
    case(8004, "minimum", "−0.2785 near −1.2785, where the slope is zero", x=[-1.25, -1.28125, -1.3125]),
]
GELU = [
    case(9001, "curve", "x/2 (1 + erf(x/√2)), not the tanh approximation", x=POINTS),
    case(9002, "tanh_apart", "where the tanh approximation is furthest off", x=[-2.25, 2.25, 0.75, -0.75]),
    case(9003, "far", "0 and the identity", x=[-30.0, 30.0]),
]

REPEAT = [
    case(5001, "two_heads", "[A, B] -> [A, A, B, B], not [A, B, A, B]", x=[[[[7.0], [8.0]]]], n_rep=2),
    case(5002, "once", "n_rep 1 changes nothing", x=grid(5002, 1, 2, 2, 2), n_rep=1),
    case(5003, "one_head.n4", "MQA: one head for all", x=grid(5003, 1, 2, 1, 2), n_rep=4),
    case(5004, "batch.k2.n3", "two rows, two positions", x=grid(5004, 2, 2, 2, 2), n_rep=3),
    case(5005, "three_heads.n2", "a count that is no power of two", x=grid(5005, 1, 1, 3, 2), n_rep=2),
]

MASK = [
    case(6001, "one", "a token sees itself", s=1, t=1),
    case(6002, "square.t4", "prefill", s=4, t=4),
    case(6003, "chapter", "two new tokens behind one (chapter 10.3): the last rows of the triangle", s=2, t=3),
    case(6004, "decode.past5", "one new token sees everything", s=1, t=6),
    case(6005, "chunk.past3", "three new tokens behind three", s=3, t=6),
    case(6006, "none", "no new token", s=0, t=2),
    invalid(6007, "more_new_than_all", "s ≤ t", s=3, t=2),
]

SUITES = [
    Suite("rms_norm", "Zhang & Sennrich 2019; upstream RMSNorm", NORM),
    Suite("softmax", "chapter 10.4, 10.8", SOFTMAX),
    Suite("silu", "Elfwing et al. 2017; upstream hidden_act", SILU),
    Suite("gelu", "Hendrycks & Gimpel 2016; hidden_act gelu", GELU),
    Suite("repeat_kv", "Ainslie et al. 2023; upstream repeat_kv", REPEAT),
    Suite("causal_mask", "chapter 10.3; upstream Attention.forward", MASK),
]
