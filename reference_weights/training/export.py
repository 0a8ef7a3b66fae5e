"""A checkpoint -> a model folder as MiniMind and Hugging Face write it: float16, no tied head, experts one by one."""

import argparse
import json
import shutil
from pathlib import Path

import numpy as np

from . import network


def load_tokenizer(folder):
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))


def write_safetensors(path, tensors):
    """The format is simple: length of the header, header as JSON, then the bytes."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, x in tensors.items():
        header[name] = {
            "dtype": {"float16": "F16", "float32": "F32"}[x.dtype.name],
            "shape": list(x.shape),
            "data_offsets": [at, at + x.nbytes],
        }
        at += x.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for x in tensors.values():
            file.write(np.ascontiguousarray(x).tobytes())


def export(state, config, build, folder):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(
        folder / "model.safetensors", {k: v.detach().numpy().astype(np.float16) for k, v in sorted(state.items())}
    )
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "generation_config.json").write_text(
        json.dumps(
            {
                "bos_token_id": 1,
                "eos_token_id": 2,
                "pad_token_id": 0,
                "do_sample": True,
                "temperature": 0.85,
                "top_p": 0.85,
                "top_k": 50,
                "repetition_penalty": 1.0,
                "max_new_tokens": 256,
            },
            indent=2,
        )
        + "\n"
    )
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(Path(build) / name, folder / name)


if __name__ == "__main__":
    import torch

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=["dense", "moe"], default="dense")
    parser.add_argument("--build", default="build")
    parser.add_argument("--to", required=True)
    args = parser.parse_args()
    state = torch.load(Path(args.build) / args.model / "checkpoint.pt")
    export(state["net"], network.sizes(args.model), args.build, args.to)
    print(f"step {state['step']} -> {args.to}")
