# %% zh
r"""
# 10.1 / 10.2　自回归循环：预填充与解码

语言模型只会做一件事：给出「下一个 token」的分数。要得到一段文字，就把选中的 token 接到末尾，再问一次，如此循环。这叫**自回归**生成。

本笔记用盒子里的小模型走完这个循环，并验证第 10 章的形状表。维度记号：B 批大小，S 本轮喂入的 token 数，T = 已缓存 + S，V 词表大小，K 键值头数，D 每头维度。
"""

# %% en
r"""
# 10.1 / 10.2  The autoregressive loop: prefill and decode

A language model does one thing: it scores the next token. To get a text, append the chosen token to the end and ask again, in a loop. This is **autoregressive** generation.

This notebook walks through the loop with the model in the box and checks chapter 10's tables of shapes. Dims: B batch, S tokens fed in this round, T = cached + S, V vocabulary, K key/value heads, D head_dim.
"""
# %%
import inspect
import sys

import numpy as np

sys.path.append("..")  # course.py draws the pictures

import npminimind

import course

model = npminimind.load(dtype=np.float64)
prompt = [model.tokenizer.encode("Once upon a time")]
model
# %% zh
r"""
## 1. 五行循环

$$x_{t+1} = \arg\max_v \; \mathrm{logits}(x_1 \dots x_t)_v$$

每轮：`forward` 得到 `[B, S, V]` 的 logits → 只取最后一行 `[B, V]` → 选一个 token `[B, 1]` → 接到末尾。下面先不用缓存：每一轮都把整个序列重新喂一遍。
"""
# %% en
r"""
## 1. The loop in five lines

$$x_{t+1} = \arg\max_v \; \mathrm{logits}(x_1 \dots x_t)_v$$

Each round: `forward` gives logits `[B, S, V]` → take the last row only, `[B, V]` → choose a token `[B, 1]` → append it. No cache yet: every round feeds the whole sequence again.
"""
# %%
ids = np.array(prompt)
for _ in range(12):
    logits = model(ids).logits[:, -1]  # [B,S,V] -> [B,V]
    next_token = logits.argmax(axis=-1)[:, None]  # [B,1]
    ids = np.concatenate([ids, next_token], axis=1)

same = model.generate(prompt, max_new_tokens=12, do_sample=False, eos_token_id=None)
assert np.array_equal(ids, same)
model.tokenizer.decode(ids[0])
# %% zh
r"""
## 2. 预填充一次，解码很多次

有了 KV 缓存，第 0 轮喂完整的 prompt（**预填充**），以后每轮只喂一个新 token（**解码**）：`input_ids[:, past_len:]`。`steps` 就是 `generate` 的循环本身，每轮交出一个 `Step`。
"""
# %% en
r"""
## 2. Prefill once, decode many times

With a KV cache, round 0 feeds the whole prompt (**prefill**); every later round feeds one new token (**decode**): `input_ids[:, past_len:]`. `steps` is the very loop of `generate`; it hands out one `Step` a round.
"""
# %%
steps = list(model.steps(prompt, max_new_tokens=5, do_sample=False, eos_token_id=None))
rows = [
    [s.round, s.past_len, s.fed_ids.shape, s.logits.shape, s.past_key_values[0][0].shape, s.input_ids.shape]
    for s in steps
]
course.table(["round", "past_len", "fed_ids", "last logits", "k cache of a layer", "input_ids after"], rows)
# %% zh
r"""
第 10 章的两张表（10.2）写成断言。有一处要更正：讲义说解码时「past_len 为已生成长度」，其实是 **prompt 长度 + 已生成 − 1**。最后那个 token 刚刚选出来，还没有喂进模型，所以不在缓存里。
"""
# %% en
r"""
The two tables of chapter 10.2 as assertions. One correction: the chapter says that in decode `past_len` is the generated length. It is **prompt + generated − 1**: the last token has only just been chosen, it has not been fed, so the cache does not hold it yet.
"""
# %%
B, prompt_len = np.shape(prompt)
K, D = model.config.num_key_value_heads, model.config.head_dim
assert steps[0].past_len == 0 and steps[0].fed_ids.shape == (B, prompt_len)  # prefill
for s in steps[1:]:
    generated = s.round  # tokens chosen before this round
    assert s.past_len == prompt_len + generated - 1 and s.past_len != generated
    assert s.fed_ids.shape == (B, 1)  # decode
for s in steps:
    assert s.past_key_values[0][0].shape == (B, s.past_len + s.fed_ids.shape[1], K, D)
    assert s.past_key_values[0][0].shape[1] == s.input_ids.shape[1] - 1
# %% zh
r"""
`Step` 自己会画成表格：每个候选 token 从 logit 到概率走过的各个阶段。
"""
# %% en
r"""
A `Step` draws itself: the likeliest tokens on their way from logit to probability, stage by stage.
"""
# %%
steps[0]
# %% zh
r"""
## 3. 为什么只用最后一行 logits

logits 的第 $s$ 行预测第 $s+1$ 个 token。prompt 内部的行预测的是我们已经知道的 token，只有最后一行说的是未来。训练时所有行都有用，生成时只用最后一行。
"""
# %% en
r"""
## 3. Why only the last row of logits

Row $s$ of the logits predicts token $s+1$. Rows inside the prompt predict tokens that we know already; only the last one speaks of the future. Training uses all rows, generation the last one.
"""
# %%
text = model.generate(prompt, max_new_tokens=40, rng=1, eos_token_id=None)
logits = model(text).logits[0]  # [S,V]
shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
probs = shifted / shifted.sum(axis=-1, keepdims=True)
chosen = probs[np.arange(len(text[0]) - 1), text[0, 1:]]  # row s, token s + 1

assert np.allclose(np.log(chosen), model.logprobs(text)[0])
course.coloured(model.tokenizer, text[0, 1:], chosen)
# %% zh
r"""
白底的 token 几乎是确定的，橙色越深越意外。同样的信息可以画成**熵**：$H = -\sum_v p_v \log_2 p_v$，单位比特，0 表示只有一个可能。
"""
# %% en
r"""
Tokens on white were almost certain; the darker the orange, the greater the surprise. The same as **entropy**: $H = -\sum_v p_v \log_2 p_v$, in bits; 0 means that there was one possibility.
"""
# %%
entropy = -(probs * np.log2(np.maximum(probs, 1e-300))).sum(axis=-1)  # [S]
assert (entropy >= 0).all() and (entropy <= np.log2(model.config.vocab_size)).all()
fig, ax = course.figure(width=7.2, height=2.4)
ax.step(range(len(entropy)), entropy, where="mid", color=course.BLUE)
ax.axvspan(-0.5, prompt_len - 1.5, color=course.YELLOW, alpha=0.4, label="inside the prompt")
ax.set(xlabel="position s", ylabel="bits", title="Entropy of the prediction for token s + 1")
ax.legend()
course.show(fig, "Entropy of each prediction along a text")
# %% zh
r"""
## 4. attention_mask 每轮长一格

一批 prompt 长度不同时，左边补齐，`attention_mask` 用 0 标出补齐的位置。每生成一个 token，末尾补一个 1，使它总与 `input_ids` 等长；它覆盖「已缓存 + 新」的全部位置，而不只是新喂的那一个。
"""
# %% en
r"""
## 4. The attention mask grows by one a round

Prompts of different length are padded on the left, and `attention_mask` has 0 at the pads. Each new token appends a 1, so that the mask is always as long as `input_ids`: it covers past and new positions, not only the token that is fed.
"""
# %%
batch, mask = model.tokenizer.batch(["Once upon a time", "One day"])
for s in model.steps(batch, attention_mask=mask, max_new_tokens=3, do_sample=False, eos_token_id=None):
    assert s.attention_mask.shape == (2, s.past_len + s.fed_ids.shape[1])
    print("round", s.round, "fed", s.fed_ids.shape, "mask", *s.attention_mask.tolist())
# %% zh
r"""
## 5. 什么时候停

停止条件有三种：遇到 EOS、达到 `max_new_tokens`、遇到停止词。停止词按**文本**匹配，可以跨越 token 的边界。
"""
# %% en
r"""
## 5. When it stops

Three things end a row: EOS, `max_new_tokens`, a stop word. Stop words are matched as **text**, and may straddle tokens.
"""
# %%
question = [{"role": "user", "content": "What is the opposite of big?"}]
chat = [model.tokenizer.encode(model.tokenizer.apply_chat_template(question))]
greedy = dict(do_sample=False, max_new_tokens=30)
answers = {
    "EOS (id 2)": model.generate(chat, **greedy),
    "max_new_tokens=3": model.generate(chat, do_sample=False, max_new_tokens=3),
    "no EOS": model.generate(chat, eos_token_id=None, **greedy),
}
new = {why: ids[0, len(chat[0]) :] for why, ids in answers.items()}
assert len(new["max_new_tokens=3"]) == 3 and len(new["no EOS"]) == 30
assert 2 not in new["EOS (id 2)"][:-1]  # the first EOS ends the row, and is part of the result
course.table(["why it stopped", "tokens", "ids"], [[why, len(ids), ids[:12].tolist()] for why, ids in new.items()])
# %%
story = model.tokenizer.decode(model.generate(prompt, max_new_tokens=30, rng=3, eos_token_id=None)[0, prompt_len:])
stop = story[len(story) // 2 : len(story) // 2 + 4]  # four characters from its middle, wherever tokens begin
pieces = list(model.stream("Once upon a time", max_new_tokens=30, rng=3, eos_token_id=None, stop=stop))
assert "".join(pieces) == story[: story.index(stop)]
# %% zh
r"""
## 6. 默认参数

讲义 10.1 的默认值表，逐项和函数签名核对。
"""
# %% en
r"""
## 6. The defaults

The table of defaults in chapter 10.1, checked against the signature.
"""
# %%
chapter = {
    "max_new_tokens": 8192,
    "temperature": 0.85,
    "top_p": 0.85,
    "top_k": 50,
    "eos_token_id": 2,
    "do_sample": True,
    "repetition_penalty": 1.0,
    "num_return_sequences": 1,
    "use_cache": True,
}
signature = inspect.signature(model.generate).parameters
assert all(signature[name].default == value for name, value in chapter.items())
# %% zh
r"""
## 练习：自己写循环，并用上缓存

写 `my_generate(prompt, rounds)`：贪心解码，返回 `[B, S + rounds]` 的 ids。第一轮之后，每轮只许喂一个 token。
"""
# %% en
r"""
## Exercise: your own loop, with the cache

Write `my_generate(prompt, rounds)`: greedy decoding, returning ids `[B, S + rounds]`. After the first round you may feed one token a round only.
"""


# %%
def my_generate(prompt, rounds):
    raise NotImplementedError


# %% zh hint
r"""
`model(new_ids, past_key_values=past, use_cache=True)` 返回 `logits` 和新的 `past_key_values`。没有缓存时 `past` 是 `None`，要喂的是整个 prompt。
"""
# %% en hint
r"""
`model(new_ids, past_key_values=past, use_cache=True)` returns `logits` and the new `past_key_values`. Without a cache `past` is `None`, and what you feed is the whole prompt.
"""


# %%
def reference(prompt, rounds):
    return model.generate(prompt, max_new_tokens=rounds, do_sample=False, eos_token_id=None)


course.grade(my_generate, reference, [(prompt, 1), (prompt, 6), (chat, 8)])


# %% solution
def my_generate(prompt, rounds):
    ids, past = np.array(prompt), None
    for _ in range(rounds):
        past_len = past[0][0].shape[1] if past else 0
        out = model(ids[:, past_len:], past_key_values=past, use_cache=True)
        next_token = out.logits[:, -1].argmax(axis=-1)[:, None]
        ids, past = np.concatenate([ids, next_token], axis=1), out.past_key_values
    return ids


# %% zh
r"""
## 带走三句话

- 生成 = 预填充（一次看完 prompt）+ 解码（每轮一个 token）。
- 缓存总比 `input_ids` 短一个：最后选出的 token 还没有喂过。
- logits 的每一行都是预测，生成时只用最后一行。
"""
# %% en
r"""
## Three things to take away

- Generation = prefill (the prompt at once) + decode (one token a round).
- The cache is always one shorter than `input_ids`: the token chosen last has not been fed.
- Every row of the logits is a prediction; generation uses the last one.
"""
