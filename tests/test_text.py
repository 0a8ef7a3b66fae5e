"""Text in, text out: streaming never shows half a character; log-probabilities are the softmax of the logits."""

import math

import numpy as np
import pytest
from conftest import refusal
from hypothesis import given
from hypothesis import strategies as st

GREEDY = dict(do_sample=False, eos_token_id=None)


class TestStream:
    @given(st.text(min_size=1, max_size=8))
    def test_pieces_are_whole_characters_and_make_the_text(self, saying, tokenizer, said):
        ids = tokenizer.encode(said)
        pieces = list(saying(ids).stream("a", max_new_tokens=len(ids), **GREEDY))
        assert "".join(pieces) == said
        if "\ufffd" not in said:
            assert not [piece for piece in pieces if "\ufffd" in piece or piece == ""]

    def test_a_character_of_four_tokens_comes_at_once(self, saying, tokenizer):
        ids = tokenizer.encode("a😀b")
        assert len(ids) == 6
        assert list(saying(ids).stream("x", max_new_tokens=6, **GREEDY)) == ["a", "😀", "b"]

    @given(st.integers(1, 5))
    def test_half_a_character_at_the_end_is_dropped(self, saying, tokenizer, count):
        ids = tokenizer.encode("龘😀")[:count]
        text = "".join(saying(ids).stream("x", max_new_tokens=count, **GREEDY))
        assert text == ("龘" if count >= 3 else "")

    def test_it_is_what_generate_gives(self, speaker, tokenizer):
        for seed in range(5):
            ids = speaker.generate([tokenizer.encode("hello")], max_new_tokens=30, rng=seed)[0, 3:]
            text = tokenizer.decode(ids)
            streamed = "".join(speaker.stream("hello", max_new_tokens=30, rng=seed))
            assert text.startswith(streamed) and text[len(streamed) :].strip("\ufffd") == ""

    def test_the_prompt_is_not_repeated_and_special_tokens_are_left_out(self, saying, tokenizer):
        ids = [*tokenizer.encode("ab"), 1, *tokenizer.encode("c"), 2]
        assert "".join(saying(ids).stream("hello", do_sample=False, max_new_tokens=9)) == "abc"

    def test_it_comes_piece_by_piece(self, saying, tokenizer):
        pieces = saying(tokenizer.encode("abc") + [None]).stream("x", max_new_tokens=99, **GREEDY)
        assert [next(pieces) for _ in range(3)] == ["a", "b", "c"]  # the None is not asked for

    def test_chat_stream_is_stream_with_the_template(self, speaker, tokenizer):
        messages = [{"role": "user", "content": "hello"}]
        for thinking in (False, True):
            prompt = tokenizer.apply_chat_template(messages, thinking=thinking)
            asked = dict(max_new_tokens=10, rng=1)
            chat = "".join(speaker.chat_stream(messages, thinking=thinking, **asked))
            assert chat == "".join(speaker.stream(prompt, **asked))

    def test_refusals(self, speaker, dense):
        refusal(lambda: speaker.stream(""), "empty")
        refusal(lambda: speaker.stream("hello", num_return_sequences=2), "one sequence")
        refusal(lambda: dense.stream("hello"), "no tokenizer", "generate")
        refusal(lambda: dense.chat_stream([{"role": "user", "content": "a"}]), "no tokenizer")
        refusal(lambda: speaker.stream(["hello"]), "string", error=TypeError)
        refusal(lambda: speaker.stream("hello", top_k=-1), "top_k")
        refusal(lambda: speaker.stream("hello", temprature=1), "temprature", error=TypeError)
        refusal(lambda: speaker.chat_stream([]), "messages are empty")


class TestLogprobs:
    @given(st.integers(0, 99), st.integers(2, 9))
    def test_are_the_log_of_the_softmax(self, model64, seed, length):
        ids = np.random.default_rng(seed).integers(0, 60, (2, length))
        logits, ours = model64(ids).logits, model64.logprobs(ids)
        assert ours.shape == (2, length - 1) and ours.dtype == np.float64
        for row, s in np.ndindex(*ours.shape):
            total = math.fsum(math.exp(x) for x in logits[row, s])
            assert ours[row, s] == pytest.approx(logits[row, s, ids[row, s + 1]] - math.log(total), abs=1e-11)

    def test_do_not_overflow(self, dense):
        loud = dense.astype(np.float64).astype(np.float32)
        loud.params["model.norm.weight"][...] *= 1e4
        ours = loud.logprobs([[5, 6, 7]])
        assert np.isfinite(ours).all() and (ours <= 0).all()

    def test_pads_have_none(self, dense64):
        ours = dense64.logprobs([[0, 0, 5, 6], [7, 8, 9, 10]], [[0, 0, 1, 1], [1, 1, 1, 1]])
        assert np.isnan(ours).tolist() == [[True, True, False], [False, False, False]]
        np.testing.assert_allclose(ours[0, 2:], dense64.logprobs([[5, 6]])[0], atol=1e-11)

    def test_in_parts_as_at_once(self, dense64, monkeypatch):
        import npminimind.text as text

        ids = np.random.default_rng(0).integers(0, 60, (2, 20))
        whole = dense64.logprobs(ids)
        monkeypatch.setattr(text, "SCORED", 3)
        np.testing.assert_allclose(dense64.logprobs(ids), whole, atol=1e-12)

    def test_sum_over_all_continuations_is_one(self, dense64):
        each = [dense64.logprobs([[5, 6, token]])[0, 1] for token in range(60)]
        assert math.fsum(map(math.exp, each)) == pytest.approx(1, abs=1e-12)
