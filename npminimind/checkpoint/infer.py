"""The generations of MiniMind as facts, and a config from shapes where there is no config.json."""

from ..config import MiniMindConfig
from .files import refuse

# What weights cannot say, by generation. Source: upstream's history.
GENERATIONS = {
    "minimind-1": {
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e4,
        "max_position_embeddings": 512,
        "num_experts_per_tok": 2,
    },
    "minimind2": {
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e6,
        "max_position_embeddings": 32768,
        "num_experts_per_tok": 2,
    },
    "minimind-3": {
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "max_position_embeddings": 32768,
        "num_experts_per_tok": 1,
    },
}
MINIMIND_VOCAB = 6400
MINIMIND2_HIDDEN = (512, 640, 768)


def recognise(shapes):
    """The generation that names and shapes point to, and the reason; (None, why not) otherwise.

    Two facts decide: q/k norm came with MiniMind-3; MiniMind-1 has 2 query heads a kv head,
    MiniMind2 has 4.
    """
    names = "old key names (neighbour RoPE)" if shapes.neighbours else "HF key names"
    if shapes.qk_norm:
        return "minimind-3", "q/k norm is there, which came with MiniMind-3 (Qwen3 has the same tensors)"
    if shapes.neighbours and shapes.query_rows == 2 * shapes.kv_rows:
        return "minimind-1", f"{names}, no q/k norm, 2 query heads a kv head"
    familiar = shapes.vocab_size == MINIMIND_VOCAB or shapes.hidden_size in MINIMIND2_HIDDEN
    if shapes.query_rows == 4 * shapes.kv_rows and (shapes.neighbours or familiar):
        return "minimind2", f"{names}, no q/k norm, 4 query heads a kv head"
    return None, f"{names}, no q/k norm, q_proj has {shapes.query_rows} rows and k_proj {shapes.kv_rows}"


def infer_config(path, shapes, untied):
    """A config from shapes alone, with what the generation's table adds.

    Returns
    -------
    config : MiniMindConfig
    generation : str
    notes : list of str
        What was recognised and what could not be known.
    """
    generation, why = recognise(shapes)
    if generation is None:
        refuse(path, f"fits no generation of MiniMind ({why}), so heads cannot be told; put its config.json beside it")
    table = dict(GENERATIONS[generation])
    top_k = table.pop("num_experts_per_tok")
    fields = sizes(shapes, untied) | table
    if shapes.qk_norm:
        fields["head_dim"] = shapes.head_dim
        fields["num_attention_heads"] = shapes.query_rows // max(1, shapes.head_dim)
        fields["num_key_value_heads"] = shapes.kv_rows // max(1, shapes.head_dim)
    else:
        fields["head_dim"] = shapes.query_rows // fields["num_attention_heads"]
    if shapes.num_experts:
        fields |= expert_fields(path, shapes, top_k)
    guessed = ["rope_theta", "rms_norm_eps", "max_position_embeddings"]
    guessed += [] if shapes.qk_norm else ["num_attention_heads", "num_key_value_heads"]
    guessed += ["num_experts_per_tok"] if shapes.num_experts else []
    said = ", ".join(f"{name} {fields[name]:g}" for name in guessed)
    notes = [
        f"No config.json: recognised as {generation}, because {why}.",
        f"Weights cannot say these, {generation}'s were taken: {said}.",
    ]
    return make_config(path, fields), generation, notes


def sizes(shapes, untied):
    """Fields of a config that every file's shapes say."""
    inner = "moe_intermediate_size" if shapes.num_experts else "intermediate_size"
    return {
        "vocab_size": shapes.vocab_size,
        "hidden_size": shapes.hidden_size,
        "num_hidden_layers": shapes.num_hidden_layers,
        "qk_norm": shapes.qk_norm,
        "use_moe": bool(shapes.num_experts),
        "tie_word_embeddings": not untied,
        inner: shapes.inner_size,
    }


def expert_fields(path, shapes, top_k):
    """MiniMind's MoE: 4 experts. MiniMind2 renormalises only where more than one is chosen."""
    if shapes.num_experts != 4:
        unknown = f"has {shapes.num_experts} experts; how many of them a token takes cannot be told"
        refuse(path, f"{unknown}: put its config.json beside it")
    return {
        "num_experts": 4,
        "num_experts_per_tok": top_k,
        "norm_topk_prob": True,
        "n_shared_experts": shapes.n_shared_experts,
    }


def make_config(path, fields):
    """MiniMindConfig, whose complaints become CheckpointError with the file's name."""
    try:
        return MiniMindConfig(**fields)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        refuse(path, f"{str(error)[:300]}; no model has that")
