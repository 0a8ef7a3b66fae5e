"""Check a Python function against the golden vectors, then against everything that Hypothesis comes up with."""

import numpy as np

from .examine import examine
from .judging import Problem
from .search import EXAMPLES
from .signatures import call, cast, named, signature
from .vectors import load_vectors


def check(name, function, search=True, seed=0, examples=EXAMPLES):
    """Does a function of yours do what MiniMind's operator of this name does?

    Parameters
    ----------
    name : str
        An operator: ``"rms_norm"``, ``"apply_rope"``, ``"apply_top_p"`` …
    function : function
        It takes the operator's arguments in the operator's order, arrays of float64, and returns arrays or lists.
        Arguments that are not needed for an input are left out, so they may be missing.
    search : bool
        Whether to look for further inputs; needs hypothesis.
    seed : int
        Of the search.
    examples : int
        How many inputs the search may try, before it makes a failing one smaller.

    Returns
    -------
    CheckResult
        Prints what was found; ``ok``, ``failures``, ``mistakes``.

    Raises
    ------
    ValueError
        No such operator.
    TypeError
        Something that can't be called.

    Examples
    --------
    >>> import numpy as np
    >>> def my_silu(x):
    ...     return x / (1 + np.exp(-x))
    >>> check("silu", my_silu).ok
    True
    >>> print(check("silu", lambda x: x, search=False).summary())
    silu: 1 of 4 golden cases agree (no further inputs were searched)
    """
    signature(name)
    if not callable(function):
        raise TypeError(f"need a function to check, not {function!r}")
    return examine(
        name, load_vectors(name), lambda name, args: answer(name, function, args), False, search, seed, examples
    )


def answer(name, function, args):
    """Call a function with copies of the arguments.

    Returns
    -------
    got : dict of results, or None
    problem : Problem or None
        It raised, returned another number of results, or wrote into its arguments.
    """
    own = cast(args, np.float64)
    try:
        with np.errstate(all="ignore"):
            got = {key: as_array(value) for key, value in named(name, call(function, name, own)).items()}
    except NotImplementedError:
        return None, Problem("unsolved", "NotImplementedError")
    except Exception as error:  # whatever a learner's function may come up with
        return None, Problem("raised", f"it ends with {type(error).__name__}: {error}")
    changed = [key for key in args if not same(args[key], own[key])]
    if changed:
        return got, Problem("changed", f"it changes its argument {changed[0]}: compute with a copy")
    return got, None


def as_array(value):
    try:
        return None if value is None else np.array(value)
    except ValueError:
        raise ValueError("its result is a list whose rows differ in length") from None


def same(a, b):
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    if isinstance(a, np.ndarray):
        return a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    return a is b or a == b or a != a
