"""Walking through two traces in the order of execution: what agrees, and where they part first."""

from dataclasses import dataclass, field

import numpy as np

from ..params import Weights
from . import compare_names
from .compare_arrays import aligned, comparable, counted, difference, rms_of, unmasked
from .compare_floor import allowed, measured_floors, stated_floors
from .compare_pattern import explain
from .compare_run import Run, execution_order, place_of
from .compare_ties import near_tie

AGREES, NEAR_TIE, DIFFERS, MISSING, SHAPE, CASCADE = "agrees", "near-tie", "differs", "missing", "shape", "cascade"


@dataclass
class Row:
    """One name of the reference.

    Attributes
    ----------
    name, dumped : str
        In the reference, in the candidate.
    shape, theirs : tuple
    dtype : str
        The candidate's.
    max_abs, relative, cosine : float
        Greatest difference; over the root mean square of the reference; of the angle between both.
    allowed : float
        What may differ, relative to the root mean square.
    verdict : str
        ``agrees``, ``differs``, ``shape``, ``missing`` (not dumped), ``near-tie`` (another choice between equals),
        ``cascade`` (not comparable any more, since the token or expert before it was another one).
    at : tuple
        Where the difference is greatest.
    why : list of str
        What size and pattern of the error mean.
    """

    name: str
    dumped: str = ""
    shape: tuple = ()
    theirs: tuple = ()
    dtype: str = ""
    max_abs: float = 0.0
    relative: float = 0.0
    cosine: float = 1.0
    allowed: float = 0.0
    verdict: str = MISSING
    at: tuple | None = None
    why: list = field(default_factory=list)


@dataclass
class Report:
    """What :func:`compare` found.

    Attributes
    ----------
    rows : list of Row
        Every name of the reference, in the order of execution.
    unknown : list of str
        What the candidate has besides.
    floor : str
        Where the tolerances are from.
    diagnosis : Diagnosis or None
    """

    rows: list
    unknown: list
    floor: str
    diagnosis: object = None

    @property
    def compared(self):
        return [row for row in self.rows if row.verdict != MISSING]

    @property
    def first(self):
        """The first divergence, a Row, or None."""
        return next((row for row in self.rows if row.verdict in (DIFFERS, SHAPE)), None)

    @property
    def agrees(self):
        return bool(self.compared) and self.first is None

    def __str__(self):
        from .report_text import as_text

        return as_text(self)


def compare(reference, candidate, model=None, atol=None, rtol=None):
    """Compare a port's arrays with the reference's, name by name in the order of execution.

    Parameters
    ----------
    reference : Trace, or dict of str -> array
    candidate : dict of str -> array
        Under any of the known names (``aliases.json``).
    model : MiniMindForCausalLM, optional
        The one that made the reference: then the floor of float32 is measured instead of stated.
    atol, rtol : float, optional
        Allow ``atol + rtol * |reference|`` instead.

    Returns
    -------
    Report

    Raises
    ------
    ValueError
        Not one name of the candidate stands for one of the reference, or the model is another one.

    Examples
    --------
    >>> from npminimind import MiniMindConfig, MiniMindForCausalLM, trace
    >>> model = MiniMindForCausalLM.random(MiniMindConfig(hidden_size=64, num_hidden_layers=2, vocab_size=99), seed=0)
    >>> reference = trace(model.astype(np.float64), [[3, 4, 5]])
    >>> compare(reference, trace(model, [[3, 4, 5]]), model).agrees
    True
    >>> compare(reference, trace(model.with_ops(silu=np.tanh), [[3, 4, 5]]), model).first.name
    'model.layers.0.mlp.act'
    """
    run = Run.of(reference) if "input_ids" in getattr(reference, "metadata", {}) else None
    matches, unknown = compare_names.match(reference, candidate)
    if not matches:
        theirs, ours = (", ".join(map(repr, list(names)[:4])) for names in (candidate, reference))
        raise ValueError(f"the candidate has no name of the reference: it has {theirs} …, the reference {ours} …")
    if model is not None and run is not None:
        floors, how = measured_floors(model, run, reference), "measured: this model in float32 against float64"
    else:
        floors, how = stated_floors(reference), "stated by name (give --model to measure)"
    if atol is not None or rtol is not None:
        how = f"given: atol {atol or 0:g}, rtol {rtol or 0:g}"
    matches = {name: found for name, found in matches.items() if comparable(name, matches, run)}
    compared = Comparison(reference, run, floors, atol, rtol)
    rows = [compared.row(name, matches.get(name)) for name in execution_order(reference)]
    return Report(rows, unknown, how)


class Comparison:
    """One walk through the names; it remembers where a near-tie has parted the ways."""

    def __init__(self, reference, run, floors, atol=None, rtol=None):
        self.reference, self.run, self.floors, self.atol, self.rtol = reference, run, floors, atol, rtol
        self.candidate = {}
        self.parted = None

    def row(self, name, found):
        ours = np.asarray(self.reference[name])
        if found is None:
            return Row(name, shape=ours.shape)
        theirs = aligned(name, ours, found.array, self.reference, self.candidate, self.run)
        if found.last:
            ours = ours[:, -found.last :]
        row = Row(name, found.dumped, ours.shape, theirs.shape, str(theirs.dtype))
        self.candidate[name] = theirs
        if ours.shape != theirs.shape:
            row.verdict = CASCADE if self.parted else SHAPE
            row.why = [f"shape {list(theirs.shape)}, need {list(ours.shape)}"]
            return row
        self.judge(row, ours, theirs, found.last)
        return row

    def judge(self, row, ours, theirs, last):
        count = counted(row.name, np.shape(self.reference[row.name]), self.run, self.reference)
        if last and np.ndim(count) > 1:
            count = np.broadcast_to(count, np.shape(self.reference[row.name]))[:, -last:]
        d = difference(ours, theirs, count)
        open_ = unmasked(row.name, theirs, self.run) if not last else None
        row.max_abs, row.relative, row.cosine, row.at = d.max_abs, d.relative, d.cosine, d.at
        row.allowed = allowed(self.floors.get(row.name, 0.0), ours, count) if ours.dtype.kind == "f" else 0.0
        limit = row.allowed * rms_of(ours, count)
        beyond = d.apart > (limit if self.atol is None and self.rtol is None else self.given(ours))
        if open_ is not None and open_.any():
            row.verdict, row.max_abs, row.relative = DIFFERS, np.inf, np.inf
            row.at = tuple(int(i) for i in np.argwhere(open_)[0])
            row.why = [f"{int(open_.sum())} scores that must be masked are not, the first at {list(row.at)}"]
        elif not beyond.any():
            row.verdict = AGREES
        elif self.parted:
            row.verdict, row.why = CASCADE, [self.parted]
        elif near_tie(row.name, ours, theirs, self.reference, self.run, self.floors):
            row.verdict = NEAR_TIE
            row.why = ["another choice where two are equal within the floor; what follows from it can't be compared"]
            self.parted = f"after the near-tie at {row.name}"
        else:
            row.verdict = DIFFERS
            row.why = explain(row.name, ours, theirs, d.apart, limit, self.run)
            if place_of(row.name)[1] in ("sample.next_token", "sample.finished"):
                self.parted = f"after another token at {row.name} (compare with --force-ids)"

    def given(self, ours):
        return (self.atol or 0.0) + (self.rtol or 0.0) * np.abs(np.where(np.isfinite(ours), ours, 0))


def with_rounded_weights(model, rounding):
    """The same model, its weights rounded: ``rounding(array) -> array``."""
    import copy

    other, weights = copy.copy(model), Weights(model.config, model.dtype)
    for name, array in model.params.items():
        weights.params[name][...] = rounding(array)
    other.weights, other.params = weights, weights.params
    return other
