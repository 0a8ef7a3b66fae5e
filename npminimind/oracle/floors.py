"""How far float32 is off on an input: measured by computing it in float32."""

import numpy as np

from .judging import FLOAT32, distance
from .signatures import reference

NEIGHBOURS = 64  # positions whose tables are measured together


def float32_floor(operator, args, truth):
    """The greatest distance of each floating-point result from the truth, when computed in float32.

    Parameters
    ----------
    operator : str
    args : dict
    truth : dict of str -> array

    Returns
    -------
    dict of str -> float

    Notes
    -----
    An angle's error grows with the position and is nearly zero now and then by luck, so the tables are measured
    at the positions before as well. The textbook's ``x/2 (1 + erf(x/√2))`` is as right as ours, and below zero it
    loses what lies behind the last place of 1.

    Examples
    --------
    >>> args = {"x": np.array([0.0, 3.0])}
    >>> float32_floor("silu", args, reference("silu", args))["out"] < 2e-7
    True
    """
    if operator == "rope_tables":
        before = min(args.get("start", 0), NEIGHBOURS)
        args = args | {"start": args.get("start", 0) - before, "length": args["length"] + before}
        truth = reference(operator, args)
    floor = measured_floor(truth, reference(operator, args, np.float32))
    if operator == "gelu":
        floor["out"] = max(floor["out"], float(np.abs(args["x"]).max(initial=0)) * FLOAT32 / 2)
    return floor


def measured_floor(truth, other):
    """The greatest distance of each floating-point result from the truth, where both are finite."""
    return {
        name: float(np.max(apart[np.isfinite(apart)], initial=0))
        for name, array in truth.items()
        if array.dtype.kind == "f"
        for apart in [distance(array, other[name])]
    }
