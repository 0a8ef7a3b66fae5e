"""Which known mistake reproduces a port's numbers."""

import functools
from dataclasses import dataclass, field

import numpy as np

from .compare_files import IDS
from .compare_pattern import to_bfloat16
from .compare_run import Run
from .compare_traces import with_rounded_weights
from .diagnose_fit import Evidence
from .mistakes import MISTAKES

ROUNDINGS = {
    "float16": lambda x: x.astype(np.float16).astype(x.dtype),
    "bfloat16": lambda x: to_bfloat16(x).astype(x.dtype),
}
MOST_TOGETHER = 3


@dataclass
class Diagnosis:
    """What explains a port's numbers.

    Attributes
    ----------
    evidence : str
        ``trace``, ``logits`` or ``generated ids``.
    correct : bool
        The model without any mistake reproduces the numbers.
    mistakes : list of list of Mistake
        Explanations; each is one mistake, or several that were made together. More than one explanation: this
        evidence does not tell them apart.
    weights : str or None
        ``float16`` or ``bfloat16``: the numbers are those of rounded weights.
    wrong : list of str
        Names that are wrong by themselves: not what the model makes of the candidate's own arrays before them.
    """

    evidence: str
    correct: bool
    mistakes: list = field(default_factory=list)
    weights: str | None = None
    wrong: list = field(default_factory=list)
    shown: Evidence | None = field(default=None, repr=False)

    @functools.cached_property
    def hidden(self):
        """Where the candidate is right: the mistakes that this evidence could not have shown."""
        return explaining(self.shown, self.shown.model) if self.correct else []

    @property
    def ids(self):
        """The explanations as ids; mistakes made together are joined by ``+``."""
        return ["+".join(mistake.id for mistake in together) for together in self.mistakes]

    def as_data(self):
        """Plain values for JSON."""
        return {
            "evidence": self.evidence,
            "correct": self.correct,
            "explanations": [[{"id": m.id} | m.flag() for m in together] for together in self.mistakes],
            "weights": self.weights,
            "wrong_by_themselves": self.wrong,
            "not_visible": [mistake.id for mistake in self.hidden],
        }

    def __str__(self):
        from .report_text import diagnosis_text

        return diagnosis_text(self)


def diagnose(model, candidate, reference=None, input_ids=None, attention_mask=None, u=None, **arguments):
    """Name the mistake in a port.

    Every known mistake is planted in the model in turn, and each of the candidate's arrays is computed again from
    the candidate's own arrays before it. A mistake that reproduces all of them explains them.

    Parameters
    ----------
    model : MiniMindForCausalLM
        With the weights that the port uses.
    candidate : dict of str -> array, or array
        A trace, whole or in part; logits ``[B, S, V]``; or generated ids ``[B, L]``, the prompt included.
    reference : Trace, optional
        Says what was run; or give it here:
    input_ids, attention_mask
        As the model takes them.
    u : array [R, B], optional
        The uniform numbers that ids were drawn with; without them they were chosen greedily.
    **arguments
        As ``generate`` takes them.

    Returns
    -------
    Diagnosis

    Raises
    ------
    ValueError
        Neither ``reference`` nor ``input_ids``; ids or arrays that do not fit.

    Examples
    --------
    >>> from npminimind import MiniMindConfig, MiniMindForCausalLM
    >>> model = MiniMindForCausalLM.random(MiniMindConfig(hidden_size=64, num_hidden_layers=2, vocab_size=99), seed=0)
    >>> def port(x):
    ...     return x / (1 + np.exp(-1.702 * x))
    >>> diagnose(model, model.with_ops(silu=port)([[3, 4, 5]]).logits, input_ids=[[3, 4, 5]]).ids
    ['silu-quick-gelu']
    """
    if input_ids is None and reference is not None:
        run = Run.of(reference)
    else:
        run = run_of(input_ids, attention_mask, u, arguments)
    evidence = Evidence(model.astype(np.float64), named(candidate), run)
    wrong = beyond(evidence.misfit(evidence.model))
    if not wrong:
        return Diagnosis(evidence.kind, True, shown=evidence)
    return explained(evidence, wrong)


def named(candidate):
    """An array alone: ids or logits."""
    if isinstance(candidate, dict):
        return candidate
    array = np.asarray(candidate)
    return {IDS if array.dtype.kind in "iu" else "lm_head": array}


def run_of(input_ids, attention_mask, u, arguments):
    if input_ids is None:
        raise ValueError("give a reference trace, or the input_ids that the candidate was made of")
    ids = np.atleast_2d(np.asarray(input_ids, np.int64))
    mask = None if attention_mask is None else np.atleast_2d(np.asarray(attention_mask, np.int64))
    most = arguments.pop("max_new_tokens", 0)
    run = Run(ids, mask, bool(arguments) or u is not None or most > 0, arguments, most=most)
    if u is not None:
        run.u = np.asarray(u, np.float64).reshape(-1, len(ids) * arguments.get("num_return_sequences", 1))
    return run


def beyond(misfit):
    return [name for name, distance in misfit.items() if not distance <= 1]


def explaining(evidence, model):
    """The mistakes that reproduce all that was given."""
    return [
        mistake
        for mistake in applicable(model)
        if not beyond(evidence.misfit(mistake.plant(model), mistake.blurred, early=True))
    ]


def applicable(model):
    return [mistake for mistake in MISTAKES if mistake.applies(model.config)]


def explained(evidence, wrong):
    """One mistake; else rounded weights, alone or with one; else several together."""
    found = explaining(evidence, evidence.model)
    if not found and evidence.set_whole_rows_only() and beyond(evidence.misfit(evidence.model)):
        found = explaining(evidence, evidence.model)
    if found:
        return Diagnosis(evidence.kind, False, [[mistake] for mistake in found], wrong=wrong)
    if evidence.kind != "generated ids":
        for bits, rounding in ROUNDINGS.items():
            rounded = with_rounded_weights(evidence.model, rounding)
            if not beyond(evidence.misfit(rounded, early=True)):
                return Diagnosis(evidence.kind, False, weights=bits, wrong=wrong)
            found = explaining(evidence, rounded)
            if found:
                return Diagnosis(evidence.kind, False, [[mistake] for mistake in found], bits, wrong)
    together = several(evidence, wrong) if evidence.kind == "trace" else []
    return Diagnosis(evidence.kind, False, [together] if together else [], wrong=wrong)


def several(evidence, wrong):
    """Mistakes that together explain everything, each of them curing some of what is wrong and harming nothing."""
    model, planted, blurred, left = evidence.model, [], (), set(wrong)
    while left and len(planted) < MOST_TOGETHER:
        best = None
        for mistake in applicable(model):
            still = set(beyond(evidence.misfit(mistake.plant(model), blurred + mistake.blurred)))
            if still < left and (best is None or len(still) < len(best[1])):
                best = mistake, still
        if best is None:
            return []
        mistake, left = best
        model, blurred = mistake.plant(model), blurred + mistake.blurred
        planted.append(mistake)
    return [] if left else planted
