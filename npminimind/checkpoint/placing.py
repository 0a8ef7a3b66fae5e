"""Which stored tensor goes where: every parameter has one, fused experts are taken apart."""

from typing import NamedTuple

from ..params import param_shapes
from .files import quote, refuse
from .row_order import in_file_order


class Fused(NamedTuple):
    """The experts of a layer in one tensor (transformers 5): parts in file order."""

    parts: tuple
    shape: tuple


def fused_layout(config, layer):
    """Stored name -> :class:`Fused` of one layer: ``gate_up_proj [E, 2I, H]``, ``down_proj [E, H, I]``."""
    c, path = config, f"model.layers.{layer}.mlp.experts."
    gate_up = [f"{path}{e}.{part}_proj.weight" for e in range(c.num_experts) for part in ("gate", "up")]
    down = [f"{path}{e}.down_proj.weight" for e in range(c.num_experts)]
    return {
        f"{path}gate_up_proj": Fused(tuple(gate_up), (c.num_experts, 2 * c.moe_intermediate_size, c.hidden_size)),
        f"{path}down_proj": Fused(tuple(down), (c.num_experts, c.hidden_size, c.moe_intermediate_size)),
    }


def fused_tensors(config):
    """:func:`fused_layout` of all layers."""
    layout = {}
    for i in range(config.num_hidden_layers):
        layout |= fused_layout(config, i)
    return layout


def check_tensors(path, config, shapes, tensors):
    """Every parameter is there, in its shape, and nothing else is."""
    expected = param_shapes(config)
    if shapes.fused:
        for name, fused in fused_tensors(config).items():
            expected[name] = fused.shape
            for part in fused.parts:
                del expected[part]
    missing = [name for name in expected if name not in tensors]
    if missing:
        refuse(path, f"lacks {len(missing)} of {len(expected)} tensors, first {missing[0]}; download it again")
    extra = [name for name in tensors if name not in expected and name != "lm_head.weight"]
    if extra:
        first = quote(tensors[extra[0]].name)
        refuse(path, f"holds {first}, which has no place in a MiniMind ({len(extra)} such tensors)")
    for name, shape in expected.items():
        stored = tensors[name]
        if stored.shape != shape:
            refuse(path, f"{quote(stored.name)} has shape {list(stored.shape)}, the config needs {list(shape)}")


def placements(checkpoint, params):
    """Pairs of a stored tensor and the arrays that its elements fill one after the other."""
    fused = fused_tensors(checkpoint.config) if "model.layers.0.mlp.experts.gate_up_proj" in checkpoint.tensors else {}
    for name, tensor in checkpoint.tensors.items():
        if name in fused:
            yield tensor, [params[part] for part in fused[name].parts]
        elif name in params:
            yield tensor, [in_file_order(params[name], name, checkpoint.neighbours, checkpoint.config.head_dim)]
