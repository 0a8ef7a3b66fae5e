# %% zh
r"""
# 10.5　Top-k

只留下分数最高的 k 个 token，其余置为 −inf，softmax 之后概率恰为 0。讲义没有说**并列**时怎么办，也没有说 k 大于词表时怎么办：这里逐一试给你看。
"""

# %% en
r"""
# 10.5  Top-k

Keep the k tokens with the highest scores, set the others to −inf; after the softmax their probability is exactly 0. The chapter is silent on **ties**, and on a k larger than the vocabulary: here both are tried.
"""
# %%
import sys

import numpy as np

sys.path.append("..")  # course.py draws the pictures

import npminimind
from npminimind import apply_top_k, oracle, softmax, top_k_threshold

import course

model = npminimind.load(dtype=np.float64)
# %% zh
r"""
## 1. 门槛，然后比较

$$\text{门槛} = \text{第 } k \text{ 大的 logit}\qquad z_i' = \begin{cases} z_i & z_i \ge \text{门槛}\\ -\infty & \text{否则}\end{cases}$$

logits `[..., V]` → 门槛 `[..., 1]` → 同形状的 logits。讲义的例子：
"""
# %% en
r"""
## 1. A threshold, then a comparison

$$\text{threshold} = k\text{-th greatest logit}\qquad z_i' = \begin{cases} z_i & z_i \ge \text{threshold}\\ -\infty & \text{else}\end{cases}$$

logits `[..., V]` → threshold `[..., 1]` → logits of the same shape. The chapter's example:
"""
# %%
logits, k = np.array([2.0, 5.0, 1.0, 4.0, 0.5, 3.0]), 3
threshold = np.sort(logits)[-k]  # the k-th greatest
outside = logits < threshold
result = np.where(outside, -np.inf, logits)

assert threshold == 3.0 == top_k_threshold(logits, k)[0]
assert outside.tolist() == [True, False, True, False, True, False]  # the chapter's mask
assert result.tolist() == [-np.inf, 5.0, -np.inf, 4.0, -np.inf, 3.0]  # the chapter's result
assert np.array_equal(result, apply_top_k(logits, k))
# %%
fig, ax = course.figure(width=6.4, height=2.8)
course.what_was_cut(
    ax, softmax(logits), softmax(result), [f"id {i}\nz = {z:g}" for i, z in enumerate(logits)], "top_k = 3"
)
course.show(fig, "The chapter's six tokens before and after top-k: three are cut, the others share their probability")
# %% zh
r"""
## 2. 只是重新归一化

留下的 token 之间，概率之比不变：softmax 只依赖差值，被砍掉的概率按比例分给了留下的。
"""
# %% en
r"""
## 2. Nothing but renormalising

Among the tokens that stay, the ratios of probabilities do not change: a softmax depends on differences only, and what was cut is shared out in proportion.
"""
# %%
before, after = softmax(logits), softmax(result)
kept = ~outside
assert np.allclose(after[kept], before[kept] / before[kept].sum())
assert (after[outside] == 0).all()  # exactly: exp(-inf) is 0, no draw can reach it
print("cut:", before[outside].sum().round(4), " kept:", before[kept].sum().round(4))
# %% zh
r"""
## 3. 边界情形

- **并列**：判断用 `<`，所以与第 k 名相等的都留下，可能多于 k 个。
- **k = 0** 表示关闭。
- **k > V**：上游会报错（HF 截到 V）；这里等于全部保留。
"""
# %% en
r"""
## 3. Edge cases

- **Ties**: the test is `<`, so everything equal to the k-th stays, possibly more than k tokens.
- **k = 0** is off.
- **k > V**: upstream raises (HF clamps to V); here everything stays.
"""
# %%
ties = np.array([1.0, 2.0, 2.0, 2.0])
assert np.isfinite(apply_top_k(ties, 2)).sum() == 3  # k = 2, three stay
assert np.array_equal(apply_top_k(ties, 0), ties) and np.array_equal(apply_top_k(ties, 99), ties)

by_position = np.full(4, -np.inf)
first_two = np.argsort(-ties, kind="stable")[:2]  # "the first k indices": another algorithm
by_position[first_two] = ties[first_two]
assert np.isfinite(by_position).sum() == 2  # drops one of three equals by chance of its id
# %% zh
r"""
在 float16 的网格上，并列并不少见：把真实 logits 舍入到 float16，看看第 50 名有多少同分者。
"""
# %% en
r"""
On a float16 grid ties are common: round real logits to float16 and count how many share the 50th place.
"""
# %%
text = model.generate([model.tokenizer.encode("Once upon a time")], max_new_tokens=100, rng=0, eos_token_id=None)
rows = model(text).logits[0]  # [S, V]
half = rows.astype(np.float16).astype(np.float64)
kept = np.isfinite(apply_top_k(half, 50)).sum(axis=-1)
assert (kept >= 50).all()
print("rows where more than 50 stay:", int((kept > 50).sum()), "of", len(kept))
# %% zh
r"""
## 4. 固定的 k 并不总合适

同一个 k，在确定的位置留下太多，在开放的位置又留下太少。下图沿一段文字画出「前 k 名占多少概率」。
"""
# %% en
r"""
## 4. One k does not fit all

The same k keeps too much where the model is certain, and too little where the text is open. The picture shows how much probability the first k hold, along a text.
"""
# %%
p = -np.sort(-softmax(rows), axis=-1)  # descending
fig, ax = course.figure(width=7.2, height=2.8)
for k, colour in zip((1, 5, 50), course.COLOURS):
    mass = p[:, :k].sum(axis=-1)
    finite = np.isfinite(apply_top_k(rows, k))
    assert np.allclose(np.where(finite, softmax(rows), 0).sum(axis=-1), mass)
    ax.plot(mass, color=colour, label=f"k = {k}", linewidth=1.2)
ax.set(xlabel="position", ylabel="probability", title="What the first k hold", ylim=(0, 1.05))
ax.legend(fontsize=8, ncols=3)
course.show(fig, "Probability of the k likeliest tokens along a text, for k = 1, 5 and 50")


# %%
def draw(top_k):
    step = next(model.steps([model.tokenizer.encode("There was a")], max_new_tokens=1, top_k=top_k, top_p=1.0, rng=0))
    order = np.argsort(-step.logits[0])[:14]
    fig, ax = course.figure(width=7.2, height=2.8)
    names = [name if "□" not in name else f"id {i}" for i, name in zip(order, course.labels(model.tokenizer, order))]
    course.what_was_cut(ax, softmax(step.after_temperature[0])[order], step.probs[0][order], names, f"top_k = {top_k}")
    ax.tick_params(axis="x", rotation=60, labelsize=8)
    return course.show(fig, "The likeliest next tokens before and after top-k")


draw(5)
# %%
course.sliders(draw, top_k=(1, 14, 5))
# %% zh
r"""
## 练习

写 `my_top_k(logits, k)`。注意并列、k = 0、k > V，以及 `[B, V]` 的批次。
"""
# %% en
r"""
## Exercise

Write `my_top_k(logits, k)`. Mind ties, k = 0, k > V, and batches `[B, V]`.
"""


# %%
def my_top_k(logits, k):
    raise NotImplementedError


# %% zh hint
r"""
`np.sort(logits, axis=-1)[..., -k, None]` 是每一行的门槛，形状 `[..., 1]`，可以直接和 logits 比较。
"""
# %% en hint
r"""
`np.sort(logits, axis=-1)[..., -k, None]` is each row's threshold, of shape `[..., 1]`, ready to be compared with the logits.
"""
# %%
oracle.check("apply_top_k", my_top_k)


# %% solution
def my_top_k(logits, k):
    if k is None or k == 0 or k >= logits.shape[-1]:
        return logits.copy()
    threshold = np.sort(logits, axis=-1)[..., -k, None]
    return np.where(logits < threshold, -np.inf, logits)
