# %% zh
r"""
# 10.10　完整流程：一张算出来的表

把前面各本接起来：预填充、解码、温度、重复惩罚、top-k、top-p、softmax、抽样、EOS。讲义 10.10 的形状表里，采样各行的缓存长度多了 1；这里的表不是抄的，是跑出来的。最后用十来行独立的 NumPy 重写全部采样流程，逐 token 对上。
"""

# %% en
r"""
# 10.10  The whole pipeline: a table that is computed

This joins the notebooks before it: prefill, decode, temperature, repetition penalty, top-k, top-p, softmax, draw, EOS. In the chapter's table of shapes the cache lengths of the sampling rows are one too high; the table here was not copied, it was run. At the end, the whole of sampling is rewritten in a few lines of NumPy that stand alone, and agrees token for token.
"""
# %%
import sys

import numpy as np

sys.path.append("..")  # course.py draws the pictures

import npminimind
from npminimind import MiniMindConfig, MiniMindForCausalLM, softmax

import course

model = npminimind.load(dtype=np.float64)
# %% zh
r"""
## 1. 形状表

讲义的例子：batch = 2，prompt_len = 10，max_new_tokens = 20。为了得到同样的 `[2, T, 4, 96]`，用一个随机的 MiniMind-3 形状的模型，但只有一层。
"""
# %% en
r"""
## 1. The table of shapes

The chapter's example: batch 2, prompt_len 10, max_new_tokens 20. To get the same `[2, T, 4, 96]`, take a random model of MiniMind-3's shape, with one layer.
"""
# %%
one_layer = MiniMindForCausalLM.random(MiniMindConfig(num_hidden_layers=1, vocab_size=640), seed=0)
prompt = np.random.default_rng(0).integers(36, 640, (2, 10))
steps = list(one_layer.steps(prompt, max_new_tokens=20, rng=0, eos_token_id=None))

rows = []
for s in steps:
    before = s.input_ids.shape[1] - 1
    cache = list(s.past_key_values[0][0].shape)  # what forward returned; sampling does not touch it
    rows.append([f"round {s.round}: forward {s.fed_ids.shape[1]} token(s)", [2, before], cache])
    rows.append([f"round {s.round}: sample next_token", list(s.input_ids.shape), cache])
course.table(["operation", "input_ids", "cache of a layer"], rows[:4] + [["…", "…", "…"]] + rows[-2:])
# %% zh
r"""
讲义写的是：循环 0 采样之后缓存 `[2, 11, 4, 96]`，循环 19 之后 `[2, 30, 4, 96]`。真实的是 10 和 29：采样只追加一个 id，不追加缓存；缓存要等这个 id 在下一轮被喂入才变长。
"""
# %% en
r"""
The chapter says `[2, 11, 4, 96]` after sampling in round 0, and `[2, 30, 4, 96]` after round 19. True are 10 and 29: sampling appends an id, not a cache entry; the cache grows when that id is fed in the next round.
"""
# %%
chapter = {0: 11, 1: 12, 19: 30}  # cache length after sampling, as printed there
true = {r: steps[r].past_key_values[0][0].shape[1] for r in chapter}
assert true == {0: 10, 1: 11, 19: 29}
assert all(true[r] == chapter[r] - 1 for r in chapter)
assert steps[-1].input_ids.shape == (2, 30)  # that one is right
assert all(s.past_key_values[0][0].shape == (2, 10 + s.round, 4, 96) for s in steps)
course.table(["after round", "chapter", "true"], [[r, [2, chapter[r], 4, 96], [2, true[r], 4, 96]] for r in chapter])
# %% zh
r"""
## 2. 一步之内：logits 走过的各阶段

次序固定：温度 → 重复惩罚 → top-k → top-p → softmax → 抽样 → EOS 替换。下面是小模型的一步，每个阶段之后的概率，以及谁被哪一步砍掉。
"""
# %% en
r"""
## 2. Inside one step: the stages

The order is fixed: temperature → repetition penalty → top-k → top-p → softmax → draw → EOS replacement. Here is one step of the little model: the probabilities after each stage, and what was cut by what.
"""
# %%
text = [model.tokenizer.encode("Once upon a time there was a")]
s = next(model.steps(text, max_new_tokens=1, temperature=1.2, repetition_penalty=1.1, top_k=12, top_p=0.85, rng=3))
s
# %%
stages = ["logits", "after_temperature", "after_repetition_penalty", "after_top_k", "after_top_p"]
order = np.argsort(-s.logits[0])[:14]
cut_by_k = np.isneginf(s.after_top_k[0])
cut_by_p = np.isneginf(s.after_top_p[0]) & ~cut_by_k
fig, axes = course.figure(columns=5, width=8.2, height=3.4, sharey=True)
names = [name if "□" not in name else f"id {i}" for i, name in zip(order, course.labels(model.tokenizer, order))]
for ax, stage in zip(axes, stages):
    p = softmax(getattr(s, stage)[0])
    colour = [course.ORANGE if cut_by_k[i] else course.PINK if cut_by_p[i] else course.BLUE for i in order]
    ax.barh(range(len(order)), p[order], color=colour)
    ax.set_title(
        stage.replace("after_", "").replace("repetition_", "") + f"\n{np.isfinite(getattr(s, stage)[0]).sum()} left",
        fontsize=9,
    )
    ax.tick_params(axis="x", labelsize=7)
axes[0].set_yticks(range(len(order)), names, fontsize=8)
axes[0].invert_yaxis()
fig.supxlabel("probability (blue: stays; orange: cut by top-k; pink: cut by top-p)", fontsize=9)
assert np.allclose(s.probs.sum(), 1) and s.probs[0][cut_by_k | cut_by_p].max() == 0
course.show(fig, "Probabilities of the likeliest tokens after each stage")
# %% zh
r"""
## 3. 全部重写一遍

只用 NumPy，不用本包的任何采样函数；随机数 $u$ 由外面给出。与 `model.generate` 逐 token 相同。
"""
# %% en
r"""
## 3. All of it once more

NumPy only, none of the package's sampling functions; the random numbers $u$ come from outside. The same tokens as `model.generate`.
"""


# %%
def pipeline(z, ids, temperature, penalty, k, p, u):
    """One row: logits [V], ids so far [L] -> token."""
    z = z / temperature
    seen = np.unique(ids)
    z[seen] = np.where(z[seen] > 0, z[seen] / penalty, z[seen] * penalty)
    z[z < np.sort(z)[-k]] = -np.inf
    order = np.argsort(-z, kind="stable")
    e = np.exp(z[order] - z[order[0]])
    exceeds = np.cumsum(e / e.sum()) > p
    z[order[1:][exceeds[:-1]]] = -np.inf  # shifted by one: the first stays
    probs = np.exp(z - z.max())
    return int(np.argmax(np.cumsum(probs) > u * probs.sum()))


settings = dict(temperature=0.9, repetition_penalty=1.2, top_k=40, top_p=0.9)
u, ids = np.random.default_rng(8).random(40), list(text[0])
for number in u:
    z = model([ids]).logits[0, -1]
    ids.append(pipeline(z, ids, 0.9, 1.2, 40, 0.9, number))

assert ids == model.generate(text, max_new_tokens=40, eos_token_id=None, rng=u, **settings)[0].tolist()
model.tokenizer.decode(ids)
# %% zh
r"""
## 4. 次序换一换

HF 把重复惩罚放在温度之前。两者只差舍入，因为惩罚是乘除，温度也是除：$(s\theta)/T = (s/T)\theta$。但不是逐位相同。其他交换就没有这么客气了。
"""
# %% en
r"""
## 4. Another order

HF applies the penalty before the temperature. The two differ by rounding only, since both multiply or divide: $(s\theta)/T = (s/T)\theta$. They are not equal to the bit. Other swaps are less kind.
"""
# %%
z = model(text).logits[:, -1].astype(np.float32)
penalty_last = npminimind.apply_repetition_penalty(npminimind.apply_temperature(z, 0.7), text, 1.3)
penalty_first = npminimind.apply_temperature(npminimind.apply_repetition_penalty(z, text, 1.3), 0.7)
assert np.allclose(penalty_last, penalty_first, rtol=1e-6)

small = np.log([0.4, 0.3, 0.2, 0.1])
p_after_k = npminimind.apply_top_p(npminimind.apply_top_k(small, 2), 0.5)
k_after_p = npminimind.apply_top_k(npminimind.apply_top_p(small, 0.5), 2)
assert np.isfinite(p_after_k).sum() == 1 and np.isfinite(k_after_p).sum() == 2
# %% zh
r"""
## 5. 讲义、上游代码、本包：对照表

讲义的行号指它自己的副本；上游 `d65ef2c` 里 `generate` 在第 257–288 行。
"""
# %% en
r"""
## 5. Chapter, upstream, package

The chapter's line numbers refer to its own copy; in upstream at `d65ef2c`, `generate` stands at lines 257–288.
"""
# %%
where = {
    "10.2 loop": ("L286-310", "loop.Loop.one_round"),
    "10.3 cache": ("L287-288", "cache.KVCache"),
    "10.4 temperature": ("L294", "sampling.apply_temperature"),
    "10.7 repetition penalty": ("L295-296", "sampling.apply_repetition_penalty"),
    "10.5 top-k": ("L297-298", "sampling.apply_top_k"),
    "10.6 top-p": ("L299-303", "sampling.top_p_mask, apply_top_p"),
    "10.8 draw or argmax": ("L304", "sampling.multinomial, greedy"),
    "10.9 EOS": ("L284, L305-310", "loop.Loop.choose, append"),
}
for _, names in where.values():
    module, *attributes = names.split(",")[0].split(".")
    thing = getattr(npminimind, module)
    for attribute in attributes:
        thing = getattr(thing, attribute)
    assert callable(thing)  # the name on the right exists
course.table(["section", "chapter's lines", "npminimind"], [[section, *names] for section, names in where.items()])
# %% zh
r"""
## 练习：把流程接起来

写 `my_choose(z, ids, temperature, penalty, k, p, u)`：一行 logits `[V]` → 一个 token。次序不许错。
"""
# %% en
r"""
## Exercise: join the pipeline

Write `my_choose(z, ids, temperature, penalty, k, p, u)`: one row of logits `[V]` → a token. The order matters.
"""


# %%
def my_choose(z, ids, temperature, penalty, k, p, u):
    raise NotImplementedError


# %% zh hint
r"""
可以用本包的函数：`apply_temperature`、`apply_repetition_penalty`、`apply_top_k`、`apply_top_p`、`softmax`、`multinomial`。
"""
# %% en hint
r"""
The package's functions may be used: `apply_temperature`, `apply_repetition_penalty`, `apply_top_k`, `apply_top_p`, `softmax`, `multinomial`.
"""
# %%
rng = np.random.default_rng(1)
cases = [(4 * rng.standard_normal(30), rng.integers(0, 30, 6), 0.8, 1.4, 8, 0.7, rng.random()) for _ in range(60)]
course.grade(my_choose, lambda z, *rest: pipeline(z.copy(), *rest), cases)


# %% solution
def my_choose(z, ids, temperature, penalty, k, p, u):
    z = npminimind.apply_temperature(z, temperature)
    z = npminimind.apply_repetition_penalty(z, ids, penalty)
    z = npminimind.apply_top_p(npminimind.apply_top_k(z, k), p)
    return int(npminimind.multinomial(softmax(z), u))
