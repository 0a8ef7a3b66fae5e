"""The forward pass: laws that hold for any weights (in float64, to 1e-11), and what float32 adds to them."""

import platform
import subprocess
import sys

import numpy as np
import pytest
from conftest import EXPERTS, SMALL, peaked, refusal
from hypothesis import given
from hypothesis import strategies as st

from npminimind import MiniMindConfig, MiniMindForCausalLM
from npminimind.params import Weights, param_shapes

model_module = sys.modules["npminimind.model"]
attention_module = sys.modules["npminimind.attention"]
SAME = dict(rtol=0, atol=1e-11)

seeds = st.integers(0, 2**32)


def ids_of(seed, batch, length, vocab=60):
    return np.random.default_rng(seed).integers(0, vocab, (batch, length))


def through_the_cache(model, ids, ends, mask=None):
    """Logits and cache of the same ids, fed in pieces."""
    past, logits, start = None, [], 0
    for end in [*ends, ids.shape[1]]:
        part_mask = None if mask is None else mask[:, :end]
        out = model(ids[:, start:end], part_mask, past, use_cache=True)
        past, start = out.past_key_values, end
        logits.append(out.logits)
    return np.concatenate(logits, axis=1), past


@given(seeds, st.integers(1, 3), st.sets(st.integers(1, 11), max_size=6))
def test_any_split_through_the_cache_is_one_pass(model64, seed, batch, ends):
    ids = ids_of(seed, batch, 12)
    whole = model64(ids, use_cache=True)
    logits, past = through_the_cache(model64, ids, sorted(ends))
    np.testing.assert_allclose(logits, whole.logits, **SAME)
    for pair, other in zip(past, whole.past_key_values):
        np.testing.assert_allclose(pair, other, **SAME)


@given(seeds, st.lists(st.integers(1, 9), min_size=1, max_size=4), st.sets(st.integers(1, 8), max_size=3))
def test_left_pads_change_nothing(model64, seed, lengths, ends):
    """A padded batch, fed in pieces or at once, gives each row what it gets alone and unpadded."""
    longest = max(lengths)
    rows = [ids_of(seed + i, 1, n) for i, n in enumerate(lengths)]
    ids = np.concatenate([np.pad(row, ((0, 0), (longest - row.shape[1], 0))) for row in rows])
    mask = np.array([[0] * (longest - n) + [1] * n for n in lengths])
    first_real = longest - min(lengths)  # a piece of pads only would be a row without tokens
    ends = [end for end in sorted(ends) if first_real < end < longest]
    logits, _ = through_the_cache(model64, ids, ends, mask)
    for i, row in enumerate(rows):
        np.testing.assert_allclose(logits[i, longest - lengths[i] :], model64(row).logits[0], **SAME)


@given(seeds, st.permutations(range(4)))
def test_rows_of_a_batch_do_not_see_each_other(model64, seed, order):
    ids = ids_of(seed, 4, 7)
    together = model64(ids).logits
    np.testing.assert_allclose(model64(ids[order]).logits, together[order], **SAME)
    np.testing.assert_allclose(model64(ids[:1]).logits, together[:1], **SAME)


@given(seeds, st.integers(0, 10))
def test_the_future_has_no_influence(model64, seed, i):
    ids, other = ids_of(seed, 1, 12), ids_of(seed + 1, 1, 12)
    changed = np.concatenate([ids[:, : i + 1], other[:, i + 1 :]], axis=1)
    np.testing.assert_allclose(model64(changed).logits[:, : i + 1], model64(ids).logits[:, : i + 1], **SAME)


@given(seeds, st.integers(1, 40), st.integers(1, 8))
def test_chunked_prefill_and_blocked_attention_are_one_pass(model64, seed, chunk_rows, block_rows):
    ids, mask = ids_of(seed, 2, 13), np.array([[0] * 4 + [1] * 9, [1] * 13])
    past = model64(ids[:, :4], use_cache=True).past_key_values
    whole = [model64(ids, mask).logits, model64(ids[:, 4:], None, past).logits]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_module, "CHUNK_ROWS", chunk_rows)
        patch.setattr(attention_module, "BLOCK_ROWS", block_rows)
        pieces = [model64(ids, mask).logits, model64(ids[:, 4:], None, past).logits]
    for piece, one_pass in zip(pieces, whole):
        np.testing.assert_allclose(piece[:, -9:], one_pass[:, -9:], **SAME)


def test_a_prompt_longer_than_a_chunk_is_one_pass():
    """At the real size of a chunk: a tap forces one pass."""
    model = peaked(MiniMindConfig(**SMALL | {"max_position_embeddings": 2048}), dtype=np.float64)
    ids = ids_of(0, 1, model_module.CHUNK_ROWS + 100)
    np.testing.assert_allclose(model(ids).logits, model(ids, tap=lambda name, array: None).logits, **SAME)


@pytest.mark.parametrize("name", ["dense", "experts"])
def test_float32_is_float64_up_to_its_rounding(request, name):
    """The greatest difference measured over these inputs was 9.3e-6, in logits of up to 18."""
    model = request.getfixturevalue(name)
    wide = model.astype(np.float64)
    differences = []
    for seed in range(20):
        out = model(ids_of(seed, 2, 30))
        assert out.logits.dtype == out.hidden_states.dtype == np.float32
        differences.append(abs(out.logits - wide(ids_of(seed, 2, 30)).logits).max())
    assert max(differences) < FLOOR


FLOOR = 2e-5


def test_hidden_states_times_the_head_are_the_logits(model64):
    out = model64([[5, 6, 7]])
    head = model64.params["model.embed_tokens.weight"]  # tied
    np.testing.assert_allclose(out.logits, np.einsum("bsh,vh->bsv", out.hidden_states, head), **SAME)


@pytest.mark.parametrize("keep, positions", [(0, [0, 1, 2, 3]), (1, [3]), (2, [2, 3]), (4, [0, 1, 2, 3])])
@pytest.mark.parametrize("tap", [None, lambda name, array: None], ids=["plain", "tapped"])
def test_logits_to_keep(dense64, keep, positions, tap):
    whole = dense64([[5, 6, 7, 8]]).logits
    np.testing.assert_allclose(
        dense64([[5, 6, 7, 8]], logits_to_keep=keep, tap=tap).logits, whole[:, positions], **SAME
    )


def test_logits_to_keep_more_than_there_are_or_by_position(dense64):
    whole = dense64([[5, 6, 7, 8]]).logits
    np.testing.assert_allclose(dense64([[5, 6, 7, 8]], logits_to_keep=99).logits, whole, **SAME)
    for positions in ([0, 2], np.array([3, 0]), [-1]):
        out = dense64([[5, 6, 7, 8]], logits_to_keep=positions)
        np.testing.assert_allclose(out.logits, whole[:, positions], **SAME)
        assert out.hidden_states.shape[1] == 4


@pytest.mark.parametrize("keep", [-1, [4], [-5]])
def test_logits_to_keep_that_are_not_there(dense, keep):
    refusal(lambda: dense([[5, 6, 7, 8]], logits_to_keep=keep), "logits_to_keep")


@pytest.mark.parametrize("keep", [[], [True, False, True, True], 1.0, "1", True, np.True_, None, [1.0]])
def test_logits_to_keep_of_a_wrong_type(dense, keep):
    refusal(lambda: dense([[5, 6, 7, 8]], logits_to_keep=keep), "logits_to_keep", error=TypeError)


def test_forward_and_call_are_the_same(dense):
    assert np.array_equal(dense.forward([[5, 6]]).logits, dense([[5, 6]]).logits)


def test_an_untied_head_that_equals_the_embedding_is_a_tied_one(dense):
    config = MiniMindConfig(**SMALL, tie_word_embeddings=False)
    params = dense.params | {"lm_head.weight": dense.params["model.embed_tokens.weight"]}
    assert np.array_equal(MiniMindForCausalLM(config, params)([[5, 6, 7]]).logits, dense([[5, 6, 7]]).logits)


def test_a_shared_expert_sees_every_token():
    """MiniMind2's MoE: with a shared expert whose down_proj is 0 nothing changes; with one that is not, much."""
    config = MiniMindConfig(**SMALL, **EXPERTS, n_shared_experts=1)
    model = peaked(config)
    without = peaked(MiniMindConfig(**SMALL, **EXPERTS))
    for name, array in without.params.items():
        array[...] = model.params[name]
    assert abs(model([[5, 6]]).logits - without([[5, 6]]).logits).max() > 0.1
    for i in range(2):
        model.params[f"model.layers.{i}.mlp.shared_experts.0.down_proj.weight"][...] = 0
    np.testing.assert_allclose(model([[5, 6]]).logits, without([[5, 6]]).logits, atol=1e-6)


def test_norms_of_heads_are_there_only_with_qk_norm():
    config = MiniMindConfig(**SMALL, qk_norm=False)
    assert not [name for name in param_shapes(config) if "q_norm" in name or "k_norm" in name]
    assert peaked(config)([[5, 6]]).logits.shape == (1, 2, 60)


class TestParams:
    def test_changing_an_array_in_place_changes_the_model(self):
        for name in param_shapes(MiniMindConfig(**SMALL)):
            model = peaked(MiniMindConfig(**SMALL))
            before = model([[5, 6, 7]]).logits
            model.params[name][...] = model.params[name] * 1.5 + 0.1
            assert not np.array_equal(model([[5, 6, 7]]).logits, before), name

    def test_given_arrays_are_copied(self, dense):
        params = {name: array.copy() for name, array in dense.params.items()}
        model = MiniMindForCausalLM(dense.config, params)
        for array in params.values():
            array[...] = np.nan
        assert np.array_equal(model([[5, 6]]).logits, dense([[5, 6]]).logits)

    @pytest.mark.parametrize(
        "given_dtype, asked, want",
        [("f4", None, "f4"), ("f8", None, "f8"), ("f2", None, "f4"), ("f4", "f8", "f8"), ("f8", np.float32, "f4")],
    )
    def test_dtype(self, dense, given_dtype, asked, want):
        params = {name: array.astype(given_dtype) for name, array in dense.params.items()}
        model = MiniMindForCausalLM(dense.config, params, dtype=asked)
        assert model.dtype == model([[5]]).logits.dtype == np.dtype(want)

    @pytest.mark.parametrize("dtype", [np.float16, int, complex])
    def test_it_computes_in_float32_or_float64(self, dense, dtype):
        refusal(lambda: dense.astype(dtype), "float32 or float64", error=TypeError)
        refusal(lambda: Weights(dense.config, dtype), "float32 or float64", error=TypeError)

    def test_missing_and_unknown_names(self, dense):
        params = dict(dense.params)
        params["model.layers.7.strange"] = params.pop("model.norm.weight")
        refusal(lambda: MiniMindForCausalLM(dense.config, params), "model.norm.weight", "model.layers.7.strange")

    def test_a_wrong_shape_is_named(self, dense):
        params = dense.params | {"model.norm.weight": np.ones(31)}
        refusal(lambda: MiniMindForCausalLM(dense.config, params), "model.norm.weight", "(31,)", "(32,)")

    def test_the_head_of_a_tied_model_must_be_the_embedding(self, dense):
        head = dense.params["model.embed_tokens.weight"]
        MiniMindForCausalLM(dense.config, dense.params | {"lm_head.weight": head})
        refusal(
            lambda: MiniMindForCausalLM(dense.config, dense.params | {"lm_head.weight": head + 1}), "tie", "lm_head"
        )

    @pytest.mark.parametrize("params", [None, [], [1], "weights"])
    def test_params_must_be_a_dict(self, dense, params):
        refusal(lambda: MiniMindForCausalLM(dense.config, params), "dict of arrays", error=TypeError)

    def test_config_must_be_a_config(self, dense):
        refusal(lambda: MiniMindForCausalLM({"hidden_size": 32}, dense.params), "MiniMindConfig", error=TypeError)

    def test_astype_shares_or_converts(self, dense, dense64):
        assert dense.astype(np.float32) is dense
        assert dense64.params["model.norm.weight"].tolist() == dense.params["model.norm.weight"].tolist()

    def test_random_is_reproducible(self):
        config = MiniMindConfig(**SMALL)
        one, same, other = (MiniMindForCausalLM.random(config, seed)([[5]]).logits for seed in (1, 1, 2))
        assert np.array_equal(one, same) and not np.array_equal(one, other)

    def test_repr_counts_the_parameters(self):
        """Facts: MiniMind-3 has 63.9 million, its MoE 198.4 million."""
        for use_moe, millions in ((False, 63.9), (True, 198.4)):
            count = sum(int(np.prod(shape)) for shape in param_shapes(MiniMindConfig(use_moe=use_moe)).values())
            assert round(count / 1e6, 1) == millions
        assert repr(peaked(MiniMindConfig(**SMALL))).startswith("<MiniMind 32 x 2, dense, ")


class TestPositions:
    def test_the_table_may_be_filled_to_its_end(self, dense):
        ids = np.full((1, 256), 7)
        past = dense(ids, use_cache=True).past_key_values
        refusal(lambda: dense([[7]], past_key_values=past), "257 positions", "256")

    def test_not_one_position_more(self, dense):
        refusal(lambda: dense(np.full((1, 257), 7)), "257 positions", "max_position_embeddings = 256")


def test_results_depend_on_the_number_of_threads_only_by_rounding(run_python):
    """Fresh interpreters with 1 and 2 BLAS threads; wide enough for BLAS to use them."""
    code = """
import numpy as np
from npminimind import MiniMindConfig, MiniMindForCausalLM
model = MiniMindForCausalLM.random(MiniMindConfig(hidden_size=256, num_hidden_layers=2, vocab_size=500), seed=0)
ids = np.random.default_rng(0).integers(0, 500, (2, 60))
print(repr(model(ids).logits.astype(float)[:, -1].tolist()))
print(model.generate(ids, max_new_tokens=5, do_sample=False, eos_token_id=None).tolist())
"""
    one, two = (run_python(code, OPENBLAS_NUM_THREADS=n, OMP_NUM_THREADS=n).splitlines() for n in "12")
    np.testing.assert_allclose(eval(one[0]), eval(two[0]), rtol=0, atol=FLOOR)
    assert one[1] == two[1]


def test_save_pretrained_gives_back_the_very_file(tmp_path):
    """The model in the box, stored in float16: widened, saved as float16, it is bit for bit what was read."""
    from npminimind import load, reference_weights
    from npminimind.checkpoint import read_safetensors

    model = load()
    model.save_pretrained(tmp_path / "copy", dtype="float16")
    before, _ = read_safetensors(reference_weights() / "minimind-tiny" / "model.safetensors")
    after, _ = read_safetensors(tmp_path / "copy" / "model.safetensors")
    assert before.keys() == after.keys()
    for name in before:
        np.testing.assert_array_equal(before[name], after[name])
    again = MiniMindForCausalLM.from_pretrained(tmp_path / "copy")
    assert again.tokenizer.encode("Once upon a time") == model.tokenizer.encode("Once upon a time")
    assert again.checkpoint.generation_config == model.checkpoint.generation_config


FAULTS = """
import resource
from npminimind import MiniMindConfig, MiniMindForCausalLM

model = MiniMindForCausalLM.random(MiniMindConfig(hidden_size=256, num_hidden_layers=2, vocab_size=100))
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    model([[1] * 512], logits_to_keep=1)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators have other rules")
def test_freed_memory_is_used_again():
    """A second prefill asks the system for no new pages: 3,266 page faults where glibc is left to itself, else 0."""
    faults = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True).stdout
    assert int(faults) < 300
