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

from .trace import Trace, trace, trace_generation

__version__ = "0.1.0"


def load(name="minimind-tiny", dtype=None):
    """The model in the box, tokenizer included.

    Parameters
    ----------
    name : str
        ``"minimind-tiny"``, or ``"minimind-tiny-moe"``, its sibling with experts.
    dtype : numpy.float32 (default) or numpy.float64

    Returns
    -------
    MiniMindForCausalLM
    """
    return MiniMindForCausalLM.from_pretrained(reference_weights() / name, **({} if dtype is None else {"dtype": dtype}))


def reference_weights():
    """The folder of models and golden vectors: inside the installed package, or beside it in a checkout."""
    from pathlib import Path

    package = Path(__file__).parent
    inside = package / "reference_weights"
    return inside if inside.is_dir() else package.parent / "reference_weights"
