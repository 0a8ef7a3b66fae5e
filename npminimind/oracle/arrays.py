"""Arrays as JSON: shape, dtype, and the numbers as decimals, hex floats or little-endian bytes."""

import base64
import math

import numpy as np

DTYPES = ("float64", "float32", "float16", "int64", "int32", "uint8", "bool")
NOT_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def to_json(array, form="data"):
    """An array as a dict of plain values.

    Parameters
    ----------
    array : array
    form : {"data", "hex", "base64"}
        Nested numbers; these and hex floats beside them; or bytes.

    Returns
    -------
    dict

    Notes
    -----
    Decimals are the shortest that read back exactly. JSON has no infinity: it is ``"inf"``, ``"-inf"``, ``"nan"``.

    Examples
    --------
    >>> to_json(np.array([[0.1, -np.inf]]), "hex")
    {'shape': [1, 2], 'dtype': 'float64', 'data': [[0.1, '-inf']], 'hex': ['0x1.999999999999ap-4', '-inf']}
    """
    array = np.asarray(array)
    described = {"shape": list(array.shape), "dtype": array.dtype.name}
    if form == "base64":
        raw = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
        return described | {"base64": base64.b64encode(raw).decode("ascii")}
    described["data"] = nested(array.tolist())
    if form == "hex" and array.dtype.kind == "f":
        described["hex"] = [hex_of(x) for x in array.ravel().tolist()]
    return described


def nested(value):
    if isinstance(value, list):
        return [nested(inner) for inner in value]
    return value if not isinstance(value, float) or math.isfinite(value) else hex_of(value)


def hex_of(x):
    return x.hex() if math.isfinite(x) else "nan" if math.isnan(x) else "inf" if x > 0 else "-inf"


def from_json(described):
    """The array that a dict describes.

    Raises
    ------
    ValueError
        What is wrong with it.

    Examples
    --------
    >>> from_json({"shape": [2], "dtype": "float32", "data": [1, "-inf"]})
    array([  1., -inf], dtype=float32)
    """
    shape, dtype = described.get("shape"), described.get("dtype")
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"an array needs a shape, a list of whole numbers; not {shape!r}")
    if dtype not in DTYPES:
        raise ValueError(f"dtype {dtype!r} is not known; known are {', '.join(DTYPES)}")
    if "base64" in described:
        values = from_bytes(described["base64"], dtype)
    elif "data" in described:
        values = from_numbers(described["data"], dtype)
    else:
        raise ValueError("an array needs its numbers, as data (nested numbers) or base64 (little-endian bytes)")
    if values.size != math.prod(shape):
        raise ValueError(f"shape {shape} needs {math.prod(shape)} numbers, there are {values.size}")
    return values.reshape(shape)


def from_bytes(text, dtype):
    try:
        raw = base64.b64decode(text, validate=True)
        return np.frombuffer(raw, np.dtype(dtype).newbyteorder("<")).astype(dtype)
    except (ValueError, TypeError) as error:
        raise ValueError(f"base64 can't be read as {dtype}: {error}") from None


def from_numbers(data, dtype):
    flat, kind = [], np.dtype(dtype).kind
    collect(data, flat)
    if kind in "iu" and not all(type(x) is int or isinstance(x, float) and x == int(x) for x in flat):
        raise ValueError(f"data of {dtype} must be whole numbers")
    with np.errstate(over="ignore"):
        return np.array(flat, np.float64).astype(dtype) if kind == "f" else np.array(flat, dtype)


def collect(data, flat):
    """Nested lists -> the numbers in them, in order."""
    if isinstance(data, list):
        for inner in data:
            collect(inner, flat)
    elif isinstance(data, str) and data in NOT_FINITE:
        flat.append(NOT_FINITE[data])
    elif isinstance(data, (int, float)):
        flat.append(data)
    else:
        raise ValueError(f"{data!r} is no number; infinities are written 'inf', '-inf', 'nan'")


def encode(value, form="data"):
    """Arrays in a nest of dicts and lists as JSON; everything else stays."""
    if isinstance(value, (np.ndarray, np.generic)):
        return to_json(value, form)
    if isinstance(value, dict):
        return {key: encode(inner, form) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(inner, form) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return hex_of(value)
    return value


def decode(value):
    """The reverse of :func:`encode`.

    Examples
    --------
    >>> decode(encode({"x": np.array([1, 2]), "p": 0.5, "k": None}))
    {'x': array([1, 2]), 'p': 0.5, 'k': None}
    """
    if isinstance(value, dict):
        if "shape" in value and "dtype" in value:
            return from_json(value)
        return {key: decode(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [decode(inner) for inner in value]
    if isinstance(value, str) and value in NOT_FINITE:
        return NOT_FINITE[value]
    return value
