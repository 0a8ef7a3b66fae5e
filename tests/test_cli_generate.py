"""``npminimind generate`` against what upstream's ``generate`` returned, character for token."""

import io
import json
import shutil
import sys

import pytest
from cli_helpers import LETTERS, recorded, run, speaking_folder, text_of

from npminimind import reference_weights

GREEDY = dict(max_new_tokens=14, eos_token_id=None, do_sample=False)
PROMPT = 13  # tokens of the recorded prompts


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return speaking_folder(tmp_path_factory.mktemp("model"))


def greedy_row(row, end=None, **arguments):
    ids = recorded(**GREEDY, **arguments)[row]
    return ids[: ids.index(end, PROMPT)] if end is not None else ids


@pytest.mark.parametrize("row, end", [(0, 2), (1, None)])  # row 0 meets the EOS of its config, id 2
def test_greedy_text_is_the_recorded_one(capsys, folder, row, end):
    ids = greedy_row(row, end)
    code, out, err = run(
        capsys, "generate", text_of(ids[:PROMPT]), "--model", folder, "--greedy", "--max-new-tokens", 14
    )
    assert (code, out, err) == (0, text_of(ids) + "\n", "")


def test_repetition_penalty_without_cache_and_without_echo(capsys, folder):
    ids = greedy_row(1, repetition_penalty=1.3)
    options = ["--greedy", "--max_new_tokens=14", "--repetition_penalty", 1.3, "--no-cache", "--no-echo"]
    assert (
        run(capsys, "generate", text_of(ids[:PROMPT]), "--model", folder, *options)[1] == text_of(ids[PROMPT:]) + "\n"
    )


@pytest.mark.parametrize("sampling", [(1, 1.0, 0, 1.0), (2, 0.85, 50, 0.85)])
def test_torch_seed_draws_what_torch_drew(capsys, folder, sampling):
    """Only the first token: the recorded batch of two took the later random numbers in another order."""
    seed, temperature, top_k, top_p = sampling
    settings = dict(torch_seed=seed, temperature=temperature, top_k=top_k, top_p=top_p)
    ids = recorded(max_new_tokens=14, eos_token_id=None, do_sample=True, **settings)[0]
    options = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    arguments = [text_of(ids[:PROMPT]), "--model", folder, *options, "--max-new-tokens", 1]
    assert run(capsys, "generate", *arguments)[1] == text_of(ids[: PROMPT + 1]) + "\n"


def test_generation_config_sets_what_the_user_leaves_open(capsys, tmp_path):
    """Its do_sample false and its list of EOS ids give the recorded greedy run that ends at 70; an option wins."""
    settings = dict(do_sample=False, eos_token_id=[159, 70], max_new_tokens=3)
    folder = speaking_folder(tmp_path, eos=70, **settings)
    ids = recorded(max_new_tokens=14, eos_token_id=70, do_sample=False, rows=[0])[0]
    prompt = text_of(ids[:PROMPT])
    assert run(capsys, "generate", prompt, "--model", folder)[1] == text_of(ids[: PROMPT + 3]) + "\n"
    assert run(capsys, "generate", prompt, "--model", folder, "--max-new-tokens", 99)[1] == text_of(ids[:-1]) + "\n"
    drawn = recorded(
        max_new_tokens=14, eos_token_id=None, do_sample=True, torch_seed=2, temperature=0.85, top_k=50, top_p=0.85
    )[0]
    _, out, _ = run(capsys, "generate", prompt, "--model", folder, "--torch-seed", 2, "--max-new-tokens", 1)
    assert out == text_of(drawn[: PROMPT + 1]) + "\n"


@pytest.mark.parametrize("wrong", [{"temperature": "hot"}, {"top_k": 2.5}, {"do_sample": 1}, {"eos_token_id": "</s>"}])
def test_generation_config_that_cannot_be_meant(capsys, tmp_path, wrong):
    code, out, err = run(capsys, "generate", LETTERS[3], "--model", speaking_folder(tmp_path, **wrong))
    assert code == 2 and out == "" and "generation_config.json" in err and next(iter(wrong)) in err


def test_stop_ends_the_text_before_it(capsys, folder):
    ids = greedy_row(1)
    options = ["--greedy", "--max-new-tokens", 14, "--stop", "no such", "--stop", text_of(ids[19:21])]
    assert run(capsys, "generate", text_of(ids[:PROMPT]), "--model", folder, *options)[1] == text_of(ids[:19]) + "\n"


def test_the_same_seed_gives_the_same_text_and_stats_name_the_seed(capsys, folder):
    command = ["generate", LETTERS[5], "--model", folder, "--stats", "--max-new-tokens", 6, "--temperature", 2]
    _, out, err = run(capsys, *command)
    assert "1 tokens in, 6 out" in err and "tokens/s" in err and "first after" in err
    seed = err.split("--seed ")[1].split()[0]
    assert run(capsys, *command, "--seed", seed)[1] == out


def test_prompt_from_a_pipe_without_echos_newline(capsys, folder, monkeypatch):
    ids = greedy_row(1)
    monkeypatch.setattr(sys, "stdin", io.StringIO(text_of(ids[:PROMPT]) + "\n"))
    assert run(capsys, "generate", "--model", folder, "--greedy", "--max-new-tokens", 14)[1] == text_of(ids) + "\n"


def test_float64_and_lora_are_taken(capsys, folder, tmp_path):
    ids = greedy_row(1)
    command = ["generate", text_of(ids[:PROMPT]), "--model", folder, "--greedy", "--max-new-tokens", 14]
    assert run(capsys, *command, "--dtype", "float64")[1] == text_of(ids) + "\n"
    (tmp_path / "lora.pth").write_bytes(b"")
    code, _, err = run(capsys, *command, "--lora", tmp_path / "lora.pth")
    assert code == 2 and "lora.pth" in err


def test_weights_that_are_not_finite_stop_it_and_are_named(capsys, tmp_path):
    import numpy as np

    from npminimind import MiniMindForCausalLM
    from npminimind.checkpoint import save_pretrained

    model = MiniMindForCausalLM.from_pretrained(speaking_folder(tmp_path))
    model.params["model.layers.1.mlp.up_proj.weight"][3, 4] = np.nan
    save_pretrained(model.config, model.params, tmp_path / "bad", tokenizer_source=tmp_path)
    code, _, err = run(capsys, "generate", LETTERS[3], "--model", tmp_path / "bad")
    assert code == 2 and "model.layers.1.mlp.up_proj.weight" in err
    _, out, _ = run(capsys, "info", tmp_path / "bad", "--json")
    found = {"name": "model.layers.1.mlp.up_proj.weight", "index": [3, 4], "value": "nan"}
    assert json.loads(out)["nonfinite"] == found


def test_a_tokenizer_may_lie_elsewhere(tmp_path, capsys):
    """A lone file of weights speaks with ``--tokenizer``; without it the message says so."""
    lone = tmp_path / "lone.safetensors"
    shutil.copy(reference_weights() / "minimind-tiny" / "model.safetensors", lone)
    command = ["generate", "Once upon", "--model", lone, "--max-new-tokens", 4, "--greedy"]
    code, out, _ = run(capsys, *command, "--tokenizer", "minimind-tiny")
    assert code == 0 and out.startswith("Once upon a time")
    code, _, err = run(capsys, *command)
    assert code == 2 and "--tokenizer PATH" in err
