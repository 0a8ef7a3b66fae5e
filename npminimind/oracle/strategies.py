"""Inputs that Hypothesis may try, for every operator: small arrays of numbers with few bits.

Values are multiples of 1/8, so a shrunk input can be read and computed by hand, and float32 holds it exactly.
Decisions that hang on rounding (a sum that all but hits p) are left out: they have more than one right answer.
"""

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from ..config import YARN
from .signatures import reference

EIGHTH = st.integers(-32, 32).map(lambda n: n / 8)
LOGIT = st.integers(-64, 64).map(lambda n: n / 8)
SIZE = st.integers(1, 4)
EPS = st.sampled_from([1e-6, 1e-5])
THETA = st.sampled_from([1e6, 1e4])
NEAR = 1e-4  # a running sum nearer to p than this is not asked about


def arrays(draw, *shape, of=EIGHTH):
    count = int(np.prod(shape))
    return np.array(draw(st.lists(of, min_size=count, max_size=count)), np.float64).reshape(shape)


@st.composite
def rms_norm(draw):
    n = draw(SIZE)
    x = arrays(draw, *draw(st.sampled_from([(1, n), (2, n), (1, 2, n), (1, 2, 2, n)])))
    scale = draw(st.sampled_from([1.0, 2.0**-10, 2.0**10]))
    return {"x": x * scale, "weight": arrays(draw, n), "eps": draw(EPS)}


@st.composite
def rope_tables(draw):
    return {
        "head_dim": 2 * draw(SIZE),
        "length": draw(SIZE),
        "theta": draw(THETA),
        "scaling": draw(st.sampled_from([None, YARN])),
        "start": draw(st.integers(0, 300)),
    }


@st.composite
def rotate_half(draw):
    return {"x": arrays(draw, draw(SIZE), 2 * draw(SIZE))}


@st.composite
def apply_rope(draw):
    b, s, k, half = draw(st.integers(1, 2)), draw(SIZE), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    position = draw(st.integers(0, 9))
    tables = reference("rope_tables", {"head_dim": 2 * half, "length": s, "theta": draw(THETA), "start": position})
    n = k * draw(st.integers(1, 2))
    rounded = {name: table.astype(np.float32).astype(np.float64) for name, table in tables.items()}
    return {"q": arrays(draw, b, s, n, 2 * half), "k": arrays(draw, b, s, k, 2 * half), **rounded}


@st.composite
def repeat_kv(draw):
    shape = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    return {"x": arrays(draw, *shape), "n_rep": draw(st.integers(1, 3))}


@st.composite
def causal_mask(draw):
    s = draw(st.integers(0, 4))
    return {"s": s, "t": s + draw(st.integers(0, 3))}


@st.composite
def softmax(draw):
    shift = draw(st.sampled_from([0.0, 1000.0, -1000.0]))
    x = arrays(draw, draw(st.integers(1, 2)), draw(SIZE), of=LOGIT) + shift
    return {"x": with_masked(draw, x)}


def with_masked(draw, x):
    """Some entries −inf, but never a whole row."""
    masked = arrays(draw, *x.shape, of=st.sampled_from([False, False, True])).astype(bool)
    masked[..., 0] = False
    return np.where(masked, -np.inf, x)


@st.composite
def activation(draw):
    return {"x": arrays(draw, draw(SIZE), of=LOGIT)}


@st.composite
def attention(draw):
    b, s, past = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(0, 2))
    k, d = draw(st.integers(1, 2)), draw(st.sampled_from([2, 4]))
    t, n = past + s, k * draw(st.integers(1, 2))
    args = {"q": arrays(draw, b, s, n, d), "k": arrays(draw, b, t, k, d), "v": arrays(draw, b, t, k, d)}
    # Pads on the left, and only in the past: what comes out at a pad means nothing.
    pads = draw(st.lists(st.integers(0, past), min_size=b, max_size=b))
    if any(pads):
        args["attention_mask"] = np.array([[0] * p + [1] * (t - p) for p in pads])
    return args


def mlp_weights(draw, hidden, inner):
    return arrays(draw, inner, hidden), arrays(draw, inner, hidden), arrays(draw, hidden, inner)


@st.composite
def swiglu(draw):
    hidden, inner = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    gate, up, down = mlp_weights(draw, hidden, inner)
    x = arrays(draw, 1, draw(st.integers(1, 2)), hidden)
    return {"x": x, "gate_proj": gate, "up_proj": up, "down_proj": down}


@st.composite
def moe(draw):
    hidden, count = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    x, gate = arrays(draw, 1, draw(st.integers(1, 3)), hidden), arrays(draw, count, hidden)
    chosen = draw(st.integers(1, count))
    logits = -np.sort(-(x.reshape(-1, hidden) @ gate.T), axis=-1)
    assume(chosen == count or (logits[:, chosen - 1] > logits[:, chosen]).all())
    experts = [mlp_weights(draw, hidden, draw(st.integers(1, 2))) for _ in range(count)]
    norm = draw(st.booleans())
    return {"x": x, "gate": gate, "experts": experts, "num_experts_per_tok": chosen, "norm_topk_prob": norm}


def rows_of_logits(draw):
    return arrays(draw, draw(st.integers(1, 2)), draw(st.integers(1, 6)), of=LOGIT)


@st.composite
def apply_temperature(draw):
    temperature = draw(st.sampled_from([0.5, 1.0, 2.0, 0.85, 0.1, 1.5]))
    return {"logits": with_masked(draw, rows_of_logits(draw)), "temperature": temperature}


@st.composite
def apply_repetition_penalty(draw):
    logits = with_masked(draw, rows_of_logits(draw))
    rows, v = logits.shape
    ids = arrays(draw, rows, draw(st.integers(1, 4)), of=st.integers(0, v - 1)).astype(np.int64)
    return {"logits": logits, "input_ids": ids, "penalty": draw(st.sampled_from([1.5, 2.0, 1.0, 1.1, 0.5]))}


@st.composite
def top_k_threshold(draw):
    logits = rows_of_logits(draw)
    return {"logits": logits, "k": draw(st.integers(1, logits.shape[-1]))}


@st.composite
def apply_top_k(draw):
    logits = with_masked(draw, rows_of_logits(draw))
    return {"logits": logits, "k": draw(st.integers(0, logits.shape[-1]))}


@st.composite
def nucleus(draw):
    logits = with_masked(draw, rows_of_logits(draw))
    args = {"logits": logits, "p": draw(st.sampled_from([0.85, 0.5, 0.25, 0.75, 0.9, 0.0]))}
    steps = reference("top_p_mask", args)
    assume(np.abs(steps["cumulative"] - args["p"]).min() > NEAR)
    ordered = steps["sorted_logits"]
    assume(all(len(set(row[np.isfinite(row)])) == np.isfinite(row).sum() for row in ordered))  # equals may swap
    return args


@st.composite
def top_p_mask(draw):
    args = draw(nucleus())
    assume(np.isfinite(args["logits"]).all())  # masked ids are all equal
    return args


@st.composite
def greedy(draw):
    return {"logits": with_masked(draw, rows_of_logits(draw))}


@st.composite
def multinomial(draw):
    rows = draw(st.integers(1, 2))
    weights = arrays(draw, rows, draw(st.integers(1, 5)), of=st.integers(0, 4))
    assume((weights.sum(axis=-1) > 0).all())
    total = 2.0 ** np.ceil(np.log2(weights.sum(axis=-1, keepdims=True)))  # a power of two: all sums are exact
    return {"probs": weights / total, "u": arrays(draw, rows, of=st.integers(0, 63)) / 64}


STRATEGIES = {
    "rms_norm": rms_norm(),
    "rope_tables": rope_tables(),
    "rotate_half": rotate_half(),
    "apply_rope": apply_rope(),
    "repeat_kv": repeat_kv(),
    "causal_mask": causal_mask(),
    "softmax": softmax(),
    "silu": activation(),
    "gelu": activation(),
    "attention": attention(),
    "swiglu": swiglu(),
    "moe": moe(),
    "apply_temperature": apply_temperature(),
    "apply_repetition_penalty": apply_repetition_penalty(),
    "top_k_threshold": top_k_threshold(),
    "apply_top_k": apply_top_k(),
    "top_p_mask": top_p_mask(),
    "apply_top_p": nucleus(),
    "greedy": greedy(),
    "multinomial": multinomial(),
}
