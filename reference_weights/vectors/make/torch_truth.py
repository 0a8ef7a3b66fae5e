"""The same once more with torch's own functions, in float64: operators, a block, a model, a generation."""

import functools
import json
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from exact import EXACT, frequency
from mpmath import mpf
from safetensors.torch import load_file

V1 = Path(__file__).resolve().parent.parent / "v1"


def tensor(x):
    return torch.tensor(np.asarray(x, np.float64))


def rms_norm(a):
    return {"out": F.rms_norm(tensor(a["x"]), (len(a["weight"]),), tensor(a["weight"]), a["eps"])}


def softmax(a):
    return {"out": F.softmax(tensor(a["x"]), dim=a.get("axis", -1))}


def attention(a):
    q, k, v = (tensor(a[name]).transpose(1, 2) for name in "qkv")
    s, t = q.shape[2], k.shape[2]
    bias = torch.zeros(s, t, dtype=torch.float64).masked_fill(torch.ones(s, t).triu(t - s + 1).bool(), -torch.inf)
    bias = bias.expand(len(q), 1, s, t)
    if "attention_mask" in a:
        bias = bias + (1 - tensor(a["attention_mask"]))[:, None, None, :] * -1e9
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, enable_gqa=True)
    return {"out": out.transpose(1, 2).flatten(2)}


def repeat_kv(a):
    return {"out": tensor(a["x"]).repeat_interleave(a["n_rep"], dim=2)}


def torch_multinomial(a):
    torch.manual_seed(a["seed"])
    probs = torch.tensor(a["probs"], dtype=torch.float32)
    return {"out": torch.stack([torch.multinomial(probs, 1)[:, 0] for _ in range(a["draws"])])}


YARN = {"original_max_position_embeddings": 2048, "factor": 16, "beta_fast": 32, "beta_slow": 1}

OPERATORS = {
    "rms_norm": rms_norm,
    "softmax": softmax,
    "silu": lambda a: {"out": F.silu(tensor(a["x"]))},
    "gelu": lambda a: {"out": F.gelu(tensor(a["x"]))},
    "attention": attention,
    "repeat_kv": repeat_kv,
    "torch_multinomial": torch_multinomial,
}


# ---- a model ----------------------------------------------------------------------------------------------------


@functools.cache
def weights(name):
    return {key: w.double() for key, w in load_file(V1 / name / "model.safetensors").items()}


def config_of(a):
    return json.loads((V1 / a["model"] / "config.json").read_text()) | a.get("config", {})


def exact_frequencies(head_dim, theta, yarn):
    """Radians per position, rounded once from 50 digits."""
    scaling = YARN if yarn else None
    return tensor([float(frequency(i, head_dim, mpf(theta), scaling)) for i in range(head_dim // 2)])


def block(a):
    """One layer; what it is fed stands in x, past_k and past_v."""
    c, w = config_of(a), weights(a["model"])
    act = F.gelu if c["hidden_act"] == "gelu" else F.silu
    layer = f"model.layers.{a['layer']}."
    x = tensor(a["x"])

    def norm(x, name):
        return F.rms_norm(x, x.shape[-1:], w[f"{layer}{name}.weight"], c["rms_norm_eps"])

    def linear(x, name):
        return F.linear(x, w[f"{layer}{name}.weight"])

    def network(x, path):
        return linear(act(linear(x, f"{path}gate_proj")) * linear(x, f"{path}up_proj"), f"{path}down_proj")

    h = norm(x, "input_layernorm")
    q, k, v = (linear(h, f"self_attn.{part}_proj").unflatten(-1, (-1, c["head_dim"])) for part in "qkv")
    if c["qk_norm"]:
        q, k = norm(q, "self_attn.q_norm"), norm(k, "self_attn.k_norm")
    past = len(a["past_k"][0]) if "past_k" in a else 0
    position = torch.arange(past, past + x.shape[1], dtype=torch.float64)
    angle = position[:, None] * exact_frequencies(c["head_dim"], c["rope_theta"], c["inference_rope_scaling"])
    turn = torch.polar(torch.ones_like(angle), angle)[:, None]  # halves as complex numbers: another way to rotate

    def turned(x):
        half = x.shape[-1] // 2
        z = torch.complex(x[..., :half].contiguous(), x[..., half:].contiguous()) * turn
        return torch.cat([z.real, z.imag], dim=-1)

    q, k = turned(q), turned(k)
    if past:
        k, v = torch.cat([tensor(a["past_k"]), k], dim=1), torch.cat([tensor(a["past_v"]), v], dim=1)
    mask = {"attention_mask": a["attention_mask"]} if "attention_mask" in a else {}
    context = attention({"q": q, "k": k, "v": v} | mask)["out"]
    x = x + linear(context, "self_attn.o_proj")
    h = norm(x, "post_attention_layernorm")
    if not c["use_moe"]:
        return {"out": x + network(h, "mlp."), "k": k, "v": v}
    probs = F.softmax(linear(h, "mlp.gate"), dim=-1)
    top, chosen = probs.topk(c["num_experts_per_tok"], dim=-1)
    top = top / top.sum(-1, keepdim=True) if c["norm_topk_prob"] else top
    share = torch.zeros_like(probs).scatter(-1, chosen, top)
    outs = torch.stack([network(h, f"mlp.experts.{e}.") for e in range(c["num_experts"])], dim=-2)
    return {"out": x + (share[..., None] * outs).sum(-2), "k": k, "v": v}


def logits_of(a, ids, mask=None):
    """Embedding, blocks, norm, head; always the whole sequence, without a cache."""
    c, w = config_of(a), weights(a["model"])
    x = w["model.embed_tokens.weight"][torch.tensor(ids)]
    for i in range(c["num_hidden_layers"]):
        args = {"x": x, "layer": i, "model": a["model"], "config": a.get("config", {})}
        x = block(args | ({} if mask is None else {"attention_mask": mask}))["out"]
    x = F.rms_norm(x, x.shape[-1:], w["model.norm.weight"], c["rms_norm_eps"])
    return F.linear(x, w.get("lm_head.weight", w["model.embed_tokens.weight"])).numpy()


def forward(a):
    logits = logits_of(a, a["input_ids"], a.get("attention_mask"))
    return {"out": logits[:, -a["logits_to_keep"] :] if "logits_to_keep" in a else logits}


def longer(mask, length):
    return None if mask is None else [row + [1] * (length - len(row)) for row in mask]


def forced(a):
    ids = [row + more for row, more in zip(a["input_ids"], a["force_ids"])]
    start = len(a["input_ids"][0])
    logits = logits_of(a, [row[:-1] for row in ids], longer(a.get("attention_mask"), len(ids[0]) - 1))
    return {"out": logits[:, start - 1 :].argmax(-1)}


def generate(a):
    """A generation loop in plain Python: torch's logits, stages in 50 digits."""
    copies, ids = a.get("num_return_sequences", 1), [list(row) for row in a["input_ids"]]
    ids, start = [list(row) for _ in range(copies) for row in ids], len(ids[0])
    eos = a["eos_token_id"] if isinstance(a["eos_token_id"], list) else [a["eos_token_id"]]
    mask = None if "attention_mask" not in a else [row for _ in range(copies) for row in a["attention_mask"]]
    finished, uniforms = [False] * len(ids), iter(a.get("u", []))
    for _ in range(sum(a["in_calls"]) if "in_calls" in a else a["max_new_tokens"]):
        if all(finished):
            break
        chosen = {"temperature": a.get("temperature", 0.85), "repetition_penalty": a.get("repetition_penalty", 1.0),
                  "top_k": a.get("top_k", 50), "top_p": a.get("top_p", 0.85), "input_ids": ids}  # fmt: skip
        chosen["logits"] = logits_of(a, ids, longer(mask, len(ids[0])))[:, -1].tolist()
        if "u" in a:
            chosen["u"] = [next(uniforms) for _ in ids]
        for row, token in enumerate(EXACT["pipeline"](chosen)["next_token"]):
            ids[row].append((eos[0] or 0) if finished[row] else token)
        for row, tokens in enumerate(ids):
            stopped = any(tokens[start:][-len(stop) :] == list(stop) for stop in a.get("stop", []))
            finished[row] = finished[row] or stopped or tokens[-1] in eos
    return {"out": ids}


MODELS = {"block": block, "forward": forward, "forced": forced, "generate": generate}
