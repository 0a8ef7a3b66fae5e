"""The names of intermediates: the frozen list of the design, and traces that follow it in order, shape and dtype."""

import numpy as np
import pytest
from conftest import EXPERTS, SMALL, peaked

from npminimind import MiniMindConfig, trace, trace_generation
from npminimind.names import forward_names, generation_names

ATTENTION = """input_layernorm self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.q_norm self_attn.k_norm
self_attn.q_rope self_attn.k_rope self_attn.k_cache self_attn.v_cache self_attn.scores self_attn.masked_scores
self_attn.probs self_attn.context self_attn.o_proj resid_mid post_attention_layernorm""".split()
PARTS = "gate_proj up_proj act hidden down_proj".split()
SAMPLE = "logits after_temperature after_repetition_penalty after_top_k after_top_p probs u next_token finished".split()


def frozen(layers, moe=0, shared=0):
    """Design, section 4, written out."""
    mlp = [f"mlp.{part}" for part in PARTS]
    if moe:
        mlp = [f"mlp.{part}" for part in ("gate", "router_probs", "topk_idx", "topk_weight")]
        mlp += [f"mlp.experts.{e}.{part}" for e in range(moe) for part in PARTS]
        mlp += [f"mlp.shared_experts.{e}.{part}" for e in range(shared) for part in PARTS] + ["mlp"]
    names = ["model.embed_tokens", "rope.cos", "rope.sin"]
    for i in range(layers):
        names += [f"model.layers.{i}.{name}" for name in ATTENTION + mlp] + [f"model.layers.{i}"]
    return [*names, "model.norm", "lm_head"]


CONFIGS = {
    "dense": MiniMindConfig(**SMALL),
    "experts": MiniMindConfig(**SMALL, **EXPERTS),
    "shared expert": MiniMindConfig(**SMALL, **EXPERTS, n_shared_experts=1),
    "no q/k norm": MiniMindConfig(**SMALL, qk_norm=False),
}


@pytest.fixture(params=CONFIGS)
def config(request):
    return CONFIGS[request.param]


@pytest.fixture(params=[np.float32, np.float64], ids=["float32", "float64"])
def model(request, config):
    return peaked(config, dtype=request.param)


def dims(config, batch, new, past):
    """What each letter stands for."""
    c = config
    return {
        "B": batch, "S": new, "T": past + new, "H": c.hidden_size, "N": c.num_attention_heads,
        "K": c.num_key_value_heads, "D": c.head_dim, "E": c.num_experts, "V": c.vocab_size, "k": c.num_experts_per_tok,
        "I": c.moe_intermediate_size if c.use_moe else c.intermediate_size, "1": 1,
    }  # fmt: skip


def follows(entry, array, sizes, dtype):
    for dim, length in zip(entry.dims.split(), array.shape, strict=True):
        if dim != "tokens_of_e":
            assert length == np.prod([sizes[letter] for letter in dim.split("*")]), (entry, array.shape)
    assert array.dtype == (dtype if entry.dtype == "float" else entry.dtype), entry


def test_the_table_is_the_frozen_list(config):
    want = frozen(2, config.num_experts if config.use_moe else 0, config.n_shared_experts)
    if not config.qk_norm:
        want = [name for name in want if not name.endswith(("q_norm", "k_norm"))]
    assert [entry.name for entry in forward_names(config)] == want
    once = want + [f"sample.{name}" for name in SAMPLE]
    assert [entry.name for entry in generation_names(config, 2)] == [f"round_{r}.{n}" for r in range(2) for n in once]
    assert all(entry.meaning for entry in forward_names(config))


def test_a_trace_follows_the_table(model, config):
    past = model([[5, 6], [7, 8]], use_cache=True).past_key_values
    seen = trace(model, [[9, 10, 11], [12, 13, 14]], past_key_values=past)
    table = {entry.name: entry for entry in forward_names(config)}
    assert list(seen) == [name for name in table if name in seen]  # in order, nothing else
    left_out = [name for name in table if name not in seen]
    assert all(".experts." in name for name in left_out)  # experts that nobody chose
    for name, array in seen.items():
        follows(table[name], array, dims(config, batch=2, new=3, past=2), model.dtype)


def test_a_trace_of_a_generation_follows_the_table(model, config):
    seen = trace_generation(model, [[5, 6, 7], [8, 9, 10]], rounds=3, eos_token_id=None, rng=0)
    table = {entry.name: entry for entry in generation_names(config, 3)}
    assert list(seen) == [name for name in table if name in seen]
    assert all(".experts." in name for name in table if name not in seen)
    for name, array in seen.items():
        r = int(name.split(".")[0].removeprefix("round_"))
        sizes = dims(config, batch=2, new=3 if r == 0 else 1, past=0 if r == 0 else 2 + r)
        follows(table[name], array, sizes, model.dtype)


def test_u_is_absent_where_none_was_used(dense):
    assert not [n for n in trace_generation(dense, [[5]], rounds=2, do_sample=False) if n.endswith(".u")]


def test_tokens_of_an_expert_are_those_that_chose_it(experts):
    seen = trace(experts, [[5, 6, 7], [8, 9, 10]])
    for i in range(2):
        chosen = seen[f"model.layers.{i}.mlp.topk_idx"]
        for e in range(5):
            rows = seen.get(f"model.layers.{i}.mlp.experts.{e}.hidden")
            assert (0 if rows is None else len(rows)) == (chosen == e).sum()
