"""Coverage-guided fuzzing of everything that reads a stranger's file, with atheris (``pip install atheris``).

``python tests/fuzz/fuzz_checkpoint.py TARGET -runs=200000`` with one of the targets below; further
arguments are libFuzzer's. A target fails on any exception but CheckpointError with the file's name in
it, on more than 1 GB of memory, and on an input that takes 20 seconds. Runs outside the normal tests.
"""

import json
import os
import struct
import sys
import tempfile

import atheris

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [ROOT, os.path.join(ROOT, "tests", "checkpoint")]

with atheris.instrument_imports(include=["npminimind.checkpoint", "npminimind.config"]):
    import npminimind.checkpoint as checkpoint
    from npminimind.checkpoint import configs, pickle_names, pickle_subset, shapes
    from npminimind.checkpoint.pth import read_pth

import numpy as np  # noqa: E402
from hostile import state_dict, tensor  # noqa: E402

from npminimind.errors import CheckpointError  # noqa: E402
from npminimind.params import param_shapes  # noqa: E402

FOLDER = tempfile.mkdtemp(prefix="fuzz_checkpoint_", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
MODEL = dict(hidden_size=4, num_hidden_layers=1, vocab_size=5, num_attention_heads=2, num_key_value_heads=1, head_dim=2,
             intermediate_size=3)  # fmt: skip
SHAPES = shapes.Shapes(5, 4, 1, 4, 2, 2, 3, 0, 0, False, False, False)


def only_checkpoint_error(path, read):
    try:
        read()
    except CheckpointError as error:
        if not str(error).startswith(path) or "\n" in str(error):
            raise RuntimeError(f"a message without the file's name: {error}") from error


def file_target(name, read):
    """A target that writes its input to a file and reads it."""
    path = os.path.join(FOLDER, name)

    def target(data):
        with open(path, "wb") as file:
            file.write(data)
        only_checkpoint_error(path, lambda: read(path))

    return target


def read_all(path):
    tensors, _ = checkpoint.read_safetensors(path)
    return [tensors[name] for name in tensors]


def read_config_file(path):
    """The file as config.json of a Qwen3, a Llama and a MoE."""
    raw = checkpoint.loading.read_json(path)
    for shape in (
        SHAPES,
        SHAPES._replace(head_dim=None),
        SHAPES._replace(num_experts=2),
        SHAPES._replace(neighbours=True),
    ):
        only_checkpoint_error(path, lambda shape=shape: configs.read_config(path, raw, shape, False))


def run_pickle(data):
    try:
        pickle_subset.run(data)
    except pickle_names.Refused:
        pass


TARGETS = {
    "safetensors": file_target("x.safetensors", read_all),
    "pth": file_target("x.pth", read_pth),
    "pickle": run_pickle,
    "config": file_target("config.json", read_config_file),
    "model": file_target("model.bin", checkpoint.load_weights),
    "index": file_target("model.safetensors.index.json", checkpoint.load_weights),
}


def seeds(folder):
    """Sound files to start from."""
    from checkpoint_helpers import write_pth

    config = configs.make_config("x", MODEL)
    params = {name: np.ones(shape, np.float16) for name, shape in param_shapes(config).items()}
    checkpoint.save_safetensors(os.path.join(folder, "model.safetensors"), params)
    checkpoint.save_safetensors(os.path.join(folder, "small.safetensors"), {"a": np.zeros((2, 3)), "b": np.int32([1])})
    write_pth(os.path.join(folder, "small.pth"), state_dict(tensor(), "a"), {"0": bytes(16)})
    checkpoint.save_pretrained(config, params, os.path.join(folder, "minimind"), "float16", layout="minimind")
    os.rename(os.path.join(folder, "minimind", "full_sft_4.pth"), os.path.join(folder, "model.pth"))
    more = dict(model_type="qwen3", rope_parameters=dict(rope_type="yarn", factor=4.0, rope_theta=1e6),
                eos_token_id=[1, 2], sliding_window=None, layer_types=["full_attention"])  # fmt: skip
    index = {"metadata": {}, "weight_map": {"a": "x.safetensors"}}
    for name, data in {
        "program": state_dict(tensor()),
        "config": json.dumps(MODEL).encode(),
        "config2": json.dumps(MODEL | more).encode(),
        "index": json.dumps(index).encode(),
        "header": struct.pack("<Q", 2) + b"{}",
    }.items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(data)


def main():
    target = TARGETS.get(sys.argv[1] if len(sys.argv) > 1 else "")
    if target is None:
        sys.exit(f"usage: fuzz_checkpoint.py {{{','.join(TARGETS)}}} [libFuzzer options]")
    start = os.path.join(FOLDER, "seeds")
    os.mkdir(start)
    seeds(start)
    options = [sys.argv[0], *sys.argv[2:], "-rss_limit_mb=1024", "-timeout=20", "-max_len=8192", start]
    atheris.Setup(options, target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
