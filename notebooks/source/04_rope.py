# %% zh
r"""
# RoPE：把位置写成角度

注意力本身不知道先后。RoPE（旋转位置编码）把 q 和 k 的特征两两配对，每一对在平面里转一个角度，角度与位置成正比。本笔记回答三个常见问题：为什么是「前半配后半」而不是「相邻配对」（并证明两者只差一个排列，由检查点决定用哪种）；为什么点积只看距离；YaRN 到底改了什么。
"""

# %% en
r"""
# RoPE: position as an angle

Attention by itself knows no order. RoPE (rotary position embedding) pairs up the features of q and k and turns each pair in its plane, by an angle proportional to the position. This notebook answers three frequent questions: why halves and not neighbours are paired (with a proof that the two differ by a permutation only, so that the checkpoint decides); why a dot product sees distances only; and what YaRN really changes.
"""
# %%
import sys

import numpy as np

sys.path.append("..")  # course.py draws the pictures

import npminimind
from npminimind import MiniMindConfig, apply_rope, oracle, rope_tables
from npminimind.config import YARN
from npminimind.rope import inverse_frequencies

import course

model = npminimind.load(dtype=np.float64)
N, K, D = model.config.num_attention_heads, model.config.num_key_value_heads, model.config.head_dim
# %% zh
r"""
## 1. 一对特征，一个平面，一个角度

位置 $m$ 上，第 $i$ 对特征 $(x_i,\,x_{i+D/2})$ 转过 $m\,\omega_i$，$\omega_i = \theta^{-2i/D}$：

$$\begin{aligned} x_i' &= x_i \cos m\omega_i - x_{i+D/2} \sin m\omega_i\\ x_{i+D/2}' &= x_{i+D/2} \cos m\omega_i + x_i \sin m\omega_i\end{aligned}$$

q `[B, S, N, D]`、表 `[S, D]` → 同形状。
"""
# %% en
r"""
## 1. A pair, a plane, an angle

At position $m$ pair $i$ of features, $(x_i,\,x_{i+D/2})$ turns by $m\,\omega_i$, where $\omega_i = \theta^{-2i/D}$:

$$\begin{aligned} x_i' &= x_i \cos m\omega_i - x_{i+D/2} \sin m\omega_i\\ x_{i+D/2}' &= x_{i+D/2} \cos m\omega_i + x_i \sin m\omega_i\end{aligned}$$

q `[B, S, N, D]`, tables `[S, D]` → the same shape.
"""
# %%
d, theta, m = 4, 1e6, 1
x = np.array([1.0, 0.0, 0.0, 0.0])  # the first unit vector
omega = theta ** (-2 * np.arange(d // 2) / d)  # [D/2]
a, b = x[: d // 2], x[d // 2 :]
turned = np.concatenate([a * np.cos(m * omega) - b * np.sin(m * omega), b * np.cos(m * omega) + a * np.sin(m * omega)])

cos, sin = rope_tables(d, length=1, theta=theta, start=m, dtype=np.float64)
package = apply_rope(x.reshape(1, 1, 1, d), x.reshape(1, 1, 1, d), cos, sin)[0].ravel()
assert np.allclose(turned, package)
assert np.allclose(turned, [np.cos(1), 0, np.sin(1), 0])  # neighbours would give [cos 1, sin 1, 0, 0]
# %%
S = 12
cos, sin = rope_tables(D, S, model.config.rope_theta, dtype=np.float64)
one = np.zeros((1, S, 1, D))
one[..., [0, 2, 4]] = 1
q, _ = apply_rope(one, one, cos, sin)
fig, axes = course.figure(columns=3, width=7.6, height=2.7)
for ax, i, every in zip(axes, (0, 2, 4), (1, 1, S - 1)):
    for m in range(S):
        shade = 0.25 + 0.75 * (m + 1) / S
        ax.annotate(
            "",
            q[0, m, 0, [i, i + D // 2]],
            (0, 0),
            arrowprops={"arrowstyle": "->", "color": course.BLUE, "alpha": shade},
        )
        if m % every == 0:
            ax.text(*(1.15 * q[0, m, 0, [i, i + D // 2]]), str(m), ha="center", va="center", fontsize=7)
    ax.set(
        xlim=(-1.4, 1.4), ylim=(-1.4, 1.4), aspect="equal", xticks=[], yticks=[], title=f"features {i} and {i + D // 2}"
    )
assert np.allclose(np.linalg.norm(q, axis=-1), np.sqrt(3))  # a rotation keeps the length
course.show(fig, "Three pairs of features turning with the position, each slower than the one before")
# %% zh
r"""
## 2. 快的对和慢的对

$\omega_0 = 1$（每 6.3 个 token 转一圈），最后一对慢到几十万个 token 才转一圈。快的对分辨近处，慢的对分辨远处。
"""
# %% en
r"""
## 2. Fast pairs and slow pairs

$\omega_0 = 1$ (a turn in 6.3 tokens); the last pair takes hundreds of thousands of tokens for one. Fast pairs tell near places apart, slow pairs far ones.
"""
# %%
frequencies = 1 / model.config.rope_theta ** (np.arange(0, D, 2) / D)
assert np.allclose(frequencies, inverse_frequencies(D, model.config.rope_theta, dtype=np.float64))
cos, sin = rope_tables(D, 64, model.config.rope_theta, dtype=np.float64)
assert np.array_equal(cos[:, : D // 2], cos[:, D // 2 :])  # each angle stands twice, once for each half
fig, (left, right) = course.figure(columns=2, width=7.6, height=2.8)
left.semilogy(2 * np.pi / frequencies, "o-", markersize=3)
left.set(xlabel="pair i", ylabel="tokens per turn", title="wavelength of each pair")
course.heat(right, cos[:, : D // 2], title="cos table", cmap="PuOr", vmin=-1, vmax=1)
right.set(xlabel="pair i", ylabel="position")
course.show(fig, "Wavelength of each pair, and the table of cosines")
# %% zh
r"""
## 3. 点积只看距离

转过 $m\omega$ 的 q 与转过 $n\omega$ 的 k，夹角之差是 $(m-n)\omega$。所以

$$\langle R_m q,\; R_n k\rangle = \langle R_{m-n}\,q,\; k\rangle$$

这就是左补齐不必平移位置、缓存里的 K 不必再转的原因。
"""
# %% en
r"""
## 3. A dot product sees distances only

Turn q by $m\omega$ and k by $n\omega$: the angle between them changes by $(m-n)\omega$. So

$$\langle R_m q,\; R_n k\rangle = \langle R_{m-n}\,q,\; k\rangle$$

That is why left pads need no shift of positions, and why a cached key is never turned again.
"""
# %%
rng = np.random.default_rng(0)
q, k = rng.standard_normal((2, 1, 1, 1, D))


def dot(m, n):
    tables = [rope_tables(D, 1, model.config.rope_theta, start=at, dtype=np.float64) for at in (m, n)]
    return float((apply_rope(q, k, *tables[0])[0] * apply_rope(q, k, *tables[1])[1]).sum())


assert np.isclose(dot(10, 3), dot(7, 0)) and np.isclose(dot(1010, 1003), dot(7, 0))
assert not np.isclose(dot(10, 3), dot(10, 4))
fig, ax = course.figure(width=6.6, height=2.5)
ones = np.ones((1, 1, 1, D))
distances = np.arange(0, 200)
tables = rope_tables(D, 200, model.config.rope_theta, dtype=np.float64)
ax.plot(
    distances,
    (apply_rope(np.repeat(ones, 200, axis=1), ones.repeat(200, axis=1), *tables)[0] @ ones.ravel() / D).ravel(),
)
ax.set(xlabel="distance m - n", ylabel="q·k / D", title="Equal q and k: the dot product tends to fade")
course.show(fig, "Dot product of two equal vectors against their distance")
# %% zh
r"""
## 4. 前半配后半，还是相邻配对？

GPT-J 与 Llama 的原始代码把**相邻**的特征 $(x_{2i}, x_{2i+1})$ 配成对；HF、MiniMind2（2025-04-26 起）和 MiniMind-3 把 $(x_i, x_{i+D/2})$ 配成对。两者只差特征的一个**排列** $P$：

$$\text{halves}(x) = P\,\text{neighbours}(P^{-1}x)$$
"""
# %% en
r"""
## 4. Halves or neighbours?

GPT-J and Llama's original code pair **neighbours** $(x_{2i}, x_{2i+1})$; HF, MiniMind2 (since 2025-04-26) and MiniMind-3 pair $(x_i, x_{i+D/2})$. The two differ by a **permutation** $P$ of the features:

$$\text{halves}(x) = P\,\text{neighbours}(P^{-1}x)$$
"""


# %%
def neighbours(q, k, cos, sin):
    def turn(x):
        c, s = cos[:, None, : D // 2], sin[:, None, : D // 2]
        even, odd = x[..., 0::2], x[..., 1::2]
        return np.stack([even * c - odd * s, odd * c + even * s], axis=-1).reshape(x.shape)

    return turn(q), turn(k)


to_halves = np.concatenate([np.arange(0, D, 2), np.arange(1, D, 2)])  # P: evens first, then odds
x = rng.standard_normal((1, 5, 1, D))
tables = rope_tables(D, 5, model.config.rope_theta, dtype=np.float64)
by_neighbours = neighbours(x, x, *tables)[0]
by_halves = apply_rope(x[..., to_halves], x[..., to_halves], *tables)[0]
assert np.allclose(by_halves, by_neighbours[..., to_halves])
assert not np.allclose(by_halves, apply_rope(x, x, *tables)[0])
# %% zh
r"""
所以没有哪一种「更对」：q 和 k 的特征次序由**权重**决定，而权重是和其中一种一起训练的。拿模型做实验：

1. 换成相邻配对，权重不动：输出变了（开头还通顺，不久就接不上了）。
2. 换成相邻配对，同时把 `q_proj`、`k_proj` 的行以及 `q_norm`、`k_norm` 的权重按 $P^{-1}$ 重排：输出与原来相同。
"""
# %% en
r"""
So neither is "more right": the order of the features of q and k is a fact of the **weights**, and they were trained with one of the two. An experiment on the model:

1. Swap in neighbours, leave the weights alone: the output changes (fluent at first, but it soon loses the thread).
2. Swap in neighbours, and reorder the rows of `q_proj`, `k_proj` and the weights of `q_norm`, `k_norm` by $P^{-1}$: the output is what it was.
"""
# %%
from_halves = np.argsort(to_halves)  # the inverse permutation
params = {name: array.copy() for name, array in model.params.items()}
for name, array in params.items():
    if name.endswith(("q_proj.weight", "k_proj.weight")):
        heads = array.reshape(-1, D, array.shape[1])  # [heads, D, H]
        params[name] = heads[:, from_halves].reshape(array.shape)
    elif name.endswith(("q_norm.weight", "k_norm.weight")):
        params[name] = array[from_halves]

permuted = npminimind.MiniMindForCausalLM(model.config, params, tokenizer=model.tokenizer).with_ops(
    apply_rope=neighbours
)
wrong = model.with_ops(apply_rope=neighbours)
prompt = [model.tokenizer.encode("Once upon a time there was")]
greedy = dict(max_new_tokens=30, do_sample=False, eos_token_id=None)
said = {
    name: m.generate(prompt, **greedy)[0]
    for name, m in (("halves", model), ("neighbours", wrong), ("neighbours, permuted", permuted))
}
assert np.array_equal(said["halves"], said["neighbours, permuted"])
assert not np.array_equal(said["halves"], said["neighbours"])
for name, ids in said.items():
    print(f"{name}: {model.tokenizer.decode(ids)}\n")
# %% zh
r"""
## 5. YaRN 的斜坡

`inference_rope_scaling=True` 把快的对留着不动，慢的对放慢 16 倍，中间是一道斜坡。MiniMind-3（D = 96）的斜坡从第 8 对到第 21 对。（帮助文字说 4 倍；代码是 16 倍。）
"""
# %% en
r"""
## 5. YaRN's ramp

`inference_rope_scaling=True` leaves fast pairs alone and slows slow pairs down 16 times, with a ramp between. In MiniMind-3 (D = 96) the ramp goes from pair 8 to pair 21. (The help text says 4 times; the code says 16.)
"""
# %%
plain = inverse_frequencies(96, 1e6, dtype=np.float64)
scaled = inverse_frequencies(96, 1e6, YARN, dtype=np.float64)
assert np.allclose(scaled[:9], plain[:9])  # fast pairs: unchanged
assert np.allclose(scaled[21:], plain[21:] / 16)  # slow pairs: 16 times slower
assert (scaled[9:21] < plain[9:21]).all() and (scaled[9:21] > plain[9:21] / 16).all()
assert YARN["attention_factor"] == 1.0  # HF's default for factor 16 would be 0.1 ln 16 + 1 = 1.277
assert (
    MiniMindConfig(inference_rope_scaling=True, max_position_embeddings=2048).yarn is None
)  # only longer tables are scaled
fig, ax = course.figure(width=6.4, height=2.6)
ax.plot(plain / scaled, "o-", markersize=3)
ax.axvspan(8, 21, color=course.YELLOW, alpha=0.3, label="ramp")
ax.set(xlabel="pair i", ylabel="times slower", title="YaRN in MiniMind-3: D = 96, factor 16")
ax.legend()
course.show(fig, "How many times slower YaRN turns each pair")
# %% zh
r"""
YaRN 会让短文本也变样，因为慢的对在任何长度都变慢了。它不治「重复」或「停不下来」：那是温度和重复惩罚的事（10.4、10.7）。量一量同一段短文本的平均对数概率：
"""
# %% en
r"""
YaRN changes short texts too, since the slow pairs are slower at every length. It does not cure repetition or a text that will not stop: those are matters of temperature and repetition penalty (10.4, 10.7). Measure the mean log-probability of one short text:
"""


# %%
def with_yarn(head_dim, length, theta, scaling=None, start=0, dtype=np.float32):
    return rope_tables(head_dim, length, theta, YARN, start, dtype)


yarn = model.with_ops(rope_tables=with_yarn)
text = model.generate(prompt, max_new_tokens=60, rng=0, eos_token_id=None)
score = {"plain": model.logprobs(text).mean(), "YaRN": yarn.logprobs(text).mean()}
assert not np.isclose(*score.values())
print({name: round(float(value), 4) for name, value in score.items()}, "nats a token")
# %% zh
r"""
## 6. 角度的精度

位置 32767 的角度在 float32 里有误差：$m\omega$ 大到 3 万，而 float32 只有 24 位。所以与参考值比较时，容差要随位置放宽。
"""
# %% en
r"""
## 6. How exact the angles are

At position 32,767 float32 angles are off: $m\omega$ reaches 30,000 and float32 has 24 bits. So a tolerance has to grow with the position.
"""
# %%
off = {}
for position in (10, 100, 1000, 10_000, 32_767):
    single = rope_tables(96, 1, 1e6, start=position, dtype=np.float32)[0]
    double = rope_tables(96, 1, 1e6, start=position, dtype=np.float64)[0]
    off[position] = float(np.abs(single - double).max())
assert off[10] < 1e-6 and 1e-5 < off[32_767] < 2e-3
course.table(["position", "cos off by"], [[position, f"{x:.0e}"] for position, x in off.items()])
# %% zh
r"""
## 练习

写 `my_apply_rope(q, k, cos, sin)`：q `[B, S, N, D]`，k `[B, S, K, D]`，表 `[S, D]` → `(q, k)`。
"""
# %% en
r"""
## Exercise

Write `my_apply_rope(q, k, cos, sin)`: q `[B, S, N, D]`, k `[B, S, K, D]`, tables `[S, D]` → `(q, k)`.
"""


# %%
def my_apply_rope(q, k, cos, sin):
    raise NotImplementedError


# %% zh hint
r"""
`x * cos + rotate_half(x) * sin`，其中 `rotate_half([a, b]) = [-b, a]`。表要在 S 与 D 之间插一轴，才能对所有头广播。
"""
# %% en hint
r"""
`x * cos + rotate_half(x) * sin`, where `rotate_half([a, b]) = [-b, a]`. The tables need an axis between S and D, to broadcast over the heads.
"""
# %%
oracle.check("apply_rope", my_apply_rope)


# %% solution
def my_apply_rope(q, k, cos, sin):
    def turn(x):
        half = x.shape[-1] // 2
        rotated = np.concatenate([-x[..., half:], x[..., :half]], axis=-1)
        return x * cos[:, None] + rotated * sin[:, None]

    return turn(q), turn(k)
