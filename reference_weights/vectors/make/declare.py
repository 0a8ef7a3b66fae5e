"""How a case is declared, and the numbers it is made of."""

from dataclasses import dataclass, field

import numpy as np


@dataclass
class Declared:
    """A case before its truth is computed; see ``npminimind.oracle.vectors.Case`` for the fields."""

    id: int
    situation: str
    comment: str
    args: dict
    result: str = "valid"
    alternatives: list = field(default_factory=list)
    may_refuse: bool = False
    free: dict = field(default_factory=dict)


@dataclass
class Suite:
    """Cases of one operator. ``source`` says where the formula comes from."""

    name: str
    source: str
    cases: list
    operator: str = None

    def __post_init__(self):
        self.operator = self.operator or self.name


def case(id, situation, comment, **args):
    """A case that has one right answer."""
    return Declared(id, situation, comment, {key: as_argument(value) for key, value in args.items()})


def invalid(id, situation, comment, **args):
    """A case that must be refused."""
    declared = case(id, situation, comment, **args)
    declared.result = "invalid"
    return declared


def acceptable(id, situation, comment, alternatives=(), may_refuse=False, **args):
    """A case with several right answers: the reference's own and ``alternatives``, dicts of results."""
    declared = case(id, situation, comment, **args)
    declared.result, declared.alternatives, declared.may_refuse = "acceptable", list(alternatives), may_refuse
    return declared


INTEGERS = ("input_ids", "attention_mask")


def as_argument(value):
    """Nested lists of numbers become arrays; a list of tuples (experts) stays a list."""
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return [tuple(np.asarray(w, np.float64) for w in expert) for expert in value]
    if isinstance(value, list) and value and not isinstance(value[0], (dict, str)):
        array = np.asarray(value)
        return array if array.dtype.kind in "ib" and array.size else array.astype(np.float64)
    return value


def floats(nested):
    """A float64 array of numbers that float32 can hold too, so that every port gets the same input."""
    return np.asarray(nested, np.float32).astype(np.float64)


def grid(seed, *shape, step=0.125, span=32):
    """Pseudo-random multiples of ``step`` between −span·step and span·step: few bits, exact in half precision.

    Made of integers by a hash (splitmix64), so the numbers are the same everywhere and for ever.
    """
    count = int(np.prod(shape))
    numbers = [splitmix64(seed * 1_000_003 + i) % (2 * span + 1) - span for i in range(count)]
    return np.array(numbers, np.float64).reshape(shape) * step


def normal(seed, *shape, scale=1.0):
    """Bell-shaped numbers, rounded to float32: sums of twelve hashed uniforms."""
    count = int(np.prod(shape))
    hashed = [[splitmix64((seed * 1_000_003 + i) * 12 + j) >> 40 for j in range(12)] for i in range(count)]
    return floats((np.array(hashed, np.float64).sum(axis=1) / 2**24 - 6).reshape(shape) * scale)


def splitmix64(n):
    """Steele, Lea & Flood 2014: an integer hash of 64 bits."""
    mask = 2**64 - 1
    z = (n + 1) * 0x9E3779B97F4A7C15 & mask
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
    return z ^ z >> 31
