"""What comes from outside: ids, masks and caches that fit, and clear refusals of those that do not."""

import numpy as np
import pytest
from conftest import refusal

IDS = [[5, 6, 7]]


@pytest.fixture(params=["forward", "generate", "steps", "logprobs"])
def entrance(request, dense):
    """Every way in; a function of ids, mask and cache."""

    def enter(ids, mask=None, **more):
        if request.param == "forward":
            return dense(ids, mask, **more)
        if request.param == "logprobs":
            return dense.logprobs(ids, mask)
        return getattr(dense, request.param)(ids, mask, max_new_tokens=2, rng=0, **more)

    return enter


class TestIds:
    @pytest.mark.parametrize("ids", [((5, 6, 7),), np.array(IDS), np.array(IDS, np.uint8), np.array(IDS, np.int32)])
    def test_integers_of_every_kind(self, dense, ids):
        assert np.array_equal(dense(ids).logits, dense(IDS).logits)
        out = dense.generate(ids, max_new_tokens=1, do_sample=False)
        assert out.dtype == np.int64

    @pytest.mark.parametrize(
        "ids", [[[5, -1]], [[-60, 5]], [[5, 60]], [[5, 2**40]], np.array([[2**64 - 1]], np.uint64)]
    )
    def test_out_of_range(self, entrance, ids):
        refusal(lambda: entrance(ids), "outside the vocabulary of 60", "0 … 59")

    @pytest.mark.parametrize("ids", [[], [[]], [[], []], np.zeros((0, 3), int), np.zeros((2, 0), int)])
    def test_empty(self, entrance, ids):
        refusal(lambda: entrance(ids))

    def test_ragged(self, entrance):
        refusal(lambda: entrance([[5, 6], [7]]), "differ in length", "batch")

    @pytest.mark.parametrize("ids", [5, [5, 6], [[[5, 6]]], np.int64(5)])
    def test_wrong_rank(self, entrance, ids):
        refusal(lambda: entrance(ids), "[batch, length]", "[[…]]")

    @pytest.mark.parametrize(
        "ids", [[[5.0, 6.0]], [[True, False]], [["5", "6"]], [[None, 5]], [[5, 2**70]], [[1j, 2]], [[np.nan, 5]]]
    )
    def test_wrong_dtype(self, entrance, ids):
        refusal(lambda: entrance(ids), "integers", error=TypeError)

    def test_text(self, entrance):
        refusal(lambda: entrance("Once upon a time"), "stream", "encode", error=TypeError)

    def test_none(self, dense):
        refusal(lambda: dense(None))
        refusal(lambda: dense.generate(), "input_ids", error=TypeError)
        refusal(lambda: dense.generate(IDS, inputs=IDS), "once", error=TypeError)


class TestMask:
    @pytest.mark.parametrize("mask", [[[False, True, True]], np.array([[0.0, 1, 1]]), np.array([[0, 1, 1]], np.uint8)])
    def test_zeros_and_ones_of_every_kind(self, dense, mask):
        assert np.array_equal(dense(IDS, mask).logits, dense(IDS, [[0, 1, 1]]).logits)

    def test_ones_are_no_mask(self, dense):
        assert np.array_equal(dense(IDS, [[1, 1, 1]]).logits, dense(IDS).logits)

    @pytest.mark.parametrize("mask", [[[1, 1]], [[1] * 4], [1, 1, 1], [[1] * 3] * 2, 1, [], [[]], [[[1, 1, 1]]]])
    def test_wrong_shape(self, entrance, mask):
        refusal(lambda: entrance(IDS, mask), "attention_mask", "(1, 3)")

    def test_ragged(self, entrance):
        refusal(lambda: entrance([[5, 6], [7, 8]], [[1, 1], [1]]), "attention_mask", "differ in length")

    @pytest.mark.parametrize(
        "mask",
        [
            [[0, 2, 1]],
            [[-1, 1, 1]],
            [[0, 0.5, 1]],
            [[np.nan, 1, 1]],
            [[-np.inf, 0, 0]],
            [["0", "1", "1"]],
            [[None, 1, 1]],
        ],
    )
    def test_values_that_cannot_be_meant(self, entrance, mask):
        refusal(lambda: entrance(IDS, mask), "1 for tokens and 0 for pads")

    def test_a_row_without_tokens(self, entrance):
        refusal(lambda: entrance([[5, 6], [7, 8]], [[1, 1], [0, 0]]), "row 1", "all 0")

    def test_generation_refuses_right_pads(self, dense):
        dense(IDS, [[1, 1, 0]])  # forward takes them: what stands before is not touched
        for call in (dense.generate, dense.steps):
            refusal(lambda call=call: call(IDS, [[1, 1, 0]]), "left")
            refusal(lambda call=call: call(IDS + IDS, [[1, 1, 1], [0, 1, 0]]), "left")

    def test_right_pads_do_not_touch_what_stands_before(self, dense):
        np.testing.assert_allclose(dense(IDS, [[1, 1, 0]]).logits[:, :2], dense([IDS[0][:2]]).logits, atol=1e-5)

    def test_it_covers_past_and_new(self, dense):
        past = dense(IDS, use_cache=True).past_key_values
        dense([[8]], [[1] * 4], past)
        refusal(lambda: dense([[8]], [[1]], past), "(1, 4)", "past and new")


class TestCache:
    @pytest.fixture
    def past(self, dense):
        return dense(IDS, use_cache=True).past_key_values

    @pytest.fixture(params=["forward", "generate"])
    def enter(self, request, dense):
        def enter(past, ids=None):
            if request.param == "forward":
                return dense(ids or [[8]], past_key_values=past)
            return dense.generate(ids or [[*IDS[0], 8]], past_key_values=past, max_new_tokens=1, rng=0)

        return enter

    def test_tuples_lists_and_float64_are_fine(self, dense, past):
        want = dense([[8]], past_key_values=past).logits
        for form in (tuple(past), [list(pair) for pair in past], [(k.tolist(), v.tolist()) for k, v in past]):
            assert np.array_equal(dense([[8]], past_key_values=form).logits, want)

    @pytest.mark.parametrize("wrong", [5, "cache", {}, [None, None], [1, 2], [(1,), (2,)], [(1, 2, 3)] * 2])
    def test_no_list_of_pairs(self, enter, wrong):
        refusal(lambda: enter(wrong), "past_key_values", "(k, v)", error=TypeError)

    def test_another_number_of_layers(self, enter, past):
        refusal(lambda: enter(past[:1]), "1 layers", "2")
        refusal(lambda: enter(past + past), "4 layers", "2")
        refusal(lambda: enter([]), "0 layers", "2")

    def test_another_batch(self, enter, past):
        twice = [(np.repeat(k, 2, 0), np.repeat(v, 2, 0)) for k, v in past]
        refusal(lambda: enter(twice), "(2, 3, 2, 12)", "(1, 3, 2, 12)")

    def test_another_layout(self, enter, past):
        """HF's [B, K, T, D]."""
        refusal(lambda: enter([(k.swapaxes(1, 2), v.swapaxes(1, 2)) for k, v in past]), "[B, T, K, D]")

    def test_other_heads_or_width(self, enter, past):
        refusal(lambda: enter([(k[:, :, :1], v[:, :, :1]) for k, v in past]), "[B, T, K, D]")
        refusal(lambda: enter([(k[..., :4], v[..., :4]) for k, v in past]), "[B, T, K, D]")
        refusal(lambda: enter([(k[0], v[0]) for k, v in past]), "[B, T, K, D]")

    def test_lengths_that_differ(self, enter, past):
        refusal(lambda: enter([past[0], tuple(a[:, :2] for a in past[1])]), "layer 1")
        refusal(lambda: enter([(k, v[:, :2]) for k, v in past]), "v of layer 0")

    @pytest.mark.parametrize("kind", [complex, str, int, bool, object])
    def test_no_floats(self, enter, past, kind):
        refusal(lambda: enter([(k.astype(kind), v) for k, v in past]), "floats", error=TypeError)

    def test_a_cache_that_leaves_nothing_to_feed(self, dense, past):
        refusal(lambda: dense.generate(IDS, past_key_values=past), "covers all of input_ids", "last")
        refusal(lambda: dense.generate([[5]], past_key_values=past), "covers all of input_ids")

    def test_an_empty_cache_is_none(self, dense, past):
        empty = [(k[:, :0], v[:, :0]) for k, v in past]
        assert np.array_equal(dense(IDS, past_key_values=empty).logits, dense(IDS).logits)

    def test_not_together_with_several_sequences(self, dense, past):
        refusal(
            lambda: dense.generate([[*IDS[0], 8]], past_key_values=past, num_return_sequences=2), "num_return_sequences"
        )


def test_unknown_arguments(dense):
    for call in (dense, dense.generate, dense.steps):
        with pytest.raises(TypeError, match="max_length"):
            call(IDS, max_length=10)


def test_logprobs_needs_two_ids(dense):
    refusal(lambda: dense.logprobs([[5]]), "at least two")
