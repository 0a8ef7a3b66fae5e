"""Stop words: ends a row when one is complete, also across tokens; text ends before it, ids with it."""

import numpy as np
import pytest
from conftest import refusal, scripted
from hypothesis import assume, given
from hypothesis import strategies as st

from npminimind.stopping import StopText, held_back, parse_stop
from npminimind.tokenizer import Tokenizer

words = st.text("abc", min_size=1, max_size=4)


def say(saying, text_or_ids, stop, tokenizer, **arguments):
    """What is streamed, and the ids that came, when the model says this."""
    ids = tokenizer.encode(text_or_ids) if isinstance(text_or_ids, str) else text_or_ids
    asked = dict(do_sample=False, max_new_tokens=len(ids), stop=stop) | arguments
    text = "".join(saying(ids).stream("a", **asked))
    new = saying(ids).generate([[3]], **asked)[0, 1:].tolist()
    return text, new


class TestText:
    @pytest.mark.parametrize("stop", ["end", ["end"], ("end",), ["never", "end"]])
    def test_text_ends_before_the_stop_and_ids_with_it(self, saying, tokenizer, stop):
        text, ids = say(saying, "hello the end of it", stop, tokenizer)
        assert text == "hello the "
        assert tokenizer.decode(ids).startswith("hello the end")
        assert not tokenizer.decode(ids[:-1]).startswith("hello the end")

    def test_a_stop_that_straddles_tokens(self, saying, tokenizer):
        """The text hell is [he][ll]; the stop "el" begins in one token and ends in the next."""
        assert [tokenizer.decode([i]) for i in tokenizer.encode("hello")] == ["he", "ll", "o"]
        text, ids = say(saying, "hello", "el", tokenizer)
        assert (text, tokenizer.decode(ids)) == ("h", "hell")

    def test_a_stop_inside_a_character_of_several_tokens(self, saying, tokenizer):
        assert len(tokenizer.encode("你")) == 3
        text, ids = say(saying, "说你好!", "你好", tokenizer)
        assert (text, tokenizer.decode(ids)) == ("说", "说你好")

    def test_what_might_become_a_stop_is_let_go_when_it_does_not(self, saying, tokenizer):
        text, ids = say(saying, "en el ennd", "end", tokenizer)
        assert text == tokenizer.decode(ids) == "en el ennd"

    def test_a_special_token_as_text(self, saying, tokenizer):
        ids = [*tokenizer.encode("ab"), 1, *tokenizer.encode("cd")]
        text, new = say(saying, ids, "<|im_start|>", tokenizer)
        assert text == "ab" and new == ids[:3]

    @given(st.text("abc", max_size=12), st.lists(words, min_size=1, max_size=3))
    def test_is_the_first_occurrence_in_the_whole_text(self, saying, tokenizer, said, stops):
        """Against Python's own str.find, on the text so far, character by character (each is a token here)."""
        said = said or "a"
        text, ids = say(saying, said, stops, tokenizer, eos_token_id=None)
        for end in range(1, len(said) + 1):
            found = [said[:end].find(stop) for stop in stops if stop in said[:end]]
            if found:
                assert (text, tokenizer.decode(ids)) == (said[: min(found)], said[:end])
                return
        assert text == tokenizer.decode(ids) == said

    @given(st.text("abc", min_size=1, max_size=12), st.lists(words, min_size=1, max_size=3))
    def test_ids_and_strings_agree(self, saying, tokenizer, said, stops):
        by_text = say(saying, said, stops, tokenizer, eos_token_id=None)[1]
        by_ids = say(saying, said, [tokenizer.encode(stop) for stop in stops], tokenizer, eos_token_id=None)[1]
        assert by_text == by_ids


class TestIds:
    @pytest.mark.parametrize("stop", [7, [7], [[7]], (7,), np.int64(7), np.array([7]), [np.array([7])]])
    def test_one_id(self, dense, stop):
        script = scripted(dense, [[i] for i in range(5, 25)])
        assert script.generate([[3]], do_sample=False, stop=stop, max_new_tokens=20).tolist() == [[3, 5, 6, 7]]

    def test_id_0_is_a_stop_like_others(self, dense):
        script = scripted(dense, [[5], [0], [6]])
        assert script.generate([[3]], do_sample=False, stop=0, max_new_tokens=3).tolist() == [[3, 5, 0]]

    def test_a_sequence_and_several(self, dense):
        for stop in ([6, 7], [[6, 7]], [[9, 9], [6, 7]], [9, [6, 7]], np.array([6, 7])):
            script = scripted(dense, [[7], [6], [6], [7], [5]])
            assert script.generate([[3]], do_sample=False, stop=stop, max_new_tokens=5)[0].tolist() == [3, 7, 6, 6, 7]

    def test_each_row_by_itself_and_filled_with_eos_or_0(self, dense):
        columns = [[5, 8], [7, 9], [8, 7], [9, 5]]
        for eos, fill in ((2, 2), ([11, 2], 11), (None, 0)):
            script = scripted(dense, columns)
            ids = script.generate([[3], [3]], do_sample=False, stop=[[7]], eos_token_id=eos, max_new_tokens=4)
            assert ids[:, 1:].tolist() == [[5, 7, fill], [8, 9, 7]]

    def test_the_prompt_does_not_count(self, dense):
        script = scripted(dense, [[7], [8]])
        assert script.generate([[6]], do_sample=False, stop=[[6, 7]], max_new_tokens=2).tolist() == [[6, 7, 8]]

    def test_text_ends_before_a_sequence(self, saying, tokenizer):
        text, ids = say(saying, "hello", [tokenizer.encode("llo")], tokenizer)
        assert (text, tokenizer.decode(ids)) == ("he", "hello")


@given(words, st.lists(words, max_size=3))
def test_held_back_is_the_longest_beginning_of_a_stop(text, stops):
    assume(not any(stop in text for stop in stops))
    longest = max((n for stop in stops for n in range(len(stop)) if text.endswith(stop[:n])), default=0)
    assert held_back(text, stops) == longest


@given(st.lists(st.integers(3, 258), max_size=10))
def test_nothing_is_lost_without_a_stop(tokenizer, ids):
    text = StopText(tokenizer, ["zzz"], [(1, 1)])
    shown = "".join(text.put(i) for i in ids) + text.end()
    assert tokenizer.decode(ids).startswith(shown)
    assert tokenizer.decode(ids)[len(shown) :].strip("\ufffd") == ""


class TestBadStops:
    @pytest.mark.parametrize("stop", ["", [""], [[]], [["a"]], [b"a"], [None], [1.5], [[1.5]], [True], b"a"])
    def test_neither_text_nor_ids(self, speaker, stop):
        refusal(lambda: speaker.generate([[5]], stop=stop), "stop", error=(ValueError, TypeError))

    @pytest.mark.parametrize("stop", [1.5, object()])
    def test_no_sequence(self, speaker, stop):
        refusal(lambda: speaker.generate([[5]], stop=stop), "stop must be", error=TypeError)

    @pytest.mark.parametrize("stop", [-1, [[5, 9999]], [10**6]])
    def test_ids_outside_the_vocabulary(self, speaker, stop):
        refusal(lambda: speaker.generate([[5]], stop=stop), "outside the vocabulary")

    def test_text_without_a_tokenizer(self, dense):
        refusal(lambda: dense.generate([[5]], stop="end"), "tokenizer", "id sequences")

    @pytest.mark.parametrize("stop", [None, [], ()])
    def test_none(self, dense, stop):
        assert dense.generate([[5]], stop=stop, max_new_tokens=2, eos_token_id=None, rng=0).shape == (1, 3)

    def test_parse(self, tokenizer):
        assert parse_stop(["ab", [5, 6], 7, "<|im_end|>"], tokenizer) == (["ab"], [(5, 6), (7,), (2,)])


def test_the_last_token_keeps_its_whole_characters():
    """A token of one whole character and half of another, at the end: the whole one is text, the half is dropped."""
    from tokenizers import Tokenizer as Backend
    from tokenizers.decoders import ByteLevel
    from tokenizers.models import BPE

    halves = {"h": 0, "i": 1, "hðŁ": 2}  # byte-level spelling of "h" + the first two bytes of an emoji
    backend = Backend(BPE(vocab=halves, merges=[]))
    backend.decoder = ByteLevel()
    text = StopText(Tokenizer(backend))
    assert [text.put(1), text.put(2), text.end()] == ["i", "", "h"]
