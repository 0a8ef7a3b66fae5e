"""Reading what a port has dumped: safetensors, npz, a folder of npy, one npy, or JSON with generated ids."""

import json
import os

import numpy as np

from ..checkpoint import read_safetensors
from ..errors import CheckpointError
from ..trace import Trace

IDS = "generated_ids"  # what a file of nothing but ids is called inside


def read_trace(path):
    """Arrays by name, and what the file says about them.

    Parameters
    ----------
    path : str or path
        ``*.safetensors``, ``*.npz``, a folder of ``.npy``, one ``.npy``, or ``*.json`` with ``generated_ids``.

    Returns
    -------
    Trace

    Raises
    ------
    CheckpointError
        No such file, not readable, or without a single array.
    """
    path = os.fspath(path)
    ending = os.path.splitext(path)[1]
    if not os.path.exists(path):
        raise CheckpointError(f"{path}: there is no such file or folder")
    if ending in (".json", ".npy") and os.path.isfile(path):
        trace = Trace(read_ids(path) if ending == ".json" else {IDS: read_npy(path)})
    elif ending == ".safetensors" and os.path.isfile(path):
        tensors, metadata = read_safetensors(path)
        trace = Trace(dict(tensors), {name: parsed(text) for name, text in metadata.items()})
    else:
        trace = Trace.load(path)
    if not trace:
        raise CheckpointError(f"{path}: holds no arrays; dump some under the names of `npminimind.names`")
    return trace


def parsed(text):
    """Metadata of other programs is plain text, ours is JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def read_npy(path):
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise CheckpointError(f"{path}: is not a .npy that can be read: {error}") from None


def read_ids(path):
    """``[[ids]]``, or ``{"generated_ids": [[ids]]}`` with any other entries."""
    try:
        with open(path, encoding="utf-8") as file:
            ids = json.load(file)
        ids = np.asarray(ids.get(IDS, ids.get("ids")) if isinstance(ids, dict) else ids)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: is not JSON that can be read: {error}") from None
    if ids.ndim not in (1, 2) or ids.dtype.kind not in "iu":
        raise CheckpointError(f"{path}: need generated ids, [[1, 2, 3]] or {{{IDS!r}: [[1, 2, 3]]}}, prompt included")
    return {IDS: np.atleast_2d(ids)}
