"""Put an implementation through golden cases and a search; how it is asked does not matter here."""

from .findings import SEARCHED, CheckResult, Finding
from .judging import Problem, judge
from .naming import Observed, matching_fingerprints, matching_mistakes
from .search import EXAMPLES, available, smallest_failure, truth_of
from .signatures import SIGNATURES


def examine(name, cases, ask, strict, search=True, seed=0, examples=EXAMPLES):
    """Golden cases, then a search, then the names of matching mistakes.

    Parameters
    ----------
    name : str
        What the result is called: the operator or the suite.
    cases : list of Case
        All of one operator.
    ask : function (operator, args) -> (dict of results or None, Problem or None)
        Runs the implementation.
    strict : bool
        Whether inputs that can't be meant must be refused.
    search : bool
    seed, examples : int

    Returns
    -------
    CheckResult
    """
    result, observed = CheckResult(name), []
    for case in cases:
        got, problem = ask(case.operator, case.args)
        if problem and problem.kind == "unsolved":
            result.unsolved = True
            return result
        if problem and problem.kind == "unsupported":
            result.skipped.append(case)
            continue
        problem = verdict(case, got, problem)
        if case.result == "invalid" and not strict:
            result.unrefused += [finding(case, got, problem)] if problem else []
            continue
        result.outcomes.append((case, problem))
        if problem:
            result.failures.append(finding(case, got, problem))
        if got is not None and case.result == "valid":
            observed.append((case, got))
    operator = cases[0].operator
    seen = [Observed(case.args, case.expected, got, case.floor.get("float32"), case.free) for case, got in observed]
    if operator in SIGNATURES:
        if search and result.outcomes and available():
            search_further(result, operator, ask, seen, seed, examples)
        result.mistakes, result.similar = matching_mistakes(operator, seen)
    else:
        result.mistakes = matching_fingerprints(observed)
    result.failures.sort(key=Finding.size)
    return result


def verdict(case, got, problem):
    """What is wrong with the answer to a golden case, or None: any of the acceptable answers is right."""
    refused = problem is not None and problem.kind == "raised"
    if case.result == "invalid":
        return None if refused else problem or Problem("accepted", "it is answered instead of refused")
    if problem is not None:
        return None if refused and case.may_refuse else problem
    floor = case.floor.get("float32")
    problems = [judge(right, got, floor, case.free) for right in [case.expected, *case.alternatives]]
    return problems[0] if all(problems) else None


def finding(case, got, problem):
    return Finding(f"case {case.id} {case.name}", case.comment, case.args, case.expected, got, problem)


def search_further(result, operator, ask, seen, seed, examples):
    """Add the smallest failing input that Hypothesis finds, if any."""
    args, result.searched = smallest_failure(operator, lambda args: ask(operator, args), seed, examples)
    if args is None:
        return
    expected, floor = truth_of(operator, args)
    got, problem = ask(operator, args)
    problem = problem or judge(expected, got, floor)
    if problem is None:
        problem = Problem("value", "the answer was wrong before and is right now: it changes from call to call")
    result.failures.append(Finding(SEARCHED, "", args, expected, got, problem))
    if got is not None:
        seen.append(Observed(args, expected, got, floor))
