"""Which files a path stands for: weights (one file or shards), config.json, tokenizer."""

import os
from typing import NamedTuple

from .files import kind_of, quote, read_json, reading, refuse
from .pth import read_pth
from .safetensors import read_header

ENDINGS = (".safetensors", ".pth", ".pt", ".bin")
WHOLE = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "model.pth",
)
# Beside the weights lie things of the training that are none.
NO_WEIGHTS = ("training_args.bin", "optimizer", "scheduler", "rng_state", "adapter_model", "scaler")
MOST_SHARDS = 10_000


class Source(NamedTuple):
    path: str  # as the user named it
    folder: str
    files: tuple  # of weights
    named_file: bool  # the user named one file, not a folder
    index: str | None = None
    notes: tuple = ()

    def beside(self, name):
        """Path of a file of that name in the folder, or None."""
        path = os.path.join(self.folder, name)
        return path if os.path.isfile(path) else None

    @property
    def tokenizer_path(self):
        """The folder with tokenizer.json: this one, or ``model/`` as MiniMind's checkout has it."""
        for folder in (self.folder, os.path.join(self.folder, os.pardir, "model")):
            if os.path.isfile(os.path.join(folder, "tokenizer.json")):
                return os.path.normpath(folder)
        return None


def find_source(path):
    """The files behind a path: a folder, a file of weights, or an index of shards."""
    path = os.fspath(path)
    if os.path.isdir(path):
        return in_folder(path)
    if not os.path.exists(path):
        refuse(path, "no such file or folder (nothing is downloaded: give a path on this machine)")
    if not os.path.isfile(path):
        refuse(path, "is neither a folder nor a regular file")
    folder = os.path.dirname(path) or "."
    if path.endswith(".index.json"):
        return of_index(path, folder, path)
    if path.endswith(".json"):
        refuse(path, "is no file of weights; give its folder")
    return Source(path, folder, (path,), named_file=True)


def in_folder(folder):
    """The weights in a folder, by HF's usual names, or the only file of weights there is."""
    with reading(folder):
        names = sorted(os.listdir(folder))
    whole = [name for name in WHOLE if name in names]
    candidates = [name for name in names if name.endswith(ENDINGS) and not name.startswith(NO_WEIGHTS)]
    if not whole and not candidates:
        what = "no file of weights (*.safetensors, *.pth, *.bin)"
        also = [name for name in names if name.endswith(".gguf")]
        refuse(folder, f"holds {what}" + (f", only {quote(also[0])}, and GGUF is not read" if also else ""))
    if not whole and len(candidates) > 1:
        some = ", ".join(candidates[:8]) + (" ..." if len(candidates) > 8 else "")
        refuse(folder, f"holds {len(candidates)} files of weights; name one of them: {some}")
    chosen = (whole or candidates)[0]
    path = os.path.join(folder, chosen)
    if chosen.endswith(".index.json"):
        return of_index(folder, folder, path)
    return Source(folder, folder, (path,), named_file=False, notes=others_note(chosen, candidates))


def others_note(chosen, candidates):
    others = [name for name in candidates if name != chosen]
    return (f"{chosen} was read; beside it lie {', '.join(others[:4])}.",) if others else ()


def of_index(path, folder, index):
    """The shards that an index names: plain file names in the index's own folder."""
    names = set()
    for tensor, name in weight_map(index).items():
        if not isinstance(name, str) or not name or name != os.path.basename(name) or name in (".", ".."):
            refuse(index, f"puts {quote(tensor)} into {quote(name)}, which is no file name in this folder; refused")
        names.add(name)
    if len(names) > MOST_SHARDS:
        refuse(index, f"names {len(names):,} files, more than {MOST_SHARDS:,}")
    files = tuple(os.path.join(folder, name) for name in sorted(names))
    for file in files:
        if not os.path.isfile(file):
            refuse(index, f"names {quote(os.path.basename(file))}, which is not there; download it too")
    return Source(path, folder, files, named_file=False, index=index)


def weight_map(index):
    mapping = read_json(index).get("weight_map")
    if not isinstance(mapping, dict) or not mapping:
        refuse(index, "has no weight_map from tensors to files; the index is damaged")
    return mapping


def read_tensors(source):
    """All tensors of a source, name -> StoredTensor, and notes. Reads headers only."""
    stored, notes = {}, list(source.notes)
    for file in source.files:
        tensors, more = read_file(file)
        for name in tensors:
            if name in stored:
                refuse(file, f"holds {quote(name)}, which {os.path.basename(stored[name].path)} holds too")
        stored |= tensors
        notes += more
    if source.index:
        check_index(source, stored)
    check_claims(source, stored)
    return stored, notes


def read_file(path):
    if kind_of(path) == "zip":
        return read_pth(path)
    return read_header(path)[0], []


def check_index(source, stored):
    mapping = weight_map(source.index)
    for name, file in mapping.items():
        if name not in stored or os.path.basename(stored[name].path) != file:
            refuse(source.index, f"says that {quote(name)} lies in {quote(file)}, where it is not; download both again")
    extra = [name for name in stored if name not in mapping]
    if extra:
        refuse(source.index, f"does not list {quote(extra[0])}, which the files hold; download it again")


def check_claims(source, stored):
    """Tensors may share memory (a tied head), but not claim many times what the files hold."""
    claimed = sum(tensor.nbytes for tensor in stored.values())
    held = sum(map(os.path.getsize, source.files))
    if claimed > 3 * held:
        refuse(source.path, f"claims {claimed:,} bytes of tensors in {held:,} bytes of files; damaged or hostile")
