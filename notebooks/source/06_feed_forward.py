# %% zh
r"""
# SwiGLU 与专家

注意力之后，每个位置各自经过一个前馈网络。MiniMind 用 SwiGLU：一路经激活函数当「门」，另一路被门放行。MoE 版本把它换成四个专家，由路由器给每个 token 选一个。本笔记回答：只选一个专家时路由器的权重为什么恰为 1；训练和推理的路由有没有差别。
"""

# %% en
r"""
# SwiGLU and experts

After attention each position passes a feed-forward network of its own. MiniMind uses SwiGLU: one path goes through an activation and gates the other. The MoE version has four experts instead, and a router that picks one for each token. This notebook answers why the router's weight is exactly 1 with one expert a token, and whether routing differs between training and inference.
"""
# %%
import sys

import numpy as np

sys.path.append("..")  # course.py draws the pictures

import npminimind
from npminimind import gelu, moe, oracle, silu, softmax, swiglu

import course

model = npminimind.load(dtype=np.float64)
sparse = npminimind.load("minimind-tiny-moe", dtype=np.float64)
# %% zh
r"""
## 1. SwiGLU

$$\text{out} = \big(\mathrm{silu}(x W_g^\top) \odot x W_u^\top\big)\, W_d^\top,\qquad \mathrm{silu}(z) = \frac{z}{1 + e^{-z}}$$

x `[..., H]`，$W_g, W_u$ `[I, H]`，$W_d$ `[H, I]`。手算：x = 1，三个权重 2、3、10：silu(2) · 3 · 10 = 52.848。
"""
# %% en
r"""
## 1. SwiGLU

$$\text{out} = \big(\mathrm{silu}(x W_g^\top) \odot x W_u^\top\big)\, W_d^\top,\qquad \mathrm{silu}(z) = \frac{z}{1 + e^{-z}}$$

x `[..., H]`, $W_g, W_u$ `[I, H]`, $W_d$ `[H, I]`. By hand: x = 1, weights 2, 3, 10: silu(2) · 3 · 10 = 52.848.
"""
# %%
one = np.ones((1, 1))
assert swiglu(np.array([1.0]), 2 * one, 3 * one, 10 * one).round(3) == 52.848

trace = npminimind.trace(model, [model.tokenizer.encode("Once upon a time there was a little cat.")])
layer = "model.layers.0."
x = trace[layer + "post_attention_layernorm"]  # [B,S,H]
w_gate, w_up, w_down = (model.params[f"{layer}mlp.{part}_proj.weight"] for part in ("gate", "up", "down"))
gate = x @ w_gate.T  # [B,S,H] -> [B,S,I]
hidden = gate / (1 + np.exp(-gate)) * (x @ w_up.T)
out = hidden @ w_down.T  # [B,S,I] -> [B,S,H]

assert np.allclose(out, swiglu(x, w_gate, w_up, w_down))
assert np.allclose(out, trace[layer + "mlp.down_proj"]) and np.allclose(hidden, trace[layer + "mlp.hidden"])
course.shapes(x=x, gate=gate, hidden=hidden, out=out)
# %%
z = np.linspace(-6, 4, 200)
assert np.isclose(silu(z).min(), -0.2785, atol=1e-3)  # its lowest point, at z = -1.278
assert not np.allclose(silu(z), gelu(z), atol=0.05)
fig, (left, right) = course.figure(columns=2, width=7.4, height=2.8)
left.plot(z, silu(z), label="silu")
left.plot(z, gelu(z), "--", label="gelu")
left.plot(z, np.maximum(z, 0), ":", color=course.GREY, label="relu")
left.legend(fontsize=8)
left.set(xlabel="z", title="activations")
right.hist(silu(gate).ravel(), bins=60, color=course.BLUE)
right.set(xlabel="silu(gate)", ylabel="count", title="how open the gates are, layer 0")
course.show(fig, "The activation functions, and a histogram of gate values in layer 0")
# %% zh
r"""
门与上投影对调，结果就不对了：激活只作用在其中一路。这是移植时的常见错误。
"""
# %% en
r"""
Swap gate and up, and the result is wrong: the activation is on one path only. A common mistake in ports.
"""
# %%
swapped = swiglu(x, w_up, w_gate, w_down)
assert not np.allclose(swapped, out)
print("relative error when swapped:", f"{np.linalg.norm(swapped - out) / np.linalg.norm(out):.0%}")
# %% zh
r"""
## 2. 参数都在这里

MiniMind-3 的中间宽度是 $64\lceil \pi H/64\rceil$。数一数各部分的参数：
"""
# %% en
r"""
## 2. Most parameters are here

MiniMind-3's inner width is $64\lceil \pi H/64\rceil$. Count the parameters of each part:
"""
# %%
config = npminimind.MiniMindConfig()  # MiniMind-3
assert config.intermediate_size == 64 * int(np.ceil(np.pi * 768 / 64)) == 2432
counts = {"embedding": 0, "attention": 0, "mlp": 0, "norms": 0}
for name, shape in npminimind.params.param_shapes(config).items():
    part = (
        "embedding" if "embed" in name else "norms" if "norm" in name else "attention" if "self_attn" in name else "mlp"
    )
    counts[part] += int(np.prod(shape))
assert sum(counts.values()) == 63_912_192 and counts["mlp"] > sum(counts.values()) / 2
fig, ax = course.figure(width=5.6, height=1.9)
course.bars(
    ax, [n / 1e6 for n in counts.values()], list(counts), title="MiniMind-3, 63.9 million parameters (in millions)"
)
course.show(fig, "Parameters of MiniMind-3 by part: the feed-forward networks hold the most")
# %% zh
r"""
## 3. 路由器

$$p = \mathrm{softmax}(x W_r^\top),\qquad \text{取概率最大的 } k \text{ 个专家，权重除以它们的和}$$

tokens `[B*S, H]` → 路由 logits `[B*S, E]` → 专家编号与权重 `[B*S, k]`。
"""
# %% en
r"""
## 3. The router

$$p = \mathrm{softmax}(x W_r^\top),\qquad \text{the } k \text{ likeliest experts, weights divided by their sum}$$

Tokens `[B*S, H]` → router logits `[B*S, E]` → experts and weights `[B*S, k]`.
"""
# %%
text = "Once upon a time there was a little cat. 从前有一只猫。2 + 3 = 5."
ids = [sparse.tokenizer.encode(text)]
trace = npminimind.trace(sparse, ids)
layer, k = "model.layers.1.", sparse.config.num_experts_per_tok
tokens = trace[layer + "post_attention_layernorm"][0]  # [B*S,H]
router = softmax(tokens @ sparse.params[layer + "mlp.gate.weight"].T)  # -> [B*S,E]
chosen = np.argsort(-router, axis=-1, kind="stable")[:, :k]  # -> [B*S,k]
weight = np.take_along_axis(router, chosen, axis=-1)
weight = weight / (weight.sum(axis=-1, keepdims=True) + 1e-20)

assert np.allclose(router, trace[layer + "mlp.router_probs"])
assert np.array_equal(chosen, trace[layer + "mlp.topk_idx"]) and np.allclose(weight, trace[layer + "mlp.topk_weight"])
course.shapes(tokens=tokens, router=router, chosen=chosen, weight=weight)
# %% zh
r"""
## 4. 只选一个时，权重恰为 1

k = 1 时归一化把权重除以它自己：路由器只**选择**，不**缩放**。这不是错误，上游训练时也是如此。k = 2 时权重才有意义。
"""
# %% en
r"""
## 4. With one expert the weight is exactly 1

For k = 1 the renormalisation divides a weight by itself: the router **chooses**, it does not **scale**. That is no bug; upstream trains in the same way. With k = 2 the weights do matter.
"""
# %%
assert k == 1 and (weight == 1).all()
rng = np.random.default_rng(0)
logits = rng.standard_normal((5, 4))
p = softmax(logits)
best = np.argsort(-p, axis=-1)[:, :2]
over_all = np.take_along_axis(p, best, -1)
over_all = over_all / over_all.sum(axis=-1, keepdims=True)
over_chosen = softmax(np.take_along_axis(logits, best, -1))
assert np.allclose(over_all, over_chosen)  # softmax over all, then renormalised = softmax over the chosen
# %% zh
r"""
## 5. 训练与推理一样吗

一样。推理时按专家收集 token，只算被选中的；训练时的写法不同，数学相同。下面每个专家都算全部 token，再用掩码合起来：
"""
# %% en
r"""
## 5. Is inference the same as training?

It is. Inference gathers the tokens expert by expert and computes the chosen ones only; training is written otherwise, with the same mathematics. Here every expert computes all tokens, and a mask combines them:
"""
# %%
E = sparse.config.num_experts
experts = [
    tuple(sparse.params[f"{layer}mlp.experts.{e}.{part}_proj.weight"] for part in ("gate", "up", "down"))
    for e in range(E)
]
every = np.stack([swiglu(tokens, *w) for w in experts], axis=1)  # [B*S,E,H]: all experts
mask = np.zeros((len(tokens), E))
np.put_along_axis(mask, chosen, weight, axis=-1)
dense = (mask[:, :, None] * every).sum(axis=1)  # -> [B*S,H]
gathered = moe(tokens, sparse.params[layer + "mlp.gate.weight"], experts, k, True)
assert np.allclose(dense, gathered) and np.allclose(gathered, trace[layer + "mlp"][0])
# %% zh
r"""
## 6. 谁去了哪个专家

每一行是一层，每一列是一个 token，颜色是专家编号。右边是每个专家分到的份额。
"""
# %% en
r"""
## 6. Who went to which expert

A row is a layer, a column a token, the colour an expert. On the right, each expert's share.
"""
# %%
routed = np.stack(
    [trace[f"model.layers.{i}.mlp.topk_idx"][:, 0] for i in range(sparse.config.num_hidden_layers)]
)  # [layers, S]
share = np.stack([(routed == e).mean(axis=1) for e in range(E)], axis=1)  # [layers, E]
assert np.allclose(share.sum(axis=1), 1)
colours = course.plt.matplotlib.colors.ListedColormap(course.COLOURS[:E])
fig, (left, right) = course.figure(columns=2, width=8, height=2.8, width_ratios=[3, 1])
left.imshow(routed, cmap=colours, vmin=-0.5, vmax=E - 0.5, aspect="auto")
for (row, column), e in np.ndenumerate(routed):
    left.text(column, row, e, ha="center", va="center", fontsize=7, color="black" if e == 1 else "white")
left.set(yticks=range(len(routed)), xlabel="position", ylabel="layer", title="expert of each token")
course.heat(right, share, title="share", numbers=True)
right.set(xticks=range(E), xlabel="expert", yticks=[])
course.show(fig, "The expert chosen for each token in each layer, and each expert's share")
# %% zh
r"""
## 7. 差一点就选了别人

第一名与第二名的概率之差叫**边距**。边距很小时，float32 的舍入就可能换一个专家，输出随之跳变。所以比较两个实现时，先看边距。
"""
# %% en
r"""
## 7. Nearly another expert

The gap between the first and the second probability is the **margin**. Where it is tiny, float32 rounding may pick another expert, and the output jumps. So look at the margins before you compare two implementations.
"""
# %%
top_two = -np.sort(-router, axis=-1)[:, :2]
margin = top_two[:, 0] - top_two[:, 1]
assert (margin >= 0).all()
single = npminimind.trace(npminimind.load("minimind-tiny-moe", dtype=np.float32), ids)
safe = margin > 1e-5  # far more than float32 is off
assert np.array_equal(single[layer + "mlp.topk_idx"][safe], chosen[safe])
print("smallest margin:", f"{margin.min():.4f}", " median:", f"{np.median(margin):.3f}")
# %% zh
r"""
## 练习一：SwiGLU

写 `my_swiglu(x, gate_proj, up_proj, down_proj)`。
"""
# %% en
r"""
## Exercise 1: SwiGLU

Write `my_swiglu(x, gate_proj, up_proj, down_proj)`.
"""


# %%
def my_swiglu(x, gate_proj, up_proj, down_proj, act=silu):
    raise NotImplementedError


# %% zh hint
r"""
权重是 `[out, in]`，所以写成 `x @ w.T`。激活只作用在 gate 一路。
"""
# %% en hint
r"""
Weights are `[out, in]`, so `x @ w.T`. The activation is on the gate path only.
"""
# %%
oracle.check("swiglu", my_swiglu)


# %% solution
def my_swiglu(x, gate_proj, up_proj, down_proj, act=silu):
    return (act(x @ gate_proj.T) * (x @ up_proj.T)) @ down_proj.T


# %% zh
r"""
## 练习二：专家混合

写 `my_moe(x, gate, experts, num_experts_per_tok, norm_topk_prob)`；`experts` 是 `(gate_proj, up_proj, down_proj)` 的列表。
"""
# %% en
r"""
## Exercise 2: mixture of experts

Write `my_moe(x, gate, experts, num_experts_per_tok, norm_topk_prob)`; `experts` is a list of `(gate_proj, up_proj, down_proj)`.
"""


# %%
def my_moe(x, gate, experts, num_experts_per_tok, norm_topk_prob, act=silu):
    raise NotImplementedError


# %% zh hint
r"""
先把 x 摊平成 `[tokens, H]`。softmax 对**全部**专家做，然后取前 k 个。第 5 节的「全算再掩」最容易写对。
"""
# %% en hint
r"""
Flatten x to `[tokens, H]` first. The softmax is over **all** experts, then take the first k. "Compute all, then mask" of section 5 is the easiest to get right.
"""
# %%
oracle.check("moe", my_moe)


# %% solution
def my_moe(x, gate, experts, num_experts_per_tok, norm_topk_prob, act=silu):
    tokens = x.reshape(-1, x.shape[-1])
    logits = tokens @ gate.T
    p = np.exp(logits - logits.max(axis=-1, keepdims=True))
    p = p / p.sum(axis=-1, keepdims=True)
    chosen = np.argsort(-p, axis=-1, kind="stable")[:, :num_experts_per_tok]
    weight = np.take_along_axis(p, chosen, axis=-1)
    if norm_topk_prob:
        weight = weight / (weight.sum(axis=-1, keepdims=True) + 1e-20)
    y = np.zeros_like(tokens)
    for e, (gate_proj, up_proj, down_proj) in enumerate(experts):
        mine = np.where(chosen == e, weight, 0).sum(axis=-1)
        used = mine > 0
        t = tokens[used]
        y[used] += mine[used, None] * ((act(t @ gate_proj.T) * (t @ up_proj.T)) @ down_proj.T)
    return y.reshape(x.shape)
