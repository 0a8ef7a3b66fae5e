"""Files in and out: MiniMind's and HF's checkpoints as NumPy arrays, without torch.

A reader's way through, lower files first:

* ``files`` recognises a file, reads JSON, writes safely; ``stored`` is a tensor in a file.
* ``safetensors``; ``zip_entries``, ``pickle_names``, ``pickle_subset``, ``pth``: the two formats.
* ``names`` and ``shapes``: what keys and shapes say; ``infer``: a config from them alone.
* ``refusals``, ``rope_config``, ``configs``: config.json.
* ``sources``: what lies in a folder; ``tokenizer_check``, ``row_order``, ``placing``, ``lora``: its parts;
  ``loading`` puts them together.
* ``pth_writer``, ``saving``: the way out.
"""

from ..nonfinite import find_nonfinite
from .loading import Checkpoint, inspect, load_weights
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
