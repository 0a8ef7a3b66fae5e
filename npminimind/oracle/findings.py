"""What a check found, and how it is printed: in a terminal, in a notebook."""

import html
from dataclasses import dataclass, field

import numpy as np

from .judging import Problem
from .search import available

MOST_SHOWN = 64  # numbers of one array


@dataclass
class Finding:
    """One input that was answered wrongly.

    Attributes
    ----------
    case : str
        A case's name and id, or ``"found by search"``.
    comment : str
    args : dict
    expected : dict of results, or None where it must be refused
    got : dict of results, or None where there is no answer
    problem : Problem
    """

    case: str
    comment: str
    args: dict
    expected: dict | None
    got: dict | None
    problem: Problem

    @property
    def searched(self):
        """Whether the search found it; else it is a golden case."""
        return self.case == SEARCHED

    def size(self):
        """How many numbers the input has, then how many digits: what makes it easy to read."""
        return sum(numbers(value) for value in self.args.values()), sum(len(shown(v)) for v in self.args.values())

    def rows(self):
        """(label, text) pairs that describe the finding."""
        rows = list(self.args.items())
        for label, results in (("expected", self.expected), ("got", self.got)):
            for name, value in (results or {}).items():
                rows.append((label if name == "out" else f"{label} {name}", value))
        if self.problem.kind == "accepted":
            rows.append(("expected", "a refusal: this can't be meant"))
        return [(label, value if isinstance(value, str) else shown(value)) for label, value in rows]

    def __str__(self):
        lines = [f"{self.case}: {self.comment}" if self.comment else self.case]
        width = max(len(label) for label, _ in self.rows())
        for label, text in self.rows():
            lines.append(f"  {label:{width}s}  " + text.replace("\n", "\n" + " " * (width + 4)))
        lines.append(f"  {self.problem.message}")
        return "\n".join(lines)


def numbers(value):
    if isinstance(value, (list, tuple)):
        return sum(numbers(inner) for inner in value)
    return int(np.size(value))


def shown(value):
    """A value as a reader can take it in, and paste it: nested lists with few digits."""
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], (list, tuple)):
        return "\n".join(f"expert {e}: " + ", ".join(shown(w) for w in expert) for e, expert in enumerate(value))
    if not isinstance(value, np.ndarray):
        return f"{value:.9g}" if isinstance(value, float) else str(value)
    array = np.asarray(value)
    if array.size > MOST_SHOWN:
        return f"array {list(array.shape)}, from {shown(array.ravel()[:3])[:-1]}, …]"
    return np.array2string(
        array, separator=", ", precision=9, floatmode="maxprec", suppress_small=False, max_line_width=100
    )


STATUS = {"passed": "agrees", "failed": "differs", "unsolved": "unsolved", "skipped": "skipped"}
COLOUR = {"passed": "#1a7f37", "failed": "#cf222e", "unsolved": "#9a6700", "skipped": "#9a6700"}


@dataclass
class CheckResult:
    """What a check of one operator found. True in a condition where all is right.

    Attributes
    ----------
    operator : str
    outcomes : list of (Case, Problem or None)
        The golden cases that were run.
    skipped : list of Case
        Golden cases that the implementation says it does not support.
    searched : int or None
        Inputs that Hypothesis tried; None where none were searched.
    failures : list of Finding
        The golden cases answered wrongly, and what the search found; smallest input first.
    mistakes : list of Mistake
        Known mistakes that give the very same answers. Several: they can't be told apart by these.
    similar : list of (Mistake, int)
        Where there are none: those that give most of the wrong answers, and how many.
    unsolved : bool
        The function raised NotImplementedError.
    unrefused : list of Finding
        Inputs that the reference refuses and the function answers. They do not count.
    """

    operator: str
    outcomes: list = field(default_factory=list)
    skipped: list = field(default_factory=list)
    searched: int | None = None
    failures: list = field(default_factory=list)
    mistakes: list = field(default_factory=list)
    similar: list = field(default_factory=list)
    unsolved: bool = False
    unrefused: list = field(default_factory=list)

    @property
    def status(self):
        if self.unsolved:
            return "unsolved"
        if self.failures:
            return "failed"
        return "passed" if self.outcomes else "skipped"

    @property
    def ok(self):
        return self.status == "passed"

    def __bool__(self):
        return self.ok

    def summary(self):
        if self.unsolved:
            return f"{self.operator}: unsolved. It raises NotImplementedError; write it and check again."
        wrong = sum(problem is not None for _, problem in self.outcomes)
        golden = f"{len(self.outcomes) - wrong} of {len(self.outcomes)} golden cases agree"
        if self.searched is None:
            how = "" if available() else "; pip install hypothesis to do so"
            return f"{self.operator}: {golden} (no further inputs were searched{how})"
        if wrong < len(self.failures):
            return f"{self.operator}: {golden}; further inputs fail too"
        return (
            f"{self.operator}: {golden}, and {self.searched} more inputs" if self.ok else f"{self.operator}: {golden}"
        )

    def named(self):
        """What the matching mistakes are called and do; one line each."""
        if self.similar:
            lines = [f"  {m.id}: it {m.description} ({given} answers)" for m, given in self.similar]
            return ["Most wrong answers, not all, are what a known mistake gives:", *lines]
        head = "This is what a known mistake gives" if len(self.mistakes) == 1 else "These known mistakes give the same"
        return [f"{head}:"] * bool(self.mistakes) + [f"  {m.id}: it {m.description}" for m in self.mistakes]

    def __str__(self):
        lines = [self.summary()]
        if self.failures:
            lines += ["", "The smallest input that fails, " + str(self.failures[0]), *self.named()]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self):
        mark = f'<b style="color:{COLOUR[self.status]}">{STATUS[self.status]}</b>'
        parts = [f"<div>{mark} &nbsp; {html.escape(self.summary())}</div>"]
        if self.failures:
            first = self.failures[0]
            cells = "".join(
                f'<tr><td style="text-align:left;vertical-align:top">{html.escape(label)}</td>'
                f'<td style="text-align:left"><pre style="margin:0">{html.escape(text)}</pre></td></tr>'
                for label, text in first.rows()
            )
            title = f"smallest failing input, {first.case}" + (f": {first.comment}" if first.comment else "")
            parts += [f"<div>{html.escape(title)}</div>", f"<table>{cells}</table>"]
            parts += [f"<div>{html.escape(line)}</div>" for line in [first.problem.message, *self.named()]]
        return "".join(parts)


SEARCHED = "found by search"
