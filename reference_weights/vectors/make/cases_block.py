"""Cases of attention and of the feed-forward network, dense and with experts."""

import numpy as np
from declare import Suite, acceptable, case, grid, invalid, normal

from npminimind.oracle.signatures import reference


def heads(seed, s, n, t, k, d, b=1, step=0.125):
    """q [B,S,N,D] and k, v [B,T,K,D]."""
    return {
        "q": grid(seed, b, s, n, d, step=step),
        "k": grid(seed + 1, b, t, k, d, step=step),
        "v": grid(seed + 2, b, t, k, d, step=step),
    }


def padded(declared, rows):
    """Say that what comes out at pads means nothing: ``rows`` is a mask [B, S], True at pads."""
    free = np.asarray(rows, bool)[..., None]
    width = declared.args["q"].shape[2] * declared.args["q"].shape[3]
    declared.free = {"out": np.broadcast_to(free, (*free.shape[:2], width)).copy()}
    return declared


ATTENTION = [
    case(10001, "equal_scores", "the second token averages both values", q=[[[[0.0, 0.0]], [[0.0, 0.0]]]],
         k=[[[[0.0, 0.0]], [[0.0, 0.0]]]], v=[[[[1.0, 2.0]], [[3.0, 4.0]]]]),
    case(10002, "single_token", "it can only see itself: the context is v", **heads(1, 1, 2, 1, 2, 4)),
    case(10003, "causal.t4", "MHA, four tokens, none sees the future", **heads(10, 4, 2, 4, 2, 4)),
    case(10004, "grouped.n4.k2", "queries 0, 1 read key head 0, queries 2, 3 read 1", **heads(20, 3, 4, 3, 2, 4)),
    case(10005, "one_kv_head.n4", "MQA", **heads(30, 3, 4, 3, 1, 4)),
    case(10006, "grouped.n6.k2", "three queries a key head", **heads(40, 2, 6, 2, 2, 2)),
    case(10007, "cache.s1.past4", "decode: one query sees all five", **heads(50, 1, 4, 5, 2, 4)),
    case(10008, "cache.s2.past3", "two new tokens: only the last two columns get the triangle",
         **heads(60, 2, 2, 5, 2, 4)),
    case(10009, "peaked", "scores of ±100: softmax must subtract the greatest",
         **heads(70, 3, 2, 3, 2, 4, step=0.5)),
    case(10010, "all_ones", "a mask without pads changes nothing", attention_mask=[[1, 1, 1]],
         **heads(80, 3, 2, 3, 1, 4)),
    padded(case(10011, "left_pads", "pads are not looked at", attention_mask=[[0, 0, 1, 1]],
                **heads(90, 4, 2, 4, 1, 4)), [[1, 1, 0, 0]]),
    padded(case(10012, "fully_masked_row", "the first query sees only its own pad: any number, but no error and no "
                "nan in the other rows", attention_mask=[[0, 1, 1]], **heads(100, 3, 1, 3, 1, 2)), [[1, 0, 0]]),
    padded(case(10013, "batch_pads.b2", "each row its own pads", attention_mask=[[0, 1, 1], [1, 1, 1]],
                **heads(110, 3, 2, 3, 2, 2, b=2)), [[1, 0, 0], [0, 0, 0]]),
    case(10014, "cache_pads.past3", "the mask covers past and new positions", attention_mask=[[0, 1, 1, 1]],
         **heads(120, 1, 2, 4, 1, 4)),
    case(10015, "hole", "a pad in the middle", attention_mask=[[1, 0, 1, 1]], **heads(130, 1, 2, 4, 2, 4)),
    case(10016, "scale.d16", "scores are divided by √D = 4, not by D nor by √H", **heads(140, 2, 1, 2, 1, 16)),
    case(10017, "bell", "bell-shaped numbers, two rows", q=normal(150, 2, 3, 4, 8), k=normal(151, 2, 3, 2, 8),
         v=normal(152, 2, 3, 2, 8)),
    invalid(10018, "heads_do_not_fit", "3 query heads, 2 key heads", **heads(160, 2, 3, 2, 2, 4)),
    invalid(10019, "mask_too_short", "the mask misses the past", attention_mask=[[1]], **heads(120, 1, 2, 4, 1, 4)),
]  # fmt: skip


def weights(seed, hidden, inner, step=0.125):
    return {
        "gate_proj": grid(seed, inner, hidden, step=step, span=8),
        "up_proj": grid(seed + 1, inner, hidden, step=step, span=8),
        "down_proj": grid(seed + 2, hidden, inner, step=step, span=8),
    }


SWIGLU = [
    case(11001, "one", "silu(2) · 3 · 10, by hand", x=[[1.0]], gate_proj=[[2.0]], up_proj=[[3.0]], down_proj=[[10.0]]),
    case(11002, "gate_or_up", "swapped, it would be silu(3) · 2 · 10", x=[[1.0]], gate_proj=[[3.0]], up_proj=[[2.0]],
         down_proj=[[10.0]]),
    case(11003, "rows.i6", "[B, S, H]", x=grid(1, 2, 2, 4), **weights(11, 4, 6)),
    case(11004, "gelu", "hidden_act gelu", x=grid(2, 1, 2, 4), act="gelu", **weights(21, 4, 6)),
    case(11005, "closed_gate", "gates far below zero let nothing through", x=[[1.0, 1.0]],
         gate_proj=[[-60.0, -60.0], [1.0, 1.0]], up_proj=[[5.0, 5.0], [1.0, 0.5]], down_proj=[[1.0, 2.0], [4.0, 0.5]]),
    case(11006, "narrow.i2", "narrower inside than outside", x=grid(3, 1, 6), **weights(31, 6, 2)),
    case(11007, "zero", "no bias: zero in, zero out", x=[[0.0, 0.0, 0.0]], **weights(41, 3, 4)),
    case(11008, "bell", "bell-shaped numbers", x=normal(51, 1, 3, 8), gate_proj=normal(52, 12, 8, scale=0.5),
         up_proj=normal(53, 12, 8, scale=0.5), down_proj=normal(54, 8, 12, scale=0.5)),
    case(11009, "square.i4", "transposed weights have the same shape and other numbers", x=grid(61, 1, 2, 4),
         **weights(62, 4, 4)),
]  # fmt: skip


def experts(seed, count, hidden, inner):
    return [tuple(weights(seed + 10 * e, hidden, inner).values()) for e in range(count)]


def routing(k, norm):
    return {"num_experts_per_tok": k, "norm_topk_prob": norm}


def swapped(args, i, j):
    """The answer of a router that takes expert j for expert i: right too, where their probabilities are equal."""
    order = list(range(len(args["experts"])))
    order[i], order[j] = j, i
    other = args | {"gate": args["gate"][order], "experts": [args["experts"][e] for e in order]}
    return reference("moe", other)


FOUR = experts(100, 4, 4, 3)
PREFERS = [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
TOKENS = grid(101, 1, 5, 4)
TIE = {
    "x": np.array([[1.0, 1.0, -1.0, -2.0]]),
    "gate": np.array(PREFERS),
    "experts": [tuple(np.asarray(w) for w in expert) for expert in FOUR],
}
MOE = [
    case(12001, "top1", "MiniMind-3: the weight is exactly 1, the gate chooses and does not scale", x=TOKENS,
         gate=PREFERS, experts=FOUR, **routing(1, True)),
    case(12002, "top1.raw", "without renormalisation the weight is the probability", x=TOKENS, gate=PREFERS,
         experts=FOUR, **routing(1, False)),
    case(12003, "top2", "MiniMind2: two experts, weights divided by their sum", x=TOKENS, gate=PREFERS, experts=FOUR,
         **routing(2, True)),
    case(12004, "top2.raw", "the weights do not sum to one", x=TOKENS, gate=PREFERS, experts=FOUR, **routing(2, False)),
    acceptable(12005, "tie.top1", "experts 0 and 1 are equally likely: ours takes the lowest id, torch leaves it open",
               [swapped(TIE | routing(1, True), 0, 1)], **TIE, **routing(1, True)),
    case(12006, "tie_inside.top2", "the two that tie are both chosen: only one answer", **TIE, **routing(2, True)),
    case(12007, "unused_expert", "nobody chooses expert 3; its weights are huge and must not count",
         x=[[2.0, 1.0, 0.0, -9.0], [0.0, 3.0, 1.0, -9.0]], gate=PREFERS,
         experts=[*FOUR[:3], tuple(w * 1000 for w in FOUR[3])], **routing(2, True)),
    case(12008, "crowded_expert", "all tokens go to expert 2", x=[[0.0, 0.0, 4.0, 1.0], [1.0, 0.0, 5.0, 0.0],
                                                                 [0.5, 0.25, 3.0, 0.0]], gate=PREFERS, experts=FOUR,
         **routing(1, True)),
    case(12009, "one_expert", "E = 1 is a dense network", x=TOKENS, gate=[[1.0, 0.0, 0.0, 0.0]], experts=FOUR[:1],
         **routing(1, True)),
    case(12010, "all_experts.top4", "k = E", x=TOKENS, gate=PREFERS, experts=FOUR, **routing(4, True)),
    case(12011, "gelu", "hidden_act gelu", x=TOKENS, gate=PREFERS, experts=FOUR, act="gelu", **routing(2, True)),
    case(12012, "near_tie", "probabilities apart by 2^-11: an error of the router decides",
         x=[[1.0, 1.0009765625, -1.0, -2.0]], gate=PREFERS, experts=FOUR, **routing(1, True)),
    case(12013, "bell.e4", "bell-shaped numbers", x=normal(70, 1, 3, 8), gate=normal(71, 4, 8, scale=0.5),
         experts=[(normal(72 + 3 * e, 6, 8, scale=0.5), normal(73 + 3 * e, 6, 8, scale=0.5),
                   normal(74 + 3 * e, 8, 6, scale=0.5)) for e in range(4)], **routing(2, True)),
    invalid(12014, "more_than_there_are", "k > E", x=TOKENS, gate=PREFERS, experts=FOUR, **routing(5, True)),
]  # fmt: skip

SUITES = [
    Suite("attention", "Ainslie et al. 2023; chapter 10.3; upstream Attention.forward", ATTENTION),
    Suite("swiglu", "Shazeer 2020; upstream FeedForward", SWIGLU),
    Suite("moe", "Shazeer et al. 2017; upstream MOEFeedForward", MOE),
]
