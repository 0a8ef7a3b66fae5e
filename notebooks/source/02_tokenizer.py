# %% zh
r"""
# 分词器与对话模板

模型看不到文字，只看到编号。本笔记用五行写出 BPE 合并，看一个字符怎样被切成几个 token，以及为什么流式输出要等字符凑齐；然后是对话模板：模型续写的到底是哪一串文字。
"""

# %% en
r"""
# The tokenizer and the chat template

The model sees no text, only numbers. This notebook writes BPE merging in five lines, shows how one character becomes several tokens and why streamed output must wait for a character to be complete; then the chat template: which text it really is that the model continues.
"""
# %%
import json
import sys

import numpy as np

sys.path.append("..")  # course.py draws the pictures

import npminimind

import course

model = npminimind.load(dtype=np.float64)
tokenizer = model.tokenizer
# %% zh
r"""
## 1. 字节级 BPE，五行

先把文字变成 UTF-8 字节，每个字节一个基本符号（空格写作 Ġ）。然后反复合并**排名最前**的相邻对，直到无可合并。合并表是训练分词器时学到的。
"""
# %% en
r"""
## 1. Byte-level BPE in five lines

The text becomes UTF-8 bytes, each byte a basic symbol (a blank is written Ġ). Then merge, again and again, the adjacent pair that **ranks first**, until none is left. The table of merges was learnt when the tokenizer was trained.
"""
# %%
table = json.loads(tokenizer.backend.to_str())["model"]
rank = {tuple(pair): i for i, pair in enumerate(table["merges"])}


def bpe(symbols):
    while pairs := [(rank[pair], i) for i, pair in enumerate(zip(symbols, symbols[1:])) if pair in rank]:
        _, i = min(pairs)  # the first in rank, leftmost of equals
        symbols = [*symbols[:i], symbols[i] + symbols[i + 1], *symbols[i + 2 :]]
    return symbols


for word in ("Once", "Ġupon", "Ġtime", "Ġlighthouse", "Ġxyzzy"):
    ids = [table["vocab"][symbol] for symbol in bpe(list(word))]
    assert ids == tokenizer.encode(word.replace("Ġ", " "))
    print(f"{word:12}", bpe(list(word)), ids)
# %% zh
r"""
## 2. 中文、英文、表情

往返无损：任何文字都能编码再解码回来，因为最坏情况下逐字节编码。常见词一个 token，罕见字好几个。
"""
# %% en
r"""
## 2. Chinese, English, emoji

The round trip loses nothing: at worst a text is encoded byte by byte. Frequent words take one token, rare characters several.
"""
# %%
samples = ["Once upon a time", "从前有一只猫", "What is 2 + 3?", "龘", "😀", "naïve café"]
rows = []
for text in samples:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    rows.append([text, len(text.encode()), len(ids), ids])
course.table(["text", "bytes", "tokens", "ids"], rows)
# %%
per_token = [len(text.encode()) / len(tokenizer.encode(text)) for text in samples]
assert min(per_token) >= 1  # a token holds at least one byte
fig, ax = course.figure(width=6, height=2.4)
names = ["English story", "Chinese story", "sum", "rare character", "emoji", "accents"]
course.bars(ax, per_token, names, title="Bytes per token: more is cheaper")
course.show(fig, "Bytes a token for several kinds of text")
# %% zh
r"""
## 3. 一个字符，几个 token

`😀` 是四个字节，这里被切成几个 token；单独解码任何一个都只得到 U+FFFD（�）。所以流式输出不能逐 token 解码：`tokenizer.stream()` 会把半个字符留住，等凑齐再给。
"""
# %% en
r"""
## 3. One character, several tokens

`😀` is four bytes, here several tokens; each of them alone decodes to U+FFFD (�). So a stream cannot be decoded token by token: `tokenizer.stream()` holds back half a character until it is complete.
"""
# %%
ids = tokenizer.encode("😀龘")
alone = [tokenizer.decode([i]) for i in ids]
assert len(ids) > 2 and "".join(alone) != "😀龘"
stream = tokenizer.stream()
pieces = [stream.put(i) for i in ids]
assert "".join(pieces) == "😀龘" and "\ufffd" not in "".join(pieces)
course.table(["id", "decoded alone", "streamed"], [[i, a, repr(p)] for i, a, p in zip(ids, alone, pieces)])
# %% zh
r"""
## 4. 特殊 token

0 到 35 号是特殊 token。写在文字里的特殊 token 会变成它自己的 id；编码时不会自动加 BOS。解码时默认略去控制用的那些；`<think>` 之类的标记是给人看的，会留下。
"""
# %% en
r"""
## 4. Special tokens

Ids 0 to 35 are special. A special token written in a text becomes its own id; encoding adds no BOS. Decoding leaves out those that control; marks such as `<think>` are meant to be read, and stay.
"""
# %%
special = {name: tokenizer.special_id(name) for name in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")}
assert special == {"<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2}  # pad, BOS, EOS
assert tokenizer.encode("<|im_end|>") == [2] and tokenizer.encode("<think>") == [25]
ids = tokenizer.encode("Hi<|im_end|>")
assert tokenizer.decode(ids) == "Hi" and tokenizer.decode(ids, skip_special_tokens=False) == "Hi<|im_end|>"
assert tokenizer.decode([25]) == "<think>"
print(special)
# %% zh
r"""
## 5. 对话模板

对话模型也只会续写。「对话」是一种书写格式（ChatML）：每一轮以 `<|im_start|>角色` 开头，以 `<|im_end|>` 结尾。问题之后打开助手这一轮，模型从那里续写，写到 `<|im_end|>`（EOS）为止。
"""
# %% en
r"""
## 5. The chat template

A chat model, too, only continues a text. A "chat" is a way of writing (ChatML): each turn begins with `<|im_start|>role` and ends with `<|im_end|>`. Behind the question the assistant's turn is opened; the model continues there, until `<|im_end|>`, which is EOS.
"""
# %%
messages = [{"role": "user", "content": "你好"}]
prompt = tokenizer.apply_chat_template(messages)
assert prompt == "<|im_start|>user\n你好<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
thinking = tokenizer.apply_chat_template(messages, thinking=True)
assert thinking == "<|im_start|>user\n你好<|im_end|>\n<|im_start|>assistant\n<think>\n"
print(prompt + "▮")
# %% zh
r"""
不思考时，模板递上一个**空的**思考块；要思考时，思考块打开着，由模型自己填。历史里的助手轮也带着思考块。
"""
# %% en
r"""
Without thinking, the template hands over an **empty** think block; with it, the block is open, for the model to fill. Assistant turns of the history carry their block too.
"""
# %%
history = [
    {"role": "user", "content": "What color is a banana?"},
    {"role": "assistant", "content": "A banana is yellow."},
    {"role": "user", "content": "And a leaf?"},
]
whole = tokenizer.apply_chat_template(history)
assert whole.count("<think>") == 2 and whole.endswith("assistant\n<think>\n\n</think>\n\n")
answer = "".join(model.chat_stream(history, max_new_tokens=30, do_sample=False))
assert answer == "".join(model.stream(whole, max_new_tokens=30, do_sample=False))  # a chat is a text
print(whole + answer)
# %% zh
r"""
## 6. 分词器和权重是一对

编号本身没有意义，是权重赋予了它意义。MiniMind2 与 MiniMind-3 的词表都有 6400 项，却只有 9 个编号相同。把编号打乱，模型就什么也不懂了：
"""
# %% en
r"""
## 6. Tokenizer and weights belong together

A number means nothing by itself; the weights give it meaning. MiniMind2 and MiniMind-3 both have 6,400 entries, and share 9 ids. Shuffle the numbers, and the model understands nothing:
"""
# %%
own_words = model.generate([tokenizer.encode("Once upon a time")], max_new_tokens=60, rng=0, eos_token_id=None)
shuffle = np.random.default_rng(0).permutation(model.config.vocab_size)
right, wrong = model.logprobs(own_words)[0], model.logprobs(shuffle[own_words])[0]
assert right.mean() > wrong.mean()
print(f"perplexity {np.exp(-right.mean()):.1f}, with shuffled ids {np.exp(-wrong.mean()):,.0f}")
# %% zh
r"""
## 7. 一批：补在左边

长短不一的文字用 0 号补在**左边**，掩码标出哪里是 pad。为什么是左边：生成从最后一列接着写（10.9）。
"""
# %% en
r"""
## 7. A batch: pads on the left

Texts of different length are padded with id 0 on the **left**; the mask tells where. Why left: generation goes on from the last column (10.9).
"""
# %%
ids, mask = tokenizer.batch(["Once upon a time", "One day", "There was a little"])
assert (mask[:, -1] == 1).all() and (ids[mask == 0] == 0).all()
assert all(
    tokenizer.decode(row[m == 1]) == text
    for row, m, text in zip(ids, mask, ("Once upon a time", "One day", "There was a little"))
)
print(ids)
print(mask)
# %% zh
r"""
## 练习

写 `my_chat_prompt(question, thinking)`：一个用户问题 → 模型要续写的文字。
"""
# %% en
r"""
## Exercise

Write `my_chat_prompt(question, thinking)`: one user question → the text that the model is to continue.
"""


# %%
def my_chat_prompt(question, thinking):
    raise NotImplementedError


# %% zh hint
r"""
换行一个也不能少。`print(repr(prompt))` 看得最清楚。
"""
# %% en hint
r"""
Every line end counts. `print(repr(prompt))` shows them best.
"""


# %%
def reference(question, thinking):
    return tokenizer.apply_chat_template([{"role": "user", "content": question}], thinking=thinking)


course.grade(my_chat_prompt, reference, [("Hi", False), ("Hi", True), ("你好", False), ("1 + 1 = ?\n", True)])


# %% solution
def my_chat_prompt(question, thinking):
    opened = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n<think>\n"
    return opened if thinking else opened + "\n</think>\n\n"
