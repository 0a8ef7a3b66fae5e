"""The operators once more, in exact or 50-digit arithmetic, on nested lists: slow, plain, and independent of NumPy.

Fractions where the result is rational, mpmath where it is not. Nothing of npminimind's arithmetic is used.
"""

from fractions import Fraction

import mpmath
from mpmath import mp, mpf

mp.dps = 50
INF = float("inf")


def flat(value):
    return [x for inner in value for x in flat(inner)] if isinstance(value, list) else [value]


def rows_of(value, function):
    """Apply a function to every innermost list."""
    return [rows_of(inner, function) for inner in value] if isinstance(value[0], list) else function(value)


def each(function):
    def over(x):
        return [over(inner) for inner in x] if isinstance(x, list) else function(mpf(x))

    return lambda a: {"out": over(a["x"])}


def dot(a, b):
    return mpmath.fsum(mpf(x) * mpf(y) for x, y in zip(a, b))


def matvec(matrix, x):
    return [dot(row, x) for row in matrix]


def softmax_row(x):
    greatest = max(x)
    if greatest == -INF:
        return [mpf("nan")] * len(x)
    e = [mpf(0) if xi == -INF else mpmath.exp(mpf(xi) - mpf(greatest)) for xi in x]
    return [ei / mpmath.fsum(e) for ei in e]


def rms_norm(a):
    def row(x):
        length = mpmath.sqrt(dot(x, x) / len(x) + mpf(a["eps"]))
        return [mpf(w) * mpf(xi) / length for w, xi in zip(a["weight"], x)]

    return {"out": rows_of(a["x"], row)}


def softmax(a):
    if a.get("axis", -1) == 0:
        columns = [softmax_row(list(column)) for column in zip(*a["x"])]
        return {"out": [list(row) for row in zip(*columns)]}
    return {"out": rows_of(a["x"], softmax_row)}


def silu_of(x):
    return x / (1 + mpmath.exp(-x))


def gelu_of(x):
    return x / 2 * mpmath.erfc(-x / mpmath.sqrt(2))


def rope_tables(a):
    d, yarn, tables = a["head_dim"], a.get("scaling"), {"cos": [], "sin": []}
    for position in range(a.get("start", 0), a.get("start", 0) + a["length"]):
        angles = [position * frequency(i, d, mpf(a["theta"]), yarn) for i in range(d // 2)] * 2
        factor = mpf(yarn["attention_factor"]) if yarn else 1
        tables["cos"].append([mpmath.cos(angle) * factor for angle in angles])
        tables["sin"].append([mpmath.sin(angle) * factor for angle in angles])
    return tables


def frequency(i, d, theta, yarn):
    plain = mpmath.power(theta, -mpf(2 * i) / d)
    if not yarn:
        return plain

    def turning(turns):
        return (
            d * mpmath.log(yarn["original_max_position_embeddings"] / (turns * 2 * mpmath.pi)) / (2 * mpmath.log(theta))
        )

    low, high = (
        max(mpmath.floor(turning(yarn["beta_fast"])), 0),
        min(mpmath.ceil(turning(yarn["beta_slow"])), d // 2 - 1),
    )
    slowed = min(max((i - low) / max(high - low, mpf("0.001")), 0), 1)
    return plain * (1 - slowed) + plain / yarn["factor"] * slowed


def rotate_half(a):
    def row(x):
        half = len(x) // 2
        return [-xi for xi in x[half:]] + x[:half]

    return {"out": rows_of(a["x"], row)}


def apply_rope(a):
    def turned(x):
        return [
            [[turn(head, *table) for head in heads] for heads, table in zip(row, zip(a["cos"], a["sin"]))] for row in x
        ]

    def turn(x, cos, sin):
        half = len(x) // 2
        other = [-xi for xi in x[half:]] + x[:half]
        return [mpf(xi) * mpf(c) + mpf(o) * mpf(s) for xi, o, c, s in zip(x, other, cos, sin)]

    return {"q": turned(a["q"]), "k": turned(a["k"])}


def repeat_kv(a):
    return {"out": [[[head for head in heads for _ in range(a["n_rep"])] for heads in row] for row in a["x"]]}


def causal_mask(a):
    past = a["t"] - a["s"]
    return {"out": [[0.0 if key <= past + query else -INF for key in range(a["t"])] for query in range(a["s"])]}


def attention(a):
    return {
        "out": [
            attend(*row, mask) for *row, mask in zip(a["q"], a["k"], a["v"], a.get("attention_mask") or [None] * 99)
        ]
    }


def attend(q, k, v, mask):
    past, group, context = len(k) - len(q), len(q[0]) // len(k[0]), []
    for i, heads in enumerate(q):
        context.append([])
        for n, x in enumerate(heads):
            seen = range(past + i + 1)
            scores = [dot(x, k[j][n // group]) / mpmath.sqrt(len(x)) for j in seen]
            scores = [s if mask is None or mask[j] else s - 10**9 for s, j in zip(scores, seen)]
            probs = softmax_row(scores)
            context[-1] += [dot(probs, [v[j][n // group][d] for j in seen]) for d in range(len(x))]
    return context


def network(x, gate, up, down, act):
    function = gelu_of if act == "gelu" else silu_of
    return matvec(down, [function(g) * u for g, u in zip(matvec(gate, x), matvec(up, x))])


def swiglu(a):
    weights = a["gate_proj"], a["up_proj"], a["down_proj"]
    return {"out": rows_of(a["x"], lambda x: network(x, *weights, a.get("act")))}


def moe(a):
    def token(x):
        probs = softmax_row(matvec(a["gate"], x))
        chosen = sorted(range(len(probs)), key=lambda e: (-probs[e], e))[: a["num_experts_per_tok"]]
        total = sum(probs[e] for e in chosen) + mpf("1e-20") if a["norm_topk_prob"] else 1
        outs = [[probs[e] / total * y for y in network(x, *a["experts"][e], a.get("act"))] for e in chosen]
        return [mpmath.fsum(column) for column in zip(*outs)]

    return {"out": rows_of(a["x"], token)}


def apply_temperature(a):
    t = a["temperature"]
    if t == 0:
        return {"out": [[0 if x == max(row) else -INF for x in row] for row in a["logits"]]}
    if t == INF:
        return {"out": [[-INF if x == -INF else 0 for x in row] for row in a["logits"]]}
    return {"out": [[x if abs(x) == INF else Fraction(x) / Fraction(t) for x in row] for row in a["logits"]]}


def apply_repetition_penalty(a):
    penalty = Fraction(a["penalty"])

    def row(logits, ids):
        return [x if i not in ids or abs(x) == INF else Fraction(x) / penalty if x > 0 else Fraction(x) * penalty
                for i, x in enumerate(logits)]  # fmt: skip

    return {"out": [row(logits, ids) for logits, ids in zip(a["logits"], a["input_ids"])]}


def top_k_threshold(a):
    return {"out": [[sorted(row)[-a["k"]]] for row in a["logits"]]}


def apply_top_k(a):
    k = a["k"] or len(a["logits"][0])
    return {"out": [[x if sum(y > x for y in row) < k else -INF for x in row] for row in a["logits"]]}


def top_p_mask(a):
    found = [nucleus(row, a["p"]) for row in a["logits"]]
    names = ("sorted_logits", "sorted_indices", "cumulative", "exceeds", "shifted", "mask")
    return {name: [row[i] for row in found] for i, name in enumerate(names)}


def nucleus(row, p):
    order = sorted(range(len(row)), key=lambda i: (-row[i], i))
    probs, cumulative = softmax_row([row[i] for i in order]), []
    for prob in probs:
        cumulative.append((cumulative[-1] if cumulative else 0) + prob)
    exceeds = [c > mpf(p) + mpf(10) ** -45 for c in cumulative]  # thirds do not sum to one even in 50 digits
    shifted = [False, *exceeds[:-1]]
    mask = [shifted[order.index(i)] for i in range(len(row))]
    return [row[i] for i in order], order, cumulative, exceeds, shifted, mask


def apply_top_p(a):
    if a["p"] is None or a["p"] >= 1:
        return {"out": a["logits"]}
    return {"out": [[-INF if out else x for x, out in zip(row, nucleus(row, a["p"])[-1])] for row in a["logits"]]}


def greedy(a):
    return {"out": [row.index(max(row)) for row in a["logits"]]}


def multinomial(a):
    return {"out": [drawn([Fraction(p) for p in row], Fraction(u)) for row, u in zip(a["probs"], a["u"])]}


def drawn(probs, u):
    total, running = sum(probs), 0
    for i, p in enumerate(probs):
        running += p
        if running > u * total:
            return i


def pipeline(a):
    """Every stage in 50 digits, one after the other; each gets what the one before it has left."""
    x = [[mpf(v) for v in row] for row in a["logits"]]
    result = {}
    if a["temperature"]:
        x = [[v / mpf(a["temperature"]) for v in row] for row in x]
    result["after_temperature"] = x
    p = mpf(a["repetition_penalty"])
    x = [
        [(v / p if v > 0 else v * p) if i in ids else v for i, v in enumerate(row)]
        for row, ids in zip(x, a["input_ids"])
    ]
    result["after_repetition_penalty"] = x
    x = result["after_top_k"] = apply_top_k({"logits": x, "k": a["top_k"]})["out"]
    x = result["after_top_p"] = apply_top_p({"logits": x, "p": a["top_p"]})["out"]
    probs = result["probs"] = [softmax_row(row) for row in x]
    if "u" in a:
        result["next_token"] = [drawn(row, mpf(u)) for row, u in zip(probs, a["u"])]
    else:
        result["next_token"] = greedy({"logits": x})["out"]
    return result


EXACT = {
    "rms_norm": rms_norm, "softmax": softmax, "silu": each(silu_of), "gelu": each(gelu_of), "rope_tables": rope_tables,
    "rotate_half": rotate_half, "apply_rope": apply_rope, "repeat_kv": repeat_kv, "causal_mask": causal_mask,
    "attention": attention, "swiglu": swiglu, "moe": moe, "apply_temperature": apply_temperature,
    "apply_repetition_penalty": apply_repetition_penalty, "top_k_threshold": top_k_threshold,
    "apply_top_k": apply_top_k, "top_p_mask": top_p_mask, "apply_top_p": apply_top_p, "greedy": greedy,
    "multinomial": multinomial, "pipeline": pipeline,
}  # fmt: skip
