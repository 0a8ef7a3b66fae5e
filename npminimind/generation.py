"""The autoregressive loop of chapter 10: predict, choose, append, repeat."""

import inspect
import warnings
from dataclasses import dataclass, field

import numpy as np

from .cache import KVCache, check_past
from .html import step_view
from .inputs import check_input_ids, check_mask, flag, ids_within, whole_number
from .rng import TorchGenerator, Uniforms
from .stopping import Stops
from .tapping import behind, checked

PAD = 0  # what fills a stopped row where there is no EOS
HEADROOM = 256  # positions that a fresh cache has beyond the prompt


@dataclass
class Step:
    """One round of the loop, with every array that chapter 10 names.

    Attributes
    ----------
    round : int
        0 is the prefill, the others decode one token a row.
    past_len : int
        Cached positions before this round (10.2): prompt + generated − 1 from round 1 on.
    fed_ids : int64 array [B, S]
        ``input_ids[:, past_len:]``: the prompt, then one token a round; without a cache everything.
    attention_mask : int64 array [B, T] or None
        As it was fed: past and new positions.
    logits : array [B, V]
        Of the last position, before anything is done to them.
    after_temperature, after_repetition_penalty, after_top_k, after_top_p : arrays [B, V]
        After each stage, in MiniMind's order (10.4, 10.7, 10.5, 10.6).
    probs : array [B, V]
        ``softmax(after_top_p)`` (10.8).
    u : float64 array [B] or None
        The uniform numbers of the draw; None in greedy decoding and with a TorchGenerator.
    next_token : int64 array [B, 1]
        After the EOS replacement of finished rows (10.9).
    finished : bool array [B]
        After this step.
    input_ids : int64 array [B, L]
        After this step: ``next_token`` is its last column.
    past_key_values : list of (k, v) or None
        After this step, read-only, one position shorter than ``input_ids``.
    """

    round: int
    past_len: int
    fed_ids: np.ndarray
    attention_mask: np.ndarray | None
    logits: np.ndarray
    after_temperature: np.ndarray
    after_repetition_penalty: np.ndarray
    after_top_k: np.ndarray
    after_top_p: np.ndarray
    probs: np.ndarray
    u: np.ndarray | None
    next_token: np.ndarray
    finished: np.ndarray
    input_ids: np.ndarray
    past_key_values: list | None = field(repr=False)
    tokenizer: object = field(default=None, repr=False)  # so that Jupyter can show tokens as text

    @property
    def seen(self):
        """For each row the distinct ids before this step, ascending: what the penalty looks at (10.7)."""
        return [np.unique(row[:-1]) for row in self.input_ids]

    def _repr_html_(self):
        return step_view(self, self.tokenizer)


class Generation:
    """The part of a model that generates: ``generate`` and ``steps``."""

    def generate(
        self,
        input_ids=None,
        attention_mask=None,
        max_new_tokens=8192,
        temperature=0.85,
        top_p=0.85,
        top_k=50,
        eos_token_id=2,
        streamer=None,
        use_cache=True,
        num_return_sequences=1,
        do_sample=True,
        repetition_penalty=1.0,
        past_key_values=None,
        return_kv=False,
        stop=None,
        rng=None,
        tap=None,
        *,
        inputs=None,
        pad_token_id=None,
    ):
        """Continue each row of ``input_ids`` until EOS, a stop, or ``max_new_tokens``.

        Parameters
        ----------
        input_ids : int array or nested list [B, S]
            Prompts, left-padded where they differ in length (``inputs`` is another name for it).
        attention_mask : array [B, S] of 0/1, or None
            0 for pads. The last column must be 1.
        max_new_tokens : int
            0 returns the prompt.
        temperature, top_p, top_k, repetition_penalty
            See :mod:`npminimind.sampling`; ``temperature=0`` is greedy; None switches top_p or top_k off.
        eos_token_id : int, list of int, or None
            Any of them ends a row, which is then filled with the first. None: rows do not end by themselves.
        streamer : object with put(ids) and end(), or None
            Gets the prompt, then ``[B, 1]`` a step.
        use_cache : bool
            False feeds the whole sequence each round: slow, same result.
        num_return_sequences : int
            The rows are tiled: a, b, a, b.
        do_sample : bool
            False takes the most likely token (greedy).
        past_key_values : list of (k, v), optional
            From an earlier call with ``return_kv``; covers all of ``input_ids`` but at least the last one.
        return_kv : bool
            Return ``{"generated_ids", "past_kv"}``.
        stop : str, id sequence, or list of these; optional
            A row ends when one of them is complete; the completing token stays in the ids. Then it is filled
            like an EOS row, with pad (0) if there is no EOS.
        rng : None, int, numpy Generator, iterable of floats in [0, 1), or TorchGenerator
            Where randomness comes from; see :mod:`npminimind.rng`.
        tap : function (name, array) -> array, or None
            Sees every intermediate, behind ``round_{r}.``.
        pad_token_id
            Accepted and without effect, as upstream.

        Returns
        -------
        int64 array [B, S + new], or with ``return_kv`` a dict

        Raises
        ------
        ValueError, TypeError
            Anything that can't be meant. Unknown arguments are a TypeError. (Upstream swallows them.)

        Notes
        -----
        Source: chapter 10; upstream ``generate``. Differs from upstream: ``temperature=0`` works, right pads
        are refused, and a generation that reaches the end of the position table stops with a warning.

        Examples
        --------
        >>> from npminimind import MiniMindConfig, MiniMindForCausalLM
        >>> config = MiniMindConfig(hidden_size=64, num_hidden_layers=1, vocab_size=9)
        >>> model = MiniMindForCausalLM.random(config, seed=0)
        >>> model.generate([[3, 4]], max_new_tokens=3, do_sample=False, eos_token_id=None).shape
        (1, 5)
        """
        arguments = {name: value for name, value in locals().items() if name != "self"}
        loop = self.steps(**arguments)
        for _ in loop:
            pass
        return {"generated_ids": loop.input_ids, "past_kv": loop.past_key_values} if return_kv else loop.input_ids

    def steps(self, *args, **kwargs):
        """The loop behind :meth:`generate`, one :class:`Step` a round: same arguments.

        Returns
        -------
        Loop
            An iterator of Step. ``return_kv`` has no meaning here: each Step holds its cache.

        Examples
        --------
        >>> from npminimind import MiniMindConfig, MiniMindForCausalLM
        >>> config = MiniMindConfig(hidden_size=64, num_hidden_layers=1, vocab_size=9)
        >>> model = MiniMindForCausalLM.random(config, seed=0)
        >>> for step in model.steps([[3, 4]], max_new_tokens=2, eos_token_id=None):
        ...     print(step.round, step.past_len, step.fed_ids.shape, step.past_key_values[0][0].shape)
        0 0 (1, 2) (1, 2, 4, 8)
        1 2 (1, 1) (1, 3, 4, 8)
        """
        call = inspect.signature(self.generate).bind(*args, **kwargs)
        call.apply_defaults()
        return Loop(self, **call.arguments)


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
        step = dict(round=self.round, past_len=past_len, fed_ids=fed_ids, attention_mask=self.mask)
        self.append(next_token)
        self.finished = tap("sample.finished", self.finished)
        self.round += 1
        return Step(
            **step, **stages, u=u, next_token=next_token, finished=self.finished, input_ids=self.input_ids,
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
        """The stages in MiniMind's order, each array under its name."""
        o, stages = self.model.ops, {}

        def keep(name, array):
            stages[name] = tap(name, array)
            return stages[name]

        logits = keep("logits", logits)
        scaled = keep("after_temperature", o.apply_temperature(logits, self.temperature) if self.scaled else logits)
        penalised = scaled
        if self.penalty != 1:
            penalised = o.apply_repetition_penalty(scaled, self.input_ids, self.penalty)
        penalised = keep("after_repetition_penalty", penalised)
        candidates = keep("after_top_k", o.apply_top_k(penalised, self.top_k))
        nucleus = keep("after_top_p", o.apply_top_p(candidates, self.top_p))
        keep("probs", o.softmax(nucleus))
        return stages

    def choose(self, stages, tap):
        """Draw or take the greatest; rows that have finished get EOS instead."""
        u = None
        if self.greedy:
            token = self.model.ops.greedy(stages["after_top_p"])  # [B,V] -> [B]
        elif isinstance(self.rng, TorchGenerator):
            token = self.rng.multinomial(stages["probs"])
        else:
            u = tap("u", self.rng.take(len(self.input_ids)))
            token = self.model.ops.multinomial(stages["probs"], u)
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
    for name, array in params.items():
        if not np.isfinite(array).all():
            return f"the first parameter with nan or inf is {name}"
    return "all parameters are finite: the numbers overflow on the way (a trace shows where)"
