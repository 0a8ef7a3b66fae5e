"""One round of the loop, with every array that chapter 10 names."""

from dataclasses import dataclass, field

import numpy as np

from .cache import read_only
from .html import step_view
from .stages import Stages


def of_stages(name):
    """A stage by its name. Read-only: a later one may still have to be computed from it."""
    return property(lambda step: read_only(getattr(step.stages, name)))


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
        Of the last position, before anything is done to them. This and the next five are read-only.
    after_temperature, after_repetition_penalty, after_top_k, after_top_p : arrays [B, V]
        After each stage, in MiniMind's order (10.4, 10.7, 10.5, 10.6).
    probs : array [B, V]
        ``softmax(after_top_p)`` (10.8).
    stages : Stages
        These six together. A greedy step computes top-k, top-p and probs when they are looked at.
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
    stages: Stages
    u: np.ndarray | None
    next_token: np.ndarray
    finished: np.ndarray
    input_ids: np.ndarray
    past_key_values: list | None = field(repr=False)
    tokenizer: object = field(default=None, repr=False)  # so that Jupyter can show tokens as text

    logits = of_stages("logits")
    after_temperature = of_stages("after_temperature")
    after_repetition_penalty = of_stages("after_repetition_penalty")
    after_top_k = of_stages("after_top_k")
    after_top_p = of_stages("after_top_p")
    probs = of_stages("probs")

    @property
    def seen(self):
        """For each row the distinct ids before this step, ascending: what the penalty looks at (10.7)."""
        return [np.unique(row[:-1]) for row in self.input_ids]

    def _repr_html_(self):
        return step_view(self, self.tokenizer)
