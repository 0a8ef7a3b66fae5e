# %% zh
r"""
# 10.8　采样与贪心、随机种子、与 torch 一致的抽样

分布有了，怎样从中选出一个 token？贪心取最大者，采样按概率抽。本笔记把随机数拿到台面上：同一个 $u$ 在任何语言里都选出同一个 token。最后解释 `torch.multinomial` 实际怎么抽，并用 NumPy 抽出与它完全相同的 token。
"""

# %% en
r"""
# 10.8  Sampling against greedy, seeds, and torch's very draw

Given a distribution, how is one token chosen? Greedy takes the greatest, sampling draws by probability. This notebook puts the random number on the table: the same $u$ gives the same token in every language. At the end it explains how `torch.multinomial` really draws, and draws the very same tokens with NumPy.
"""
# %%
import sys

import numpy as np

sys.path.append("..")  # course.py draws the pictures

import npminimind
from npminimind import TorchGenerator, greedy, multinomial, oracle, softmax

import course

model = npminimind.load(dtype=np.float64)
prompt = [model.tokenizer.encode("Once upon a time")]
# %% zh
r"""
## 1. 贪心

$$x = \arg\max_v z_v$$

logits `[..., V]` → ids `[...]`。没有随机性；softmax 是单调的，所以对 logits 还是对概率取最大，结果一样。并列时取 id 最小者。
"""
# %% en
r"""
## 1. Greedy

$$x = \arg\max_v z_v$$

logits `[..., V]` → ids `[...]`. No randomness; a softmax is monotonic, so the greatest logit is the greatest probability. Of equals, the lowest id.
"""
# %%
z = np.array([[0.5, 3.0, 3.0, -1.0]])
assert z.argmax(axis=-1).tolist() == softmax(z).argmax(axis=-1).tolist() == greedy(z).tolist() == [1]
once = model.generate(prompt, max_new_tokens=20, do_sample=False)
again = model.generate(prompt, max_new_tokens=20, do_sample=False)
assert np.array_equal(once, again)
# %% zh
r"""
## 2. 采样：把 [0, 1) 切成段

把概率依 id 次序首尾相接，token $v$ 占据区间 $[c_{v-1}, c_v)$，长度正是 $p_v$。均匀随机数 $u \in [0,1)$ 落在哪一段，就选哪个 token：

$$x = \min\{v : c_v > u\}$$

概率 `[..., V]`、u `[...]` → ids `[...]`。
"""
# %% en
r"""
## 2. Sampling: cut [0, 1) into pieces

Lay the probabilities end to end in the order of ids: token $v$ owns $[c_{v-1}, c_v)$, whose length is $p_v$. A uniform random number $u \in [0,1)$ falls into one piece, and that is the token:

$$x = \min\{v : c_v > u\}$$

Probabilities `[..., V]`, u `[...]` → ids `[...]`.
"""
# %%
probs = np.array([0.1, 0.2, 0.0, 0.3, 0.4])
cumulative = np.cumsum(probs)
for u in (0.0, 0.05, 0.1, 0.25, 0.5, 0.61, 0.999):
    token = int(np.argmax(cumulative > u))
    assert token == multinomial(probs, u) and token != 2  # id 2 owns no piece
us = (np.arange(6) + np.random.default_rng(0).random(6)) / 6
fig, ax = course.figure(width=7.2, height=1.8)
for token, (right, width) in enumerate(zip(cumulative, probs)):
    ax.barh(0, width, left=right - width, color=course.COLOURS[token], edgecolor="white", height=0.6)
    if width:
        ax.text(right - width / 2, 0, f"id {token}", ha="center", va="center", color="white" if token != 1 else "black")
for u in us:
    ax.annotate(f"{u:.2f}", (u, 0.3), (u, 0.62), ha="center", arrowprops={"arrowstyle": "->"}, fontsize=8)
ax.set(yticks=[], ylim=(-0.4, 0.85), xlabel="u", title="Where u falls decides the token")
course.show(fig, "The interval from 0 to 1 cut by probabilities, with six random numbers")
# %% zh
r"""
抽很多次，频率趋近概率，误差约为 $\sqrt{p(1-p)/n}$：
"""
# %% en
r"""
Draw many times: the frequencies approach the probabilities, within about $\sqrt{p(1-p)/n}$:
"""
# %%
n = 100_000
draws = multinomial(np.broadcast_to(probs, (n, 5)), np.random.default_rng(1).random(n))
frequency = np.bincount(draws, minlength=5) / n
assert (np.abs(frequency - probs) <= 5 * np.sqrt(probs * (1 - probs) / n)).all()
assert frequency[2] == 0
print(frequency)
# %% zh
r"""
## 3. 「为什么每次回答都不同？怎样固定种子？」

因为默认采样，而且不给种子。给 `rng` 一个整数，结果就可复现。也可以直接给出均匀随机数：这样连随机数发生器的差异都排除了，移植到别的语言时很有用。
"""
# %% en
r"""
## 3. "Why is every answer different, and how do I fix the seed?"

Because sampling is the default and no seed is given. Give `rng` an integer and the result repeats. Or hand over the uniform numbers themselves: then not even the generator matters, which helps a port to another language.
"""


# %%
def say(**arguments):
    return model.tokenizer.decode(model.generate(prompt, max_new_tokens=24, **arguments)[0])


assert say(rng=5) == say(rng=5)
assert len({say(rng=seed) for seed in range(5)}) > 1
u = np.random.Generator(np.random.PCG64(5)).random(24)
assert say(rng=u) == say(rng=5)  # an integer seed starts PCG64: one uniform a row and step
for seed in (5, 6):
    print(f"seed {seed}: {say(rng=seed)}\n")
# %% zh
r"""
同一个种子在别的框架里给出别的数，因为发生器不同（NumPy 的 PCG64、torch 的 MT19937、JAX 的 Threefry）。能跨语言对比的是 $u$，不是种子。
"""
# %% en
r"""
The same seed gives other numbers elsewhere, since the generators differ (NumPy's PCG64, torch's MT19937, JAX's Threefry). What can be compared across languages is $u$, not the seed.
"""
# %%
pcg = np.random.Generator(np.random.PCG64(5)).random(3)
mt = np.random.RandomState(5).random_sample(3)
assert not np.allclose(pcg, mt)
print(pcg.round(4), mt.round(4))
# %% zh
r"""
## 4. 一次抽几条：num_return_sequences

把 prompt 复制成几行，一起生成。MiniMind 的次序是 a, b, a, b（HF 是 a, a, b, b）。
"""
# %% en
r"""
## 4. Several at once: num_return_sequences

Copies of the prompt as rows of one batch. MiniMind's order is a, b, a, b (HF's is a, a, b, b).
"""
# %%
two = np.array([[40, 41], [50, 51]])
rows = model.generate(two, max_new_tokens=1, num_return_sequences=2, rng=0)
assert rows[:, :2].tolist() == [[40, 41], [50, 51], [40, 41], [50, 51]]
many = model.generate(prompt, max_new_tokens=12, num_return_sequences=4, rng=0)
assert many.shape[0] == 4
for row in many:
    print(model.tokenizer.decode(row))
# %% zh
r"""
## 5. 累加的精度

在 float32 里累加，边界会移动，偶尔抽到邻居。数一数：
"""
# %% en
r"""
## 5. The precision of the sum

Added up in float32 the borders move, and now and then a neighbour is drawn. Count them:
"""
# %% measured
p32 = softmax(model(prompt).logits[0, -1].astype(np.float32) / 4)  # float32, many tokens with some probability
u = np.random.default_rng(2).random(200_000)
exact = np.searchsorted(np.cumsum(p32, dtype=np.float64), u * p32.sum(dtype=np.float64), side="right")
single = np.searchsorted(np.cumsum(p32), u.astype(np.float32) * np.cumsum(p32)[-1], side="right")
assert np.array_equal(exact[:500], multinomial(np.broadcast_to(p32, (500, len(p32))), u[:500]))
assert 0 < (exact != single).sum() < 2000
print("another token in", int((exact != single).sum()), "of 200,000 draws")
# %% zh
r"""
## 6. torch 怎样抽

`torch.multinomial(probs, 1)` 并不反演累计分布，而是让所有 token 赛跑：每个 token 抽一个指数分布的随机数 $e_v$，取

$$x = \arg\max_v \frac{p_v}{e_v}$$

token $v$ 获胜的概率恰为 $p_v$。随机数来自 MT19937：两个 32 位字拼成 53 位的 $u$，再取 $e_v = -\log(1-u)$。
"""
# %% en
r"""
## 6. How torch draws

`torch.multinomial(probs, 1)` does not invert the cumulative distribution. It lets all tokens race: each gets an exponentially distributed number $e_v$, and

$$x = \arg\max_v \frac{p_v}{e_v}$$

Token $v$ wins with probability $p_v$ exactly. The numbers come from MT19937: two 32-bit words make a 53-bit $u$, and $e_v = -\log(1-u)$.
"""
# %%
# torch 2.13: torch.manual_seed(0), then torch.multinomial(torch.tensor([[.1, .2, .3, .4]]), 1) twelve times
recorded = [2, 2, 3, 3, 1, 2, 0, 1, 1, 3, 1, 3]
words = np.random.RandomState(0)
p = np.array([0.1, 0.2, 0.3, 0.4], np.float32)
mine = []
for _ in range(12):
    high, low = words.randint(0, 2**32, size=(4, 2), dtype=np.uint32).astype(np.uint64).T
    u = ((high << np.uint64(32) | low) & np.uint64(2**53 - 1)) * 2.0**-53
    e = (-np.log1p(-u)).astype(np.float32)
    mine.append(int(np.argmax(p / e)))
generator = TorchGenerator(0)
assert mine == recorded
assert [int(generator.multinomial(p[None])[0]) for _ in range(12)] == mine
# %%
seeded = model.generate(prompt, max_new_tokens=10, rng=TorchGenerator(42))
assert np.array_equal(seeded, model.generate(prompt, max_new_tokens=10, rng=TorchGenerator(42)))
step = next(model.steps(prompt, max_new_tokens=1, rng=TorchGenerator(42)))
assert step.u is None  # no uniforms were used: a race has one number a token
# %% zh
r"""
## 练习

写 `my_multinomial(probs, u)`：probs `[..., V]`（和不必恰为 1），u `[...]`。绝不能选中概率为 0 的 token，哪怕 u 极接近 1。
"""
# %% en
r"""
## Exercise

Write `my_multinomial(probs, u)`: probs `[..., V]` (the sum need not be exactly 1), u `[...]`. Never choose a token of probability 0, not even for a u next to 1.
"""


# %%
def my_multinomial(probs, u):
    raise NotImplementedError


# %% zh hint
r"""
用 float64 累加，与 `u * 总和` 比较。`u * 总和` 可能舍入到总和本身，那时没有任何累计值大于它，`argmax` 会返回 0；用 `np.nextafter(总和, 0)` 限住。
"""
# %% en hint
r"""
Add up in float64 and compare with `u * total`. That product may round to the total itself; then no sum exceeds it and `argmax` returns 0. Bound it by `np.nextafter(total, 0)`.
"""
# %%
oracle.check("multinomial", my_multinomial)


# %% solution
def my_multinomial(probs, u):
    cumulative = np.cumsum(probs, axis=-1, dtype=np.float64)
    total = cumulative[..., -1]
    target = np.minimum(u * total, np.nextafter(total, 0))
    return np.argmax(cumulative > target[..., None], axis=-1)
