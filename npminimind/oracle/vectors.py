"""The golden vectors: cases with the truth, read from ``reference_weights/vectors/v1``."""

import functools
import json
from dataclasses import dataclass, field
from pathlib import Path

from ..checkpoint import read_safetensors
from .arrays import decode

VERSION = "v1"


@dataclass(frozen=True)
class Case:
    """One input and what is right.

    Attributes
    ----------
    id : int
        Never reused for another input.
    name : str
        ``suite.situation[.variant …]``
    suite, operator : str
    comment : str
        What is special about it.
    args : dict
        Arguments by name.
    result : str
        ``valid``: the answer must be ``expected``. ``acceptable``: one of ``alternatives`` will do as well, or a
        refusal where ``may_refuse``. ``invalid``: it must be refused.
    expected : dict of str -> array, or None
        The truth in float64; a single result is called ``out``.
    floor : dict of str -> dict of str -> float
        dtype -> result -> how far it was measured to be off.
    free : dict of str -> bool array
        True where any number will do: what stands at pads means nothing.
    flags : tuple of str
        Mistakes that this case catches.
    wrong : dict of str -> dict
        Mistake -> fingerprint: where its answer is furthest from the truth, and what stands there.
    margin : dict of str -> float
        How close a decision was.
    steps : list of list of dict
        Of a generation, step by step and row by row: the greatest logits and their margin, or u and its distance to
        both ends of the interval that it fell into.
    """

    id: int
    name: str
    suite: str
    operator: str
    comment: str
    args: dict
    result: str
    expected: dict | None = None
    alternatives: tuple = ()
    may_refuse: bool = False
    floor: dict = field(default_factory=dict)
    free: dict = field(default_factory=dict)
    flags: tuple = ()
    wrong: dict = field(default_factory=dict)
    margin: dict = field(default_factory=dict)
    steps: list = field(default_factory=list)


def vectors_folder():
    """Where the vectors of this version lie."""
    from .. import reference_weights

    return reference_weights() / "vectors" / VERSION


def load_vectors(suite=None, folder=None):
    """The golden cases of one suite, or of all.

    Parameters
    ----------
    suite : str, optional
        ``"rms_norm"`` …; :func:`suites` lists them.
    folder : path, optional
        Other vectors than those in the box.

    Returns
    -------
    list of Case

    Raises
    ------
    ValueError
        No such suite.

    Examples
    --------
    >>> case = load_vectors("rotate_half")[0]
    >>> case.name, case.args["x"].tolist(), case.expected["out"].tolist()
    ('rotate_half.one_to_four', [1.0, 2.0, 3.0, 4.0], [-3.0, -4.0, 1.0, 2.0])
    """
    folder = Path(folder or vectors_folder())
    known = suites(folder)
    if suite is not None and suite not in known:
        raise ValueError(f"no suite is called {suite!r}; there are: {', '.join(known)}")
    return [case for name in ([suite] if suite else known) for case in read_suite(folder / f"{name}.json")]


def suites(folder=None):
    """The names of all suites, in the manifest's order: what others need comes first."""
    manifest = json.loads((Path(folder or vectors_folder()) / "manifest.json").read_text(encoding="utf-8"))
    return list(manifest["suites"])


@functools.lru_cache(maxsize=64)
def read_suite(file):
    suite = json.loads(file.read_text(encoding="utf-8"))
    large = file.with_suffix(".safetensors")
    if large.exists():
        suite = with_tensors(suite, read_safetensors(large)[0])
    return tuple(case_from_json(case, suite) for case in suite["cases"])


def with_tensors(value, tensors):
    """Put the arrays of the safetensors file where the JSON names them."""
    if isinstance(value, dict):
        if "tensor" in value:
            return tensors[value["tensor"]]
        return {key: with_tensors(inner, tensors) for key, inner in value.items()}
    return [with_tensors(inner, tensors) for inner in value] if isinstance(value, list) else value


def case_from_json(stored, suite):
    fields = {key: stored[key] for key in ("id", "name", "comment", "result")}
    return Case(
        **fields,
        suite=suite["suite"],
        operator=suite["operator"],
        args=decode(stored["args"]),
        expected=decode(stored["expected"]) if "expected" in stored else None,
        alternatives=tuple(decode(stored.get("alternatives", []))),
        may_refuse=stored.get("may_refuse", False),
        floor=stored.get("floor", {}),
        free=decode(stored.get("free", {})),
        flags=tuple(stored.get("flags", ())),
        wrong=stored.get("wrong", {}),
        margin=stored.get("margin", {}),
        steps=stored.get("steps", []),
    )
