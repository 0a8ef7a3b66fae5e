"""Numbers that are none: the first NaN or infinity among a model's parameters."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np


class NonFinite(NamedTuple):
    """The first number of a model that is NaN or infinite."""

    name: str
    index: tuple
    value: float


def find_nonfinite(params):
    """The first parameter with a NaN or an infinity, or None.

    Parameters
    ----------
    params : dict or params.Weights

    Examples
    --------
    >>> find_nonfinite({"model.norm.weight": np.array([1.0, np.inf])})
    NonFinite(name='model.norm.weight', index=(1,), value=inf)
    """
    params = params if isinstance(params, Mapping) else params.params
    for name, array in params.items():
        # The extremes of an array carry a NaN or an infinity on; they need no second array. Slow only in float16.
        extremes = array if array.dtype == np.float16 or not array.size else (array.min(), array.max())
        if not np.isfinite(extremes).all():
            index = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
            return NonFinite(name, index, float(array[index]))
    return None
