"""Make the small files in this folder, with torch 2.13 and safetensors 0.8: what the readers are tested on.

Every tensor is ``ramp(shape)``: 0, 1, 2 ... in C order, halved and shifted, exact in all types.
Run again only to add one: ``python tests/checkpoint/data/make_fixtures.py``.
"""

import math
import os
from collections import OrderedDict

HERE = os.path.dirname(os.path.abspath(__file__))
DTYPES = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]


def main():
    import torch
    from safetensors.torch import save_file

    def ramp(*shape, dtype=torch.float32):
        numbers = torch.arange(math.prod(shape), dtype=torch.float64).reshape(shape)
        if dtype.is_floating_point:
            return (numbers / 2 - 1).to(dtype)
        return (numbers % 2 if dtype is torch.bool else numbers).to(dtype)

    def save(value, name, **options):
        torch.save(value, os.path.join(HERE, name), **options)

    types = {name: ramp(3, 4, dtype=getattr(torch, name)) for name in DTYPES}
    save(types, "dtypes.pth")
    save(
        types | {name: ramp(3, 4, dtype=getattr(torch, name)) for name in ("uint16", "uint32", "uint64")},
        "dtypes_v3.pth",
    )
    save_file(types, os.path.join(HERE, "dtypes.safetensors"), {"format": "pt", "说": "你好"})
    save(types, "legacy.pth", _use_new_zipfile_serialization=False)
    save(types, "protocol4.pth", pickle_protocol=4)

    base = ramp(4, 6)
    views = {
        "base": base,
        "transposed": base.t(),
        "block": base[1:3, 2:5],
        "strided": base[::2, 1::3],
        "column": base[:, 5],
        "row": base[2],
        "cube": ramp(2, 3, 4).permute(2, 0, 1),
        "half_transposed": ramp(4, 6, dtype=torch.float16).t(),
        "scalar": torch.tensor(2.5),
        "empty": torch.empty(0, 3),
    }
    save(views, "views.pth")
    save({"expanded": torch.tensor([1.0]).expand(1000, 1000)}, "expanded.pth")

    linear = torch.nn.Linear(4, 3)
    linear.weight.data, linear.bias.data = ramp(3, 4), ramp(3)
    save(linear.state_dict(), "state_dict.pth")  # an OrderedDict with _metadata
    save(OrderedDict(linear.named_parameters()), "parameters.pth")
    save(linear, "module.pth")
    optimizer = torch.optim.AdamW(linear.parameters(), lr=1e-3)
    linear(ramp(2, 4)).sum().backward()
    optimizer.step()
    linear.weight.data, linear.bias.data = ramp(3, 4), ramp(3)
    wrapped = {f"module._orig_mod.{name}": value for name, value in linear.state_dict().items()}
    save(
        {
            "epoch": 3,
            "loss": 1.5,
            "model": wrapped,
            "optimizer": optimizer.state_dict(),
            "tags": ["a", None, True, (1, -(2**40))],
        },
        "resume.pth",
    )


if __name__ == "__main__":
    main()
