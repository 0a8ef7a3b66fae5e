"""What transformers makes of our folders, and we of its: logits and greedy tokens."""

import json

import numpy as np
import old_minimind
import pytest
from checkpoint_helpers import DENSE, EXPERTS, config_of, random_params, write_folder

from npminimind import MiniMindForCausalLM
from npminimind.checkpoint import convert, load_weights, save_pretrained

pytestmark = pytest.mark.parity
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

IDS = np.array([[3, 17, 4, 40, 8, 8, 25, 1, 30, 12], [5, 5, 9, 11, 31, 2, 8, 44, 7, 6]])


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Matrices of 32 rows are faster on one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def theirs(folder, dtype="float64"):
    # "eager": the fused product of experts knows no float64
    options = dict(dtype=getattr(torch, dtype), experts_implementation="eager")
    return transformers.AutoModelForCausalLM.from_pretrained(folder, **options).eval()


def their_logits(model, ids):
    with torch.no_grad():
        return model(torch.from_numpy(ids)).logits.numpy()


def ours(folder, dtype=np.float64):
    checkpoint = load_weights(folder, dtype)
    return MiniMindForCausalLM(checkpoint.config, checkpoint.weights)


def agree(folder):
    """Logits in float64 (but for transformers' RoPE angles, which are float32), and 8 greedy tokens."""
    model, mine = theirs(folder), ours(folder)
    np.testing.assert_allclose(mine(IDS).logits, their_logits(model, IDS), rtol=1e-6, atol=1e-5)
    ids = IDS
    for _ in range(8):
        ids = np.concatenate([ids, their_logits(model, ids)[:, -1].argmax(-1)[:, None]], axis=1)
    np.testing.assert_array_equal(mine.generate(IDS, max_new_tokens=8, do_sample=False, eos_token_id=None), ids)
    return model


# ---------------------------------------------------------------------------------------------
# Ours, read by transformers


@pytest.mark.parametrize(("fields", "kind"), [
    (dict(), "Qwen3ForCausalLM"),
    (dict(tie_word_embeddings=False, rope_theta=1e4, rms_norm_eps=1e-5, hidden_act="gelu"), "Qwen3ForCausalLM"),
    (dict(inference_rope_scaling=True, max_position_embeddings=4096), "Qwen3ForCausalLM"),
    (EXPERTS, "Qwen3MoeForCausalLM"),
    (EXPERTS | dict(norm_topk_prob=False, num_experts_per_tok=3), "Qwen3MoeForCausalLM"),
    (dict(qk_norm=False, rope_theta=5e5), "LlamaForCausalLM"),
    (dict(qk_norm=False, head_dim=12, tie_word_embeddings=False), "LlamaForCausalLM"),
], ids=str)  # fmt: skip
def test_transformers_reads_our_folders(tmp_path, fields, kind):
    config = config_of(**fields)
    save_pretrained(config, random_params(config), tmp_path)
    assert type(agree(tmp_path)).__name__ == kind


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_folders(tmp_path, dtype):
    config = config_of()
    save_pretrained(config, random_params(config), tmp_path, dtype)
    model = theirs(tmp_path, "float32")
    params = load_weights(tmp_path).weights.params
    for name, tensor in model.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), params.get(name, params["model.embed_tokens.weight"]))
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == dtype


def test_minimind_1_becomes_llama(tmp_path):
    write_folder(tmp_path / "old", old_minimind.random_old(2, 64, 16, 8, 40, 50))
    convert(tmp_path / "old", tmp_path / "new")
    assert type(agree(tmp_path / "new")).__name__ == "LlamaForCausalLM"


# ---------------------------------------------------------------------------------------------
# Theirs, read by us


def random_hf(config):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).float()
    for tensor in model.parameters():
        torch.nn.init.normal_(tensor, 1.0 if tensor.ndim == 1 else 0.0, 0.3)
    model.generation_config.eos_token_id = None
    return model


@pytest.mark.parametrize(("kind", "fields"), [
    ("Qwen3Config", dict(tie_word_embeddings=True)),
    ("Qwen3Config", dict(rope_parameters=dict(
        rope_type="yarn", rope_theta=1e5, factor=4.0, original_max_position_embeddings=1024))),
    ("Qwen3MoeConfig", dict(num_experts=3, num_experts_per_tok=2, moe_intermediate_size=20)),
    ("Qwen3MoeConfig", dict(num_experts=4, num_experts_per_tok=1, moe_intermediate_size=20, norm_topk_prob=True)),
    ("LlamaConfig", dict(rms_norm_eps=1e-5)),
    ("LlamaConfig", dict(num_key_value_heads=4, rope_parameters=dict(rope_type="default", rope_theta=7e5))),
], ids=str)  # fmt: skip
def test_we_read_transformers_folders(tmp_path, kind, fields):
    config = getattr(transformers, kind)(**(DENSE | dict(max_position_embeddings=4096, bos_token_id=1) | fields))
    random_hf(config).save_pretrained(tmp_path / "whole")
    agree(tmp_path / "whole")


def test_we_read_transformers_shards_and_fused_experts(tmp_path):
    fields = dict(num_experts=3, num_experts_per_tok=2, moe_intermediate_size=20, bos_token_id=1)
    model = random_hf(transformers.Qwen3MoeConfig(**(DENSE | fields)))
    model.save_pretrained(tmp_path / "shards", max_shard_size="20KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 2
    agree(tmp_path / "shards")
    fused = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    assert any(name.endswith("experts.gate_up_proj") for name in fused)
    raw = json.loads((tmp_path / "shards" / "config.json").read_text())
    write_folder(tmp_path / "fused", fused, raw)
    for name, array in load_weights(tmp_path / "fused").weights.params.items():
        np.testing.assert_array_equal(array, load_weights(tmp_path / "shards").weights.params[name])
