"""``npminimind chat``: what is fed to the model, which file is meant, how a conversation is kept."""

import io
import os
import shutil
import sys

import pytest
from cli_helpers import LETTERS, recorded, run, speaking_folder, text_of

from npminimind import MiniMindForCausalLM
from npminimind.cli.chat import Conversation

GREEDY = dict(max_new_tokens=14, eos_token_id=None, do_sample=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return speaking_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture
def prompts(monkeypatch):
    """The texts that the model is asked to continue; it answers A, then B, …"""
    seen = []

    def stream(self, prompt, **arguments):
        seen.append(prompt)
        yield from "ABCDEFG"[len(seen) - 1]

    monkeypatch.setattr(MiniMindForCausalLM, "stream", stream)
    return seen


def piped(monkeypatch, text):
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def turns(*pairs, last):
    """ChatML as MiniMind writes it (facts: an empty think block where there is no thinking)."""
    user, assistant = "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    return "".join(f"{user}{q}{assistant}{a}<|im_end|>\n" for q, a in pairs) + user + last + assistant


def test_one_message(capsys, folder, prompts):
    assert run(capsys, "chat", "hello", "--model", folder) == (0, "A\n", "")
    assert prompts == [turns(last="hello")]


def test_thinking_and_system(capsys, folder, prompts):
    run(capsys, "chat", "hello", "--model", folder, "--open_thinking", 1, "--system", "Be kind.")
    run(capsys, "chat", "hello", "--model", folder, "--thinking")
    user = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n<think>\n"
    assert prompts == ["<|im_start|>system\nBe kind.<|im_end|>\n" + user, user]


def test_piped_lines_are_one_conversation(capsys, folder, prompts, monkeypatch):
    piped(monkeypatch, "one\n\ntwo\nthree")
    assert run(capsys, "chat", "--model", folder) == (0, "A\nB\nC\n", "")
    assert prompts == [
        turns(last="one"),
        turns(("one", "A"), last="two"),
        turns(("one", "A"), ("two", "B"), last="three"),
    ]


@pytest.mark.parametrize("kept, expected", [(0, []), (2, [("two", "B")])])
def test_historys_counts_messages_as_upstream_does(capsys, folder, prompts, monkeypatch, kept, expected):
    piped(monkeypatch, "one\ntwo\nthree\n")
    run(capsys, "chat", "--model", folder, "--historys", kept)
    assert prompts[2] == turns(*expected, last="three")


def test_a_long_conversation_forgets_its_beginning(capsys, folder, prompts, monkeypatch):
    """512 positions, a quarter kept free. The tokenizer knows only letters of its own."""
    first, second = LETTERS[7] * 300, LETTERS[8] * 200
    piped(monkeypatch, f"{first}\n{second}\n")
    assert run(capsys, "chat", "--model", folder)[0] == 0
    assert prompts == [turns(last=first), turns(last=second)]


def test_pretrained_weights_continue_text_from_upstreams_files(capsys, folder, prompts, tmp_path, monkeypatch):
    """eval_llm.py: ``out/pretrain_768_moe.pth`` by default names, its tokenizer in ``model/``, no template."""
    monkeypatch.chdir(tmp_path)
    os.makedirs("out"), os.makedirs("model")
    shutil.copy(f"{folder}/model.pth", "out/pretrain_768.pth")
    shutil.copy(f"{folder}/model.pth", "out/full_sft_64_moe.pth")
    shutil.copy(f"{folder}/tokenizer.json", "model")
    native = ["--load_from", "model", "--save_dir", "out"]
    assert run(capsys, "chat", "hi", *native, "--weight", "pretrain", "--hidden_size", 768, "--use_moe", 0)[0] == 0
    assert run(capsys, "chat", "hi", *native, "--hidden_size", 64, "--use_moe", 1, "--num_hidden_layers", 2)[0] == 0
    assert run(capsys, "chat", "hi", "--weight", "pretrain")[0] == 0
    assert prompts == ["<|im_start|>hi", turns(last="hi"), "<|im_start|>hi"]
    code, _, err = run(capsys, "chat", "hi", "--weight", "full_sft")
    assert code == 2 and os.path.join("out", "full_sft_768.pth") in err
    code, _, err = run(capsys, "chat", "hi", *native, "--weight", "pretrain", "--lora_weight", "lora_medical")
    assert code == 2 and os.path.join("out", "lora_medical_768.pth") in err
    code, _, err = run(capsys, "chat", "hi", "--weight", "pretrain", "--num_hidden_layers", 16)
    assert code == 2 and "2 layers" in err and "16" in err


def test_load_from_another_folder_is_that_model(capsys, folder, prompts):
    assert run(capsys, "chat", "hi", "--load_from", folder) == (0, "A\n", "")


def test_inference_rope_scaling_is_minimind_yarn(capsys, folder, monkeypatch):
    seen = []
    monkeypatch.setattr(Conversation, "answer", lambda self, message: seen.append(self.model.config))
    run(capsys, "chat", "hi", "--model", folder, "--inference_rope_scaling", "--device", "cpu")
    assert seen[0].rope_scaling["factor"] == 16 and seen[0].rope_scaling["original_max_position_embeddings"] == 2048


def test_defaults_are_eval_llms(capsys, folder, monkeypatch):
    seen = {}
    monkeypatch.setattr(Conversation, "answer", lambda self, message: seen.update(self.arguments))
    run(capsys, "chat", "hi", "--model", folder)
    expected = dict(temperature=0.85, top_p=0.95, top_k=50, repetition_penalty=1.0, max_new_tokens=8192, do_sample=True)
    assert {name: seen[name] for name in expected} == expected
    run(capsys, "chat", "hi", "--model", folder, "--temperature", 0.5, "--top_p", 0.7, "--max_new_tokens", 9)
    assert (seen["temperature"], seen["top_p"], seen["max_new_tokens"]) == (0.5, 0.7, 9)


def test_answers_are_the_models(capsys, folder, tmp_path, monkeypatch):
    """A pretrained model named by upstream's options continues the bare text (this tokenizer lacks <|im_start|>)."""
    ids = recorded(**GREEDY)[1]
    monkeypatch.setattr("npminimind.cli.chat.START", "")
    monkeypatch.chdir(tmp_path)
    os.makedirs("out")
    shutil.copytree(folder, "model")
    shutil.copy(f"{folder}/model.pth", "out/pretrain_768.pth")
    shutil.copy(f"{folder}/config.json", "out")
    options = ["--weight", "pretrain", "--greedy", "--max-new-tokens", 14, "--show_speed", 1]
    code, out, err = run(capsys, "chat", text_of(ids[:13]), *options)
    assert (code, out) == (0, text_of(ids[13:]) + "\n") and "13 tokens in, 14 out" in err and "greedy" in err


def test_commands_of_a_talk(capsys, folder, prompts, monkeypatch):
    lines = iter(["one", "/think", "", "two", "/help", "/new", "/think", "three", "/quit"])
    monkeypatch.setattr("npminimind.cli.chat.is_piped", lambda: False)
    monkeypatch.setattr("builtins.input", lambda *prompt: next(lines))
    code, out, err = run(capsys, "chat", "--model", folder)
    assert (code, out) == (0, "A\nB\nC\n") and "thinking is on" in err and err.count("/think switches") == 2
    thinking = turns(("one", "A"), last="two").removesuffix("\n</think>\n\n")
    assert prompts == [turns(last="one"), thinking, turns(last="three")]


def test_ctrl_c_ends_an_answer_and_the_talk_goes_on(capsys, folder, monkeypatch):
    prompts = []

    def stream(self, prompt, **arguments):
        prompts.append(prompt)
        yield "half"
        if len(prompts) == 1:
            raise KeyboardInterrupt
        yield " done"

    lines = iter(["one", "two"])
    monkeypatch.setattr(MiniMindForCausalLM, "stream", stream)
    monkeypatch.setattr("npminimind.cli.chat.is_piped", lambda: False)
    monkeypatch.setattr("builtins.input", lambda *prompt: next(lines, None) or (_ for _ in ()).throw(EOFError))
    code, out, _ = run(capsys, "chat", "--model", folder)
    assert (code, out) == (0, "half\nhalf done\n")
    assert prompts[1] == turns(("one", "half"), last="two")
