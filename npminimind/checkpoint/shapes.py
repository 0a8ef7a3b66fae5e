"""What the names and shapes of a file's tensors say about its architecture."""

import re
from typing import NamedTuple

from .files import quote, refuse
from .stored import FLOATS

FIRST = "model.layers.0."
MOST_EXPERTS = 10_000


class Shapes(NamedTuple):
    """Sizes read off a file's tensors. ``head_dim`` is None where there is no q/k norm."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    query_rows: int  # N * D
    kv_rows: int  # K * D
    head_dim: int | None
    inner_size: int  # width of the feed-forward network, or of one expert
    num_experts: int  # 0: dense
    n_shared_experts: int
    has_head: bool  # lm_head is stored
    fused: bool  # experts in one tensor
    neighbours: bool  # old names: RoPE rotates neighbours

    @property
    def qk_norm(self):
        return self.head_dim is not None


def read_shapes(path, tensors, neighbours):
    """Sizes of the model in a file, from its tensors under today's names."""
    for name, tensor in tensors.items():
        if tensor.dtype not in FLOATS:
            only = f"quantized weights are not read, only {', '.join(FLOATS)}"
            refuse(path, f"holds {quote(name)} of type {tensor.dtype}: {only}")
    vocab_size, hidden_size = matrix(path, tensors, "model.embed_tokens.weight")
    layers = {int(m[1]) for m in map(re.compile(r"model\.layers\.(\d+)\..*").fullmatch, tensors) if m}
    fused = f"{FIRST}mlp.experts.gate_up_proj" in tensors
    num_experts = count(tensors, "experts")
    if fused:
        gate_up = tensors[f"{FIRST}mlp.experts.gate_up_proj"].shape
        if len(gate_up) != 3 or gate_up[1] % 2:
            refuse(path, f"experts.gate_up_proj has shape {gate_up}, expected [experts, 2 * inner, hidden]")
        num_experts, inner_size = gate_up[0], gate_up[1] // 2
    else:
        expert = "experts.0." if num_experts else ""
        inner_size = matrix(path, tensors, f"{FIRST}mlp.{expert}gate_proj.weight")[0]
    n_shared_experts = count(tensors, "shared_experts")
    check_counts(path, tensors, max(layers) + 1, num_experts, n_shared_experts, fused)
    return Shapes(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        num_hidden_layers=max(layers) + 1,
        query_rows=matrix(path, tensors, f"{FIRST}self_attn.q_proj.weight")[0],
        kv_rows=matrix(path, tensors, f"{FIRST}self_attn.k_proj.weight")[0],
        head_dim=vector(path, tensors, f"{FIRST}self_attn.q_norm.weight"),
        inner_size=inner_size,
        num_experts=num_experts,
        n_shared_experts=n_shared_experts,
        has_head="lm_head.weight" in tensors,
        fused=fused,
        neighbours=neighbours,
    )


def check_counts(path, tensors, layers, experts, shared, fused):
    """Numbers in names must be backed by tensors: one `layers.999999` is no model of a million layers."""
    each = shared + (1 if fused else max(experts, 1))
    if layers * each > len(tensors) or experts > MOST_EXPERTS:
        refuse(path, f"names {layers} layers and {experts} experts, but holds {len(tensors)} tensors: parts missing")


def matrix(path, tensors, name):
    if name not in tensors:
        some = ", ".join(quote(n) for n in list(tensors)[:3])
        refuse(path, f"holds no {name}, so it is no MiniMind; it has {len(tensors)} tensors: {some} ...")
    if len(tensors[name].shape) != 2:
        refuse(path, f"{name} has shape {list(tensors[name].shape)}, expected a matrix")
    return tensors[name].shape


def vector(path, tensors, name):
    """Length of a vector, None where it is not there."""
    if name not in tensors:
        return None
    if len(tensors[name].shape) != 1:
        refuse(path, f"{name} has shape {list(tensors[name].shape)}, expected a vector")
    return tensors[name].shape[0]


def count(tensors, kind):
    """How many experts of a kind the first layer has."""
    pattern = re.compile(rf"model\.layers\.0\.mlp\.{kind}\.(\d{{1,6}})\.gate_proj\.weight")
    numbers = {int(m[1]) for m in map(pattern.fullmatch, tensors) if m}
    return max(numbers, default=-1) + 1
