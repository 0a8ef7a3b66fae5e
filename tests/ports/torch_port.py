"""A whole port for the tests of ``conform``: torch, transformers and exact arithmetic, none of npminimind's own."""

import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "reference_weights" / "vectors" / "make"))

import exact
import hf_truth
import torch_truth

KNOWN = exact.EXACT | hf_truth.KNOWN | torch_truth.OPERATORS | torch_truth.MODELS


def plain(value):
    """Arrays as nested lists."""
    if isinstance(value, dict):
        return numbers(value["data"]) if "shape" in value else {key: plain(v) for key, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, list) else value


def numbers(data):
    return [numbers(x) for x in data] if isinstance(data, list) else float(data) if isinstance(data, str) else data


def encoded(value):
    if isinstance(value, str):
        return value
    array = np.asarray(np.array(value, dtype=object) if isinstance(value, list) else value)
    whole = all(isinstance(x, (int, np.integer)) for x in array.ravel())
    array = array.astype(np.int64 if whole else np.float64)
    flat = [x if np.isfinite(x) else str(x) for x in array.ravel().tolist()]
    return {"shape": list(array.shape), "dtype": array.dtype.name, "data": flat}


for line in sys.stdin:
    request = json.loads(line)
    answer = {"id": request["id"]}
    if request["op"] in KNOWN:
        try:
            out = {name: encoded(value) for name, value in KNOWN[request["op"]](plain(request["args"])).items()}
            answer["out"] = out["out"] if list(out) == ["out"] else out
        except Exception as error:  # it has no checks of its own: what breaks is refused
            answer["error"] = f"{type(error).__name__}: {error}"
    else:
        answer["unsupported"] = True
    print(json.dumps(answer), flush=True)
