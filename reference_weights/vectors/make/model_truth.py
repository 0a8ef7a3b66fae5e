"""What is right for everything that is no single operator: a block, a model, the pipeline, a generation, text."""

import functools

import numpy as np
from models import tiny

import npminimind
from npminimind import MiniMindConfig, MiniMindForCausalLM, TorchGenerator
from npminimind.cache import KVCache
from npminimind.stopping import StopText
from npminimind.tokenizer import Tokenizer


def torch_multinomial(args, model=None):
    generator = TorchGenerator(args["seed"])
    probs = args["probs"].astype(np.float32)
    return {"out": np.stack([generator.multinomial(probs) for _ in range(args["draws"])])}


def block(args, model):
    """One block on hidden states x, behind a cache (past_k, past_v) or without."""
    c, x = model.config, args["x"].astype(model.dtype)
    past = [(args["past_k"], args["past_v"])] * c.num_hidden_layers if "past_k" in args else None
    start = args["past_k"].shape[1] if past else 0
    cache = KVCache(c, len(x), start + x.shape[1], model.dtype, past)
    cos, sin = model.ops.rope_tables(c.head_dim, x.shape[1], c.rope_theta, c.yarn, start=start, dtype=model.dtype)
    layer, i = model.weights.layers[args["layer"]], args["layer"]
    out = model.block(x, layer, cos, sin, args.get("attention_mask"), cache, i, npminimind.tapping.no_tap)
    k, v = (buffer[:, : start + x.shape[1]] for buffer in cache.layers[i])
    return {"out": out, "k": k, "v": v}


def forward(args, model):
    """Logits of the new positions; ``chunks`` feeds the ids in several calls through the cache."""
    ids, mask = args["input_ids"], args.get("attention_mask")
    past, logits, end = None, [], 0
    for size in args.get("chunks", [ids.shape[1]]):
        start, end = end, end + int(size)
        part = None if mask is None else mask[:, :end]
        out = model(ids[:, start:end], part, past, use_cache=True)
        past = out.past_key_values
        logits.append(out.logits)
    logits = np.concatenate(logits, axis=1)
    return {"out": logits[:, -args["logits_to_keep"] :] if "logits_to_keep" in args else logits}


STAGES = ("after_temperature", "after_repetition_penalty", "after_top_k", "after_top_p", "probs")


def pipeline(args, model):
    """One choice from given logits, with every stage: a round of the loop whose logits are replaced."""
    chosen = {key: args[key] for key in ("temperature", "repetition_penalty", "top_k", "top_p")}

    def tap(name, array):
        return args["logits"].astype(model.dtype) if name.endswith("sample.logits") else array

    rng = args.get("u")
    arguments = dict(max_new_tokens=1, eos_token_id=None, do_sample=rng is not None, rng=rng, tap=tap)
    step = next(model.steps(args["input_ids"], **chosen, **arguments))
    return {name: getattr(step, name) for name in STAGES} | {"next_token": step.next_token[:, 0]}


def generate(args, model):
    """Generated ids; ``in_calls`` says how many in each call, each going on from ids and cache of the one before."""
    arguments = {key: value for key, value in args.items() if key not in ("model", "config", "u", "in_calls")}
    arguments |= {"do_sample": "u" in args, "rng": args.get("u")}
    if "stop" in args:
        arguments["stop"] = [ids.tolist() for ids in args["stop"]]
    if isinstance(args.get("eos_token_id"), np.ndarray):
        arguments["eos_token_id"] = args["eos_token_id"].tolist()
    if "in_calls" not in args:
        return {"out": model.generate(**arguments)}
    for count in args["in_calls"]:
        last = model.generate(**arguments | {"max_new_tokens": int(count)}, return_kv=True)
        arguments |= {"input_ids": last["generated_ids"], "past_key_values": last["past_kv"]}
        arguments["attention_mask"] = longer(args.get("attention_mask"), last["generated_ids"].shape[1])
    return {"out": last["generated_ids"]}


def longer(mask, length):
    """A padding mask that covers generated tokens too."""
    return None if mask is None else np.pad(mask, ((0, 0), (0, length - mask.shape[1])), constant_values=1)


def forced(args, model):
    """What the model would choose at each step, while it is fed ``force_ids``: one flip does not cascade."""
    ids, force = args["input_ids"], args["force_ids"]
    whole = np.concatenate([ids, force], axis=1)
    mask = longer(args.get("attention_mask"), whole.shape[1] - 1)
    logits = model(whole[:, :-1], mask).logits[:, ids.shape[1] - 1 :]
    return {"out": model.ops.greedy(logits)}


@functools.cache
def tokenizer():
    return Tokenizer.from_pretrained(npminimind.reference_weights() / "minimind-tiny")


def encode(args, model=None):
    return {"out": np.array(tokenizer().encode(args["text"]), np.int64)}


def decode(args, model=None):
    return {"out": tokenizer().decode(args["ids"], skip_special_tokens=args["skip_special_tokens"])}


def stream(args, model=None):
    """The text of ids that come one at a time, up to a stop."""
    text = StopText(tokenizer(), args["stop"])
    pieces = []
    for token_id in args["ids"]:
        if not text.stopped:
            pieces.append(text.put(int(token_id)))
    return {"out": "".join(pieces) + text.end()}


def chat_template(args, model=None):
    return {"out": tokenizer().apply_chat_template(args["messages"], thinking=args["thinking"])}


TRUTH = {
    "torch_multinomial": torch_multinomial,
    "block": block,
    "forward": forward,
    "pipeline": pipeline,
    "generate": generate,
    "forced": forced,
    "encode": encode,
    "decode": decode,
    "stream": stream,
    "chat_template": chat_template,
}
NEED_MODEL = ("block", "forward", "pipeline", "generate", "forced")


def model_of(operator, args, dtype=np.float64):
    """The model that a case speaks of."""
    if operator == "pipeline":
        return any_model(args["logits"].shape[-1], dtype)
    if operator not in NEED_MODEL:
        return None
    return tiny(args["model"], dtype, tuple(sorted(args.get("config", {}).items())))


@functools.cache
def any_model(vocab_size, dtype):
    """A model whose logits do not matter."""
    config = MiniMindConfig(hidden_size=8, num_hidden_layers=1, vocab_size=vocab_size, num_attention_heads=1,
                            num_key_value_heads=1, intermediate_size=8)  # fmt: skip
    return MiniMindForCausalLM.random(config, dtype=dtype)
