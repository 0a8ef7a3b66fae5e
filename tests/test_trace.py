"""Traces and taps: what is seen is what was computed, and what is put in its place has an effect."""

import numpy as np
import pytest
from conftest import refusal

from npminimind import MiniMindConfig, MiniMindForCausalLM, trace, trace_generation
from npminimind.names import forward_names

IDS = [[5, 6, 7], [8, 9, 10]]


class TestTrace:
    def test_watching_changes_nothing(self, model64):
        assert np.array_equal(trace(model64, IDS)["lm_head"], model64(IDS, tap=lambda n, a: None).logits)
        np.testing.assert_allclose(trace(model64, IDS)["lm_head"], model64(IDS).logits, rtol=0, atol=1e-11)

    def test_arrays_fit_together(self, dense64):
        """The identities between the named arrays, written as formulas."""
        t, p = trace(dense64, IDS, [[0, 1, 1], [1, 1, 1]]), dense64.params
        layer = "model.layers.0."
        h, attn = t[layer + "input_layernorm"], layer + "self_attn."
        same = dict(rtol=0, atol=1e-11)
        np.testing.assert_allclose(t[attn + "q_proj"], h @ p[attn + "q_proj.weight"].T, **same)
        np.testing.assert_allclose(t[attn + "v_cache"].reshape(2, 3, -1), h @ p[attn + "v_proj.weight"].T, **same)
        assert np.array_equal(t[attn + "k_cache"], t[attn + "k_rope"])  # no past
        keys = np.repeat(t[attn + "k_cache"], 2, axis=2)
        scores = np.einsum("bsnd,btnd->bnst", t[attn + "q_rope"], keys) / np.sqrt(12)
        np.testing.assert_allclose(t[attn + "scores"], scores, **same)
        np.testing.assert_allclose(t[layer + "resid_mid"], t["model.embed_tokens"] + t[attn + "o_proj"], **same)
        np.testing.assert_allclose(t[layer + "mlp.hidden"], t[layer + "mlp.act"] * t[layer + "mlp.up_proj"], **same)
        np.testing.assert_allclose(t["model.layers.0"], t[layer + "resid_mid"] + t[layer + "mlp.down_proj"], **same)
        hidden = dense64(IDS, [[0, 1, 1], [1, 1, 1]]).hidden_states
        np.testing.assert_allclose(t["model.norm"], hidden, **same)

    def test_a_generation_shows_what_its_steps_show(self, model64):
        asked = dict(eos_token_id=None, temperature=1.2, repetition_penalty=1.3)
        seen = trace_generation(model64, IDS, rounds=4, u=np.linspace(0, 0.9, 8), **asked)
        steps = model64.steps(IDS, max_new_tokens=4, rng=np.linspace(0, 0.9, 8), **asked)
        for step in steps:
            for name in ("logits", "after_top_p", "probs", "u", "next_token", "finished"):
                np.testing.assert_allclose(seen[f"round_{step.round}.sample.{name}"], getattr(step, name), atol=1e-11)

    def test_arrays_of_earlier_rounds_stay_as_they_were(self, model64):
        seen, copies = {}, {}

        def tap(name, array):
            seen[name], copies[name] = array, np.array(array)

        list(model64.steps(IDS, max_new_tokens=6, eos_token_id=None, rng=0, tap=tap))
        assert all(np.array_equal(seen[name], copies[name]) for name in seen)

    @pytest.mark.parametrize("force", [[20, 21, 22], [[20, 21, 22], [30, 31, 32]]])
    def test_forced_ids(self, model64, force):
        """Each round is the forward pass over prompt and forced ids."""
        seen = trace_generation(model64, IDS, force_ids=force, do_sample=False, eos_token_id=None)
        forced = np.broadcast_to(force, (2, 3))
        for r in range(3):
            assert np.array_equal(seen[f"round_{r}.sample.next_token"][:, 0], forced[:, r])
            ids = np.concatenate([IDS, forced[:, :r]], axis=1)
            np.testing.assert_allclose(seen[f"round_{r}.sample.logits"], model64(ids).logits[:, -1], rtol=0, atol=1e-11)
        assert "round_3.sample.logits" not in seen

    def test_forced_ids_that_are_none(self, dense):
        refusal(lambda: trace_generation(dense, IDS, force_ids=[60]), "outside the vocabulary")
        refusal(lambda: trace_generation(dense, IDS, force_ids=[-1]), "outside the vocabulary")
        refusal(lambda: trace_generation(dense, IDS, force_ids=[1.5]), "integers", error=TypeError)

    def test_it_says_what_was_run(self, dense):
        seen = trace(dense, IDS)
        assert seen.metadata["config"]["hidden_size"] == 32
        assert seen.metadata["input_ids"] == IDS and seen.metadata["dtype"] == "float32"
        assert repr(seen).startswith(f"<Trace of {len(seen)} arrays>")


class TestTap:
    def test_none_leaves_it_and_so_does_the_array_itself(self, model64):
        plain = model64(IDS, tap=lambda name, array: None).logits
        assert np.array_equal(model64(IDS, tap=lambda name, array: array).logits, plain)
        assert np.array_equal(model64(IDS, tap=lambda name, array: array.copy()).logits, plain)

    @pytest.mark.parametrize("model", ["dense", "experts"])
    def test_every_replacement_has_an_effect(self, request, model):
        """Each named array, shaken a little, changes what comes out: nothing is shown that is not used."""
        model = request.getfixturevalue(model).astype(np.float64)
        plain = model(IDS, use_cache=True)
        for entry in forward_names(model.config):
            hit = []

            def tap(name, array, entry=entry, hit=hit):
                if name == entry.name:
                    hit.append(name)
                    return (array + 1) % 5 if "topk_idx" in name else array * np.linspace(1.1, 2, array.shape[-1])

            out = model(IDS, tap=tap)
            assert not hit or not np.array_equal(out.logits, plain.logits), entry.name

    def test_a_replaced_cache_is_what_the_next_step_gets(self, dense64):
        name = "model.layers.1.self_attn.k_cache"
        tap = lambda n, a: np.round(a, 1) if n == name else None  # noqa: E731
        out = dense64(IDS, use_cache=True, tap=tap)
        rounded = out.past_key_values[1][0]
        assert np.array_equal(rounded, np.round(rounded, 1))
        steps = list(dense64.steps(IDS, max_new_tokens=3, tap=lambda n, a: tap(n.split(".", 1)[1], a), do_sample=False))
        assert np.array_equal(steps[0].past_key_values[1][0], rounded)
        last = steps[-1].past_key_values[1][0]
        assert last.shape[1] == 5 and np.array_equal(last, np.round(last, 1))

    def test_a_cache_handed_out_before_stays_as_it_was(self, dense64):
        first = {}

        def tap(name, array):
            if name.endswith("k_cache") and name.startswith("round_1."):
                return array * 2

        for step in dense64.steps(IDS, max_new_tokens=3, tap=tap, do_sample=False):
            if step.round == 0:
                first = [k.copy() for k, _ in step.past_key_values]
                kept = step.past_key_values
        assert all(np.array_equal(k, was) for (k, _), was in zip(kept, first))

    def test_replacing_in_a_generation(self, dense):
        seven = lambda name, array: np.full_like(array, 7) if name.endswith("next_token") else None  # noqa: E731
        assert dense.generate([[5]], max_new_tokens=3, tap=seven, rng=0).tolist() == [[5, 7, 7, 7]]
        ended = lambda name, array: np.ones_like(array) if name == "round_1.sample.finished" else None  # noqa: E731
        assert dense.generate([[5]], max_new_tokens=9, eos_token_id=None, tap=ended, rng=0).shape == (1, 3)
        first = lambda name, array: np.zeros_like(array) if name.endswith(".u") else None  # noqa: E731
        for step in dense.steps([[5]], max_new_tokens=4, eos_token_id=None, tap=first, rng=0):
            assert step.u == 0 and step.next_token == np.flatnonzero(step.probs)[0]

    def test_another_shape_is_refused(self, dense):
        refusal(lambda: dense(IDS, tap=lambda n, a: a[:1] if n == "lm_head" else None), "lm_head", "(1, 3, 60)")

    def test_the_dtype_is_kept(self, dense):
        widened = dense(IDS, tap=lambda name, array: array.astype(np.float64) * 2 if name == "model.norm" else None)
        assert widened.logits.dtype == np.float32

    @pytest.mark.parametrize("tap", [5, "print", [print]])
    def test_what_is_no_function(self, dense, tap):
        for call in (dense, dense.generate):
            refusal(lambda call=call: call(IDS, tap=tap), "tap must be a function", error=TypeError)


def test_forced_ids_run_all_their_rounds_past_an_eos():
    """Teacher forcing goes on behind an EOS (id 2); the finished row keeps the forced ids."""
    config = MiniMindConfig(hidden_size=64, num_hidden_layers=1, vocab_size=9)
    result = trace_generation(MiniMindForCausalLM.random(config), [[3, 4]], force_ids=[[2, 5, 6]], do_sample=False)
    assert [int(result[f"round_{r}.sample.next_token"][0, 0]) for r in range(3)] == [2, 5, 6]
