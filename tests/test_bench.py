"""``npminimind bench``: the shape of what it says, not its times."""

import json
import math

import numpy as np
import pytest

from npminimind import MiniMindConfig, MiniMindForCausalLM
from npminimind.bench import measure
from npminimind.bench.measure import Options, active_parameters, first_token, prefill_flops
from npminimind.bench.peer import Peer
from npminimind.checkpoint import save_pretrained
from npminimind.cli import main

FIRST_TOKEN = {"model": "x", "import_numpy": 1.0, "generate": 2.0, "read_files": 0.5}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    config = MiniMindConfig(
        hidden_size=64, num_hidden_layers=1, vocab_size=64, num_attention_heads=4, num_key_value_heads=2
    )
    path = tmp_path_factory.mktemp("bench") / "model"
    save_pretrained(config, MiniMindForCausalLM.random(config).params, path)
    return path


def test_json_has_every_measurement_and_every_time_is_positive(checkpoint, capsys, monkeypatch):
    measured = sys_module("npminimind.bench.measure")
    monkeypatch.setattr(measured, "first_token", lambda options: FIRST_TOKEN)
    monkeypatch.setattr(sys_module("npminimind.bench.limits"), "TOGETHER", 2**20)
    assert main(["bench", "--model", str(checkpoint), "--quick", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [case["name"] for case in result["cases"]] == [
        "decode, batch 1, context 32",
        "decode, batch 1, context 64",
        "decode, batch 8, context 32",
        "prefill 64",
    ]
    for case in result["cases"]:
        assert all(value > 0 and math.isfinite(value) for value in case["seconds"].values())
        assert case["tokens_per_second"] > 0
    assert result["limits"]["bytes_per_second"] > 0 and result["limits"]["flops_per_second"] > 0
    assert set(result["sampling"]) == {"1", "64"} and result["tap"]["ratio"] > 0
    assert result["memory"][0]["length"] == 128 and result["memory"][0]["bytes"] >= 0
    assert result["machine"]["threads"] >= 1
    from npminimind.bench import table

    text = table(result)
    assert "prefill 64" in text and "tokens/s" in text and len(text.splitlines()) > 10


def test_first_token_of_weights_that_lie_alone(checkpoint):
    """A folder without a tokenizer, as upstream's .pth files are, is measured too."""
    result = first_token(Options(model=checkpoint, repeats=1))
    assert result["generate"] > 0 and result["import_numpy"] > 0 and result["read_files"] > 0
    assert result["model"] == checkpoint


def test_active_parameters_count_only_the_chosen_experts():
    """MiniMind-3's MoE: 198.4 M in all; three of four experts of 3 * 768 * 2432 a layer stay idle."""
    config = MiniMindConfig(use_moe=True, num_hidden_layers=1, vocab_size=8)
    model = MiniMindForCausalLM.random(config)
    total = sum(array.size for array in model.params.values())
    assert total - active_parameters(model) == 3 * 3 * 768 * 2432


@pytest.mark.parametrize("tied", [True, False])
def test_flops_of_a_prefill_counted_by_hand(tied):
    """H 64, 4 heads and 2 kv heads of 16, I 256, V 100, one layer; 2 rows of 3 tokens."""
    config = MiniMindConfig(
        hidden_size=64, num_hidden_layers=1, vocab_size=100, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=256, tie_word_embeddings=tied,
    )  # fmt: skip
    model = MiniMindForCausalLM.random(config)
    matrices = 64 * 64 + 2 * 32 * 64 + 64 * 64 + 3 * 64 * 256
    norms = 3 * 64 + 2 * 16
    products = 2 * 6 * (matrices + norms) + 2 * 2 * 100 * 64  # every token; the head for the last of each row
    attention = 2 * (1 + 2 + 3) * 4 * (2 * 16 + 2 * 16)  # rows, pairs, heads, q times k and probs times v
    assert active_parameters(model) == matrices + norms + 100 * 64
    assert prefill_flops(model, {"batch": 2, "prompt": 3}) == products + attention


def test_transformers_missing_is_one_line(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(ValueError, match="pip install"):
        measure(Options(against="transformers"))


@pytest.mark.parity
def test_the_peer_answers_from_its_own_process_with_one_time_a_step(checkpoint):
    pytest.importorskip("torch"), pytest.importorskip("transformers")
    peer = Peer(str(checkpoint), threads=1)
    prefill, decode = peer.run(np.array([[1, 2, 3]]), new_tokens=2)
    again = peer.run(np.array([[1, 2, 3], [3, 2, 1]]), new_tokens=0)
    peer.close()
    assert prefill > 0 and len(decode) == 2 and all(seconds > 0 for seconds in decode)
    assert again[0] > 0 and again[1] == [] and peer.process.returncode == 0


@pytest.mark.parity
def test_a_peer_that_cannot_start_says_why():
    pytest.importorskip("torch"), pytest.importorskip("transformers")
    with pytest.raises(ValueError, match="no such file or folder"):
        Peer("/nowhere/at/all", threads=1)


def sys_module(name):
    import importlib

    return importlib.import_module(name)
