"""Files in and out: MiniMind's and HF's checkpoints as NumPy arrays, without torch.

A reader's way through: ``files`` (recognise, JSON, safe writing) -> ``stored`` (a tensor in a
file) -> ``safetensors``, ``zip_entries`` -> ``pickle_subset`` -> ``pth`` -> ``names`` (the
generations of key names) -> ``configs`` (config.json) -> ``infer`` (no config.json) ->
``sources`` (what lies in a folder) -> ``loading`` -> ``lora`` -> ``saving``.
"""

from .safetensors import read_safetensors, save_safetensors

__all__ = ["read_safetensors", "save_safetensors"]
