"""MiniMind-3 in PyTorch, for training only: the same key names and the same mathematics as ``Qwen3ForCausalLM`` /
``Qwen3MoeForCausalLM`` (``evaluate.py`` compares the logits), with two things those classes do not give: a mask that
keeps the documents of a row apart, and experts that are quick on a CPU.

B batch, S tokens, H hidden, N heads, K kv heads, D head_dim, I intermediate, E experts, V vocabulary.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn


def sizes(model):
    """The configuration of a model as ``config.json`` holds it: MiniMind's and Hugging Face's keys together."""
    shared = {
        "vocab_size": 2048,
        "head_dim": 32,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000.0,
        "rope_scaling": None,
        "max_position_embeddings": 2048,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "dropout": 0.0,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "initializer_range": 0.02,
        "use_cache": True,
        "torch_dtype": "float16",
        "inference_rope_scaling": False,
    }
    if model == "dense":
        return {
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            "use_moe": False,
            "hidden_size": 192,
            "num_hidden_layers": 6,
            "num_attention_heads": 6,
            "num_key_value_heads": 3,
            "intermediate_size": 64 * math.ceil(math.pi * 192 / 64),
            **shared,
        }
    return {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "use_moe": True,
        "hidden_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 384,
        "moe_intermediate_size": 384,
        "num_experts": 4,
        "num_experts_per_tok": 1,
        "norm_topk_prob": True,
        "router_aux_loss_coef": 0.01,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "output_router_logits": False,
        **shared,
    }


class RMSNorm(nn.Module):
    def __init__(self, n, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(n)), eps

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


def rotate(x, cos, sin):  # x [B, N, S, D], tables [S, D]
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.n, self.k, self.d = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        hidden = c["hidden_size"]
        self.q_proj = nn.Linear(hidden, self.n * self.d, bias=False)
        self.k_proj = nn.Linear(hidden, self.k * self.d, bias=False)
        self.v_proj = nn.Linear(hidden, self.k * self.d, bias=False)
        self.o_proj = nn.Linear(self.n * self.d, hidden, bias=False)
        self.q_norm, self.k_norm = RMSNorm(self.d, c["rms_norm_eps"]), RMSNorm(self.d, c["rms_norm_eps"])

    def forward(self, x, cos, sin, mask):
        b, s, _ = x.shape
        q = rotate(self.q_norm(self.q_proj(x).view(b, s, self.n, self.d)).transpose(1, 2), cos, sin)
        k = rotate(self.k_norm(self.k_proj(x).view(b, s, self.k, self.d)).transpose(1, 2), cos, sin)
        v = self.v_proj(x).view(b, s, self.k, self.d).transpose(1, 2)
        k, v = k.repeat_interleave(self.n // self.k, 1), v.repeat_interleave(self.n // self.k, 1)  # [B, N, S, D]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.o_proj(y.transpose(1, 2).reshape(b, s, self.n * self.d))


class MLP(nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Experts(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.top, self.normalise, self.count = c["num_experts_per_tok"], c["norm_topk_prob"], c["num_experts"]
        self.gate = nn.Linear(c["hidden_size"], self.count, bias=False)
        self.experts = nn.ModuleList(MLP(c["hidden_size"], c["moe_intermediate_size"]) for _ in range(self.count))

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])  # [B*S, H]
        probs = self.gate(flat).softmax(-1)  # [B*S, E]
        weight, chosen = probs.topk(self.top, -1)
        if self.normalise:
            weight = weight / (weight.sum(-1, keepdim=True) + 1e-20)
        # Without a loss of balance one expert takes all: share of tokens times mean probability, summed over experts.
        share = F.one_hot(chosen, self.count).float().mean((0, 1)) * self.top
        balance = self.count * (share * probs.mean(0)).sum()
        return self.mix(flat, weight, chosen).view_as(x), balance

    @torch.compiler.disable
    def mix(self, flat, weight, chosen):
        out = torch.zeros_like(flat)
        for e, expert in enumerate(self.experts):
            row, slot = (chosen == e).nonzero(as_tuple=True)
            out = out.index_add(0, row, expert(flat[row]) * weight[row, slot, None])
        return out


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.self_attn = Attention(c)
        self.post_attention_layernorm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.mlp = Experts(c) if c["use_moe"] else MLP(c["hidden_size"], c["intermediate_size"])

    def forward(self, x, cos, sin, mask):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        y = self.mlp(self.post_attention_layernorm(x))
        y, balance = y if isinstance(y, tuple) else (y, x.new_zeros(()))
        return x + y, balance


class Body(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Block(c) for _ in range(c["num_hidden_layers"]))
        self.norm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        frequency = c["rope_theta"] ** (-torch.arange(0, c["head_dim"], 2).double() / c["head_dim"])
        angle = torch.outer(torch.arange(c["max_position_embeddings"]).double(), frequency).repeat(1, 2)
        self.register_buffer("cos", angle.cos().float(), persistent=False)
        self.register_buffer("sin", angle.sin().float(), persistent=False)

    def forward(self, ids, mask):
        x, s, balance = self.embed_tokens(ids), ids.shape[1], 0.0
        for layer in self.layers:
            x, b = layer(x, self.cos[:s], self.sin[:s], mask)
            balance = balance + b / len(self.layers)
        return self.norm(x), balance


class Network(nn.Module):
    """ids [B, S], number [B, S] (which document a token belongs to) -> logits [B, S, V], balance loss."""

    def __init__(self, c):
        super().__init__()
        self.config, self.model = c, Body(c)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                std = c["initializer_range"] if "embed" in name else p.shape[1] ** -0.5
                if name.endswith(("o_proj.weight", "down_proj.weight")):
                    std /= math.sqrt(2 * c["num_hidden_layers"])
                nn.init.normal_(p, std=std)

    def forward(self, ids, number):
        s = ids.shape[1]
        causal = torch.ones(s, s, dtype=torch.bool, device=ids.device).tril()
        mask = (causal & (number[:, :, None] == number[:, None, :]))[:, None]  # [B, 1, S, S]
        x, balance = self.model(ids, mask)
        return F.linear(x, self.model.embed_tokens.weight), balance
