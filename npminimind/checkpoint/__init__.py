"""Files in and out: MiniMind's and HF's checkpoints as NumPy arrays, without torch.

A reader's way through: ``files`` (recognise, JSON, safe writing) -> ``stored`` (a tensor in a
file) -> ``safetensors``, ``zip_entries`` -> ``pickle_subset`` -> ``pth`` -> ``names`` (generations
of key names) -> ``shapes``, ``infer`` (what they say) -> ``configs`` (config.json) -> ``sources``
(what lies in a folder) -> ``tokenizer_check``, ``row_order``, ``lora`` -> ``loading`` -> ``pth_writer`` -> ``saving``.
"""

from .loading import Checkpoint, find_nonfinite, inspect, load_weights
from .safetensors import read_safetensors, save_safetensors
from .saving import convert, save_pretrained

__all__ = [
    "Checkpoint",
    "convert",
    "find_nonfinite",
    "inspect",
    "load_weights",
    "read_safetensors",
    "save_pretrained",
    "save_safetensors",
]
