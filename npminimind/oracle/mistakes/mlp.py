"""Mistakes in the feed-forward network and the router."""

import math

import numpy as np

from ...mlp import moe
from ...primitives import gelu, linear, silu
from ...tapping import no_tap
from .mistake import wrong


def gate_up_swapped(x, gate_proj, up_proj, down_proj, act=silu, tap=None):
    tap = tap or no_tap
    gate = tap("gate_proj", linear(x, gate_proj))
    up = tap("up_proj", linear(x, up_proj))
    activated = tap("act", act(up))
    return tap("down_proj", linear(tap("hidden", activated * gate), down_proj))


def without_up(x, gate_proj, up_proj, down_proj, act=silu, tap=None):
    tap = tap or no_tap
    activated = tap("act", act(tap("gate_proj", linear(x, gate_proj))))
    return tap("down_proj", linear(tap("hidden", activated), down_proj))


def activation_last(x, gate_proj, up_proj, down_proj, act=silu, tap=None):
    tap = tap or no_tap
    gate = tap("gate_proj", linear(x, gate_proj))
    up = tap("up_proj", linear(x, up_proj))
    return tap("down_proj", linear(tap("hidden", act(gate * up)), down_proj))


def gelu_tanh(x):
    x = np.asarray(x)
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def sigmoid(x):
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-np.asarray(x)))


def quick_gelu(x):
    return x * sigmoid(1.702 * np.asarray(x))


# ---------------------------------------------------------------------------------------------
# Experts


def moe_altering(**alter):
    """Experts with some of the router's arrays replaced on their way: ``topk_weight=lambda weight: …``."""

    def altered(x, gate, experts, num_experts_per_tok, norm_topk_prob, act=silu, tap=None):
        tap = tap or no_tap

        def inner(name, array):
            return tap(name, alter[name](array) if name in alter else array)

        return moe(x, gate, experts, num_experts_per_tok, norm_topk_prob, act, inner)

    return altered


def moe_renormalising(renormalise):
    """``renormalise(norm_topk_prob)`` instead of what the config says."""

    def altered(x, gate, experts, num_experts_per_tok, norm_topk_prob, act=silu, tap=None):
        return moe(x, gate, experts, num_experts_per_tok, renormalise(norm_topk_prob), act, tap)

    return altered


def moe_first_choice(x, gate, experts, num_experts_per_tok, norm_topk_prob, act=silu, tap=None):
    return moe(x, gate, experts, 1, norm_topk_prob, act, tap)


def moe_sigmoid(x, gate, experts, num_experts_per_tok, norm_topk_prob, act=silu, tap=None):
    return moe(x, gate, experts, num_experts_per_tok, norm_topk_prob, act, tap, softmax=sigmoid)


def moe_next_expert(x, gate, experts, num_experts_per_tok, norm_topk_prob, act=silu, tap=None):
    """Expert 1 in the place of 0: ids that count from one."""
    shifted = [*experts[1:], *experts[:1]]
    return moe(x, gate, shifted, num_experts_per_tok, norm_topk_prob, act, tap)


def uses_silu(config):
    return config.hidden_act == "silu"


def uses_gelu(config):
    return config.hidden_act == "gelu"


def experts(config):
    return config.use_moe


def several(config):
    return config.use_moe and config.num_experts_per_tok > 1


def mlp_wrong(name, id, bug_type, description, effect, function, **others):
    return wrong(name, function, id=id, bug_type=bug_type, description=description, effect=effect, **others)


MLP = "attention of the first layer is right, its feed-forward network wrong"
WEIGHTS = "the chosen experts are right, their sum is not"

MISTAKES = (
    mlp_wrong("silu", "silu-gelu", "function", "gelu for silu", MLP, gelu, applies=uses_silu),
    mlp_wrong("silu", "silu-relu", "function", "relu for silu", MLP, lambda x: np.maximum(np.asarray(x), 0),
              applies=uses_silu),
    mlp_wrong("silu", "silu-sigmoid", "function", "the sigmoid alone, not x times it", MLP, sigmoid, applies=uses_silu),
    mlp_wrong("silu", "silu-quick-gelu", "function", "x * sigmoid(1.702 x) for silu", MLP, quick_gelu,
              applies=uses_silu),
    mlp_wrong("gelu", "gelu-tanh", "function", "gelu's tanh approximation", "errors up to 5e-4 in act", gelu_tanh,
              applies=uses_gelu),
    mlp_wrong("gelu", "gelu-silu", "function", "silu though the config says gelu", MLP, silu, applies=uses_gelu),
    mlp_wrong("swiglu", "gate-up-swapped", "order", "activates the up projection instead of the gate", MLP,
              gate_up_swapped),
    mlp_wrong("swiglu", "up-missing", "missing-step", "does not multiply with the up projection", MLP, without_up),
    mlp_wrong("swiglu", "activation-last", "order", "activates the product: act(gate * up)", MLP, activation_last),
    mlp_wrong("moe", "router-not-renormalised", "missing-step", "does not divide the chosen weights by their sum",
              WEIGHTS,
              moe_renormalising(lambda norm: False), applies=lambda c: c.use_moe and c.norm_topk_prob),
    mlp_wrong("moe", "router-renormalised", "extra-step",
              "divides the chosen weights by their sum though the config says no",
              WEIGHTS, moe_renormalising(lambda norm: True), applies=lambda c: c.use_moe and not c.norm_topk_prob),
    mlp_wrong("moe", "router-weights-reversed", "order", "gives the chosen experts each other's weights", WEIGHTS,
              moe_altering(topk_weight=lambda weight: weight[:, ::-1]), applies=several),
    mlp_wrong("moe", "router-weights-ignored", "missing-step", "adds the chosen experts without weights", WEIGHTS,
              moe_altering(topk_weight=np.ones_like), applies=experts),
    mlp_wrong("moe", "router-sigmoid", "function", "a sigmoid in the router instead of a softmax", WEIGHTS, moe_sigmoid,
              applies=experts),
    mlp_wrong("moe", "experts-first-choice-only", "rule", "uses one expert a token where the config says several",
              WEIGHTS,
              moe_first_choice, applies=several),
    mlp_wrong("moe", "experts-shifted", "order", "numbers the experts from one: each token goes to the next expert",
              "router is right, every expert's output wrong", moe_next_expert, applies=experts),
)  # fmt: skip
