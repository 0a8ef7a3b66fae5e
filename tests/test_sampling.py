"""The sampling stages against brute-force definitions from the chapter's text, at extreme values, and bad arguments."""

import math
from fractions import Fraction

import numpy as np
import pytest
from conftest import refusal
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from npminimind.sampling import (
    apply_repetition_penalty,
    apply_temperature,
    apply_top_k,
    apply_top_p,
    greedy,
    multinomial,
    softmax,
    top_k_threshold,
    top_p_mask,
)

NAN, INF = math.nan, math.inf
finite = st.floats(-50, 50)
# Few different values: ties are the rule, as on a float16 grid.
logits = st.one_of(
    hnp.arrays(np.float64, st.integers(1, 12), elements=finite),
    hnp.arrays(np.float32, st.integers(1, 12), elements=st.sampled_from([-2.0, -0.0, 0.0, 0.5, 1.0, 3.0])),
)
probabilities = hnp.arrays(np.float64, st.integers(1, 9), elements=st.sampled_from([0, 0, 1e-300, 1e-9, 0.1, 0.25, 1]))
probabilities = probabilities.filter(lambda p: p.any())
uniform = st.floats(0, 1, exclude_max=True)


class TestTemperature:
    @given(logits, st.floats(1e-3, 1e3))
    def test_is_a_division(self, x, temperature):
        ours = apply_temperature(x, temperature)
        assert ours.dtype == x.dtype
        np.testing.assert_allclose(ours, [float(a) / temperature for a in x], rtol=1e-6)

    @given(logits)
    def test_0_leaves_the_greatest(self, x):
        greatest = [a == max(x) for a in x]
        assert np.isfinite(apply_temperature(x, 0)).tolist() == greatest
        assert np.isfinite(apply_temperature(x, -0.0)).tolist() == greatest  # negative zero is zero
        shared = np.array(greatest) / sum(greatest)
        np.testing.assert_allclose(softmax(apply_temperature(x, 0)), shared, rtol=1e-6)

    def test_infinity_keeps_what_was_cut(self):
        assert apply_temperature([1.0, -INF, 3.0], INF).tolist() == [0, -INF, 0]

    @pytest.mark.parametrize("temperature", [-0.5, -INF, NAN])
    def test_impossible(self, temperature):
        refusal(lambda: apply_temperature([1.0, 2.0], temperature), "temperature", "0 or more")

    @pytest.mark.parametrize("temperature", [1e-40, 1e-300])
    def test_overflow_says_to_use_0(self, temperature):
        refusal(lambda: apply_temperature(np.float32([1, 20]), temperature), "overflows float32", "use 0")


class TestRepetitionPenalty:
    @given(logits, st.data(), st.floats(0.1, 10))
    def test_is_its_definition(self, x, data, penalty):
        ids = data.draw(st.lists(st.integers(0, len(x) - 1), max_size=6))
        want = [(a / penalty if a > 0 else a * penalty) if i in ids else a for i, a in enumerate(x.tolist())]
        ours = apply_repetition_penalty(x, ids, penalty)
        assert ours.dtype == x.dtype
        np.testing.assert_allclose(ours, want, rtol=1e-6)

    @given(logits, st.data(), st.floats(1, 10))
    def test_a_penalised_logit_never_rises(self, x, data, penalty):
        ids = data.draw(st.lists(st.integers(0, len(x) - 1), min_size=1, max_size=6))
        assert (apply_repetition_penalty(x, ids, penalty) <= x).all()

    @given(logits, st.data(), st.floats(0.1, 10), st.floats(0.1, 10))
    def test_commutes_with_temperature_up_to_rounding(self, x, data, penalty, temperature):
        ids = data.draw(st.lists(st.integers(0, len(x) - 1), max_size=6))
        one = apply_repetition_penalty(apply_temperature(x, temperature), ids, penalty)
        other = apply_temperature(apply_repetition_penalty(x, ids, penalty), temperature)
        np.testing.assert_allclose(one, other, rtol=1e-6)

    def test_rows_have_their_own_ids(self):
        ours = apply_repetition_penalty([[4.0, 4.0], [4.0, 4.0]], [[0, 0], [1, 1]], 2)
        assert ours.tolist() == [[2, 4], [4, 2]]

    @pytest.mark.parametrize("penalty", [0, -0.0, -1.1, NAN, INF, -INF])
    def test_impossible(self, penalty):
        refusal(lambda: apply_repetition_penalty([1.0, 2.0], [0], penalty), "repetition_penalty", "positive")

    @pytest.mark.parametrize("penalty", [1e39, 1e-45])
    def test_overflow_is_no_minus_infinity(self, penalty):
        refusal(lambda: apply_repetition_penalty(np.float32([0, -9, 9]), [0, 1, 2], penalty), "overflows float32")

    @pytest.mark.parametrize("ids", [[-1], [2], [0, 99]])
    def test_ids_outside_the_vocabulary(self, ids):
        refusal(lambda: apply_repetition_penalty([1.0, 2.0], ids, 1.1), "outside the vocabulary of 2", "0 … 1")

    def test_ids_that_are_no_ints(self):
        refusal(lambda: apply_repetition_penalty([1.0, 2.0], [0.0], 1.1), "integers", error=TypeError)


class TestTopK:
    @given(logits, st.integers(1, 12))
    def test_keeps_all_that_no_k_logits_exceed(self, x, k):
        kept = np.isfinite(apply_top_k(x, k)).tolist()
        assert kept == [sum(other > a for other in x) < k for a in x]

    @given(logits)
    def test_of_the_vocabulary_is_off(self, x):
        for k in (len(x), len(x) + 1, 10**30, 0, None):
            assert apply_top_k(x, k).tolist() == x.tolist()

    @given(logits, st.data())
    def test_threshold_is_the_kth_greatest(self, x, data):
        k = data.draw(st.integers(1, len(x)))
        assert top_k_threshold(x, k).tolist() == [sorted(x.tolist(), reverse=True)[k - 1]]

    def test_off_returns_a_copy(self):
        x = np.array([1.0, 2.0])
        for k in (0, 2, None):
            apply_top_k(x, k)[0] = 9
        assert x.tolist() == [1, 2]

    @pytest.mark.parametrize("k", [-1, -(10**30)])
    def test_impossible(self, k):
        refusal(lambda: apply_top_k([1.0, 2.0], k), "top_k", "0 or more")

    @pytest.mark.parametrize("k", [2.0, "2", True, np.True_, [2], NAN])
    def test_no_int(self, k):
        refusal(lambda: apply_top_k([1.0, 2.0], k), "top_k must be an int", error=TypeError)

    @pytest.mark.parametrize("k", [0, 3, -1])
    def test_threshold_of_an_impossible_k(self, k):
        refusal(lambda: top_k_threshold([1.0, 2.0], k), "1 … 2")


def brute_force_nucleus(x, p):
    """10.6 in exact arithmetic: by size, ties lowest id first; a token stays unless those before it exceed p."""
    weights = [Fraction(math.exp(float(a) - float(max(x)))) for a in x]
    kept, before = set(), Fraction(0)
    for i in sorted(range(len(x)), key=lambda i: (-float(x[i]), i)):
        if before / sum(weights) <= Fraction(p):
            kept.add(i)
        before += weights[i]
    return kept


class TestTopP:
    @given(hnp.arrays(np.float64, st.integers(1, 12), elements=finite), uniform)
    def test_is_the_chapters_definition(self, x, p):
        assert set(np.flatnonzero(np.isfinite(apply_top_p(x, p)))) == brute_force_nucleus(x, p)

    @given(logits, uniform)
    def test_its_probability_reaches_p_and_would_not_without_its_last(self, x, p):
        kept = np.isfinite(apply_top_p(x, p))
        probs = np.sort(softmax(x.astype(np.float64))[kept])
        assert probs.sum() >= p - 1e-6
        assert probs[1:].sum() <= p + 1e-6

    @given(logits, uniform, uniform)
    def test_grows_with_p(self, x, p, other):
        small, large = (np.isfinite(apply_top_p(x, q)) for q in sorted((p, other)))
        assert (large | ~small).all()

    @given(logits)
    def test_ends_of_the_scale(self, x):
        only = np.flatnonzero(np.isfinite(apply_top_p(x, 0)))
        assert only.tolist() == [x.tolist().index(max(x))]
        for p in (1, 1.0, 2.5, INF, None):
            assert apply_top_p(x, p).tolist() == x.tolist()

    def test_the_sum_is_float64_rounded_as_torchs(self):
        """6,400 flat float32 probabilities: summed in float32 they drift; the last must be the float64 sum, rounded."""
        x = np.random.default_rng(0).standard_normal((1, 6400)).astype(np.float32)
        steps = top_p_mask(x, 0.5)
        probs = np.exp(steps.sorted_logits - steps.sorted_logits[0, 0])
        probs /= probs.sum()
        assert steps.cumulative.dtype == np.float32
        assert steps.cumulative[0, -1] == np.float32(math.fsum(probs[0]))
        assert not np.array_equal(steps.cumulative, np.cumsum(probs, axis=-1))

    def test_p_is_compared_in_the_dtype_of_the_logits(self):
        """.85 is greater in float64 than in float32, and a float64 scalar of NumPy must not widen the comparison."""
        x = np.log(np.float32([0.5, 0.3, 0.15, 0.04, 0.01]))
        cumulative = top_p_mask(x, 0.5).cumulative
        for p in cumulative[:4]:
            exact_hit = [top_p_mask(x, q).exceeds.tolist() for q in (p, float(p), np.float64(p))]
            assert exact_hit[0] == exact_hit[1] == exact_hit[2]

    @pytest.mark.parametrize("p", [-0.1, -INF, NAN])
    def test_impossible(self, p):
        refusal(lambda: apply_top_p([1.0, 2.0], p), "top_p", "0 or more")
        refusal(lambda: top_p_mask([1.0, 2.0], p), "top_p", "0 or more")


class TestMultinomial:
    @given(probabilities, uniform)
    def test_is_its_definition_in_exact_arithmetic(self, probs, u):
        total, target = sum(map(Fraction, probs)), Fraction(u) * sum(map(Fraction, probs))
        drawn = int(multinomial(probs, u))
        before = sum(map(Fraction, probs[:drawn]))
        slack = total * Fraction(1, 2**50)  # the float64 sum is rounded
        assert before <= target + slack and target - slack < before + Fraction(probs[drawn])
        assert probs[drawn] > 0

    @given(probabilities, uniform, uniform)
    def test_is_monotone_in_u(self, probs, u, other):
        low, high = sorted((u, other))
        assert multinomial(probs, low) <= multinomial(probs, high)

    @given(probabilities, st.floats(1e-6, 1e6))
    def test_the_sum_need_not_be_one(self, probs, scale):
        for u in (0.0, 0.3, 0.9):
            scaled = multinomial(probs * 2.0 ** round(math.log2(scale)), u)  # exact: a power of two
            assert scaled == multinomial(probs, u)

    @given(probabilities)
    def test_a_token_of_probability_0_is_never_drawn(self, probs):
        last_u = np.nextafter(1, 0)
        padded = np.concatenate([[0.0], probs, [0.0, 0.0]])
        for u in (0.0, last_u):
            assert padded[multinomial(padded, u)] > 0

    def test_float32_probabilities_are_summed_in_float64(self):
        """2^24 + 1 in float32 is 2^24: the second token would have no room."""
        probs = np.float32([2.0**24, 1.0, 1.0])
        assert multinomial(probs, (2.0**24 + 0.5) / (2.0**24 + 2)) == 1

    def test_u_times_the_smallest_number_there_is_rounds_to_it(self):
        """.9 * 5e-324 is 5e-324, which no sum exceeds: still not the id of probability 0."""
        assert multinomial([0.0, 5e-324, 0.0], 0.9) == 1

    def test_one_u_a_row(self):
        assert multinomial([[0.5, 0.5]] * 3, [0.0, 0.5, 0.9]).tolist() == [0, 1, 1]
        assert multinomial([[0.5, 0.5]] * 3, [0, 0.5, 0.9]).dtype == np.int64
        refusal(lambda: multinomial([[0.5, 0.5]] * 2, [[0.1], [0.2]]), "u has shape (2, 1)", "(2,)")
        refusal(lambda: multinomial([[0.5, 0.5]] * 2, [0.1, 0.2, 0.3]), "u has shape (3,)")

    @pytest.mark.parametrize("u", [-0.1, 1.0, NAN, INF])
    def test_impossible_u(self, u):
        refusal(lambda: multinomial([0.5, 0.5], u), "[0, 1)")

    @pytest.mark.parametrize("probs", [[-0.5, 1.5], [NAN, 1.0], [INF, 1.0], [0.0, 0.0], []])
    def test_impossible_probabilities(self, probs):
        refusal(lambda: multinomial(probs, 0.5))

    def test_u_that_is_no_number(self):
        refusal(lambda: multinomial([0.5, 0.5], "0.5"), "real numbers", error=TypeError)


@given(logits)
def test_greedy_takes_the_first_of_the_greatest(x):
    assert int(greedy(x)) == x.tolist().index(max(x.tolist()))
    assert greedy(x).dtype == np.int64


STAGES = {
    "temperature": lambda x: apply_temperature(x, 0.7),
    "repetition_penalty": lambda x: apply_repetition_penalty(x, [0], 1.3),
    "top_k": lambda x: apply_top_k(x, 2),
    "top_k_threshold": lambda x: top_k_threshold(x, 2),
    "top_p": lambda x: apply_top_p(x, 0.5),
    "top_p_mask": lambda x: top_p_mask(x, 0.5).mask,
    "greedy": greedy,
    "multinomial": lambda x: multinomial(x, 0.5),
}


@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)
class TestEveryStage:
    def test_works_on_any_leading_axes(self, stage):
        x = np.random.default_rng(0).random((2, 3, 4))
        whole = stage(x)
        for index in np.ndindex(2, 3):
            assert np.array_equal(whole[index], stage(x[index]))

    def test_takes_lists(self, stage):
        assert np.array_equal(stage([0.1, 0.2, 0.7]), stage(np.array([0.1, 0.2, 0.7])))
        assert np.array_equal(stage([1, 2, 7]), stage(np.array([1.0, 2.0, 7.0])))

    @pytest.mark.parametrize("wrong", [[], 1.0, [[], []], [NAN, 1.0]], ids=["empty", "a number", "no ids", "nan"])
    def test_refuses(self, stage, wrong):
        refusal(lambda: stage(wrong))

    @pytest.mark.parametrize("wrong", [["a", "b"], [None, 1.0], [1j, 2.0]], ids=["text", "None", "complex"])
    def test_refuses_what_is_no_real_number(self, stage, wrong):
        refusal(lambda: stage(wrong), "real numbers", error=TypeError)


@pytest.mark.parametrize(
    "stage",
    [
        lambda x: apply_temperature([1.0, 2.0], x),
        lambda x: apply_repetition_penalty([1.0, 2.0], [0], x),
        lambda x: apply_top_p([1.0, 2.0], x),
    ],
    ids=["temperature", "repetition_penalty", "top_p"],
)
class TestNumbers:
    @pytest.mark.parametrize("value", ["0.5", b"1", [0.5], np.array([0.5]), True, np.True_, 1j, np.complex64(1), {}])
    def test_what_is_no_number_is_a_type_error(self, stage, value):
        refusal(lambda: stage(value), "must be a number", error=TypeError)

    @pytest.mark.parametrize("value", [1, np.float64(0.5), np.float32(0.5), np.int8(1), np.array(0.5), Fraction(1, 2)])
    def test_numbers_of_every_kind(self, stage, value):
        assert np.array_equal(stage(value), stage(float(value)))


@pytest.mark.parametrize("scalar", [np.float64, np.float32, float])
def test_a_numpy_scalar_does_not_widen_float32(scalar):
    x = np.float32([1, 2, 3])
    assert apply_temperature(x, scalar(0.5)).dtype == np.float32
    assert apply_repetition_penalty(x, [0], scalar(1.5)).dtype == np.float32
    assert apply_top_p(x, scalar(0.5)).dtype == np.float32
    assert top_p_mask(x, scalar(0.5)).cumulative.dtype == np.float32
