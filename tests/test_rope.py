"""RoPE: angles from the formula, and the laws of rotation."""

import math

import numpy as np
import pytest
from conftest import refusal
from hypothesis import given
from hypothesis import strategies as st

from npminimind import apply_rope, rope_tables, rotate_half
from npminimind.config import YARN
from npminimind.rope import inverse_frequencies

D = 8
vector = st.lists(st.floats(-10, 10), min_size=D, max_size=D)
position = st.integers(0, 3000)


def turned(x, at, theta=1e4, scaling=None):
    cos, sin = rope_tables(D, 1, theta, scaling, start=at, dtype=np.float64)
    x = np.reshape(x, (1, 1, 1, D))
    return apply_rope(x, x, cos, sin)[0].ravel()


@given(vector, vector, position, position, position)
def test_a_dot_product_depends_on_the_distance_only(q, k, m, n, shift):
    here = turned(q, m) @ turned(k, n)
    assert turned(q, m + shift) @ turned(k, n + shift) == pytest.approx(here, abs=1e-8)


@given(vector)
def test_position_0_is_the_identity(x):
    assert turned(x, 0).tolist() == x


@given(vector, position)
def test_length_is_kept(x, at):
    assert np.linalg.norm(turned(x, at)) == pytest.approx(np.linalg.norm(x), abs=1e-10)


@given(vector, st.integers(0, 500), st.integers(0, 500))
def test_turning_twice_adds_the_angles(x, m, n):
    np.testing.assert_allclose(turned(turned(x, m), n), turned(x, m + n), atol=1e-9)


@given(vector, position)
def test_features_are_paired_with_the_other_half(x, at):
    """As complex numbers: x_i + j x_{i+D/2}, times e^{j angle}."""
    for i in range(D // 2):
        angle = at * 1e4 ** (-2 * i / D)
        pair = complex(x[i], x[i + D // 2]) * complex(math.cos(angle), math.sin(angle))
        ours = turned(x, at)
        assert (ours[i], ours[i + D // 2]) == (pytest.approx(pair.real, abs=1e-9), pytest.approx(pair.imag, abs=1e-9))


def test_the_first_unit_vector_at_position_1():
    cos, sin = rope_tables(4, 1, 1e6, start=1, dtype=np.float64)
    e0 = np.array([1.0, 0, 0, 0]).reshape(1, 1, 1, 4)
    assert apply_rope(e0, e0, cos, sin)[0].ravel().tolist() == [math.cos(1), 0, math.sin(1), 0]


@given(st.integers(0, 40), st.integers(0, 40), st.sampled_from([None, YARN]))
def test_a_part_of_the_table_is_the_part_of_the_table(start, length, scaling):
    whole = rope_tables(D, 80, 1e4, scaling)
    for part, table in zip(rope_tables(D, length, 1e4, scaling, start=start), whole):
        assert part.dtype == np.float32 and part.shape == (length, D)
        assert np.array_equal(part, table[start : start + length])


@pytest.mark.parametrize("head_dim, theta", [(96, 1e6), (64, 1e4), (2, 10.0)])
def test_frequencies_are_the_formula(head_dim, theta):
    exact = [theta ** (-2 * i / head_dim) for i in range(head_dim // 2)]
    np.testing.assert_allclose(inverse_frequencies(head_dim, theta, dtype=np.float64), exact, rtol=1e-14)
    np.testing.assert_allclose(inverse_frequencies(head_dim, theta), exact, rtol=5e-7)


def test_yarn_of_minimind_3():
    """head_dim 96: pairs 0 … 8 as they were, from 21 on 16 times slower, in between a straight ramp."""
    plain = np.array([1e6 ** (-2 * i / 96) for i in range(48)])
    slow = inverse_frequencies(96, 1e6, YARN, np.float64)
    assert np.allclose(slow[:9], plain[:9], rtol=1e-14)
    assert np.allclose(slow[21:], plain[21:] / 16, rtol=1e-14)
    ratio = slow / plain
    steps = np.diff(ratio[8:22])
    np.testing.assert_allclose(steps, (1 / 16 - 1) / 13, rtol=1e-9)


def test_yarn_attention_factor_scales_both_tables():
    plain, scaled = rope_tables(D, 3, 1e4, YARN), rope_tables(D, 3, 1e4, {"attention_factor": np.float64(2.0)})
    for one, other in zip(plain, scaled):
        assert other.dtype == np.float32
        assert np.array_equal(other, 2 * one)


def test_float32_angles_lose_digits_at_the_end_of_the_table():
    """At position 32,767 the error measured was 5.7e-4 in float32; float64 must be far better."""
    angles = [32767 * 1e6 ** (-2 * i / 96) for i in range(48)]
    exact = np.array([[math.cos(a) for a in angles] * 2, [math.sin(a) for a in angles] * 2])
    narrow = np.concatenate(rope_tables(96, 1, 1e6, start=32767))
    wide = np.concatenate(rope_tables(96, 1, 1e6, start=32767, dtype=np.float64))
    assert 1e-5 < abs(narrow - exact).max() < 1e-3
    assert abs(wide - exact).max() < 1e-11


@given(st.lists(st.floats(-1e30, 1e30), min_size=2, max_size=8).filter(lambda x: len(x) % 2 == 0))
def test_rotate_half_twice_is_minus(x):
    assert rotate_half(rotate_half(x)).tolist() == [-a for a in x]


def test_k_may_have_fewer_heads():
    cos, sin = rope_tables(D, 3, 1e4)
    q, k = apply_rope(np.ones((2, 3, 4, D), np.float32), np.ones((2, 3, 1, D), np.float32), cos, sin)
    assert q.shape == (2, 3, 4, D) and k.shape == (2, 3, 1, D)
    assert np.array_equal(q[:, :, :1], k)


@pytest.mark.parametrize("shape", [(1, 2, 1, D), (1, 1, 1, D), (1, 3, 1, 4), (3, D)])
def test_tables_that_do_not_fit(shape):
    cos, sin = rope_tables(D, 3, 1e4)
    good = np.ones((1, 3, 1, D))
    refusal(lambda: apply_rope(np.ones(shape), good, cos, sin), "[S, D]")
    refusal(lambda: apply_rope(good, np.ones(shape), cos, sin), "[S, D]")
    refusal(lambda: apply_rope(good, good, cos, sin[:1]), "[S, D]")


def test_impossible_arguments():
    refusal(lambda: rotate_half([1, 2, 3]), "halves")
    refusal(lambda: rope_tables(7, 3, 1e4), "even")
    refusal(lambda: rope_tables(0, 3, 1e4), "even")
    refusal(lambda: rope_tables(8, 3, 1e4, start=-1), "start")
    refusal(lambda: rope_tables(8, -3, 1e4), "length")
    for theta in (0, -1e4, float("nan"), float("inf")):
        refusal(lambda theta=theta: rope_tables(8, 3, theta), "theta")
