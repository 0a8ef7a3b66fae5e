"""Caches that are forked, sliced, kept and interleaved stay what a fresh run gives (in float64, to 1e-11)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npminimind.cache import KVCache

SAME = dict(rtol=0, atol=1e-11)


def assert_fresh(model, ids, past):
    """``past`` is what one forward pass over ``ids`` gives."""
    for pair, fresh in zip(past, model(ids, use_cache=True).past_key_values):
        for array, want in zip(pair, fresh):
            assert array.shape == want.shape
            np.testing.assert_allclose(array, want, **SAME)


@given(st.lists(st.tuples(st.integers(0, 99), st.lists(st.integers(0, 59), min_size=1, max_size=3)), max_size=8))
def test_branches_of_a_tree_of_caches(model64, extensions):
    """Go on from any cache ever returned, in any order; then compare all with fresh runs."""
    ids = [[5, 6, 7]]
    tree = [(ids, model64(ids, use_cache=True).past_key_values)]
    for parent, new in extensions:
        ids, past = tree[parent % len(tree)]
        longer = model64([new], past_key_values=past, use_cache=True).past_key_values
        tree.append(([ids[0] + new], longer))
    for ids, past in tree:
        assert_fresh(model64, ids, past)


@given(st.integers(1, 9), st.lists(st.integers(0, 59), min_size=1, max_size=4))
def test_a_sliced_cache_goes_on_from_there(model64, keep, new):
    ids = np.random.default_rng(0).integers(0, 60, (2, 10))
    past = model64(ids, use_cache=True).past_key_values
    cut = [(k[:, :keep], v[:, :keep]) for k, v in past]
    out = model64([new, new], past_key_values=cut, use_cache=True)
    assert_fresh(model64, np.concatenate([ids[:, :keep], [new, new]], axis=1), out.past_key_values)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=5))
def test_rows_of_a_cache_can_be_picked(model64, rows):
    """Beam search: the same row several times, others not at all."""
    ids = np.random.default_rng(0).integers(0, 60, (3, 5))
    past = [(k[rows], v[rows]) for k, v in model64(ids, use_cache=True).past_key_values]
    out = model64([[9]] * len(rows), past_key_values=past, use_cache=True)
    assert_fresh(model64, np.concatenate([ids[rows], [[9]] * len(rows)], axis=1), out.past_key_values)


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_two_generations_taking_turns(model64, turns):
    prompts = ([[5, 6, 7]], [[8, 9]])
    loops = [model64.steps(p, do_sample=False, eos_token_id=None, max_new_tokens=20) for p in prompts]
    for turn in turns:
        next(loops[turn])
    for prompt, loop in zip(prompts, loops):
        rounds = loop.input_ids.shape[1] - len(prompt[0])
        alone = model64.generate(prompt, do_sample=False, eos_token_id=None, max_new_tokens=rounds)
        assert np.array_equal(loop.input_ids, alone)


def test_kept_caches_of_a_generation_are_never_written_again(model64):
    """Over 300 tokens, so that the buffer behind them grows at least once; and they are one shorter than the ids."""
    steps = list(model64.astype(np.float64).steps([[5]], max_new_tokens=255, eos_token_id=None, rng=0))
    for step in steps[::50] + steps[-1:]:
        assert step.past_key_values[0][0].shape[1] == step.input_ids.shape[1] - 1
        assert_fresh(model64, step.input_ids[:, :-1], step.past_key_values)


@pytest.mark.parametrize("cut", range(0, 12, 3))
def test_going_on_from_any_step_is_one_run(model64, cut):
    asked = dict(do_sample=False, eos_token_id=None)
    steps = list(model64.steps([[5, 6], [7, 8]], max_new_tokens=12, **asked))
    step = steps[cut]
    rest = model64.generate(step.input_ids, past_key_values=step.past_key_values, max_new_tokens=11 - cut, **asked)
    assert np.array_equal(rest, steps[-1].input_ids)


def test_what_forward_returns_is_fresh_and_ones_own(dense):
    first = dense([[5, 6]], use_cache=True).past_key_values
    second = dense([[7]], past_key_values=first, use_cache=True).past_key_values
    want = [k.copy() for k, _ in second]
    for k, v in first:
        k[...] = v[...] = np.nan  # writable, and shared with nothing
    assert all(np.array_equal(k, w) for (k, _), w in zip(second, want))


def test_views_of_a_generation_are_read_only(dense):
    result = dense.generate([[5, 6]], max_new_tokens=3, return_kv=True, eos_token_id=None, rng=0)
    step = next(dense.steps([[5, 6]], rng=0))
    for past in (result["past_kv"], step.past_key_values):
        with pytest.raises(ValueError, match="read-only"):
            past[0][0][0] = 0


def test_continuing_a_generation_does_not_touch_its_cache(dense):
    result = dense.generate([[5, 6]], max_new_tokens=3, return_kv=True, eos_token_id=None, rng=0)
    before = [(k.copy(), v.copy()) for k, v in result["past_kv"]]
    for seed in range(3):
        dense.generate(
            result["generated_ids"], past_key_values=result["past_kv"], max_new_tokens=5, rng=seed, eos_token_id=None
        )
    assert all(np.array_equal(a, b) for pair, kept in zip(result["past_kv"], before) for a, b in zip(pair, kept))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.integers(0, 4))
def test_the_growing_buffer_is_a_concatenation(dense, pieces, capacity):
    rng, arrays = np.random.default_rng(0), []
    cache = KVCache(dense.config, 2, capacity, np.float64)
    handed_out = []
    for length in pieces:
        arrays.append(rng.standard_normal((2, 2, length, 2, 12)))
        for layer in range(2):
            k, v = cache.append(layer, *arrays[-1])
            assert k.shape == v.shape == (2, sum(a.shape[2] for a in arrays), 2, 12)
        cache.advance(length)
        handed_out.append(cache.past_key_values())
    for i, past in enumerate(handed_out):
        for k, v in past:
            assert np.array_equal([k, v], np.concatenate(arrays[: i + 1], axis=2))
