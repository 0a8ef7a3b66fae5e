"""What the tests of files share: refusals, small weights, files put together byte by byte."""

import json
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from npminimind.checkpoint import load_weights
from npminimind.config import MiniMindConfig
from npminimind.errors import CheckpointError
from npminimind.params import param_shapes

DATA = Path(__file__).parent / "data"
UPSTREAM = Path(__file__).parent.parent / "data" / "upstream"
DENSE = dict(
    hidden_size=32, num_hidden_layers=2, vocab_size=50, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
    intermediate_size=48,
)  # fmt: skip
EXPERTS = dict(use_moe=True, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24)


def refused(path, *words, read=load_weights):
    """Reading raises CheckpointError; the message is one line, begins with the file's name, has the words."""
    with pytest.raises(CheckpointError) as caught:
        read(path)
    message = str(caught.value)
    name = str(path).rstrip("/")
    assert message.startswith(name), message
    assert "\n" not in message and len(message) < 800
    assert all(word in message[len(name) :] for word in words), message
    return message


def ramp(*shape, dtype=np.float64):
    """0, 1, 2 ... halved and shifted: what make_fixtures.py wrote."""
    numbers = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    return (numbers / 2 - 1).astype(dtype) if np.dtype(dtype).kind == "f" else numbers.astype(dtype)


def random_params(config, seed=0, dtype=np.float32):
    """Arrays of a model's shapes: small numbers, norms near 1."""
    rng = np.random.default_rng(seed)
    return {
        name: (rng.standard_normal(shape) * 0.2 + (len(shape) == 1)).astype(dtype)
        for name, shape in param_shapes(config).items()
    }


def config_of(**fields):
    return MiniMindConfig(**(DENSE | fields))


def write_folder(folder, tensors, config=None, name="model.safetensors", **options):
    """A checkpoint folder; ``config`` is the dict of config.json."""
    from npminimind.checkpoint import save_safetensors

    folder.mkdir(exist_ok=True)
    save_safetensors(folder / name, tensors, **options)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def safetensors_bytes(header, data=b"", length=None):
    """A safetensors file by hand; ``header`` is a dict or the JSON text."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def write_zip(path, entries, compression=zipfile.ZIP_STORED):
    """A zip archive of name -> bytes, put together by Python's zipfile."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return path


def write_pth(path, program, storages=None, root="archive"):
    """A ``.pth`` with any pickle in it."""
    entries = {f"{root}/data.pkl": program, f"{root}/version": b"3\n"}
    return write_zip(path, entries | {f"{root}/data/{key}": data for key, data in (storages or {}).items()})
