"""What the oracle can be asked: every operator with its arguments and results, in one table."""

from typing import NamedTuple

import numpy as np

from .. import ops
from ..primitives import gelu, silu

ACTIVATIONS = {"silu": silu, "gelu": gelu}


class Signature(NamedTuple):
    """How an operator is called.

    Attributes
    ----------
    required : tuple of str
        Arguments handed over by position.
    optional : dict of str -> default
        Arguments handed over by name, and only where they are not the default: a function that lacks one can
        still be checked with the inputs that do not need it.
    results : tuple of str
        Names of the results; empty where there is one, without a name.
    weights : tuple of str
        Arguments that are parameters of a model: these are rounded to measure what half-precision weights cost.
    """

    required: tuple
    optional: dict = {}
    results: tuple = ()
    weights: tuple = ()


SIGNATURES = {
    "rms_norm": Signature(("x", "weight", "eps"), weights=("weight",)),
    "rope_tables": Signature(("head_dim", "length", "theta"), {"scaling": None, "start": 0}, ("cos", "sin")),
    "rotate_half": Signature(("x",)),
    "apply_rope": Signature(("q", "k", "cos", "sin"), results=("q", "k")),
    "repeat_kv": Signature(("x", "n_rep")),
    "causal_mask": Signature(("s", "t")),
    "softmax": Signature(("x",), {"axis": -1}),
    "silu": Signature(("x",)),
    "gelu": Signature(("x",)),
    "attention": Signature(("q", "k", "v"), {"attention_mask": None}),
    "swiglu": Signature(
        ("x", "gate_proj", "up_proj", "down_proj"), {"act": "silu"}, weights=("gate_proj", "up_proj", "down_proj")
    ),
    "moe": Signature(
        ("x", "gate", "experts", "num_experts_per_tok", "norm_topk_prob"), {"act": "silu"}, weights=("gate", "experts")
    ),
    "apply_temperature": Signature(("logits", "temperature")),
    "apply_repetition_penalty": Signature(("logits", "input_ids", "penalty")),
    "top_k_threshold": Signature(("logits", "k")),
    "apply_top_k": Signature(("logits", "k")),
    "top_p_mask": Signature(
        ("logits", "p"),
        results=("sorted_logits", "sorted_indices", "cumulative", "exceeds", "shifted", "mask"),
    ),
    "apply_top_p": Signature(("logits", "p")),
    "greedy": Signature(("logits",)),
    "multinomial": Signature(("probs", "u")),
}
TAKES_DTYPE = ("rope_tables", "causal_mask")


def signature(name):
    """The signature of an operator.

    Raises
    ------
    ValueError
        No such operator; the message lists those there are.
    """
    if name not in SIGNATURES:
        raise ValueError(f"no operator is called {name!r}; there are: {', '.join(SIGNATURES)}")
    return SIGNATURES[name]


def call(function, name, args):
    """Call an implementation of ``name`` with arguments by name.

    Parameters
    ----------
    function : function
        With the operator's arguments in the operator's order.
    name : str
    args : dict of str -> array, number, list
        The activation is given by its name.

    Returns
    -------
    whatever the function returns
    """
    sig = signature(name)
    optional = {key: args[key] for key, default in sig.optional.items() if differs(args.get(key, default), default)}
    if "act" in optional:
        optional["act"] = ACTIVATIONS[optional["act"]]
    return function(*(args[key] for key in sig.required), **optional)


def differs(value, default):
    return value is not default and (isinstance(value, np.ndarray) or value != default)


def reference(name, args, dtype=np.float64, function=None):
    """What npminimind itself computes, all floating-point arguments being of one dtype.

    Parameters
    ----------
    name : str
    args : dict
    dtype : numpy dtype
    function : function, optional
        Another one with the very arguments of the reference: a planted mistake.

    Returns
    -------
    dict of str -> array
        One entry a result; a single result is called ``"out"``.

    Examples
    --------
    >>> reference("rope_tables", {"head_dim": 2, "length": 1, "theta": 100.0})
    {'cos': array([[1., 1.]]), 'sin': array([[0., 0.]])}
    """
    function = function or ops.OPERATORS[name]
    if name in TAKES_DTYPE:
        return named(name, call(lambda *a, **k: function(*a, **k, dtype=dtype), name, args))
    # Probabilities may be float32, the random number never: it is the same double in every language.
    u = {"u": args["u"]} if "u" in args else {}
    return named(name, call(function, name, cast(args, dtype) | u))


def named(name, answer):
    """One result or a tuple of them -> a dict of results.

    Raises
    ------
    ValueError
        The number of results is wrong.
    """
    results = signature(name).results
    if not results:
        return {"out": answer}
    if isinstance(answer, dict) and answer.keys() == set(results):
        return answer
    if not isinstance(answer, (tuple, list)) or len(answer) != len(results):
        raise ValueError(f"need a tuple of {len(results)}: {', '.join(results)}")
    return dict(zip(results, answer))


def cast(value, dtype):
    """All floating-point arrays in a nest of dicts and lists in one dtype; fresh arrays, so nothing is shared."""
    if isinstance(value, dict):
        return {key: cast(inner, dtype) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(cast(inner, dtype) for inner in value)
    if isinstance(value, np.ndarray):
        return value.astype(dtype) if value.dtype.kind == "f" else value.copy()
    return value
