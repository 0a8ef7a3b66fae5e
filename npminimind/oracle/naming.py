"""Which known mistake gives a wrong answer."""

import functools
from typing import NamedTuple

import numpy as np

from .. import ops
from .arrays import decode
from .judging import judge, judge_array
from .mistakes import MISTAKES, by_id
from .signatures import reference

MOST = 3  # more names than these would be no help
LIKE = 0.6  # share of the wrong answers that a mistake must give to be mentioned


@functools.cache
def wrong_functions(operator):
    """The ways in which this operator is known to be got wrong.

    A mistake in an operator that this one uses counts too: attention with a wrong causal mask.

    Parameters
    ----------
    operator : str

    Returns
    -------
    tuple of (Mistake, function)

    Examples
    --------
    >>> [mistake.id for mistake, _ in wrong_functions("greedy")]
    ['argmax-last']
    """
    found = []
    for mistake in MISTAKES:
        if mistake.ops:
            function = getattr(ops.with_replaced(mistake.ops), operator)
            if function is not ops.OPERATORS[operator]:
                found.append((mistake, function))
    return tuple(found)


def answer_of(function, operator, args):
    """The results of a function with the reference's arguments, or None where it raises."""
    try:
        with np.errstate(all="ignore"):
            answer = reference(operator, args, function=function)
        return {name: np.asarray(array) for name, array in answer.items()}
    except Exception:  # a mistake may break on any input, in any way
        return None


class Observed(NamedTuple):
    """An answer that was seen, and what is right; see :func:`npminimind.oracle.judging.judge`."""

    args: dict
    expected: dict
    got: dict
    floor: dict | None = None
    free: dict | None = None

    def wrong(self):
        return judge(self.expected, self.got, self.floor, self.free) is not None

    def given_by(self, function, operator):
        """Whether a mistaken function gives this answer, as near as a right one must be to the truth."""
        answer = answer_of(function, operator, self.args)
        return answer is not None and judge(answer, self.got, self.floor, self.free) is None


def matching_mistakes(operator, observed):
    """The mistakes that give the answers that were observed.

    Parameters
    ----------
    operator : str
    observed : list of Observed

    Returns
    -------
    exact : list of Mistake
        They give every answer, the wrong ones and the right ones. At most three: more names would be no help.
    similar : list of (Mistake, int)
        Where there is none: those that give most of the wrong answers, and how many.
    """
    wrong = [one for one in observed if one.wrong()]
    exact, similar = [], []
    for mistake, function in wrong_functions(operator) if wrong else ():
        given = sum(one.given_by(function, operator) for one in wrong)
        if given == len(wrong) and all(one.wrong() or one.given_by(function, operator) for one in observed):
            exact.append(mistake)
        elif given >= LIKE * len(wrong):
            similar.append((mistake, given))
    if exact:
        return (exact if len(exact) <= MOST else []), []
    return [], sorted(similar, key=lambda pair: -pair[1])[:MOST]


def matching_fingerprints(observed):
    """The mistakes whose stored fingerprints all wrong answers bear, and no right one.

    Parameters
    ----------
    observed : list of (Case, got)
        For what is no operator, so that a mistake can't be put in its place: a whole model, a generation.

    Returns
    -------
    list of Mistake
        At most three.
    """
    judged = [(case, got, judge(case.expected, got, case.floor.get("float32"), case.free)) for case, got in observed]
    wrong = [(case, got) for case, got, problem in judged if problem]
    caught = {flag for case, _, problem in judged if not problem for flag in case.flags}
    known = {flag for case, _ in wrong for flag in case.flags} - caught
    found = [by_id(flag) for flag in sorted(known) if all(bears(case, got, flag) for case, got in wrong)]
    return found if len(found) <= MOST else []


def bears(case, got, flag):
    """Whether an answer has, at the place of the fingerprint, the number that this mistake gives."""
    mark = case.wrong.get(flag)
    if mark is None or mark["result"] not in got:
        return False
    array = np.asarray(got[mark["result"]])
    if "shape" in mark:
        return list(array.shape) == mark["shape"]
    if array.shape != case.expected[mark["result"]].shape:
        return False
    floor = case.floor.get("float32", {}).get(mark["result"], 0.0)
    return judge_array(np.asarray(decode(mark["value"])), array[tuple(mark["at"])], floor) is None
