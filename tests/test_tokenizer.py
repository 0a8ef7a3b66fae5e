"""Text to ids and back, and the chat format: the golden ids of MiniMind's own tokenizer, where it is at hand.

MiniMind's tokenizer files are upstream's and not copied into the project. They are looked for in the folder named by
MINIMIND_TOKENIZER, or in ``shared/minimind`` beside the checkout; elsewhere these tests are skipped.
"""

import importlib.util
import json
import os

import numpy as np
import pytest
from conftest import CHECKOUT, refusal
from hypothesis import given
from hypothesis import strategies as st

from npminimind import CheckpointError
from npminimind.tokenizer import Tokenizer

HELLO = [{"role": "user", "content": "你好"}]
# Facts, section 4.
WITHOUT_THINKING = [1, 832, 311, 234, 1968, 2, 234, 1, 1388, 570, 811, 234, 25, 234, 234, 26, 234, 234]
WITH_THINKING = WITHOUT_THINKING[:-5] + [234]


@pytest.fixture(scope="module")
def minimind():
    folder = os.environ.get("MINIMIND_TOKENIZER") or CHECKOUT.parent / "shared" / "minimind"
    try:
        return Tokenizer.from_pretrained(folder)
    except CheckpointError:
        pytest.skip("MiniMind's own tokenizer is not here; set MINIMIND_TOKENIZER to its folder")


@pytest.fixture(params=["jinja", "built in"])
def either(request, monkeypatch, minimind):
    """MiniMind's tokenizer, its template rendered by jinja2 or by the built-in form."""
    if request.param == "jinja":
        pytest.importorskip("jinja2")
        assert minimind.chat_template
        return minimind
    return Tokenizer(minimind.backend, chat_template=None)


class TestMiniMind:
    def test_golden_ids(self, either):
        assert either.encode(either.apply_chat_template(HELLO)) == WITHOUT_THINKING
        assert either.encode(either.apply_chat_template(HELLO, thinking=True)) == WITH_THINKING

    def test_special_tokens(self, minimind):
        assert minimind.vocab_size == 6400
        names = {0: "<|endoftext|>", 1: "<|im_start|>", 2: "<|im_end|>", 25: "<think>", 26: "</think>"}
        for token_id, name in names.items():
            assert minimind.encode(name) == [token_id]
        assert [minimind.special_id(names[i]) for i in (0, 1, 2)] == [0, 1, 2]
        assert minimind.special_id("你好") is None

    def test_a_character_can_span_tokens(self, minimind):
        ids = minimind.encode("😀龘")
        assert len(ids) == 5 and {minimind.decode([i]) for i in ids} == {"\ufffd"}
        assert minimind.decode(ids) == "😀龘"
        stream = minimind.stream()
        pieces = [stream.put(i) for i in ids]
        assert "".join(pieces) == "😀龘" and "\ufffd" not in "".join(pieces)

    @given(st.text(max_size=20))
    def test_text_comes_back(self, minimind, text):
        assert minimind.decode(minimind.encode(text), skip_special_tokens=False) == text

    @given(st.lists(st.integers(0, 6399), max_size=12))
    def test_streaming_any_ids_is_decoding_them(self, minimind, ids):
        """Ids at random are mostly broken UTF-8. What is shown is the beginning of the decoded text."""
        stream = minimind.stream()
        shown = "".join(stream.put(i) for i in ids)
        assert minimind.decode(ids).startswith(shown)


def answer(text):
    return {"role": "assistant", "content": text}


CONVERSATIONS = {
    "one": HELLO,
    "with a system prompt": [{"role": "system", "content": "简短"}, *HELLO],
    "with an answer": [*HELLO, answer("在"), {"role": "user", "content": "吗"}],
    "with a thought": [*HELLO, answer("<think>\n想\n</think>\n\n在"), *HELLO],
    "with a thought of its own": [
        *HELLO,
        answer("在") | {"reasoning_content": "想\n想"},
        *HELLO,
    ],
    "that ends with the assistant": [*HELLO, answer("在")],
    "two answers": [
        *HELLO,
        answer("a"),
        *HELLO,
        answer("b"),
        *HELLO,
    ],
    "odd white space": [{"role": "user", "content": "\n a \n"}, answer("\n\nb\n "), *HELLO],
    "markup": [{"role": "user", "content": "<b> & {{ x }} {% if %}"}],
    "empty": [{"role": "user", "content": ""}],
}


@pytest.mark.parametrize("name", CONVERSATIONS)
@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize("prompt", [False, True], ids=["whole", "open"])
def test_the_built_in_form_is_minimind_s_template(minimind, name, thinking, prompt):
    pytest.importorskip("jinja2")
    asked = dict(thinking=thinking, add_generation_prompt=prompt)
    by_template = minimind.apply_chat_template(CONVERSATIONS[name], **asked)
    assert Tokenizer(minimind.backend).apply_chat_template(CONVERSATIONS[name], **asked) == by_template


def test_tools_are_rendered_by_the_template(minimind):
    pytest.importorskip("jinja2")
    tool = {"type": "function", "function": {"name": "weather", "description": "<天气> & 'more'"}}
    text = minimind.apply_chat_template(HELLO, tools=[tool])
    assert json.dumps(tool, ensure_ascii=False) in text


class TestChat:
    def test_chatml_by_hand(self, tokenizer):
        want = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n<think>\n"
        messages = [{"role": "user", "content": "hello"}]
        assert tokenizer.apply_chat_template(messages) == want + "\n</think>\n\n"
        assert tokenizer.apply_chat_template(messages, thinking=True) == want
        assert tokenizer.apply_chat_template(messages, add_generation_prompt=False) == want.split("<|im_start|>a")[0]

    @pytest.mark.parametrize(
        "messages",
        [
            *("hello", [5], ["hello"], [{}], [{"role": "user"}], [{"content": "a"}], [{"role": 5, "content": "a"}]),
            *([{"role": "user", "content": None}], [{"role": "user", "content": ["a"]}]),
        ],
    )
    def test_messages_that_are_none(self, tokenizer, messages):
        refusal(lambda: tokenizer.apply_chat_template(messages), "message", error=TypeError)

    def test_no_messages(self, tokenizer):
        refusal(lambda: tokenizer.apply_chat_template([]), "messages are empty")

    def test_what_the_built_in_form_cannot_do(self, tokenizer):
        asked = [{"role": "user", "content": "a"}]
        refusal(lambda: tokenizer.apply_chat_template([{"role": "tool", "content": "a"}]), "tool", "[chat]")
        refusal(lambda: tokenizer.apply_chat_template(asked, tools=[{}]), "template", "[chat]")
        called = [*asked, {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]}]
        refusal(lambda: tokenizer.apply_chat_template(called), "tool", "[chat]")

    def test_without_jinja2_the_template_is_left_alone(self, tokenizer, monkeypatch):
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        other = Tokenizer(tokenizer.backend, chat_template="{{ boom }}")
        assert other.apply_chat_template(HELLO) == tokenizer.apply_chat_template(HELLO)

    @pytest.mark.parametrize(
        "template", ["{{ raise_exception('no system prompt') }}", "{% if %}", "{{ messages.x.y }}"]
    )
    def test_a_broken_template(self, tokenizer, template):
        pytest.importorskip("jinja2")
        refusal(lambda: Tokenizer(tokenizer.backend, template).apply_chat_template(HELLO), "template")

    def test_a_template_cannot_reach_python(self, tokenizer):
        pytest.importorskip("jinja2")
        evil = "{{ messages.__class__.__mro__[1].__subclasses__() }}"
        refusal(lambda: Tokenizer(tokenizer.backend, evil).apply_chat_template(HELLO), "template")


class TestEncodeAndDecode:
    @given(st.text(max_size=20))
    def test_text_comes_back(self, tokenizer, text):
        assert tokenizer.decode(tokenizer.encode(text)) == text

    def test_special_tokens_in_text(self, tokenizer):
        assert tokenizer.encode("<|im_start|>a") == [1, *tokenizer.encode("a")]
        assert tokenizer.decode([1, *tokenizer.encode("a")]) == "a"
        assert tokenizer.decode([1, *tokenizer.encode("a")], skip_special_tokens=False) == "<|im_start|>a"

    @pytest.mark.parametrize("form", [list, tuple, np.array, lambda ids: np.array([ids], np.int32)])
    def test_decode_takes_arrays(self, tokenizer, form):
        assert tokenizer.decode(form(tokenizer.encode("hello"))) == "hello"

    def test_decode_refuses_several_rows_and_what_are_no_ids(self, tokenizer):
        refusal(lambda: tokenizer.decode([[5, 6], [7, 8]]), "one row")
        refusal(lambda: tokenizer.decode([-1]), "token id -1")
        refusal(lambda: tokenizer.decode([1.5]), "integers", error=TypeError)

    @pytest.mark.parametrize("text", [5, None, b"a", ["a"]])
    def test_encode_takes_one_string(self, tokenizer, text):
        refusal(lambda: tokenizer.encode(text), "string", "batch", error=TypeError)

    def test_batch_pads_on_the_left(self, tokenizer, speaker):
        ids, mask = tokenizer.batch(["abc", "hello"])
        assert ids.dtype == mask.dtype == np.int64
        assert tokenizer.decode(ids[0]) == "abc" and mask.tolist() == [[1, 1, 1], [1, 1, 1]]
        ids, mask = tokenizer.batch(["a", "xyz"])
        assert ids[0].tolist() == [0, 0, *tokenizer.encode("a")] and mask.tolist() == [[0, 0, 1], [1, 1, 1]]
        speaker.generate(ids, mask, max_new_tokens=2, rng=0)

    @pytest.mark.parametrize("texts", [[], [""], ["a", ""]])
    def test_batch_of_nothing(self, tokenizer, texts):
        refusal(lambda: tokenizer.batch(texts), "at least one")

    def test_batch_takes_a_list(self, tokenizer):
        refusal(lambda: tokenizer.batch("abc"), "list", error=TypeError)


class TestFiles:
    def test_a_folder_or_a_file(self, tokenizer, tmp_path):
        tokenizer.backend.save(str(tmp_path / "tokenizer.json"))
        (tmp_path / "tokenizer_config.json").write_text('{"chat_template": "{{ 1 }}"}')
        for path in (tmp_path, str(tmp_path), tmp_path / "tokenizer.json"):
            read = Tokenizer.from_pretrained(path)
            assert read.encode("hello") == tokenizer.encode("hello") and read.chat_template == "{{ 1 }}"

    def test_padding_and_truncation_of_the_file_are_switched_off(self, tokenizer, tmp_path):
        from tokenizers import Tokenizer as Backend

        backend = Backend.from_str(tokenizer.backend.to_str())
        backend.enable_padding(length=50)
        backend.enable_truncation(max_length=2)
        backend.save(str(tmp_path / "tokenizer.json"))
        assert len(Tokenizer.from_pretrained(tmp_path).encode("abcdefg")) == 7

    @pytest.mark.parametrize("text", ["", "{}", "[]", "hello", '{"model": 5}'])
    def test_no_tokenizer(self, tmp_path, text):
        refusal(lambda: Tokenizer.from_pretrained(tmp_path), "no tokenizer", error=CheckpointError)
        (tmp_path / "tokenizer.json").write_text(text)
        with pytest.raises(CheckpointError, match="tokenizer.json"):
            Tokenizer.from_pretrained(tmp_path)

    @pytest.mark.parametrize("text, want", [("[]", None), ('{"chat_template": 5}', None), ("{}", None)])
    def test_a_config_without_template(self, tokenizer, tmp_path, text, want):
        tokenizer.backend.save(str(tmp_path / "tokenizer.json"))
        (tmp_path / "tokenizer_config.json").write_text(text)
        assert Tokenizer.from_pretrained(tmp_path).chat_template is want

    def test_a_broken_config(self, tokenizer, tmp_path):
        tokenizer.backend.save(str(tmp_path / "tokenizer.json"))
        (tmp_path / "tokenizer_config.json").write_text("{")
        refusal(lambda: Tokenizer.from_pretrained(tmp_path), "tokenizer_config.json", error=CheckpointError)


def test_the_package_does_not_import_tokenizers_by_itself(run_python):
    """It costs as much as NumPy, and ids need none."""
    loaded = run_python("import sys, npminimind; print('tokenizers' in sys.modules, 'jinja2' in sys.modules)")
    assert loaded.split() == ["False", "False"]
