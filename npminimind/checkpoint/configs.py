"""config.json, in MiniMind's and in Hugging Face's spellings, as a MiniMindConfig.

What the family's models may ask for and we do not compute is refused by name, never ignored.
"""

from ..errors import CheckpointError
from .files import quote, refuse, short
from .infer import GENERATIONS, MINIMIND_VOCAB, make_config, recognise, sizes
from .refusals import check_refusals
from .rope_config import rope_fields

FAMILY = ("minimind", "qwen3", "qwen3_moe", "llama")

# Field of MiniMindConfig -> spellings in config.json (today's, MiniMind-1's, others').
SPELLINGS = {
    "hidden_size": ("hidden_size", "dim"),
    "num_hidden_layers": ("num_hidden_layers", "n_layers"),
    "num_attention_heads": ("num_attention_heads", "n_heads"),
    "num_key_value_heads": ("num_key_value_heads", "n_kv_heads"),
    "vocab_size": ("vocab_size",),
    "bos_token_id": ("bos_token_id",),
    "head_dim": ("head_dim",),
    "hidden_act": ("hidden_act",),
    "intermediate_size": ("intermediate_size", "hidden_dim"),
    "max_position_embeddings": ("max_position_embeddings", "max_seq_len"),
    "rms_norm_eps": ("rms_norm_eps", "norm_eps"),
    "tie_word_embeddings": ("tie_word_embeddings",),
}
EXPERT_SPELLINGS = {
    "num_experts": ("num_experts", "n_routed_experts", "num_local_experts"),
    "num_experts_per_tok": ("num_experts_per_tok",),
    "moe_intermediate_size": ("moe_intermediate_size",),
    "norm_topk_prob": ("norm_topk_prob",),
}
# Classes' own defaults, for keys that a config leaves out. Source: transformers' configuration files.
HF_DEFAULTS = {
    "qwen3": {"rms_norm_eps": 1e-6, "rope_theta": 1e4, "max_position_embeddings": 32768},
    "qwen3_moe": {
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e4,
        "max_position_embeddings": 32768,
        "num_experts_per_tok": 8,
        "norm_topk_prob": False,
    },
    "llama": {"rms_norm_eps": 1e-6, "rope_theta": 1e4, "max_position_embeddings": 2048},
}


class Mismatch(CheckpointError):
    """A sound config that belongs to other weights."""


def read_config(path, raw, shapes, untied):
    """A MiniMindConfig from the dict in config.json and the shapes in the weights' file.

    Parameters
    ----------
    path : str
        Of config.json, for messages.
    raw : dict
    shapes : Shapes
    untied : bool
        The file holds a head that differs from the embedding.

    Returns
    -------
    config : MiniMindConfig
    generation : str
    notes : list of str

    Raises
    ------
    Mismatch
        The config is of another model than the file. Both sides are named.
    CheckpointError
        Wrong types or sizes, or something that we do not compute.
    """
    family = family_of(path, raw)
    check_refusals(path, raw, shapes.num_experts > 0)
    generation, why = generation_of(family, raw, shapes)
    notes = [f"Recognised as {generation}: {why}."]
    fields = {"qk_norm": shapes.qk_norm, "use_moe": uses_experts(raw, family, shapes)}
    fields |= defaults(family, generation) | spelled(path, raw, SPELLINGS)
    if fields["use_moe"]:
        fields |= expert_fields(path, raw, shapes, generation, notes)
    else:
        for name in EXPERT_SPELLINGS:
            fields.pop(name, None)
    fields |= token_ids(raw, notes) | rope_fields(path, raw, family, fields, notes)
    known = sizes(shapes, untied)
    for name in ("vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size", "moe_intermediate_size"):
        if name in known:
            fields.setdefault(name, known[name])
    fields |= heads_of(path, raw, fields, shapes)
    fields |= tying(path, fields, shapes, untied, notes)
    config = make_config(path, fields)
    check_fit(path, raw, config, shapes)
    return config, generation, notes


def family_of(path, raw):
    kind = raw.get("model_type")
    if kind is None or (isinstance(kind, str) and kind.startswith("minimind")):
        return "minimind"
    if kind not in FAMILY:
        refuse(path, f"is of a model of type {quote(kind)}; what can be run: {', '.join(FAMILY)}")
    return kind


def uses_experts(raw, family, shapes):
    if family == "minimind":
        return raw["use_moe"] if raw.get("use_moe") is not None else shapes.num_experts > 0
    return family == "qwen3_moe"


def generation_of(family, raw, shapes):
    """The generation and why. MiniMind-3 is published as Qwen3, MiniMind2 as Llama."""
    if family == "minimind":
        generation, why = recognise(shapes)
        # Heads that no release has: MiniMind2's config was the first to name rope_theta.
        known = "minimind-1" if shapes.neighbours and raw.get("rope_theta") is None else "minimind2"
        return generation or known, why
    label = {"qwen3": "minimind-3", "qwen3_moe": "minimind-3", "llama": "minimind2"}[family]
    if shapes.vocab_size == MINIMIND_VOCAB:
        return label, f"config.json is of type {family} with a vocabulary of {MINIMIND_VOCAB}, as {label} is published"
    same = "without q/k norm, as MiniMind2" if family == "llama" else "the same architecture as MiniMind-3's"
    return family.removesuffix("_moe"), f"config.json is of type {family}, {same}"


def defaults(family, generation):
    if family != "minimind":
        return dict(HF_DEFAULTS[family])
    return dict(GENERATIONS[generation])


def spelled(path, raw, spellings):
    """Values of the fields that a config gives, under whichever name it knows; null is not given."""
    fields = {}
    for field, names in spellings.items():
        given = {name: raw[name] for name in names if raw.get(name) is not None}
        if len(set(map(short, given.values()))) > 1:
            refuse(path, f"says two things at once: {', '.join(f'{k} {short(v)}' for k, v in given.items())}")
        for value in given.values():
            fields[field] = value
    if isinstance(fields.get("hidden_act"), str) and fields["hidden_act"] == "swish":
        fields["hidden_act"] = "silu"
    return fields


# ---------------------------------------------------------------------------------------------
# Parts


def expert_fields(path, raw, shapes, generation, notes):
    fields = spelled(path, raw, EXPERT_SPELLINGS)
    if raw.get("model_type") != "qwen3_moe":
        fields.setdefault("norm_topk_prob", True)
    if shapes.num_experts:
        fields.setdefault("num_experts", shapes.num_experts)
    fields["n_shared_experts"] = shapes.n_shared_experts
    said = raw.get("n_shared_experts")
    if isinstance(said, (bool, int)) and int(said) != shapes.n_shared_experts:
        raise Mismatch(f"{path}: says n_shared_experts {int(said)}, the file holds {shapes.n_shared_experts}")
    if generation in ("minimind-1", "minimind2") and fields.get("num_experts_per_tok") == 1:
        if fields["norm_topk_prob"] is True:
            notes.append("MiniMind2 renormalises experts' weights only if it takes more than one: norm_topk_prob off.")
        fields["norm_topk_prob"] = False
    return fields


def heads_of(path, raw, fields, shapes):
    """Heads that the config leaves open: from q/k norm's width, or as many kv heads as heads."""
    heads, kv_heads, head_dim = (fields.get(n) for n in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    head_dim = shapes.head_dim if head_dim is None else head_dim
    if heads is None and shapes.head_dim:
        heads = shapes.query_rows // shapes.head_dim
    if heads is None:
        refuse(path, "says no num_attention_heads, and the weights cannot tell")
    says_none = any(name in raw and raw[name] is None for name in SPELLINGS["num_key_value_heads"])
    if kv_heads is None or says_none:
        kv_heads = shapes.kv_rows // shapes.head_dim if shapes.head_dim else heads
    return {"num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head_dim}


def token_ids(raw, notes):
    """The first of a list of EOS ids; generation_config.json has the list."""
    eos = raw.get("eos_token_id")
    if isinstance(eos, list) and eos:
        notes.append(f"eos_token_id is a list; the config keeps the first, {short(eos[0])}.")
        eos = eos[0]
    if eos is None:
        notes.append("config.json names no eos_token_id; 2 was taken.")
    return {} if eos is None else {"eos_token_id": eos}


def tying(path, fields, shapes, untied, notes):
    """Tied or not: the file decides, and a config that says otherwise is told so."""
    said = fields.get("tie_word_embeddings")
    if said is None:
        return {"tie_word_embeddings": not untied}
    if said is False and not shapes.has_head:
        raise Mismatch(f"{path}: says tie_word_embeddings false, the file holds no lm_head.weight")
    if said is True and untied:
        notes.append("config.json says the head is tied, but the file's lm_head differs from embed_tokens: run untied.")
        return {"tie_word_embeddings": False}
    return {}


# ---------------------------------------------------------------------------------------------
# Checks


def check_fit(path, raw, config, shapes, verdict="does not fit the weights: it says"):
    """Compare a config with the file's shapes, number by number; say both sides."""
    inner = "moe_intermediate_size" if shapes.num_experts else "intermediate_size"
    names = ("num_hidden_layers", "hidden_size", "vocab_size")
    pairs = [(name, getattr(config, name), getattr(shapes, name)) for name in names]
    if config.use_moe != (shapes.num_experts > 0):
        pairs.append(("use_moe", config.use_moe, f"{shapes.num_experts} experts"))
    else:
        pairs.append((inner, getattr(config, inner), shapes.inner_size))
    if config.use_moe:
        pairs.append(("num_experts", config.num_experts, shapes.num_experts or config.num_experts))
        pairs.append(("n_shared_experts", config.n_shared_experts, shapes.n_shared_experts))
    if shapes.qk_norm:
        pairs.append(("head_dim", config.head_dim, shapes.head_dim))
    heads = f"{{}} heads of {config.head_dim}, so {{}} rows"
    for name, count, rows in (
        ("q_proj", config.num_attention_heads, shapes.query_rows),
        ("k_proj", config.num_key_value_heads, shapes.kv_rows),
    ):
        if count * config.head_dim != rows:
            pairs.append((name, heads.format(count, count * config.head_dim), f"{rows} rows"))
    wanted = raw.get("qk_norm", True if str(raw.get("model_type")).startswith("qwen3") else None)
    wanted = False if raw.get("model_type") == "llama" else wanted
    if wanted is not None and wanted != shapes.qk_norm:
        pairs.append(("q/k norm", "there" if wanted else "absent", "them" if shapes.qk_norm else "none"))
    wrong = [f"{name} {said}, the file holds {found}" for name, said, found in pairs if said != found]
    if wrong:
        raise Mismatch(f"{path}: {verdict} {'; '.join(wrong)}")
