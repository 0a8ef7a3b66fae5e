"""Which known mistake gives a wrong answer."""

import functools

import numpy as np

from .. import ops
from .judging import judge
from .mistakes import MISTAKES
from .signatures import reference

MOST = 3  # more names than these would be no help


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


def matching_mistakes(operator, observed):
    """The mistakes that give the very answers that were observed, wrong ones and right ones.

    Parameters
    ----------
    operator : str
    observed : list of (args, expected, got, floor)
        ``expected`` and ``got`` are dicts of results; ``floor`` is what float32 was measured to be off.

    Returns
    -------
    list of Mistake
        At most three; empty where none fits, or more do than would help.
    """
    wrong = [case for case in observed if judge(case[1], case[2], case[3])]
    right = [case for case in observed if not judge(case[1], case[2], case[3])]
    found = []
    for mistake, function in wrong_functions(operator):
        if wrong and all(gives(function, operator, *case) for case in [*wrong, *right]):
            found.append(mistake)
    return found if len(found) <= MOST else []


def gives(function, operator, args, expected, got, floor):
    """Whether the mistaken function answers ``got``, as near as a right answer must be to the truth."""
    answer = answer_of(function, operator, args)
    return answer is not None and judge(answer, got, floor) is None
