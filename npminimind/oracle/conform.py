"""Put a program in any language through the golden vectors, then let Hypothesis search for more."""

from dataclasses import dataclass, field

from .examine import examine
from .findings import CheckResult
from .judging import Problem
from .protocol import CouldNotRun, Port
from .search import EXAMPLES
from .signatures import SIGNATURES
from .vectors import load_vectors, suites, vectors_folder


@dataclass
class ConformResult:
    """What a program did.

    Attributes
    ----------
    command : list of str
    results : list of CheckResult
        One a suite.
    ended : str
        Why the run ended early; empty where it did not.
    """

    command: list
    results: list = field(default_factory=list)
    ended: str = ""

    @property
    def exit_code(self):
        """0: agrees. 1: differs, or ended early. 2: nothing could be checked."""
        statuses = [result.status for result in self.results]
        if self.ended or "failed" in statuses:
            return 1
        return 0 if "passed" in statuses else 2

    @property
    def ok(self):
        return self.exit_code == 0

    def __str__(self):
        from .conform_report import as_text

        return as_text(self)


def conform(command, only=None, search=True, seed=0, timeout=10.0, examples=EXAMPLES, seen=None):
    """Check a program that speaks the protocol of ``reference_weights/vectors/PROTOCOL.md``.

    Parameters
    ----------
    command : list of str
        How to start it.
    only : list of str, optional
        Suites to run; all by default.
    search : bool
        Whether to let Hypothesis search after the golden cases.
    seed, examples : int
        Of the search.
    timeout : float
        Seconds for one answer.
    seen : function (CheckResult), optional
        Called after each suite.

    Returns
    -------
    ConformResult

    Raises
    ------
    CouldNotRun
        The program does not start or does not speak the protocol.
    ValueError
        No such suite.
    """
    chosen = [name for name in suites() if only is None or name in only]
    for name in only or []:
        load_vectors(name)  # an unknown one is refused, with a list of those there are
    outcome = ConformResult(list(command))
    with Port(command, timeout) as port:
        try:
            for name in chosen:
                outcome.results.append(run_suite(port, name, search, seed, examples))
                if seen:
                    seen(outcome.results[-1])
        except CouldNotRun as error:
            outcome.ended = str(error)
    return outcome


def run_suite(port, name, search, seed, examples) -> CheckResult:
    """One suite."""

    def ask(operator, args):
        got, problem = port.ask(operator, with_paths(args))
        return (None, problem) if problem else results_of(operator, got)

    return examine(name, load_vectors(name), ask, True, search, seed, examples)


def with_paths(args):
    """The tiny models and the tokenizer, which cases call by name, as folders that the program can open."""
    places = {"model": vectors_folder(), "tokenizer": vectors_folder().parent.parent}
    return args | {key: str(places[key] / args[key]) for key in places if key in args}


def results_of(operator, out):
    """The "out" of an answer as a dict of results."""
    expected = SIGNATURES[operator].results if operator in SIGNATURES else ()
    if expected and not isinstance(out, dict):
        return None, Problem("protocol", f"out must be an object with {', '.join(expected)}")
    return (out if isinstance(out, dict) else {"out": out}), None
