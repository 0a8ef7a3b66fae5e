"""The names of all intermediates: one table that traces, comparisons and documentation read.

Module outputs carry the path that upstream and HF's Qwen3 use, so that torch forward hooks dump them under
the same names. The table is in execution order. Generation puts ``round_{r}.`` in front.
"""

from typing import NamedTuple


class Name(NamedTuple):
    """One intermediate: its name (``{i}`` a layer, ``{e}`` an expert), its dims, its dtype and what it is."""

    name: str
    dims: str
    dtype: str
    meaning: str


FLOAT = "float"  # the model's own: float32 or float64
LAYER = "model.layers.{i}."

MODEL_HEAD = (
    Name("model.embed_tokens", "B S H", FLOAT, "rows of the embedding table"),
    Name("rope.cos", "S D", FLOAT, "cosine of each pair's angle at these positions"),
    Name("rope.sin", "S D", FLOAT, "sine of each pair's angle at these positions"),
)
ATTENTION = (
    Name(LAYER + "input_layernorm", "B S H", FLOAT, "RMSNorm before attention"),
    Name(LAYER + "self_attn.q_proj", "B S N*D", FLOAT, "queries, all heads side by side"),
    Name(LAYER + "self_attn.k_proj", "B S K*D", FLOAT, "keys"),
    Name(LAYER + "self_attn.v_proj", "B S K*D", FLOAT, "values"),
    Name(LAYER + "self_attn.q_norm", "B S N D", FLOAT, "RMSNorm of each query head"),
    Name(LAYER + "self_attn.k_norm", "B S K D", FLOAT, "RMSNorm of each key head"),
    Name(LAYER + "self_attn.q_rope", "B S N D", FLOAT, "queries turned to their positions"),
    Name(LAYER + "self_attn.k_rope", "B S K D", FLOAT, "keys turned to their positions"),
    Name(LAYER + "self_attn.k_cache", "B T K D", FLOAT, "past and new keys: what the next step gets"),
    Name(LAYER + "self_attn.v_cache", "B T K D", FLOAT, "past and new values: what the next step gets"),
    Name(LAYER + "self_attn.scores", "B N S T", FLOAT, "q kᵀ / √D, unmasked"),
    Name(LAYER + "self_attn.masked_scores", "B N S T", FLOAT, "−inf in the future, −1e9 added at pads"),
    Name(LAYER + "self_attn.probs", "B N S T", FLOAT, "softmax over the keys"),
    Name(LAYER + "self_attn.context", "B S N*D", FLOAT, "values averaged by probs, heads side by side"),
    Name(LAYER + "self_attn.o_proj", "B S H", FLOAT, "attention's output"),
    Name(LAYER + "resid_mid", "B S H", FLOAT, "residual stream after attention"),
    Name(LAYER + "post_attention_layernorm", "B S H", FLOAT, "RMSNorm before the feed-forward network"),
)
DENSE = (
    Name(LAYER + "mlp.gate_proj", "B S I", FLOAT, "what goes through the activation"),
    Name(LAYER + "mlp.up_proj", "B S I", FLOAT, "what is gated"),
    Name(LAYER + "mlp.act", "B S I", FLOAT, "silu(gate_proj)"),
    Name(LAYER + "mlp.hidden", "B S I", FLOAT, "act * up_proj"),
    Name(LAYER + "mlp.down_proj", "B S H", FLOAT, "the feed-forward network's output"),
)
ROUTER = (
    Name(LAYER + "mlp.gate", "B*S E", FLOAT, "router logits"),
    Name(LAYER + "mlp.router_probs", "B*S E", FLOAT, "softmax over the experts"),
    Name(
        LAYER + "mlp.topk_idx",
        "B*S k",
        "int64",
        "chosen experts, by descending probability; of equals, the lowest id first",
    ),
    Name(LAYER + "mlp.topk_weight", "B*S k", FLOAT, "what each counts, renormalised where the config says so"),
)
EXPERT_PARTS = (
    ("gate_proj", "I", "as in mlp, for the tokens of this expert"),
    ("up_proj", "I", "as in mlp, for the tokens of this expert"),
    ("act", "I", "silu(gate_proj)"),
    ("hidden", "I", "act * up_proj"),
    ("down_proj", "H", "the expert's output, before its weight"),
)
EXPERT = tuple(
    Name(f"{LAYER}mlp.experts.{{e}}.{part}", f"tokens_of_e {width}", FLOAT, meaning)
    for part, width, meaning in EXPERT_PARTS
)
SHARED_EXPERT = tuple(
    Name(f"{LAYER}mlp.shared_experts.{{e}}.{part}", f"B S {width}", FLOAT, meaning)
    for part, width, meaning in EXPERT_PARTS
)
MOE_OUTPUT = (Name(LAYER + "mlp", "B S H", FLOAT, "the experts' outputs, weighted and summed"),)
LAYER_OUTPUT = (Name("model.layers.{i}", "B S H", FLOAT, "the block's output"),)
MODEL_TAIL = (
    Name("model.norm", "B S H", FLOAT, "the final norm: hidden_states"),
    Name("lm_head", "B S V", FLOAT, "logits"),
)
SAMPLE = (
    Name("sample.logits", "B V", FLOAT, "logits of the last position"),
    Name("sample.after_temperature", "B V", FLOAT, "logits / temperature (10.4)"),
    Name("sample.after_repetition_penalty", "B V", FLOAT, "ids seen in the row made less likely (10.7)"),
    Name("sample.after_top_k", "B V", FLOAT, "all but the k greatest are −inf (10.5)"),
    Name("sample.after_top_p", "B V", FLOAT, "all but the nucleus are −inf (10.6)"),
    Name("sample.probs", "B V", FLOAT, "softmax (10.8)"),
    Name("sample.u", "B", "float64", "uniform numbers of the draw; absent where none were used"),
    Name("sample.next_token", "B 1", "int64", "the choice, EOS in finished rows (10.9)"),
    Name("sample.finished", "B", "bool", "which rows have ended, after this step (10.9)"),
)


def forward_names(config):
    """The names of one forward pass, in execution order.

    Experts that no token chose have no arrays, though their names are listed.

    Parameters
    ----------
    config : MiniMindConfig

    Returns
    -------
    list of Name

    Examples
    --------
    >>> from npminimind import MiniMindConfig
    >>> [n.name for n in forward_names(MiniMindConfig(num_hidden_layers=1))][-3:]
    ['model.layers.0', 'model.norm', 'lm_head']
    """
    names = list(MODEL_HEAD)
    for i in range(config.num_hidden_layers):
        names += [n._replace(name=n.name.replace("{i}", str(i))) for n in layer_names(config)]
    return names + list(MODEL_TAIL)


def layer_names(config):
    norms = ("self_attn.q_norm", "self_attn.k_norm")
    attention = [n for n in ATTENTION if config.qk_norm or not n.name.endswith(norms)]
    if not config.use_moe:
        return [*attention, *DENSE, *LAYER_OUTPUT]
    experts = [n._replace(name=n.name.replace("{e}", str(e))) for e in range(config.num_experts) for n in EXPERT]
    shared = [
        n._replace(name=n.name.replace("{e}", str(e))) for e in range(config.n_shared_experts) for n in SHARED_EXPERT
    ]
    return [*attention, *ROUTER, *experts, *shared, *MOE_OUTPUT, *LAYER_OUTPUT]


def generation_names(config, rounds):
    """The names of a generation: those of each round's forward pass and sampling, behind ``round_{r}.``."""
    once = [*forward_names(config), *SAMPLE]
    return [n._replace(name=f"round_{r}.{n.name}") for r in range(rounds) for n in once]
