"""``npminimind bench``: the shape of what it says, not its times."""

import json
import math

import pytest

from npminimind import MiniMindConfig, MiniMindForCausalLM
from npminimind.bench import measure
from npminimind.bench.measure import Options, active_parameters
from npminimind.checkpoint import save_pretrained
from npminimind.cli import main


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
    monkeypatch.setattr(measured, "first_token", lambda options: {"model": "x", "import_numpy": 1.0, "generate": 2.0})
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


def test_active_parameters_count_only_the_chosen_experts():
    """MiniMind-3's MoE: 198.4 M in all; three of four experts of 3 * 768 * 2432 a layer stay idle."""
    config = MiniMindConfig(use_moe=True, num_hidden_layers=1, vocab_size=8)
    model = MiniMindForCausalLM.random(config)
    total = sum(array.size for array in model.params.values())
    assert total - active_parameters(model) == 3 * 3 * 768 * 2432


def test_transformers_missing_is_one_line(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(ValueError, match="pip install"):
        measure(Options(against="transformers"))


def sys_module(name):
    import importlib

    return importlib.import_module(name)
