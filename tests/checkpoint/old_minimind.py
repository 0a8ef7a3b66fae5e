"""MiniMind-1 and early MiniMind2 as they computed: old key names, RoPE on neighbours (complex numbers), shared expert.

Written from the formulas (Llama's reference code multiplies complex numbers), in float64, one row of ids
at a time, without a cache; nothing of it is shared with npminimind.
"""

import numpy as np


def random_old(layers, hidden, heads, kv_heads, inner, vocab, experts=0, seed=0):
    """Old names -> arrays; with ``experts``, each layer has as many and one shared."""
    rng = np.random.default_rng(seed)
    width = hidden // heads * kv_heads

    def matrix(rows, columns):
        return (rng.standard_normal((rows, columns)) * 0.3).astype(np.float32)

    def mlp(prefix):
        return {
            f"{prefix}w1.weight": matrix(inner, hidden),
            f"{prefix}w2.weight": matrix(hidden, inner),
            f"{prefix}w3.weight": matrix(inner, hidden),
        }

    p = {"tok_embeddings.weight": matrix(vocab, hidden), "norm.weight": np.float32(rng.uniform(0.5, 1.5, hidden))}
    for i in range(layers):
        a = f"layers.{i}."
        p[f"{a}attention_norm.weight"] = np.float32(rng.uniform(0.5, 1.5, hidden))
        p[f"{a}ffn_norm.weight"] = np.float32(rng.uniform(0.5, 1.5, hidden))
        for name, rows in (("wq", hidden), ("wk", width), ("wv", width), ("wo", hidden)):
            p[f"{a}attention.{name}.weight"] = matrix(rows, hidden)
        if not experts:
            p |= mlp(f"{a}feed_forward.")
            continue
        p[f"{a}feed_forward.gate.weight"] = matrix(experts, hidden)
        for e in range(experts):
            p |= mlp(f"{a}feed_forward.experts.{e}.")
        p |= mlp(f"{a}feed_forward.shared_experts.")
    return p | {"output.weight": p["tok_embeddings.weight"]}


def norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def rotate_neighbours(x, theta):
    """Each pair (2j, 2j + 1) is a complex number, turned by position * theta^(-2j / D)."""
    length, _, dim = x.shape
    angles = np.outer(np.arange(length), theta ** (-np.arange(0, dim, 2) / dim))
    pairs = x[..., 0::2] + 1j * x[..., 1::2]
    turned = pairs * np.exp(1j * angles)[:, None]
    return np.stack([turned.real, turned.imag], -1).reshape(x.shape)


def attention(h, p, prefix, heads, kv_heads, theta):
    length, hidden = h.shape
    dim = hidden // heads
    q = rotate_neighbours((h @ p[f"{prefix}wq.weight"].T).reshape(length, heads, dim), theta)
    k = rotate_neighbours((h @ p[f"{prefix}wk.weight"].T).reshape(length, kv_heads, dim), theta)
    v = (h @ p[f"{prefix}wv.weight"].T).reshape(length, kv_heads, dim)
    out = np.empty((length, heads, dim))
    for n in range(heads):
        kv = n // (heads // kv_heads)
        scores = q[:, n] @ k[:, kv].T / np.sqrt(dim)
        scores[np.triu_indices(length, 1)] = -np.inf
        out[:, n] = softmax(scores) @ v[:, kv]
    return out.reshape(length, hidden) @ p[f"{prefix}wo.weight"].T


def mlp(h, p, prefix):
    gate = h @ p[f"{prefix}w1.weight"].T
    return (gate / (1 + np.exp(-gate)) * (h @ p[f"{prefix}w3.weight"].T)) @ p[f"{prefix}w2.weight"].T


def experts(h, p, prefix, top_k):
    """Softmax over all, the top k; renormalised only if k > 1; the shared expert sees every token."""
    out = mlp(h, p, f"{prefix}shared_experts.")
    for s, row in enumerate(softmax(h @ p[f"{prefix}gate.weight"].T)):
        chosen = np.argsort(-row, kind="stable")[:top_k]
        scale = row[chosen].sum() if top_k > 1 else 1.0
        for e in chosen:
            out[s] += row[e] / scale * mlp(h[s], p, f"{prefix}experts.{e}.")
    return out


def forward(params, ids, heads, kv_heads, eps, theta, top_k=0):
    """Logits [S, V] of one row of ids."""
    p = {name: array.astype(np.float64) for name, array in params.items()}
    x = p["tok_embeddings.weight"][ids]
    for i in range(sum(name.endswith("attention_norm.weight") for name in p)):
        a = f"layers.{i}."
        h = norm(x, p[f"{a}attention_norm.weight"], eps)
        x = x + attention(h, p, f"{a}attention.", heads, kv_heads, theta)
        h = norm(x, p[f"{a}ffn_norm.weight"], eps)
        x = x + (experts(h, p, f"{a}feed_forward.", top_k) if top_k else mlp(h, p, f"{a}feed_forward."))
    return norm(x, p["norm.weight"], eps) @ p["output.weight"].T
