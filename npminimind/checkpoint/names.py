"""The generations of MiniMind's key names, and how each is called today.

MiniMind-1 and MiniMind2 until 2025-04-26 used Llama's original names and rotated *neighbouring*
pairs (RoPE); later files have HF's names and rotate halves. Training wrappers put prefixes before.
"""

import re

from .files import quote, refuse

PREFIXES = ("module.",)  # DistributedDataParallel; torch.compile writes _orig_mod. anywhere

OLD_TOP = {"tok_embeddings": "model.embed_tokens", "norm": "model.norm", "output": "lm_head"}
OLD_LAYER = {
    "attention_norm": "input_layernorm",
    "attention.wq": "self_attn.q_proj",
    "attention.wk": "self_attn.k_proj",
    "attention.wv": "self_attn.v_proj",
    "attention.wo": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "feed_forward.gate": "mlp.gate",
}
OLD_MLP = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
LAYER = re.compile(r"(?:model\.)?layers\.(\d{1,6})\.(.+)")
OLD_FEED_FORWARD = re.compile(r"feed_forward\.(?:(experts\.\d{1,6}|shared_experts(?:\.\d{1,6})?)\.)?(w[123])")

# Tables and masks that some versions stored beside the weights; they are computed, not loaded.
BUFFERS = re.compile(r"(.*\.)?(pos_cis|freqs_cis|freqs_cos|freqs_sin|inv_freq|mask|causal_mask|masked_bias)")

# What a key says about a file that we cannot run.
UNQUANTIZED = "quantized weights; use the unquantized model"
FOREIGN = (
    (r".*\.lora(\.[AB]|_[AB])(\..*)?", "is a LoRA file: give the model it belongs to, and this file as --lora"),
    (r".*\.(qweight|qzeros|g_idx|scales)", f"holds GPTQ/AWQ-{UNQUANTIZED}"),
    (r".*\.(absmax|quant_map|quant_state.*|SCB|weight_format)", f"holds bitsandbytes-{UNQUANTIZED}"),
    (r".*\.weight_scale(_inv)?", f"holds fp8-{UNQUANTIZED}"),
    (r".*\.bias", "holds biases, which MiniMind does not have"),
)


def strip_prefixes(name):
    name = name.replace("_orig_mod.", "")
    while name.startswith(PREFIXES):
        name = name[name.index(".") + 1 :]
    return name


def current_name(name):
    """Today's name of a parameter, and whether the given one is of the old kind.

    Examples
    --------
    >>> current_name("layers.3.feed_forward.w1.weight")
    ('model.layers.3.mlp.gate_proj.weight', True)
    >>> current_name("module.model.norm.weight")
    ('model.norm.weight', False)
    """
    name = strip_prefixes(name)
    part, dot, suffix = name.rpartition(".")
    if name in ("embed_tokens.weight",):
        return f"model.{name}", False
    if part in OLD_TOP:
        return f"{OLD_TOP[part]}{dot}{suffix}", part != "norm"
    match = LAYER.fullmatch(part)
    if not match:
        return name, False
    layer, inner = f"model.layers.{int(match[1])}.", match[2]
    if inner in OLD_LAYER:
        return f"{layer}{OLD_LAYER[inner]}{dot}{suffix}", True
    old = OLD_FEED_FORWARD.fullmatch(inner)
    if old:
        inner = "mlp." + (f"{old[1]}." if old[1] else "") + OLD_MLP[old[2]]
    # The one shared expert of MiniMind-1 has no number.
    inner = re.sub(r"mlp\.shared_experts\.(?=\D)", "mlp.shared_experts.0.", inner)
    return f"{layer}{inner}{dot}{suffix}", bool(old)


def rename(path, stored):
    """Give all tensors of a file today's names.

    Returns
    -------
    renamed : dict
        Today's name -> StoredTensor, buffers left out.
    old : bool
        The names are of the old kind, so RoPE rotates neighbours.
    notes : list of str
    """
    renamed, old, left_out = {}, 0, []
    for name, tensor in stored.items():
        if BUFFERS.fullmatch(strip_prefixes(name)):
            left_out.append(name)
            continue
        for pattern, message in FOREIGN:
            if re.fullmatch(pattern, name):
                refuse(path, f"{message} (tensor {quote(name)})")
        new, is_old = current_name(name)
        if new in renamed:
            refuse(path, f"tensors {quote(renamed[new].name)} and {quote(name)} are both {new}; which one is meant?")
        renamed[new] = tensor
        old += is_old
    notes = [f"Tables that are computed were left out: {', '.join(map(quote, left_out[:3]))}."] if left_out else []
    if any(strip_prefixes(name) != name for name in stored):
        notes.append("Prefixes of training wrappers (module., _orig_mod.) were taken off the names.")
    return renamed, old > 0, notes
