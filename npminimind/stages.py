"""From logits to probabilities in MiniMind's order (10.4, 10.7, 10.5, 10.6, 10.8), each stage when it is asked for."""

from functools import cached_property

LOGITS = ("logits", "after_temperature", "after_repetition_penalty", "after_top_k", "after_top_p")
STAGES = (*LOGITS, "probs")


class Stages:
    """The arrays ``[B, V]`` between the logits and the choice of a token.

    Each is computed from the one before when it is first looked at: a greedy choice needs no probabilities.

    Parameters
    ----------
    ops : namespace of functions
        The model's operators.
    logits : array [B, V]
    input_ids : int64 array [B, L]
        What the penalty looks at.
    temperature : float or None
        None leaves it out.
    repetition_penalty, top_k, top_p
        See :mod:`npminimind.sampling`.

    Examples
    --------
    >>> import numpy as np
    >>> from npminimind.ops import with_replaced
    >>> logits, ids = np.array([[2.0, 1.0, 0.5]]), np.array([[1]])
    >>> stages = Stages(with_replaced({}), logits, ids, temperature=0.5, repetition_penalty=2.0, top_k=2, top_p=None)
    >>> stages.after_repetition_penalty, stages.after_top_p
    (array([[4., 1., 1.]]), array([[4., 1., 1.]]))
    """

    def __init__(self, ops, logits, input_ids, temperature, repetition_penalty, top_k, top_p):
        self.ops, self.logits, self.input_ids = ops, logits, input_ids
        self.temperature, self.repetition_penalty = temperature, repetition_penalty
        self.top_k, self.top_p = top_k, top_p

    @cached_property
    def after_temperature(self):
        return self.logits if self.temperature is None else self.ops.apply_temperature(self.logits, self.temperature)

    @cached_property
    def after_repetition_penalty(self):
        if self.repetition_penalty == 1:
            return self.after_temperature
        return self.ops.apply_repetition_penalty(self.after_temperature, self.input_ids, self.repetition_penalty)

    @cached_property
    def after_top_k(self):
        return self.ops.apply_top_k(self.after_repetition_penalty, self.top_k)

    @cached_property
    def after_top_p(self):
        return self.ops.apply_top_p(self.after_top_k, self.top_p)

    @cached_property
    def probs(self):
        return self.ops.softmax(self.after_top_p)

    def show(self, tap):
        """All of them in order to a tap, which may put another in the place of each before the next is computed."""
        for name in STAGES:
            setattr(self, name, tap(name, getattr(self, name)))

    def __repr__(self):
        return f"<Stages {list(self.logits.shape)}: {', '.join(STAGES)}>"
