# %% zh
r"""
# 找出埋下的错误，检查你自己的移植

你把 MiniMind 移植到别的语言或框架，输出不对。哪个张量最先错？为什么？（找错误不需要训练过的权重，所以这里用一个随机的两层小模型，快得多。）本笔记先埋一个错误，再用神谕（oracle）三步找到它：**不同吗 → 从哪里开始 → 叫什么**。然后轮到你。
"""

# %% en
r"""
# Find the planted bug, and check your own port

You have ported MiniMind to another language or framework, and the output is wrong. Which tensor is the first wrong one, and why? (Finding mistakes needs no trained weights, so a random model of two layers serves here: it is much faster.) This notebook plants a mistake and finds it with the oracle in three steps: **does it differ → where does it start → what is it called**. Then it is your turn.
"""
# %%
import sys
from base64 import b64decode

import numpy as np

sys.path.append("..")  # course.py draws the pictures

import npminimind
from npminimind import oracle

import course

config = npminimind.MiniMindConfig(
    hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=200
)
model = npminimind.MiniMindForCausalLM.random(config, seed=0, dtype=np.float64)
ids = [[5, 60, 7, 180, 9, 10, 11, 12]]
reference = npminimind.trace(model, ids)
# %% zh
r"""
## 1. 一个移植版

四十行，独立于本包，把中间量记在一个字典里。里面有一处错误。看得出来吗？
"""
# %% en
r"""
## 1. A port

Some forty lines, independent of the package, which keep intermediates in a dict. There is one mistake in it. Do you see it?
"""


# %%
def norm(x, w):
    return w * x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def rotate(x, position, theta):
    half = x.shape[-1] // 2
    angle = position[:, None] * theta ** (-np.arange(half) / half)  # [S,D/2]
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]  # [S,1,D/2]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def for_each_query_head(x, n_rep):
    return np.tile(x, (1, n_rep, 1))  # [S,K,D] -> [S,N,D]


def port(p, c, ids):
    keep, position = {}, np.arange(len(ids))
    x = p["model.embed_tokens.weight"][ids]  # [S,H]
    for i in range(c.num_hidden_layers):
        name = f"model.layers.{i}."
        w = {key.removeprefix(name).removesuffix(".weight"): a for key, a in p.items() if key.startswith(name)}
        h = norm(x, w["input_layernorm"])
        q, k, v = (h @ w[f"self_attn.{m}_proj"].T for m in "qkv")
        q, k, v = (m.reshape(len(ids), -1, c.head_dim) for m in (q, k, v))  # [S,heads,D]
        q, k = norm(q, w["self_attn.q_norm"]), norm(k, w["self_attn.k_norm"])
        q, k = rotate(q, position, c.rope_theta), rotate(k, position, c.rope_theta)
        keep[name + "self_attn.q_rope"], keep[name + "self_attn.k_rope"] = q[None], k[None]
        n_rep = q.shape[1] // k.shape[1]
        k, v = for_each_query_head(k, n_rep), for_each_query_head(v, n_rep)
        scores = np.einsum("snd,tnd->nst", q, k) / np.sqrt(c.head_dim)
        scores[:, np.triu_indices(len(ids), 1)[0], np.triu_indices(len(ids), 1)[1]] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        keep[name + "self_attn.probs"] = weights[None]
        x = x + np.einsum("nst,tnd->snd", weights, v).reshape(len(ids), -1) @ w["self_attn.o_proj"].T
        h = norm(x, w["post_attention_layernorm"])
        gate = h @ w["mlp.gate_proj"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w["mlp.up_proj"].T)) @ w["mlp.down_proj"].T
        keep[name.rstrip(".")] = x[None]
    keep["lm_head"] = (norm(x, p["model.norm.weight"]) @ p["model.embed_tokens.weight"].T)[None]
    return keep


mine = port(model.params, model.config, np.array(ids[0]))
difference = np.abs(mine["lm_head"] - reference["lm_head"]).max()
assert difference > 1e-2
print("the logits are off by up to", f"{difference:.2f}")
# %% zh
r"""
## 2. 从哪里开始

`oracle.compare` 按执行次序逐个比较同名的中间量，容差是**测出来**的 float32 误差。第一个超出的，就是错误开始的地方。
"""
# %% en
r"""
## 2. Where it starts

`oracle.compare` walks through intermediates of the same name in execution order; the tolerance is the **measured** error of float32. The first one beyond it is where the mistake begins.
"""
# %% measured
report = oracle.compare(reference, mine, model)
assert not report.agrees and report.first.name == "model.layers.0.self_attn.probs"
print(report)
# %%
names = list(mine)
relative = [np.abs(mine[n] - reference[n]).max() / np.sqrt(np.mean(reference[n] ** 2)) for n in names]
fig, ax = course.figure(width=7.4, height=2.8)
ax.semilogy(np.maximum(relative, 1e-17), "o-", markersize=3, linewidth=0.8)
ax.axhline(1e-5, color=course.GREY, linestyle="--", label="about float32")
ax.set(
    xlabel="intermediate, in execution order",
    ylabel="error / RMS",
    title="q and k are right; the attention weights are the first wrong ones",
)
ax.legend(fontsize=8)
assert max(relative[:2]) < 1e-10 < relative[2]
course.show(fig, "Relative error of each intermediate in execution order: a jump at the first attention weights")
# %% zh
r"""
## 3. 叫什么

`oracle.diagnose` 把一百多种已知的错误逐个埋进参考模型，看哪一种恰好复现你的数。能复现，就是它；都不能，就如实说不知道。
"""
# %% en
r"""
## 3. What it is called

`oracle.diagnose` plants each of a hundred known mistakes in the reference model and looks which one reproduces your numbers exactly. If one does, that is it; if none does, it says so.
"""
# %%
diagnosis = oracle.diagnose(model, mine, reference)
assert diagnosis.ids == ["heads-tiled"]
print(diagnosis)
# %% zh
r"""
是 `np.tile`：它给出 `[A, B, A, B]`，而分组查询要 `np.repeat` 的 `[A, A, B, B]`。改一个词，就对了：
"""
# %% en
r"""
It is `np.tile`: that gives `[A, B, A, B]`, and grouped queries need `np.repeat`'s `[A, A, B, B]`. Change one word and it is right:
"""


# %%
def for_each_query_head(x, n_rep):
    return np.repeat(x, n_rep, axis=1)  # [S,K,D] -> [S,N,D]


repaired = port(model.params, model.config, np.array(ids[0]))
assert oracle.compare(reference, repaired, model).agrees
assert np.allclose(repaired["lm_head"], reference["lm_head"])
# %% zh
r"""
## 4. 只有 logits 也行

没有中间量，只有最后的 logits，也常常够用。证据越少，可能的解释越多；分不清时会全部列出。
"""
# %% en
r"""
## 4. Logits alone will do

Without intermediates, the logits alone are often enough. Less evidence leaves more explanations; where it cannot tell them apart, it lists them all.
"""
# %%
logits_only = oracle.diagnose(model, mine["lm_head"], input_ids=ids)
assert "heads-tiled" in logits_only.ids
right = oracle.diagnose(model, model(ids).logits, input_ids=ids)
assert right.correct  # a correct port is never accused
print("logits alone:", logits_only.ids, "| the model itself:", "correct" if right.correct else "wrong")
# %% zh
r"""
## 5. 采样里的错误

前向全对，生成的文字还是不对？给出生成的 ids 和用过的随机数 $u$，诊断就在采样流程里找。
"""
# %% en
r"""
## 5. A mistake in sampling

The forward pass is right, and the text is still wrong? Hand over the generated ids and the random numbers $u$ that were used, and the diagnosis looks in the sampling stages.
"""


# %%
def divides_negatives(logits, input_ids, penalty):
    result = np.array(logits)
    for row, seen in zip(result, np.asarray(input_ids)):
        row[np.unique(seen)] /= penalty  # whatever the sign
    return result


rounds = 40
u = np.random.default_rng(0).random((rounds, 1))
settings = dict(temperature=1.5, top_k=0, top_p=1.0, repetition_penalty=1.5, eos_token_id=None)
broken = model.with_ops(apply_repetition_penalty=divides_negatives)
said = broken.generate(ids, max_new_tokens=rounds, rng=u.ravel(), **settings)
assert not np.array_equal(said, model.generate(ids, max_new_tokens=rounds, rng=u.ravel(), **settings))
found = oracle.diagnose(model, said, input_ids=ids, u=u, **settings)
assert "penalty-divides-negatives" in found.ids
print(found)
# %% zh
r"""
## 练习：三个谜

下面三个模型各埋了一个错误（名字用 base64 遮住，不许偷看）。写 `my_find(candidate)`：返回元组 `(最先错的名字, 错误的 id)`。
"""
# %% en
r"""
## Exercise: three mysteries

Each of these three models has one mistake planted (their names are veiled in base64: no peeking). Write `my_find(candidate)`: the tuple `(name of the first wrong array, id of the mistake)`.
"""
# %%
veiled = ["bm9ybS1tZWFuLXN1YnRyYWN0ZWQ=", "cm9wZS1zaWdu", "Z2F0ZS11cC1zd2FwcGVk"]
planted = [next(m for m in oracle.MISTAKES if m.id == b64decode(name).decode()) for name in veiled]
mysteries = [npminimind.trace(mistake.plant(model), ids) for mistake in planted]
print([len(candidate) for candidate in mysteries], "arrays each")


def my_find(candidate):
    raise NotImplementedError


# %% zh hint
r"""
`oracle.compare(reference, candidate, model).first.name` 与 `oracle.diagnose(model, candidate, reference).ids[0]`。
"""
# %% en hint
r"""
`oracle.compare(reference, candidate, model).first.name` and `oracle.diagnose(model, candidate, reference).ids[0]`.
"""


# %%
def find(number):
    return my_find(mysteries[number])


def reveal(number):
    candidate = mysteries[number]
    wrong = (name for name in reference if not np.allclose(candidate[name], reference[name], rtol=1e-4, atol=1e-6))
    return next(wrong), planted[number].id


course.grade(find, reveal, [(0,), (1,), (2,)])


# %% solution
def my_find(candidate):
    first = oracle.compare(reference, candidate, model).first.name
    return first, oracle.diagnose(model, candidate, reference).ids[0]


# %% zh
r"""
## 检查你自己的移植

- 一个 Python 函数：`oracle.check("rms_norm", my_function)`。
- 任何语言的程序：`npminimind conform -- ./my-port`，一行一个 JSON 请求。
- 一份转储：`npminimind trace "…" --out reference.safetensors`，你的程序按同样的名字写一份，再 `npminimind compare reference.safetensors mine.safetensors`。
"""
# %% en
r"""
## Check your own port

- A Python function: `oracle.check("rms_norm", my_function)`.
- A program in any language: `npminimind conform -- ./my-port`, one JSON request a line.
- A dump: `npminimind trace "…" --out reference.safetensors`; let your program write one under the same names, then `npminimind compare reference.safetensors mine.safetensors`.
"""


# %%
def my_function(x, weight, eps):
    return weight * x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)


result = oracle.check(
    "rms_norm", lambda x, weight, eps: x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps) * (1 + weight)
)
assert not result.ok  # someone else's RMSNorm: Gemma adds 1 to the weight
result
