# %% zh
r"""
# 分组查询注意力：头、掩码、repeat_kv

注意力让每个位置从前面的位置取信息：用 q 与所有 k 的点积决定看谁，再按比例取 v 的平均。本笔记从一个头写起，然后是多个头、哪个查询头配哪个键值头、两种掩码，最后把一整层注意力从权重算到输出，与模型逐个中间量对上。
"""

# %% en
r"""
# Grouped-query attention: heads, masks, repeat_kv

Attention lets each position fetch information from those before it: dot products of q with all k decide where to look, and the output is that average of v. This notebook starts with one head, then takes several, shows which query head reads which key/value head, the two masks, and finally computes a whole attention layer from weights to output, meeting the model at every intermediate.
"""
# %%
import sys

import numpy as np

sys.path.append("..")  # course.py draws the pictures

import npminimind
from npminimind import attention, oracle, repeat_kv, softmax

import course

model = npminimind.load(dtype=np.float64)
c = model.config
N, K, D = c.num_attention_heads, c.num_key_value_heads, c.head_dim
ids = [model.tokenizer.encode("Once upon a time there was a little cat. The cat was")]
trace = npminimind.trace(model, ids)
# %% zh
r"""
## 1. 一个头

$$\text{out} = \mathrm{softmax}\!\left(\frac{QK^\top}{\sqrt{D}} + \text{mask}\right)V$$

Q `[S, D]`，K、V `[T, D]` → 分数 `[S, T]` → 输出 `[S, D]`。
"""
# %% en
r"""
## 1. One head

$$\text{out} = \mathrm{softmax}\!\left(\frac{QK^\top}{\sqrt{D}} + \text{mask}\right)V$$

Q `[S, D]`, K and V `[T, D]` → scores `[S, T]` → output `[S, D]`.
"""
# %%
rng = np.random.default_rng(0)
q, k, v = rng.standard_normal((3, 5, 8))  # S = T = 5, D = 8
scores = q @ k.T / np.sqrt(8)  # [S,T]
scores[np.triu_indices(5, 1)] = -np.inf  # the future
weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
out = weights @ v  # [S,D]

package = attention(*(x.reshape(1, 5, 1, 8) for x in (q, k, v)))  # [B,S,N*D]
assert np.allclose(out, package[0])
assert np.allclose(out[0], v[0])  # the first token sees itself only
# %% zh
r"""
## 2. 为什么除以 √D

q、k 的分量若方差为 1，点积的方差就是 D。不除的话，softmax 一开始就几乎只认一个位置。
"""
# %% en
r"""
## 2. Why divide by √D

If the entries of q and k have variance 1, their dot product has variance D. Undivided, the softmax picks almost one position from the start.
"""
# %%
q, k = rng.standard_normal((2, 2000, 96))
dots = (q * k).sum(axis=-1)
assert 80 < dots.var() < 112  # about D = 96
assert 0.8 < (dots / np.sqrt(96)).var() < 1.2
scores = rng.standard_normal((500, 20)) * np.sqrt(96)
print(
    "greatest weight of 20, mean:",
    "undivided",
    softmax(scores).max(axis=-1).mean().round(2),
    " divided",
    softmax(scores / np.sqrt(96)).max(axis=-1).mean().round(2),
)
# %% zh
r"""
## 3. 哪个查询头读哪个键值头

查询头 N 个，键值头 K 个，每 N/K 个**相邻**的查询头共用一个键值头：

$$\text{kv}(n) = \lfloor n \,/\, (N/K) \rfloor \qquad\text{即 } [A, B] \to [A, A, B, B]$$

常见错误是 `tile`：`[A, B, A, B]`。
"""
# %% en
r"""
## 3. Which query head reads which key/value head

There are N query heads and K key/value heads; N/K query heads **side by side** share one:

$$\text{kv}(n) = \lfloor n \,/\, (N/K) \rfloor \qquad\text{that is } [A, B] \to [A, A, B, B]$$

A common mistake is `tile`: `[A, B, A, B]`.
"""
# %%
x = np.array([7, 8]).reshape(1, 1, 2, 1)  # [B,T,K,D]
assert np.repeat(x, 2, axis=2).ravel().tolist() == [7, 7, 8, 8] == repeat_kv(x, 2).ravel().tolist()
assert np.tile(x, (1, 1, 2, 1)).ravel().tolist() == [7, 8, 7, 8]

q, k, v = (trace[f"model.layers.0.self_attn.{name}"] for name in ("q_rope", "k_cache", "v_cache"))
grouped = attention(q, k, v)  # copies no keys
defining = attention(q, k, v, repeat_kv=repeat_kv)  # really repeats them
tiled = attention(q, k, v, repeat_kv=lambda x, n: np.tile(x, (1, 1, n, 1)))
assert np.allclose(grouped, defining) and not np.allclose(grouped, tiled)
course.table(["query head", *range(N)], [["key/value head", *[n // (N // K) for n in range(N)]]])
# %% zh
r"""
## 4. 看注意力图

每行是一个查询，每列是一个键，颜色是权重。每行之和为 1，右上角（未来）恒为 0。同一键值头的两个查询头也可以看得很不一样。
"""
# %% en
r"""
## 4. Look at attention maps

A row is a query, a column a key, the colour a weight. Each row sums to 1; the upper right, the future, is 0. Two query heads of one key/value head may look at different things.
"""
# %%
layer = c.num_hidden_layers // 2
maps = trace[f"model.layers.{layer}.self_attn.probs"][0]  # [N,S,T]
assert np.allclose(maps.sum(axis=-1), 1) and np.triu(maps, 1).max() == 0
fig, axes = course.figure(columns=N // 2, rows=2, width=8, height=2.9)
names = course.labels(model.tokenizer, ids[0])
for n, ax in enumerate(axes.ravel()):
    course.heat(
        ax,
        np.where(np.tri(len(maps[n])) > 0, maps[n], np.nan),
        title=f"head {n}, key/value head {n // (N // K)}",
        vmin=0,
        vmax=1,
    )
    ax.set_xticks([])
    ax.set_yticks(range(len(names)), names if n % (N // 2) == 0 else [], fontsize=7)
course.show(fig, f"Attention maps of the heads of layer {layer}")
# %% zh
r"""
## 5. 两种掩码

- **因果**掩码是 −inf：未来的权重恰为 0。
- **补齐**掩码加 −1e9，有限：若一行全是 pad，−inf 会得到 0/0 = nan，−1e9 不会。
"""
# %% en
r"""
## 5. Two masks

- The **causal** mask is −inf: the weight of the future is exactly 0.
- The **padding** mask adds −1e9, which is finite: in a row of nothing but pads −inf would be 0/0 = nan, −1e9 is not.
"""
# %%
small = rng.standard_normal((1, 3, 1, 4))
mask = [[0, 1, 1]]  # one pad on the left
kept = {}
context = attention(small, small, small, mask, tap=lambda name, array: kept.setdefault(name, array))
assert np.isfinite(context).all()  # also the first row, which sees nothing but a pad
assert kept["probs"][0, 0, 1:, 0].max() == 0  # no token looks at the pad
with np.errstate(invalid="ignore"):
    assert np.isnan(softmax(np.array([-np.inf, -np.inf]))).all()
rows = [[query, *(f"{score:.3g}" for score in row)] for query, row in enumerate(kept["masked_scores"][0, 0])]
course.table(["query", "key 0 (pad)", "key 1", "key 2"], rows)
# %% zh
r"""
## 6. q_norm 与 k_norm

MiniMind-3 在 RoPE 之前，对每个头的 q 和 k 各做一次 RMSNorm（v 不做）。这样点积就有了上界：$|q\cdot k| \le \lVert q\rVert\,\lVert k\rVert$，长度由权重决定，不会随训练发散。
"""
# %% en
r"""
## 6. q_norm and k_norm

Before RoPE, MiniMind-3 applies an RMSNorm to each head of q and k (not to v). That bounds the dot products: $|q\cdot k| \le \lVert q\rVert\,\lVert k\rVert$, with lengths given by the weights, so they cannot grow without limit in training.
"""
# %%
before = trace["model.layers.0.self_attn.q_proj"].reshape(1, -1, N, D)
weight = model.params["model.layers.0.self_attn.q_norm.weight"]
after = weight * before / np.sqrt((before**2).mean(axis=-1, keepdims=True) + c.rms_norm_eps)
assert np.allclose(after, trace["model.layers.0.self_attn.q_norm"])
lengths = np.linalg.norm(after / weight, axis=-1)
assert (lengths <= np.sqrt(D) + 1e-9).all()  # before the weight, every head's q has length sqrt(D) at most
# %% zh
r"""
## 7. 一整层，从权重到输出

形状一路写在行尾。每一步都与轨迹里同名的中间量相等。
"""
# %% en
r"""
## 7. A whole layer, from weights to output

Shapes at the end of the lines. Every step equals the intermediate of that name in the trace.
"""
# %%
i = 0
name = f"model.layers.{i}.self_attn."
w = {
    part: model.params[f"{name}{part}.weight"] for part in ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")
}
x = trace[f"model.layers.{i}.input_layernorm"]  # [B,S,H]
q = (x @ w["q_proj"].T).reshape(1, -1, N, D)  # [B,S,H] -> [B,S,N,D]
k = (x @ w["k_proj"].T).reshape(1, -1, K, D)  # -> [B,S,K,D]
v = (x @ w["v_proj"].T).reshape(1, -1, K, D)
q, k = npminimind.rms_norm(q, w["q_norm"], c.rms_norm_eps), npminimind.rms_norm(k, w["k_norm"], c.rms_norm_eps)
q, k = npminimind.apply_rope(q, k, trace["rope.cos"], trace["rope.sin"])
assert np.allclose(q, trace[name + "q_rope"]) and np.allclose(k, trace[name + "k_rope"])

k, v = np.repeat(k, N // K, axis=2), np.repeat(v, N // K, axis=2)  # -> [B,S,N,D]
scores = np.einsum("bsnd,btnd->bnst", q, k) / np.sqrt(D)  # -> [B,N,S,T]
assert np.allclose(scores, trace[name + "scores"])
weights = softmax(scores + npminimind.causal_mask(*scores.shape[2:]))
assert np.allclose(weights, trace[name + "probs"])
context = np.einsum("bnst,btnd->bsnd", weights, v).reshape(1, -1, N * D)  # -> [B,S,N*D]
assert np.allclose(context @ w["o_proj"].T, trace[name + "o_proj"])  # -> [B,S,H]
course.shapes(x=x, q=q, k_repeated=k, scores=scores, context=context)
# %% zh
r"""
## 练习

写 `my_attention(q, k, v, attention_mask=None)`：q `[B, S, N, D]`，k、v `[B, T, K, D]`，补齐掩码 `[B, T]` → `[B, S, N*D]`。注意 T 可以大于 S（有缓存）。
"""
# %% en
r"""
## Exercise

Write `my_attention(q, k, v, attention_mask=None)`: q `[B, S, N, D]`, k and v `[B, T, K, D]`, padding mask `[B, T]` → `[B, S, N*D]`. Mind that T may exceed S (with a cache).
"""


# %%
def my_attention(q, k, v, attention_mask=None):
    raise NotImplementedError


# %% zh hint
r"""
第 7 节几乎就是答案。因果掩码是 T×T 三角形的最后 S 行；补齐掩码 `[B, T]` 变成 `[B, 1, 1, T]`，pad 处加 −1e9。softmax 前先减去每行最大值。
"""
# %% en hint
r"""
Section 7 is nearly the answer. The causal mask is the last S rows of the T×T triangle; the padding mask `[B, T]` becomes `[B, 1, 1, T]` and adds −1e9 at pads. Subtract each row's maximum before the softmax.
"""
# %%
oracle.check("attention", my_attention)


# %% solution
def my_attention(q, k, v, attention_mask=None):
    (b, s, n, d), t = q.shape, k.shape[1]
    k, v = (np.repeat(x, n // x.shape[2], axis=2) for x in (k, v))
    scores = np.einsum("bsnd,btnd->bnst", q, k) / np.sqrt(d)
    scores = scores + np.where(np.tri(t, dtype=bool)[t - s :], 0.0, -np.inf)
    if attention_mask is not None:
        scores = scores + np.where(np.asarray(attention_mask)[:, None, None, :] == 0, -1e9, 0.0)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = weights / weights.sum(axis=-1, keepdims=True)
    return np.einsum("bnst,btnd->bsnd", weights, v).reshape(b, s, n * d)
