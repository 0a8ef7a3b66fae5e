# %% zh
r"""
# 10.6　Top-p（核采样）与右移一位的掩码

Top-p 不固定个数，而是从最可能的 token 开始累加，到概率和够 p 为止。最巧妙也最容易写错的是**掩码右移一位**。本笔记把讲义的四步逐一算出来，再看它在真实分布上的样子，以及累计概率**恰好等于** p 时代码与文字的差别。
"""

# %% en
r"""
# 10.6  Top-p (nucleus sampling) and the mask that moves one place

Top-p does not fix a number of tokens: it adds up probabilities from the likeliest down until they reach p. The clever part, and the one most often got wrong, is the **mask shifted by one place**. This notebook computes the chapter's four steps one by one, looks at them on a real distribution, and shows where code and text part: when the sum hits p **exactly**.
"""
# %%
import sys

import numpy as np

sys.path.append("..")  # course.py draws the pictures

import npminimind
from npminimind import apply_top_k, apply_top_p, oracle, softmax, top_p_mask

import course

model = npminimind.load(dtype=np.float64)
# %% zh
r"""
## 1. 四步

$$c_j = \sum_{i \le j} p_{(i)} \qquad \text{移除 } j \iff c_{j-1} > p \qquad (\text{第 0 个永不移除})$$

其中 $p_{(0)} \ge p_{(1)} \ge \dots$ 是排序后的概率。所有数组都是 `[..., V]`。讲义的例子 p = 0.85：
"""
# %% en
r"""
## 1. Four steps

$$c_j = \sum_{i \le j} p_{(i)} \qquad \text{remove } j \iff c_{j-1} > p \qquad (\text{the first never})$$

where $p_{(0)} \ge p_{(1)} \ge \dots$ are the sorted probabilities. All arrays are `[..., V]`. The chapter's example, p = 0.85:
"""
# %%
probs, p = np.array([0.5, 0.3, 0.15, 0.04, 0.01]), 0.85
cumulative = np.cumsum(probs)
exceeds = cumulative > p
shifted = np.concatenate([[False], exceeds[:-1]])

assert np.allclose(cumulative, [0.5, 0.8, 0.95, 0.99, 1.0])
assert exceeds.tolist() == [False, False, True, True, True]  # the chapter's mask
assert shifted.tolist() == [False, False, False, True, True]  # after the shift: three stay
steps = top_p_mask(np.log(probs), p)
assert np.array_equal(steps.exceeds, exceeds) and np.array_equal(steps.shifted, shifted)
assert np.allclose(steps.cumulative, cumulative)


# %%
course.nucleus(steps, p)
# %% zh
r"""
没有右移的话，恰好跨过 p 的那个 token（0.15）会被砍掉，剩下的概率和只有 0.8，没有达到 0.85。
"""
# %% en
r"""
Without the shift the token that crosses p (0.15) would go, and what is left sums to 0.8: it does not reach 0.85.
"""
# %%
assert probs[~exceeds].sum() < p <= probs[~shifted].sum()
# %% zh
r"""
## 2. 回到原来的次序

掩码是按排序后的次序算的，要**散回**（scatter）到 token id 的次序。把例子打乱，看得更清楚。
"""
# %% en
r"""
## 2. Back to the original order

The mask lives in sorted order and must be **scattered** back to the order of ids. A shuffled example shows it.
"""
# %%
logits = np.log([0.15, 0.5, 0.04, 0.3, 0.01])
order = np.argsort(-logits, kind="stable")  # position in the ranking -> id
assert order.tolist() == [1, 3, 0, 2, 4]
mask = np.empty(5, bool)
mask[order] = shifted  # scatter: the rank's verdict goes to the id
result = np.where(mask, -np.inf, logits)

assert np.array_equal(mask, top_p_mask(logits, p).mask)
assert np.array_equal(result, apply_top_p(logits, p))
assert np.exp(result).round(2).tolist() == [0.15, 0.5, 0.0, 0.3, 0.0]
# %% zh
r"""
常见的错误是把 `mask[order] = shifted` 写成 `mask = shifted[order]`：那是**收集**（gather），方向反了。
"""
# %% en
r"""
A common mistake writes `mask = shifted[order]` instead of `mask[order] = shifted`: that is a **gather**, the opposite direction.
"""
# %%
gathered = shifted[order]
assert not np.array_equal(gathered, mask)
assert gathered[order[0]]  # the likeliest token of all has been cut
# %% zh
r"""
## 3. 恰好等于 p

讲义的文字说「累计概率达到 P 的最小集合」，代码用的是 `>`：累计恰为 p 时不算超过，于是再多留一个。HF 的实现是后者少一个。用 2 的幂作概率，浮点数没有舍入：
"""
# %% en
r"""
## 3. Hitting p exactly

The chapter's text says "the smallest set that reaches p", its code says `>`: a sum of exactly p does not exceed it, so one more token stays. HF keeps one fewer. With powers of two there is no rounding:
"""
# %%
exact = np.array([0.5, 0.25, 0.125, 0.125])
reaches = int(np.argmax(np.cumsum(exact) >= 0.75)) + 1  # the chapter's text, and HF
code = int(np.isfinite(apply_top_p(np.log2(exact) * np.log(2), 0.75)).sum())  # the chapter's code
assert (reaches, code) == (2, 3)
print("text and HF keep", reaches, "— MiniMind's code keeps", code)
# %% zh
r"""
## 4. Top-p 看到的是 top-k 之后的概率

MiniMind 先 top-k 后 top-p，而且 top-p 的 softmax 是在 top-k **之后**重新归一化的。顺序不同，结果不同：
"""
# %% en
r"""
## 4. Top-p sees what top-k has left

MiniMind applies top-k first, and top-p's softmax renormalises what is left **after** it. Another order gives another result:
"""
# %%
z = np.log([0.4, 0.3, 0.2, 0.1])
k_then_p = np.isfinite(apply_top_p(apply_top_k(z, 2), 0.5))
p_then_k = np.isfinite(apply_top_k(apply_top_p(z, 0.5), 2))
print("after top-k:", softmax(apply_top_k(z, 2)).round(3), "-> 0.571 > 0.5 already")
assert k_then_p.tolist() == [True, False, False, False]
assert p_then_k.tolist() == [True, True, False, False]
# %% zh
r"""
## 5. 真实分布：候选数随位置变化

p 不变，确定处只留一两个，开放处留下许多。这就是「自适应」。
"""
# %% en
r"""
## 5. Real distributions: the number of candidates varies

With one p, certain places keep one or two tokens, open places many. That is what "adaptive" means.
"""
# %%
text = model.generate([model.tokenizer.encode("Once upon a time")], max_new_tokens=100, rng=0, eos_token_id=None)
rows = model(text).logits[0]  # [S, V]
fig, ax = course.figure(width=7.2, height=2.6)
for p, colour in zip((0.5, 0.85, 0.99), course.COLOURS):
    kept = np.isfinite(apply_top_p(rows, p)).sum(axis=-1)
    assert (kept >= 1).all()
    ax.semilogy(kept, color=colour, label=f"p = {p}", linewidth=1.2)
ax.set(xlabel="position", ylabel="tokens kept", title="The size of the nucleus along a text")
ax.legend(fontsize=8, ncols=3)
course.show(fig, "Number of tokens in the nucleus along a text for three values of p")
# %%
last = softmax(model([model.tokenizer.encode("There was a")]).logits[0, -1])


def draw(top_p):
    return course.nucleus(top_p_mask(np.log(last), top_p), top_p)


draw(0.85)
# %%
course.sliders(draw, top_p=(0.0, 1.0, 0.85))
# %% zh
r"""
## 6. 累加用 float64

核的边界由累加决定，舍入会让边界移动。`torch.cumsum` 对 float32 在 CPU 上用 float64 累加再舍入，所以这里也这样做；NumPy 自己的 float32 累加与它只在少数位置逐位相同。
"""
# %% en
r"""
## 6. Add up in float64

The nucleus ends where a running sum crosses p, and rounding moves that place. On a CPU `torch.cumsum` of float32 adds in float64 and rounds, so that is what is done here; NumPy's own float32 sum agrees with it to the bit in a minority of places only.
"""
# %% measured
flat = softmax(rows.astype(np.float32) / 3)  # float32, flattened by a temperature of 3
in_float32 = np.cumsum(np.sort(flat)[:, ::-1], axis=-1)
in_float64 = np.cumsum(np.sort(flat)[:, ::-1], axis=-1, dtype=np.float64).astype(np.float32)
assert np.abs(in_float32 - in_float64).max() < flat.shape[-1] * np.finfo(np.float32).eps / 2  # V roundings of a sum up to 1
assert (in_float32 == in_float64).mean() < 1
print("equal to the bit:", f"{(in_float32 == in_float64).mean():.0%}", "of sums")
# %% zh
r"""
## 练习

写 `my_top_p(logits, p)`。`p >= 1` 表示关闭；`p = 0` 保留最可能的一个。
"""
# %% en
r"""
## Exercise

Write `my_top_p(logits, p)`. `p >= 1` is off; `p = 0` keeps the likeliest one.
"""


# %%
def my_top_p(logits, p):
    raise NotImplementedError


# %% zh hint
r"""
排序用 `np.argsort(-logits, axis=-1, kind="stable")`，取值用 `np.take_along_axis`，散回用 `np.put_along_axis`。右移：先建一个全 False 的数组，再把 `exceeds[..., :-1]` 放到 `[..., 1:]`。
"""
# %% en hint
r"""
Sort with `np.argsort(-logits, axis=-1, kind="stable")`, fetch with `np.take_along_axis`, scatter with `np.put_along_axis`. The shift: start from all False and put `exceeds[..., :-1]` into `[..., 1:]`.
"""
# %%
oracle.check("apply_top_p", my_top_p)


# %% solution
def my_top_p(logits, p):
    if p is None or p >= 1:
        return logits.copy()
    order = np.argsort(-logits, axis=-1, kind="stable")
    sorted_logits = np.take_along_axis(logits, order, axis=-1)
    e = np.exp(sorted_logits - sorted_logits[..., :1])
    probs = e / e.sum(axis=-1, keepdims=True)
    exceeds = np.cumsum(probs, axis=-1, dtype=np.float64) > p
    shifted = np.zeros_like(exceeds)
    shifted[..., 1:] = exceeds[..., :-1]
    mask = np.zeros_like(exceeds)
    np.put_along_axis(mask, order, shifted, axis=-1)
    return np.where(mask, -np.inf, logits)
