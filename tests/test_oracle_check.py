"""check(name, function): right functions pass, wrong ones are named, strange ones are survived."""

import numpy as np
import pytest

from npminimind import ops
from npminimind.oracle import check, findings
from npminimind.oracle import search as searching
from npminimind.oracle.naming import wrong_functions
from npminimind.oracle.signatures import SIGNATURES

FAST = dict(search=False)


# ---------------------------------------------------------------------------------------------
# Right functions, written as a learner would


def my_rms_norm(x, weight, eps):
    return weight * x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + eps)


def my_rotate_half(x):
    half = x.shape[-1] // 2
    return np.concatenate([-x[..., half:], x[..., :half]], axis=-1)


def my_apply_rope(q, k, cos, sin):
    cos, sin = cos[None, :, None], sin[None, :, None]
    return q * cos + my_rotate_half(q) * sin, k * cos + my_rotate_half(k) * sin


def my_softmax(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def my_causal_mask(s, t):
    return np.triu(np.full((s, t), -np.inf), k=t - s + 1)


def my_attention(q, k, v, attention_mask=None):
    d, n_rep = q.shape[-1], q.shape[2] // k.shape[2]
    k, v = np.repeat(k, n_rep, axis=2), np.repeat(v, n_rep, axis=2)
    scores = np.einsum("bsnd,btnd->bnst", q, k) / np.sqrt(d) + my_causal_mask(q.shape[1], k.shape[1])
    if attention_mask is not None:
        scores = scores + (1 - attention_mask[:, None, None, :]) * -1e9
    return np.einsum("bnst,btnd->bsnd", my_softmax(scores), v).reshape(*q.shape[:2], -1)


def my_swiglu(x, gate_proj, up_proj, down_proj, act=lambda g: g / (1 + np.exp(-g))):
    return (act(x @ gate_proj.T) * (x @ up_proj.T)) @ down_proj.T


def my_penalty(logits, input_ids, penalty):
    logits = logits.copy()
    for row, ids in zip(logits, input_ids):
        seen = np.unique(ids)
        row[seen] = np.where(row[seen] > 0, row[seen] / penalty, row[seen] * penalty)
    return logits


def my_top_k(logits, k):
    if not k:
        return logits
    kth = np.sort(logits, axis=-1)[..., -min(k, logits.shape[-1])][..., None]
    return np.where(logits < kth, -np.inf, logits)


def my_top_p(logits, p):
    if p is None:
        return logits
    order = np.argsort(-logits, axis=-1, kind="stable")
    exceeds = np.cumsum(np.take_along_axis(my_softmax(logits), order, -1), axis=-1) > p
    removed = np.zeros_like(exceeds)
    removed[..., 1:] = exceeds[..., :-1]
    mask = np.zeros_like(removed)
    np.put_along_axis(mask, order, removed, -1)
    return np.where(mask, -np.inf, logits)


def my_multinomial(probs, u):
    cumulative = np.cumsum(probs, axis=-1)
    return [int(np.argmax(row > x * row[-1])) for row, x in zip(cumulative, u)]


MINE = {
    "rms_norm": my_rms_norm,
    "rotate_half": my_rotate_half,
    "apply_rope": my_apply_rope,
    "repeat_kv": lambda x, n_rep: np.repeat(x, n_rep, axis=2),
    "causal_mask": my_causal_mask,
    "softmax": my_softmax,
    "attention": my_attention,
    "swiglu": my_swiglu,
    "apply_temperature": lambda logits, temperature: logits / temperature,
    "apply_repetition_penalty": my_penalty,
    "apply_top_k": my_top_k,
    "apply_top_p": my_top_p,
    "greedy": lambda logits: logits.argmax(axis=-1),
    "multinomial": my_multinomial,
}


@pytest.mark.parametrize("name", MINE)
def test_a_learners_own_function_passes(name):
    result = check(name, MINE[name], examples=25)
    assert result.ok and result and result.status == "passed", str(result)
    assert result.searched and not result.mistakes and not result.similar


@pytest.mark.parametrize("name", SIGNATURES)
def test_the_reference_passes_in_float32_too(name):
    def single(*args, **kwargs):
        small = [a.astype(np.float32) if getattr(a, "dtype", None) == np.float64 and name != "multinomial" else a
                 for a in args]  # fmt: skip
        return ops.OPERATORS[name](*small, **kwargs)

    result = check(name, single, **FAST)
    assert result.ok, str(result)
    assert not result.unrefused


# ---------------------------------------------------------------------------------------------
# Wrong functions


@pytest.mark.parametrize(
    "name, mistake",
    [(name, mistake) for name in SIGNATURES for mistake, _ in wrong_functions(name) if name in mistake.operators],
    ids=lambda value: getattr(value, "id", value),
)
def test_every_known_mistake_is_named(name, mistake):
    result = check(name, mistake.ops[name], **FAST)
    assert result.status == "failed"
    assert result.mistakes == [mistake]


def test_a_mistake_of_ones_own_is_named_where_it_is_a_known_one():
    def divides_negatives(logits, input_ids, penalty):
        logits = logits.copy()
        for row, ids in zip(logits, input_ids):
            row[np.unique(ids)] /= penalty
        return logits

    result = check("apply_repetition_penalty", divides_negatives, examples=25)
    assert [mistake.id for mistake in result.mistakes] == ["penalty-divides-negatives"]
    assert "penalty-divides-negatives: it divides negative logits too" in str(result)


def test_an_unknown_mistake_gets_no_name():
    result = check("silu", lambda x: x * 1.001 / (1 + np.exp(-x)), **FAST)
    assert result.status == "failed" and not result.mistakes and not result.similar
    assert "known mistake" not in str(result)


def test_most_answers_of_a_mistake_are_similar():
    def almost_gelu(x):
        wrong = dict((m.id, f) for m, f in wrong_functions("silu"))["silu-relu"](x)
        return np.where(np.asarray(x) < -500, 7.0, wrong)

    result = check("silu", almost_gelu, **FAST)
    assert not result.mistakes
    assert [mistake.id for mistake, given in result.similar] == ["silu-relu"]
    assert "Most wrong answers" in str(result)


def test_the_search_finds_what_the_cases_miss_and_makes_it_small():
    """Wrong only for 5 features and more than one row: no golden case is like that."""

    def my_softmax_of_five(x, axis=-1):
        return my_softmax(x, axis) * (1 + (x.shape == (2, 4)) * 1e-6)

    result = check("softmax", my_softmax_of_five)
    assert all(problem is None for _, problem in result.outcomes)
    assert [finding.case for finding in result.failures] == ["found by search"]
    assert result.failures[0].args["x"].tolist() == [[0.0] * 4] * 2
    assert "further inputs fail too" in str(result)


def test_the_smallest_failing_input_comes_first():
    result = check("rms_norm", lambda x, weight, eps: weight * x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True)))
    sizes = [finding.size() for finding in result.failures]
    assert sizes == sorted(sizes) and sizes[0][0] == 3  # one feature, one weight, eps


def test_same_seed_same_findings():
    def broken(logits, k):
        return np.where(logits < 1.3, -np.inf, logits)

    first, second = (check("apply_top_k", broken, seed=5, examples=30) for _ in range(2))
    assert str(first) == str(second)


# ---------------------------------------------------------------------------------------------
# Strange functions


def changes_its_argument(x):
    x *= 2
    return x / 2 / (1 + np.exp(-x / 2))


def unsolved(x):
    raise NotImplementedError


@pytest.mark.parametrize(
    "function, kind, words",
    [
        (lambda x: None, "type", "is None: is a return missing?"),
        (lambda x: "text", "shape", "has shape ()"),
        (lambda x: x[:-1], "shape", "need (19,)"),
        (lambda x: x[None], "shape", "need (19,)"),
        (lambda x: [1, [2]], "raised", "rows differ in length"),
        (lambda x: x * np.nan, "value", "is nan"),
        (lambda x: x / 0, "value", "is"),
        (lambda x: 1 / 0, "raised", "ends with ZeroDivisionError: division by zero"),
        (lambda: 0, "raised", "takes 0 positional arguments"),
        (lambda x: x.undefined, "raised", "AttributeError"),
        (changes_its_argument, "changed", "changes its argument x"),
        (lambda x: x * 1j, "type", "complex"),
    ],
)
def test_strange_functions_fail_with_a_message(function, kind, words):
    result = check("silu", function, **FAST)
    curve = next(finding for finding in result.failures if "silu.curve" in finding.case)
    assert curve.problem.kind == kind and words in curve.problem.message
    assert str(result) and result._repr_html_()


def test_wrong_number_of_results():
    result = check("apply_rope", lambda q, k, cos, sin: q, **FAST)
    assert "need a tuple of 2: q, k" in str(result)


def test_unsolved():
    result = check("silu", unsolved)
    assert result.status == "unsolved" and not result.ok and not result.failures
    assert str(result) == "silu: unsolved. It raises NotImplementedError; write it and check again."
    assert "unsolved" in result._repr_html_()


def test_lists_and_float32_are_fine():
    assert check("rotate_half", lambda x: my_rotate_half(x).tolist(), **FAST).ok
    assert check("rms_norm", lambda *a: my_rms_norm(*a).astype(np.float32), **FAST).ok


def test_half_precision_is_not_enough():
    result = check("silu", lambda x: (x / (1 + np.exp(-x))).astype(np.float16), **FAST)
    assert result.status == "failed" and "float16" in str(result)


def test_a_function_that_changes_from_call_to_call():
    calls = []

    def fickle(x):
        calls.append(x)
        return my_softmax(x) * (1 + 1e-3 * (len(calls) == 25))

    result = check("softmax", lambda x, axis=-1: fickle(x) if axis == -1 else my_softmax(x, axis), examples=40)
    assert result.status == "failed" and "changes from call to call" in str(result)


def test_what_should_be_refused_is_noted_and_does_not_count():
    result = check("apply_temperature", lambda logits, temperature: logits / temperature, **FAST)
    assert result.ok
    assert {finding.case.split()[-1] for finding in result.unrefused} == {
        "apply_temperature.negative",
        "apply_temperature.nan",
    }


def test_without_hypothesis_golden_cases_only(monkeypatch):
    monkeypatch.setattr(searching, "available", lambda: False)
    monkeypatch.setattr("npminimind.oracle.examine.available", lambda: False)
    monkeypatch.setattr(findings, "available", lambda: False)
    result = check("rotate_half", my_rotate_half)
    assert result.ok and result.searched is None
    assert str(result) == (
        "rotate_half: 5 of 5 golden cases agree (no further inputs were searched; pip install hypothesis to do so)"
    )


def test_unknown_operators_and_what_is_no_function():
    with pytest.raises(ValueError, match="no operator is called 'layer_norm'; there are: rms_norm"):
        check("layer_norm", my_rms_norm)
    with pytest.raises(TypeError, match="need a function"):
        check("silu", 3)


def test_html_is_escaped():
    result = check("silu", lambda x: "<script>" if x.size == 19 else x, **FAST)
    result.failures.sort(key=lambda finding: "curve" not in finding.case)
    page = result._repr_html_()
    assert "<script>" not in page and "smallest failing input" in page
