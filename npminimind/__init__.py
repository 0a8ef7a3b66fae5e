"""MiniMind's inference as explicit NumPy functions."""

from .attention import attention, causal_mask, repeat_kv
from .config import MiniMindConfig
from .errors import CheckpointError
from .generation import Step
from .mlp import moe, swiglu
from .model import MiniMindForCausalLM, ModelOutput
from .norm import rms_norm
from .primitives import gelu, silu, softmax
from .rng import TorchGenerator
from .rope import apply_rope, rope_tables, rotate_half
from .sampling import (
    apply_repetition_penalty,
    apply_temperature,
    apply_top_k,
    apply_top_p,
    greedy,
    multinomial,
    top_k_threshold,
    top_p_mask,
)

__version__ = "0.1.0"
