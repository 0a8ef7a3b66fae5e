"""What models of the family may ask for and we do not compute: refused by name, never ignored."""

from .files import quote, refuse, short


def check_refusals(path, raw, has_experts):
    """Refuse, by name, what changes the computation and is not in ours."""
    for name in ("attention_bias", "qkv_bias", "mlp_bias", "use_bias"):
        if raw.get(name):
            refuse(path, f"asks for biases ({name}), which MiniMind does not have")
    if raw.get("quantization_config") is not None:
        refuse(path, "is of quantized weights (quantization_config); use the unquantized model")
    for name in ("attn_logit_softcapping", "final_logit_softcapping", "logit_softcapping"):
        if raw.get(name) is not None:
            refuse(path, f"asks for a soft cap on logits ({name}), which we do not compute")
    rope = raw.get("rope_parameters")
    partial = [raw, rope if isinstance(rope, dict) else {}]
    if any(part.get("partial_rotary_factor", 1) not in (None, 1, 1.0) for part in partial):
        refuse(path, "asks for RoPE on a part of each head (partial_rotary_factor), which we do not compute")
    check_windows(path, raw)
    if has_experts and (raw.get("mlp_only_layers") or raw.get("decoder_sparse_step", 1) not in (None, 1)):
        refuse(path, "mixes dense and expert layers (mlp_only_layers, decoder_sparse_step), which we do not compute")
    if has_experts and raw.get("scoring_func", "softmax") not in (None, "softmax"):
        refuse(path, f"asks for scoring_func {quote(raw['scoring_func'])}; known: softmax")


def check_windows(path, raw):
    layers = raw.get("layer_types")
    if isinstance(layers, list) and any(layer != "full_attention" for layer in layers):
        refuse(path, "asks for sliding-window or other special layers (layer_types), which we do not compute")
    if raw.get("sliding_window") is not None and raw.get("use_sliding_window", True):
        width = short(raw["sliding_window"])
        refuse(path, f"asks for a sliding window of {width} tokens, which we do not compute")
