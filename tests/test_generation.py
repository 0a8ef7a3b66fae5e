"""The loop: equal to predicting, choosing and appending by hand; the contract of every argument."""

import inspect
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import SMALL, peaked, refusal, scripted
from hypothesis import given
from hypothesis import strategies as st

from npminimind import MiniMindConfig, MiniMindForCausalLM, Step, TorchGenerator
from npminimind.sampling import apply_repetition_penalty, apply_temperature, apply_top_k, apply_top_p, softmax
from npminimind.stages import STAGES

OPEN = dict(max_new_tokens=8, eos_token_id=None)
GREEDY = OPEN | {"do_sample": False}
prompts = st.lists(st.lists(st.integers(0, 59), min_size=4, max_size=4), min_size=1, max_size=3)


class TestEqualities:
    @given(prompts)
    def test_greedy_is_the_argmax_of_a_fresh_forward_pass(self, model64, prompt):
        ids = np.array(prompt)
        for _ in range(8):
            ids = np.concatenate([ids, model64(ids).logits[:, -1].argmax(-1)[:, None]], axis=1)
        assert np.array_equal(model64.generate(prompt, **GREEDY), ids)

    @given(prompts, st.integers(0, 99))
    def test_sampling_is_the_stages_and_a_cumulative_sum(self, model64, prompt, seed):
        ids, rng = np.array(prompt), np.random.default_rng(seed)
        for _ in range(8):
            x = apply_repetition_penalty(apply_temperature(model64(ids).logits[:, -1], 1.3), ids, 1.2)
            probs = softmax(apply_top_p(apply_top_k(x, 9), 0.9))
            u = rng.random(len(ids))
            token = [int(np.searchsorted(np.cumsum(p), ui * p.sum(), side="right")) for p, ui in zip(probs, u)]
            ids = np.concatenate([ids, np.array(token)[:, None]], axis=1)
        asked = OPEN | dict(temperature=1.3, repetition_penalty=1.2, top_k=9, top_p=0.9, rng=seed)
        assert np.array_equal(model64.generate(prompt, **asked), ids)

    @given(prompts, st.integers(0, 99))
    def test_without_cache_the_same(self, model64, prompt, seed):
        with_cache = model64.generate(prompt, rng=seed, **OPEN)
        assert np.array_equal(model64.generate(prompt, rng=seed, use_cache=False, **OPEN), with_cache)

    @given(prompts, st.integers(0, 99))
    def test_a_row_is_what_it_is_alone(self, model64, prompt, seed):
        u = np.random.default_rng(seed).random((8, len(prompt)))
        together = model64.generate(prompt, rng=u.ravel(), **OPEN)
        for row, ids in enumerate(prompt):
            assert np.array_equal(model64.generate([ids], rng=u[:, row], **OPEN)[0], together[row])

    @given(st.permutations(range(4)))
    def test_rows_in_another_order(self, model64, order):
        prompt = np.random.default_rng(0).integers(0, 60, (4, 5))
        assert np.array_equal(model64.generate(prompt[order], **GREEDY), model64.generate(prompt, **GREEDY)[order])

    @given(st.lists(st.lists(st.integers(0, 59), min_size=1, max_size=6), min_size=2, max_size=3))
    def test_left_padded_is_unpadded(self, model64, rows):
        longest = max(map(len, rows))
        ids = [[0] * (longest - len(row)) + row for row in rows]
        mask = [[0] * (longest - len(row)) + [1] * len(row) for row in rows]
        padded = model64.generate(ids, mask, **GREEDY)
        for i, row in enumerate(rows):
            assert padded[i, longest:].tolist() == model64.generate([row], **GREEDY)[0, len(row) :].tolist()

    def test_several_sequences_are_tiled(self, dense):
        ids = dense.steps([[5, 6], [7, 8]], num_return_sequences=3).input_ids
        assert ids.tolist() == [[5, 6], [7, 8]] * 3
        mask = [[0, 1], [1, 1]]
        step = next(dense.steps([[5, 6], [7, 8]], mask, num_return_sequences=2, rng=0))
        assert step.attention_mask.tolist() == mask * 2

    def test_greedy_depends_on_no_temperature(self, dense):
        want = dense.generate([[5, 6]], **GREEDY)
        for temperature in (0, 0.0, -0.0, 1e-5, 0.3, 1.0, 100.0, 1e40, np.inf, np.float32(0.5), np.float64(0)):
            assert np.array_equal(dense.generate([[5, 6]], **GREEDY | {"temperature": temperature}), want)

    def test_off_is_off(self, dense):
        for top_k in (0, None, 60, 61, 10**9):
            for top_p in (None, 1, 1.0, 2):
                step = next(dense.steps([[5, 6]], top_k=top_k, top_p=top_p, rng=0))
                assert np.array_equal(step.after_top_p, step.after_temperature)


class TestEos:
    def run(self, model, columns, **arguments):
        script = scripted(model, columns)
        asked = dict(do_sample=False, max_new_tokens=len(columns)) | arguments
        return script.generate([[5, 6]] * len(columns[0]), **asked)[:, 2:].tolist()

    def test_any_of_several_ends_a_row_and_the_first_fills_it(self, dense):
        columns = [[10, 11, 12], [3, 4, 20], [30, 31, 21], [32, 33, 9]]
        assert self.run(dense, columns, eos_token_id=[9, 3, 4]) == [[10, 3, 9, 9], [11, 4, 9, 9], [12, 20, 21, 9]]

    @pytest.mark.parametrize("eos", [np.int64(3), [3], (3,), np.array([3]), np.array(3)])
    def test_forms(self, dense, eos):
        assert self.run(dense, [[3], [4]], eos_token_id=eos) == [[3]]

    @pytest.mark.parametrize("eos", [None, []])
    def test_none(self, dense, eos):
        assert self.run(dense, [[2], [2]], eos_token_id=eos) == [[2, 2]]

    def test_id_0_is_an_eos_like_others(self, dense):
        assert self.run(dense, [[0, 5], [7, 0], [8, 9]], eos_token_id=0) == [[0, 0], [5, 0]]

    def test_eos_in_the_prompt_does_not_count(self, dense):
        assert dense.generate([[2, 2]], rng=0, max_new_tokens=1).shape == (1, 3)

    @pytest.mark.parametrize("eos", [-1, 60, [2, 60], 2**70])
    def test_out_of_range(self, dense, eos):
        with pytest.raises((ValueError, TypeError)):
            dense.generate([[5]], eos_token_id=eos)

    @pytest.mark.parametrize("eos", [2.0, "2", True, [[2]], [2.0], {2}])
    def test_wrong_types(self, dense, eos):
        refusal(lambda: dense.generate([[5]], eos_token_id=eos), "eos_token_id", error=TypeError)


class TestReturn:
    def test_ids_are_int64_and_new(self, dense):
        prompt = np.array([[5, 6]], np.int32)
        result = dense.generate(prompt, max_new_tokens=2, rng=0)
        assert result.dtype == np.int64 and prompt.tolist() == [[5, 6]]
        result[...] = 0
        assert prompt.tolist() == [[5, 6]]

    def test_no_new_tokens_returns_the_prompt(self, dense):
        result = dense.generate([[5, 6]], max_new_tokens=0, return_kv=True)
        assert result["generated_ids"].tolist() == [[5, 6]] and result["past_kv"] is None
        assert list(dense.steps([[5, 6]], max_new_tokens=0)) == []

    def test_return_kv_and_going_on(self, model64):
        """With a mask, a penalty and randomness: two calls are one."""
        mask, u = [[0, 1, 1], [1, 1, 1]], np.random.default_rng(0).random(16)
        asked = dict(eos_token_id=None, repetition_penalty=1.3, temperature=1.5)
        whole = model64.generate([[0, 5, 6], [7, 8, 9]], mask, max_new_tokens=8, rng=u, **asked)
        half = model64.generate([[0, 5, 6], [7, 8, 9]], mask, max_new_tokens=3, rng=u, return_kv=True, **asked)
        ids, past = half["generated_ids"], half["past_kv"]
        assert past[0][0].shape[1] == ids.shape[1] - 1
        longer = np.concatenate([mask, np.ones((2, 3), int)], axis=1)
        rest = model64.generate(ids, longer, max_new_tokens=5, rng=u[6:], past_key_values=past, **asked)
        assert np.array_equal(rest, whole)

    def test_rows_that_had_finished_start_again(self, dense):
        result = dense.generate([[5, 6]], max_new_tokens=20, do_sample=False, return_kv=True, eos_token_id=None)
        last = int(result["generated_ids"][0, -1])
        more = dense.generate(
            result["generated_ids"], past_key_values=result["past_kv"], max_new_tokens=1, eos_token_id=last, rng=0
        )
        assert more.shape[1] == result["generated_ids"].shape[1] + 1

    def test_a_cache_is_not_returned_without_use_cache(self, dense):
        result = dense.generate([[5]], max_new_tokens=2, use_cache=False, return_kv=True, rng=0)
        assert result["past_kv"] is None

    def test_a_given_cache_without_use_cache(self, model64):
        past = model64([[5, 6]], use_cache=True).past_key_values
        ids = model64.generate([[5, 6, 7]], past_key_values=past, use_cache=False, **GREEDY)
        assert np.array_equal(ids, model64.generate([[5, 6, 7]], **GREEDY))

    def test_inputs_is_another_name_and_pad_token_id_has_no_effect(self, dense):
        want = dense.generate([[5, 6]], **GREEDY)
        assert np.array_equal(dense.generate(inputs=[[5, 6]], **GREEDY), want)
        assert np.array_equal(dense.generate([[5, 6]], pad_token_id=7, **GREEDY), want)

    def test_arguments_stand_in_the_order_of_the_contract(self):
        names = (
            "input_ids attention_mask max_new_tokens temperature top_p top_k eos_token_id streamer use_cache "
            "num_return_sequences do_sample repetition_penalty past_key_values return_kv stop rng tap"
        ).split()
        assert list(inspect.signature(MiniMindForCausalLM.generate).parameters)[1 : len(names) + 1] == names

    def test_a_step_has_all_that_the_contract_names(self, dense):
        names = (
            "round past_len fed_ids attention_mask logits after_temperature seen after_repetition_penalty after_top_k "
            "after_top_p probs u next_token finished input_ids past_key_values"
        ).split()
        step = next(dense.steps([[5, 6]], rng=0))
        assert isinstance(step, Step)
        assert all(hasattr(step, name) for name in names)

    def test_steps_is_generate(self, dense):
        asked = dict(max_new_tokens=9, repetition_penalty=1.2, rng=4)
        steps = list(dense.steps([[5, 6], [7, 8]], **asked))
        assert np.array_equal(steps[-1].input_ids, dense.generate([[5, 6], [7, 8]], **asked))
        assert [step.round for step in steps] == list(range(len(steps)))

    def test_arrays_of_earlier_steps_stay(self, dense):
        steps = list(dense.steps([[5, 6]], rng=0, **OPEN))
        assert [step.input_ids.shape[1] for step in steps] == list(range(3, 11))
        assert [step.logits.sum() for step in steps] == [
            step.logits.sum() for step in dense.steps([[5, 6]], rng=0, **OPEN)
        ]

    def test_stages_are_read_only(self, dense):
        for how in ({"rng": 0}, {"do_sample": False}, {"do_sample": False, "tap": lambda name, array: None}):
            step = next(dense.steps([[5, 6]], **how))
            for name in STAGES:
                with pytest.raises(ValueError, match="read-only"):
                    getattr(step, name)[0, 0] = 1

    def test_a_greedy_step_computes_what_it_needs(self, dense):
        step = next(dense.steps([[5, 6]], do_sample=False, top_k=3))
        assert not {"after_top_k", "after_top_p", "probs"} & vars(step.stages).keys()
        assert np.isfinite(step.after_top_k).sum() == 3

    @pytest.mark.parametrize("name", ["apply_top_k", "apply_top_p", "top_p_mask"])
    def test_a_greedy_step_minds_what_was_replaced(self, dense, name):
        """A filter that cuts the greatest logit: the second is chosen, whether it is an operator or a tap that cuts."""

        def without_best(x, *args, **kwargs):
            return np.where(x == x.max(axis=-1, keepdims=True), -np.inf, x)

        def mask_of_best(x, *args, **kwargs):
            return SimpleNamespace(mask=x == x.max(axis=-1, keepdims=True))

        filters = {"apply_top_k": without_best, "apply_top_p": without_best, "top_p_mask": mask_of_best}
        best, second = np.argsort(-dense([[5, 6]]).logits[0, -1])[:2]
        asked = dict(input_ids=[[5, 6]], do_sample=False, max_new_tokens=1, top_k=0)
        assert dense.generate(**asked)[0, -1] == best
        assert dense.with_ops(**{name: filters[name]}).generate(**asked)[0, -1] == second

        def cutting(name, x):
            return without_best(x) if name.endswith("after_top_k") else None

        assert dense.generate(**asked, tap=cutting)[0, -1] == second


class Recorder:
    def __init__(self):
        self.calls = []

    def put(self, ids):
        self.calls.append(np.array(ids).tolist())

    def end(self):
        self.calls.append("end")


class TestStreamer:
    def test_protocol(self, dense):
        """The prompt first, then [B, 1] a step, then the end."""
        streamer = Recorder()
        ids = dense.generate([[5, 6], [7, 8]], streamer=streamer, rng=0, **OPEN)
        columns = ids[:, 2:].T[:, :, None].tolist()
        assert streamer.calls == [[[5, 6], [7, 8]], *columns, "end"]

    def test_of_no_tokens(self, dense):
        streamer = Recorder()
        dense.generate([[5, 6]], streamer=streamer, max_new_tokens=0)
        assert streamer.calls == [[[5, 6]], "end"]

    def test_ends_once(self, dense):
        streamer = Recorder()
        loop = dense.steps([[5, 6]], streamer=streamer, max_new_tokens=1, rng=0)
        assert [len(list(loop)), len(list(loop))] == [1, 0]
        assert streamer.calls.count("end") == 1


class TestEndOfTheTable:
    @pytest.fixture
    def short(self):
        return peaked(MiniMindConfig(**SMALL | {"max_position_embeddings": 6}))

    def test_it_stops_there_with_a_warning(self, short):
        with pytest.warns(UserWarning, match="max_position_embeddings = 6"):
            ids = short.generate([[5, 6]], max_new_tokens=100, eos_token_id=None, rng=0)
        assert ids.shape == (1, 7)  # all 6 positions were fed, and predict one more

    def test_no_warning_where_it_fits(self, short):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert short.generate([[5, 6]], max_new_tokens=5, eos_token_id=None, rng=0).shape == (1, 7)
            assert short.generate([[5] * 6], max_new_tokens=1, eos_token_id=None, rng=0).shape == (1, 7)

    def test_without_cache_too(self, short):
        with pytest.warns(UserWarning):
            assert short.generate([[5]], use_cache=False, eos_token_id=None, rng=0).shape == (1, 7)

    def test_a_prompt_beyond_it_is_refused(self, short):
        refusal(lambda: short.generate([[5] * 7]), "7 positions", "6")


class TestImpossibleArguments:
    @pytest.mark.parametrize(
        "arguments, words",
        [
            (dict(temperature=-1), ["temperature", "0 or more"]),
            (dict(temperature=np.nan), ["temperature"]),
            (dict(temperature=1e-60), ["temperature", "overflows"]),
            (dict(top_p=-0.1), ["top_p"]),
            (dict(top_p=np.nan), ["top_p"]),
            (dict(top_k=-1), ["top_k"]),
            (dict(repetition_penalty=0), ["repetition_penalty"]),
            (dict(repetition_penalty=-1.0), ["repetition_penalty"]),
            (dict(repetition_penalty=np.inf), ["repetition_penalty"]),
            (dict(max_new_tokens=-1), ["max_new_tokens", "0 or more"]),
            (dict(num_return_sequences=0), ["num_return_sequences", "1 or more"]),
            (dict(num_return_sequences=-2), ["num_return_sequences"]),
        ],
    )
    @pytest.mark.parametrize("do_sample", [True, False])
    def test_values(self, dense, arguments, words, do_sample):
        refusal(lambda: dense.steps([[5, 6]], do_sample=do_sample, **arguments), *words)  # before anything is computed

    @pytest.mark.parametrize(
        "arguments",
        [
            dict(temperature=None), dict(temperature="0.5"), dict(temperature=[0.5]), dict(temperature=True),
            dict(top_p="0.9"), dict(top_p=[0.9]), dict(top_p=1j), dict(top_k=5.0), dict(top_k="5"), dict(top_k=True),
            dict(repetition_penalty=None), dict(repetition_penalty="1.1"), dict(max_new_tokens=1.0),
            dict(max_new_tokens=None), dict(max_new_tokens="5"), dict(max_new_tokens=True),
            dict(num_return_sequences=1.5), dict(num_return_sequences=None), dict(do_sample="no"),
            dict(do_sample=None), dict(use_cache="yes"), dict(use_cache=[True]), dict(tap=5), dict(streamer=5),
            dict(return_kv="no"),
        ],
        ids=lambda a: "{}={!r}".format(*next(iter(a.items()))),
    )  # fmt: skip
    def test_types(self, dense, arguments):
        refusal(lambda: dense.steps([[5, 6]], **arguments), next(iter(arguments)), error=TypeError)

    @pytest.mark.parametrize(
        "arguments",
        [
            dict(top_k=np.int32(5)), dict(temperature=np.float32(0.5)), dict(top_p=np.float64(0.5)),
            dict(max_new_tokens=np.uint8(2)), dict(do_sample=np.False_), dict(do_sample=0), dict(use_cache=1),
        ],
        ids=lambda a: "{}={!r}".format(*next(iter(a.items()))),
    )  # fmt: skip
    def test_numpy_scalars_are_fine(self, dense, arguments):
        assert dense.generate([[5, 6]], **dict(max_new_tokens=2, rng=0) | arguments).shape[1] <= 4

    def test_more_tokens_than_any_int64(self, dense):
        loop = dense.steps([[5, 6]], max_new_tokens=2**70, rng=0)
        assert next(loop).round == 0

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_weights_that_are_not_finite_are_named(self, bad):
        model = peaked(MiniMindConfig(**SMALL))
        model.params["model.layers.1.mlp.up_proj.weight"][3, 5] = bad
        with np.errstate(all="ignore"):
            refusal(lambda: model.generate([[5, 6]]), "not finite", "model.layers.1.mlp.up_proj.weight")

    @pytest.mark.parametrize("token", [-1, 60])
    def test_a_choice_outside_the_vocabulary(self, dense, token):
        """A tap or an operator of somebody else: NumPy would read an id of −1 as the last row of the table."""
        wrong = dense.with_ops(greedy=lambda logits: np.full(len(logits), token))
        refusal(lambda: wrong.generate([[5]], **GREEDY), "outside the vocabulary")
        tap = lambda name, array: np.full_like(array, token) if name.endswith("next_token") else None  # noqa: E731
        refusal(lambda: dense.generate([[5]], tap=tap, **GREEDY), "outside the vocabulary")


def test_torch_seeded_calls_draw_one_race_a_step(dense):
    """The generator's own stream, step by step, on the probabilities that the step shows."""
    generator = TorchGenerator(3)
    for step in dense.steps([[5, 6], [7, 8]], rng=TorchGenerator(3), **OPEN):
        assert step.next_token[:, 0].tolist() == generator.multinomial(step.probs).tolist()
