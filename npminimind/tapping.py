"""Taps: a function ``(name, array) -> array`` that sees every named intermediate on its way."""

import numpy as np


def no_tap(name, array):
    """The tap of a plain run: hands every array on."""
    return array


def checked(tap):
    """Guard a user's tap: None stands for "leave it", another shape is refused, the dtype is kept.

    Examples
    --------
    >>> double = checked(lambda name, array: 2.0 * array if name == "lm_head" else None)
    >>> double("lm_head", np.array([1.0, 2.0])), double("model.norm", np.array([3.0]))
    (array([2., 4.]), array([3.]))
    """
    if tap is None or tap is no_tap:
        return no_tap
    if not callable(tap):
        raise TypeError(f"tap must be a function (name, array) -> array or None, not {tap!r}")

    def guarded(name, array):
        other = tap(name, array)
        if other is None or other is array:
            return array
        other = np.asarray(other)
        if other.shape != np.shape(array):
            raise ValueError(f"tap returned shape {other.shape} for {name}, which has shape {np.shape(array)}")
        return other.astype(np.asarray(array).dtype, copy=False)

    return guarded


def behind(prefix, tap):
    """The same tap, for a part of the model whose names stand behind ``prefix``.

    Examples
    --------
    >>> seen = []
    >>> layer_tap = behind("model.layers.0.", lambda name, array: seen.append(name))
    >>> _ = layer_tap("resid_mid", None)
    >>> seen
    ['model.layers.0.resid_mid']
    """
    if tap is no_tap:
        return no_tap
    return lambda name, array: tap(prefix + name, array)
