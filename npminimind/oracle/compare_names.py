"""Finding the reference's names in what a port has dumped, and bringing its arrays into the reference's layout."""

import functools
import json
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .compare_run import dims_of, execution_order, place_of

ALIASES = Path(__file__).with_name("aliases.json")


class Match(NamedTuple):
    """A candidate's array for a name of the reference.

    Attributes
    ----------
    name : str
        In the reference.
    dumped : str
        In the candidate.
    array : array
        In the reference's layout as far as it could be brought there.
    last : int or None
        The candidate has only so many last positions.
    """

    name: str
    dumped: str
    array: np.ndarray
    last: int | None = None


@functools.cache
def tables():
    """Prefixes to drop, and (pattern, name, layout) of every alias."""
    data = json.loads(ALIASES.read_text(encoding="utf-8"))
    rules = []
    for table in data["tables"].values():
        for alias, target in table.items():
            if alias != "_comment":
                target = target if isinstance(target, dict) else {"name": target}
                pattern = re.escape(alias).replace(r"\{i\}", r"(?P<i>\d+)").replace(r"\{e\}", r"(?P<e>\d+)")
                rules.append((re.compile(pattern), target["name"], target.get("layout")))
    return tuple(data["prefixes"]), tuple(rules)


def names_for(dumped):
    """What a dumped name may stand for: itself first, then its aliases.

    Examples
    --------
    >>> names_for("l_out-3")
    [('l_out-3', None), ('model.layers.3', None)]
    """
    round_, rest, _ = place_of(dumped)
    prefixes, rules = tables()
    for prefix in prefixes:
        rest = rest.removeprefix(prefix)
    found = [(rest, None)]
    for pattern, name, layout in rules:
        fits = pattern.fullmatch(rest)
        if fits:
            found.append((name.format(**fits.groupdict()), layout))
    head = "" if round_ is None else f"round_{round_}."
    return [(head + name, layout) for name, layout in found]


def match(reference, candidate):
    """Pair the arrays of two traces.

    Parameters
    ----------
    reference, candidate : dicts of str -> array

    Returns
    -------
    matches : dict of str -> Match
        By the reference's name.
    unknown : list of str
        Names of the candidate that stand for nothing in the reference.
    """
    matches, unknown = {}, []
    rounds = any(place_of(name)[0] is not None for name in reference)
    for dumped in candidate:
        options = names_for(dumped)
        if rounds and place_of(dumped)[0] is None:  # one forward pass: the prefill
            options = [(f"round_0.{name}", layout) for name, layout in options]
        hit = next(((name, layout) for name, layout in options if name in reference), None)
        # A dense port's mlp is its down_proj; a name that fits as it is goes before an alias.
        if hit is None:
            unknown.append(dumped)
        if hit is None or hit[0] in matches and hit != options[0]:
            continue
        name, layout = hit
        array, last = fitted(name, np.asarray(reference[name]).shape, np.asarray(candidate[dumped]), layout)
        matches[name] = Match(name, dumped, array, last)
    return {name: matches[name] for name in execution_order(matches)}, unknown


def fitted(name, shape, array, layout=None):
    """Bring an array into a shape, where the difference is only how it lies: ``(array, last positions or None)``.

    Examples
    --------
    >>> fitted("model.layers.0.self_attn.k_cache", (1, 5, 2, 4), np.zeros((1, 2, 5, 4)))[0].shape
    (1, 5, 2, 4)
    >>> fitted("lm_head", (1, 5, 9), np.zeros((9,)))[1]
    1
    """
    dims = dims_of(name)
    if layout and array.ndim == 4:
        array = array.swapaxes(1, 2)
    if array.shape == shape:
        return array, None
    for form in forms(array, shape, dims):
        if form.shape == shape:
            return form, None
    where = dims.index("S") if "S" in dims else None
    if where == 1 and shape[0] == 1 or where == 1 and array.ndim == len(shape):
        array = array if array.ndim == len(shape) else array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
        if array.ndim == len(shape) and array.shape[1] < shape[1] and array.shape[2:] == shape[2:]:
            return array, array.shape[1]
    return array, None


def forms(array, shape, dims):
    """Other ways in which the same numbers may lie."""
    heads = len(dims) == 4 and dims[2] in ("N", "K")
    if array.ndim + 1 == len(shape) and shape[0] == 1:
        array = array[None]
        yield array
    if dims == ["S", "D"] and array.ndim == 3 and np.array_equal(array, np.broadcast_to(array[:1], array.shape)):
        yield array[0]  # a batch of equal tables
    if heads and array.ndim == 4:
        yield array.swapaxes(1, 2)  # [B,N,S,D] -> [B,S,N,D]
    joined = heads or dims[-1:] in (["N*D"], ["K*D"]) or dims[:1] in (["B*S"], ["B"])
    if joined and array.size == np.prod(shape, dtype=int):
        yield array.reshape(shape)  # heads side by side or apart, tokens in one row or in B
