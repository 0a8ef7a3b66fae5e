"""The safetensors format: eight bytes of header length, a JSON header, then the numbers.

Source: the format's description at https://github.com/huggingface/safetensors. Read as strictly as
the reference implementation does: every byte of the data belongs to exactly one tensor.
"""

import json
import os
import struct
from collections.abc import Mapping

import numpy as np

from .files import DOWNLOAD, kind_of, parse_json, quote, reading, refuse, replacing
from .stored import BLOCK, DTYPES, StoredTensor, check_shape, read_array, to_bfloat16

LONGEST_HEADER = 8 << 20  # bytes: room for some 80,000 tensors; a longer one is not ours
MOST_TENSORS = 200_000
CODES = {dtype: code for code, dtype in DTYPES.items() if code not in ("BF16", "BOOL")} | {np.dtype(bool): "BOOL"}
CODE_OF_NAME = {"float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64"}


# ---------------------------------------------------------------------------------------------
# Reading


class LazyTensors(Mapping):
    """Name -> array, read from the file when it is asked for. ``stored`` has shapes and types."""

    def __init__(self, stored):
        self.stored = stored

    def __getitem__(self, name):
        return read_array(self.stored[name])

    def __iter__(self):
        return iter(self.stored)

    def __len__(self):
        return len(self.stored)


def read_safetensors(path):
    """Open a safetensors file.

    Returns
    -------
    tensors : Mapping
        Name -> array; each is read when it is asked for. bfloat16 arrives as float32.
    metadata : dict
        Text -> text, empty where the file has none.

    Raises
    ------
    CheckpointError
    """
    path = os.fspath(path)
    kind = kind_of(path)
    if kind != "safetensors":
        refuse(path, f"is a {kind} file (a .pth?), not safetensors")
    stored, metadata = read_header(path)
    return LazyTensors(stored), metadata


def read_header(path):
    """Check a safetensors file from end to end without reading its numbers: StoredTensors, metadata."""
    with reading(path), open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(8)
        if len(start) < 8:
            refuse(path, f"has only {size} bytes, too few for safetensors; {DOWNLOAD}")
        (length,) = struct.unpack("<Q", start)
        if length > LONGEST_HEADER:
            refuse(path, f"claims a header of {length:,} bytes (at most {LONGEST_HEADER:,} are read)")
        header = file.read(length)
    if len(header) < length:
        refuse(path, f"ends within its header: {size:,} bytes of at least {length + 8:,}; {DOWNLOAD}")
    entries = parse_json(header, path, "the safetensors header")
    metadata = entries.pop("__metadata__", {})
    check_metadata(path, metadata)
    if len(entries) > MOST_TENSORS:
        refuse(path, f"lists {len(entries):,} tensors, more than {MOST_TENSORS:,}")
    stored = {name: read_entry(path, name, entry, 8 + length) for name, entry in entries.items()}
    check_layout(path, stored, 8 + length, size)
    return stored, metadata


def check_metadata(path, metadata):
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        refuse(path, "has a __metadata__ that is not text -> text; the file is damaged")


def read_entry(path, name, entry, data_start):
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        refuse(path, f"tensor {quote(name)} needs exactly dtype, shape and data_offsets; the header is damaged")
    code, offsets = entry["dtype"], entry["data_offsets"]
    if not isinstance(code, str) or code not in DTYPES:
        refuse(path, f"tensor {quote(name)} is of type {quote(code)}; known are {', '.join(DTYPES)}")
    shape = check_shape(path, name, entry["shape"])
    ok = isinstance(offsets, list) and len(offsets) == 2 and all(type(n) is int for n in offsets)
    if not ok or not 0 <= offsets[0] <= offsets[1] < 1 << 62:
        refuse(path, f"tensor {quote(name)} has impossible data_offsets; the header is damaged")
    tensor = StoredTensor(name, path, code, shape, data_start + offsets[0])
    if tensor.nbytes != offsets[1] - offsets[0]:
        refuse(
            path,
            f"tensor {quote(name)} needs {tensor.nbytes:,} bytes by its shape and type, "
            f"has {offsets[1] - offsets[0]:,}; the header is damaged",
        )
    return tensor


def check_layout(path, stored, position, size):
    """Tensors lie one after the other, without gaps and overlaps, up to the end of the file."""
    for tensor in sorted(stored.values(), key=lambda tensor: (tensor.offset, tensor.nbytes)):
        if tensor.offset != position:
            what = "overlaps the one before it" if tensor.offset < position else "leaves a gap before it"
            refuse(path, f"tensor {quote(tensor.name)} {what}; the file is damaged or hostile")
        position += tensor.nbytes
    if position != size:
        what = "truncated" if size < position else "longer than its header says"
        refuse(path, f"is {what}: {size:,} bytes of {position:,}; {DOWNLOAD}")


# ---------------------------------------------------------------------------------------------
# Writing


def save_safetensors(path, tensors, metadata=None, dtype=None):
    """Write arrays to a safetensors file, which appears only when it is complete.

    Parameters
    ----------
    path : str or path
    tensors : dict
        Name -> array. Any layout; written in C order, block by block.
    metadata : dict, optional
        Text -> text.
    dtype : {"float16", "bfloat16", "float32", "float64"}, optional
        Round all floating-point arrays to this type (to nearest, ties to even). By default each
        keeps its own.

    Raises
    ------
    CheckpointError
        The file cannot be written (a full disk), or a number is too large for `dtype`.
    """
    arrays = {name: np.asarray(array) for name, array in tensors.items()}
    codes = {name: code_of(path, name, array, dtype) for name, array in arrays.items()}
    # Widest elements first, as the reference implementation does: each tensor is then aligned.
    order = sorted(arrays, key=lambda name: (-DTYPES[codes[name]].itemsize, name))
    header, position = {"__metadata__": check_text(path, metadata)} if metadata else {}, 0
    for name in order:
        end = position + arrays[name].size * DTYPES[codes[name]].itemsize
        header[name] = {"dtype": codes[name], "shape": list(arrays[name].shape), "data_offsets": [position, end]}
        position = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with replacing(path) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in order:
            write_array(file, path, name, arrays[name], codes[name])


def check_text(path, metadata):
    if not all(isinstance(text, str) for pair in metadata.items() for text in pair):
        raise TypeError(f"metadata of {os.fspath(path)} must be text -> text")
    return dict(metadata)


def code_of(path, name, array, dtype):
    if not isinstance(name, str) or name == "__metadata__":
        raise TypeError(f"{name!r} cannot name a tensor in {os.fspath(path)}")
    if dtype is not None and dtype not in CODE_OF_NAME:
        raise ValueError(f"dtype must be one of {', '.join(CODE_OF_NAME)}, not {dtype!r}")
    if dtype is not None and array.dtype.kind == "f":
        return CODE_OF_NAME[dtype]
    code = CODES.get(array.dtype.newbyteorder("<"))
    if code is None:
        raise TypeError(f"safetensors has no type for {array.dtype} of {name!r}")
    return code


def write_array(file, path, name, array, code):
    """Write an array's elements in C order, through blocks where type or order differ."""
    if array.ndim == 0:
        array = array.reshape(1)
    if not array.size:
        return
    if array.flags.c_contiguous and array.dtype == DTYPES[code]:
        file.write(memoryview(array.reshape(-1).view(np.uint8)))
        return
    rows = max(1, BLOCK // max(1, array[0].size))
    for start in range(0, len(array), rows):
        block = narrow(path, name, array[start : start + rows], code)
        file.write(memoryview(block.reshape(-1).view(np.uint8)))


def narrow(path, name, block, code):
    """A block in the element type of the file, C-contiguous. Refuses to turn numbers into infinity."""
    with np.errstate(over="ignore"):
        if code == "BF16":
            result = to_bfloat16(block)
            infinite = (result & 0x7FFF) == 0x7F80
        else:
            result = np.ascontiguousarray(block, np.dtype(bool) if code == "BOOL" else DTYPES[code])
            infinite = np.isinf(result) if code in CODE_OF_NAME.values() else np.False_
    if infinite.any() and np.isfinite(block[infinite]).any():
        largest = np.abs(block[np.isfinite(block)]).max()
        refuse(path, f"{name} holds {largest:.4g}, too large for the type {code}; use bfloat16 or float32")
    return result
