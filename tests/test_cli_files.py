"""``info``, ``score``, ``trace`` and ``convert``, against recorded numbers, the chapter, and other readers."""

import io
import json
import math
import os
import shutil
import sys
import zipfile

import numpy as np
import pytest
from cli_helpers import LETTERS, UPSTREAM, recorded, run, speaking_folder, text_of

from npminimind import MiniMindConfig, MiniMindForCausalLM, Trace
from npminimind.checkpoint import read_safetensors, save_pretrained
from npminimind.cli import info
from npminimind.names import forward_names, generation_names


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return speaking_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def recording():
    return read_safetensors(UPSTREAM / "io.safetensors")[0]


def ids_option(ids):
    return ";".join(",".join(map(str, row)) for row in np.asarray(ids).tolist())


# ---------------------------------------------------------------------------------------------
# info


def test_the_chapters_614400(capsys, tmp_path):
    """Chapter 10.3: 8 layers, K = 4, D = 96, 100 tokens; 1.2 MB in bf16. Narrow where the cache does not care."""
    config = MiniMindConfig(hidden_size=64, head_dim=96, intermediate_size=64, vocab_size=100)
    save_pretrained(config, MiniMindForCausalLM.random(config).params, tmp_path / "m", "float16")
    code, out, err = run(capsys, "info", tmp_path / "m")
    assert (code, err) == (0, "")
    (line,) = [line for line in out.splitlines() if "614,400" in line]
    assert "2 · 8 · 100 · 4 · 96" in line and "1.23 MB in 16 bits" in line and "F16" in out
    _, out, _ = run(capsys, "info", tmp_path / "m", "--json")
    facts = json.loads(out)
    assert facts["cache_elements"]["100"] == 614_400 and facts["tokenizer"] is None
    assert facts["parameters"] == sum(facts["parts"].values()) == facts["active_parameters"]


def test_parameters_by_part_at_minimind_3s_size():
    """Published: 63.9 M dense, 198.4 M with experts, of which a token meets the dense model's and the routers'."""
    parts = info.parameter_parts(MiniMindConfig())
    assert parts["token embedding"] == 6400 * 768
    assert parts["feed-forward"] == 8 * 3 * 768 * 2432
    assert parts["attention"] == 8 * 2 * (8 * 96 * 768 + 4 * 96 * 768)
    assert parts["q/k norm"] == 8 * 2 * 96 and parts["norms"] == 17 * 768
    assert round(sum(parts.values()) / 1e6, 1) == 63.9
    config = MiniMindConfig(use_moe=True)
    with_experts = info.parameter_parts(config)
    assert round(sum(with_experts.values()) / 1e6, 1) == 198.4
    assert info.active_parameters(config, with_experts) == sum(parts.values()) + 8 * 4 * 768


def test_info_of_a_file_says_why_it_was_recognised(capsys, folder, tmp_path):
    shutil.copy(f"{folder}/model.pth", tmp_path / "pretrain_64.pth")
    code, out, _ = run(capsys, "info", tmp_path / "pretrain_64.pth")
    assert code == 0 and "No config.json" in out and "q/k norm is there" in out
    assert "tokenizer: none" in out and "all numbers are finite" in out
    _, out, _ = run(capsys, "info", folder)
    assert "tokenizer: 160 entries, 1 special" in out


def test_info_notices_a_tokenizer_of_another_model(capsys, tmp_path):
    """59 ids in the model, 160 in the tokenizer beside it."""
    config = MiniMindConfig(hidden_size=64, num_hidden_layers=1, vocab_size=59)
    speaking_folder(tmp_path)
    save_pretrained(config, MiniMindForCausalLM.random(config).params, tmp_path / "m", tokenizer_source=tmp_path)
    assert "NOT ITS TOKENIZER: the model has only 59 ids" in run(capsys, "info", tmp_path / "m")[1]


# ---------------------------------------------------------------------------------------------
# score


def test_score_is_the_recorded_logits_log_softmax(capsys, folder, recording):
    ids, logits = recording["input_ids"][0], recording["forward.logits"][0].astype(np.float64)
    expected = [logits[s, ids[s + 1]] - np.log(np.exp(logits[s]).sum()) for s in range(len(ids) - 1)]
    code, out, _ = run(capsys, "score", text_of(ids), "--model", folder, "--json")
    result = json.loads(out)
    assert code == 0 and [token["id"] for token in result["tokens"]] == ids.tolist()
    assert result["tokens"][0]["logprob"] is None
    np.testing.assert_allclose([token["logprob"] for token in result["tokens"][1:]], expected, atol=2e-4)
    np.testing.assert_allclose([token["prob"] for token in result["tokens"][1:]], np.exp(expected), rtol=2e-4)
    assert result["logprob"] == pytest.approx(math.fsum(expected), abs=1e-3)
    assert result["perplexity"] == pytest.approx(math.exp(-math.fsum(expected) / len(expected)), rel=1e-4)


def test_score_as_a_table_from_a_pipe(capsys, folder, recording, monkeypatch):
    ids = recording["input_ids"][0]
    result = json.loads(run(capsys, "score", text_of(ids), "--model", folder, "--json")[1])
    monkeypatch.setattr(sys, "stdin", io.StringIO(text_of(ids) + "\n"))
    lines = run(capsys, "score", "--model", folder)[1].splitlines()
    assert len(lines) == 1 + len(ids) + 1 and f"perplexity {result['perplexity']:.3f}" in lines[-1]
    assert lines[2].split()[2] == f"{result['tokens'][1]['logprob']:.4f}"


# ---------------------------------------------------------------------------------------------
# trace


@pytest.mark.parametrize("name", ["t.safetensors", "t.npz", "t"])
def test_a_trace_comes_back_from_each_format(capsys, folder, tmp_path, name, recording):
    """Greedy tokens of both rows as recorded, logits of the prefill as recorded, names in execution order."""
    ids, path = recording["input_ids"], tmp_path / name
    command = ["trace", "--ids", ids_option(ids), "--model", folder, "--rounds", 3, "--greedy", "--out", path]
    code, out, err = run(capsys, *command)
    assert (code, out) == (0, "") and "float64" in err
    trace = Trace.load(path)
    config = MiniMindForCausalLM.from_pretrained(folder).config
    names = [n.name for n in generation_names(config, 3) if not n.name.endswith("sample.u")]
    assert list(trace) == names
    tokens = np.concatenate([trace[f"round_{r}.sample.next_token"] for r in range(3)], axis=1)
    expected = recorded(max_new_tokens=14, eos_token_id=None, do_sample=False)
    assert tokens.tolist() == [row[13:16] for row in expected]
    np.testing.assert_allclose(trace["round_0.lm_head"], recording["forward.logits"], atol=2e-4)
    assert trace["round_0.lm_head"].dtype == np.float64 and trace["round_2.sample.finished"].dtype == bool
    assert trace.metadata["config"]["hidden_size"] == 64 and trace.metadata["input_ids"] == ids.tolist()
    assert trace.metadata["arguments"]["do_sample"] is False and trace.metadata["dtype"] == "float64"
    assert sorted(os.listdir(tmp_path)) == [name]  # nothing half-written is left


def test_files_are_what_other_readers_expect(capsys, folder, tmp_path):
    for name in ("t.npz", "t"):
        run(capsys, "trace", LETTERS[5], "--model", folder, "--rounds", 1, "--out", tmp_path / name)
    with np.load(tmp_path / "t.npz") as archive, zipfile.ZipFile(tmp_path / "t.npz") as entries:
        described = json.loads(entries.read("metadata.json"))
        assert archive["round_0.lm_head"].shape == (1, 1, 160)
    assert described["text"] == LETTERS[5] and described["names"][0] == "round_0.model.embed_tokens"
    assert np.load(tmp_path / "t" / "round_0.model.norm.npy").shape == (1, 1, 64)
    assert json.loads((tmp_path / "t" / "metadata.json").read_text("utf-8"))["input_ids"] == [[5]]


def test_given_uniforms_and_forced_ids(capsys, folder, tmp_path):
    path = tmp_path / "t.npz"
    command = ["trace", "--ids", "5,9;6,8", "--model", folder, "--out", path]
    run(capsys, *command, "--force-ids", "4,3,7", "--u", "0.25 0.5 0.125 0.75 0 0.9")
    trace = Trace.load(path)
    assert [trace[f"round_{r}.sample.u"].tolist() for r in range(3)] == [[0.25, 0.5], [0.125, 0.75], [0.0, 0.9]]
    assert [trace[f"round_{r}.sample.next_token"].tolist() for r in range(3)] == [[[4]] * 2, [[3]] * 2, [[7]] * 2]
    code, _, err = run(capsys, *command, "--u", "0.5", "--rounds", 2)
    assert code == 2 and "run out" in err


def test_torch_seed_draws_both_rows_as_torch_did(capsys, folder, tmp_path):
    settings = dict(torch_seed=2, temperature=0.85, top_k=50, top_p=0.85)
    expected = recorded(max_new_tokens=14, eos_token_id=None, do_sample=True, **settings)
    options = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    prompts = ids_option([row[:13] for row in expected])
    for count in (3, 14):
        run(
            capsys,
            "trace",
            "--ids",
            prompts,
            "--model",
            folder,
            *options,
            "--rounds",
            count,
            "--out",
            tmp_path / "t.npz",
        )
        trace = Trace.load(tmp_path / "t.npz")
        tokens = [trace[f"round_{r}.sample.next_token"][:, 0] for r in range(count)]
        assert np.stack(tokens, axis=1).tolist() == [row[13 : 13 + count] for row in expected]
    assert trace.metadata["torch_seed"] == 2


def test_one_forward_pass_has_no_prefix_and_runs_repeat(capsys, folder, tmp_path):
    run(
        capsys,
        "trace",
        "--ids",
        "5,9",
        "--model",
        folder,
        "--rounds",
        0,
        "--dtype",
        "float32",
        "--out",
        tmp_path / "a.npz",
    )
    trace = Trace.load(tmp_path / "a.npz")
    assert list(trace) == [n.name for n in forward_names(MiniMindForCausalLM.from_pretrained(folder).config)]
    assert trace["lm_head"].dtype == np.float32
    for name in ("b.npz", "c.npz"):  # without a seed too, the same command writes the same trace
        run(capsys, "trace", "--ids", "5,9", "--model", folder, "--temperature", 3, "--out", tmp_path / name)
    assert (tmp_path / "b.npz").read_bytes() == (tmp_path / "c.npz").read_bytes()


def test_what_a_trace_refuses(capsys, folder, tmp_path):
    command = ["trace", "--ids", "5", "--model", folder, "--rounds", 1, "--out"]
    (tmp_path / "there").mkdir()
    for target, words in (("x.json", "*.npz"), ("there", "there already"), ("no/x.npz", "cannot be written")):
        code, _, err = run(capsys, *command, tmp_path / target)
        assert code == 2 and words in err
    code, _, err = run(capsys, "trace", "text", "--ids", "5", "--model", folder, "--out", tmp_path / "x.npz")
    assert code == 2 and "not both" in err
    (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04 nothing")
    for name in ("bad.npz", "none.npz", "there"):
        with pytest.raises(ValueError, match=name):
            Trace.load(tmp_path / name)


# ---------------------------------------------------------------------------------------------
# convert


def test_convert_keeps_every_number(capsys, folder, tmp_path):
    """A .pth of upstream's torch becomes an HF folder, and that a .pth again; greedy text as recorded at the end."""
    code, out, err = run(capsys, "convert", folder, tmp_path / "hf")
    assert (code, out) == (0, "") and "model.safetensors" in err
    original = MiniMindForCausalLM.from_pretrained(folder).params
    run(capsys, "convert", tmp_path / "hf", tmp_path / "back", "--layout", "minimind")
    for path in (tmp_path / "hf", tmp_path / "back"):
        params = MiniMindForCausalLM.from_pretrained(path).params
        assert all(np.array_equal(params[name], original[name]) for name in original)
    ids = recorded(max_new_tokens=14, eos_token_id=None, do_sample=False)[1]
    options = ["--model", tmp_path / "hf", "--greedy", "--max-new-tokens", 14]
    assert run(capsys, "generate", text_of(ids[:13]), *options)[1] == text_of(ids) + "\n"
    run(capsys, "convert", folder, tmp_path / "half", "--dtype", "float16")
    assert json.loads(run(capsys, "info", tmp_path / "half", "--json")[1])["dtypes"] == ["F16"]
