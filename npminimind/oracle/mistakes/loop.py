"""Mistakes in the loop around the model: the order of the stages, EOS, rows, what the penalty sees."""

import copy

import numpy as np

from ...loop import Loop
from ...rng import Uniforms
from ...stages import STAGES
from ...tapping import no_tap
from .mistake import Mistake, with_loop


def alone(stages, name, x):
    """One stage of x, whatever stands before it."""
    one = copy.copy(stages)
    vars(one).update(dict.fromkeys(STAGES[: STAGES.index(name)], x))
    return getattr(one, name)


def in_order(*names):
    """The stages one after the other in this order."""

    def process(self, logits, tap):
        stages = Loop.process(self, logits, no_tap)
        stages.logits = x = tap("logits", logits)
        for name in (*names, "probs"):
            x = tap(name, alone(stages, name, x))
            setattr(stages, name, x)
        return stages

    return with_loop(process=process)


def penalty_seeing(ids_of):
    """A penalty that looks at ``ids_of(loop) -> [B, L]`` instead of at the whole row."""

    def process(self, logits, tap):
        whole, self.input_ids = self.input_ids, ids_of(self)
        stages = Loop.process(self, logits, tap)
        self.input_ids = whole
        return stages

    def start(self, *args, **kwargs):
        Loop.__init__(self, *args, **kwargs)
        self.prompt_length = self.input_ids.shape[1]

    return with_loop(process=process, __init__=start)


def not_renormalised(self, logits, tap):
    """Probabilities from before the filters, zeroed where filtered: their sum is below one."""
    stages = Loop.process(self, logits, lambda name, array: array if name == "probs" else tap(name, array))
    unfiltered = self.model.ops.softmax(stages.after_repetition_penalty)
    stages.probs = tap("probs", np.where(np.isneginf(stages.after_top_p), 0, unfiltered).astype(unfiltered.dtype))
    return stages


def draw_not_renormalised(self, stages, tap):
    """u is not scaled to the sum: beyond it the last candidate is taken."""

    def multinomial(probs, u):
        cumulative = np.cumsum(probs, axis=-1, dtype=np.float64)
        last = probs.shape[-1] - 1 - np.argmax(probs[:, ::-1] > 0, axis=-1)
        return np.where(u < cumulative[:, -1], np.argmax(cumulative > u[:, None], axis=-1), last)

    return choose_with(self, stages, tap, model=self.model.with_ops(multinomial=multinomial))


def choose_with(self, stages, tap, **other):
    """The loop's own choice, some of its attributes being others meanwhile."""
    before = {name: getattr(self, name) for name in other}
    vars(self).update(other)
    chosen = Loop.choose(self, stages, tap)
    vars(self).update(before)
    return chosen


def rows_go_on(self, stages, tap):
    """Finished rows keep choosing tokens."""
    return choose_with(self, stages, tap, finished=np.zeros_like(self.finished))


def pad_for_eos(self, stages, tap):
    return choose_with(self, stages, tap, eos=[])


def never_finished(self, next_token):
    Loop.append(self, next_token)
    self.finished = np.zeros_like(self.finished)


def all_finish_together(self, next_token):
    Loop.append(self, next_token)
    self.finished = np.full_like(self.finished, self.finished.any())


class OnlyForUnfinished:
    """Uniform numbers for the rows that go on; the others get 0."""

    def __init__(self, rng, finished):
        self.rng, self.going = rng, ~finished

    def take(self, count):
        u = np.zeros(count)
        u[self.going] = self.rng.take(int(self.going.sum()))
        return u


def finished_rows_take_no_u(self, stages, tap):
    if not isinstance(self.rng, Uniforms):
        return Loop.choose(self, stages, tap)
    return choose_with(self, stages, tap, rng=OnlyForUnfinished(self.rng, self.finished))


def interleaved(self, model, **arguments):
    """a, a, b, b instead of a, b, a, b."""
    copies = arguments["num_return_sequences"]
    Loop.__init__(self, model, **arguments)
    order = np.arange(len(self.input_ids)).reshape(copies, -1).T.ravel()
    self.input_ids = self.input_ids[order]
    self.mask = None if self.mask is None else self.mask[order]


SEEN = "other probabilities for some of what has occurred"
ROWS = "single rows are right; in a batch, rows that have ended are not"

MISTAKES = (
    Mistake("penalty-before-temperature", "order", "applies the penalty before the temperature, as HF does",
            "equal up to rounding, not bit for bit",
            change=in_order("after_repetition_penalty", "after_temperature", "after_top_k", "after_top_p")),
    Mistake("temperature-last", "order", "applies the temperature after top-k and top-p, as llama.cpp does",
            "another nucleus",
            change=in_order("after_repetition_penalty", "after_top_k", "after_top_p", "after_temperature")),
    Mistake("top-p-before-top-k", "order", "applies top-p before top-k", "the nucleus is taken from all tokens",
            change=in_order("after_temperature", "after_repetition_penalty", "after_top_p", "after_top_k")),
    Mistake("penalty-last", "order", "applies the penalty after top-k and top-p", "another candidate set",
            change=in_order("after_temperature", "after_top_k", "after_top_p", "after_repetition_penalty")),
    Mistake("penalty-skips-prompt", "rule", "does not penalise the ids of the prompt", SEEN,
            ("apply_repetition_penalty",),
            change=penalty_seeing(lambda loop: loop.input_ids[:, loop.prompt_length :])),
    Mistake("penalty-prompt-only", "rule", "penalises the ids of the prompt only, not what was generated", SEEN,
            ("apply_repetition_penalty",), change=penalty_seeing(lambda loop: loop.input_ids[:, : loop.prompt_length])),
    Mistake("penalty-misses-last", "rule", "does not penalise the token that was chosen last", SEEN,
            ("apply_repetition_penalty",),
            change=penalty_seeing(lambda loop: loop.input_ids[:, : -1 if loop.round else None])),
    Mistake("probs-not-renormalised", "missing-step",
            "draws from probabilities that were not renormalised after the filters",
            "the last candidate is drawn too often",
            change=with_loop(process=not_renormalised, choose=draw_not_renormalised)),
    Mistake("eos-row-goes-on", "loop", "lets a row that has ended choose further tokens", ROWS,
            change=with_loop(choose=rows_go_on)),
    Mistake("eos-pad", "loop", "fills a row that has ended with pad (0) instead of EOS", ROWS,
            change=with_loop(choose=pad_for_eos)),
    Mistake("eos-ignored", "loop", "never stops at EOS", "right up to the first EOS",
            change=with_loop(append=never_finished)),
    Mistake("eos-ends-all", "loop", "ends all rows with the first that ends",
            "in a batch, the other rows are cut short",
            change=with_loop(append=all_finish_together)),
    Mistake("u-skips-finished", "loop", "takes no random number for rows that have ended",
            "after the first row has ended, other rows draw with the wrong numbers",
            change=with_loop(choose=finished_rows_take_no_u)),
    Mistake("return-sequences-interleaved", "loop", "orders num_return_sequences a, a, b, b instead of a, b, a, b",
            "rows are in another order", change=with_loop(__init__=interleaved)),
)  # fmt: skip
