# %% zh
r"""
# 一个 token 的旅程：从文字到文字

文字 → ids → 向量 → 六层 → 分数 → 概率 → 一个 token → 文字。本笔记一口气走完这条路，每一站都停下来看数组和它的形状。后面的笔记把每一站拆开细讲。

全程只用 NumPy 和盒子里的小模型：三百多万个参数，会一点中文和英文，不需要 torch，不需要下载。维度记号：B 批大小，S token 数，H 隐藏维，V 词表大小。
"""

# %% en
r"""
# One token's journey: from text to text

Text → ids → vectors → six layers → scores → probabilities → a token → text. This notebook walks the whole way and stops at each station to look at the array and its shape. The notebooks after it take the stations apart.

All of it needs NumPy and the little model in the box: some three million parameters, a bit of Chinese and English, no torch, no download. Dims: B batch, S tokens, H hidden, V vocabulary.
"""
# %%
import sys

import numpy as np

sys.path.append("..")  # course.py draws the pictures

import npminimind
from npminimind import oracle, softmax

import course

model = npminimind.load(dtype=np.float64)
model.config
# %% zh
r"""
上面这张表是 `MiniMindConfig` 自己的显示方式。先听模型说一句：
"""
# %% en
r"""
The table above is how a `MiniMindConfig` shows itself. Listen to the model first:
"""
# %%
print("Once upon a time", *model.stream("Once upon a time", max_new_tokens=60, rng=0), sep="")
# %% zh
r"""
## 1. 文字 → ids

分词器把文字切成词表里的片段，每个片段一个编号。`[S]` 个整数，加上批次的轴就是 `[B, S]`。
"""
# %% en
r"""
## 1. Text → ids

The tokenizer cuts the text into pieces of its vocabulary, each with a number: `[S]` integers, with an axis for the batch `[B, S]`.
"""
# %%
text = "Once upon a time there was a"
ids = np.array([model.tokenizer.encode(text)])  # [B,S]
assert model.tokenizer.decode(ids[0]) == text
course.table(["position", *range(ids.shape[1])], [["id", *ids[0]], ["token", *course.labels(model.tokenizer, ids[0])]])
# %% zh
r"""
## 2. ids → 向量

嵌入表 `[V, H]` 里，第 id 行就是这个 token 的向量。没有乘法，只是取行。
"""
# %% en
r"""
## 2. Ids → vectors

Row id of the embedding table `[V, H]` is the token's vector. No product, just picking rows.
"""
# %%
trace = npminimind.trace(model, ids)  # one forward pass with every intermediate kept
embedding = model.params["model.embed_tokens.weight"]  # [V,H]
x = embedding[ids]  # [B,S] -> [B,S,H]
assert np.array_equal(x, trace["model.embed_tokens"])
course.shapes(ids=ids, embedding=embedding, x=x)
# %% zh
r"""
## 3. 向量 → 各层 → 向量

每一层做两次「读，算，加回去」：

$$x \leftarrow x + \text{attention}(\text{norm}(x)),\qquad x \leftarrow x + \text{mlp}(\text{norm}(x))$$

注意力在位置之间搬运信息，MLP 在每个位置内部加工。形状始终是 `[B, S, H]`。
"""
# %% en
r"""
## 3. Vectors → layers → vectors

Each layer does "read, compute, add back" twice:

$$x \leftarrow x + \text{attention}(\text{norm}(x)),\qquad x \leftarrow x + \text{mlp}(\text{norm}(x))$$

Attention moves information between positions, the MLP works within each. The shape is `[B, S, H]` throughout.
"""
# %%
for i in range(model.config.num_hidden_layers):
    layer = f"model.layers.{i}"
    middle = x + trace[f"{layer}.self_attn.o_proj"]
    assert np.allclose(middle, trace[f"{layer}.resid_mid"])
    x = middle + trace[f"{layer}.mlp.down_proj"]
    assert np.allclose(x, trace[layer])
trace
# %% zh
r"""
上面是轨迹 `Trace` 的显示：点开任一层，能看到每个中间量的名字、形状和大小。向量随层数怎样变长：
"""
# %% en
r"""
Above is how a `Trace` shows itself: unfold a layer for the name, shape and size of each intermediate. How the vectors grow, layer by layer:
"""
# %%
stations = ["model.embed_tokens", *(f"model.layers.{i}" for i in range(model.config.num_hidden_layers))]
lengths = np.array([np.linalg.norm(trace[name][0], axis=-1) for name in stations])  # [stations, S]
assert lengths.shape == (model.config.num_hidden_layers + 1, ids.shape[1])
fig, ax = course.figure(width=7, height=2.8)
course.heat(ax, lengths, rows=["embedding", *(f"layer {i}" for i in range(len(stations) - 1))], numbers=True)
ax.set_xticks(range(ids.shape[1]), course.labels(model.tokenizer, ids[0]))
ax.set_title("Length of each token's vector")
course.show(fig, "Length of each token's vector after the embedding and after each layer")
# %% zh
r"""
## 4. 向量 → 分数

最后一次 RMSNorm，然后与嵌入表的**每一行**做点积：与哪个 token 的向量最像，哪个就得高分。输出头和嵌入表是同一个矩阵（`tie_word_embeddings`）。
"""
# %% en
r"""
## 4. Vectors → scores

A last RMSNorm, then a dot product with **every row** of the embedding table: the token whose vector is most alike scores highest. Head and embedding are one matrix (`tie_word_embeddings`).
"""
# %%
weight, eps = model.params["model.norm.weight"], model.config.rms_norm_eps
normed = weight * x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)  # [B,S,H]
logits = normed @ embedding.T  # [B,S,H] @ [H,V] -> [B,S,V]
assert np.allclose(logits, model(ids).logits)
course.shapes(normed=normed, logits=logits, last=logits[:, -1])
# %% zh
r"""
## 5. 分数 → 概率

只看最后一个位置。softmax 把分数变成概率：

$$p_v = \frac{e^{z_v}}{\sum_w e^{z_w}}$$

先减去最大值，结果不变，但不会溢出。
"""
# %% en
r"""
## 5. Scores → probabilities

Look at the last position only. A softmax turns scores into probabilities:

$$p_v = \frac{e^{z_v}}{\sum_w e^{z_w}}$$

Subtract the greatest first: the same result, and no overflow.
"""
# %%
z = logits[0, -1]  # [V]
e = np.exp(z - z.max())
probs = e / e.sum()
assert np.isclose(probs.sum(), 1) and np.allclose(probs, softmax(z))
with np.errstate(over="ignore", invalid="ignore"):
    assert not np.isfinite(np.exp([1000.0, 999.0]) / np.exp([1000.0, 999.0]).sum()).any()  # without the subtraction
assert np.isfinite(softmax([1000.0, 999.0])).all()

top = np.argsort(-probs)[:10]
fig, ax = course.figure(width=5.6, height=2.8)
course.bars(ax, probs[top], course.labels(model.tokenizer, top), title=f"{text!r} is followed by")
course.show(fig, "The ten likeliest next tokens")
# %% zh
r"""
## 6. 概率 → 一个 token → 文字

抽一个随机数，选一个 token，接到末尾。再从第 1 站开始，就是生成。
"""
# %% en
r"""
## 6. Probabilities → a token → text

Draw a random number, choose a token, append it. Start again at station 1, and that is generation.
"""
# %%
u = 0.5
token = int(np.argmax(np.cumsum(probs) > u))
longer = np.append(ids[0], token)
same = model.generate(ids, max_new_tokens=1, temperature=1.0, top_k=0, top_p=1.0, rng=[u])
assert np.array_equal(longer, same[0])
model.tokenizer.decode(longer)
# %% zh
r"""
`for step in model.steps(...)` 把每一轮的全部数组交给你；一个 `Step` 的显示就是一堂小课：
"""
# %% en
r"""
`for step in model.steps(...)` hands you all arrays of each round; a `Step` on display is a small lesson:
"""
# %%
for step in model.steps(ids, max_new_tokens=2, rng=0):
    assert step.input_ids.shape[1] == ids.shape[1] + step.round + 1
step
# %% zh
r"""
## 练习

写 `my_softmax(x, axis=-1)`。要能对付很大的数和 −inf。单元格打印「unsolved」时就是还没写；写完再运行一次，它会用黄金向量和随机输入检查，告诉你最小的反例和错误的名字。
"""
# %% en
r"""
## Exercise

Write `my_softmax(x, axis=-1)`. It must cope with great numbers and with −inf. The cell below says "unsolved" until you do; then run it again: it tries golden vectors and random inputs, and tells the smallest failing one and the name of the mistake.
"""


# %%
def my_softmax(x, axis=-1):
    raise NotImplementedError


# %% zh hint
r"""
`x.max(axis=axis, keepdims=True)`：`keepdims` 让减法和除法自动广播。
"""
# %% en hint
r"""
`x.max(axis=axis, keepdims=True)`: with `keepdims` subtraction and division broadcast by themselves.
"""
# %%
oracle.check("softmax", my_softmax)


# %% solution
def my_softmax(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)
