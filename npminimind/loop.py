"""The autoregressive loop of chapter 10: predict, choose, append, repeat."""

import warnings

import numpy as np

from .cache import KVCache, check_past
from .inputs import check_input_ids, check_mask, flag, ids_within, whole_number
from .nonfinite import find_nonfinite
from .rng import TorchGenerator, Uniforms
from .stages import Stages
from .step import Step
from .stopping import Stops
from .tapping import behind, checked, no_tap

PAD = 0  # what fills a stopped row where there is no EOS
HEADROOM = 256  # positions that a fresh cache has beyond the prompt


class Loop:
    """The state of a generation between two rounds; iterating runs the rounds.

    Attributes
    ----------
    input_ids : int64 array [B, L]
        Prompt and everything generated so far.
    past_key_values : list of (k, v) or None
        Covers all of ``input_ids`` but the last column.
    finished : bool array [B]
    """

    def __init__(
        self, model, *, input_ids, attention_mask, max_new_tokens, temperature, top_p, top_k, eos_token_id, streamer,
        use_cache, num_return_sequences, do_sample, repetition_penalty, past_key_values, return_kv, stop, rng, tap,
        inputs, pad_token_id,
    ):  # fmt: skip
        copies = whole_number("num_return_sequences", num_return_sequences, least=1)
        ids = check_input_ids(prompt_of(input_ids, inputs), model.config.vocab_size)
        model.check_positions(ids.shape[1])
        mask = check_mask(attention_mask, *ids.shape)
        if mask is not None and not mask[:, -1].all():
            raise ValueError(
                "attention_mask ends with 0: generation needs left pads, as model.tokenizer.batch makes them"
            )
        self.model, self.tap = model, checked(tap)
        self.input_ids = np.tile(ids, (copies, 1))  # a, b, a, b
        self.mask = None if mask is None else np.tile(mask, (copies, 1))
        self.max_new_tokens = whole_number("max_new_tokens", max_new_tokens, least=0)
        self.temperature, self.penalty, self.top_k, self.top_p = temperature, repetition_penalty, top_k, top_p
        self.eos = eos_ids(eos_token_id, model.config.vocab_size)
        self.rng = rng if isinstance(rng, TorchGenerator) else Uniforms(rng)
        self.stops = Stops(stop, model.tokenizer, len(self.input_ids))
        for sequence in self.stops.sequences:
            ids_within(sequence, model.config.vocab_size)
        if streamer is not None and not (hasattr(streamer, "put") and hasattr(streamer, "end")):
            raise TypeError(f"streamer must be an object with put(ids) and end(), not {streamer!r}")
        flag("return_kv", return_kv)
        self.streamer, self.use_cache = streamer, flag("use_cache", use_cache)
        self.past_key_values = self.check_cache(past_key_values, copies)
        self.cache = None  # made at the first round
        self.finished = np.zeros(len(self.input_ids), bool)
        self.round = 0
        self.ended = False
        check_stages(model.ops, self)
        self.greedy = not flag("do_sample", do_sample) or temperature == 0
        # No temperature changes a greedy choice: its limits, 0 and what is infinite in this dtype, are left out.
        self.scaled = not self.greedy or 0 < temperature <= float(np.finfo(model.dtype).max)

    def check_cache(self, past, copies):
        if past is None:
            return None
        if copies > 1:
            raise ValueError("past_key_values and num_return_sequences > 1 can't go together; tile both yourself")
        check_past(past, self.model.config, len(self.input_ids))
        if np.shape(past[0][0])[1] >= self.input_ids.shape[1]:
            raise ValueError("past_key_values covers all of input_ids: at least the last id must be new")
        return past

    def __iter__(self):
        return self

    def __next__(self):
        if self.round == 0 and self.streamer is not None and not self.ended:
            self.streamer.put(self.input_ids)
        if self.ended or self.round == self.max_new_tokens or self.finished.all() or self.at_end_of_table():
            if self.streamer is not None and not self.ended:
                self.streamer.end()
            self.ended = True
            raise StopIteration
        step = self.one_round()
        if self.streamer is not None:
            self.streamer.put(step.next_token)
        return step

    def at_end_of_table(self):
        limit = self.model.config.max_position_embeddings
        if self.input_ids.shape[1] <= limit:
            return False
        warnings.warn(f"generation stopped: all max_position_embeddings = {limit} positions are used", stacklevel=4)
        return True

    def one_round(self):
        """Forward, stages, choice, EOS replacement, append: chapter 10.2 from top to bottom."""
        tap = behind(f"round_{self.round}.", self.tap)
        past_len, fed_ids, logits = self.next_logits(tap)
        stages = self.process(logits, behind("sample.", tap))
        next_token, u = self.choose(stages, behind("sample.", tap))
        fed = dict(round=self.round, past_len=past_len, fed_ids=fed_ids, attention_mask=self.mask)
        self.append(next_token)
        self.finished = tap("sample.finished", self.finished)
        self.round += 1
        return Step(
            **fed, stages=stages, u=u, next_token=next_token, finished=self.finished, input_ids=self.input_ids,
            past_key_values=self.past_key_values, tokenizer=self.model.tokenizer,
        )  # fmt: skip

    def next_logits(self, tap):
        """Feed what is not cached yet; the logits of the last position."""
        batch, length = self.input_ids.shape
        if self.cache is None or not self.use_cache:
            room = min(length + min(self.max_new_tokens, HEADROOM), self.model.config.max_position_embeddings)
            past = self.past_key_values if self.use_cache else None
            self.cache = KVCache(self.model.config, batch, room, self.model.dtype, past)
        past_len = self.cache.length
        fed_ids = self.input_ids[:, past_len:]  # the prompt, then one token a round
        hidden = self.model.hidden_states(fed_ids, self.mask, self.cache, tap)
        logits = self.model.logits(hidden, 1, tap)[:, -1]  # [B,1,V] -> [B,V]
        if not np.isfinite(logits.max(axis=-1)).all():
            raise ValueError(f"the logits are not finite; {first_not_finite(self.model.params)}")
        self.past_key_values = self.cache.past_key_values() if self.use_cache else None
        return past_len, fed_ids, logits

    def process(self, logits, tap):
        """The stages in MiniMind's order; with a tap all of them at once, else each when it is needed."""
        temperature = self.temperature if self.scaled else None
        stages = Stages(self.model.ops, logits, self.input_ids, temperature, self.penalty, self.top_k, self.top_p)
        if tap is not no_tap:
            stages.show(tap)
        return stages

    def choose(self, stages, tap):
        """Draw or take the greatest; rows that have finished get EOS instead."""
        u = None
        if self.greedy:
            # Neither top-k nor top-p removes the greatest logit, unless somebody has put another in its place.
            same = tap is no_tap and not self.model.replaced
            logits = stages.after_repetition_penalty if same else stages.after_top_p
            token = self.model.ops.greedy(logits)  # [B,V] -> [B]
        elif isinstance(self.rng, TorchGenerator):
            token = self.rng.multinomial(stages.probs)
        else:
            u = tap("u", self.rng.take(len(self.input_ids)))
            token = self.model.ops.multinomial(stages.probs, u)
        fill = self.eos[0] if len(self.eos) else PAD
        token = np.where(self.finished, fill, np.reshape(token, len(self.finished)))
        next_token = tap("next_token", token[:, None])  # [B] -> [B,1]
        return ids_within(next_token, self.model.config.vocab_size), u

    def append(self, next_token):
        self.input_ids = np.concatenate([self.input_ids, next_token], axis=1)
        if self.mask is not None:
            self.mask = np.concatenate([self.mask, np.ones_like(next_token)], axis=1)
        ended = (next_token == self.eos).any(axis=1) | self.stops.completed(next_token[:, 0], self.finished)
        self.finished = self.finished | ended


def prompt_of(input_ids, inputs):
    if (input_ids is None) == (inputs is None):
        raise TypeError("give the prompt once, as input_ids (or as inputs, its other name)")
    return inputs if input_ids is None else input_ids


def eos_ids(eos_token_id, vocab_size):
    """None, one id or several -> an array of ids."""
    if eos_token_id is None:
        return np.array([], np.int64)
    ids = np.atleast_1d(np.asarray(eos_token_id))
    if ids.ndim != 1 or ids.dtype.kind not in "iu" and ids.size:
        raise TypeError(f"eos_token_id must be an int, a list of ints or None, not {eos_token_id!r}")
    return ids_within(ids, vocab_size)


def check_stages(ops, loop):
    """Run the stages once on three logits, so that an impossible argument is refused before the model runs."""
    logits = np.zeros((1, 3), np.float32)
    ops.apply_temperature(logits, loop.temperature)
    ops.apply_repetition_penalty(logits, [[0]], loop.penalty)
    ops.apply_top_k(logits, loop.top_k)
    ops.apply_top_p(logits, loop.top_p)


def first_not_finite(params):
    found = find_nonfinite(params)
    if found:
        return f"the first parameter with nan or inf is {found.name}"
    return "all parameters are finite: the numbers overflow on the way (a trace shows where)"
