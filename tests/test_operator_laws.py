"""What holds for every operator: it changes no argument, keeps the dtype, and does not care about memory layout."""

import numpy as np
import pytest

from npminimind import apply_rope, attention, gelu, moe, repeat_kv, rms_norm, rotate_half, silu, softmax, swiglu
from npminimind.primitives import linear
from npminimind.sampling import (
    apply_repetition_penalty,
    apply_temperature,
    apply_top_k,
    apply_top_p,
    greedy,
    multinomial,
    top_k_threshold,
    top_p_mask,
)

IDS = np.array([[0, 3, 3], [1, 1, 5]])
MASK = np.array([[0, 1, 1, 1], [1, 1, 1, 1]])
# Name: (a call, the shapes of its float arguments)
CALLS = {
    "linear": (linear, [(2, 3), (5, 3)]),
    "softmax": (softmax, [(2, 6)]),
    "silu": (silu, [(2, 6)]),
    "gelu": (gelu, [(2, 6)]),
    "rms_norm": (lambda x, w: rms_norm(x, w, 1e-6), [(2, 3, 6), (6,)]),
    "rotate_half": (rotate_half, [(2, 6)]),
    "apply_rope": (apply_rope, [(2, 3, 4, 6), (2, 3, 2, 6), (3, 6), (3, 6)]),
    "repeat_kv": (lambda x: repeat_kv(x, 3), [(2, 3, 2, 4)]),
    "attention": (attention, [(2, 3, 4, 5), (2, 4, 2, 5), (2, 4, 2, 5)]),
    "attention with a mask": (lambda q, k, v: attention(q, k, v, MASK), [(2, 3, 4, 5), (2, 4, 2, 5), (2, 4, 2, 5)]),
    "swiglu": (swiglu, [(2, 3), (4, 3), (4, 3), (3, 4)]),
    "moe": (lambda x, gate, g, u, d: moe(x, gate, [(g, u, d)] * 2, 1, True), [(2, 3), (2, 3), (4, 3), (4, 3), (3, 4)]),
    "apply_temperature": (lambda x: apply_temperature(x, 0.7), [(2, 6)]),
    "apply_temperature at 0": (lambda x: apply_temperature(x, 0), [(2, 6)]),
    "apply_repetition_penalty": (lambda x: apply_repetition_penalty(x, IDS, 1.3), [(2, 6)]),
    "top_k_threshold": (lambda x: top_k_threshold(x, 3), [(2, 6)]),
    "apply_top_k": (lambda x: apply_top_k(x, 3), [(2, 6)]),
    "apply_top_k, off": (lambda x: apply_top_k(x, 0), [(2, 6)]),
    "top_p_mask": (lambda x: top_p_mask(x, 0.7), [(2, 6)]),
    "apply_top_p": (lambda x: apply_top_p(x, 0.7), [(2, 6)]),
    "greedy": (greedy, [(2, 6)]),
    "multinomial": (lambda x: multinomial(abs(x), [0.2, 0.9]), [(2, 6)]),
}
TO_INT64 = ("greedy", "multinomial")


def arguments(shapes, dtype=np.float64):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def arrays(result):
    return list(result) if isinstance(result, tuple) else [result]


@pytest.fixture(params=CALLS)
def name(request):
    return request.param


def test_changes_no_argument(name):
    """Its arguments are read-only: writing to one would raise."""
    call, shapes = CALLS[name]
    args = arguments(shapes)
    for array in args:
        array.flags.writeable = False
    for array in arrays(call(*args)):
        assert not any(np.shares_memory(array, arg) for arg in args)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_keeps_the_dtype(name, dtype):
    call, shapes = CALLS[name]
    for array in arrays(call(*arguments(shapes, dtype))):
        if array.dtype.kind == "f":
            assert array.dtype == dtype
        else:
            assert array.dtype in (np.int64, bool)
    if name in TO_INT64:
        assert array.dtype == np.int64


@pytest.mark.parametrize("layout", ["columns first", "every other", "backwards"])
def test_does_not_care_about_memory_layout(name, layout):
    call, shapes = CALLS[name]
    args = arguments(shapes)
    if layout == "columns first":
        others = [np.asfortranarray(a) for a in args]
    elif layout == "every other":
        others = [np.repeat(a, 2, axis=-1)[..., ::2] for a in args]
    else:
        others = [np.ascontiguousarray(np.flip(a))[(slice(None, None, -1),) * a.ndim] for a in args]
    for ours, want in zip(arrays(call(*others)), arrays(call(*args))):
        np.testing.assert_allclose(ours, want, rtol=1e-13, atol=1e-14)


def test_takes_lists(name):
    call, shapes = CALLS[name]
    args = arguments(shapes)
    if name == "multinomial":
        args = [abs(args[0])]
        call = lambda x: multinomial(x, [0.2, 0.9])  # noqa: E731
    for ours, want in zip(arrays(call(*(a.tolist() for a in args))), arrays(call(*args))):
        np.testing.assert_allclose(ours, want, rtol=1e-14)


def test_the_model_changes_no_argument(dense):
    ids, mask = np.array([[5, 6, 7]]), np.array([[0, 1, 1]])
    past = dense(ids, mask, use_cache=True).past_key_values
    new, longer = np.array([[8]]), np.array([[0, 1, 1, 1]])
    before = {name: array.copy() for name, array in dense.params.items()}
    for array in (ids, mask, new, longer, *(a for pair in past for a in pair)):
        array.flags.writeable = False
    dense(new, longer, past, use_cache=True)
    dense.generate(ids, mask, max_new_tokens=3, repetition_penalty=1.2, rng=0)
    dense.logprobs(ids, mask)
    assert all(np.array_equal(dense.params[name], array) for name, array in before.items())
