"""Let Hypothesis look for an input on which an implementation is wrong, and make it small."""

import importlib.util
import random

import numpy as np

from .floors import float32_floor
from .judging import judge
from .signatures import reference

EXAMPLES = 100
FATAL = ("died", "hung")  # not made smaller: each further try would cost a restart, or the whole timeout


def available():
    """Whether Hypothesis is installed (it comes with ``pip install 'npminimind[test]'``)."""
    return importlib.util.find_spec("hypothesis") is not None


def truth_of(operator, args):
    """What is right for an input that is not among the vectors, and how far float32 was measured to be off on it.

    Returns
    -------
    expected : dict of str -> array
    floor : dict of str -> float
    """
    expected = {name: np.asarray(value) for name, value in reference(operator, args).items()}
    return expected, float32_floor(operator, args, expected)


def smallest_failure(operator, answer, seed=0, examples=EXAMPLES):
    """The smallest input found on which the answer is wrong.

    Parameters
    ----------
    operator : str
    answer : function args -> (dict of results or None, Problem or None)
        Runs the implementation. A Problem of its own (it raised, it died) counts as wrong.
    seed : int
    examples : int

    Returns
    -------
    args : dict or None
        None where nothing was found.
    tried : int
        How many inputs were tried until then.
    """
    from hypothesis import HealthCheck, Phase, find, settings
    from hypothesis.errors import Flaky, NoSuchExample

    from .strategies import STRATEGIES

    tried, wrong, ended = 0, None, None

    def fails(args):
        nonlocal tried, wrong, ended
        if ended:  # Hypothesis would go on and make the input smaller
            raise ended
        tried += 1
        try:
            got, problem = answer(args)
        except Exception as error:
            ended = error
            raise
        expected, floor = truth_of(operator, args)
        if problem or judge(expected, got, floor):
            wrong = args
        if problem and problem.kind in FATAL:
            ended = Fatal()
            raise ended
        return wrong is args

    quiet = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    try:
        return find(STRATEGIES[operator], fails, settings=quiet, random=random.Random(seed)), tried
    except NoSuchExample:
        return None, tried
    except (Flaky, Fatal):  # or the same input is answered differently from one call to the next
        return wrong, tried


class Fatal(Exception):
    """The implementation died or hung on this input."""
