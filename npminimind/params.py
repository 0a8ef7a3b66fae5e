"""Names, shapes and memory layout of a model's parameters: one table, read by everything else."""

import math
from collections.abc import Mapping

import numpy as np

from .config import MiniMindConfig

ALIGNMENT = 16  # numbers: every parameter starts at a cache line


def mlp_shapes(prefix, hidden, inner):
    return {
        f"{prefix}gate_proj.weight": (inner, hidden),
        f"{prefix}up_proj.weight": (inner, hidden),
        f"{prefix}down_proj.weight": (hidden, inner),
    }


def layer_shapes(config, prefix):
    c = config
    query_width, kv_width = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    shapes = {
        f"{prefix}input_layernorm.weight": (c.hidden_size,),
        f"{prefix}self_attn.q_proj.weight": (query_width, c.hidden_size),
        f"{prefix}self_attn.k_proj.weight": (kv_width, c.hidden_size),
        f"{prefix}self_attn.v_proj.weight": (kv_width, c.hidden_size),
        f"{prefix}self_attn.o_proj.weight": (c.hidden_size, query_width),
    }
    if c.qk_norm:
        shapes[f"{prefix}self_attn.q_norm.weight"] = (c.head_dim,)
        shapes[f"{prefix}self_attn.k_norm.weight"] = (c.head_dim,)
    shapes[f"{prefix}post_attention_layernorm.weight"] = (c.hidden_size,)
    if not c.use_moe:
        return shapes | mlp_shapes(f"{prefix}mlp.", c.hidden_size, c.intermediate_size)
    shapes[f"{prefix}mlp.gate.weight"] = (c.num_experts, c.hidden_size)
    for e in range(c.num_experts):
        shapes |= mlp_shapes(f"{prefix}mlp.experts.{e}.", c.hidden_size, c.moe_intermediate_size)
    for e in range(c.n_shared_experts):
        shapes |= mlp_shapes(f"{prefix}mlp.shared_experts.{e}.", c.hidden_size, c.moe_intermediate_size)
    return shapes


def param_shapes(config: MiniMindConfig):
    """Every parameter of a model: MiniMind's key name -> shape, ``[out, in]``, in file order.

    A tied head (``tie_word_embeddings``) is not in the table: ``lm_head`` is then
    ``model.embed_tokens`` itself.

    Examples
    --------
    >>> param_shapes(MiniMindConfig())["model.layers.0.self_attn.k_proj.weight"]
    (384, 768)
    """
    shapes = {"model.embed_tokens.weight": (config.vocab_size, config.hidden_size)}
    for i in range(config.num_hidden_layers):
        shapes |= layer_shapes(config, f"model.layers.{i}.")
    shapes["model.norm.weight"] = (config.hidden_size,)
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, config.hidden_size)
    return shapes


class Weights:
    """All parameters in their final place: fill ``params``, compute with ``layers``.

    ``params`` maps MiniMind's key names to arrays ``[out, in]``; each is a view of the memory that
    the forward pass reads, so filling one with ``params[name][...] = tensor`` is loading it.
    q, k and v of a layer lie in one array ``qkv_proj [(N + 2K) * D, H]``, so that one product
    makes all three.

    Parameters
    ----------
    config : MiniMindConfig
    dtype : numpy.float32 or numpy.float64
    """

    def __init__(self, config, dtype=np.float32):
        self.config, self.dtype = config, np.dtype(dtype)
        if self.dtype not in (np.float32, np.float64):
            raise TypeError(f"a model computes in float32 or float64, not {self.dtype}")
        shapes = param_shapes(config)
        room = Room(sum(math.prod(shape) + ALIGNMENT for shape in shapes.values()), self.dtype)
        params = {name: room.take(shape) for name, shape in shapes.items() if not is_qkv(name)}
        self.layers = []
        for i in range(config.num_hidden_layers):
            attn = f"model.layers.{i}.self_attn."
            names = [f"{attn}{part}_proj.weight" for part in "qkv"]
            ends = np.cumsum([shapes[name][0] for name in names])
            qkv_proj = room.take((int(ends[-1]), config.hidden_size))
            params |= zip(names, np.split(qkv_proj, ends[:-1]))
            self.layers.append({"qkv_proj": qkv_proj} | layer_views(params, f"model.layers.{i}.", config))
        self.params = {name: params[name] for name in shapes}
        self.embed_tokens = params["model.embed_tokens.weight"]
        self.norm = params["model.norm.weight"]
        self.lm_head = self.embed_tokens if config.tie_word_embeddings else params["lm_head.weight"]


def weights_from(config, params, dtype):
    """Copy a dict of arrays to where the forward pass reads them."""
    if not isinstance(config, MiniMindConfig) or not isinstance(params, Mapping):
        raise TypeError(f"need a MiniMindConfig and a dict of arrays, not {type(config)} and {type(params)}")
    expected = param_shapes(config)
    missing, unknown = sorted(expected.keys() - params.keys()), sorted(params.keys() - expected.keys())
    if config.tie_word_embeddings and "lm_head.weight" in unknown:  # stored twice, as upstream does
        check_tied(params)
        unknown.remove("lm_head.weight")
    if missing or unknown:
        found = f"missing {missing[:3] or 'none'}, unknown {unknown[:3] or 'none'}"
        raise ValueError(f"params do not fit the config: {found}")
    if dtype is None:
        dtype = np.float64 if np.asarray(params["model.embed_tokens.weight"]).dtype == np.float64 else np.float32
    weights = Weights(config, dtype)
    for name, shape in expected.items():
        if np.shape(params[name]) != shape:
            raise ValueError(f"{name} has shape {np.shape(params[name])}, the config says {shape}")
        weights.params[name][...] = params[name]
    return weights


def check_tied(params):
    if not np.array_equal(params["lm_head.weight"], params["model.embed_tokens.weight"]):
        raise ValueError("tie_word_embeddings is true, but lm_head.weight differs from model.embed_tokens.weight")


def is_qkv(name):
    return name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))


class Room:
    """One block of memory for all parameters: the system maps it in large pages, which are read faster."""

    def __init__(self, size, dtype):
        self.memory, self.used = np.empty(size, dtype), 0

    def take(self, shape):
        """Room for one parameter. A wide ``[out, in]`` matrix is stored column by column.

        ``x @ w.T`` with one row reads memory in order either way; longer runs are faster, so
        the longer side lies contiguous. See CONTRIBUTING.md for the measurements.
        """
        flat = self.memory[self.used : self.used + math.prod(shape)]
        self.used += -(-flat.size // ALIGNMENT) * ALIGNMENT
        wide = len(shape) == 2 and shape[0] > 2 * shape[1]
        return flat.reshape(shape[::-1]).T if wide else flat.reshape(shape)


def layer_views(params, prefix, config):
    """The parameters of one layer as a dict whose keys are what the block calls them."""

    def mlp(path):
        return tuple(params[f"{prefix}mlp.{path}{part}_proj.weight"] for part in ("gate", "up", "down"))

    names = ["input_layernorm", "self_attn.o_proj", "post_attention_layernorm"]
    names += ["self_attn.q_norm", "self_attn.k_norm"] if config.qk_norm else []
    views = {name.removeprefix("self_attn."): params[f"{prefix}{name}.weight"] for name in names}
    if not config.use_moe:
        return views | {"mlp": mlp("")}
    return views | {
        "gate": params[f"{prefix}mlp.gate.weight"],
        "experts": [mlp(f"experts.{e}.") for e in range(config.num_experts)],
        "shared_experts": [mlp(f"shared_experts.{e}.") for e in range(config.n_shared_experts)],
    }
