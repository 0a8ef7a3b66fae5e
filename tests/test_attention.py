"""Grouped-query attention against its definition, one query and head at a time; masks; blocks; taps."""

import math
import sys

import numpy as np
import pytest
from conftest import refusal
from hypothesis import given
from hypothesis import strategies as st

from npminimind import attention, causal_mask, repeat_kv
from npminimind.ops import with_replaced

attention_module = sys.modules["npminimind.attention"]  # the package has a function of that name


@st.composite
def cases(draw, pads=False):
    """q, k, v of random small shapes, cached keys included; perhaps a mask."""
    b, s, past, n_kv, rep, d = (
        draw(st.integers(low, high)) for low, high in ((1, 3), (1, 5), (0, 4), (1, 3), (1, 3), (1, 4))
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    q = rng.standard_normal((b, s, n_kv * rep, d)) * draw(st.sampled_from([0.1, 1, 30]))
    k, v = rng.standard_normal((2, b, s + past, n_kv, d))
    mask = None
    if pads:
        mask = np.ones((b, s + past), int)
        for row in mask:
            row[: draw(st.integers(0, s + past - 1))] = 0
    return q, k, v, mask


def defined(q, k, v, mask=None):
    """softmax(q·k/√d) over the keys up to the query's own position, pads left out; a loop a query and head."""
    (b, s, n, d), (t, n_kv) = q.shape, k.shape[1:3]
    out = np.full((b, s, n, d), np.nan)
    for row, i, h in np.ndindex(b, s, n):
        g = h // (n // n_kv)
        seen = [j for j in range(t - s + i + 1) if mask is None or mask[row, j]]
        if not seen:
            continue  # a query at a pad that sees only pads: its value means nothing
        scores = [math.fsum(q[row, i, h] * k[row, j, g]) / math.sqrt(d) for j in seen]
        weights = [math.exp(score - max(scores)) for score in scores]
        out[row, i, h] = sum(w * v[row, j, g] for w, j in zip(weights, seen)) / math.fsum(weights)
    return out.reshape(b, s, n * d)


@given(cases())
def test_is_its_definition(case):
    q, k, v, _ = case
    np.testing.assert_allclose(attention(q, k, v), defined(q, k, v), rtol=0, atol=1e-12)


@given(cases(pads=True))
def test_pads_are_left_out(case):
    q, k, v, mask = case
    want = defined(q, k, v, mask)
    means_something = ~np.isnan(want)
    np.testing.assert_allclose(attention(q, k, v, mask)[means_something], want[means_something], rtol=0, atol=1e-12)


@given(cases(pads=True))
def test_grouped_queries_are_repeated_keys(case):
    q, k, v, mask = case
    repeated = attention(q, k, v, mask, repeat_kv=repeat_kv)
    by_hand = attention(q, repeat_kv(k, q.shape[2] // k.shape[2]), repeat_kv(v, q.shape[2] // v.shape[2]), mask)
    np.testing.assert_allclose(attention(q, k, v, mask), repeated, rtol=0, atol=1e-12)
    np.testing.assert_allclose(attention(q, k, v, mask), by_hand, rtol=0, atol=1e-12)


@given(cases(pads=True), st.integers(1, 4))
def test_blocks_of_queries_are_one_pass(case, block):
    q, k, v, mask = case
    whole = attention(q, k, v, mask)
    before, attention_module.BLOCK_ROWS = attention_module.BLOCK_ROWS, block
    try:
        np.testing.assert_allclose(attention(q, k, v, mask), whole, rtol=0, atol=1e-12)
    finally:
        attention_module.BLOCK_ROWS = before


@given(cases(), st.data())
def test_the_future_has_no_influence(case, data):
    q, k, v, _ = case
    s, t = q.shape[1], k.shape[1]
    i = data.draw(st.integers(0, s - 1))
    changed_k, changed_v = k.copy(), v.copy()
    changed_k[:, t - s + i + 1 :], changed_v[:, t - s + i + 1 :] = 1e3, -1e3
    assert np.array_equal(attention(q, changed_k, changed_v)[:, : i + 1], attention(q, k, v)[:, : i + 1])


@given(cases(pads=True), st.randoms(use_true_random=False))
def test_rows_of_a_batch_do_not_see_each_other(case, random):
    q, k, v, mask = case
    order = list(range(len(q)))
    random.shuffle(order)
    together = attention(q, k, v, mask)[order]
    np.testing.assert_allclose(attention(q[order], k[order], v[order], mask[order]), together, rtol=0, atol=1e-12)
    for row in range(len(q)):
        one = slice(row, row + 1)
        np.testing.assert_allclose(
            attention(q[one], k[one], v[one], mask[one])[0], attention(q, k, v, mask)[row], rtol=0, atol=1e-12
        )


@given(st.integers(0, 6), st.integers(0, 6))
def test_causal_mask_is_the_end_of_the_triangle(s, past):
    t = s + past
    mask = causal_mask(s, t, np.float64)
    assert mask.shape == (s, t) and mask.dtype == np.float64
    assert mask.tolist() == [[0 if j <= past + i else -math.inf for j in range(t)] for i in range(s)]


def test_repeat_kv_repeats_each_head_in_place():
    x = np.arange(12).reshape(1, 2, 3, 2)
    assert repeat_kv(x, 2).tolist() == [[[head for head in token for _ in range(2)] for token in x[0].tolist()]]


def test_a_tap_sees_every_step_and_none_leaves_it():
    seen = {}
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((2, 3, 4, 5)), *rng.standard_normal((2, 2, 6, 2, 5))
    out = attention(q, k, v, [[0, 1, 1, 1, 1, 1], [1] * 6], tap=seen.__setitem__)  # returns None
    assert list(seen) == ["scores", "masked_scores", "probs", "context"]
    assert [a.shape for a in seen.values()] == [(2, 4, 3, 6)] * 3 + [(2, 3, 20)]
    assert np.isfinite(seen["scores"]).all()
    assert np.isneginf(seen["masked_scores"]).sum() == 2 * 4 * 3
    assert (seen["masked_scores"][0, ..., 0] < -9e8).all()
    np.testing.assert_allclose(seen["probs"].sum(axis=-1), 1)
    assert np.array_equal(out, attention(q, k, v, [[0, 1, 1, 1, 1, 1], [1] * 6]))


def test_a_tap_may_replace_probs():
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, 2, 1, 4))
    first_only = lambda name, a: np.eye(1, 2)[None, None].repeat(2, axis=2) if name == "probs" else None  # noqa: E731
    assert np.array_equal(attention(q, k, v, tap=first_only)[0], [v[0, 0, 0]] * 2)


def test_too_many_scores_for_a_tap(monkeypatch):
    monkeypatch.setattr(attention_module, "TAPPED_SCORES", 5)
    x = np.ones((1, 3, 1, 2))
    attention(x, x, x)
    refusal(lambda: attention(x, x, x, tap=lambda name, a: a), "too many", "shorter")


def test_a_mask_of_somebody_else_sees_all_keys(monkeypatch):
    """Without the causal rule every query averages all values, however small the blocks are."""
    monkeypatch.setattr(attention_module, "BLOCK_ROWS", 1)
    open_mask = with_replaced({"causal_mask": lambda s, t, dtype: np.zeros((s, t), dtype)})
    q = np.zeros((1, 3, 1, 1))
    assert open_mask.attention(q, q, np.array([1.0, 2, 6]).reshape(1, 3, 1, 1)).ravel().tolist() == [3, 3, 3]
    too_small = with_replaced({"causal_mask": lambda s, t, dtype: np.zeros((s, s), dtype)})
    refusal(lambda: too_small.attention(q[:, :2], q, q), "causal_mask(2, 3)", "[2, 3]", "(2, 2)")


def test_what_a_tap_keeps_is_not_changed_afterwards():
    kept = {}
    x = np.ones((1, 2, 1, 1))
    attention(x, x, x, [[0, 1]], tap=kept.__setitem__)
    assert kept["scores"].tolist() == [[[[1, 1], [1, 1]]]]
    assert kept["masked_scores"].tolist() == [[[[1 - 1e9, -np.inf], [1 - 1e9, 1]]]]


ONES = np.ones((1, 3, 2, 4))


@pytest.mark.parametrize(
    "q, k, v, mask, word",
    [
        (ONES[0], ONES, ONES, None, "[B,S,N,D]"),
        (ONES, ONES, ONES[:, :2], None, "equal k, v"),
        (ONES, np.ones((2, 3, 2, 4)), np.ones((2, 3, 2, 4)), None, "does not fit"),
        (ONES, np.ones((1, 3, 2, 5)), np.ones((1, 3, 2, 5)), None, "does not fit"),
        (ONES, np.ones((1, 3, 3, 4)), np.ones((1, 3, 3, 4)), None, "multiple"),
        (ONES, ONES[:, :2], ONES[:, :2], None, "3 queries but only 2 keys"),
        (ONES, ONES[:, :0], ONES[:, :0], None, "nothing to attend"),
        (ONES, ONES[:, :, :0], ONES[:, :, :0], None, "nothing to attend"),
        (ONES, ONES, ONES, [[1, 1]], "need (1, 3)"),
        (ONES, ONES, ONES, [1, 1, 1], "need (1, 3)"),
        (ONES, ONES, ONES, [[-np.inf, 0, 0]], "1 for tokens and 0 for pads"),
        (ONES, ONES, ONES, [[2, 1, 1]], "1 for tokens and 0 for pads"),
        (ONES, ONES, ONES, [[np.nan, 1, 1]], "1 for tokens and 0 for pads"),
    ],
)
def test_shapes_and_masks_that_cannot_be_meant(q, k, v, mask, word):
    refusal(lambda: attention(q, k, v, mask), word)


@pytest.mark.parametrize("s, t", [(3, 2), (-1, 2)])
def test_impossible_triangle(s, t):
    refusal(lambda: causal_mask(s, t), "between 0 and t")
