"""LoRA: a small correction of some matrices, ``W x + B (A x)``, merged into them: ``W += B @ A``."""

import math
import os
import re
from typing import NamedTuple

import numpy as np

from .files import quote, read_json, refuse
from .names import current_name, strip_prefixes
from .row_order import in_file_order
from .sources import read_file
from .stored import FLOATS, read_into

MINIMIND = re.compile(r"(.+)\.lora\.([AB])\.weight")
PEFT = re.compile(r"base_model\.model\.(.+)\.lora_([AB])(?:\.default)?\.weight")


class Pair(NamedTuple):
    """The two factors for one matrix, as they lie in the file."""

    down: object  # A [r, in]
    up: object  # B [out, r]
    neighbours: bool  # old names: rows of q and k are ordered for RoPE on neighbours


def merge_lora(path, weights):
    """Add a LoRA to weights, in place.

    Parameters
    ----------
    path : str or path
        MiniMind's own file (``....lora.A.weight [r, in]``, ``....lora.B.weight [out, r]``, no
        alpha), or a folder of HF's peft (adapter_config.json and adapter_model.safetensors).
    weights : params.Weights

    Returns
    -------
    str
        What was done, for the user.

    Raises
    ------
    CheckpointError
        The file is no LoRA, or belongs to another model; the weights are then as they were.
    """
    path, alpha = find_adapter(os.fspath(path))
    pairs = find_pairs(path, read_file(path)[0])
    for name, pair in pairs.items():
        check_pair(path, name, pair, weights.params)
    for name, pair in pairs.items():
        rank = pair.down.shape[0]
        weights.params[name] += product(pair, weights, name) * weights.dtype.type(alpha(rank))
    ranks = ", ".join(map(str, sorted({pair.down.shape[0] for pair in pairs.values()})))
    return f"LoRA {os.path.basename(path)} merged into {len(pairs)} matrices, rank {ranks}."


def find_adapter(path):
    """The file of weights, and the function rank -> factor (1 for MiniMind's own)."""
    if not os.path.exists(path):
        refuse(path, "no such file or folder")
    if not os.path.isdir(path):
        return path, lambda rank: 1.0
    config, weights = (os.path.join(path, name) for name in ("adapter_config.json", "adapter_model.safetensors"))
    if not (os.path.isfile(config) and os.path.isfile(weights)):
        refuse(path, "is no LoRA folder (adapter_config.json and adapter_model.safetensors); name the file")
    return weights, peft_factor(config, read_json(config))


def peft_factor(path, raw):
    """alpha / rank, or alpha / sqrt(rank); what else peft can do is refused by name."""
    for name in ("use_dora", "rank_pattern", "alpha_pattern", "fan_in_fan_out", "modules_to_save", "lora_bias"):
        if raw.get(name):
            refuse(path, f"asks for {name}, which is not merged here; merge it with peft")
    alpha = raw.get("lora_alpha")
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not 0 < alpha < 1e6:
        refuse(path, "has no sensible lora_alpha")
    root = raw.get("use_rslora") is True
    return lambda rank: alpha / (math.sqrt(rank) if root else rank)


def find_pairs(path, stored):
    """Today's name of a matrix -> its :class:`Pair`."""
    halves = {}
    for name, tensor in stored.items():
        match = MINIMIND.fullmatch(strip_prefixes(name)) or PEFT.fullmatch(name)
        if not match:
            refuse(path, f"is no LoRA file, or not only: it holds {quote(name)}")
        target, old = current_name(f"{match[1]}.weight")
        if (target, match[2]) in halves:
            refuse(path, f"holds two LoRA factors {match[2]} for {quote(target)}")
        halves[target, match[2]] = tensor, old
    for target, part in halves:
        if (target, "B" if part == "A" else "A") not in halves:
            refuse(path, f"holds only half of the LoRA for {quote(target)}; download it again")
    return {t: Pair(a, halves[t, "B"][0], old) for (t, part), (a, old) in halves.items() if part == "A"}


def check_pair(path, name, pair, params):
    if name not in params:
        refuse(path, f"corrects {quote(name)}, which this model does not have; it is of another model")
    shape, a, b = params[name].shape, pair.down.shape, pair.up.shape
    if len(shape) != 2 or len(a) != 2 or (a[1], b) != (shape[1], (shape[0], a[0])) or not a[0]:
        refuse(path, f"has factors {list(b)} and {list(a)} for {quote(name)} {list(shape)}; it is of another model")
    for tensor in (pair.down, pair.up):
        if tensor.dtype not in FLOATS:
            refuse(path, f"holds {quote(tensor.name)} of type {tensor.dtype}, expected one of {', '.join(FLOATS)}")


def product(pair, weights, name):
    """``B @ A``, its rows in today's order."""
    a = np.empty(pair.down.shape, weights.dtype)
    b = np.empty(pair.up.shape, weights.dtype)
    read_into(pair.down, [a])
    read_into(pair.up, [in_file_order(b, name, pair.neighbours, weights.config.head_dim)])
    return b @ a
