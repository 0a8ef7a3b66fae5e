"""The generations of MiniMind: recognised, renamed, reordered; the numbers are what they always were."""

import numpy as np
import old_minimind
import pytest
from checkpoint_helpers import DENSE, EXPERTS, config_of, random_params, refused, write_folder

from npminimind import MiniMindForCausalLM
from npminimind.checkpoint import inspect, load_weights, save_safetensors
from npminimind.checkpoint.names import current_name

IDS = np.array([3, 17, 4, 40, 8, 8, 25, 1, 30, 12])


def our_logits(checkpoint):
    return MiniMindForCausalLM(checkpoint.config, checkpoint.weights)(IDS[None]).logits[0]


# MiniMind-1 has 16 heads and 8 kv heads, MiniMind2 8 and 2: that is how a file without config is told apart.
OLD = {
    "minimind-1": dict(heads=16, kv_heads=8, eps=1e-5, theta=1e4),
    "minimind2": dict(heads=8, kv_heads=2, eps=1e-5, theta=1e6),
}


@pytest.mark.parametrize("generation", OLD)
@pytest.mark.parametrize("experts", [0, 4])
def test_old_file_without_config_computes_what_it_did(tmp_path, generation, experts):
    facts = OLD[generation]
    params = old_minimind.random_old(2, 64, facts["heads"], facts["kv_heads"], 40, 50, experts)
    save_safetensors(tmp_path / "old.safetensors", params)
    checkpoint = load_weights(tmp_path / "old.safetensors", np.float64)
    assert checkpoint.generation == generation
    assert not checkpoint.config.qk_norm and checkpoint.config.n_shared_experts == (1 if experts else 0)
    expected = old_minimind.forward(params, IDS, **facts, top_k=2 if experts else 0)
    np.testing.assert_allclose(our_logits(checkpoint), expected, rtol=1e-9, atol=1e-9)
    said = " ".join(checkpoint.notes)
    assert generation in said and "reordered" in said and f"rope_theta {facts['theta']:g}" in said


def old_config(**changes):
    """config.json of MiniMind-1's LMConfig."""
    fields = dict(dim=64, n_layers=2, n_heads=4, n_kv_heads=4, vocab_size=50, hidden_dim=None, multiple_of=64)
    more = dict(norm_eps=1e-5, max_seq_len=512, dropout=0.0, flash_attn=True, use_moe=False, model_type="minimind")
    return fields | more | dict(n_routed_experts=4, n_shared_experts=True, num_experts_per_tok=2) | changes


@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_old_folder_with_config(tmp_path, top_k):
    """Heads from the config; a token that takes one expert takes it with its probability (MiniMind2's rule)."""
    params = old_minimind.random_old(2, 64, 4, 4, 40, 50, experts=4)
    raw = old_config(
        use_moe=True, num_experts_per_tok=top_k, norm_topk_prob=True, scoring_func="softmax", rope_theta=5e5
    )
    checkpoint = load_weights(write_folder(tmp_path / "m", params, raw), np.float64)
    expected = old_minimind.forward(params, IDS, 4, 4, 1e-5, 5e5, top_k)
    np.testing.assert_allclose(our_logits(checkpoint), expected, rtol=1e-9, atol=1e-9)
    assert checkpoint.config.norm_topk_prob == (top_k > 1)


def test_without_reordering_the_numbers_would_be_wrong(tmp_path):
    """The test above sees the permutation: the same rows under new names give other logits."""
    params = old_minimind.random_old(2, 64, 8, 2, 40, 50)
    renamed = {current_name(name)[0]: array for name, array in params.items()}
    save_safetensors(tmp_path / "x.safetensors", renamed)
    wrong = our_logits(load_weights(tmp_path / "x.safetensors", np.float64, config_of(
        hidden_size=64, num_attention_heads=8, intermediate_size=40, qk_norm=False, rms_norm_eps=1e-5)))  # fmt: skip
    expected = old_minimind.forward(params, IDS, 8, 2, 1e-5, 1e6)
    assert np.abs(wrong - expected).max() > 0.1


@pytest.mark.parity
def test_row_order_against_torch():
    """Half rotation of reordered q and k gives the scores of torch's complex multiplication."""
    torch = pytest.importorskip("torch")
    from npminimind.checkpoint.row_order import by_neighbours

    rng = np.random.default_rng(0)
    hidden, heads, dim, length = 32, 4, 8, 11
    x = rng.standard_normal((length, hidden))
    wq, wk = rng.standard_normal((2, hidden, hidden))

    frequencies = 1.0 / 1e4 ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    turns = torch.polar(
        torch.ones(length, dim // 2, dtype=torch.float64), torch.outer(torch.arange(length), frequencies)
    )

    def neighbours(w):
        projected = (torch.from_numpy(x) @ torch.from_numpy(w).T).view(length, heads, dim // 2, 2)
        return torch.view_as_real(torch.view_as_complex(projected) * turns[:, None]).flatten(2)

    expected = torch.einsum("snd,tnd->nst", neighbours(wq), neighbours(wk)).numpy()

    angles = np.concatenate([np.outer(np.arange(length), frequencies.numpy())] * 2, -1)[:, None]

    def halves(w):
        turned = np.empty_like(w)
        by_neighbours(turned, dim)[...] = w.reshape(by_neighbours(turned, dim).shape)
        y = (x @ turned.T).reshape(length, heads, dim)
        rotated = np.concatenate([-y[..., dim // 2 :], y[..., : dim // 2]], -1)
        return y * np.cos(angles) + rotated * np.sin(angles)

    np.testing.assert_allclose(np.einsum("snd,tnd->nst", halves(wq), halves(wk)), expected, rtol=1e-12, atol=1e-12)


def test_names():
    """The table of old names, both ways a shared expert is called, and wrappers' prefixes."""
    table = {
        "tok_embeddings.weight": "model.embed_tokens.weight",
        "output.weight": "lm_head.weight",
        "layers.7.attention.wo.weight": "model.layers.7.self_attn.o_proj.weight",
        "layers.7.ffn_norm.weight": "model.layers.7.post_attention_layernorm.weight",
        "layers.0.feed_forward.w2.weight": "model.layers.0.mlp.down_proj.weight",
        "layers.0.feed_forward.w3.weight": "model.layers.0.mlp.up_proj.weight",
        "layers.0.feed_forward.gate.weight": "model.layers.0.mlp.gate.weight",
        "layers.0.feed_forward.experts.3.w1.weight": "model.layers.0.mlp.experts.3.gate_proj.weight",
        "layers.0.feed_forward.shared_experts.w1.weight": "model.layers.0.mlp.shared_experts.0.gate_proj.weight",
        "layers.0.feed_forward.shared_experts.0.w1.weight": "model.layers.0.mlp.shared_experts.0.gate_proj.weight",
    }
    for old, new in table.items():
        assert current_name(old) == (new, True)
        assert current_name(f"_orig_mod.module.{old}") == (new, True)
    for name in ("model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.shared_experts.0.up_proj.weight"):
        assert current_name(name) == (name, False)
    assert current_name("norm.weight") == ("model.norm.weight", False)
    assert current_name("layers.0.self_attn.q_proj.weight")[0] == "model.layers.0.self_attn.q_proj.weight"
    assert current_name("visual.proj.weight") == ("visual.proj.weight", False)


# ---------------------------------------------------------------------------------------------
# Recognised from shapes


@pytest.mark.parametrize(
    ("hidden", "heads", "kv_heads", "extra", "generation"),
    [
        (768, 8, 4, dict(), "minimind-3"),
        (768, 8, 2, dict(qk_norm=False), "minimind2"),
        (512, 8, 2, dict(qk_norm=False), "minimind2"),
        (640, 8, 2, dict(qk_norm=False, use_moe=True, n_shared_experts=1), "minimind2"),
        (768, 8, 4, dict(use_moe=True), "minimind-3"),
    ],
)
def test_published_sizes_without_config(tmp_path, hidden, heads, kv_heads, extra, generation):
    """Headers only: the numbers are a hole in the file."""
    config = config_of(
        hidden_size=hidden, num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=None, vocab_size=64,
        intermediate_size=64, moe_intermediate_size=64, num_hidden_layers=1, **extra,
    )  # fmt: skip
    save_safetensors(tmp_path / "x.safetensors", random_params(config, dtype=np.float16))
    found = inspect(tmp_path / "x.safetensors")
    assert found.generation == generation and found.weights is None
    c = found.config
    assert (c.hidden_size, c.num_attention_heads, c.num_key_value_heads) == (hidden, heads, kv_heads)
    assert (c.head_dim, c.n_shared_experts, c.qk_norm) == (hidden // heads, config.n_shared_experts, config.qk_norm)
    assert c.rms_norm_eps == (1e-6 if generation == "minimind-3" else 1e-5) and c.rope_theta == 1e6
    assert c.num_experts_per_tok == (2 if extra.get("n_shared_experts") else 1)
    assert "rope_theta" in " ".join(found.notes) and found.dtypes == ["F16"]


def test_what_shapes_cannot_tell_is_refused(tmp_path):
    path = tmp_path / "x.safetensors"
    save_safetensors(path, random_params(config_of(qk_norm=False)))  # Llama with 2 query heads a kv head
    refused(path, "heads", "config.json")
    save_safetensors(path, random_params(config_of(**EXPERTS | dict(num_experts=5))))
    refused(path, "5 experts", "config.json")
    checkpoint = load_weights(path, config=config_of(**EXPERTS | dict(num_experts=5)))
    assert checkpoint.config.num_experts_per_tok == 2 and "given" in checkpoint.notes[0]


def test_minimind2_folder(tmp_path):
    """MiniMind2 with HF's names: intermediate_size may be null; one shared expert; top 2 of 4."""
    config = config_of(**EXPERTS, qk_norm=False, n_shared_experts=1, rms_norm_eps=1e-5)
    raw = {name: DENSE[name] for name in DENSE if name not in ("head_dim", "intermediate_size")}
    raw |= dict(intermediate_size=None, rms_norm_eps=1e-5, rope_theta=1e6, use_moe=True, model_type="minimind")
    raw |= dict(
        n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2, norm_topk_prob=True, scoring_func="softmax"
    )
    params = random_params(config)
    checkpoint = load_weights(write_folder(tmp_path / "m", params, raw))
    got, want = checkpoint.config.to_dict(), config.to_dict()
    got.pop("intermediate_size"), want.pop("intermediate_size")  # of no dense layer
    assert got == want
    for name, array in checkpoint.weights.params.items():
        np.testing.assert_array_equal(array, params[name])


def test_buffers_are_left_out(tmp_path):
    params = random_params(config_of()) | {"freqs_cos": np.zeros((4, 4)), "model.layers.0.self_attn.mask": np.zeros(3)}
    checkpoint = load_weights(write_folder(tmp_path / "m", params, DENSE))
    assert "freqs_cos" in " ".join(checkpoint.notes) and "freqs_cos" not in checkpoint.weights.params


def test_fused_experts(tmp_path):
    """transformers 5 keeps a layer's experts in two tensors: gate over up, and down."""
    config = config_of(**EXPERTS)
    params = random_params(config)
    fused = {name: array for name, array in params.items() if ".experts." not in name}
    for i in range(config.num_hidden_layers):
        path = f"model.layers.{i}.mlp.experts."
        gate, up, down = (
            [params[f"{path}{e}.{part}_proj.weight"] for e in range(4)] for part in ("gate", "up", "down")
        )
        fused[f"{path}gate_up_proj"] = np.concatenate([np.stack(gate), np.stack(up)], axis=1)
        fused[f"{path}down_proj"] = np.stack(down)
    folder = write_folder(tmp_path / "m", fused, DENSE | EXPERTS)
    for name, array in load_weights(folder).weights.params.items():
        np.testing.assert_array_equal(array, params[name])
    assert inspect(folder / "model.safetensors").config.num_experts == 4
    fused["model.layers.1.mlp.experts.down_proj"] = np.zeros((4, 24, 32), np.float32)
    refused(write_folder(tmp_path / "m", fused, DENSE | EXPERTS), "down_proj", "[4, 24, 32]")


@pytest.mark.parametrize(("key", "word"), [
    ("model.layers.0.self_attn.q_proj.bias", "biases"),
    ("model.layers.0.self_attn.q_proj.qweight", "GPTQ"),
    ("model.layers.0.self_attn.q_proj.weight.absmax", "bitsandbytes"),
    ("model.layers.0.self_attn.q_proj.weight_scale_inv", "fp8"),
    ("model.layers.0.self_attn.q_proj.lora.A.weight", "LoRA"),
    ("vision_tower.weight", "no place"),
    ("model.layers.5.mlp.up_proj.weight", "layers"),
    ("model.layers.0.mlp.experts.99999.gate_proj.weight", "experts.0"),
    ("module.model.norm.weight", "both"),
])  # fmt: skip
def test_foreign_tensors(tmp_path, key, word):
    params = random_params(config_of()) | {key: np.zeros(3, np.float32)}
    folder = write_folder(tmp_path / "m", params, DENSE)
    refused(folder, word)


def test_integer_weights_are_quantized(tmp_path):
    params = random_params(config_of())
    params["model.layers.1.mlp.up_proj.weight"] = np.zeros((48, 32), np.int8)
    refused(write_folder(tmp_path / "m", params, DENSE), "up_proj", "I8", "quantized")


def test_missing_and_wrong_tensors(tmp_path):
    params = random_params(config_of())
    lacking = {name: array for name, array in params.items() if name != "model.layers.1.mlp.up_proj.weight"}
    refused(write_folder(tmp_path / "m", lacking, DENSE), "lacks 1 of 24", "model.layers.1.mlp.up_proj.weight")
    wrong = params | {"model.layers.1.mlp.up_proj.weight": np.zeros((49, 32), np.float32)}
    refused(write_folder(tmp_path / "m", wrong, DENSE), "[49, 32]", "[48, 32]")
    refused(write_folder(tmp_path / "m", {"a": np.zeros(3)}, DENSE), "embed_tokens", "no MiniMind")
