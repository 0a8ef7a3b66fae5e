"""Where randomness comes from: every form of ``rng``, reproducibly, and torch's stream against recorded tokens."""

import numpy as np
import pytest
from conftest import refusal
from hypothesis import given
from hypothesis import strategies as st

from npminimind import TorchGenerator
from npminimind.rng import Uniforms

PROMPT = [[3, 4], [5, 6]]
ASKED = dict(max_new_tokens=6, eos_token_id=None, temperature=1.5)


def test_torch_tokens_written_down_once():
    """From torch 2.13: ``torch.manual_seed(0); torch.multinomial(torch.tensor([[.1, .2, .3, .4]]), 1)``, four times."""
    generator = TorchGenerator(0)
    probs = np.float32([[0.1, 0.2, 0.3, 0.4]])
    assert [int(generator.multinomial(probs)[0]) for _ in range(4)] == [2, 2, 3, 3]


@given(st.integers(-(2**70), 2**70))
def test_torch_seeds_count_modulo_2_to_32(seed):
    assert np.array_equal(TorchGenerator(seed).exponential((3,)), TorchGenerator(seed % 2**32).exponential((3,)))


def test_exponentials_are_distributed_as_they_should():
    """Of 200,000: mean and variance 1 (standard errors .0022 and .0063), median ln 2."""
    e = TorchGenerator(1).exponential((200_000,))
    assert abs(e.mean() - 1) < 0.01 and abs(e.var() - 1) < 0.03
    assert abs(np.median(e) - np.log(2)) < 0.01


@given(st.integers(0, 2**32 - 1), st.lists(st.sampled_from([0.0, 0.1, 1.0]), min_size=1, max_size=9).filter(any))
def test_torch_never_draws_a_probability_of_0(seed, probs):
    assert probs[int(TorchGenerator(seed).multinomial(probs))] > 0


def test_masked_ids_use_up_randomness():
    one, other = TorchGenerator(5), TorchGenerator(5)
    one.multinomial([0.5, 0.5, 0.0, 0.0])
    other.multinomial([0.5, 0.5])
    assert not np.array_equal(one.exponential((4,)), other.exponential((4,)))


@pytest.mark.parametrize("probs", [[0.0, 0.0], [-0.1, 1.1], [np.nan, 1.0], [np.inf, 1.0], []])
def test_torch_refuses_impossible_probabilities(probs):
    refusal(lambda: TorchGenerator(0).multinomial(probs))


@pytest.mark.parametrize("seed", [1.0, "1", None, True, [1]])
def test_torch_seed_must_be_an_int(seed):
    refusal(lambda: TorchGenerator(seed), "seed must be an int", error=TypeError)


def test_a_seed_is_pcg64(dense):
    by_seed = dense.generate(PROMPT, rng=7, **ASKED)
    u = np.random.Generator(np.random.PCG64(7)).random(12)
    assert np.array_equal(dense.generate(PROMPT, rng=u, **ASKED), by_seed)
    assert np.array_equal(dense.generate(PROMPT, rng=np.random.Generator(np.random.PCG64(7)), **ASKED), by_seed)
    assert np.array_equal(dense.generate(PROMPT, rng=np.int64(7), **ASKED), by_seed)


def test_steps_tell_which_uniforms_they_used(dense):
    u = np.random.default_rng(0).random(12)
    steps = list(dense.steps(PROMPT, rng=u.tolist(), **ASKED))
    assert np.concatenate([step.u for step in steps]).tolist() == u.tolist()
    assert all(step.u.dtype == np.float64 for step in steps)


@pytest.mark.parametrize(
    "form", [list, tuple, iter, np.array, lambda u: np.reshape(u, (6, 2)), lambda u: (x for x in u)]
)
def test_iterables_of_uniforms(dense, form):
    u = np.random.default_rng(0).random(12).tolist()
    assert np.array_equal(dense.generate(PROMPT, rng=form(u), **ASKED), dense.generate(PROMPT, rng=list(u), **ASKED))


def test_a_generator_goes_on_where_it_was(dense):
    rng, torch = np.random.default_rng(0), TorchGenerator(0)
    for source in (rng, torch):
        runs = [dense.generate(PROMPT, rng=source, **ASKED).tolist() for _ in range(2)]
        assert runs[0] != runs[1]


def test_finished_rows_consume_theirs_too(dense):
    """Row 0 ends at once; row 1 draws the 2nd, 4th, 6th number all the same."""
    u = np.random.default_rng(3).random(12)
    open_end = list(dense.steps(PROMPT, rng=u, **ASKED))
    eos = int(open_end[0].next_token[0, 0])
    steps = list(dense.steps(PROMPT, rng=u, **ASKED | {"eos_token_id": eos}))
    assert steps[0].finished[0]
    for step, other in zip(steps, open_end):
        assert step.u.tolist() == other.u.tolist()
        assert step.next_token[1] == other.next_token[1]


@pytest.mark.parametrize("greedy", [{"do_sample": False}, {"temperature": 0}, {"temperature": 0.0, "do_sample": True}])
def test_greedy_consumes_nothing(dense, greedy):
    rng, untouched = np.random.default_rng(0), np.random.default_rng(0)
    steps = list(dense.steps(PROMPT, rng=rng, **ASKED | greedy))
    assert [step.u for step in steps] == [None] * 6
    assert rng.random() == untouched.random()
    assert dense.generate(PROMPT, rng=[], **ASKED | greedy).shape == (2, 8)


def test_u_is_none_with_torch(dense):
    assert [step.u for step in dense.steps(PROMPT, rng=TorchGenerator(0), **ASKED)] == [None] * 6


def test_none_is_unpredictable(dense):
    assert len({dense.generate(PROMPT, temperature=5.0, max_new_tokens=9).tobytes() for _ in range(4)}) > 1


def test_uniforms_that_run_out(dense):
    refusal(lambda: dense.generate(PROMPT, rng=[0.5] * 11, **ASKED), "run out", "2, one a row")


@pytest.mark.parametrize("u", [1.0, -0.1, np.nan, np.inf])
def test_uniforms_out_of_range(dense, u):
    refusal(lambda: dense.generate(PROMPT, rng=[0.5, u], **ASKED), "[0, 1)")


@pytest.mark.parametrize("rng", ["seed", b"1", 1.5, True, {}, np.random.RandomState(0), np.random, object()])
def test_what_is_no_source_of_randomness(dense, rng):
    refusal(lambda: dense.generate(PROMPT, rng=rng, **ASKED), "rng must be", error=TypeError)


def test_nested_lists_are_refused(dense):
    refusal(lambda: dense.generate(PROMPT, rng=[[0.1, 0.2], [0.3, 0.4]], **ASKED), "flat", error=TypeError)


def test_a_negative_seed_is_refused(dense):
    refusal(lambda: dense.generate(PROMPT, rng=-1, **ASKED))


def test_uniforms_are_float64_below_1():
    u = Uniforms(0).take(1000)
    assert u.dtype == np.float64 and (u >= 0).all() and (u < 1).all()


@pytest.mark.parametrize("wrong", [1.0, -1e-300, float("nan")])
def test_given_uniforms_are_refused_where_they_are_handed_out(wrong):
    """A swapped multinomial need not check them again."""
    refusal(lambda: Uniforms([0.5, wrong]).take(2), "[0, 1)")
