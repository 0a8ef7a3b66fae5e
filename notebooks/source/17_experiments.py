# %% zh
r"""
# 实验：切除、移植、替换

理解一台机器的好办法是动它。这里有三种工具：`tap` 看到并可以改写每一个中间量；`with_ops` 换掉任何一个函数；`params` 里的权重可以直接改。换完之后，听模型还会不会说话。
"""

# %% en
r"""
# Experiments: ablate, patch, replace

A good way to understand a machine is to meddle with it. There are three tools: a `tap` sees every intermediate and may put another in its place; `with_ops` swaps any function; the weights in `params` can be changed in place. Then listen whether the model still speaks.
"""
# %%
import sys

import numpy as np

sys.path.append("..")  # course.py draws the pictures

import npminimind
from npminimind import softmax

import course

model = npminimind.load(dtype=np.float64)
c = model.config
text = model.generate([model.tokenizer.encode("Once upon a time")], max_new_tokens=50, rng=2, eos_token_id=None)
baseline = model.logprobs(text).mean()
layers, heads, D = c.num_hidden_layers, c.num_attention_heads, c.head_dim
# %% zh
r"""
## 1. 换一个函数，听它说话

`model.with_ops(silu=my_function)` 返回一个共享权重、但用你的函数计算的模型。损失 = 同一段文字上平均对数概率下降多少。
"""
# %% en
r"""
## 1. Swap a function and listen

`model.with_ops(silu=my_function)` returns a model with the same weights that computes with your function. Damage = how much the mean log-probability of one text falls.
"""


# %%
def my_silu(x):
    return x / (1 + np.exp(-x))


def relu(x):
    return np.maximum(x, 0)


def unscaled(q, k, v, attention_mask=None):
    return npminimind.attention(q * np.sqrt(q.shape[-1]), k, v, attention_mask)  # undoes the division by sqrt(D)


def no_rope(q, k, cos, sin):
    return q, k


changes = {
    "my_silu": dict(silu=my_silu),
    "gelu for silu": dict(silu=npminimind.gelu),
    "relu for silu": dict(silu=relu),
    "no 1/sqrt(D)": dict(attention=unscaled),
    "no RoPE": dict(apply_rope=no_rope),
}
damage = {}
for name, ops in changes.items():
    other = model.with_ops(**ops)
    damage[name] = baseline - other.logprobs(text).mean()
    print(f"{name:14}", "".join(other.stream("Once upon a time", max_new_tokens=24, do_sample=False)))
assert abs(damage["my_silu"]) < 1e-9  # your own function, and the model speaks on
assert damage["no RoPE"] > 0.1
# %%
fig, ax = course.figure(width=6, height=2.3)
course.bars(ax, list(damage.values()), list(damage), title="Damage: log-probability lost a token (nats)")
course.show(fig, "How much each replaced function damages the model")
# %% zh
r"""
## 2. 切除一个头

tap 是一个函数 `(名字, 数组) -> 数组`。把 `self_attn.context` 里某个头的那一段置零，再量损失。颜色越深，这个头对这段文字越重要。
"""
# %% en
r"""
## 2. Ablate a head

A tap is a function `(name, array) -> array`. Set one head's part of `self_attn.context` to zero and measure the damage. The darker, the more this head matters to this text.
"""


# %%
def without_head(layer, head):
    def tap(name, array):
        if name != f"model.layers.{layer}.self_attn.context":
            return None  # leaves it
        array = array.copy()
        array[..., head * D : (head + 1) * D] = 0
        return array

    return tap


def mean_logprob(tap=None):
    logits = model(text, tap=tap).logits[0, :-1]
    return np.log(softmax(logits)[np.arange(len(logits)), text[0, 1:]]).mean()


assert np.isclose(mean_logprob(), baseline)
lost = np.array([[baseline - mean_logprob(without_head(i, n)) for n in range(heads)] for i in range(layers)])
assert np.abs(lost).max() > 1e-3  # some head matters
fig, ax = course.figure(width=5.6, height=3)
course.heat(ax, lost, rows=[f"layer {i}" for i in range(layers)], numbers=True)
ax.set(xticks=range(heads), xlabel="head", title="log-probability lost without this head")
course.show(fig, "Damage done by removing each attention head")
# %% zh
r"""
后面的层里，少了哪一个头几乎都看不出来：别的层补上了。把一整层的注意力拿掉，再把后面几层的一起拿掉，比比看：
"""
# %% en
r"""
In the later layers hardly a single head is missed: other layers make up for it. Take out the attention of a whole layer, then of all later layers together, and compare:
"""


# %%
def without_attention(*layers):
    names = {f"model.layers.{i}.self_attn.context" for i in layers}
    return lambda name, array: np.zeros_like(array) if name in names else None


choices = [*((i,) for i in range(layers)), tuple(range(1, layers))]
damage = {removed: baseline - mean_logprob(without_attention(*removed)) for removed in choices}
for removed, nats in damage.items():
    print(f"without the attention of {str(removed):15}: {nats:6.3f} nats")
assert damage[choices[-1]] > 10 * sum(abs(damage[(i,)]) for i in range(1, layers))  # more than all of them one by one
# %% zh
r"""
## 3. 移植激活：信息在哪里

两个只差一个词的问题，答案不同。跑第二个问题时，把**一层一位置**的残差换成第一个问题的。如果答案翻了过来，那一处就携带着决定答案的信息。
"""
# %% en
r"""
## 3. Patch activations: where the information is

Two questions that differ in one word have different answers. While the second one runs, replace the residual stream at **one layer and one position** by that of the first. Where the answer flips, that is where the deciding information was.
"""
# %%
first, second = (
    np.array([model.tokenizer.encode(f"What color is a {thing}? A {thing} is")]) for thing in ("lemon", "cherry")
)
assert first.shape == second.shape  # position by position
kept = npminimind.trace(model, first)
a, b = (int(model(ids).logits[0, -1].argmax()) for ids in (first, second))
assert a != b


stations = ["model.embed_tokens", *(f"model.layers.{i}" for i in range(layers))]


def patch(station, position):
    def tap(name, array):
        if name != station:
            return None
        array = array.copy()
        array[:, position] = kept[name][:, position]
        return array

    return tap


def preference(logits):
    return logits[0, -1, a] - logits[0, -1, b]  # above 0: the first answer


start, goal = preference(model(second).logits), preference(kept["lm_head"])
positions = range(second.shape[1])
moved = np.array([[preference(model(second, tap=patch(at, s)).logits) for s in positions] for at in stations])
share = (moved - start) / (goal - start)
same = first[0] == second[0]
before = int(np.argmin(same))  # the first position that differs
assert np.allclose(share[:, :before], 0)  # what comes before is equal in both, patching it does nothing
assert np.isclose(share[-1, -1], 1)  # the last layer at the last position decides everything

fig, ax = course.figure(width=7.4, height=2.8)
course.heat(ax, share, rows=["embedding", *(f"layer {i}" for i in range(layers))], vmin=0, vmax=1, numbers=True)
names = [
    x if s else f"{x}/{y}"
    for x, y, s in zip(course.labels(model.tokenizer, first[0]), course.labels(model.tokenizer, second[0]), same)
]
ax.set_xticks(range(len(names)), names, rotation=60, fontsize=8)
ax.set_title("How far the answer moves from {1!r} to {0!r}".format(*course.labels(model.tokenizer, [a, b])))
course.show(fig, "Share of the answer that moves when one layer and position is patched")
# %% zh
r"""
## 4. 生成时看里面

`steps` 和 `generate` 也接受 tap，名字前面加上 `round_{r}.`。下面记下某个头在每一轮里看了哪里：第 0 轮有很多行（预填充），以后每轮只有一行，而且一轮比一轮长。与一次前向算完整段文字相比，结果相同。
"""
# %% en
r"""
## 4. Look inside while it generates

`steps` and `generate` take a tap too; the names stand behind `round_{r}.`. Here it records where one head looks in every round: round 0 has many rows (prefill), every later round has one, each longer than the last. The same as one forward pass over the whole text.
"""
# %%
watched, head = f"model.layers.{layers // 2}.self_attn.probs", 0
seen = {}


def watch(name, array):
    if name.endswith(watched):
        seen[name.split(".")[0]] = array[0, head]  # [S,T]


written = model.generate(text[:, :6], max_new_tokens=10, rng=2, eos_token_id=None, tap=watch)
assert [rows.shape for rows in seen.values()] == [(6, 6), *((1, 6 + r) for r in range(1, 10))]
whole = npminimind.trace(model, written[:, :-1])[watched][0, head]
picture = np.full(whole.shape, np.nan)
for row, last in zip(range(5, 15), seen.values()):
    picture[row, : row + 1] = last[-1]
    assert np.allclose(last[-1], whole[row, : row + 1], atol=1e-9)

fig, ax = course.figure(width=6.4, height=3.2)
names = course.labels(model.tokenizer, written[0])
course.heat(ax, picture[5:], rows=[f"round {r}" for r in range(10)], columns=names[:-1], vmin=0, vmax=1)
ax.set_title("where one head looks, round by round")
course.show(fig, "Attention of one head to all earlier tokens in each round of a generation")
# %% zh
r"""
## 5. 误差的大小就是诊断

把权重舍入到 float16、bfloat16，或用 float32 计算，logits 的误差各差几个数量级。所以误差的大小告诉你：是正常的舍入，是低精度的权重，还是真的写错了。
"""
# %% en
r"""
## 5. The size of an error is a diagnosis

Compute in float32, round the weights to float16 or to bfloat16: the errors of the logits lie decades apart. So the size of an error tells whether it is ordinary rounding, low-precision weights, or a real mistake.
"""


# %%
def bfloat16(x):
    bits = x.astype(np.float32).view(np.uint32)
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)  # to nearest, ties to even
    return (rounded & np.uint32(0xFFFF0000)).view(np.float32).astype(x.dtype)


def with_weights(change):
    return npminimind.MiniMindForCausalLM(
        c, {name: change(array) for name, array in model.params.items()}, dtype=np.float64
    )


noise = 1 + 1e-3 * np.random.default_rng(0).standard_normal(c.vocab_size)  # so that the weights are on no coarse grid
base = with_weights(lambda a: a * noise[: a.shape[-1]])
truth = base(text).logits
others = {
    "float32 arithmetic": base.astype(np.float32),
    "float16 weights": npminimind.MiniMindForCausalLM(
        c, {n: a.astype(np.float16) for n, a in base.params.items()}, dtype=np.float64
    ),
    "bfloat16 weights": npminimind.MiniMindForCausalLM(
        c, {n: bfloat16(a) for n, a in base.params.items()}, dtype=np.float64
    ),
    "a mistake: gelu": base.with_ops(silu=npminimind.gelu),
}
errors = {name: float(np.abs(other(text).logits - truth).max()) for name, other in others.items()}
assert list(errors.values()) == sorted(errors.values())
assert errors["float16 weights"] > 10 * errors["float32 arithmetic"]
fig, ax = course.figure(width=6.4, height=2.2)
ax.barh(range(len(errors)), list(errors.values()), color=course.COLOURS[: len(errors)])
ax.set_xscale("log")
ax.set_yticks(range(len(errors)), list(errors))
ax.invert_yaxis()
ax.set(xlabel="greatest error of a logit", title="A ladder of errors")
course.show(fig, "Greatest error of the logits: float32, float16 weights, bfloat16 weights, a mistake")
# %% zh
r"""
## 6. 自己的采样器

任何阶段都能换。min-p：只留概率至少为最大者 $m$ 倍的 token。把它放到 top-p 的位置上：
"""
# %% en
r"""
## 6. A sampler of your own

Any stage can be replaced. Min-p keeps tokens whose probability is at least $m$ times the greatest. Put it in top-p's place:
"""


# %%
def min_p(logits, p, m=0.1):
    probs = softmax(logits)
    return np.where(probs < m * probs.max(axis=-1, keepdims=True), -np.inf, logits)


assert min_p(np.log([[0.6, 0.3, 0.05, 0.05]]), None).tolist()[0][2:] == [-np.inf, -np.inf]
mine = model.with_ops(apply_top_p=min_p)
for step in mine.steps(text[:, :4], max_new_tokens=8, top_k=0, temperature=1.2, rng=0, eos_token_id=None):
    assert step.probs[0, step.next_token[0, 0]] > 0
    kept_probs = softmax(step.after_top_k[0])[np.isfinite(step.after_top_p[0])]
    assert kept_probs.min() >= 0.1 * kept_probs.max() - 1e-12
print("".join(mine.stream("Once upon a time", max_new_tokens=40, top_k=0, temperature=1.2, rng=0)))
# %% zh
r"""
## 练习：切除一层的 MLP

写 `my_tap(layer, name, array)`：把 `model.layers.{layer}.mlp.down_proj` 置零，其余原样（返回 `None` 即可）。
"""
# %% en
r"""
## Exercise: ablate the MLP of a layer

Write `my_tap(layer, name, array)`: set `model.layers.{layer}.mlp.down_proj` to zero, leave everything else (by returning `None`).
"""


# %%
def my_tap(layer, name, array):
    raise NotImplementedError


# %% zh hint
r"""
不要原地修改 `array`：返回 `np.zeros_like(array)`。
"""
# %% en hint
r"""
Do not change `array` in place: return `np.zeros_like(array)`.
"""


# %%
def run(layer):
    return model(text, tap=lambda name, array: my_tap(layer, name, array)).logits


def reference(layer):
    params = model.params | {
        f"model.layers.{layer}.mlp.down_proj.weight": np.zeros((c.hidden_size, c.intermediate_size))
    }
    return npminimind.MiniMindForCausalLM(c, params)(text).logits


course.grade(run, reference, [(0,), (layers - 1,)])


# %% solution
def my_tap(layer, name, array):
    if name == f"model.layers.{layer}.mlp.down_proj":
        return np.zeros_like(array)
