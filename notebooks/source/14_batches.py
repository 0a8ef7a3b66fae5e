# %% zh
r"""
# 10.9　批量生成：EOS 与左补齐

一批序列在不同的步数结束。已经结束的行必须闭嘴（以 EOS 填充），全部结束后循环才停。长度不同的 prompt 要在**左边**补齐，并给出掩码。本笔记重现讲义的表，并用实验回答：pad 要不要掩掉、补在哪一边、为什么位置编码不用平移。
"""

# %% en
r"""
# 10.9  Batches: EOS and left padding

The sequences of a batch end at different steps. A row that has ended must keep quiet (it is filled with EOS), and the loop stops when all have ended. Prompts of different length are padded on the **left**, with a mask. This notebook reproduces the chapter's table, and answers by experiment: must pads be masked, on which side do they go, and why need positions not be shifted.
"""
# %%
import sys

import numpy as np

sys.path.append("..")  # course.py draws the pictures

import npminimind

import course

model = npminimind.load(dtype=np.float64)
EOS = 2
# %% zh
r"""
## 1. 三行代码

$$\text{next} = \begin{cases}\text{EOS} & \text{已结束}\\ \text{抽到的} & \text{否则}\end{cases}\qquad \text{finished} \leftarrow \text{finished} \lor (\text{next} = \text{EOS})$$

`finished [B]`，`next_token [B, 1]`。照讲义的例子：三行分别在第 2、4、6 步抽到 EOS。
"""
# %% en
r"""
## 1. Three lines of code

$$\text{next} = \begin{cases}\text{EOS} & \text{finished}\\ \text{the draw} & \text{else}\end{cases}\qquad \text{finished} \leftarrow \text{finished} \lor (\text{next} = \text{EOS})$$

`finished [B]`, `next_token [B, 1]`. The chapter's example: three rows draw EOS at steps 2, 4 and 6.
"""
# %%
drawn = np.full((6, 3), 100)  # six steps, three rows; 100 stands for an ordinary token
drawn[1, 0] = drawn[3, 1] = drawn[5, 2] = EOS
finished, table = np.zeros(3, bool), []
for token in drawn:
    next_token = np.where(finished, EOS, token)[:, None]  # [B] -> [B,1]
    finished = finished | (next_token[:, 0] == EOS)
    table.append((next_token[:, 0], finished))
    if finished.all():
        break
assert [f.tolist() for _, f in table] == [  # the chapter's last column
    [False, False, False],
    [True, False, False],
    [True, False, False],
    [True, True, False],
    [True, True, False],
    [True, True, True],
]
# %% zh
r"""
同一个剧本交给真正的循环：用 `with_ops` 换掉选词的函数，让它按剧本「抽」。
"""
# %% en
r"""
The same script for the real loop: `with_ops` swaps the function that chooses, so that it "draws" by the script.
"""
# %%
script = iter(drawn)
scripted = model.with_ops(greedy=lambda logits: next(script))
steps = list(scripted.steps([[40, 41], [50, 51], [60, 61]], do_sample=False, eos_token_id=EOS))
assert len(steps) == 6  # it stopped by itself, though max_new_tokens is 8192
for s, (token, done) in zip(steps, table):
    assert np.array_equal(s.next_token[:, 0], token) and np.array_equal(s.finished, done)


def word(step, row):
    if step.next_token[row, 0] != EOS:
        return "token"
    return "EOS" if drawn[step.round, row] == EOS else "EOS (forced)"


course.table(
    ["step", "seq0", "seq1", "seq2", "finished"],
    [[s.round + 1, *(word(s, r) for r in range(3)), s.finished.tolist()] for s in steps],
)
# %%
ids = steps[-1].input_ids[:, 2:]
fig, ax = course.figure(width=6.4, height=1.8)
first = [row.tolist().index(EOS) for row in ids]
kind = np.array([[0 if i < f else 1 if i == f else 2 for i in range(6)] for f in first])
ax.imshow(kind, cmap=course.plt.matplotlib.colors.ListedColormap([course.SKY, course.RED, course.GREY]), aspect="auto")
for (r, c), k in np.ndenumerate(kind):
    ax.text(
        c, r, ["token", "EOS", "fill"][k], ha="center", va="center", fontsize=9, color="white" if k == 1 else "black"
    )
ax.set(yticks=range(3), yticklabels=["seq0", "seq1", "seq2"], xticks=range(6), xticklabels=range(1, 7), xlabel="step")
assert first == [1, 3, 5]
course.show(fig, "Three sequences: ordinary tokens, the EOS that ended each, and the EOS that fill the rest")
# %% zh
r"""
## 2. 真实的一批

几个问题的答案长短不一。结果等长，用的时候截到第一个 EOS。填充用的是 EOS，不是 pad；第一个 EOS 属于输出。
"""
# %% en
r"""
## 2. A real batch

The answers to these questions differ in length. The result is rectangular: cut each row at its first EOS. The fill is EOS, not pad; the first EOS is part of the output.
"""
# %%
questions = ["What color is a banana?", "What is 2 + 3?", "Count from 1 to 9.", "3加4等于几？"]
chats = [model.tokenizer.apply_chat_template([{"role": "user", "content": q}]) for q in questions]
batch, mask = model.tokenizer.batch(chats)
out = model.generate(batch, attention_mask=mask, max_new_tokens=40, do_sample=False)
answers = []
for row in out[:, batch.shape[1] :]:
    end = np.flatnonzero(row == EOS)
    answers.append(row[: end[0]] if len(end) else row)
    assert not len(end) or (row[end[0] :] == EOS).all()  # after the first EOS nothing else
course.table(
    ["question", "tokens", "answer"], [[q, len(a), model.tokenizer.decode(a)] for q, a in zip(questions, answers)]
)
# %% zh
r"""
## 3. 批量与单条一致吗

一致。左补齐加掩码，每一行得到的 ids 与单独生成时相同，logits 只差舍入。
"""
# %% en
r"""
## 3. Is the batch the same as one by one?

It is. With left pads and a mask each row gets the ids that it gets alone; the logits differ by rounding.
"""
# %%
for row, (chat, answer) in enumerate(zip(chats, answers)):
    alone = [model.tokenizer.encode(chat)]
    single = model.generate(alone, max_new_tokens=40, do_sample=False)[0, len(alone[0]) :]
    assert np.array_equal(single[: len(answer)], answer)
    in_batch = model(batch, mask).logits[row, -1]
    assert np.allclose(in_batch, model(alone).logits[0, -1], atol=1e-8)
# %% zh
r"""
## 4. 不掩、补右边，会怎样

- 不给掩码：pad 被当成真的 token，logits 变了。
- 补在右边：最后一列是 pad，「最后一行 logits」就成了 pad 的预测；这里直接拒绝，上游会悄悄给出错误的 ids。
- 掩了的 pad 里写什么 id 都一样。
"""
# %% en
r"""
## 4. Unmasked, or on the right: what happens

- Without a mask the pads count as tokens, and the logits change.
- On the right, the last column is a pad, and "the last row of logits" predicts what follows a pad; that is refused here, while upstream silently returns wrong ids.
- Which id stands at a masked pad makes no difference.
"""
# %%
right, unmasked = model(batch, mask).logits[:, -1], model(batch).logits[:, -1]
padded = mask[:, 0] == 0
assert np.abs(right - unmasked)[padded].max() > 1e-2
assert np.allclose(right[~padded], unmasked[~padded])

noise = np.where(mask == 0, np.random.default_rng(0).integers(40, 400, batch.shape), batch)
assert np.allclose(model(noise, mask).logits[:, -1], right, atol=1e-8)

try:
    model.generate(batch[:, ::-1], attention_mask=mask[:, ::-1], max_new_tokens=1)
    refused = False
except ValueError as error:
    refused = True
    print(error)
assert refused
# %%
trace = npminimind.trace(model, batch, attention_mask=mask)
row = int(np.argmax((mask == 0).sum(axis=1)))  # the row with most pads
pads = int((mask[row] == 0).sum())
attention = trace["model.layers.0.self_attn.probs"][row, 0]  # [S,T]
assert attention[pads:, :pads].max() == 0  # no token looks at a pad
fig, axes = course.figure(columns=2, width=7.2, height=3.2)
course.heat(axes[0], mask, title="attention_mask (dark: token)")
axes[0].set(xlabel="position", ylabel="row of the batch", yticks=range(len(mask)))
course.heat(
    axes[1],
    np.where(np.arange(len(attention))[:, None] < pads, np.nan, attention),
    title=f"attention, row {row}, layer 0, head 0",
)
axes[1].axvline(pads - 0.5, color=course.RED)
axes[1].set(xlabel="key position (red: end of pads)", ylabel="query position")
course.show(fig, "The padding mask of the batch, and an attention map with a column of pads that nobody looks at")
# %% zh
r"""
## 5. 位置为什么不用平移

左补齐的行，第一个真 token 站在位置 `pads`，而不是 0。RoPE 的点积只取决于位置之**差**，所以整体平移不影响注意力：
"""
# %% en
r"""
## 5. Why positions need no shift

In a left-padded row the first token stands at position `pads`, not at 0. A dot product under RoPE depends on the **difference** of positions only, so a shift of all changes nothing:
"""


# %%
def shifted(head_dim, length, theta, scaling=None, start=0, dtype=np.float32):
    return npminimind.rope_tables(head_dim, length, theta, scaling, start=start + 37, dtype=dtype)


alone = [model.tokenizer.encode(chats[0])]
moved = model.with_ops(rope_tables=shifted)
difference = np.abs(moved(alone).logits - model(alone).logits).max()
assert difference < 1e-8
# %% zh
r"""
## 练习

写 `my_finish(token, finished, eos)`：token `[B]`、finished `[B]` → 元组 `(next_token [B, 1], finished [B])`。
"""
# %% en
r"""
## Exercise

Write `my_finish(token, finished, eos)`: token `[B]`, finished `[B]` → the tuple `(next_token [B, 1], finished [B])`.
"""


# %%
def my_finish(token, finished, eos):
    raise NotImplementedError


# %% zh hint
r"""
先替换，再更新标记：本步抽到的 EOS 也要让这一行结束。曾经结束的行不会复活。
"""
# %% en hint
r"""
Replace first, then update the flags: an EOS drawn in this step ends the row too. A row that has ended does not come back.
"""


# %%
def reference(token, finished, eos):
    shown = [eos if done else int(t) for t, done in zip(token, finished)]
    return np.array(shown)[:, None], np.array([t == eos for t in shown])


rng = np.random.default_rng(0)
cases = [(rng.integers(0, 4, 5), rng.random(5) < 0.5, EOS) for _ in range(30)]
course.grade(my_finish, reference, cases)


# %% solution
def my_finish(token, finished, eos):
    next_token = np.where(finished, eos, token)[:, None]
    return next_token, finished | (next_token[:, 0] == eos)
