"""Write a ``.pth`` that ``torch.load(..., weights_only=True)`` reads, without torch.

The pickle is put together from the few instructions that ``pickle_subset`` reads.
"""

import struct

import numpy as np

from .files import replacing
from .safetensors import code_of, write_array
from .stored import DTYPES

STORAGE_NAMES = {"F64": "DoubleStorage", "F32": "FloatStorage", "F16": "HalfStorage", "BF16": "BFloat16Storage"}


def save_pth(path, tensors, dtype, tied=()):
    """Write a state dict as torch.save does: a zip of one pickle and one entry a storage.

    Parameters
    ----------
    path : str or path
    tensors : dict of str -> array
    dtype : str
        Element type of the file, see :func:`save_safetensors`.
    tied : dict of str -> str
        Names that are second views of others' storages (``lm_head`` of ``embed_tokens``).
    """
    import zipfile

    arrays = {name: np.asarray(array) for name, array in tensors.items()}
    codes = {name: code_of(path, name, array, dtype) for name, array in arrays.items()}
    keys = {name: str(i) for i, name in enumerate(arrays)}
    shown = {name: name for name in arrays} | dict(tied)
    program = pickle_of({name: (keys[of], codes[of], arrays[of].shape) for name, of in shown.items()})
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        add(archive, "archive/data.pkl", lambda out: out.write(program), len(program))
        add(archive, "archive/byteorder", lambda out: out.write(b"little"), 6)
        for name, array in arrays.items():
            size = array.size * DTYPES[codes[name]].itemsize
            add(archive, f"archive/data/{keys[name]}", writer(path, name, array, codes[name]), size)
        add(archive, "archive/version", lambda out: out.write(b"3\n"), 2)


def writer(path, name, array, code):
    return lambda out: write_array(out, path, name, array, code)


def add(archive, name, write, size):
    """One entry, with a fixed date, so that equal models are equal files."""
    from zipfile import ZipInfo

    info = ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    info.file_size = size
    with archive.open(info, "w", force_zip64=size > 1 << 31) as out:
        write(out)


def pickle_of(views):
    """The pickle of a dict, name -> (storage key, element type, shape)."""
    items = b"".join(text(name) + tensor(*view) for name, view in views.items())
    return b"\x80\x02}(" + items + b"u."


def text(value):
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def integer(value):
    if value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    return b"\x8a\x08" + struct.pack("<q", value)


def integers(values):
    return b"(" + b"".join(map(integer, values)) + b"t"


def tensor(key, code, shape):
    """``_rebuild_tensor_v2(storage, 0, shape, strides, False, OrderedDict())``."""
    count = int(np.prod(shape, dtype=np.int64))
    strides = [int(np.prod(shape[i + 1 :], dtype=np.int64)) for i in range(len(shape))]
    storage = text("storage") + b"ctorch\n" + STORAGE_NAMES[code].encode() + b"\n"
    storage = b"(" + storage + text(key) + text("cpu") + integer(count) + b"tQ"
    rest = integer(0) + integers(shape) + integers(strides) + b"\x89" + b"ccollections\nOrderedDict\n)R"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + rest + b"tR"
