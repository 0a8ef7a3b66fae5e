"""MiniMind's inference as explicit NumPy functions."""

from .attention import attention, causal_mask, repeat_kv
from .config import MiniMindConfig
from .errors import CheckpointError
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
from .step import Step
from .trace import Trace, trace, trace_generation

__version__ = "0.1.0"

__all__ = [
    "CheckpointError",
    "MiniMindConfig",
    "MiniMindForCausalLM",
    "ModelOutput",
    "Step",
    "TorchGenerator",
    "Trace",
    "apply_repetition_penalty",
    "apply_rope",
    "apply_temperature",
    "apply_top_k",
    "apply_top_p",
    "attention",
    "causal_mask",
    "gelu",
    "greedy",
    "load",
    "moe",
    "multinomial",
    "reference_weights",
    "repeat_kv",
    "rms_norm",
    "rope_tables",
    "rotate_half",
    "silu",
    "softmax",
    "swiglu",
    "top_k_threshold",
    "top_p_mask",
    "trace",
    "trace_generation",
]


def load(name="minimind-tiny", dtype=None):
    """The model in the box, tokenizer included.

    Parameters
    ----------
    name : str
        ``"minimind-tiny"``, or ``"minimind-tiny-moe"``, its sibling with experts.
    dtype : numpy.float32 or numpy.float64
        None is float32.

    Returns
    -------
    MiniMindForCausalLM
    """
    return MiniMindForCausalLM.from_pretrained(reference_weights() / name, dtype=dtype or "float32")


def reference_weights():
    """The folder of models and golden vectors: inside the installed package, or beside it in a checkout."""
    from pathlib import Path

    package = Path(__file__).parent
    inside = package / "reference_weights"
    return inside if inside.is_dir() else package.parent / "reference_weights"
