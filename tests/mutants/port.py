"""A port of MiniMind with a switch for every mistake, written for the tests from upstream's semantics alone.

It shares nothing with npminimind: its own layout (heads before positions, as in HF), its own loops over heads,
float32 throughout. A switch is called like the mistake that it makes; without switches the port is right.
"""

import numpy as np

F = np.float32


def rms(x, w, eps, on):
    x = x.astype(F)
    if "norm-mean-subtracted" in on:
        x = x - x.mean(-1, keepdims=True)
    n = x.shape[-1]
    total = np.einsum("...i,...i->...", x, x)[..., None]
    eps = F({"norm-eps": 1e-5, "norm-eps-missing": 0.0}.get(next(iter(on & {"norm-eps", "norm-eps-missing"}), ""), eps))
    if "norm-sum-not-mean" in on:
        length = np.sqrt(total + eps)
    elif "norm-without-root" in on:
        length = total / n + eps
    elif "norm-unbiased" in on:
        length = np.sqrt(total / (n - 1) + eps)
    elif "norm-eps-outside-root" in on:
        length = np.sqrt(total / n) + eps
    else:
        length = np.sqrt(total / n + eps)
    out = x / length
    if "norm-weight-missing" in on:
        return out.astype(F)
    return (out * (w + 1 if "norm-weight-plus-one" in on else w)).astype(F)


def angles(c, positions, on):
    d = c["head_dim"]
    theta = c["rope_theta"]
    if "rope-theta" in on:
        theta = 1e6 if theta == 1e4 else 1e4
    power = {"rope-exponent-without-two": 1.0, "rope-exponent-doubled": 4.0}
    two = power.get(next(iter(on & power.keys()), ""), 2.0)
    freqs = np.array([theta ** (-two * i / d) for i in range(d // 2)])
    yarn = c["rope_scaling"] if c["max_position_embeddings"] > 2048 else None
    if "yarn-always" in on:
        yarn = dict(original_max_position_embeddings=2048, factor=16, beta_fast=32, beta_slow=1, attention_factor=1.0)
    scale = 1.0
    if yarn and "yarn-off" not in on:
        factor = 4 if "yarn-factor-4" in on else yarn["factor"]

        def index(turns):
            return d * np.log(yarn["original_max_position_embeddings"] / (turns * 2 * np.pi)) / (2 * np.log(theta))

        low = max(int(np.floor(index(yarn["beta_fast"]))), 0)
        high = min(int(np.ceil(index(yarn["beta_slow"]))), d // 2 - 1)
        for i in range(d // 2):
            ramp = min(max((i - low) / max(high - low, 0.001), 0.0), 1.0)
            if "yarn-all-pairs" in on:
                ramp = 1.0
            freqs[i] = freqs[i] * (1 - ramp) + freqs[i] / factor * ramp
        if "yarn-attention-factor" in on:
            scale = 0.1 * np.log(16) + 1
    a = positions.astype(F)[:, None] * freqs.astype(F)[None]
    a = np.concatenate([a, a], -1)
    return (np.cos(a) * scale).astype(F), (np.sin(a) * scale).astype(F)


def turn(x, cos, sin, on):
    """x [B, heads, S, D]"""
    half = x.shape[-1] // 2
    if "rope-neighbours" in on:
        out = np.empty_like(x)
        for i in range(half):
            out[..., 2 * i] = x[..., 2 * i] * cos[:, i] - x[..., 2 * i + 1] * sin[:, i]
            out[..., 2 * i + 1] = x[..., 2 * i + 1] * cos[:, i] + x[..., 2 * i] * sin[:, i]
        return out
    if "rope-neighbours-half-tables" in on:
        other = np.empty_like(x)
        other[..., ::2], other[..., 1::2] = -x[..., 1::2], x[..., ::2]
        return x * cos + other * sin
    a, b = x[..., :half], x[..., half:]
    if "rope-sign" in on:
        sin = -sin
    return np.concatenate([a * cos[:, :half] - b * sin[:, :half], b * cos[:, half:] + a * sin[:, half:]], -1)


def soft(x, axis=-1):
    with np.errstate(invalid="ignore"):
        e = np.exp(x - np.max(x, axis=axis, keepdims=True))
        return e / e.sum(axis=axis, keepdims=True)


def activate(x, c, on):
    sig = 1 / (1 + np.exp(-np.clip(x, -80, 80)))
    tanh_gelu = 0.5 * x * (1 + np.tanh(F(0.7978845608) * (x + F(0.044715) * x * x * x)))
    if "silu-relu" in on:
        return x * (x > 0)
    if "silu-sigmoid" in on:
        return sig
    if "silu-quick-gelu" in on:
        return x / (1 + np.exp(-F(1.702) * x))
    if "gelu-tanh" in on:
        return tanh_gelu
    gelu = (c["hidden_act"] == "gelu" or "silu-gelu" in on) and "gelu-silu" not in on
    if gelu:
        import math

        return (0.5 * x * (1 + np.vectorize(math.erf)(x.astype(float) / 2**0.5))).astype(F)
    return x * sig


def feed_forward(x, w, p, c, on, dump, path):
    gate, up = x @ w[p + "gate_proj.weight"].T, x @ w[p + "up_proj.weight"].T
    dump(path + "gate_proj", gate)
    if "up-missing" in on:
        act = activate(gate, c, on)
        hidden = act
    elif "gate-up-swapped" in on:
        act = activate(up, c, on)
        hidden = act * gate
    elif "activation-last" in on:
        act = None
        hidden = activate(gate * up, c, on)
    else:
        act = activate(gate, c, on)
        hidden = act * up
    if "up-missing" not in on:
        dump(path + "up_proj", up)
    if act is not None:
        dump(path + "act_fn", act)
    out = hidden @ w[p + "down_proj.weight"].T
    dump(path + "down_proj", out)
    return out


def experts(x, w, p, c, on, dump):
    b, s, h = x.shape
    flat = x.reshape(-1, h)
    logits = flat @ w[p + "gate.weight"].T
    dump(p + "gate", logits)
    probs = 1 / (1 + np.exp(-logits)) if "router-sigmoid" in on else soft(logits)
    k = 1 if "experts-first-choice-only" in on else c["num_experts_per_tok"]
    chosen = np.array([sorted(range(len(row)), key=lambda e: (-row[e], e))[:k] for row in probs])
    weight = np.take_along_axis(probs, chosen, 1)
    norm = c["norm_topk_prob"]
    norm = False if "router-not-renormalised" in on else True if "router-renormalised" in on else norm
    if norm:
        weight = weight / weight.sum(-1, keepdims=True)
    if "router-weights-reversed" in on:
        weight = weight[:, ::-1]
    if "router-weights-ignored" in on:
        weight = np.ones_like(weight)
    dump(p + "topk_idx", chosen)
    dump(p + "topk_weight", weight.astype(F))
    out = np.zeros_like(flat)
    for e in range(c["num_experts"]):
        rows = [t for t in range(len(flat)) if e in chosen[t]]
        if rows:
            source = (e + 1) % c["num_experts"] if "experts-shifted" in on else e
            y = feed_forward(flat[rows], w, f"{p}experts.{source}.", c, on, dump, f"{p}experts.{e}.")
            for row, t in enumerate(rows):
                out[t] += weight[t, list(chosen[t]).index(e)] * y[row]
    return out.reshape(b, s, h)


def attend(x, w, p, c, on, dump, cache, mask, past):
    b, s, h = x.shape
    n, kv, d = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    wq, wk, wv, wo = (w[f"{p}{part}_proj.weight"] for part in "qkvo")
    if "qk-weave-kept" in on:
        wq, wk = (m.reshape(-1, 2, d // 2, h).transpose(0, 2, 1, 3).reshape(m.shape) for m in (wq, wk))
    wq = wq.T if "q-proj-transposed" in on else wq
    wo = wo.T if "o-proj-transposed" in on else wo
    q, k, v = x @ wq.T, x @ wk.T, x @ wv.T
    for name, array in (("q_proj", q), ("k_proj", k), ("v_proj", v)):
        dump(p + name, array)
    q = q.reshape(b, s, n, d).transpose(0, 2, 1, 3)
    k = k.reshape(b, s, kv, d).transpose(0, 2, 1, 3)
    v = v.reshape(b, s, kv, d).transpose(0, 2, 1, 3)
    gq, gk = w[p + "q_norm.weight"], w[p + "k_norm.weight"]
    if "qk-norm-swapped" in on:
        gq, gk = gk, gq
    eps = c["rms_norm_eps"]

    def norm_heads(q, k):
        if "qk-norm-whole-width" in on:

            def whole(t, g):
                flat = t.transpose(0, 2, 1, 3).reshape(b, s, -1)
                return rms(flat, np.tile(g, t.shape[1]), eps, on).reshape(b, s, -1, d).transpose(0, 2, 1, 3)

            return whole(q, gq), whole(k, gk)
        q = q if on & {"qk-norm-missing", "q-norm-missing"} else rms(q, gq, eps, on)
        return q, k if on & {"qk-norm-missing", "k-norm-missing"} else rms(k, gk, eps, on)

    start = 0 if "rope-positions-restart" in on else max(past - 1, 0) if "rope-positions-late" in on else past
    cos, sin = angles(c, np.arange(start, start + s) + ("rope-positions-from-one" in on), on)
    dump("model.rotary_emb.0", cos[None])
    dump("model.rotary_emb.1", sin[None])
    if "qk-norm-after-rope" not in on:
        q, k = norm_heads(q, k)
        if not on & {"qk-norm-missing", "q-norm-missing"}:
            dump(p + "q_norm", q.transpose(0, 2, 1, 3))
        if not on & {"qk-norm-missing", "k-norm-missing"}:
            dump(p + "k_norm", k.transpose(0, 2, 1, 3))
    if not on & {"rope-missing", "rope-k-only"}:
        q = turn(q, cos, sin, on)
    if not on & {"rope-missing", "rope-q-only"}:
        k = turn(k, cos, sin, on)
    if "rope-k-twice" in on:
        k = turn(k, cos, sin, on)
    if "qk-norm-after-rope" in on:
        q, k = norm_heads(q, k)
        dump(p + "q_norm", q.transpose(0, 2, 1, 3))
        dump(p + "k_norm", k.transpose(0, 2, 1, 3))
    if "v-norm" in on:
        v = rms(v, gk, eps, on)
    dump(p + "q_rope", q)
    if cache is not None:
        k, v = np.concatenate([cache[0], k], 2), np.concatenate([cache[1], v], 2)
    new_cache = (k, v)
    if "cache-ignored" in on:
        k, v, mask = k[:, :, -s:], v[:, :, -s:], None if mask is None else mask[:, -s:]
    t = k.shape[2]
    scores = np.empty((b, n, s, t), F)
    divisor = {"attention-scale-missing": 1.0, "attention-scale-hidden": (n * d) ** 0.5, "attention-scale-twice": d}
    divide = F(divisor.get(next(iter(on & divisor.keys()), ""), d**0.5))
    read = [g % kv if "heads-tiled" in on else g // (n // kv) for g in range(n)]
    for g in range(n):
        scores[:, g] = q[:, g] @ k[:, read[g]].transpose(0, 2, 1) / divide
    for i in range(s):
        at = i if "causal-square-only" in on else t - s + i
        first_hidden = {"causal-shifted": at + 2, "causal-excludes-self": at}.get(next(iter(on), ""), at + 1)
        if "causal-missing" not in on:
            scores[:, :, i, first_hidden:] = -np.inf
    if mask is not None and "padding-ignored" not in on:
        scores = scores + np.where(mask[:, None, None, :t] == 0, F(-1e9), F(0))
    axis = -2 if "softmax-over-queries" in on else 1 if "softmax-over-heads" in on else -1
    probs = soft(scores, axis)
    dump(p + "attn_weights", probs)
    context = np.stack([probs[:, g] @ v[:, read[g]] for g in range(n)], 1)
    if "heads-not-transposed" not in on:
        context = context.transpose(0, 2, 1, 3)
    context = context.reshape(b, s, n * d)
    dump(p + "context", context)
    out = context @ wo.T
    dump(p.removesuffix("."), out)
    return out, new_cache


def forward(w, c, ids, mask=None, caches=None, on=frozenset(), dump=lambda name, array: None):
    """ids [B, S] -> logits [B, S, V] and caches [B, kv, T, D], layer by layer."""
    eps = c["rms_norm_eps"]
    past = 0 if caches is None else caches[0][0].shape[2]
    x = w["model.embed_tokens.weight"][ids]
    dump("model.embed_tokens", x)
    if "embedding-scaled" in on:
        x = x * F(np.sqrt(c["hidden_size"]))
    layers = list(range(c["num_hidden_layers"]))
    if "layer-last-skipped" in on:
        layers = layers[:-1]
    if "layers-sorted-as-text" in on:
        layers = sorted(layers, key=str)
    out_caches = []
    for step, i in enumerate(layers):
        p, shown = f"model.layers.{i}.", f"model.layers.{step}."

        def show(name, array, p=p, shown=shown):
            dump(name.replace(p, shown) if name.startswith(p) else name.replace(p[:-1], shown[:-1]), array)

        g1, g2 = w[p + "input_layernorm.weight"], w[p + "post_attention_layernorm.weight"]
        if "layernorms-swapped" in on:
            g1, g2 = g2, g1
        post = "block-post-norm" in on
        h = x if post or "input-norm-missing" in on else rms(x, g1, eps, on)
        if not post and "input-norm-missing" not in on:
            show(p + "input_layernorm", h)
        a, cache = attend(h, w, p + "self_attn.", c, on, show, None if caches is None else caches[step], mask, past)
        out_caches.append(cache)
        show(f"past_key_values.{step}.key", cache[0])
        show(f"past_key_values.{step}.value", cache[1])
        middle = a if "attention-residual-missing" in on else (h if "residual-after-norm" in on else x) + a
        if post:
            middle = rms(middle, g1, eps, on)
            show(p + "input_layernorm", middle)
        before = x if "block-parallel" in on else middle
        h = before if post or "post-attention-norm-missing" in on else rms(before, g2, eps, on)
        if not post and "post-attention-norm-missing" not in on:
            show(p + "post_attention_layernorm", h)
        if c["use_moe"]:
            m = experts(h, w, p + "mlp.", c, on, show)
        else:
            m = feed_forward(h, w, p + "mlp.", c, on, show, p + "mlp.")
        show(p + "mlp", m)
        x = m if "mlp-residual-missing" in on else (h if "residual-after-norm" in on else middle) + m
        if post:
            x = rms(x, g2, eps, on)
            show(p + "post_attention_layernorm", x)
        show(p[:-1], x)
    x = x if "final-norm-missing" in on else rms(x, w["model.norm.weight"], eps, on)
    dump("model.norm", x)
    tied = c["tie_word_embeddings"] or "head-tied" in on
    logits = x @ w["model.embed_tokens.weight" if tied else "lm_head.weight"].T
    dump("lm_head", logits)
    return logits, out_caches


# ---------------------------------------------------------------------------------------------
# Sampling


def penalise(row, seen, penalty, on):
    row = row.copy()
    counts = {}
    for token in seen:
        counts[int(token)] = counts.get(int(token), 0) + 1
    if "penalty-ignored" in on:
        counts = {}
    for token, count in counts.items():
        p = penalty**count if "penalty-counts-multiplicity" in on else penalty
        p = 1 / p if "penalty-inverted" in on else p
        if "penalty-subtracts" in on:
            row[token] -= p
        elif row[token] > 0 or "penalty-divides-negatives" in on:
            row[token] /= p
        else:
            row[token] *= p
    return row


def keep_top_k(row, k, on):
    if not k or k >= len(row) or "top-k-ignored" in on:
        return row
    order = sorted(range(len(row)), key=lambda i: (-row[i], i))
    edge = row[order[k - 1]]
    if "top-k-drops-ties" in on:
        kept = set(order[:k])
    elif "top-k-strict" in on:
        kept = {i for i in order if row[i] > edge} or {order[0]}
    else:
        kept = {i for i in order if row[i] >= edge}
    return np.array([row[i] if i in kept else -np.inf for i in range(len(row))], row.dtype)


def keep_top_p(row, p, on):
    if p is None or p >= 1 or "top-p-ignored" in on:
        return row
    order = list(range(len(row))) if "top-p-unsorted" in on else sorted(range(len(row)), key=lambda i: (-row[i], i))
    probs = soft(row[order])
    total, sums = 0.0, []
    for value in probs:
        total += float(value)
        sums.append(F(total))
    over = [bool(x >= p) if "top-p-exact-hit" in on else bool(x > p) for x in sums]
    if "top-p-not-shifted" in on:
        removed = [False, *over[1:]]
    elif "top-p-one-more" in on:
        removed = [False, False, *over[:-2]]
    else:
        removed = [False, *over[:-1]]
    out = row.copy()
    for place, gone in zip(order, removed):
        if gone:
            out[place] = -np.inf
    return out


def draw(probs, u, on):
    if "draw-argmax" in on:
        return int(np.argmax(probs))
    order = sorted(range(len(probs)), key=lambda i: (-probs[i], i)) if "cdf-sorted" in on else list(range(len(probs)))
    small = "cdf-float32" in on
    values = [F(probs[i]) if small else float(probs[i]) for i in order]
    total = F(0) if small else 0.0
    whole = sum(values, total)
    target = F(u) * whole if small else u * whole
    if "probs-not-renormalised" in on:
        target = u
    last = 0
    for i, value in zip(order, values):
        total = total + value
        if value > 0:
            last = i
        if total >= target if "cdf-inclusive" in on else total > target:
            return i
    return last


def generate(
    w, c, ids, mask=None, rounds=8, temperature=0.85, top_p=0.85, top_k=50, penalty=1.0, eos=2, copies=1, us=None,
    on=frozenset(), dump=lambda name, array: None, force=None,
):  # fmt: skip
    """us [rounds, B] or None for greedy -> ids [B, L]. ``dump`` sees names behind ``round_{r}.``"""
    ids = np.asarray(ids)
    if "return-sequences-interleaved" in on:
        ids = np.repeat(ids, copies, 0)
        mask = None if mask is None else np.repeat(mask, copies, 0)
    else:
        ids = np.concatenate([ids] * copies)
        mask = None if mask is None else np.concatenate([mask] * copies)
    prompt, caches, done = ids.shape[1], None, np.zeros(len(ids), bool)
    taken = iter([]) if us is None else iter(np.asarray(us).ravel().tolist())
    for r in range(rounds):

        def show(name, array, r=r):
            dump(f"round_{r}.{name}", array)

        feed = ids if caches is None else ids[:, -1:]
        logits, caches = forward(w, c, feed, mask, caches, on, show)
        new = []
        names = ("after_temperature", "after_repetition_penalty", "after_top_k", "after_top_p", "probs")
        rows = {stage: [] for stage in names}
        for b in range(len(ids)):
            row, seen = logits[b, -1].copy(), ids[b]
            if "penalty-skips-prompt" in on:
                seen = seen[prompt:]
            if "penalty-prompt-only" in on:
                seen = seen[:prompt]
            if "penalty-misses-last" in on and r:
                seen = seen[:-1]

            def heat(x):
                if "temperature-ignored" in on:
                    return x
                return x * F(temperature) if "temperature-multiplies" in on else x / F(temperature)

            stages = {
                "after_temperature": heat,
                "after_repetition_penalty": lambda x, s=seen: x if penalty == 1 else penalise(x, s, F(penalty), on),
                "after_top_k": lambda x: keep_top_k(x, top_k, on),
                "after_top_p": lambda x: keep_top_p(x, top_p, on),
            }
            order = list(stages)
            if "penalty-before-temperature" in on:
                order = [order[1], order[0], *order[2:]]
            if "temperature-last" in on:
                order = [*order[1:], order[0]]
            if "top-p-before-top-k" in on:
                order = [*order[:2], order[3], order[2]]
            if "penalty-last" in on:
                order = [order[0], order[2], order[3], order[1]]
            for stage in order:
                row = stages[stage](row)
                rows[stage].append(row)
            probs = soft(row)
            if "probs-not-renormalised" in on:
                probs = np.where(np.isfinite(row), soft(rows["after_repetition_penalty"][-1]), F(0))
            rows["probs"].append(probs)
            if us is None:
                best = row.max()
                ties = [i for i in range(len(row)) if row[i] == best]
                token = ties[-1] if "argmax-last" in on else ties[0]
            elif done[b] and "u-skips-finished" in on:
                token = 0
            else:
                token = draw(probs, next(taken), on)
            if done[b] and "eos-row-goes-on" not in on:
                token = 0 if "eos-pad" in on else eos
            new.append(token)
        for stage, arrays in rows.items():
            show(f"sample.{stage}", np.stack(arrays))
        show("sample.next_token", np.array(new)[:, None])
        if force is not None:
            new = force[:, r]
        ids = np.concatenate([ids, np.array(new)[:, None]], 1)
        mask = None if mask is None else np.concatenate([mask, np.ones((len(ids), 1), int)], 1)
        done = done | (np.array(new) == eos)
        if "eos-ignored" in on:
            done[:] = False
        if "eos-ends-all" in on and done.any():
            done[:] = True
        if done.all():
            break
    return ids
