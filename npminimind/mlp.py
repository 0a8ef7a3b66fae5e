"""The feed-forward network of a block: SwiGLU, alone or as one of several experts."""

import numpy as np

from .primitives import as_float, linear, silu, softmax
from .tapping import behind, checked


def swiglu(x, gate_proj, up_proj, down_proj, act=silu, tap=None):
    """``(act(x gateᵀ) * (x upᵀ)) downᵀ``

    Parameters
    ----------
    x : array [..., H]
    gate_proj, up_proj : arrays [I, H]
    down_proj : array [H, I]
    act : function
        silu in MiniMind.
    tap : function (name, array) -> array, or None
        Sees ``gate_proj``, ``up_proj``, ``act``, ``hidden``, ``down_proj``.

    Returns
    -------
    array [..., H]

    Notes
    -----
    Source: Shazeer 2020, "GLU Variants Improve Transformer"; upstream ``FeedForward``.

    Examples
    --------
    silu(2) * 3 = 1.7616 * 3, times 10:

    >>> one = np.ones((1, 1))
    >>> swiglu(np.array([1.0]), 2 * one, 3 * one, 10 * one).round(3)
    array([52.848])
    """
    tap = checked(tap)
    gate = tap("gate_proj", linear(x, gate_proj))  # [..., H] -> [..., I]
    up = tap("up_proj", linear(x, up_proj))  # [..., H] -> [..., I]
    activated = tap("act", act(gate))
    hidden = tap("hidden", activated * up)
    return tap("down_proj", linear(hidden, down_proj))  # [..., I] -> [..., H]


def route(x, gate, num_experts_per_tok, norm_topk_prob, tap=None, softmax=softmax):
    """Which experts a token goes to, and how much each counts.

    Parameters
    ----------
    x : array [tokens, H]
    gate : array [E, H]
    num_experts_per_tok : int
    norm_topk_prob : bool
        Whether the chosen weights are divided by their sum. With one expert the weight is then exactly 1: the
        gate chooses, and does not scale.

    Returns
    -------
    topk_idx : int64 array [tokens, k]
        By descending probability; of equals, the lowest id first. (torch leaves that open.)
    topk_weight : array [tokens, k]

    Examples
    --------
    >>> gate = np.log(np.array([[2.0], [5.0], [3.0]]))    # probabilities .2, .5, .3
    >>> idx, weight = route(np.array([[1.0]]), gate, num_experts_per_tok=2, norm_topk_prob=True)
    >>> idx, weight.round(3)
    (array([[1, 2]]), array([[0.625, 0.375]]))
    """
    tap = checked(tap)
    router_logits = tap("gate", linear(x, gate))  # [tokens, H] -> [tokens, E]
    probs = tap("router_probs", softmax(router_logits))
    topk_idx = np.argsort(-probs, axis=-1, kind="stable")[:, :num_experts_per_tok]  # -> [tokens, k]
    topk_idx = tap("topk_idx", topk_idx)
    topk_weight = np.take_along_axis(probs, topk_idx, axis=-1)
    if norm_topk_prob:
        topk_weight = topk_weight / (topk_weight.sum(axis=-1, keepdims=True) + 1e-20)
    return topk_idx, tap("topk_weight", topk_weight)


def moe(x, gate, experts, num_experts_per_tok, norm_topk_prob, act=silu, tap=None, *, softmax=softmax, swiglu=swiglu):
    """Mixture of experts: each token goes through the few experts that its router prefers.

    Parameters
    ----------
    x : array [..., H]
    gate : array [E, H]
    experts : list of (gate_proj [I, H], up_proj [I, H], down_proj [H, I])
    num_experts_per_tok : int
        1 in MiniMind-3.
    norm_topk_prob : bool
    act : function
    tap : function (name, array) -> array, or None
        Sees ``gate``, ``router_probs``, ``topk_idx``, ``topk_weight`` and ``experts.{e}.…``.

    Returns
    -------
    array [..., H]

    Notes
    -----
    Source: Shazeer et al. 2017; upstream ``MOEFeedForward``. Tokens are gathered expert by expert; an expert
    that no token chose is not computed. Upstream trains and infers with the same routing.

    Examples
    --------
    >>> expert = lambda c: (np.full((1, 1), c), np.ones((1, 1)), np.ones((1, 1)))
    >>> x = np.array([[1.0], [-1.0]])
    >>> moe(x, np.array([[1.0], [-1.0]]), [expert(1.0), expert(0.0)], 1, True).round(3)   # silu(1) * 1; silu(0) * -1
    array([[0.731],
           [0.   ]])
    """
    x, tap = as_float(x), checked(tap)
    check_routing(gate, experts, num_experts_per_tok)
    tokens = x.reshape(-1, x.shape[-1])  # [..., H] -> [tokens, H]
    topk_idx, topk_weight = route(tokens, gate, num_experts_per_tok, norm_topk_prob, tap, softmax)
    y = np.zeros_like(tokens)
    for e, weights in enumerate(experts):
        token, choice = np.nonzero(topk_idx == e)
        if len(token):
            out = swiglu(tokens[token], *weights, act, tap=behind(f"experts.{e}.", tap))
            y[token] += topk_weight[token, choice, None] * out
    return y.reshape(x.shape)


def check_routing(gate, experts, num_experts_per_tok):
    if len(gate) != len(experts):
        raise ValueError(f"the gate has {len(gate)} rows, there are {len(experts)} experts")
    if not 1 <= num_experts_per_tok <= len(experts):
        raise ValueError(f"num_experts_per_tok must be 1 … {len(experts)}, not {num_experts_per_tok}")
