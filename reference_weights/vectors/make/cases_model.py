"""Cases of what is no single operator: block, model, pipeline, generation, torch's draws, text."""

import numpy as np
from declare import Suite, case, floats, grid, invalid, normal
from model_truth import TRUTH
from models import PROMPT, TWINS, tiny

INF = float("inf")
DENSE, MOE = {"model": "tiny-dense"}, {"model": "tiny-moe"}
YARN = {"config": {"inference_rope_scaling": True, "max_position_embeddings": 32768}}

TORCH = [
    case(21001, "seed0", "torch.manual_seed(0), four draws", seed=0, probs=floats([[0.1, 0.2, 0.3, 0.4]]), draws=4),
    case(21002, "seed42.b2", "two rows: the numbers are used in memory order", seed=42, draws=3,
         probs=floats([[0.25, 0.25, 0.5], [0.6, 0.3, 0.1]])),
    case(21003, "masked", "ids of probability 0 use up randomness too", seed=7, probs=[[0.0, 0.5, 0.0, 0.5]], draws=6),
    case(21004, "large_seed", "only the low 32 bits of a seed count", seed=2**32 + 5, probs=[[0.25] * 4], draws=4),
    case(21005, "not_normalised", "weights instead of probabilities", seed=3, probs=[[1.0, 2.0, 5.0]], draws=5),
    case(21006, "wide.v64", "64 ids", seed=1234, probs=np.full((1, 64), 1 / 64), draws=5),
]  # fmt: skip


def kv(seed, t):
    return {"past_k": grid(seed, 1, t, 2, 8), "past_v": grid(seed + 1, 1, t, 2, 8)}


BLOCK = [
    case(22001, "dense", "prefill of three tokens", layer=0, x=grid(1, 1, 3, 32), **DENSE),
    case(22002, "dense.layer1", "the second layer's weights", layer=1, x=grid(2, 1, 2, 32), **DENSE),
    case(22003, "dense.past3", "two new tokens behind a cache of three", layer=0, x=grid(3, 1, 2, 32), **kv(4, 3),
         **DENSE),
    case(22004, "moe", "two of four experts", layer=0, x=grid(6, 1, 3, 32), **MOE),
    case(22005, "moe.past2", "decode behind a cache of two", layer=1, x=grid(7, 1, 1, 32), **kv(8, 2), **MOE),
    case(22006, "yarn.past4", "YaRN's tables", layer=0, x=grid(10, 1, 1, 32), **kv(11, 4), **DENSE, **YARN),
]  # fmt: skip

SIX = PROMPT
TWO_ROWS = [[5, 17, 40, 3, 21, 9], [0, 0, 11, 12, 60, 33]]
LEFT_PADS = [[1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1]]


def padded(declared, mask, width):
    """What comes out at pads means nothing."""
    free = np.asarray(mask) == 0
    declared.free = {"out": np.repeat(free[..., None], width, axis=-1)}
    return declared


def twins(id, situation, comment, **args):
    """A case in which the twins tie: wherever one of them is chosen, the other will do."""
    declared = case(id, situation, comment, **args)
    chosen = TRUTH["forced"](declared.args, tiny(args["model"]))["out"]
    declared.result = "acceptable"
    for at in np.argwhere(np.isin(chosen, TWINS)):
        for other in [declared.alternatives[i]["out"] for i in range(len(declared.alternatives))] + [chosen]:
            declared.alternatives.append({"out": np.where(np.indices(chosen.shape)[1] == at[1], TWINS[1], other)})
    return declared


LONG = [[(7 * i + 3) % 62 for i in range(64)]]
FORWARD = [
    case(23001, "dense", "prefill", input_ids=SIX, **DENSE),
    case(23002, "dense.chunks", "the same through the cache, 3 + 2 + 1: the same logits", input_ids=SIX,
         chunks=[3, 2, 1], **DENSE),
    case(23003, "dense.one_by_one", "token by token", input_ids=SIX, chunks=[1] * 6, **DENSE),
    case(23004, "dense.single_token", "one id, no past", input_ids=[[11]], **DENSE),
    padded(case(23005, "dense.left_pads", "two rows, one with pads; positions are not shifted", input_ids=TWO_ROWS,
                attention_mask=LEFT_PADS, **DENSE), LEFT_PADS, 64),
    padded(case(23006, "dense.left_pads.chunks", "pads and cache", input_ids=TWO_ROWS, attention_mask=LEFT_PADS,
                chunks=[4, 2], **DENSE), LEFT_PADS, 64),
    case(23007, "dense.last_position", "all 64 positions of the table; the last logits", input_ids=LONG,
         logits_to_keep=1, **DENSE),
    invalid(23008, "dense.past_the_table", "65 ids, 64 positions", input_ids=[[1] * 65], **DENSE),
    invalid(23009, "dense.unknown_id", "id 64 of a vocabulary of 64", input_ids=[[1, 64]], **DENSE),
    invalid(23010, "dense.negative_id", "−1 is no id", input_ids=[[1, -1]], **DENSE),
    invalid(23011, "dense.all_pads", "a row with nothing to attend to", input_ids=[[1, 2]], attention_mask=[[0, 0]],
            **DENSE),
    case(23012, "moe", "prefill", input_ids=SIX, **MOE),
    case(23013, "moe.chunks", "through the cache", input_ids=SIX, chunks=[4, 1, 1], **MOE),
    case(23014, "moe.top1", "MiniMind-3's top-1: the gate chooses and does not scale", input_ids=SIX,
         config={"num_experts_per_tok": 1}, **MOE),
    case(23015, "moe.raw", "norm_topk_prob false", input_ids=SIX, config={"norm_topk_prob": False}, **MOE),
    case(23016, "dense.yarn", "inference_rope_scaling, which changes short contexts too", input_ids=SIX, **DENSE,
         **YARN),
    case(23017, "dense.gelu", "hidden_act gelu", input_ids=SIX, config={"hidden_act": "gelu"}, **DENSE),
    case(23018, "dense.no_qk_norm", "MiniMind2 and Llama: heads are not normed", input_ids=SIX[:1],
         config={"qk_norm": False}, **DENSE),
]  # fmt: skip

PLAIN = {"temperature": 1.0, "repetition_penalty": 1.0, "top_k": 0, "top_p": 1.0}


def stages(**changes):
    return PLAIN | changes


FOUR = [[3.0, 2.0, 1.0, -1.0]]
SIXTEEN = normal(24, 2, 16, scale=2.0)
PIPELINE = [
    case(24001, "off", "nothing but a draw", logits=FOUR, input_ids=[[0]], u=[0.9], **PLAIN),
    case(24002, "temperature_before_top_p", "T .5, then p .8 keeps one; temperature last would keep two",
         logits=[[3.0, 2.0, 1.0]], input_ids=[[0]], u=[0.9], **stages(temperature=0.5, top_p=0.8)),
    case(24003, "top_k_before_top_p", "probabilities are those of the best two: p .5 keeps one",
         logits=np.log(floats([[0.4, 0.3, 0.2, 0.1]])).astype(np.float32).astype(np.float64), input_ids=[[0]], u=[0.9],
         **stages(top_k=2, top_p=0.5)),
    case(24004, "penalty_before_top_k", "the penalised id falls out of the best two", logits=FOUR,
         input_ids=[[0, 0]], u=[0.6], **stages(repetition_penalty=4.0, top_k=2)),
    case(24005, "penalty_after_temperature", "the same up to rounding as before it, but not the same array",
         logits=FOUR, input_ids=[[0, 3]], u=[0.3], **stages(temperature=0.75, repetition_penalty=1.5)),
    case(24006, "greedy", "all stages, then the greatest", logits=FOUR, input_ids=[[0]],
         **stages(temperature=0.85, repetition_penalty=2.0, top_k=3, top_p=0.9)),
    case(24007, "greedy_at_zero", "T = 0 is greedy, and its penalty looks at undivided logits", logits=FOUR,
         input_ids=[[0]], **stages(temperature=0, repetition_penalty=2.0)),
    case(24008, "everything.b2", "two rows, all stages", logits=SIXTEEN, input_ids=[[1, 5, 5], [2, 9, 14]],
         u=[0.31, 0.77], **stages(temperature=0.85, repetition_penalty=1.2, top_k=8, top_p=0.85)),
    case(24009, "u_zero", "the lowest id that is left", logits=[[1.0, 3.0, -2.0, 2.5]], input_ids=[[3]], u=[0.0],
         **stages(top_k=2)),
    case(24010, "u_next_to_one", "the highest id that is left", logits=[[1.0, 3.0, 2.5, -2.0]], input_ids=[[3]],
         u=[1 - 2.0**-53], **stages(top_k=2)),
    case(24011, "renormalised", "after the filters the rest sums to one again", logits=FOUR, input_ids=[[3]],
         u=[0.75], **stages(top_k=2)),
    case(24012, "defaults", "MiniMind's defaults: .85, .85, 50 (more than there are)", logits=SIXTEEN[:1],
         input_ids=[[1]], u=[0.5], **stages(temperature=0.85, top_k=50, top_p=0.85)),
]  # fmt: skip

GREEDY = {"eos_token_id": None}


def goes_on(count, rows=SIX, **others):
    """The ids that the tiny model generates: what EOS and stops are chosen from."""
    args = {"input_ids": np.array(rows), "max_new_tokens": count, **GREEDY, **others}
    return TRUTH["generate"](args, tiny("tiny-dense"))["out"][:, len(rows[0]) :]


ALONE = goes_on(4)[0].tolist()
BOTH = goes_on(4, TWO_ROWS, attention_mask=np.array(LEFT_PADS)).tolist()
U8 = floats([0.03, 0.41, 0.77, 0.95, 0.22, 0.58, 0.13, 0.66])
SAMPLED = {"temperature": 1.0, "top_p": 0.9, "top_k": 8}
DRAWN = goes_on(4, TWO_ROWS, attention_mask=np.array(LEFT_PADS), u=U8, **SAMPLED).tolist()
GENERATE = [
    case(25001, "greedy", "four tokens", input_ids=SIX, max_new_tokens=4, **GREEDY, **DENSE),
    case(25002, "greedy.moe", "with experts", input_ids=SIX, max_new_tokens=4, **GREEDY, **MOE),
    case(25003, "no_token", "max_new_tokens 0 returns the prompt", input_ids=SIX, max_new_tokens=0, **GREEDY, **DENSE),
    case(25004, "no_cache", "feeding everything each round gives the same ids", input_ids=SIX, max_new_tokens=4,
         use_cache=False, **GREEDY, **DENSE),
    case(25005, "left_pads", "a padded row goes on as it would alone", input_ids=TWO_ROWS, attention_mask=LEFT_PADS,
         max_new_tokens=4, **GREEDY, **DENSE),
    case(25006, "penalty", "repetition_penalty 1.5 over prompt and generated ids", input_ids=SIX, max_new_tokens=6,
         repetition_penalty=1.5, **GREEDY, **DENSE),
    case(25007, "sampled", "given uniforms, one a step", input_ids=SIX, max_new_tokens=6, u=U8[:6], **SAMPLED, **GREEDY,
         **DENSE),
    case(25008, "sampled.b2", "two rows take two numbers a step, in row order", input_ids=TWO_ROWS,
         attention_mask=LEFT_PADS, max_new_tokens=4, u=U8, **SAMPLED, **GREEDY, **DENSE),
    case(25009, "sequences", "num_return_sequences tiles the rows: a, b, a, b", input_ids=TWO_ROWS,
         attention_mask=LEFT_PADS, max_new_tokens=2, num_return_sequences=2, u=U8, **SAMPLED, **GREEDY, **DENSE),
    case(25011, "eos_first", "EOS in the first step: it is part of the output, and the end", input_ids=SIX,
         max_new_tokens=4, eos_token_id=ALONE[0], **DENSE),
    case(25012, "eos_later", "EOS in the third step", input_ids=SIX, max_new_tokens=6, eos_token_id=ALONE[2], **DENSE),
    case(25013, "rows_end_apart", "the row that ends first is filled with EOS until the other ends too",
         input_ids=TWO_ROWS, attention_mask=LEFT_PADS, max_new_tokens=4, eos_token_id=BOTH[0][0], **DENSE),
    case(25014, "several_eos", "any of them ends a row; it is filled with the first", input_ids=TWO_ROWS,
         attention_mask=LEFT_PADS, max_new_tokens=4, eos_token_id=[BOTH[1][1], BOTH[0][0]], **DENSE),
    case(25015, "stop_ids", "a row ends when the two ids of the stop are complete; they stay", input_ids=SIX,
         max_new_tokens=6, stop=[ALONE[1:3]], **GREEDY, **DENSE),
    case(25016, "finished_rows_draw", "rows that have ended take their number too", input_ids=TWO_ROWS, u=U8,
         attention_mask=LEFT_PADS, max_new_tokens=4, eos_token_id=DRAWN[0][0], **SAMPLED, **DENSE),
    case(25017, "continued", "two calls of two tokens, the second with ids and cache of the first", input_ids=SIX,
         in_calls=[2, 2], **GREEDY, **DENSE),
    case(25018, "continued.left_pads", "the same with pads", input_ids=TWO_ROWS, attention_mask=LEFT_PADS,
         in_calls=[1, 3], **GREEDY, **DENSE),
    invalid(25019, "right_pads", "generation needs left pads", input_ids=[[5, 0]], attention_mask=[[1, 0]],
            max_new_tokens=2, **GREEDY, **DENSE),
    case(25010, "sampled.penalty", "the penalty sees what was drawn", input_ids=SIX, max_new_tokens=6, u=U8[:6],
         repetition_penalty=1.4, **SAMPLED, **GREEDY, **DENSE),
]  # fmt: skip

FORCED = [
    case(29001, "dense", "six steps, fed with given ids whatever is chosen", input_ids=SIX,
         force_ids=[[8, 50, 33, 2, 19, 44]], **DENSE),
    case(29002, "moe", "with experts", input_ids=SIX, force_ids=[[8, 50, 33, 2, 19, 44]], **MOE),
    twins(29003, "exact_tie", "ids 62 and 63 have the same row in the head, so the same logit: either is right",
          input_ids=SIX, force_ids=[[8, 3, 40, 11]], **DENSE),
    case(29004, "dense.left_pads", "two rows", input_ids=TWO_ROWS, attention_mask=LEFT_PADS,
         force_ids=[[8, 50, 33], [61, 7, 7]], **DENSE),
]  # fmt: skip

TEXT = {"tokenizer": "minimind-tiny"}


def words(text):
    return TRUTH["encode"]({"text": text})["out"].tolist()


ENCODE = [
    case(26001, "words", "plain English", text="Once upon a time", **TEXT),
    case(26002, "empty", "nothing, and no BOS", text="", **TEXT),
    case(26003, "chinese", "several bytes a character", text="你好，小猫！", **TEXT),
    case(26004, "emoji", "four bytes, several tokens", text="😀龘", **TEXT),
    case(26005, "special", "a special token written in the text becomes its id", text="<|im_start|>user", **TEXT),
    case(26006, "blanks", "leading, double and trailing blanks, tabs, newlines", text="  a \t b\n\nc ", **TEXT),
    case(26007, "digits", "digits and signs", text="3.14 + 42 = 45.14?", **TEXT),
    case(26008, "accents", "no normalisation: composed and decomposed stay apart", text="é e\u0301", **TEXT),
]  # fmt: skip
DECODE = [
    case(27001, "half_character", "the first token of an emoji alone is U+FFFD", ids=[1094], skip_special_tokens=True,
         **TEXT),
    case(27002, "special_skipped", "special tokens leave no text", ids=[1, 634, 2], skip_special_tokens=True, **TEXT),
    case(27003, "special_kept", "or do", ids=[1, 634, 2], skip_special_tokens=False, **TEXT),
    case(27004, "empty", "no ids, no text", ids=np.zeros(0, np.int64), skip_special_tokens=True, **TEXT),
]  # fmt: skip
STREAM = [
    case(30001, "stop_word_over_tokens", "the stop is complete with the third token; the text ends before it",
         ids=words("Once upon a time"), stop=[" a t"], **TEXT),
    case(30002, "character_over_tokens", "no half characters: nothing appears until the emoji is whole",
         ids=words("a😀b"), stop=[], **TEXT),
    case(30003, "unfinished_character", "half a character at the end is dropped", ids=words("a😀")[:-1], stop=[],
         **TEXT),
    case(30004, "false_alarm", "what may begin a stop is held back, then let go", ids=words("Once upon a time"),
         stop=["a tiger"], **TEXT),
    case(30005, "stop_in_the_middle_of_a_token", "the stop begins within a token", ids=words("Once upon a time"),
         stop=["pon"], **TEXT),
]  # fmt: skip
HI = {"role": "user", "content": "Hi"}
CHAT = [
    case(28001, "one_turn", "no system prompt; an empty thought", messages=[HI], thinking=False, **TEXT),
    case(28002, "thinking", "the model fills the thought itself", messages=[HI], thinking=True, **TEXT),
    case(28003, "system", "with a system prompt", thinking=False, **TEXT,
         messages=[{"role": "system", "content": "Be brief."}, HI]),
    case(28004, "history", "assistant turns of the past carry their thought", thinking=False, **TEXT,
         messages=[HI, {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "你好"}]),
    case(28005, "thought_in_history", "a thought that was spoken stays", thinking=True, **TEXT,
         messages=[HI, {"role": "assistant", "content": "<think>\nshort\n</think>\n\nHello."}, HI]),
]  # fmt: skip

SUITES = [
    Suite("torch_multinomial", "torch 2.7 and later: torch.manual_seed, torch.multinomial on a CPU", TORCH),
    Suite("block", "upstream MiniMindBlock", BLOCK),
    Suite("forward", "upstream MiniMindForCausalLM.forward", FORWARD),
    Suite("pipeline", "chapter 10.4-10.8", PIPELINE),
    Suite("generate", "chapter 10; upstream generate", GENERATE),
    Suite("forced", "teacher forcing: one flip does not cascade", FORCED),
    Suite("encode", "byte-level BPE", ENCODE),
    Suite("decode", "byte-level BPE", DECODE),
    Suite("stream", "pieces of text, up to a stop", STREAM),
    Suite("chat_template", "ChatML; upstream chat template", CHAT),
]
