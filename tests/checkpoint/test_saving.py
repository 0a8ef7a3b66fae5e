"""Checkpoints out: bit-exact round trips, the layouts' names, nothing half-written."""

import json
import subprocess
import sys

import numpy as np
import old_minimind
import pytest
from checkpoint_helpers import DENSE, EXPERTS, config_of, random_params, refused, write_folder

from npminimind import MiniMindForCausalLM
from npminimind.checkpoint import convert, inspect, load_weights, read_safetensors, save_pretrained
from npminimind.checkpoint.pth import read_pth

MODELS = {
    "dense": dict(),
    "experts": EXPERTS | dict(norm_topk_prob=False),
    "untied": dict(tie_word_embeddings=False, rope_theta=1e4, rms_norm_eps=1e-5, hidden_act="gelu"),
    "yarn": dict(inference_rope_scaling=True, max_position_embeddings=4096),
    "llama": dict(qk_norm=False, rope_theta=5e5),
}


@pytest.mark.parametrize("layout", ["hf", "minimind"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("model", MODELS)
def test_round_trips_are_exact(tmp_path, model, dtype, layout):
    """Written, read, written again: the config is the same, and every bit from the first rounding on."""
    config = config_of(**MODELS[model])
    files = save_pretrained(config, random_params(config), tmp_path / "one", dtype, layout=layout)
    first = load_weights(tmp_path / "one")
    assert first.config == config
    assert first.dtypes == [{"float16": "F16", "bfloat16": "BF16", "float32": "F32"}[dtype]]
    convert(tmp_path / "one", tmp_path / "two", layout=layout)
    for file in files:
        if not file.endswith("generation_config.json"):
            assert (tmp_path / "two" / file.rpartition("/")[2]).read_bytes() == open(file, "rb").read(), file
    for other in ("hf", "minimind"):
        convert(tmp_path / "one", tmp_path / other, layout=other)
        back = load_weights(tmp_path / other)
        assert back.config == config
        for name, array in back.weights.params.items():
            assert array.tobytes("C") == first.weights.params[name].tobytes("C"), name


def test_float32_keeps_every_bit(tmp_path):
    config = config_of()
    params = random_params(config)
    for layout in ("hf", "minimind"):
        save_pretrained(config, params, tmp_path / layout, "float32", layout=layout)
        for name, array in load_weights(tmp_path / layout).weights.params.items():
            assert array.tobytes("C") == params[name].tobytes("C")


def test_minimind_layout(tmp_path):
    """The name that eval_llm.py looks for; both heads in the file, over one storage."""
    config = config_of(**EXPERTS)
    files = save_pretrained(config, random_params(config), tmp_path, "float16", layout="minimind")
    assert files[-1] == str(tmp_path / "full_sft_32_moe.pth")
    stored, _ = read_pth(files[-1])
    assert stored["lm_head.weight"].offset == stored["model.embed_tokens.weight"].offset
    raw = json.loads((tmp_path / "config.json").read_text())
    assert raw["model_type"] == "minimind" and raw["num_experts"] == 4 and raw["hidden_size"] == 32


def test_stage_of_the_source_keeps_its_name(tmp_path):
    config = config_of()
    one = write_folder(tmp_path / "one", {}, config.to_dict(), name="gone")
    (one / "gone").unlink()
    save_pretrained(config, random_params(config), tmp_path / "tmp", layout="minimind")
    (tmp_path / "tmp" / "full_sft_32.pth").rename(one / "pretrain_32.pth")
    convert(one, tmp_path / "two", layout="minimind")
    assert (tmp_path / "two" / "pretrain_32.pth").exists()


def test_convert_old_generation(tmp_path):
    """MiniMind-1 to a Llama folder: new names, new row order, the same logits."""
    params = old_minimind.random_old(2, 64, 16, 8, 40, 50)
    write_folder(tmp_path / "old", params)
    notes = convert(tmp_path / "old", tmp_path / "new")
    assert any("minimind-1" in note for note in notes) and notes[-1].endswith("model.safetensors")
    raw = json.loads((tmp_path / "new" / "config.json").read_text())
    assert raw["architectures"] == ["LlamaForCausalLM"] and raw["rope_theta"] == 1e4 and raw["rms_norm_eps"] == 1e-5
    new = load_weights(tmp_path / "new", np.float64)
    assert not new.neighbours and "lm_head.weight" not in new.tensors
    ids = np.array([3, 17, 4, 40, 8])
    logits = MiniMindForCausalLM(new.config, new.weights)(ids[None]).logits[0]
    np.testing.assert_allclose(logits, old_minimind.forward(params, ids, 16, 8, 1e-5, 1e4), rtol=1e-9, atol=1e-9)


def test_mixed_types_become_what_holds_all(tmp_path):
    params = random_params(config_of(), dtype=np.float16)
    params["model.norm.weight"] = np.float32(1) + np.arange(32, dtype=np.float32) / 3
    convert(write_folder(tmp_path / "one", params, DENSE), tmp_path / "two")
    assert inspect(tmp_path / "two").dtypes == ["F32"]
    back = load_weights(tmp_path / "two").weights.params
    np.testing.assert_array_equal(back["model.norm.weight"], params["model.norm.weight"])
    double = {name: array.astype(np.float64) / 3 for name, array in params.items()}
    convert(write_folder(tmp_path / "three", double, DENSE), tmp_path / "four")
    stored, _ = read_safetensors(tmp_path / "four" / "model.safetensors")
    np.testing.assert_array_equal(stored["model.norm.weight"], double["model.norm.weight"])


def test_tokenizer_and_generation_config_travel(tmp_path):
    one = write_folder(tmp_path / "one", random_params(config_of()), DENSE | dict(eos_token_id=7))
    (one / "tokenizer.json").write_bytes(b'{"a": "\xe4\xbd\xa0"}')
    (one / "tokenizer_config.json").write_bytes(b"{}")
    (one / "chat_template.jinja").write_bytes(b"x\r\n")
    (one / "unrelated.txt").write_bytes(b"x")
    convert(one, tmp_path / "two")
    assert json.loads((tmp_path / "two" / "generation_config.json").read_text()) == {
        "bos_token_id": 1,
        "eos_token_id": 7,
    }
    (one / "config.json").write_text(json.dumps(DENSE | dict(eos_token_id=[7, 8, 9])))
    convert(one, tmp_path / "two")
    assert json.loads((tmp_path / "two" / "generation_config.json").read_text()) == {"eos_token_id": [7, 8, 9]}
    (one / "generation_config.json").write_text('{"eos_token_id": [7, 8], "top_p": 0.9}')
    convert(one, tmp_path / "two")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        assert (tmp_path / "two" / name).read_bytes() == (one / name).read_bytes()
    assert load_weights(tmp_path / "two").generation_config == {"eos_token_id": [7, 8], "top_p": 0.9}
    assert not (tmp_path / "two" / "unrelated.txt").exists()


def test_models_without_an_equivalent(tmp_path):
    for fields, word in [
        (EXPERTS | dict(qk_norm=False, n_shared_experts=1), "shared expert"),
        (EXPERTS | dict(qk_norm=False), "q/k norm"),
    ]:
        config = config_of(**fields)
        params = random_params(config)
        refused(tmp_path / "hf", word, "--layout minimind", read=lambda p: save_pretrained(config, params, p))  # noqa: B023
        assert not (tmp_path / "hf").exists()
        save_pretrained(config, params, tmp_path / word.replace("/", ""), layout="minimind")
        assert load_weights(tmp_path / word.replace("/", "")).config == config


def test_bad_arguments(tmp_path):
    config = config_of()
    params = random_params(config)
    with pytest.raises(ValueError, match="layout"):
        save_pretrained(config, params, tmp_path / "x", layout="gguf")
    for dtype in ("int8", np.int64):
        with pytest.raises(ValueError, match="dtype must be one of float16"):
            save_pretrained(config, params, tmp_path / "x", dtype=dtype)
    assert not (tmp_path / "x").exists()


def test_folder_with_other_weights_is_left_alone(tmp_path):
    config = config_of()
    folder = write_folder(tmp_path / "m", random_params(config), name="other.safetensors")
    refused(folder, "other.safetensors", "new folder", read=lambda p: save_pretrained(config, random_params(config), p))
    assert [file.name for file in folder.iterdir()] == ["other.safetensors"]
    (tmp_path / "file").write_bytes(b"")
    refused(tmp_path / "file", "cannot be made", read=lambda p: save_pretrained(config, random_params(config), p))


def test_number_too_large_for_float16_is_named(tmp_path):
    config = config_of()
    params = random_params(config)
    params["model.layers.1.mlp.up_proj.weight"][0, 0] = 1e5
    folder = tmp_path / "x"
    refused(
        folder,
        "model.layers.1.mlp.up_proj.weight",
        "1e+05",
        read=lambda p: save_pretrained(config, params, p, "float16"),
    )
    assert not [file for file in folder.iterdir() if "model" in file.name]
    refused(folder, "1e+05", read=lambda p: save_pretrained(config, params, p, "float16", layout="minimind"))
    save_pretrained(config, params, folder, "bfloat16")


DISK = """
import resource, signal, sys
from npminimind.checkpoint import convert
from npminimind.errors import CheckpointError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # writes then fail, as on a full disk
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    convert(sys.argv[1], sys.argv[2], layout=sys.argv[3])
except CheckpointError as error:
    print(error)
"""


@pytest.mark.parametrize("layout", ["hf", "minimind"])
def test_full_disk_leaves_no_half_file(tmp_path, layout, run_python):
    write_folder(tmp_path / "one", random_params(config_of()), DENSE)
    code = DISK.replace("sys.argv", repr(["", str(tmp_path / "one"), str(tmp_path / "two"), layout]))
    message = run_python(code)
    assert message.startswith(str(tmp_path / "two")) and "cannot be written" in message
    assert sorted(file.name for file in (tmp_path / "two").iterdir()) in (
        ["config.json", "generation_config.json"], ["config.json"])  # fmt: skip


KILLED = """
import os, sys, npminimind.checkpoint.safetensors as s
whole = s.write_array
def stop(*arguments):
    whole(*arguments)
    os.kill(os.getpid(), 2)  # Ctrl-C
s.write_array = stop
s.save_safetensors(sys.argv[1], {"a": s.np.zeros(10), "b": s.np.zeros(10)})
"""


def test_ctrl_c_leaves_no_half_file(tmp_path):
    from conftest import CHECKOUT

    path = tmp_path / "x.safetensors"
    done = subprocess.run([sys.executable, "-c", KILLED, path], cwd=CHECKOUT, capture_output=True, timeout=60)
    assert b"KeyboardInterrupt" in done.stderr
    assert list(tmp_path.iterdir()) == []
