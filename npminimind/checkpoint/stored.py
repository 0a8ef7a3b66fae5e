"""Tensors where they lie in a file, and how their numbers get into arrays: in small blocks, never twice."""

import math
from typing import NamedTuple

import numpy as np

from .files import quote, reading, refuse

# safetensors' names of element types -> how NumPy sees the bytes. bfloat16 is the upper half of a
# float32; NumPy lacks it, so it is read as uint16 and widened.
DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "u1",
    "BOOL": "u1",
}
DTYPES = {code: np.dtype(dtype) for code, dtype in DTYPES.items()}
FLOATS = ("F64", "F32", "F16", "BF16")
WIDENED = {"BF16": np.dtype(np.float32), "BOOL": np.dtype(bool)}

BLOCK = 1 << 15  # elements: 128 KB of float32, which stays in the cache while it is transposed
MOST_DIMS = 16
LARGEST_DIM = 1 << 40


class StoredTensor(NamedTuple):
    """One tensor in a file: all that is needed to read it, and none of its numbers.

    ``strides`` (in elements) is None for a tensor whose numbers lie one after the other.
    """

    name: str
    path: str
    dtype: str  # a key of DTYPES
    shape: tuple
    offset: int  # of its first byte, in the file
    strides: tuple | None = None

    @property
    def nbytes(self):
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


def check_shape(path, name, shape):
    """Refuse what cannot be a shape, and products that no 64-bit machine can address."""
    ok = isinstance(shape, (list, tuple)) and len(shape) <= MOST_DIMS
    ok = ok and all(type(n) is int and 0 <= n <= LARGEST_DIM for n in shape)
    if not ok or math.prod(n or 1 for n in shape) > LARGEST_DIM:
        refuse(path, f"tensor {quote(name)} has an impossible shape; the file is damaged or hostile")
    return tuple(shape)


# ---------------------------------------------------------------------------------------------
# Half precision


def widen(block, code):
    """Stored elements -> elements that NumPy can compute with (bfloat16 -> float32)."""
    if code == "BF16":
        return np.left_shift(block, 16, dtype=np.uint32).view(np.float32)
    if code == "F16" and block.flags.c_contiguous:
        return widen_half(block)
    return block != 0 if code == "BOOL" else block


def widen_half(block):
    """float16 -> float32, exactly; some five times as fast as ``astype`` (NumPy 2.4, x86).

    The sign and the 15 bits below it move to where float32 has them, and 2**112 makes up for the
    different exponent bias. That fails for infinity and NaN, and where a library switched
    subnormal numbers off for speed: then ``astype`` does it.

    Examples
    --------
    >>> widen_half(np.float16([1.5, -6e-8, 65504]))
    array([ 1.5000000e+00, -5.9604645e-08,  6.5504000e+04], dtype=float32)
    """
    bits = np.left_shift(block.view(np.int16), 13, dtype=np.int32)  # the sign fills the upper bits
    bits &= np.int32(-0x70002000)  # 0x8fffe000: sign, exponent, fraction
    wide = bits.view(np.float32)
    wide *= np.float32(2.0**112)
    normal = wide.size == 0 or (wide.max() < 65536 and wide.min() > -65536)
    return wide if normal and SUBNORMAL * np.float32(2.0**112) > 0 else block.astype(np.float32)


SUBNORMAL = np.array([1 << 13], np.uint32).view(np.float32)  # what float16's smallest number becomes


def to_bfloat16(x):
    """Round float32 to bfloat16, to nearest, ties to even; the result holds the bits as uint16.

    Examples
    --------
    >>> [hex(bits) for bits in to_bfloat16(np.float32([1, 1 + 2**-8, 1 + 3 * 2**-8, np.inf]))]
    ['0x3f80', '0x3f80', '0x3f82', '0x7f80']
    """
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    odd = (bits >> 16) & 1
    rounded = ((bits + np.uint32(0x7FFF) + odd) >> 16).astype(np.uint16)
    quiet_nan = ((bits >> 16) | 0x40).astype(np.uint16)  # rounding could carry a NaN into infinity
    return np.where(np.isnan(x), quiet_nan, rounded)


# ---------------------------------------------------------------------------------------------
# Reading


def read_exactly(file, path, buffer):
    """Fill a C-contiguous array with the file's next bytes."""
    view = memoryview(buffer.reshape(-1).view(np.uint8))
    while len(view):
        got = file.readinto(view)
        if not got:
            refuse(path, "ends in the middle of a tensor: the file is truncated; download it again")
        view = view[got:]


def fill(destination, file, path, code):
    """Read ``destination.size`` elements, in C order, into an array of any layout and float type.

    Straight into its memory where type and order allow it; else block by block through a small
    buffer: the destination may lie column by column (``params.empty``), and a block is transposed
    out of the cache, not out of memory.
    """
    if not destination.size:
        return
    dtype = DTYPES[code]
    if destination.dtype == dtype and destination.flags.c_contiguous:
        return read_exactly(file, path, destination)
    if destination.ndim == 0:
        destination = destination.reshape(1)
    row_size = destination[0].size
    if row_size > BLOCK and destination.ndim > 1:
        for row in destination:
            fill(row, file, path, code)
        return
    rows = max(1, BLOCK // row_size)
    rows -= rows % 16 if rows > 16 else 0  # whole cache lines of a column
    buffer = np.empty((min(rows, len(destination)), *destination.shape[1:]), dtype)
    for start in range(0, len(destination), rows):
        part = destination[start : start + rows]
        block = buffer[: len(part)]
        read_exactly(file, path, block)
        part[...] = widen(block, code)


def fill_strided(destinations, file, tensor):
    """Like :func:`fill` for a view of a storage, e.g. a transposed matrix in a ``.pth``."""
    extent = 1 + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.strides))
    storage = np.empty(extent if math.prod(tensor.shape) else 0, DTYPES[tensor.dtype])
    read_exactly(file, tensor.path, storage)
    strides = [stride * storage.itemsize for stride in tensor.strides]
    flat = widen(np.lib.stride_tricks.as_strided(storage, tensor.shape, strides), tensor.dtype).reshape(-1)
    for destination in destinations:
        destination[...] = flat[: destination.size].reshape(destination.shape)
        flat = flat[destination.size :]


def read_into(tensor, destinations):
    """Read a tensor into one array, or into several that its elements fill one after the other."""
    with reading(tensor.path), open(tensor.path, "rb", buffering=0) as file:
        file.seek(tensor.offset)
        if tensor.strides is not None:
            return fill_strided(destinations, file, tensor)
        for destination in destinations:
            fill(destination, file, tensor.path, tensor.dtype)


def read_array(tensor):
    """A stored tensor as a new array, in its own type (bfloat16 as float32)."""
    with reading(tensor.path):
        array = np.empty(tensor.shape, WIDENED.get(tensor.dtype, DTYPES[tensor.dtype]))
    read_into(tensor, [array])
    return array
