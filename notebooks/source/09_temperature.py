# %% zh
r"""
# 10.4　温度

温度 $T$ 在 softmax 之前除 logits。它不改变候选的次序，只改变分布的陡峭程度。讲义 10.4 的 softmax 表有误（三个概率之和不等于 1），本笔记把讲义的数、正确的数和计算放在一起。
"""

# %% en
r"""
# 10.4  Temperature

The temperature $T$ divides the logits before the softmax. It does not change the order of the candidates, only how steep the distribution is. The softmax table in chapter 10.4 is wrong (its three probabilities do not sum to 1): this notebook puts the chapter's numbers, the right ones and the computation side by side.
"""
# %%
import sys

import numpy as np

sys.path.append("..")  # course.py draws the pictures

import npminimind
from npminimind import apply_temperature, oracle, softmax

import course

model = npminimind.load(dtype=np.float64)
prompt = [model.tokenizer.encode("Once upon a time there was a")]
# %% zh
r"""
## 1. 公式，和讲义的例子

$$p_i = \frac{e^{z_i/T}}{\sum_j e^{z_j/T}}$$

logits `[..., V]` → 同形状。
"""
# %% en
r"""
## 1. The formula, and the chapter's example

$$p_i = \frac{e^{z_i/T}}{\sum_j e^{z_j/T}}$$

logits `[..., V]` → the same shape.
"""
# %%
z = np.array([2.0, 1.0, 0.5])
true = {}
for T in (0.5, 1.0, 2.0):
    scaled = z / T
    e = np.exp(scaled - scaled.max())  # minus the greatest: same value, no overflow
    true[T] = e / e.sum()
    assert np.array_equal(apply_temperature(z, T), scaled)
    assert np.allclose(softmax(scaled), true[T])
    assert np.isclose(true[T].sum(), 1)
# %% zh
r"""
讲义的表与正确的值：
"""
# %% en
r"""
The chapter's table and the true values:
"""
# %%
chapter = {0.5: [0.86, 0.12, 0.07], 1.0: [0.59, 0.22, 0.13], 2.0: [0.42, 0.25, 0.20]}
assert np.allclose(true[0.5], [0.8438, 0.1142, 0.0420], atol=5e-5)
assert np.allclose(true[1.0], [0.6285, 0.2312, 0.1402], atol=5e-5)
assert np.allclose(true[2.0], [0.4810, 0.2918, 0.2272], atol=5e-5)
assert all(not np.isclose(sum(row), 1, atol=0.02) for row in chapter.values())
course.table(
    ["T", "chapter", "sum", "true", "sum"],
    [[T, chapter[T], f"{sum(chapter[T]):.2f}", true[T].round(4).tolist(), f"{true[T].sum():.2f}"] for T in chapter],
)


# %%
def draw(temperature):
    fig, ax = course.figure(width=5.6, height=2.2)
    course.bars(ax, softmax(apply_temperature(z, temperature)), ["z = 2.0", "z = 1.0", "z = 0.5"], best=1)
    ax.set(title=f"softmax([2, 1, 0.5] / {temperature:g})", xlabel="probability")
    return course.show(fig, "Probabilities of the chapter's three logits at one temperature")


draw(0.85)
# %%
course.sliders(draw, temperature=(0.0, 4.0, 0.85))
# %% zh
r"""
## 2. 真实的分布

小模型对下一个 token 的预测，在三个温度下。次序不变，差距变了。
"""
# %% en
r"""
## 2. A real distribution

The little model's prediction of the next token, at three temperatures. The order stays, the gaps change.
"""
# %%
logits = model(prompt).logits[0, -1]  # [V]
top = np.argsort(-logits)[:8]
fig, axes = course.figure(columns=3, width=7.6, height=2.8)
for ax, T in zip(axes, (0.5, 1.0, 2.0)):
    course.bars(ax, softmax(logits / T)[top], course.labels(model.tokenizer, top), title=f"T = {T}", best=1)
for T in (0.5, 2.0):
    assert np.array_equal(np.argsort(-logits / T, kind="stable"), np.argsort(-logits, kind="stable"))
course.show(fig, "The eight likeliest next tokens at temperatures 0.5, 1 and 2")
# %% zh
r"""
## 3. 两个极限

- $T \to 0$：全部概率落在最大的 logit 上，等价于贪心。
- $T \to \infty$：均匀分布，熵达到 $\log_2 V$。

「T → 0 等价于贪心」是公式的极限；上游代码在 `temperature=0` 时会除以零（采样报错，贪心悄悄给出错误的 id）。这里的函数直接返回极限。
"""
# %% en
r"""
## 3. Two limits

- $T \to 0$: all probability on the greatest logit, which is greedy.
- $T \to \infty$: uniform, the entropy reaches $\log_2 V$.

"T → 0 equals greedy" is true of the formula's limit; upstream's code divides by zero at `temperature=0` (sampling raises, greedy silently returns wrong ids). The function here returns the limit.
"""
# %%
with np.errstate(divide="ignore", invalid="ignore"):
    upstream = np.array([1.0, -2.0, 0.0, 3.0]) / 0  # inf, -inf, nan, inf: two infinities, and argmax finds nan
assert int(np.argmax(upstream)) == 2  # not 3, the greatest logit

assert np.array_equal(softmax(apply_temperature(z, 0)), [1, 0, 0])
assert np.allclose(softmax(apply_temperature(z, 1e-3)), [1, 0, 0])
assert np.allclose(softmax(apply_temperature(z, np.inf)), 1 / 3)
cold = model.generate(prompt, max_new_tokens=10, temperature=0)
assert np.array_equal(cold, model.generate(prompt, max_new_tokens=10, do_sample=False))
# %%
temperatures = np.geomspace(0.05, 50, 60)
p = softmax(logits / temperatures[:, None])  # [60, V]
entropy = -(p * np.log2(np.maximum(p, 1e-300))).sum(axis=-1)
assert (np.diff(entropy) > -1e-9).all()  # a higher temperature never lowers the entropy
fig, ax = course.figure(width=6.4, height=2.8)
ax.semilogx(temperatures, entropy)
ax.axhline(np.log2(len(logits)), color=course.GREY, linestyle="--", label="log2 V: uniform")
ax.axvline(0.85, color=course.RED, linestyle=":", label="MiniMind's default 0.85")
ax.set(xlabel="temperature", ylabel="entropy, bits", title="Temperature turns the entropy up and down")
ax.legend(fontsize=8)
course.show(fig, "Entropy of the next token against temperature")
# %% zh
r"""
## 4. 温度在哪一步？次序有关系

MiniMind 先除温度，然后重复惩罚、top-k、top-p。llama.cpp 把温度放在最后。这不是细节：top-p 看到的概率不同，候选集合也就不同。
"""
# %% en
r"""
## 4. Where temperature stands: the order matters

MiniMind divides by the temperature first; repetition penalty, top-k and top-p follow. llama.cpp applies it last. That is no detail: top-p sees other probabilities, so the candidates are others.
"""
# %%
example, T, p = np.array([3.0, 2.0, 1.0]), 0.5, 0.8
first = np.isfinite(npminimind.apply_top_p(apply_temperature(example, T), p))
last = np.isfinite(npminimind.apply_top_p(example, p))
assert first.tolist() == [True, False, False]
assert last.tolist() == [True, True, False]
course.table(
    ["", "probabilities top-p sees", "kept ids"],
    [
        ["temperature first", softmax(example / T).round(3).tolist(), np.flatnonzero(first).tolist()],
        ["temperature last", softmax(example).round(3).tolist(), np.flatnonzero(last).tolist()],
    ],
)
# %% zh
r"""
## 5. 听一听

同一个开头、同一组随机数，三个温度。
"""
# %% en
r"""
## 5. Listen

One opening, one set of random numbers, three temperatures.
"""
# %%
said = {}
for T in (0.3, 0.85, 1.8):
    pieces = model.stream("Once upon a time", max_new_tokens=40, temperature=T, top_k=0, top_p=1.0, rng=7)
    said[T] = "".join(pieces)
    print(f"T = {T}: {said[T]}\n")
assert len(set(said.values())) > 1
# %% zh
r"""
## 练习

写 `my_temperature(logits, temperature)`，形状不变；`temperature = 0` 要返回极限（最大者为 0，其余 −inf）。
"""
# %% en
r"""
## Exercise

Write `my_temperature(logits, temperature)`, shape unchanged; `temperature = 0` must give the limit (0 at the greatest, −inf elsewhere).
"""


# %%
def my_temperature(logits, temperature):
    raise NotImplementedError


# %% zh hint
r"""
只有 0 需要分支。几个 logit 并列最大时，它们都得到 0。不要改动传入的数组。批次在前面的轴上：最大值沿最后一轴取，`keepdims=True`。
"""
# %% en hint
r"""
Only 0 needs a branch. Where several logits are greatest, all of them get 0. Do not change the array you are given. Batches are in the leading axes: take the maximum over the last one, with `keepdims=True`.
"""
# %%
oracle.check("apply_temperature", my_temperature)


# %% solution
def my_temperature(logits, temperature):
    if temperature == 0:
        greatest = logits.max(axis=-1, keepdims=True)
        return np.where(logits == greatest, 0.0, -np.inf)
    if temperature == np.inf:
        return np.where(logits == -np.inf, -np.inf, 0.0)
    return logits / temperature
