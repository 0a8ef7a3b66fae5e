"""Every operator can be replaced: a changed one has an effect, an identical one none."""

import sys

import numpy as np
import pytest
from conftest import EXPERTS, SMALL, peaked, refusal

import npminimind
from npminimind import MiniMindConfig
from npminimind.ops import OPERATORS

PROMPT = [[5, 6, 7, 8], [9, 10, 11, 12]]
ASKED = dict(max_new_tokens=6, eos_token_id=None, temperature=1.3, repetition_penalty=1.3, top_k=9, top_p=0.8, rng=0)


@pytest.fixture(scope="module")
def models(dense):
    """One model for each operator in which it matters."""
    wide = dense.astype(np.float64)
    gelu = peaked(MiniMindConfig(**SMALL, hidden_act="gelu"), dtype=np.float64)
    experts = peaked(MiniMindConfig(**SMALL, **EXPERTS), dtype=np.float64)
    return {name: {"gelu": gelu, "moe": experts}.get(name, wide) for name in OPERATORS}


def seen(model, name):
    """All that a generation computes: the arrays of every step."""
    asked = ASKED | ({"do_sample": False} if name == "greedy" else {})
    steps = list(model.steps(PROMPT, **asked))
    return [a for s in steps for a in (s.logits, s.after_top_k, s.after_top_p, s.probs, s.next_token)]


def changed(name, function):
    """The function with a plausible mistake in its result."""

    def mistaken(*args, **kwargs):
        result = function(*args, **kwargs)
        if name in ("greedy", "multinomial"):
            return (result + 1) % 60
        if name == "top_p_mask":
            return result._replace(mask=np.zeros_like(result.mask))
        if name == "top_k_threshold":
            return result - 1
        if name == "causal_mask":
            return np.zeros_like(result)
        if name == "repeat_kv":
            return result[:, :, ::-1]
        if name in ("rope_tables", "apply_rope"):
            return result[0][..., ::-1] * 1.0, result[1]
        if name == "softmax":
            return result**1.1
        return result * 0.9

    return mistaken


@pytest.mark.parametrize("name", OPERATORS)
def test_a_changed_function_has_an_effect(models, name):
    model = models[name]
    other = model.with_ops(**{name: changed(name, OPERATORS[name])})
    assert not all(np.array_equal(a, b) for a, b in zip(seen(other, name), seen(model, name)))


@pytest.mark.parametrize("name", OPERATORS)
def test_an_identical_one_has_none(models, name):
    model, calls = models[name], []

    def same(*args, **kwargs):
        calls.append(args)
        return OPERATORS[name](*args, **kwargs)

    other = seen(model.with_ops(**{name: same}), name)
    assert calls
    for ours, want in zip(other, seen(model, name), strict=True):
        np.testing.assert_allclose(ours, want, rtol=0, atol=1e-11 if name == "repeat_kv" else 0)


@pytest.mark.parametrize("name", ["softmax", "swiglu", "silu"])
def test_replacements_reach_the_experts(models, name):
    model = models["moe"]
    other = model.with_ops(**{name: changed(name, OPERATORS[name])})
    assert abs(other(PROMPT).logits - model(PROMPT).logits).max() > 1e-3


def test_a_replaced_softmax_is_used_everywhere(models):
    """Attention, the router, the nucleus and the last step: counted by the shapes it is called with."""
    widths = set()

    def counting(x, axis=-1):
        widths.add((np.ndim(x), np.shape(x)[-1]))
        return OPERATORS["softmax"](x, axis)

    loop = models["moe"].with_ops(softmax=counting).steps(PROMPT, **ASKED)
    widths.clear()  # making the loop tried the stages once
    next(loop)
    assert widths == {(4, 4), (2, 5), (2, 60)}  # scores [B,N,S,T], router logits [tokens,E], logits [B,V]


def test_a_learners_function_needs_no_tap(models):
    """Without ``tap``, its inner steps stay unseen; the rest of the trace is there."""
    own = {
        "attention": lambda q, k, v, attention_mask=None: OPERATORS["attention"](q, k, v, attention_mask),
        "swiglu": lambda x, g, u, d, act: OPERATORS["swiglu"](x, g, u, d, act),
    }
    model, names = models["attention"], []
    other = model.with_ops(**own)
    assert np.array_equal(other(PROMPT, tap=lambda name, a: names.append(name)).logits, model(PROMPT).logits)
    assert "model.layers.0.self_attn.probs" not in names
    assert "model.layers.0.self_attn.o_proj" in names and "lm_head" in names


def test_the_original_stays_and_replacements_add_up(models):
    model = models["silu"]
    before = model(PROMPT).logits
    one = model.with_ops(silu=lambda x: x)
    two = one.with_ops(rms_norm=lambda x, weight, eps: x)
    assert np.array_equal(model(PROMPT).logits, before)
    assert set(one.replaced) == {"silu"} and set(two.replaced) == {"silu", "rms_norm"}
    assert two.params["model.norm.weight"] is model.params["model.norm.weight"]
    assert np.array_equal(one.astype(np.float64)(PROMPT).logits, one(PROMPT).logits)
    assert not np.array_equal(one.astype(np.float32)(PROMPT).logits, model.astype(np.float32)(PROMPT).logits)


def test_attention_of_somebody_else_sees_a_long_prompt_whole(monkeypatch, models):
    monkeypatch.setattr(sys.modules["npminimind.model"], "CHUNK_ROWS", 2)
    lengths = []

    def attention(q, k, v, attention_mask=None):
        lengths.append(q.shape[1])
        return OPERATORS["attention"](q, k, v, attention_mask)

    def open_mask(s, t, dtype):
        lengths.append(s)
        return np.zeros((s, t), dtype)

    models["attention"].with_ops(attention=attention)(PROMPT)
    models["attention"].with_ops(causal_mask=open_mask)(PROMPT)
    assert lengths == [4, 4] * 2


def test_unknown_names_and_no_functions(models):
    model = models["silu"]
    refusal(lambda: model.with_ops(sillu=abs), "sillu", "silu", "rms_norm")
    for wrong in (None, 5, "silu"):
        refusal(lambda wrong=wrong: model.with_ops(silu=wrong), "silu must be a function", error=TypeError)


def test_they_are_what_the_package_exports():
    for name, function in OPERATORS.items():
        assert getattr(npminimind, name) is function
