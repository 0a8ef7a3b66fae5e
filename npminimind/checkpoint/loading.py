"""From a path to a config and filled weights: recognise, check everything, then read each tensor once."""

import os
from dataclasses import dataclass, field

import numpy as np

from ..params import Weights
from .configs import Mismatch, check_fit, read_config
from .files import read_json, reading, refuse
from .infer import infer_config, recognise
from .lora import merge_lora
from .names import rename
from .placing import check_tensors, placements
from .shapes import read_shapes
from .sources import find_source, read_tensors
from .stored import read_into
from .tokenizer_check import tokenizer_notes


@dataclass
class Checkpoint:
    """What a checkpoint is, and, after :func:`load_weights`, its weights.

    Attributes
    ----------
    path : str
    files : tuple of str
        The files of weights.
    config : MiniMindConfig
    generation : str
        "minimind-3", "minimind2", "minimind-1", "qwen3" or "llama".
    notes : list of str
        What was recognised, inferred, permuted, left out; plain sentences.
    inferred : bool
        There was no config that fits: names and shapes told, and some numbers are a generation's usual ones.
    tensors : dict
        Today's name -> StoredTensor (``name`` in the file, ``dtype``, ``shape``, ``nbytes``).
    generation_config : dict or None
        generation_config.json, or the EOS ids of a config.json that lists several.
    tokenizer_path : str or None
        A folder with tokenizer.json.
    weights : params.Weights or None
    neighbours : bool
        The file's q and k rows are ordered for RoPE on neighbours; loading reorders them.
    """

    path: str
    files: tuple
    config: object
    generation: str
    notes: list
    inferred: bool
    tensors: dict
    neighbours: bool = False
    generation_config: dict | None = None
    tokenizer_path: str | None = None
    weights: object = field(default=None, repr=False)

    @property
    def nbytes(self):
        """Bytes of the files."""
        return sum(map(os.path.getsize, self.files))

    @property
    def dtypes(self):
        """Element types in the file, the most frequent first: ``["F16"]``."""
        sizes = {}
        for tensor in self.tensors.values():
            sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + tensor.nbytes
        return sorted(sizes, key=sizes.get, reverse=True)


def load_weights(path, dtype=np.float32, config=None, lora=None):
    """Read a checkpoint: a folder, a ``.safetensors``, ``.pth`` or ``.bin`` file, an index of shards.

    Each tensor is read once, in small blocks, into its final place in :class:`params.Weights`, so
    memory never holds more than the weights and one block.

    Parameters
    ----------
    path : str or path
    dtype : numpy.float32 or numpy.float64
        What the model computes in; float16 and bfloat16 files are widened.
    config : MiniMindConfig, optional
        Instead of config.json. Without both, names and shapes tell, and ``notes`` say what.
    lora : str or path, optional
        A LoRA file, merged into the weights: ``W + B @ A``.

    Returns
    -------
    Checkpoint

    Raises
    ------
    CheckpointError
        Anything wrong with the files. The message begins with the file's name.
    """
    checkpoint = inspect(path, config)
    with reading(checkpoint.path):
        weights = Weights(checkpoint.config, dtype)
    for tensor, destinations in placements(checkpoint, weights.params):
        read_into(tensor, destinations)
    checkpoint.weights = weights
    if lora is not None:
        checkpoint.notes.append(merge_lora(lora, weights))
    return checkpoint


def inspect(path, config=None):
    """Everything about a checkpoint but its weights: what ``npminimind info`` shows.

    Reads headers and JSON only (and compares ``lm_head`` with ``embed_tokens`` where a file holds
    both as copies). See :func:`load_weights` for arguments and errors.
    """
    source = find_source(path)
    stored, notes = read_tensors(source)
    tensors, neighbours, more = rename(source.path, stored)
    shapes = read_shapes(source.path, tensors, neighbours)
    untied = shapes.has_head and not same_numbers(tensors["lm_head.weight"], tensors["model.embed_tokens.weight"])
    config, generation, found, inferred = choose_config(source, config, shapes, untied)
    notes += more + found + head_notes(config, shapes, untied) + rope_notes(neighbours)
    check_tensors(source.path, config, shapes, tensors)
    tokenizer = source.tokenizer_path
    notes += tokenizer_notes(tokenizer, config, generation) if tokenizer else []
    return Checkpoint(
        path=source.path,
        files=source.files,
        config=config,
        generation=generation,
        notes=notes,
        inferred=inferred,
        tensors=tensors,
        neighbours=neighbours,
        generation_config=read_generation_config(source),
        tokenizer_path=tokenizer,
    )


def read_generation_config(source):
    """generation_config.json; without one, a list of EOS ids in config.json; else None."""
    path, config = source.beside("generation_config.json"), source.beside("config.json")
    if path:
        return read_json(path)
    eos = read_json(config).get("eos_token_id") if config else None
    return {"eos_token_id": eos} if isinstance(eos, list) else None


# ---------------------------------------------------------------------------------------------
# Config


def choose_config(source, config, shapes, untied):
    """The given config, else config.json, else what names and shapes say.

    Returns
    -------
    config, generation, notes, inferred
    """
    if config is not None:
        check_fit(source.path, {}, config, shapes, "does not fit the given config, which says")
        if config.qk_norm != shapes.qk_norm:
            refuse(source.path, f"has {'' if shapes.qk_norm else 'no '}q/k norm, the given config says otherwise")
        return config, recognise(shapes)[0] or "llama", ["The config was given."], False
    beside = source.beside("config.json")
    if beside is None:
        return *infer_config(source.path, shapes, untied), True
    try:
        return *read_config(beside, read_json(beside), shapes, untied), False
    except Mismatch as mismatch:
        if not source.named_file:
            raise
        reason = f"Not used, another model's: {mismatch}."
    config, generation, notes = infer_config(source.path, shapes, untied)
    return config, generation, [reason, *notes], True


def head_notes(config, shapes, untied):
    if not shapes.has_head or not config.tie_word_embeddings:
        return ["The head is not tied: lm_head is a matrix of its own."] if shapes.has_head and untied else []
    return ["lm_head and embed_tokens are both stored and equal: the head is tied."]


def rope_notes(neighbours):
    if not neighbours:
        return []
    return [
        "Old key names were translated, and the rows of q_proj and k_proj reordered in each head, "
        "so that RoPE on halves computes what RoPE on neighbours did."
    ]


def same_numbers(one, other):
    """Whether two stored tensors hold the same bytes; compared block by block."""
    if one[1:] == other[1:]:
        return True
    if one.dtype != other.dtype or one.shape != other.shape or one.strides or other.strides:
        return False
    with reading(one.path), open(one.path, "rb", buffering=0) as a, open(other.path, "rb", buffering=0) as b:
        a.seek(one.offset)
        b.seek(other.offset)
        for start in range(0, one.nbytes, 1 << 18):
            count = min(1 << 18, one.nbytes - start)
            if a.read(count) != b.read(count):
                return False
    return True
