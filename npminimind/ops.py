"""The operators a model computes with, by name, and how one is swapped for another."""

import functools
import inspect
from types import SimpleNamespace

from . import sampling
from .attention import attention, causal_mask, repeat_kv
from .mlp import moe, swiglu
from .norm import rms_norm
from .primitives import gelu, silu, softmax
from .rope import apply_rope, rope_tables, rotate_half

# Those that others use stand before these.
OPERATORS = {
    function.__name__: function
    for function in (
        rms_norm,
        rope_tables,
        rotate_half,
        apply_rope,
        softmax,
        silu,
        gelu,
        repeat_kv,
        causal_mask,
        attention,
        swiglu,
        moe,
        sampling.apply_temperature,
        sampling.apply_repetition_penalty,
        sampling.top_k_threshold,
        sampling.apply_top_k,
        sampling.top_p_mask,
        sampling.apply_top_p,
        sampling.greedy,
        sampling.multinomial,
    )
}
TAKES_TAP = ("attention", "swiglu", "moe")


def with_replaced(replaced):
    """All operators, some of them replaced, and those that use these computing with the replacements.

    An operator that uses others takes them as keyword arguments (``attention(..., softmax=softmax)``), so a
    replaced softmax is handed to attention, to the router and to the nucleus.

    Parameters
    ----------
    replaced : dict of str -> function
        With the arguments of the operator that it stands in for; ``tap`` may be left out.

    Returns
    -------
    SimpleNamespace of functions

    Raises
    ------
    ValueError
        A name that is no operator; the message lists those there are.
    TypeError
        Something that can't be called.
    """
    for name, function in replaced.items():
        if name not in OPERATORS:
            raise ValueError(f"no operator is called {name!r}; there are: {', '.join(OPERATORS)}")
        if not callable(function):
            raise TypeError(f"{name} must be a function, not {function!r}")
    bound = {
        name: without_tap(function) if name in TAKES_TAP and not takes_tap(function) else function
        for name, function in replaced.items()
    }
    for name, function in OPERATORS.items():
        if name not in replaced:
            inner = {key: bound[key] for key in keyword_only(function) if key in bound}
            if inner:
                bound[name] = functools.partial(function, **inner)
    return SimpleNamespace(**(OPERATORS | bound))


@functools.cache
def keyword_only(function):
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]


def takes_tap(function):
    parameters = inspect.signature(function).parameters.values()
    return any(p.name == "tap" or p.kind is p.VAR_KEYWORD for p in parameters)


def without_tap(function):
    """For a learner's own operator that knows nothing of taps: its inner steps stay unseen."""

    def untapped(*args, tap=None, **kwargs):
        return function(*args, **kwargs)

    return untapped
