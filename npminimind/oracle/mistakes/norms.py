"""Mistakes in RMSNorm, and in which arrays are normed with which weights."""

import numpy as np

from ...norm import rms_norm
from ...rope import apply_rope
from .mistake import Mistake, with_ops, with_tap, wrong


def divided_by(length_of):
    """A norm that divides by ``length_of(mean_square, eps, n)``."""

    def norm(x, weight, eps):
        x = np.asarray(x, dtype=np.result_type(x, np.float32))
        return (
            np.asarray(weight, x.dtype) * (x / length_of((x * x).mean(-1, keepdims=True), eps, x.shape[-1]))
        ).astype(x.dtype)

    return norm


def layer_norm(x, weight, eps):
    x = np.asarray(x, dtype=np.result_type(x, np.float32))
    return rms_norm(x - x.mean(axis=-1, keepdims=True), weight, eps)


def norm_wrong(id, bug_type, description, effect, function):
    return wrong("rms_norm", function, id=id, bug_type=bug_type, description=description, effect=effect)


# ---------------------------------------------------------------------------------------------
# Which norm goes where. A norm is recognised by its weight, a head norm by its four dims.


def skipping(is_skipped):
    """Leave out the norms whose weight is one of ``is_skipped(model)``."""

    def make_ops(model):
        skipped = {id(weight) for weight in is_skipped(model.weights)}
        return {"rms_norm": lambda x, weight, eps: x if id(weight) in skipped else model.ops.rms_norm(x, weight, eps)}

    return with_ops(make_ops)


def swapping(first, second):
    """Use the weight called ``first`` where ``second`` belongs, and the other way round."""

    def make_ops(model):
        layers = model.weights.layers
        other = {id(layer[a]): layer[b] for layer in layers for a, b in ((first, second), (second, first))}
        return {"rms_norm": lambda x, weight, eps: rms_norm(x, other.get(id(weight), weight), eps)}

    return with_ops(make_ops)


def after_rope(model):
    """Remember the head norms' weights, and norm once q and k are turned."""
    pending = []

    def remember(x, weight, eps):
        if x.ndim != 4:
            return rms_norm(x, weight, eps)
        pending.append((weight, eps))
        return x

    def rotate(q, k, cos, sin):
        k_norm, q_norm = pending.pop(), pending.pop()
        q, k = apply_rope(q, k, cos, sin)
        return rms_norm(q, *q_norm), rms_norm(k, *k_norm)

    return {"rms_norm": remember, "apply_rope": rotate}


def over_the_whole_width(x, weight, eps):
    """q and k normed over all heads together."""
    if x.ndim != 4:
        return rms_norm(x, weight, eps)
    flat = x.reshape(*x.shape[:2], -1)  # [B,S,N,D] -> [B,S,N*D]
    return rms_norm(flat, np.tile(weight, x.shape[2]), eps).reshape(x.shape)


def values_normed(model, name, array):
    if not name.endswith("self_attn.v_proj"):
        return array
    layer = model.weights.layers[int(name.split(".")[2])]
    heads = array.reshape(*array.shape[:2], -1, model.config.head_dim)
    return rms_norm(heads, layer["k_norm"], model.config.rms_norm_eps).reshape(array.shape)


def head_norm(id, bug_type, description, effect, change, operators=("rms_norm",), blurred=()):
    needed = {"applies": lambda config: config.qk_norm, "blurred": blurred}
    return Mistake(id, bug_type, description, effect, operators, change=change, **needed)


ALL = "every norm is off by a little; the error grows layer by layer"
BIG = "everything is wrong from the first norm on"
HEADS = "attention scores are wrong from the first layer on"

MISTAKES = (
    norm_wrong("norm-eps-outside-root", "order", "adds eps after the root: x / (sqrt(mean(x²)) + eps)",
               "hidden: of the size of float32 rounding unless x is small",
               divided_by(lambda ms, eps, n: np.sqrt(ms) + eps)),
    norm_wrong("norm-eps", "constant", "uses eps 1e-5 (1e-6 where 1e-5 is right)", "small unless x is small",
               lambda x, weight, eps: rms_norm(x, weight, 1e-6 if eps == 1e-5 else 1e-5)),
    norm_wrong("norm-eps-missing", "missing-step", "leaves eps out", "small unless x is small; nan for zeros",
               lambda x, weight, eps: rms_norm(x, weight, 0.0)),
    norm_wrong("norm-mean-subtracted", "extra-step", "subtracts the mean first, as LayerNorm does", ALL, layer_norm),
    norm_wrong("norm-sum-not-mean", "function", "divides by the root of the sum of squares, not of their mean",
               BIG + ", too small by sqrt(n)", divided_by(lambda ms, eps, n: np.sqrt(ms * n + eps))),
    norm_wrong("norm-without-root", "missing-step", "divides by the mean square, without the root", BIG,
               divided_by(lambda ms, eps, n: ms + eps)),
    norm_wrong("norm-unbiased", "function", "divides the sum of squares by n - 1, as a standard deviation does", ALL,
               divided_by(lambda ms, eps, n: np.sqrt(ms * n / max(n - 1, 1) + eps))),
    norm_wrong("norm-weight-missing", "missing-step", "does not multiply with the weight", ALL,
               lambda x, weight, eps: rms_norm(x, np.ones_like(weight), eps)),
    norm_wrong("norm-weight-plus-one", "function", "multiplies with 1 + weight, as Gemma does", BIG,
               lambda x, weight, eps: rms_norm(x, 1 + np.asarray(weight), eps)),
    head_norm("qk-norm-missing", "missing-step", "does not norm the heads of q and k", HEADS,
              skipping(lambda w: [layer[name] for layer in w.layers for name in ("q_norm", "k_norm")])),
    head_norm("q-norm-missing", "missing-step", "norms the heads of k, not those of q", HEADS,
              skipping(lambda w: [layer["q_norm"] for layer in w.layers])),
    head_norm("k-norm-missing", "missing-step", "norms the heads of q, not those of k", HEADS,
              skipping(lambda w: [layer["k_norm"] for layer in w.layers])),
    head_norm("qk-norm-after-rope", "order", "norms q and k after RoPE instead of before",
              "only through the weights, which are then multiplied to other features", with_ops(after_rope),
              ("rms_norm", "apply_rope"), ("q_norm", "k_norm", "q_rope", "k_rope")),
    head_norm("qk-norm-whole-width", "axis", "norms q and k over all heads together", HEADS,
              with_ops(lambda model: {"rms_norm": over_the_whole_width})),
    head_norm("qk-norm-swapped", "order", "norms q with k's weight and k with q's",
              "right at the scores of the same position, wrong elsewhere", swapping("q_norm", "k_norm")),
    head_norm("v-norm", "extra-step", "norms the values with k's norm as well", "scores are right, context is wrong",
              with_tap(values_normed), (), ("v_proj",)),
    Mistake("layernorms-swapped", "order", "uses each of the block's two norm weights in the other's place", ALL,
            ("rms_norm",), change=swapping("input_layernorm", "post_attention_layernorm")),
    Mistake("input-norm-missing", "missing-step", "does not norm what goes into attention", BIG, ("rms_norm",),
            change=skipping(lambda w: [layer["input_layernorm"] for layer in w.layers])),
    Mistake("post-attention-norm-missing", "missing-step", "does not norm what goes into the feed-forward network",
            "right up to the first feed-forward network", ("rms_norm",),
            change=skipping(lambda w: [layer["post_attention_layernorm"] for layer in w.layers])),
    Mistake("final-norm-missing", "missing-step", "does not norm the last hidden state",
            "every layer is right, logits are wrong", ("rms_norm",), change=skipping(lambda w: [w.norm])),
)  # fmt: skip
