"""linear, softmax, silu, gelu against their definitions in Python's own floats, and laws they must obey."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from conftest import refusal
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from npminimind import gelu, silu, softmax
from npminimind.primitives import linear

numbers = st.floats(-700, 700)
rows = hnp.arrays(np.float64, st.integers(1, 8), elements=numbers)


@given(rows)
def test_softmax_is_its_definition(x):
    greatest = max(x)
    weights = [math.exp(a - greatest) for a in x]
    np.testing.assert_allclose(softmax(x), np.array(weights) / math.fsum(weights), rtol=1e-13)


@given(rows, st.floats(-1e6, 1e6))
def test_softmax_does_not_change_when_all_are_shifted(x, shift):
    np.testing.assert_allclose(softmax(x + shift), softmax(x), rtol=0, atol=1e-9)


@given(hnp.arrays(np.float32, (3, 5), elements=st.floats(-(2.0**100), 2.0**100, width=32)))
def test_softmax_sums_to_one_at_any_size(x):
    probs = softmax(x)
    assert (probs >= 0).all()
    np.testing.assert_allclose(probs.sum(axis=-1), 1, atol=1e-6)


def test_softmax_of_minus_infinity_is_exactly_zero():
    assert softmax([0.0, -np.inf, 0.0]).tolist() == [0.5, 0, 0.5]


def test_softmax_axis():
    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_allclose(softmax(x, axis=0), softmax(x.T).T, rtol=1e-15)


@given(st.floats(-700, 700))
def test_silu_is_its_definition(x):
    assert float(silu(x)) == pytest.approx(x / (1 + math.exp(-x)), rel=1e-14, abs=1e-300)


@given(st.floats(-30, 30))
def test_gelu_is_x_times_the_normal_distribution(x):
    assert float(gelu(x)) == pytest.approx(x * NormalDist().cdf(x), rel=1e-9, abs=1e-14)


@pytest.mark.parametrize("act", [silu, gelu])
@given(hnp.arrays(np.float64, 5, elements=st.floats(-1e30, 1e30)))
def test_activations_differ_from_their_mirror_image_by_x(act, x):
    np.testing.assert_allclose(act(x) - act(-x), x, rtol=1e-14, atol=1e-300)


@pytest.mark.parametrize("act", [silu, gelu])
@pytest.mark.parametrize("one", [1.0, np.float32(1), np.array(1.0), 1])
def test_activations_of_a_single_number(act, one):
    assert float(act(one)) == pytest.approx({silu: 0.7310585786, gelu: 0.8413447461}[act], abs=1e-7)


@pytest.mark.filterwarnings("error")
def test_activations_of_extreme_values_warn_nobody():
    assert silu(np.float32([-3e38, -1e5, 3e38])).tolist() == [0, 0, np.float32(3e38)]
    assert gelu(np.float32([-3e38, 3e38])).tolist() == [0, np.float32(3e38)]


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("rows", [1, 2, 31, 32, 33])
def test_linear_is_exact_on_whole_numbers_however_the_matrix_lies(rows, order):
    """Few rows are multiplied the other way round; sums of small whole numbers are exact in any order."""
    x = np.arange(rows * 5).reshape(rows, 1, 5) % 7
    weight = np.array(np.arange(15).reshape(3, 5) % 4, np.float32, order=order)
    y = linear(x.astype(np.float32), weight)
    assert y.shape == (rows, 1, 3) and y.flags.c_contiguous
    expected = [[[sum(int(a) * int(b) for a, b in zip(x[r, 0], w)) for w in weight]] for r in range(rows)]
    assert y.tolist() == expected


@given(st.lists(st.integers(0, 3), max_size=3), st.integers(1, 4), st.integers(1, 4), st.integers(0, 99))
def test_linear_is_a_sum_over_the_last_axis(leading, n_in, n_out, seed):
    rng = np.random.default_rng(seed)
    x, weight = rng.standard_normal((*leading, n_in)), rng.standard_normal((n_out, n_in))
    y = linear(x, weight)
    assert y.shape == (*leading, n_out)
    for index in np.ndindex(*y.shape):
        assert y[index] == pytest.approx(math.fsum(x[index[:-1]] * weight[index[-1]]), abs=1e-13)


@pytest.mark.parametrize("function", [softmax, silu, gelu])
@pytest.mark.parametrize("wrong", [["1", "2"], [1j], [None], np.array(["a"])], ids=["text", "complex", "None", "str"])
def test_what_is_no_real_number_is_refused(function, wrong):
    refusal(lambda: function(wrong), "real numbers", error=TypeError)
