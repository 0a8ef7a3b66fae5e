# %% zh
r"""
# 10.7　重复惩罚

为什么模型会不停地重复？因为贪心解码在循环里每一步都「正确」。重复惩罚把已经出现过的 token 的 logit 往下压：正的除以系数，负的乘以系数。本笔记先让模型陷入循环，再用惩罚把它拉出来，并更正讲义的一个说法：概率并不总是下降。
"""

# %% en
r"""
# 10.7  Repetition penalty

Why does a model repeat itself? Because in a loop every greedy step is "right". The repetition penalty pushes down the logits of tokens that have occurred: positive ones are divided by the factor, negative ones multiplied. This notebook drives the model into a loop, lets the penalty pull it out, and corrects a claim of the chapter: the probability does not always fall.
"""
# %%
import sys

import numpy as np

sys.path.append("..")  # course.py draws the pictures

import npminimind
from npminimind import apply_repetition_penalty, oracle, softmax

import course

model = npminimind.load(dtype=np.float64)
# %% zh
r"""
## 1. 公式

$$s' = \begin{cases} s / \theta & s > 0\\ s \cdot \theta & s \le 0 \end{cases}\qquad \text{仅对已出现过的 id}$$

logits `[V]`、已有的 ids `[L]` → logits `[V]`。出现多少次都只罚一次。
"""
# %% en
r"""
## 1. The formula

$$s' = \begin{cases} s / \theta & s > 0\\ s \cdot \theta & s \le 0 \end{cases}\qquad \text{for ids that have occurred}$$

logits `[V]`, ids so far `[L]` → logits `[V]`. An id counts once, however often it occurred.
"""
# %%
logits, ids, penalty = np.array([2.0, -2.0, 1.0]), np.array([0, 1, 1]), 1.1
seen = np.unique(ids)  # once each
score = logits[seen]
result = logits.copy()
result[seen] = np.where(score > 0, score / penalty, score * penalty)

assert result.round(3).tolist() == [1.818, -2.2, 1.0]  # the chapter's two rows
assert np.array_equal(result, apply_repetition_penalty(logits, ids, penalty))
assert np.allclose(apply_repetition_penalty(logits, ids, 1.5), [1.3333333, -3.0, 1.0])
# %% zh
r"""
## 2. 为什么负数要乘

若不分正负一律相除，−2 除以 1.1 得 −1.818，离 0 更近，概率反而**上升**。上游代码在 2026 年 5 月之前就是这样错的，HF 早年也有同样的错误。
"""
# %% en
r"""
## 2. Why negative numbers are multiplied

Dividing regardless of sign turns −2 into −1.818, closer to 0: the probability would **rise**. Upstream had just this bug until May 2026, and so had HF in its early years.
"""
# %%
always_divided = logits.copy()
always_divided[seen] /= penalty
assert softmax(always_divided)[1] > softmax(logits)[1]  # the mistake rewards id 1
assert softmax(result)[1] < softmax(logits)[1]

fig, ax = course.figure(width=5.6, height=3)
s = np.linspace(-4, 4, 200)
ax.plot(s, s, "--", color=course.GREY, label="no penalty")
ax.plot(s, apply_repetition_penalty(s, np.arange(len(s)), 1.5), label="penalty 1.5")
ax.plot(s, s / 1.5, ":", color=course.RED, label="always divided: wrong below 0")
ax.set(xlabel="logit before", ylabel="logit after")
ax.legend(fontsize=8)
course.show(
    fig, "The penalised logit against the logit: never above the diagonal; always dividing is above it for negatives"
)
# %% zh
r"""
## 3. 更正：概率可能上升

讲义说「无论正负，惩罚后该 token 的相对概率都下降」。准确的说法是：被罚的 **logit** 不会上升。若对手也被罚，而且罚得更重，概率就会上升。两个 id 都出现过，logits `[2, 1]`，系数 2：
"""
# %% en
r"""
## 3. Correction: the probability may rise

The chapter says that the penalised token's probability falls in every case. What is true: its **logit** never rises. Where a rival is penalised more, the probability can rise. Both ids seen, logits `[2, 1]`, penalty 2:
"""
# %%
z = np.array([2.0, 1.0])
penalised = apply_repetition_penalty(z, [0, 1], 2.0)
assert penalised.tolist() == [1.0, 0.5]
before, after = softmax(z)[1], softmax(penalised)[1]
assert round(before, 3) == 0.269 and round(after, 3) == 0.378  # it rose
assert apply_repetition_penalty([0.0], [0], 2.0)[0] == 0  # a logit of exactly 0 does not move
print(f"probability of id 1: {before:.3f} -> {after:.3f}")
# %% zh
r"""
## 4. 看它打破循环

小模型的训练文本里有歌谣的叠句。贪心解码时，每一步最可能的都是「再来一遍」。系数多大才拉得出来？取决于模型有多确定：常用的 1.1 对一个非常确定的循环往往不够，那就一级一级往上试。
"""
# %% en
r"""
## 4. Watch it break a loop

The little model has read refrains. Under greedy decoding, "once more" is the likeliest continuation at every step. How strong must the penalty be? That depends on how certain the model is: the usual 1.1 is often not enough for a very certain loop, so go up step by step.
"""
# %%
prompt = [model.tokenizer.encode("Swing high, swing low,")]
options = dict(max_new_tokens=60, do_sample=False, eos_token_id=None)
texts = {r: model.generate(prompt, repetition_penalty=r, **options)[0] for r in (1.0, 1.1, 1.5, 2.0, 3.0, 6.0)}


def repeated(ids, n=4):
    grams = [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]
    return 1 - len(set(grams)) / len(grams)  # share of 4-grams that occurred before


share = {r: repeated(ids.tolist()) for r, ids in texts.items()}
assert share[1.0] > 0.5 and share[6.0] < 0.1
enough = next(r for r in share if share[r] < 0.2)  # the first that breaks the loop
fig, ax = course.figure(width=5.6, height=2.4)
course.bars(
    ax, list(share.values()), [f"penalty {r}" for r in share], title="Share of 4-grams that occurred before", best=1
)
course.show(fig, "Share of repeated 4-grams under growing penalties")
# %%
for r in (1.0, enough):
    print(f"penalty {r}: {model.tokenizer.decode(texts[r])}\n")
assert repeated(texts[enough].tolist()) < repeated(texts[1.0].tolist())
# %% zh
r"""
同样的事，逐 token 着色：循环里的 token 几乎都是「确定」的（白色），惩罚之后重新变得意外。
"""
# %% en
r"""
The same, token by token: inside a loop the tokens are all but certain (white); under the penalty they become surprises again.
"""
# %%
loop = texts[1.0][None]
chances = np.exp(model.logprobs(loop)[0])
assert (chances <= 1).all()
course.coloured(model.tokenizer, loop[0, 1:], chances)
# %%
penalised = texts[enough][None]
chances = np.exp(model.logprobs(penalised)[0])  # under the model itself, without the penalty
assert (chances <= 1).all()
course.coloured(model.tokenizer, penalised[0, 1:], chances)
# %% zh
r"""
## 5. 「出现过」包括什么

整行：prompt、补齐的 pad、EOS、以及已生成的全部。所以 prompt 里的词也会被罚，这有时不是你想要的。`step.seen` 列出这些 id。
"""
# %% en
r"""
## 5. What counts as "seen"

The whole row: prompt, pads, EOS, and everything generated. So the words of the prompt are penalised too, which is not always what you want. `step.seen` lists the ids.
"""
# %%
steps = list(model.steps(prompt, max_new_tokens=4, repetition_penalty=1.3, do_sample=False, eos_token_id=None))
for s in steps:
    changed = np.flatnonzero(s.after_temperature[0] != s.after_repetition_penalty[0])
    assert np.array_equal(changed, s.seen[0])  # these ids and no others (none of their logits is exactly 0)
    assert set(np.unique(prompt)) <= set(s.seen[0])
print([len(s.seen[0]) for s in steps], "ids seen, round by round")
# %%
s = steps[-1]
seen = s.seen[0]
at = np.arange(len(seen))
before, after = s.after_temperature[0][seen], s.after_repetition_penalty[0][seen]
assert (after < before).all()
fig, ax = course.figure(width=7, height=2.8)
ax.bar(at - 0.2, before, 0.4, color=course.GREY, label="before")
ax.bar(at + 0.2, after, 0.4, color=course.BLUE, label="after penalty 1.3")
ax.axhline(0, color="black", linewidth=0.8)
ax.set_xticks(at, course.labels(model.tokenizer, seen), rotation=45, fontsize=8)
ax.set(ylabel="logit", title="The tokens that have occurred: every logit moves down")
ax.legend(fontsize=8)
course.show(fig, "Logits of the tokens that have occurred, before and after the repetition penalty")


# %%
def draw(penalty):
    ids = model.generate(prompt, repetition_penalty=penalty, **options)[0].tolist()
    fig, ax = course.figure(width=7, height=1.6)
    first = {token: i for i, token in reversed(list(enumerate(ids)))}
    ax.bar(
        range(len(ids)),
        [1] * len(ids),
        1.0,
        color=[course.GREY if first[t] < i else course.BLUE for i, t in enumerate(ids)],
    )
    ax.set(yticks=[], xlabel="position", title=f"penalty {penalty:.2f} (blue: token occurs for the first time)")
    return course.show(fig, "Which positions hold a token that is new in the text")


draw(enough)
# %%
course.sliders(draw, penalty=(0.8, 6.0, enough))
# %% zh
r"""
## 练习

写 `my_penalty(logits, input_ids, penalty)`。批次：logits `[B, V]`，ids `[B, L]`，每行只看自己的 ids。
"""
# %% en
r"""
## Exercise

Write `my_penalty(logits, input_ids, penalty)`. Batches: logits `[B, V]`, ids `[B, L]`, each row looks at its own ids.
"""


# %%
def my_penalty(logits, input_ids, penalty):
    raise NotImplementedError


# %% zh hint
r"""
先做一个布尔数组 `seen`，形状同 logits，用 `np.put_along_axis(seen, ids, True, axis=-1)` 填。重复的 id 填两次也只是 True。不要改动传入的 logits。
"""
# %% en hint
r"""
Make a boolean array `seen` of the shape of the logits and fill it with `np.put_along_axis(seen, ids, True, axis=-1)`. Filling an id twice is still True. Do not change the logits you are given.
"""
# %%
oracle.check("apply_repetition_penalty", my_penalty)


# %% solution
def my_penalty(logits, input_ids, penalty):
    ids = np.asarray(input_ids, np.int64)
    ids = np.broadcast_to(ids, logits.shape[:-1] + ids.shape[-1:])
    seen = np.zeros(logits.shape, bool)
    np.put_along_axis(seen, ids, True, axis=-1)
    return np.where(seen, np.where(logits > 0, logits / penalty, logits * penalty), logits)
