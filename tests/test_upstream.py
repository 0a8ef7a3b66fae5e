"""Parity with what a PyTorch MiniMind-3 computed (tests/data/upstream): numbers, and every generated token.

The tolerances are twice the greatest differences measured over the nine configurations, float32 and float64
alike: 1.5e-5 in logits of up to 12, 4.8e-6 in hidden states of up to 5.5, 4.8e-6 in the caches. The recording is
float32, so float64 is no nearer to it: that difference is torch's own rounding.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from npminimind import MiniMindForCausalLM, TorchGenerator
from npminimind.checkpoint import read_safetensors

FOLDER = Path(__file__).parent / "data" / "upstream"
NAMES = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())
LOGITS, HIDDEN, CACHE = 3e-5, 1e-5, 1e-5


def recorded_calls(name):
    return json.loads((FOLDER / name / "io.json").read_text(encoding="utf-8"))["generate"]


@pytest.fixture(scope="module", params=[np.float32, np.float64], ids=["float32", "float64"])
def dtype(request):
    return request.param


@pytest.fixture(scope="module", params=NAMES)
def recorded(request, dtype):
    """The model, its recorded arrays, its recorded calls."""
    folder = FOLDER / request.param
    arrays, _ = read_safetensors(folder / "io.safetensors")
    return MiniMindForCausalLM.from_pretrained(folder, dtype), arrays, recorded_calls(request.param)


def near(ours, theirs, tolerance):
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance)


def test_nine_configurations_are_here():
    assert len(NAMES) == 9
    assert sum(len(recorded_calls(name)) for name in NAMES) == 140


def test_forward(recorded, dtype):
    model, io, _ = recorded
    out = model(io["input_ids"], use_cache=True)
    assert out.logits.dtype == out.hidden_states.dtype == dtype
    near(out.logits, io["forward.logits"], LOGITS)
    near(out.hidden_states, io["forward.hidden"], HIDDEN)
    for i, (k, v) in enumerate(out.past_key_values):
        near(k, io[f"forward.k.{i}"], CACHE)
        near(v, io[f"forward.v.{i}"], CACHE)
    assert f"forward.k.{len(out.past_key_values)}" not in io


def test_chunks_through_the_cache(recorded):
    model, io, _ = recorded
    ids, past, logits = io["input_ids"], None, []
    for start, end in ((0, 6), (6, 11), (11, 13)):
        out = model(ids[:, start:end], past_key_values=past, use_cache=True)
        past = out.past_key_values
        logits.append(out.logits)
    near(np.concatenate(logits, axis=1), io["chunked.logits"], LOGITS)


def test_left_pads(recorded):
    model, io, _ = recorded
    mask = io["masked.attention_mask"]
    assert (mask == 0).sum() == 5
    logits = model(io["input_ids"], mask).logits
    near(logits[mask == 1], io["masked.logits"][mask == 1], LOGITS)
    # The mask matters: without it the padded row is another.
    assert np.abs(model(io["input_ids"]).logits - io["masked.logits"])[1, 5:].max() > 0.1


def test_long_context_with_yarn(dtype):
    io, _ = read_safetensors(FOLDER / "yarn" / "io.safetensors")
    model = MiniMindForCausalLM.from_pretrained(FOLDER / "yarn", dtype)
    assert model.config.yarn["factor"] == 16
    near(model(io["long.input_ids"], logits_to_keep=1).logits[:, 0], io["long.last_logits"], LOGITS)


def test_every_generated_token(recorded):
    """140 calls: greedy, sampled as torch does, penalties, EOS, no cache, several sequences, pads."""
    model, io, calls = recorded
    for call in calls:
        arguments = dict(call["args"])
        rows, mask = arguments.pop("rows", [0, 1]), arguments.pop("mask", False)
        if "torch_seed" in arguments:
            arguments["rng"] = TorchGenerator(arguments.pop("torch_seed"))
        if mask:
            arguments["attention_mask"] = io["masked.attention_mask"][rows]
        result = model.generate(io["input_ids"][rows], return_kv=True, **arguments)
        assert result["generated_ids"].tolist() == call["generated_ids"], call["args"]
        past = result["past_kv"]
        assert (past[0][0].shape[1] if past else None) == call["cache_len"], call["args"]
