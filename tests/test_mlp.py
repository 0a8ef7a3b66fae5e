"""SwiGLU and experts against their definitions, one token at a time."""

import math

import numpy as np
import pytest
from conftest import refusal
from hypothesis import given
from hypothesis import strategies as st

from npminimind import gelu, moe, swiglu
from npminimind.mlp import route


def logistic(x):
    return 1 / (1 + math.exp(-x))


def defined_swiglu(x, gate_proj, up_proj, down_proj):
    gate, up = gate_proj @ x, up_proj @ x
    return down_proj @ np.array([g * logistic(g) * u for g, u in zip(gate, up)])


def defined_moe(x, gate, experts, k, norm_topk_prob):
    """The router's probabilities, the k greatest (of equals the lowest id), their experts summed by weight."""
    scores = [math.exp(s) for s in gate @ x]
    probs = [s / math.fsum(scores) for s in scores]
    chosen = sorted(range(len(probs)), key=lambda e: (-probs[e], e))[:k]
    total = math.fsum(probs[e] for e in chosen) if norm_topk_prob else 1.0
    return sum(probs[e] / total * defined_swiglu(x, *experts[e]) for e in chosen)


@st.composite
def cases(draw):
    h, inner, e = draw(st.integers(1, 5)), draw(st.integers(1, 5)), draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    experts = [(*rng.standard_normal((2, inner, h)), rng.standard_normal((h, inner))) for _ in range(e)]
    x = rng.standard_normal((*draw(st.lists(st.integers(1, 3), max_size=2)), h))
    return x, rng.standard_normal((e, h)), experts, draw(st.integers(1, e)), draw(st.booleans())


@given(cases())
def test_swiglu_is_its_definition(case):
    x, _, experts, _, _ = case
    want = np.apply_along_axis(defined_swiglu, -1, x, *experts[0])
    np.testing.assert_allclose(swiglu(x, *experts[0]), want, rtol=1e-12, atol=1e-13)


@given(cases())
def test_moe_is_its_definition(case):
    x, gate, experts, k, norm_topk_prob = case
    want = np.apply_along_axis(defined_moe, -1, x, gate, experts, k, norm_topk_prob)
    np.testing.assert_allclose(moe(x, gate, experts, k, norm_topk_prob), want, rtol=1e-12, atol=1e-13)


@given(cases())
def test_with_one_expert_the_gate_chooses_and_does_not_scale(case):
    x, gate, experts, _, _ = case
    _, weight = route(x.reshape(-1, x.shape[-1]), gate, 1, True)
    assert (weight == 1).all()


@given(cases())
def test_weights_renormalised_are_a_softmax_over_the_chosen(case):
    x, gate, _, k, _ = case
    tokens = x.reshape(-1, x.shape[-1])
    idx, weight = route(tokens, gate, k, True)
    scores = np.exp(np.take_along_axis(tokens @ gate.T, idx, axis=-1))
    np.testing.assert_allclose(weight, scores / scores.sum(axis=-1, keepdims=True), rtol=1e-12)


def test_of_equal_experts_the_lowest_id():
    idx, weight = route(np.ones((2, 3)), np.zeros((5, 3)), 2, False)
    assert idx.tolist() == [[0, 1]] * 2 and idx.dtype == np.int64
    assert weight.tolist() == [[0.2, 0.2]] * 2


def test_an_expert_that_nobody_chose_is_not_computed():
    good, never = [np.ones((1, 1))] * 3, [np.full((1, 1), np.nan)] * 3
    seen = []
    out = moe([[2.0]], [[1.0], [-1.0]], [good, never], 1, True, tap=lambda name, a: seen.append(name))
    assert out[0, 0] == pytest.approx(2 * logistic(2) * 2)
    assert [name for name in seen if name.startswith("experts.1")] == []
    assert seen[:4] == ["gate", "router_probs", "topk_idx", "topk_weight"]


def test_another_activation():
    one = np.ones((1, 1))
    assert swiglu([2.0], one, one, one, act=gelu)[0] == pytest.approx(2 * 0.9772498680518208 * 2)


def test_swiglu_of_no_tokens():
    assert swiglu(np.zeros((0, 3)), np.ones((4, 3)), np.ones((4, 3)), np.ones((3, 4))).shape == (0, 3)


@pytest.mark.parametrize("k", [0, -1, 3])
def test_impossible_numbers_of_experts(k):
    expert = [np.ones((1, 1))] * 3
    refusal(lambda: moe([[1.0]], np.ones((2, 1)), [expert] * 2, k, True), "num_experts_per_tok", "1 … 2")


def test_a_gate_for_other_experts():
    refusal(lambda: moe([[1.0]], np.ones((3, 1)), [[np.ones((1, 1))] * 3] * 2, 1, True), "3 rows", "2 experts")
