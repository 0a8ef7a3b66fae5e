"""``.pth`` files: torch.save's zip of one pickle and one entry a storage, read without torch."""

import math
import os

from .files import DOWNLOAD, RESAVE, quote, reading, refuse
from .pickle_names import Refused, Tensor
from .pickle_subset import LARGEST_PROGRAM, run
from .stored import DTYPES, StoredTensor, check_shape
from .zip_entries import data_offset, read_entries

WRAPPERS = ("model", "state_dict", "model_state_dict", "module", "net")  # where training scripts put the weights


def read_pth(path):
    """The tensors of a ``.pth``, name -> StoredTensor, none of their numbers read; and notes."""
    path = os.fspath(path)
    entries = read_entries(path)
    root = find_root(path, entries)
    with reading(path), open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        check_byteorder(path, file, entries, root, size)
        try:
            value = run(read_entry(path, file, entries, f"{root}data.pkl", size))
        except Refused as error:
            refuse(path, str(error))
        tensors, notes = find_state_dict(path, value)
        storages = {}
        stored = {name: locate(path, file, entries, root, size, name, t, storages) for name, t in tensors.items()}
    return stored, notes


def find_root(path, entries):
    """The folder inside the archive: torch names it after the file."""
    roots = [name.removesuffix("data.pkl") for name in entries if name == "data.pkl" or name.endswith("/data.pkl")]
    if not roots:
        refuse(path, f"is a zip archive but no .pth of torch.save (no data.pkl in it); {RESAVE}")
    if len(roots) > 1:
        refuse(path, f"has {len(roots)} entries data.pkl, a .pth has one; the file is damaged or hostile")
    if f"{roots[0]}constants.pkl" in entries:
        refuse(path, f"is a TorchScript program, not a dict of tensors; {RESAVE}")
    return roots[0]


def read_entry(path, file, entries, name, size):
    entry = entries[name]
    if entry.size > LARGEST_PROGRAM:
        refuse(path, f"zip entry {quote(name)} has {entry.size:,} bytes, more than {LARGEST_PROGRAM:,}")
    file.seek(data_offset(path, file, name, entry, size))
    return file.read(entry.size)


def check_byteorder(path, file, entries, root, size):
    name = f"{root}byteorder"
    if name in entries and read_entry(path, file, entries, name, size).strip() != b"little":
        refuse(path, "was saved on a big-endian machine; re-save it on a little-endian one")


def find_state_dict(path, value):
    """The dict of tensors in what was saved: itself, or under "model", "state_dict" and so on."""
    notes, where = [], []
    while isinstance(value, dict) and len(where) < 4:
        wrapper = next((key for key in WRAPPERS if isinstance(value.get(key), dict)), None)
        if wrapper is None:
            break
        where.append(wrapper)
        value = value[wrapper]
    if where:
        notes.append(f"The weights lie under {' -> '.join(map(repr, where))} of what was saved.")
    tensors = value if isinstance(value, dict) else {}
    others = [name for name, item in tensors.items() if type(item) is not Tensor or type(name) is not str]
    if len(others) == len(tensors):
        refuse(path, f"holds no dict of tensors (but a {type(value).__name__}); {RESAVE}")
    if others:
        notes.append(f"Entries that are no tensors were left out: {', '.join(quote(n) for n in others[:5])}.")
    return {name: item for name, item in tensors.items() if type(item) is Tensor and type(name) is str}, notes


def locate(path, file, entries, root, size, name, tensor, storages):
    """Where a tensor's numbers lie in the file; refuses views that leave their storage."""
    storage, itemsize = tensor.storage, DTYPES[tensor.dtype].itemsize
    shape = check_shape(path, name, tensor.shape)
    if storage.key not in storages:
        storages[storage.key] = locate_storage(path, file, entries, root, size, name, storage)
    start, nbytes = storages[storage.key]
    count, room = math.prod(shape), nbytes // itemsize
    last = sum((n - 1) * stride for n, stride in zip(shape, tensor.stride)) if count else -1
    if count > room:
        claim = f"has more elements ({count:,}) than its storage ({room:,})"
        refuse(path, f"tensor {quote(name)} {claim}; re-save a .clone() of it")
    if tensor.offset + last >= room:
        refuse(path, f"tensor {quote(name)} reaches beyond its storage; the file is damaged or hostile")
    strides = None if is_contiguous(shape, tensor.stride) else tensor.stride
    return StoredTensor(name, path, tensor.dtype, shape, start + tensor.offset * itemsize, strides)


def locate_storage(path, file, entries, root, size, name, storage):
    """Start and length, in bytes, of the zip entry that holds a storage."""
    entry_name = f"{root}data/{storage.key}"
    if entry_name not in entries:
        refuse(path, f"tensor {quote(name)} lies in the entry {quote(entry_name)}, which is missing; {DOWNLOAD}")
    entry = entries[entry_name]
    expected = storage.count * (DTYPES[storage.dtype].itemsize if storage.dtype else 1)
    if entry.size != expected:
        refuse(path, f"zip entry {quote(entry_name)} has {entry.size:,} bytes instead of {expected:,}; {DOWNLOAD}")
    return data_offset(path, file, entry_name, entry, size), entry.size


def is_contiguous(shape, stride):
    """Whether a view's elements lie one after the other (strides of single rows do not matter)."""
    expected = 1
    for n, step in zip(reversed(shape), reversed(stride)):
        if n != 1 and step != expected:
            return False
        expected *= n
    return True
