"""Chapter 10 from 10.1 to 10.10: every table, default, example and diagram, at the chapter's own sizes.

Where the chapter is wrong, the test is called ``erratum``, asserts the true value and quotes what the chapter says.
"""

import inspect
import math

import numpy as np
import pytest
from conftest import scripted

from npminimind import MiniMindConfig, MiniMindForCausalLM, Trace, trace
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

PROMPTS = np.arange(3, 23).reshape(2, 10)  # 10.10: batch 2, prompt_len 10
INF = math.inf


def exact_softmax(logits):
    """The definition, in Python's own floats."""
    weights = [math.exp(x) for x in logits]
    return [w / sum(weights) for w in weights]


@pytest.fixture(scope="module")
def walk(chapter_model):
    """10.10: batch 2, prompt_len 10, max_new_tokens 20."""
    return list(chapter_model.steps(PROMPTS, max_new_tokens=20, eos_token_id=None, rng=0))


def spoken(model, columns, **arguments):
    """The steps of a model that chooses these ids."""
    return list(scripted(model, columns).steps(do_sample=False, max_new_tokens=len(columns), **arguments))


class Test_10_1_overview:
    def test_table_of_defaults(self):
        table = {
            "max_new_tokens": 8192,
            "temperature": 0.85,
            "top_p": 0.85,
            "top_k": 50,
            "eos_token_id": 2,
            "do_sample": True,
            "repetition_penalty": 1.0,
            "num_return_sequences": 1,
            "use_cache": True,
        }
        parameters = inspect.signature(MiniMindForCausalLM.generate).parameters
        assert {name: parameters[name].default for name in table} == table

    def test_steps_has_the_same_defaults(self, dense):
        loop = dense.steps([[3]])
        assert (loop.temperature, loop.top_p, loop.top_k, loop.penalty, loop.eos) == (0.85, 0.85, 50, 1.0, [2])
        assert loop.max_new_tokens == 8192 and loop.use_cache and not loop.greedy

    def test_prefill_feeds_the_prompt_and_decode_one_token(self, walk):
        assert [step.fed_ids.shape[1] for step in walk] == [10] + [1] * 19

    def test_stops_at_eos(self, dense):
        assert len(spoken(dense, [[5], [2], [7]], input_ids=[[3, 4]])) == 2

    def test_stops_at_max_new_tokens(self, dense):
        assert dense.generate([[3, 4]], max_new_tokens=3, eos_token_id=None, rng=0).shape == (1, 5)

    def test_stops_at_a_stop_word(self, dense):
        steps = spoken(dense, [[5], [8], [9], [7]], input_ids=[[3, 4]], stop=[[8, 9]])
        assert steps[-1].input_ids.tolist() == [[3, 4, 5, 8, 9]]


class Test_10_2_loop:
    def test_table_of_the_prefill(self, chapter_model, walk):
        out = chapter_model(PROMPTS, use_cache=True)
        assert PROMPTS.shape == (2, 10)
        assert out.logits.shape == (2, 10, 6400)
        assert out.logits[:, -1].shape == walk[0].logits.shape == (2, 6400)
        assert isinstance(out.past_key_values, list) and len(out.past_key_values) == 8
        for k, v in out.past_key_values:
            assert k.shape == v.shape == (2, 10, 4, 96)

    def test_table_of_a_decode_step(self, chapter_model, walk):
        past = walk[4].past_key_values
        past_len = past[0][0].shape[1]
        out = chapter_model(walk[4].input_ids[:, past_len:], past_key_values=past, use_cache=True)
        assert walk[4].input_ids[:, past_len:].shape == walk[5].fed_ids.shape == (2, 1)
        assert out.logits.shape == (2, 1, 6400)
        assert all(k.shape == v.shape == (2, past_len + 1, 4, 96) for k, v in out.past_key_values)
        np.testing.assert_allclose(out.logits[:, -1], walk[5].logits, atol=1e-5)

    def test_step_1_first_round_has_no_past(self, walk):
        assert walk[0].past_len == 0
        assert walk[0].fed_ids.tolist() == PROMPTS.tolist()

    def test_step_1_erratum_past_len_is_prompt_plus_generated_minus_one(self, walk):
        """The chapter: in the rounds after the first, "past_len 为已生成长度", the generated length."""
        for generated, step in enumerate(walk[1:], start=1):
            assert step.past_len == 10 + generated - 1
            assert step.past_len != generated
            assert step.fed_ids.tolist() == walk[generated - 1].next_token.tolist()

    def test_step_2_the_mask_grows_by_a_one(self, dense):
        mask = np.array([[1] * 10, [0] * 3 + [1] * 7])
        steps = list(dense.steps(PROMPTS, mask, max_new_tokens=4, eos_token_id=None, rng=0))
        for generated, step in enumerate(steps):
            assert step.attention_mask.tolist() == [row + [1] * generated for row in mask.tolist()]
            assert step.attention_mask.shape[1] == step.past_len + step.fed_ids.shape[1]

    def test_step_3_only_the_last_position_predicts(self, chapter_model, walk):
        np.testing.assert_allclose(walk[0].logits, chapter_model(PROMPTS).logits[:, -1], atol=1e-5)

    def test_step_5_the_token_is_appended(self, walk):
        for before, step in zip([PROMPTS, *(s.input_ids for s in walk)], walk):
            assert np.array_equal(step.input_ids, np.concatenate([before, step.next_token], axis=-1))


class Test_10_3_kv_cache:
    def test_structure_and_table(self, chapter_model):
        cache = chapter_model(np.arange(100)[None], use_cache=True).past_key_values
        assert len(cache) == 8
        for k, v in cache:
            assert k.shape == v.shape == (1, 100, 4, 96)  # [batch, cached_len, n_kv_heads, head_dim]
            assert k.dtype == v.dtype == np.float32

    def test_arithmetic_of_100_tokens(self, chapter_model):
        cache = chapter_model(np.arange(100)[None], use_cache=True).past_key_values
        elements = sum(k.size + v.size for k, v in cache)
        assert elements == 8 * 2 * 1 * 100 * 4 * 96 == 614_400
        assert MiniMindConfig().cache_elements(length=100) == 614_400
        assert f"{2 * elements / 1e6:.1f} MB" == "1.2 MB"  # bf16: two bytes each

    def test_a_step_appends_to_the_cache(self, dense):
        first = dense([[5, 6, 7]], use_cache=True).past_key_values
        second = dense([[8]], past_key_values=first, use_cache=True).past_key_values
        for (old_k, old_v), (k, v) in zip(first, second):
            assert k.shape == (1, 4, 2, 12)
            assert np.array_equal(k[:, :3], old_k) and np.array_equal(v[:, :3], old_v)

    def test_use_cache_decides_whether_it_is_returned(self, dense):
        assert dense([[5, 6]]).past_key_values is None

    def test_work_of_step_100_with_and_without_cache(self, dense):
        """Scores a head of the step that sees 100 tokens: L² = 10,000 without a cache, L = 100 with one."""
        seen = {}
        for use_cache in (False, True):
            shapes = {}
            tap = lambda name, array, shapes=shapes: shapes.__setitem__(name, array.shape)  # noqa: E731
            list(dense.steps([[7] * 99], max_new_tokens=2, use_cache=use_cache, eos_token_id=None, tap=tap, rng=0))
            seen[use_cache] = shapes["round_1.model.layers.0.self_attn.scores"]
        assert seen == {False: (1, 4, 100, 100), True: (1, 4, 1, 100)}

    def test_erratum_the_speed_of_step_100_is_not_a_number(self, dense):
        """The chapter: "第 100 步相对速度 ~100x". 100 is the ratio of tokens fed; time depends on size and machine."""
        without = [s.fed_ids.size for s in dense.steps([[7]], max_new_tokens=100, use_cache=False, eos_token_id=None)]
        with_cache = [s.fed_ids.size for s in dense.steps([[7]], max_new_tokens=100, eos_token_id=None)]
        assert without[99] / with_cache[99] == 100

    def test_start_pos_the_new_token_stands_at_position_100(self, dense):
        past = dense([[7] * 100], use_cache=True).past_key_values
        seen = trace(dense, [[9]], past_key_values=past)
        angles = [100 * 1e6 ** (-2 * i / 12) for i in range(6)]
        np.testing.assert_allclose(seen["rope.cos"], [[math.cos(a) for a in angles * 2]], atol=1e-5)
        np.testing.assert_allclose(seen["rope.sin"], [[math.sin(a) for a in angles * 2]], atol=1e-5)


class Test_10_4_temperature:
    LOGITS = [2.0, 1.0, 0.5]
    TABLE = [  # temperature, scaled logits, true probabilities, the chapter's
        (0.5, [4.0, 2.0, 1.0], [0.8438, 0.1142, 0.0420], [0.86, 0.12, 0.07]),
        (1.0, [2.0, 1.0, 0.5], [0.6285, 0.2312, 0.1402], [0.59, 0.22, 0.13]),
        (2.0, [1.0, 0.5, 0.25], [0.4810, 0.2918, 0.2272], [0.42, 0.25, 0.20]),
    ]

    @pytest.mark.parametrize("temperature, scaled, true, printed", TABLE)
    def test_table_erratum_probabilities_sum_to_one(self, temperature, scaled, true, printed):
        """The chapter's probabilities sum to 1.05, 0.94 and 0.87."""
        ours = apply_temperature(self.LOGITS, temperature)
        assert ours.tolist() == scaled
        np.testing.assert_allclose(softmax(ours), exact_softmax(scaled), rtol=1e-15)
        assert softmax(ours).round(4).tolist() == true
        assert abs(sum(printed) - 1) > 0.04
        assert abs(softmax(ours) - printed).max() > 0.01

    def test_sharper_below_one_flatter_above(self):
        greatest = [softmax(apply_temperature(self.LOGITS, t)).max() for t in (0.25, 0.5, 0.85, 1, 2, 4)]
        assert greatest == sorted(greatest, reverse=True)

    def test_one_changes_nothing(self):
        assert apply_temperature(self.LOGITS, 1.0).tolist() == self.LOGITS

    def test_limit_0_is_greedy(self):
        """True of the formula; an erratum about upstream's code, which divides by zero at exactly 0."""
        assert softmax(apply_temperature(self.LOGITS, 0)).tolist() == [1, 0, 0]
        np.testing.assert_allclose(softmax(apply_temperature(self.LOGITS, 1e-3)), [1, 0, 0])

    def test_limit_infinity_is_uniform(self):
        assert softmax(apply_temperature(self.LOGITS, INF)).tolist() == [1 / 3] * 3
        np.testing.assert_allclose(softmax(apply_temperature(self.LOGITS, 1e9)), [1 / 3] * 3)

    def test_erratum_temperature_0_generates_what_greedy_does(self, dense):
        asked = dict(max_new_tokens=8, eos_token_id=None)
        by_argmax = dense.generate(PROMPTS, do_sample=False, **asked)
        assert np.array_equal(dense.generate(PROMPTS, temperature=0, **asked), by_argmax)
        for temperature in (0, 1e-3, 0.85, 7.0, 1e40, INF):
            assert np.array_equal(dense.generate(PROMPTS, do_sample=False, temperature=temperature, **asked), by_argmax)

    def test_table_of_shapes(self, walk):
        assert walk[0].logits.shape == walk[0].after_temperature.shape == (2, 6400)
        assert walk[0].logits.dtype == walk[0].after_temperature.dtype == np.float32
        assert np.array_equal(walk[0].after_temperature, walk[0].logits / np.float32(0.85))


class Test_10_5_top_k:
    LOGITS = [2.0, 5.0, 1.0, 4.0, 0.5, 3.0]

    def test_example(self):
        assert top_k_threshold(self.LOGITS, 3).tolist() == [3.0]
        mask = np.array(self.LOGITS) < top_k_threshold(self.LOGITS, 3)
        assert mask.tolist() == [True, False, True, False, True, False]
        assert apply_top_k(self.LOGITS, 3).tolist() == [-INF, 5, -INF, 4, -INF, 3]

    def test_what_is_cut_has_probability_0_and_the_rest_is_renormalised(self):
        probs = softmax(apply_top_k(self.LOGITS, 3))
        assert probs[[0, 2, 4]].tolist() == [0, 0, 0]
        np.testing.assert_allclose(probs[[1, 3, 5]], exact_softmax([5, 4, 3]), rtol=1e-15)

    def test_table_of_shapes(self, walk):
        threshold = top_k_threshold(walk[0].after_repetition_penalty, 50)
        assert threshold.shape == (2, 1)
        assert walk[0].after_top_k.shape == (2, 6400)
        assert walk[0].after_top_k.dtype == np.float32
        assert np.isfinite(walk[0].after_top_k).sum(axis=1).tolist() == [50, 50]

    def test_0_is_off(self):
        assert apply_top_k(self.LOGITS, 0).tolist() == self.LOGITS

    def test_erratum_ties_of_the_kth_all_stay(self):
        """The chapter: "只保留概率最高的 K 个"; its code keeps every logit that equals the threshold."""
        assert np.isfinite(apply_top_k([1.0, 2.0, 2.0, 2.0], 2)).sum() == 3


class Test_10_6_top_p:
    PROBS = [0.5, 0.3, 0.15, 0.04, 0.01]

    def test_example_the_mask_shift(self):
        steps = top_p_mask(np.log(self.PROBS), 0.85)
        np.testing.assert_allclose(steps.cumulative, [0.5, 0.8, 0.95, 0.99, 1.0], rtol=1e-15)
        assert steps.exceeds.tolist() == [False, False, True, True, True]
        assert steps.shifted.tolist() == [False, False, False, True, True]
        kept = np.isfinite(apply_top_p(np.log(self.PROBS), 0.85))
        assert kept.tolist() == [True, True, True, False, False]
        assert sum(np.array(self.PROBS)[kept]) == pytest.approx(0.95)
        assert sum(self.PROBS[:2]) < 0.85  # without the shift the nucleus would not reach p

    @pytest.mark.parametrize("order", [[4, 3, 2, 1, 0], [2, 0, 4, 1, 3]])
    def test_step_4_the_mask_goes_back_to_the_original_order(self, order):
        shuffled = np.log(self.PROBS)[order]
        steps = top_p_mask(shuffled, 0.85)
        assert shuffled[steps.sorted_indices].tolist() == steps.sorted_logits.tolist() == np.log(self.PROBS).tolist()
        assert steps.mask.tolist() == [place >= 3 for place in order]
        assert (apply_top_p(shuffled, 0.85) == -INF).tolist() == steps.mask.tolist()

    def test_table_of_shapes(self, walk):
        steps = top_p_mask(walk[0].after_top_k, 0.85)
        assert all(array.shape == (2, 6400) for array in steps)
        assert steps.sorted_logits.dtype == steps.cumulative.dtype == np.float32
        assert steps.sorted_indices.dtype == np.int64
        assert steps.exceeds.dtype == steps.shifted.dtype == steps.mask.dtype == bool
        assert walk[0].after_top_p.shape == (2, 6400) and walk[0].after_top_p.dtype == np.float32

    def test_the_first_is_never_masked(self):
        assert np.isfinite(apply_top_p([3.0, 1.0, 2.0], 0)).tolist() == [True, False, False]

    def test_1_is_off(self):
        assert apply_top_p([3.0, 1.0, -50.0], 1.0).tolist() == [3.0, 1.0, -50.0]

    def test_few_candidates_where_sharp_many_where_flat(self):
        sharp, flat = [10.0, 1, 1, 1, 1], [1.2, 1, 1, 1, 1]
        assert np.isfinite(apply_top_p(sharp, 0.85)).sum() == 1
        assert np.isfinite(apply_top_p(flat, 0.85)).sum() == 5

    def test_it_works_on_what_top_k_left(self):
        """[.4 .3 .2 .1] after top-k 2 is [.571 .429]: the first alone reaches .5."""
        kept = apply_top_p(apply_top_k(np.log([0.4, 0.3, 0.2, 0.1]), 2), 0.5)
        assert np.isfinite(kept).tolist() == [True, False, False, False]
        assert np.isfinite(apply_top_p(np.log([0.4, 0.3, 0.2, 0.1]), 0.5)).sum() == 2

    def test_erratum_an_exact_hit_keeps_one_more(self):
        """The chapter: "累计概率达到 P 的最小 token 集合". The code keeps the next one too: .5 + .25 is not > .75."""
        logits = np.log2([0.5, 0.25, 0.125, 0.125]) * math.log(2)
        steps = top_p_mask(logits, 0.75)
        assert steps.cumulative[1] == 0.75
        assert np.isfinite(apply_top_p(logits, 0.75)).sum() == 3  # the smallest set has 2


class Test_10_7_repetition_penalty:
    @pytest.mark.parametrize("score, result", [(2.0, 2.0 / 1.1), (-2.0, -2.0 * 1.1)])
    def test_table(self, score, result):
        ours = apply_repetition_penalty([score, 0.0], [0], 1.1)
        assert ours.tolist() == [result, 0.0]
        assert ours[0].round(3) == {2.0: 1.818, -2.0: -2.2}[score]
        assert softmax(ours)[0] < softmax([score, 0.0])[0]

    def test_dividing_a_negative_logit_would_raise_it(self):
        assert round(-2.0 / 1.1, 3) == -1.818
        assert softmax([-2.0 / 1.1, 0.0])[0] > softmax([-2.0, 0.0])[0]
        assert softmax(apply_repetition_penalty([-2.0, 0.0], [0], 1.1))[0] < softmax([-2.0, 0.0])[0]

    def test_seen_ids_count_once(self):
        once = apply_repetition_penalty([2.0, -2.0, 1.0], [0, 1], 1.5)
        assert apply_repetition_penalty([2.0, -2.0, 1.0], [0, 0, 1, 0], 1.5).tolist() == once.tolist()
        assert once.round(3).tolist() == [1.333, -3.0, 1.0]

    def test_table_of_shapes(self, dense):
        step = list(dense.steps([[7, 5, 7, 7], [9, 9, 9, 9]], max_new_tokens=1, repetition_penalty=1.1, rng=0))[0]
        assert [seen.tolist() for seen in step.seen] == [[5, 7], [9]]  # [num_unique] of each row
        assert step.seen[0].dtype == step.input_ids.dtype == np.int64
        assert step.after_repetition_penalty.shape == (2, 60)
        assert step.after_repetition_penalty.dtype == np.float32
        changed = step.after_repetition_penalty != step.after_temperature
        assert [np.flatnonzero(row).tolist() for row in changed] == [[5, 7], [9]]

    def test_1_changes_nothing(self):
        assert apply_repetition_penalty([2.0, -2.0], [0, 1], 1.0).tolist() == [2.0, -2.0]

    def test_erratum_a_probability_can_rise(self):
        """The chapter: "惩罚后该 token 的相对概率都下降". Of two penalised tokens one can gain."""
        before, after = softmax([2.0, 1.0]), softmax(apply_repetition_penalty([2.0, 1.0], [0, 1], 2.0))
        assert (before[1].round(3), after[1].round(3)) == (0.269, 0.378)

    def test_erratum_a_logit_of_0_does_not_move(self):
        assert apply_repetition_penalty([0.0, 1.0], [0], 2.0).tolist() == [0.0, 1.0]


class Test_10_8_sampling_and_greedy:
    def test_table_of_shapes(self, walk):
        assert walk[0].after_top_p.shape == walk[0].probs.shape == (2, 6400)
        assert walk[0].probs.dtype == np.float32
        assert walk[0].next_token.shape == (2, 1) and walk[0].next_token.dtype == np.int64

    def test_probs_are_a_distribution_and_what_was_cut_has_none(self, walk):
        for step in walk:
            np.testing.assert_allclose(step.probs.sum(axis=1), 1, atol=1e-6)
            assert (step.probs[step.after_top_p == -INF] == 0).all()
            assert np.take_along_axis(step.probs, step.next_token, axis=1).min() > 0

    def test_sampling_draws_by_probability(self):
        """100,000 evenly spread uniforms: the share of each token is its probability."""
        u = (np.arange(100_000) + 0.5) / 100_000
        drawn = multinomial(np.broadcast_to([0.15, 0.5, 0.0, 0.35], (100_000, 4)), u)
        np.testing.assert_allclose(np.bincount(drawn, minlength=4) / 100_000, [0.15, 0.5, 0, 0.35], atol=1e-5)

    def test_sampling_varies_and_greedy_does_not(self, dense):
        asked = dict(max_new_tokens=10, eos_token_id=None)
        sampled = {dense.generate(PROMPTS, temperature=2.0, **asked).tobytes() for _ in range(5)}
        assert len(sampled) > 1
        assert len({dense.generate(PROMPTS, do_sample=False, **asked).tobytes() for _ in range(3)}) == 1

    def test_greedy_takes_the_greatest(self, dense):
        for step in dense.steps(PROMPTS, max_new_tokens=5, do_sample=False, eos_token_id=None):
            assert step.next_token[:, 0].tolist() == [row.tolist().index(max(row)) for row in step.logits]
        assert int(greedy([1.0, 3.0, 2.0])) == 1


class Test_10_9_eos:
    A, B, C, D, E, F, G, H, I = range(10, 19)  # noqa: E741
    EOS = 2
    CHOSEN = [[A, B, C], [EOS, D, E], [30, F, G], [31, EOS, H], [32, 33, I], [34, 35, EOS], [36, 37, 38]]
    TABLE = [
        ([A, B, C], [False, False, False]),
        ([EOS, D, E], [True, False, False]),
        ([EOS, F, G], [True, False, False]),
        ([EOS, EOS, H], [True, True, False]),
        ([EOS, EOS, I], [True, True, False]),
        ([EOS, EOS, EOS], [True, True, True]),
    ]

    @pytest.fixture
    def steps(self, dense):
        return spoken(dense, self.CHOSEN, input_ids=[[3, 4]] * 3)

    def test_the_table_of_2_4_and_6_steps(self, steps):
        assert [(s.next_token[:, 0].tolist(), s.finished.tolist()) for s in steps] == self.TABLE

    def test_it_breaks_when_all_have_finished(self, steps):
        assert len(steps) == 6 < len(self.CHOSEN)

    def test_all_rows_are_equally_long_and_can_be_cut_at_the_first_eos(self, steps):
        new = steps[-1].input_ids[:, 2:]
        assert new.shape == (3, 6)
        cut = [row[: row.index(self.EOS) + 1] for row in new.tolist()]
        assert cut == [[self.A, 2], [self.B, self.D, self.F, 2], [self.C, self.E, self.G, self.H, self.I, 2]]

    def test_table_of_shapes(self, steps):
        assert steps[0].finished.shape == (3,) and steps[0].finished.dtype == bool
        assert steps[0].next_token.shape == (3, 1) and steps[0].next_token.dtype == np.int64

    def test_without_eos_id_nothing_is_replaced(self, dense):
        steps = spoken(dense, self.CHOSEN, input_ids=[[3, 4]] * 3, eos_token_id=None)
        assert [s.next_token[:, 0].tolist() for s in steps] == self.CHOSEN
        assert not steps[-1].finished.any()


class Test_10_10_the_whole:
    def test_table_shapes_of_input_ids(self, walk):
        assert [step.input_ids.shape for step in walk] == [(2, length) for length in range(11, 31)]

    def test_table_erratum_the_cache_is_one_shorter_than_the_ids(self, walk):
        """The chapter has [2, 11, 4, 96] after sampling in round 0 and [2, 30, 4, 96] in round 19.

        Sampling appends an id, not a cache entry: 10 after round 0, 29 at the end.
        """
        lengths = [{array.shape for layer in step.past_key_values for array in layer} for step in walk]
        assert lengths == [{(2, length, 4, 96)} for length in range(10, 30)]

    def test_start_and_end(self, chapter_model, walk):
        loop = chapter_model.steps(PROMPTS, max_new_tokens=20)
        assert loop.input_ids.shape == (2, 10) and loop.past_key_values is None
        assert loop.finished.tolist() == [False, False]
        result = chapter_model.generate(PROMPTS, max_new_tokens=20, eos_token_id=None, rng=0)
        assert result.shape == (2, 30) and np.array_equal(result, walk[-1].input_ids)

    def test_diagram_order_of_the_stages(self, dense):
        seen = Trace()
        asked = dict(max_new_tokens=1, repetition_penalty=1.3, rng=0)
        dense.generate(PROMPTS, tap=seen.keep, **asked)
        order = [name.removeprefix("round_0.sample.") for name in seen if ".sample." in name]
        stages = ["logits", "after_temperature", "after_repetition_penalty", "after_top_k", "after_top_p", "probs"]
        assert order == [*stages, "u", "next_token", "finished"]

    @pytest.mark.parametrize("how", [{"rng": 0}, {"do_sample": False}])
    def test_each_stage_works_on_the_one_before(self, dense, how):
        """The chapter's code, written out for one row in plain Python, against the arrays of each step.

        They are looked at when the loop is over, which a greedy step has to bear: it computes them then.
        """
        asked = dict(max_new_tokens=6, temperature=0.7, repetition_penalty=1.4, top_k=8, top_p=0.6, eos_token_id=None)
        for step in list(dense.astype(np.float64).steps(PROMPTS, **asked, **how)):
            for row in range(2):
                want = stages_of_one_row(step.logits[row].tolist(), step.input_ids[row, :-1].tolist(), 0.7, 1.4, 8, 0.6)
                ours = (step.after_temperature, step.after_repetition_penalty, step.after_top_k, step.after_top_p)
                for array, expected in zip((*ours, step.probs), want):
                    np.testing.assert_allclose(array[row], expected, rtol=1e-12, atol=0)

    def test_the_order_matters(self):
        """Temperature last, as in llama.cpp, keeps two candidates where MiniMind keeps one."""
        first = apply_top_p(apply_temperature([3.0, 2.0, 1.0], 0.5), 0.8)
        last = apply_temperature(apply_top_p([3.0, 2.0, 1.0], 0.8), 0.5)
        assert np.isfinite(first).tolist() == [True, False, False]
        assert np.isfinite(last).tolist() == [True, True, False]


def stages_of_one_row(logits, ids, temperature, penalty, k, p):
    """10.4, 10.7, 10.5, 10.6, 10.8 for one row, in the order of the diagram."""
    scaled = [x / temperature for x in logits]
    penalised = [(x / penalty if x > 0 else x * penalty) if i in ids else x for i, x in enumerate(scaled)]
    threshold = sorted(penalised, reverse=True)[k - 1]
    candidates = [x if x >= threshold else -INF for x in penalised]
    by_size = sorted(range(len(logits)), key=lambda i: -candidates[i])
    sorted_probs = exact_softmax([candidates[i] for i in by_size])
    nucleus, total = list(candidates), 0.0
    for i, prob in zip(by_size, sorted_probs):
        if total > p:
            nucleus[i] = -INF
        total += prob
    return scaled, penalised, candidates, nucleus, exact_softmax(nucleus)
