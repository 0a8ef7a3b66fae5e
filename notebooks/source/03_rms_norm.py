# %% zh
r"""
# RMSNorm 与残差流

模型里有一条贯穿始终的向量流：每一层从中读出、加工、再加回去。读之前先做 RMSNorm，把长度除掉，只留方向。本笔记先拆 RMSNorm，再把最终向量写成各层贡献之和，最后用 logit lens 看预测在第几层成形。
"""

# %% en
r"""
# RMSNorm and the residual stream

One stream of vectors runs through the whole model: each layer reads from it, computes, and adds back. Before reading comes RMSNorm, which divides the length out and keeps the direction. This notebook takes RMSNorm apart, writes the final vector as a sum of the layers' contributions, and uses the logit lens to see in which layer a prediction takes shape.
"""
# %%
import sys

import numpy as np

sys.path.append("..")  # course.py draws the pictures

import npminimind
from npminimind import oracle, rms_norm, softmax

import course

model = npminimind.load(dtype=np.float64)
layers = model.config.num_hidden_layers
ids = [model.tokenizer.encode("What color is a banana? A banana is")]
trace = npminimind.trace(model, ids)
# %% zh
r"""
## 1. 公式

$$\mathrm{RMSNorm}(x)_i = w_i\,\frac{x_i}{\sqrt{\frac1n\sum_j x_j^2 + \epsilon}}$$

x `[..., n]`、w `[n]` → `[..., n]`。手算的例子：x = (3, 4)，w = (1, 10)，ε = 0：均方 (9 + 16)/2 = 12.5。
"""
# %% en
r"""
## 1. The formula

$$\mathrm{RMSNorm}(x)_i = w_i\,\frac{x_i}{\sqrt{\frac1n\sum_j x_j^2 + \epsilon}}$$

x `[..., n]`, w `[n]` → `[..., n]`. By hand: x = (3, 4), w = (1, 10), ε = 0: the mean square is (9 + 16)/2 = 12.5.
"""
# %%
x, w, eps = np.array([3.0, 4.0]), np.array([1.0, 10.0]), 0.0
mean_square = (x**2).mean()
y = w * x / np.sqrt(mean_square + eps)
assert mean_square == 12.5 and y.round(4).tolist() == [0.8485, 11.3137]
assert np.allclose(y, rms_norm(x, w, eps))

layer = "model.layers.0.input_layernorm"
x = trace["model.embed_tokens"]  # [B,S,H]
w, eps = model.params[layer + ".weight"], model.config.rms_norm_eps
assert np.allclose(w * x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps), trace[layer])
course.shapes(x=x, w=w, normed=trace[layer])
# %% zh
r"""
## 2. 长度没了，方向还在

权重为 1 时，每个向量都落到半径 $\sqrt n$ 的球面上；放大输入，输出不变。与 LayerNorm 不同，它**不减平均值**。
"""
# %% en
r"""
## 2. The length goes, the direction stays

With weights of 1 every vector lands on the sphere of radius $\sqrt n$; scaling the input changes nothing. Unlike LayerNorm it subtracts **no mean**.
"""
# %%
points = np.random.default_rng(0).normal(size=(60, 2)) * [2, 0.7] + [1, 0.5]
normed = rms_norm(points, np.ones(2), 0.0)
assert np.allclose(np.linalg.norm(normed, axis=-1), np.sqrt(2))
assert np.allclose(normed, rms_norm(1000 * points, np.ones(2), 0.0))
minus_mean = points - points.mean(axis=-1, keepdims=True)
layer_norm = minus_mean / minus_mean.std(axis=-1, keepdims=True)
assert not np.allclose(normed, layer_norm)

fig, axes = course.figure(columns=3, width=7.6, height=2.6, sharex=True, sharey=True)
for ax, data, title in zip(axes, (points, normed, layer_norm), ("x", "RMSNorm", "LayerNorm")):
    ax.scatter(*data.T, s=12, color=course.BLUE)
    ax.set(title=title, aspect="equal", xlim=(-4, 5), ylim=(-2.5, 3))
course.show(fig, "Points in the plane, after RMSNorm on a circle, after LayerNorm only two points left")
# %% zh
r"""
## 3. ε 在根号里面

ε 只在向量极短时起作用；全零向量得到 0，而不是 nan。放到根号外面，平时几乎看不出（相对差别约 1e-6），这正是它难查的原因。
"""
# %% en
r"""
## 3. ε is inside the root

ε matters only for very short vectors; a vector of zeros gives 0, not nan. Outside the root it is nearly invisible in practice (a relative difference of about 1e-6), which is why the mistake is hard to find.
"""
# %%
one = np.ones(4)
assert (rms_norm(np.zeros(4), one, 1e-6) == 0).all()
table = []
for size in (1.0, 1e-2, 1e-4):
    x = size * np.array([1.0, -1.0, 1.0, -1.0])
    inside, outside = rms_norm(x, one, 1e-6), x / (np.sqrt((x**2).mean()) + 1e-6)
    table.append([size, inside[0], outside[0], abs(inside[0] - outside[0])])
assert table[0][3] < 1e-5 and table[2][3] > 0.5
course.table(
    ["size of x", "eps inside", "eps outside", "difference"], [[f"{number:.6g}" for number in row] for row in table]
)
# %% zh
r"""
## 4. 半精度：先平方会溢出

float16 最大 65504，而 300² = 90000。所以半精度输入要先转成 float32，算完再转回来。
"""
# %% en
r"""
## 4. Half precision: squares overflow

float16 ends at 65,504, and 300² = 90,000. So half-precision input is widened to float32 first and rounded at the end.
"""
# %%
half = np.array([300.0, -300.0], np.float16)
with np.errstate(over="ignore"):
    assert np.isinf(half * half).all()
assert rms_norm(half, np.ones(2, np.float16), 1e-6).tolist() == [1.0, -1.0]
# %% zh
r"""
## 5. 残差流是一个和

没有哪一层会擦掉前面的东西，只会加：

$$x_{\text{final}} = \text{embed} + \sum_{i} (\text{attention}_i + \text{mlp}_i)$$
"""
# %% en
r"""
## 5. The residual stream is a sum

No layer erases what came before; layers only add:

$$x_{\text{final}} = \text{embed} + \sum_{i} (\text{attention}_i + \text{mlp}_i)$$
"""
# %%
parts = {"embedding": trace["model.embed_tokens"]}
for i in range(layers):
    parts[f"attention {i}"] = trace[f"model.layers.{i}.self_attn.o_proj"]
    parts[f"mlp {i}"] = trace[f"model.layers.{i}.mlp.down_proj"]
final = sum(parts.values())
assert np.allclose(final, trace[f"model.layers.{layers - 1}"])

lengths = [np.linalg.norm(part[0, -1]) for part in parts.values()]
fig, ax = course.figure(width=6, height=3.4)
colours = [course.GREEN if "emb" in name else course.BLUE if "att" in name else course.ORANGE for name in parts]
course.bars(ax, lengths, list(parts), colours, title="Length of each contribution, last position")
course.show(fig, "Length of the vector that each part adds to the residual stream")
# %% zh
r"""
因为是和，预测的分数也是和：每一部分给「下一个 token」投了多少票（最后的归一化对所有部分用同一个分母）。
"""
# %% en
r"""
Since it is a sum, the score of a prediction is one too: how much each part voted for the next token (the final norm divides all parts by one denominator).
"""
# %%
token = int(trace["lm_head"][0, -1].argmax())
w, embedding = model.params["model.norm.weight"], model.params["model.embed_tokens.weight"]
denominator = np.sqrt((final[0, -1] ** 2).mean() + model.config.rms_norm_eps)
votes = np.array([(w * part[0, -1] / denominator) @ embedding[token] for part in parts.values()])
assert np.isclose(votes.sum(), trace["lm_head"][0, -1, token])

fig, ax = course.figure(width=6, height=3.4)
ax.barh(range(len(votes)), votes, color=colours)
ax.axvline(0, color="black", linewidth=0.8)
ax.set_yticks(range(len(votes)), list(parts))
ax.invert_yaxis()
ax.set(
    xlabel="contribution to the logit",
    title=f"Who voted for id {token}, {course.labels(model.tokenizer, [token])[0]!r}",
)
course.show(fig, "How much each part contributes to the logit of the predicted token")
# %% zh
r"""
## 6. Logit lens：预测在哪一层成形

在每一层之后就接上最终的归一化和输出头，假装模型到此为止。最后一层的结果就是模型的真实输出。
"""
# %% en
r"""
## 6. The logit lens: where a prediction takes shape

After each layer, attach the final norm and the head as if the model ended there. Behind the last layer that is the model's real output.
"""
# %%
stations = ["model.embed_tokens", *(f"model.layers.{i}" for i in range(layers))]
lens = np.stack(
    [rms_norm(trace[name][0], w, model.config.rms_norm_eps) @ embedding.T for name in stations]
)  # [stations,S,V]
assert np.allclose(lens[-1], trace["lm_head"][0])
probs = softmax(lens)
prediction = lens[-1].argmax(axis=-1)  # [S]
confidence = np.take_along_axis(probs, prediction[None, :, None], axis=-1)[..., 0]  # [stations,S]

fig, ax = course.figure(width=7.4, height=3)
course.heat(ax, confidence, rows=["embedding", *(f"layer {i}" for i in range(layers))], vmin=0, vmax=1, numbers=True)
ax.set_xticks(
    range(len(ids[0])),
    [f"{a}\n→ {b}" for a, b in zip(course.labels(model.tokenizer, ids[0]), course.labels(model.tokenizer, prediction))],
    fontsize=8,
)
ax.set_title("Probability of the final prediction, layer by layer")
course.show(fig, "Logit lens: probability of the final prediction after each layer and at each position")
# %%
best = lens[:, -1].argmax(axis=-1)
assert best[-1] == prediction[-1]
rows = [
    [name, repr(model.tokenizer.decode([int(i)])), f"{p[i]:.3f}"]
    for name, i, p in zip(["embedding", *range(layers)], best, probs[:, -1])
]
course.table(["after", "would say", "probability"], rows)
# %% zh
r"""
## 练习

写 `my_rms_norm(x, weight, eps)`。
"""
# %% en
r"""
## Exercise

Write `my_rms_norm(x, weight, eps)`.
"""


# %%
def my_rms_norm(x, weight, eps):
    raise NotImplementedError


# %% zh hint
r"""
`keepdims=True`，以及 ε 的位置。半精度的输入先转成 float32。
"""
# %% en hint
r"""
`keepdims=True`, and the place of ε. Widen half precision to float32 first.
"""
# %%
oracle.check("rms_norm", my_rms_norm)


# %% solution
def my_rms_norm(x, weight, eps):
    wide = x.astype(np.promote_types(x.dtype, np.float32))
    mean_square = (wide**2).mean(axis=-1, keepdims=True)
    return (weight * (wide / np.sqrt(mean_square + eps))).astype(x.dtype)
