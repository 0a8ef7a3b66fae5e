# %% zh
r"""
# 10.3　KV 缓存

每轮解码只喂一个新 token，却要看到全部历史。历史 token 的 K 和 V 存在缓存里，不必重算。本笔记推导为什么这样做结果不变，缓存里到底是什么、占多少字节、为什么不存 Q，并且自己测量加速，而不引用「约 100 倍」。
"""

# %% en
r"""
# 10.3  The KV cache

A decode round feeds one new token, yet it must see the whole past. The keys and values of past tokens lie in a cache and are not computed again. This notebook derives why the result stays the same, shows what the cache holds, how many bytes it takes, why Q is not in it, and measures the speed-up instead of quoting "about 100×".
"""
# %%
import sys
import time
from functools import partial

import numpy as np

sys.path.append("..")  # course.py draws the pictures

import npminimind
from npminimind import MiniMindConfig, oracle

import course

model = npminimind.load(dtype=np.float64)
config = model.config
ids = np.array([model.tokenizer.encode("Once upon a time there was a little")])
T = ids.shape[1]
# %% zh
r"""
## 1. 有缓存与无缓存，结果相同

因果掩码让位置 $t$ 只看得到 $\le t$ 的位置，所以每一层里，位置 $t$ 的 K、V 只取决于前 $t$ 个 token。后面再接什么，它们都不变：

$$K_t,\;V_t = f(x_1,\dots,x_t)\qquad\text{与 } x_{t+1},x_{t+2},\dots \text{ 无关}$$

因此可以算一次，存起来。
"""
# %% en
r"""
## 1. With and without a cache: the same result

The causal mask lets position $t$ see positions $\le t$ only. So in every layer the key and value of position $t$ depend on the first $t$ tokens alone. Whatever follows, they stay:

$$K_t,\;V_t = f(x_1,\dots,x_t)\qquad\text{independent of } x_{t+1},x_{t+2},\dots$$

So compute them once, and keep them.
"""
# %%
whole = model(ids, use_cache=True)
prefix = model(ids[:, :-2], use_cache=True)
for (k, v), (k_prefix, v_prefix) in zip(whole.past_key_values, prefix.past_key_values):
    assert np.allclose(k[:, :-2], k_prefix, atol=1e-12) and np.allclose(v[:, :-2], v_prefix, atol=1e-12)

rest = model(ids[:, -2:], past_key_values=prefix.past_key_values, use_cache=True)
assert np.allclose(rest.logits, whole.logits[:, -2:], atol=1e-10)
course.shapes(fed=ids[:, -2:], k_before=prefix.past_key_values[0][0], k_after=rest.past_key_values[0][0])
# %% zh
r"""
「有缓存的 logits 和没有缓存的不完全一样，是错误吗？」不是，只要差别在舍入的量级。矩阵乘法的行数不同，求和次序就可能不同。在 float32 里逐位相等的很少，但差别只有百万分之几：
"""
# %% en
r"""
"My logits with a cache are not exactly those without. Is it a bug?" No, as long as they differ by rounding. A product with another number of rows may add up in another order. In float32 few numbers are equal to the bit, but they differ by millionths only:
"""
# %% measured
single = npminimind.load(dtype=np.float32)
with_cache = single(ids[:, -1:], past_key_values=single(ids[:, :-1], use_cache=True).past_key_values).logits[0, -1]
without = single(ids).logits[0, -1]
print("equal to the bit:", f"{(with_cache == without).mean():.0%}")
print(
    "greatest difference:",
    f"{np.abs(with_cache - without).max():.1e}",
    "of logits up to",
    f"{np.abs(without).max():.1f}",
)
assert np.abs(with_cache - without).max() < 1e-4 * np.abs(without).max()
# %% zh
r"""
## 2. 缓存里是什么，有多大

`past_key_values` 是一个列表，每层一对 `(k, v)`，形状都是 `[B, T, K, D]`。注意头数是 K（键值头），不是 N（查询头）：分组查询注意力让缓存小了 N/K 倍。（HF 的布局是 `[B, K, T, D]`，转置 1、2 轴即可。）

元素个数 = 层数 × 2 × B × T × K × D。讲义的例子：8 层、4 个键值头、D = 96、100 个 token。
"""
# %% en
r"""
## 2. What is in the cache, and how big it is

`past_key_values` is a list with one pair `(k, v)` a layer, both `[B, T, K, D]`. The number of heads is K (key/value heads), not N (query heads): grouped queries make the cache N/K times smaller. (HF's layout is `[B, K, T, D]`: transpose axes 1 and 2.)

Elements = layers × 2 × B × T × K × D. The chapter's example: 8 layers, 4 key/value heads, D = 96, 100 tokens.
"""
# %%
elements = 8 * 2 * 1 * 100 * 4 * 96
assert elements == 614_400 == MiniMindConfig().cache_elements(length=100)  # the chapter's number
print(f"bfloat16 {2 * elements / 1e6:.2f} MB, float32 {4 * elements / 1e6:.2f} MB")

k, v = whole.past_key_values[0]
assert len(whole.past_key_values) == config.num_hidden_layers
assert k.shape == v.shape == (1, T, config.num_key_value_heads, config.head_dim)
hugging_face = k.transpose(0, 2, 1, 3)
assert hugging_face.shape == (1, config.num_key_value_heads, T, config.head_dim)
# %% zh
r"""
缓存逐轮增长：红线以下是本轮新写入的行，红线以上的行从不改变。
"""
# %% en
r"""
The cache grows round by round: below the red line are the rows that this round wrote; those above never change.
"""
# %%
steps = list(model.steps(ids, max_new_tokens=6, do_sample=False, eos_token_id=None))
fig, axes = course.figure(columns=len(steps), width=7.6, height=2.4, sharey=True)
longest = steps[-1].past_key_values[0][0].shape[1]
for ax, s, before in zip(axes, steps, [None, *steps]):
    keys = np.full((longest, config.head_dim), np.nan)
    keys[: s.past_len + s.fed_ids.shape[1]] = s.past_key_values[0][0][0, :, 0]  # layer 0, head 0: [T, D]
    course.heat(ax, keys, title=f"round {s.round}\n+{s.fed_ids.shape[1]}", vmin=-2, vmax=2)
    if before:
        assert np.array_equal(s.past_key_values[0][0][:, : s.past_len], before.past_key_values[0][0])
    ax.set_xticks([])
    ax.axhline(s.past_len - 0.5, color=course.RED, linewidth=1.5)
axes[0].set(ylabel="position", yticks=range(0, longest, 3))
course.show(fig, "Keys of layer 0, head 0: the cache grows by the fed tokens, a row never changes")
# %% zh
r"""
## 3. 为什么缓存 K 和 V，不缓存 Q

位置 $t$ 的输出是 $\mathrm{softmax}(q_t K^\top/\sqrt D)\,V$：用到**全部** K 和 V，却只用到 $q_t$ 这**一个**查询。旧的 Q 再也不会被读到，存它只是浪费。
"""
# %% en
r"""
## 3. Why K and V are cached, and Q is not

The output at position $t$ is $\mathrm{softmax}(q_t K^\top/\sqrt D)\,V$: it reads **all** keys and values, but only the **one** query $q_t$. Old queries are never read again; keeping them would be waste.
"""
# %%
trace = npminimind.trace(model, ids)
q, k, v = (trace[f"model.layers.0.self_attn.{name}"] for name in ("q_rope", "k_cache", "v_cache"))
all_rows = npminimind.attention(q, k, v)  # [B,S,N*D], every query
one_row = npminimind.attention(q[:, -1:], k, v)  # the last query alone, all keys and values
assert np.allclose(all_rows[:, -1:], one_row, atol=1e-12)
course.shapes(q_last=q[:, -1:], k=k, v=v, context=one_row)
# %% zh
r"""
## 4. 位置在哪里计数？缓存里的 K 旋转过吗？

旋转过。K 在进入缓存**之前**就按自己的绝对位置转好了，以后不再转。新 token 的位置从 `start_pos = 缓存长度` 开始。如果从 0 重新开始，会怎样？
"""
# %% en
r"""
## 4. Where is position counted, and is a cached K rotated?

It is. A key is turned to its own absolute position **before** it enters the cache, and never again. The position of new tokens begins at `start_pos`, the length of the cache. What if it started at 0 again?
"""
# %%
assert np.array_equal(trace["model.layers.0.self_attn.k_cache"], trace["model.layers.0.self_attn.k_rope"])


def restarting(head_dim, length, theta, scaling=None, start=0, dtype=np.float32):
    return npminimind.rope_tables(head_dim, length, theta, scaling, start=0, dtype=dtype)  # forgets start


broken = model.with_ops(rope_tables=restarting)
past = model(ids[:, :-1], use_cache=True).past_key_values
right = model(ids[:, -1:], past_key_values=past).logits[0, -1]
wrong = broken(ids[:, -1:], past_key_values=past).logits[0, -1]
assert np.allclose(right, whole.logits[0, -1], atol=1e-10)
assert np.abs(wrong - right).max() > 1e-3
print("position restarts at 0: logits off by up to", f"{np.abs(wrong - right).max():.2f}")
# %% zh
r"""
## 5. 有历史时的掩码

在缓存后面一次喂入 S 个 token，掩码是 `[S, T]`：T×T 三角形的**最后 S 行**。历史对所有新 token 可见，只有最右边 S 列呈三角形。
"""
# %% en
r"""
## 5. The mask with a past

Feeding S tokens behind a cache takes a mask `[S, T]`: the **last S rows** of the T×T triangle. The past is visible to all new tokens; only the last S columns form a triangle.
"""
# %%
S, T_all = 3, 8
triangle = np.tril(np.ones((T_all, T_all), bool))
mask = np.where(triangle, 0, -np.inf)[-S:]  # [T,T] -> [S,T]
assert np.array_equal(mask, npminimind.causal_mask(S, T_all))

fig, axes = course.figure(columns=2, width=7.2, height=2.6)
course.heat(axes[0], triangle, title="all at once: S = T = 8")
course.heat(axes[1], np.isfinite(mask), title="3 new behind 5 cached")
for ax in axes:
    ax.set(xlabel="key position", ylabel="query (dark: may look)")
axes[1].set_yticks(range(S), range(T_all - S, T_all))
course.show(fig, "Causal masks without and with a past")
# %% zh
r"""
## 6. 快多少？

讲义写「第 100 步约 100 倍」。先数运算量。设每个 token 的线性层要做 $P$ 次乘加（约等于参数量），注意力每对 (查询, 键) 要做 $2ND$ 次，每层如此。第 L 步：

- 无缓存：$L\,P + \text{层数}\cdot 2ND\cdot L(L+1)/2$
- 有缓存：$P + \text{层数}\cdot 2ND\cdot L$

两者之比约为 L，这就是「100 倍」的来源。它是**运算量**之比，不是时间之比。
"""
# %% en
r"""
## 6. How much faster?

The chapter says "about 100× at step 100". Count operations first. Let the linear layers take $P$ multiply-adds a token (about the number of parameters), and attention $2ND$ for each pair of query and key, in every layer. At step L:

- without a cache: $L\,P + \text{layers}\cdot 2ND\cdot L(L+1)/2$
- with a cache: $P + \text{layers}\cdot 2ND\cdot L$

The ratio is about L: that is where the "100×" comes from. It is a ratio of **operations**, not of time.
"""


# %%
def multiply_adds(c, params, L, cached):
    per_pair = c.num_hidden_layers * 2 * c.num_attention_heads * c.head_dim
    return params + per_pair * L if cached else L * params + per_pair * L * (L + 1) // 2


params = sum(a.size for a in model.params.values())
L = 100
ratio = multiply_adds(config, params, L, cached=False) / multiply_adds(config, params, L, cached=True)
assert 90 < ratio <= 100
print(f"operations at step 100: {ratio:.1f} times fewer")
# %% zh
r"""
现在测时间。一行的矩阵乘法受内存带宽限制：每一轮都要把所有权重读一遍，不管喂一个 token 还是一百个。所以多喂的 token 比想象的便宜，时间之比小于运算量之比。你的机器上的数字会不同。
"""
# %% en
r"""
Now measure time. A product with one row is bound by memory: every round reads all weights once, whether one token is fed or a hundred. So the extra tokens are cheaper than they look, and the ratio of times is smaller than that of operations. Your machine will show other numbers.
"""


# %% measured
def seconds(run, repeats=5):
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return min(times)


lengths, timed = [10, 50, 100, 200, 400], []
for L in lengths:
    text = np.resize(ids, (1, L))
    past = single(text[:, :-1], use_cache=True).past_key_values
    whole_again = partial(single, text, logits_to_keep=1)
    one_token = partial(single, text[:, -1:], past_key_values=past, logits_to_keep=1)
    timed.append((seconds(whole_again), seconds(one_token)))
speedup = [slow / fast for slow, fast in timed]
counted = [multiply_adds(config, params, L, False) / multiply_adds(config, params, L, True) for L in lengths]
columns = [lengths, *(1e3 * np.array(timed)).round(2).T, np.round(speedup, 1), np.round(counted)]
course.table(["L", "without, ms", "with, ms", "times faster", "fewer operations"], zip(*columns))
# %% measured
fig, ax = course.figure(width=6, height=3)
ax.plot(lengths, lengths, "--", color=course.GREY, label="operations (about L)")
ax.plot(lengths, speedup, "o-", label="time, measured here")
ax.set(xlabel="step L", ylabel="times faster with a cache", title="Speed-up of one round, model in the box, float32")
ax.legend()
course.show(fig, "Measured speed-up of the cache by length, beside the ratio of operations")
# %% zh
r"""
## 练习：带历史的因果掩码

写 `my_causal_mask(s, t)`，返回 `[s, t]`，可看处为 0，不可看处为 −inf。
"""
# %% en
r"""
## Exercise: the causal mask with a past

Write `my_causal_mask(s, t)`: `[s, t]`, 0 where a query may look, −inf elsewhere.
"""


# %%
def my_causal_mask(s, t):
    raise NotImplementedError


# %% zh hint
r"""
第 i 个新 token 站在位置 `t - s + i`。它能看见的键，位置不超过它自己。
"""
# %% en hint
r"""
New token i stands at position `t - s + i`. It may see keys whose position is not greater than its own.
"""
# %%
oracle.check("causal_mask", my_causal_mask)


# %% solution
def my_causal_mask(s, t):
    query = np.arange(t - s, t)[:, None]
    key = np.arange(t)
    return np.where(key <= query, 0.0, -np.inf)


# %% zh
r"""
## 带走三句话

- 因果掩码使 K、V 一经算出就不再改变，所以能缓存；Q 只用一次，所以不缓存。
- 缓存里的 K 已经旋转过；新 token 的位置从缓存长度开始。
- 运算量之比约为 L，时间之比要自己测。
"""
# %% en
r"""
## Three things to take away

- The causal mask makes K and V final once computed, so they can be cached; Q is used once, so it is not.
- A cached K is rotated already; new tokens start at the length of the cache.
- The ratio of operations is about L; the ratio of times must be measured.
"""
