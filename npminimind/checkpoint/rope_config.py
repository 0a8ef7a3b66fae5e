"""RoPE's base and scaling in config.json: two spellings of each, YaRN, and what is not computed here."""

import math

from ..config import YARN
from .files import quote, refuse


def rope_fields(path, raw, family, fields, notes):
    """RoPE's base and scaling, from ``rope_theta`` + ``rope_scaling`` or from ``rope_parameters``."""
    rope = {}
    for name in ("rope_scaling", "rope_parameters"):
        part = raw.get(name)
        if part is not None and not isinstance(part, dict):
            refuse(path, f"{name} must be an object or null, not a {type(part).__name__}")
        rope |= part or {}
    result = {}
    theta = rope.get("rope_theta", raw.get("rope_theta"))
    if theta is not None:
        result["rope_theta"] = theta
    kind = rope.get("rope_type", rope.get("type"))
    off = family == "minimind" and raw.get("inference_rope_scaling") is False
    if raw.get("inference_rope_scaling") is True and kind is None:
        return result | {"inference_rope_scaling": True}
    if kind in (None, "default") or off:
        if kind is None and any(isinstance(value, dict) for value in rope.values()):
            refuse(path, "has rope_parameters by layer type, which MiniMind does not have")
        return result
    if kind != "yarn":
        refuse(path, f"asks for RoPE scaling of type {quote(kind)}; known: yarn")
    result["rope_scaling"] = yarn_of(path, rope, raw, fields)
    result["inference_rope_scaling"] = True
    return result | longer_table(family, result["rope_scaling"], fields, notes)


def yarn_of(path, rope, raw, fields):
    """A YaRN dict with every number in it, by HF's defaults where the config has none."""
    for name in ("mscale", "mscale_all_dim"):
        if rope.get(name):
            refuse(path, f"asks for YaRN with {name}, which we do not compute")
    if rope.get("truncate") is False:
        refuse(path, "asks for YaRN with truncate=false, which we do not compute")
    scaling = {"type": "yarn"}
    for name in YARN:
        if name != "type" and rope.get(name) is not None:
            scaling[name] = rope[name]
    scaling.setdefault("original_max_position_embeddings", fields.get("max_position_embeddings"))
    scaling.setdefault("beta_fast", YARN["beta_fast"])
    scaling.setdefault("beta_slow", YARN["beta_slow"])
    factor = scaling.get("factor")
    if isinstance(factor, (int, float)) and not isinstance(factor, bool) and 1 <= factor < 1e9:
        scaling.setdefault("attention_factor", 0.1 * math.log(factor) + 1.0)
    return {name: scaling.get(name) for name in YARN}


def longer_table(family, scaling, fields, notes):
    """HF scales always, MiniMind only a table longer than the trained one: give it that length."""
    original, longest = scaling["original_max_position_embeddings"], fields.get("max_position_embeddings")
    numbers = (original, longest, scaling["factor"])
    if family == "minimind" or not all(type(n) in (int, float) and 0 < n < 1e9 for n in numbers) or longest > original:
        return {}
    notes.append("YaRN is on from the first position, as in transformers; the table is original * factor long.")
    return {"max_position_embeddings": max(int(original * scaling["factor"]), int(original) + 1)}
