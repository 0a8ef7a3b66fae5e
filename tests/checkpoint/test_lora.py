"""LoRA files merged: W x + B (A x), for MiniMind's own files and for peft's folders."""

import json

import numpy as np
import old_minimind
import pytest
from checkpoint_helpers import DENSE, config_of, random_params, refused, write_folder

from npminimind import MiniMindForCausalLM
from npminimind.checkpoint import load_weights, save_safetensors
from npminimind.checkpoint.pth_writer import save_pth

IDS = np.array([3, 17, 4, 40, 8, 8, 25, 1])


def factors(rank=3, layers=2, hidden=32, form="model.layers.{}.self_attn.{}_proj.lora.{}.weight", parts="qo", seed=1):
    rng = np.random.default_rng(seed)
    lora = {}
    for i in range(layers):
        for part in parts:
            lora[form.format(i, part, "A")] = rng.standard_normal((rank, hidden)).astype(np.float32)
            lora[form.format(i, part, "B")] = rng.standard_normal((hidden, rank)).astype(np.float32)
    return lora


@pytest.fixture
def base(tmp_path):
    return write_folder(tmp_path / "base", random_params(config_of()), DENSE)


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod."])
@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_minimind_s_own_file(tmp_path, base, prefix, suffix):
    """As upstream's apply_lora computes it, matrix by matrix; the other matrices stay."""
    params, lora = random_params(config_of()), factors()
    path = tmp_path / f"lora_identity_32{suffix}"
    stored = {prefix + name: array for name, array in lora.items()}
    save_safetensors(path, stored) if suffix == ".safetensors" else save_pth(path, stored, "float32")
    checkpoint = load_weights(base, np.float64, lora=path)
    x = np.random.default_rng(2).standard_normal(32)
    for name, array in checkpoint.weights.params.items():
        a, b = (lora.get(name.replace(".weight", f".lora.{part}.weight")) for part in "AB")
        if a is None:
            np.testing.assert_array_equal(array, params[name])
        else:
            np.testing.assert_allclose(array @ x, params[name] @ x + b @ (a @ x), rtol=1e-10, atol=1e-10)
    assert "rank 3" in checkpoint.notes[-1] and "4 matrices" in checkpoint.notes[-1]


def test_old_names_are_reordered_like_the_weights(tmp_path):
    """A LoRA of a model with neighbour RoPE, merged after its base was reordered, computes what it did."""
    params = old_minimind.random_old(2, 64, 8, 2, 40, 50)
    form = "layers.{}.attention.w{}.lora.{}.weight"
    lora = {name: array * 0.2 for name, array in factors(hidden=64, form=form).items()}
    save_safetensors(tmp_path / "base.safetensors", params)
    save_safetensors(tmp_path / "lora.safetensors", lora)
    checkpoint = load_weights(tmp_path / "base.safetensors", np.float64, lora=tmp_path / "lora.safetensors")
    merged = dict(params)
    for i in range(2):
        for part in "qo":
            a, b = (lora[form.format(i, part, half)].astype(np.float64) for half in "AB")
            merged[f"layers.{i}.attention.w{part}.weight"] = params[f"layers.{i}.attention.w{part}.weight"] + b @ a
    expected = old_minimind.forward(merged, IDS, 8, 2, 1e-5, 1e6)
    logits = MiniMindForCausalLM(checkpoint.config, checkpoint.weights)(IDS[None]).logits[0]
    np.testing.assert_allclose(logits, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("rslora", "scale"), [(False, 8 / 4), (True, 8 / 2)])
def test_peft_folder(tmp_path, base, rslora, scale):
    """alpha / r, or alpha / sqrt(r), on any matrix; k_proj is not square."""
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((4, 32)).astype(np.float32), rng.standard_normal((16, 4)).astype(np.float32)
    form = "base_model.model.model.layers.1.self_attn.k_proj.lora_{}.weight"
    folder = tmp_path / "peft"
    write_folder(folder, {form.format("A"): a, form.format("B"): b}, name="adapter_model.safetensors")
    config = folder / "adapter_config.json"
    config.write_text(json.dumps({"lora_alpha": 8, "r": 4, "use_rslora": rslora}))
    merged = load_weights(base, lora=folder).weights.params["model.layers.1.self_attn.k_proj.weight"]
    before = random_params(config_of())["model.layers.1.self_attn.k_proj.weight"]
    np.testing.assert_allclose(merged, before + scale * (b @ a), rtol=1e-5, atol=1e-5)
    for change, word in [
        ({"use_dora": True}, "use_dora"),
        ({"lora_alpha": "x"}, "lora_alpha"),
        ({"lora_alpha": 0}, "alpha"),
    ]:
        config.write_text(json.dumps({"lora_alpha": 8, "r": 4} | change))
        refused(config, word, read=lambda _: load_weights(base, lora=folder))
    config.unlink()
    refused(folder, "no LoRA folder", read=lambda path: load_weights(base, lora=path))


@pytest.mark.parametrize(("change", "words"), [
    (lambda lora: lora | {"model.norm.weight": np.ones(32, np.float32)}, ("no LoRA file", "model.norm.weight")),
    (lambda lora: {n: a for n, a in lora.items() if "B" not in n or ".1." not in n}, ("half",)),
    (lambda lora: {n.replace("layers.1", "layers.7"): a for n, a in lora.items()}, ("layers.7", "another model")),
    (lambda lora: {n: a[:, :16] if "A" in n else a for n, a in lora.items()}, ("[3, 16]", "another model")),
    (lambda lora: {n: a[:, :2] if "B" in n else a for n, a in lora.items()}, ("[32, 2]",)),
    (lambda lora: {n: a.astype(np.int64) for n, a in lora.items()}, ("I64",)),
    (lambda lora: {n: a[0] for n, a in lora.items()}, ("[3]",)),
    (lambda lora: {n: a[:0] if "A" in n else a[:, :0] for n, a in lora.items()}, ("factors",)),
    (lambda lora: lora | {f"module.{n}": a for n, a in lora.items()}, ("two LoRA factors",)),
])  # fmt: skip
def test_files_that_do_not_fit(tmp_path, base, change, words):
    path = tmp_path / "lora.safetensors"
    save_safetensors(path, change(factors()))
    refused(path, *words, read=lambda p: load_weights(base, lora=p))


def test_a_file_that_is_not_there(tmp_path, base):
    refused(tmp_path / "x.pth", "no such file", read=lambda path: load_weights(base, lora=path))


def test_lora_given_as_the_model(tmp_path):
    save_safetensors(tmp_path / "lora.safetensors", factors())
    refused(tmp_path / "lora.safetensors", "LoRA", "--lora")
