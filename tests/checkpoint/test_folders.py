"""Which files a path stands for, and what is said of those that are not what they claim."""

import json
import os
import tracemalloc

import numpy as np
import pytest
from checkpoint_helpers import DATA, DENSE, EXPERTS, UPSTREAM, config_of, random_params, refused, write_folder

from npminimind.checkpoint import find_nonfinite, inspect, load_weights, read_safetensors, save_safetensors
from npminimind.checkpoint.pth_writer import save_pth
from npminimind.params import Weights


@pytest.fixture(scope="module")
def params():
    return random_params(config_of())


def same(checkpoint, params):
    assert set(checkpoint.weights.params) == set(params)
    for name, array in checkpoint.weights.params.items():
        np.testing.assert_array_equal(array, params[name])
    return True


# ---------------------------------------------------------------------------------------------
# Sound


@pytest.mark.parametrize("name", ["model.safetensors", "anything.safetensors", "full_sft_32.pth", "pytorch_model.bin"])
def test_folder_with_one_file(tmp_path, params, name):
    folder = write_folder(tmp_path / "m", {}, DENSE, name="gone")
    (folder / "gone").unlink()
    if name.endswith(".safetensors"):
        save_safetensors(folder / name, params)
    else:
        save_pth(folder / name, params, "float32", tied={"lm_head.weight": "model.embed_tokens.weight"})
    (folder / "generation_config.json").write_text('{"eos_token_id": [2, 0], "top_k": 20}')
    (folder / "tokenizer.json").write_text("{}")
    (folder / "training_args.bin").write_bytes(b"x")
    checkpoint = load_weights(folder)
    assert same(checkpoint, params) and checkpoint.config == config_of() and checkpoint.generation == "minimind-3"
    assert checkpoint.generation_config == {"eos_token_id": [2, 0], "top_k": 20}
    assert checkpoint.tokenizer_path == str(folder)
    assert checkpoint.nbytes == (folder / name).stat().st_size
    assert same(load_weights(str(folder) + "/"), params)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_types_are_widened_exactly(tmp_path, params, dtype):
    folder = write_folder(tmp_path / "m", params, DENSE, dtype=dtype)
    stored, _ = read_safetensors(folder / "model.safetensors")
    for target in (np.float32, np.float64):
        checkpoint = load_weights(folder, target)
        assert checkpoint.weights.dtype == target
        same(checkpoint, dict(stored))
    assert inspect(folder).dtypes == [{"float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64"}[dtype]]


def test_shards(tmp_path, params):
    names = list(params)
    folder, parts = tmp_path / "m", (names[:7], names[7:15], names[15:])
    mapping = {}
    for i, part in enumerate(parts):
        write_folder(folder, {name: params[name] for name in part}, DENSE, name=f"model-{i}.safetensors")
        mapping |= {name: f"model-{i}.safetensors" for name in part}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": mapping}))
    assert same(load_weights(folder), params) and same(load_weights(index), params)
    assert len(inspect(folder).files) == 3

    def broken(change, *words):
        index.write_text(json.dumps({"weight_map": mapping | change}))
        refused(folder, "index.json", *words)

    broken({names[0]: "../model-0.safetensors"}, "'../model-0.safetensors'", "no file name")
    broken({names[0]: "/etc/passwd"}, "no file name")
    broken({names[0]: ".."}, "no file name")
    broken({names[0]: "sub/model-0.safetensors"}, "no file name")
    broken({names[0]: 3}, "no file name")
    broken({names[0]: "missing.safetensors"}, "missing.safetensors", "not there")
    broken({names[0]: "model-1.safetensors"}, names[0], "where it is not")
    broken({"ghost": "model-0.safetensors"}, "ghost", "where it is not")
    index.write_text(json.dumps({"weight_map": {n: f for n, f in mapping.items() if n != names[0]}}))
    refused(folder, "index.json", "does not list", names[0])
    for text in ("{}", '{"weight_map": []}', '{"weight_map": {}}'):
        index.write_text(text)
        refused(folder, "index.json", "weight_map")
    save_safetensors(folder / "model-1.safetensors", {names[0]: params[names[0]]})
    index.write_text(json.dumps({"weight_map": mapping}))
    refused(folder, "model-1.safetensors", "holds too")


def test_model_safetensors_goes_first(tmp_path, params):
    folder = write_folder(tmp_path / "m", params, DENSE)
    save_pth(folder / "pretrain_32.pth", {"a": np.zeros(1)}, "float32")
    checkpoint = load_weights(folder)
    assert same(checkpoint, params) and "pretrain_32.pth" in checkpoint.notes[0]


def test_several_files_must_be_named(tmp_path, params):
    folder = tmp_path / "out"
    for stage in ("pretrain", "full_sft"):
        write_folder(folder, params, name=f"{stage}_32.safetensors")
    refused(folder, "2 files", "full_sft_32.safetensors, pretrain_32.safetensors", "name one")
    assert same(load_weights(folder / "full_sft_32.safetensors"), params)


def test_config_beside_a_named_file(tmp_path, params):
    """It is used if it fits; another model's is not, and that is said. In a folder it must fit."""
    folder = write_folder(tmp_path / "m", params, DENSE | dict(rope_theta=7e5))
    file = folder / "model.safetensors"
    assert load_weights(file).config.rope_theta == 7e5
    (folder / "config.json").write_text(json.dumps(DENSE | dict(num_hidden_layers=16)))
    checkpoint = load_weights(file)
    assert checkpoint.config == config_of()
    assert "num_hidden_layers 16, the file holds 2" in checkpoint.notes[0]
    refused(folder, "config.json", "num_hidden_layers 16, the file holds 2")
    (folder / "config.json").write_text(json.dumps(DENSE | dict(attention_bias=True)))
    refused(folder / "config.json", "attention_bias", read=lambda _: load_weights(file))


def test_given_config(tmp_path, params):
    save_safetensors(tmp_path / "x.safetensors", params)
    checkpoint = load_weights(tmp_path / "x.safetensors", config=config_of(rope_theta=3e4))
    assert checkpoint.config.rope_theta == 3e4 and same(checkpoint, params)
    for fields, word in [
        (dict(num_hidden_layers=3), "given config, which says num_hidden_layers 3"),
        (dict(qk_norm=False), "q/k norm"),
        (EXPERTS, "use_moe"),
    ]:
        refused(tmp_path / "x.safetensors", word, read=lambda path, f=fields: load_weights(path, config=config_of(**f)))


def test_tied_and_untied_heads(tmp_path, params):
    """Both stored: equal means tied; different means not, whatever config.json says."""
    embed = params["model.embed_tokens.weight"]
    checkpoint = load_weights(write_folder(tmp_path / "m", params | {"lm_head.weight": embed.copy()}, DENSE))
    assert checkpoint.config.tie_word_embeddings and "tied" in checkpoint.notes[-1]
    other = embed.copy()
    other[-1, -1] += 1
    folder = write_folder(tmp_path / "m", params | {"lm_head.weight": other}, DENSE | dict(tie_word_embeddings=True))
    checkpoint = load_weights(folder)
    assert not checkpoint.config.tie_word_embeddings
    assert checkpoint.weights.lm_head[-1, -1] == other[-1, -1] and "not tied" in checkpoint.notes[-1]
    assert not load_weights(folder / "model.safetensors").config.tie_word_embeddings


def test_recorded_checkpoints_with_and_without_config(tmp_path):
    """The nine folders that MiniMind's own code wrote."""
    folders = sorted(file.parent for file in UPSTREAM.glob("*/model.pth"))
    if not folders:
        pytest.skip(f"no recorded checkpoints in {UPSTREAM}")
    for folder in folders:
        raw = json.loads((folder / "config.json").read_text())
        checkpoint = inspect(folder)
        got = checkpoint.config.to_dict()
        assert {name: got[name] for name in raw if name != "rope_scaling"} == {
            n: raw[n] for n in raw if n != "rope_scaling"
        }
        assert checkpoint.generation == "minimind-3"
        if raw["num_experts"] != 4 and raw["use_moe"]:
            continue
        (tmp_path / "alone.pth").write_bytes((folder / "model.pth").read_bytes())
        alone = inspect(tmp_path / "alone.pth").config
        for name in ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "num_hidden_layers"):
            assert getattr(alone, name) == raw[name]
        assert (alone.tie_word_embeddings, alone.use_moe) == (raw["tie_word_embeddings"], raw["use_moe"])


def test_reading_never_needs_twice_the_weights(tmp_path):
    """Peak memory of NumPy and Python: the weights and little more, for rows, columns and half precision."""
    config = config_of(hidden_size=256, intermediate_size=1024, vocab_size=8000, head_dim=64)
    params = random_params(config)
    for dtype in ("float32", "float16", "bfloat16"):
        folder = write_folder(tmp_path / dtype, params, config.to_dict(), dtype=dtype)
        size = sum(array.nbytes for array in Weights(config).params.values())
        tracemalloc.start()
        load_weights(folder)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < size + (2 << 20), (dtype, peak, size)


# ---------------------------------------------------------------------------------------------
# A tokenizer that is not the weights'


def write_tokenizer(folder, specials, size=6400):
    vocab = {f"t{i}": i for i in range(len(specials), size)}
    tokens = [{"id": i, "content": token} for i, token in enumerate(specials)]
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocab}, "added_tokens": tokens}))


V1 = ["<unk>", "<s>", "</s>"]
V2 = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
V3 = [*V2, *(f"<|{i}|>" for i in range(3, 25)), "<think>", "</think>"]


@pytest.mark.parametrize(("generation", "own", "others"), [
    ("minimind-3", V3, [V1, V2]), ("minimind2", V2, [V1, V3]), ("minimind-1", V1, [V2, V3])])  # fmt: skip
def test_tokenizer_of_another_generation(tmp_path, generation, own, others):
    heads = dict(num_attention_heads=16, num_key_value_heads=8) if generation == "minimind-1" else dict(
        num_attention_heads=8, num_key_value_heads=2)  # fmt: skip
    config = config_of(
        vocab_size=6400, hidden_size=32, head_dim=None, num_hidden_layers=1, qk_norm=generation == "minimind-3", **heads
    )
    raw = config.to_dict() | (dict(model_type="llama") if generation == "minimind2" else {})
    params = random_params(config, dtype=np.float16)
    if generation == "minimind-1":
        import old_minimind

        params, raw = old_minimind.random_old(1, 32, 16, 8, 48, 6400), None
    folder = write_folder(tmp_path / "m", params, raw)
    write_tokenizer(folder, own)
    assert inspect(folder).generation == generation
    assert not [note for note in inspect(folder).notes if note.startswith("Warning")]
    for specials in others:
        write_tokenizer(folder, specials)
        (warning,) = [note for note in inspect(folder).notes if note.startswith("Warning")]
        assert generation in warning and "gibberish" in warning
    write_tokenizer(folder, own, size=6401)
    assert "6400 rows" in inspect(folder).notes[-1]
    for broken in ("", "{}", "[]", '{"model": {"vocab": 3}, "added_tokens": []}', "[" * 100_000):
        (folder / "tokenizer.json").write_text(broken)
        assert "tokenizer" not in inspect(folder).notes[-1]


def test_real_tokenizer():
    """MiniMind-3's own files, where they are beside the checkout."""
    from npminimind.checkpoint.tokenizer_check import tokenizer_notes

    folder = os.environ.get("MINIMIND_TOKENIZER", UPSTREAM.parents[3] / "shared" / "minimind")
    if not os.path.isfile(os.path.join(folder, "tokenizer.json")):
        pytest.skip(f"MiniMind-3's tokenizer.json is not in {folder} (set MINIMIND_TOKENIZER)")
    config = config_of(vocab_size=6400)
    assert tokenizer_notes(folder, config, "minimind-3") == []
    assert "minimind-3's" in tokenizer_notes(folder, config, "minimind2")[0]


# ---------------------------------------------------------------------------------------------
# Not what they claim


@pytest.mark.parametrize(("data", "words"), [
    (b"", ("empty", "download it again")),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 12\n", ("Git LFS pointer", "git lfs pull")),
    (b"<!DOCTYPE html>\n<html><head>", ("web page", "download it again")),
    (b"\n  <HTML>", ("web page",)),
    (b"\xef\xbb\xbf<?xml version='1.0'?><Error>", ("XML",)),
    (b'{"error": "Repository not found"}', ("JSON", "server")),
    (b"Entry not found", ("server",)),
    (b"GGUF\x03\x00\x00\x00" + bytes(50), ("GGUF", "quantized")),
    (b"\x1f\x8b\x08" + bytes(50), ("gzip",)),
    (b"7z\xbc\xaf\x27\x1c" + bytes(50), ("7z",)),
    (b"\x93NUMPY\x01\x00", ("NumPy file",)),
    (b"\x89HDF\r\n\x1a\n", ("HDF5",)),
    (bytes(257) + b"ustar" + bytes(300), ("tar archive",)),
    (b"\x80\x04\x95\x00\x00\x00", ("bare pickle", "torch.save")),
    (b"hello, I am a text", ("neither safetensors",)),
    (bytes(1000), ("neither safetensors",)),
    (b"\xff" * 100, ("neither safetensors",)),
    (b"P", ("neither safetensors",)),
], ids=lambda value: repr(value)[:24])  # fmt: skip
@pytest.mark.parametrize("name", ["model.safetensors", "x.pth"])
def test_recognised_for_what_it_is(tmp_path, data, words, name):
    """By its bytes, whatever its name; as a file and in a folder."""
    (tmp_path / name).write_bytes(data)
    refused(tmp_path / name, *words)
    refused(tmp_path, *words)


def test_names_do_not_matter(tmp_path, params):
    """A .pth called .safetensors, and the other way round."""
    save_safetensors(tmp_path / "x.pth", params)
    save_pth(tmp_path / "x.safetensors", params, "float32")
    assert same(load_weights(tmp_path / "x.pth"), params) and same(load_weights(tmp_path / "x.safetensors"), params)
    refused(tmp_path / "x.safetensors", "zip", read=read_safetensors)


def test_paths_that_lead_nowhere(tmp_path):
    refused(tmp_path / "nothing", "no such file or folder", "nothing is downloaded")
    refused(tmp_path, "no file of weights")
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    refused(tmp_path, "model.gguf", "GGUF")
    (tmp_path / "config.json").write_text("{}")
    refused(tmp_path / "config.json", "give its folder")
    (tmp_path / "model.safetensors").mkdir()
    refused(tmp_path, "cannot be read")
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "regular file")


def test_tensors_that_share_memory_claim_too_much(tmp_path):
    """A thousand names over one storage would blow a small file up."""
    save_pth(tmp_path / "x.pth", {"a": np.ones(4000, np.float32)}, "float32", tied={f"t{i}": "a" for i in range(1000)})
    refused(tmp_path / "x.pth", "claims")


def test_zero_sized_weights(tmp_path, params):
    for name, shape in [("model.embed_tokens.weight", (0, 32)), ("model.layers.0.mlp.gate_proj.weight", (0, 32)),
                        ("model.layers.0.self_attn.q_norm.weight", (0,))]:  # fmt: skip
        refused(write_folder(tmp_path / "m", params | {name: np.zeros(shape, np.float32)}, DENSE))
        refused(tmp_path / "m" / "model.safetensors")


def test_layers_counted_by_a_name(tmp_path, params):
    """A tensor called layers.999999 makes no million layers."""
    name = "model.layers.999999.self_attn.q_norm.weight"
    refused(write_folder(tmp_path / "m", params | {name: np.ones(8, np.float32)}, DENSE), "1000000 layers")


def test_first_number_that_is_none(params):
    weights = Weights(config_of())
    for name, array in weights.params.items():
        array[...] = params[name]
    assert find_nonfinite(weights) is None and find_nonfinite(weights.params) is None
    weights.params["model.layers.1.mlp.up_proj.weight"][3, 4] = np.nan
    weights.params["model.norm.weight"][2] = -np.inf
    name, index, value = find_nonfinite(weights)
    assert (name, index) == ("model.layers.1.mlp.up_proj.weight", (3, 4)) and np.isnan(value)


def test_fixtures_are_small():
    assert sum(file.stat().st_size for file in DATA.iterdir()) < 100_000
