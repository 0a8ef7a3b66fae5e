"""How far float32 is off by itself, name by name: what may differ without being wrong."""

import re

import numpy as np

from .compare_arrays import counted, difference, rms_of
from .compare_run import place_of, replay

FLOAT32 = float(np.finfo(np.float32).eps)
SLACK = 10  # other orders of summation: a candidate may be ten times as far off as our own float32

# Where nothing can be measured: greatest error over root mean square, in units of float32's eps: at layer 0, and
# what each further layer adds. Rounded up from what NumPy's float32 was off by in ten models (the nine small
# configurations that upstream was recorded with, and a random one of MiniMind-3's width); the tests measure again.
STATED = {
    "rope.cos": (16, 0),
    "rope.sin": (16, 0),
    "model.embed_tokens": (1, 0),
    "model.layers.{i}.mlp": (64, 24),
    "model.layers.{i}.mlp.hidden": (112, 32),
    "sample.probs": (720, 32),
}
OTHERS = (48, 16)


def measured_floors(model, run, reference):
    """Recompute the reference in float32 and float64, and see how far apart they are.

    Parameters
    ----------
    model : MiniMindForCausalLM
        The one that made the reference.
    run : Run
    reference : dict of str -> array

    Returns
    -------
    dict of str -> float
        Greatest error over the root mean square; that of a name is at least that of its like in earlier layers and
        in every round.

    Raises
    ------
    ValueError
        The model does not compute what the reference says.
    """
    truth, single = (replay(model.astype(dtype), run) for dtype in (np.float64, np.float32))
    floors = {}
    for name, array in truth.items():
        other = single.get(name)
        if name in reference and array.dtype.kind == "f" and other is not None and other.shape == array.shape:
            d = difference(array, other, counted(name, array.shape, run, truth))
            floors[name] = d.relative if np.isfinite(d.relative) else 0.0
    floors = spread(floors)
    check_reproduces(truth, reference, floors, run)
    return floors


def check_reproduces(truth, reference, floors, run):
    for name, floor in floors.items():
        ours, theirs = truth[name], np.asarray(reference[name])
        same = ours.shape == theirs.shape
        d = difference(ours, theirs, counted(name, ours.shape, run, truth)) if same else None
        if d is None or d.relative > allowed(floor, ours):
            raise ValueError(f"the model does not compute the reference: they part at {name}; --model names another")


def spread(floors):
    """The floor of a name covers all rounds, all experts, and its like in earlier layers."""
    worst = {}
    for name, floor in floors.items():
        kind, layer = like(name)
        worst.setdefault(kind, {})[layer] = max(floor, worst.get(kind, {}).get(layer, 0.0))
    for by_layer in worst.values():
        so_far = 0.0
        for layer in sorted(by_layer):
            by_layer[layer] = so_far = max(so_far, by_layer[layer])
    return {name: worst[like(name)[0]][like(name)[1]] for name in floors}


def like(name):
    """What a name is, and in which layer (-1 outside of all)."""
    _, rest, kind = place_of(name)
    layer = int(rest.split(".")[2]) if rest.startswith("model.layers.") else -1
    return kind, layer


def stated_floors(reference):
    """A stated model of rounding: a constant by kind of name, growing with the layers and with the position.

    The angle of a rotation is rounded relative to its size, so an error of ``eps * position`` comes in with RoPE.
    """
    layers = 1 + max((like(name)[1] for name in reference), default=0)
    positions = max((np.shape(array)[-1] for name, array in reference.items() if name.endswith("scores")), default=1)
    floors = {}
    for name, array in reference.items():
        if np.asarray(array).dtype.kind == "f":
            kind, layer = like(name)
            first, each = STATED.get(re.sub(r"experts\.\{e\}\.", "", kind), OTHERS)
            angle = 0 if kind == "model.embed_tokens" else positions / 2
            floors[name] = FLOAT32 * (first + each * (layer if layer >= 0 else layers) + angle)
    return floors


def allowed(floor, array, count=True):
    """What may differ, relative to the root mean square: ``SLACK`` times the floor.

    Writing a number down in float32 costs half a unit in its last place, so no floor lies below that.
    """
    rms = rms_of(np.asarray(array), count)
    finite = np.abs(array[np.isfinite(array) & count]) if rms else np.zeros(1)
    return SLACK * max(floor, FLOAT32 * float(finite.max(initial=0)) / rms if rms else FLOAT32)
