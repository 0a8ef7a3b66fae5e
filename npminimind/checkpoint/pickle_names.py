"""What the names in torch.save's pickles stand for: descriptions of storages and tensors, nothing else.

Source: ``torch/_utils.py`` for the arguments.
"""

from typing import NamedTuple


class Refused(Exception):
    """What was found; the caller adds the file's name."""


class Name(NamedTuple):
    """A module and a name that the pickle asks for: never looked up anywhere."""

    name: str


class Storage(NamedTuple):
    """A block of numbers: which entry of the archive, element type, how many elements."""

    key: str
    dtype: str | None  # None: bytes
    count: int


class Tensor(NamedTuple):
    """A view of a storage; ``offset`` and ``stride`` count elements."""

    storage: Storage
    dtype: str
    offset: int
    shape: tuple
    stride: tuple


# ---------------------------------------------------------------------------------------------
# The names that mean something

STORAGES = {
    "DoubleStorage": "F64",
    "FloatStorage": "F32",
    "HalfStorage": "F16",
    "BFloat16Storage": "BF16",
    "LongStorage": "I64",
    "IntStorage": "I32",
    "ShortStorage": "I16",
    "CharStorage": "I8",
    "ByteStorage": "U8",
    "BoolStorage": "BOOL",
}
TORCH_DTYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}
VALUES = {f"torch.{name}" for name in STORAGES} | {f"torch.cuda.{name}" for name in STORAGES}
VALUES |= {"torch.storage.UntypedStorage"} | {f"torch.{name}" for name in TORCH_DTYPES}


def is_count(value):
    return type(value) is int and 0 <= value < 1 << 62


def is_counts(value):
    return type(value) is tuple and all(is_count(n) for n in value)


def tensor_of(storage, dtype, offset, shape, stride):
    fits = type(storage) is Storage and is_count(offset) and is_counts(shape) and is_counts(stride)
    if not fits or len(shape) != len(stride) or len(shape) > 16 or dtype is None:
        raise Refused("rebuilds a tensor from impossible arguments; the file is damaged or hostile")
    return Tensor(storage, dtype, offset, shape, stride)


def rebuild_tensor(storage=None, offset=None, shape=None, stride=None, *_):
    return tensor_of(storage, getattr(storage, "dtype", None), offset, shape, stride)


def rebuild_tensor_v3(storage=None, offset=None, shape=None, stride=None, grad=None, hooks=None, dtype=None, *_):
    """As v2, over a storage of bytes; the element type is an argument of its own."""
    name = dtype.name.removeprefix("torch.") if type(dtype) is Name else ""
    return tensor_of(storage, TORCH_DTYPES.get(name), offset, shape, stride)


def rebuild_parameter(data=None, *_):
    if type(data) is not Tensor:
        raise Refused("rebuilds a parameter from something else than a tensor")
    return data


def ordered_dict(*arguments):
    if arguments:
        raise Refused("gives OrderedDict arguments, which torch.save does not")
    return {}


def size_of(shape=(), *_):
    if not is_counts(shape):
        raise Refused("makes a torch.Size of something else than sizes")
    return shape


CALLS = {
    "torch._utils._rebuild_tensor": rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": rebuild_tensor,
    "torch._utils._rebuild_tensor_v3": rebuild_tensor_v3,
    "torch._utils._rebuild_parameter": rebuild_parameter,
    "collections.OrderedDict": ordered_dict,
    "torch.Size": size_of,
    "torch.device": lambda *_: None,
}
