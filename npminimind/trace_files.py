"""Traces as files: .safetensors, .npz, or a folder of .npy, by the ending of the name."""

import io
import json
import os
import secrets
import shutil
import zipfile

import numpy as np

from .errors import CheckpointError

METADATA = "metadata.json"  # the entry of a .npz or folder that says what was run


def save(trace, path):
    """Write a trace; the file or folder appears only when it is complete.

    Parameters
    ----------
    trace : Trace
    path : str or path
        ``*.safetensors``, ``*.npz``, or a name without an ending for a folder, which must not exist.

    Raises
    ------
    ValueError
        Another ending.
    CheckpointError
        The file can't be written.
    """
    path = os.fspath(path)
    write = {".safetensors": save_safetensors, ".npz": save_npz, "": save_folder}
    write[kind(path)](trace, path)


def load(path):
    """Read what :func:`save` has written: arrays and metadata, in the order of execution.

    Raises
    ------
    CheckpointError
        Not such a file.
    """
    path = os.fspath(path)
    if not os.path.exists(path):
        raise CheckpointError(f"{path}: there is no such file or folder")
    read = {".safetensors": load_safetensors, ".npz": load_npz, "": load_folder}
    try:
        arrays, metadata = read["" if os.path.isdir(path) else kind(path)](path)
    except CheckpointError:
        raise
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise CheckpointError(f"{path}: is not a trace that can be read: {error}") from None
    order = metadata.get("names", list(arrays))
    return {name: arrays[name] for name in sorted(arrays, key=rank(order))}, metadata


def kind(path):
    """The ending that decides: ``.safetensors``, ``.npz``, or nothing for a folder."""
    ending = os.path.splitext(path)[1]
    if ending not in (".safetensors", ".npz", ""):
        raise ValueError(
            f"{path}: a trace is written to *.safetensors, *.npz, or a folder (no ending), not to *{ending}"
        )
    return ending


def rank(order):
    place = {name: i for i, name in enumerate(order)}
    return lambda name: place.get(name, len(place))


def described(trace):
    """The metadata, and the names in order: not every format keeps it."""
    return trace.metadata | {"names": list(trace)}


def to_json(value):
    return json.dumps(value, ensure_ascii=False, default=plain)


def plain(value):
    """Arrays as lists; of a random generator, only what it was."""
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else type(value).__name__


def checked(metadata):
    if not isinstance(metadata, dict) or not isinstance(metadata.get("names", []), list):
        raise ValueError("the description is none of a trace")
    return metadata


# ---------------------------------------------------------------------------------------------
# One format each


def save_safetensors(trace, path):
    from .checkpoint import save_safetensors

    save_safetensors(path, trace, {name: to_json(value) for name, value in described(trace).items()})


def load_safetensors(path):
    from .checkpoint import read_safetensors

    tensors, metadata = read_safetensors(path)
    return dict(tensors), checked({name: json.loads(value) for name, value in metadata.items()})


def save_npz(trace, path):
    from .checkpoint.files import replacing

    with replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
        entry = zipfile.ZipInfo  # has a fixed date, so that equal traces are equal files
        archive.writestr(entry(METADATA), to_json(described(trace)))
        for name, array in trace.items():
            archive.writestr(entry(f"{name}.npy"), npy_bytes(array))


def npy_bytes(array):
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getbuffer()


def load_npz(path):
    with np.load(path, allow_pickle=False) as archive:
        names = [name for name in archive.files if name != METADATA]
        metadata = checked(json.loads(archive[METADATA])) if METADATA in archive.files else {}
        return {name: archive[name] for name in names}, metadata


def save_folder(trace, path):
    """Into a new folder beside it, which then takes its name."""
    path = path.rstrip("/" + os.sep)
    if os.path.exists(path):
        raise CheckpointError(f"{path}: is there already; give a new name, or delete it")
    temporary = f"{path}.{secrets.token_hex(4)}.tmp"
    try:
        os.mkdir(temporary)
        for name, array in trace.items():
            np.save(os.path.join(temporary, f"{name}.npy"), array, allow_pickle=False)
        with open(os.path.join(temporary, METADATA), "w", encoding="utf-8") as file:
            file.write(to_json(described(trace)))
        os.rename(temporary, path)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def load_folder(path):
    files = [name for name in os.listdir(path) if name.endswith(".npy")]
    if not files:
        raise CheckpointError(f"{path}: holds no .npy files")
    arrays = {name.removesuffix(".npy"): np.load(os.path.join(path, name), allow_pickle=False) for name in files}
    description = os.path.join(path, METADATA)
    if not os.path.isfile(description):
        return arrays, {}
    with open(description, encoding="utf-8") as file:
        return arrays, checked(json.load(file))
