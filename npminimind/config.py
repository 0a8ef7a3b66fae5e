"""The numbers that define a MiniMind: one dataclass, checked when it is made.

Legend of dims, used in every file of the package:

=====  ==========================================  =====================
B      batch                                       rows of ``input_ids``
S      new tokens, fed in this call
T      past + S, all tokens seen so far
H      ``hidden_size``                             768
N      ``num_attention_heads``                     8
K      ``num_key_value_heads``                     4
D      ``head_dim``                                96
I      ``intermediate_size``                       2432
E      ``num_experts``                             4
V      ``vocab_size``                              6400
=====  ==========================================  =====================
"""

import dataclasses
import math
from dataclasses import dataclass

ACTIVATIONS = ("silu", "gelu")

# What ``inference_rope_scaling=True`` stands for upstream: 16 times the 2,048 trained positions.
YARN = {
    "type": "yarn",
    "original_max_position_embeddings": 2048,
    "factor": 16,
    "beta_fast": 32,
    "beta_slow": 1,
    "attention_factor": 1.0,
}

SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "vocab_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "max_position_embeddings",
    "num_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
)
LARGEST_SIZE = 2**31 - 1
TOKEN_IDS = ("bos_token_id", "eos_token_id")
FLAGS = ("use_moe", "tie_word_embeddings", "inference_rope_scaling", "norm_topk_prob", "qk_norm")


def intermediate_size_of(hidden_size):
    """Width of MiniMind-3's feed-forward network: ``64 * ceil(pi * H / 64)``.

    Examples
    --------
    >>> intermediate_size_of(768)
    2432
    """
    return 64 * math.ceil(math.pi * hidden_size / 64)


@dataclass(frozen=True)
class MiniMindConfig:
    """Every number of the architecture, under MiniMind's own names and defaults.

    Parameters left at None are derived: ``head_dim`` is H / N, ``intermediate_size`` is
    ``64 * ceil(pi * H / 64)``, ``moe_intermediate_size`` is ``intermediate_size``, and
    ``rope_scaling`` is :data:`YARN` where ``inference_rope_scaling`` is true.

    Parameters
    ----------
    hidden_size, num_hidden_layers, use_moe : int, int, bool
        The three that upstream takes by position.
    qk_norm : bool
        RMSNorm over each head of q and k before RoPE. MiniMind-3 has it; MiniMind-1, MiniMind2
        and Llama do not.
    n_shared_experts : int
        Experts that see every token (MiniMind2's MoE has one, MiniMind-3 none).

    Raises
    ------
    ValueError, TypeError
        A value that no model can have; the message names the field.

    Examples
    --------
    >>> config = MiniMindConfig()
    >>> config.head_dim, config.intermediate_size
    (96, 2432)
    >>> config.cache_elements(length=100)    # chapter 10.3: 8 layers * k, v * 100 * 4 * 96
    614400

    Notes
    -----
    Source: upstream ``MiniMindConfig``. Differs from upstream: unknown arguments are a TypeError,
    and impossible values are refused here instead of failing somewhere in the forward pass.
    """

    hidden_size: int = 768
    num_hidden_layers: int = 8
    use_moe: bool = False
    vocab_size: int = 6400
    bos_token_id: int = 1
    eos_token_id: int = 2
    num_attention_heads: int = 8
    num_key_value_heads: int = 4
    head_dim: int | None = None
    hidden_act: str = "silu"
    intermediate_size: int | None = None
    max_position_embeddings: int = 32768
    rms_norm_eps: float = 1e-6
    rope_theta: float = 1e6
    tie_word_embeddings: bool = True
    inference_rope_scaling: bool = False
    rope_scaling: dict | None = None
    num_experts: int = 4
    num_experts_per_tok: int = 1
    moe_intermediate_size: int | None = None
    norm_topk_prob: bool = True
    qk_norm: bool = True
    n_shared_experts: int = 0

    def __post_init__(self):
        check_numbers(self, ("hidden_size", "num_attention_heads"))
        derived = {
            "head_dim": self.hidden_size // self.num_attention_heads,
            "intermediate_size": intermediate_size_of(self.hidden_size),
        }
        derived["moe_intermediate_size"] = self.intermediate_size or derived["intermediate_size"]
        if self.inference_rope_scaling:
            derived["rope_scaling"] = YARN
        for name, value in derived.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        if isinstance(self.rope_scaling, dict):
            object.__setattr__(self, "rope_scaling", YARN | self.rope_scaling)
        check(self)

    @property
    def yarn(self):
        """The YaRN dict that is in force, or None.

        Upstream scales only a table that is longer than the trained one.
        """
        scaling = self.rope_scaling
        if scaling and self.max_position_embeddings > scaling["original_max_position_embeddings"]:
            return scaling
        return None

    def cache_elements(self, length, batch=1):
        """How many numbers the KV cache holds after ``length`` tokens: layers * 2 * B * T * K * D.

        Source: chapter 10.3.
        """
        per_layer = 2 * batch * length * self.num_key_value_heads * self.head_dim
        return self.num_hidden_layers * per_layer

    def to_dict(self):
        """All fields as a dict that ``MiniMindConfig(**fields)`` takes back."""
        return dataclasses.asdict(self)

    def _repr_html_(self):
        from .html import config_view  # which needs this file

        return config_view(self)


def check_numbers(config, names):
    for name in names:
        value = getattr(config, name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} must be an int, not {value!r}")
        if not 1 <= value <= LARGEST_SIZE:
            raise ValueError(f"{name} must be between 1 and {LARGEST_SIZE:,}, not {value}")


def check(config):
    """Refuse what no model can have. Raises ValueError or TypeError naming the field."""
    check_numbers(config, SIZES)
    for name in TOKEN_IDS + ("n_shared_experts",):
        value = getattr(config, name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} must be an int, not {value!r}")
        if value < 0:
            raise ValueError(f"{name} must not be negative, got {value}")
    for name in FLAGS:
        if not isinstance(getattr(config, name), bool):
            raise TypeError(f"{name} must be True or False, not {getattr(config, name)!r}")
    for name in ("rms_norm_eps", "rope_theta"):
        value = getattr(config, name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(f"{name} must be a number, not {value!r}")
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be positive and finite, not {value}")
    if config.hidden_act not in ACTIVATIONS:
        raise ValueError(f"hidden_act {config.hidden_act!r} is not known; known: {', '.join(ACTIVATIONS)}")
    if config.num_attention_heads % config.num_key_value_heads:
        raise ValueError(
            f"num_attention_heads ({config.num_attention_heads}) must be a multiple of "
            f"num_key_value_heads ({config.num_key_value_heads})"
        )
    if config.head_dim % 2:
        raise ValueError(f"head_dim must be even, RoPE rotates its two halves; got {config.head_dim}")
    if config.use_moe and config.num_experts_per_tok > config.num_experts:
        raise ValueError(
            f"num_experts_per_tok ({config.num_experts_per_tok}) is more than num_experts ({config.num_experts})"
        )
    if config.rope_scaling is not None:
        check_rope_scaling(config.rope_scaling)


def check_rope_scaling(scaling):
    if not isinstance(scaling, dict):
        raise TypeError(f"rope_scaling must be a dict or None, not {scaling!r}")
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind != "yarn":
        raise ValueError(f"rope_scaling of type {kind!r} is not known; known: yarn")
    for name in ("original_max_position_embeddings", "factor", "beta_fast", "beta_slow", "attention_factor"):
        value = scaling.get(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"rope_scaling needs the number {name!r}, has {value!r}")
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"rope_scaling {name!r} must be positive and finite, not {value}")
