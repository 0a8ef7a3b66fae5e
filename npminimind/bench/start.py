"""How long a whole process takes from nothing to its first token."""

import statistics
import subprocess
import sys
import time

from .. import reference_weights
from ..checkpoint import inspect
from .limits import seconds

GENERATE = """\
import sys
from npminimind.cli import main
sys.exit(main(["generate", "Once upon a time", "--max-new-tokens", "1", "--greedy", "--model", sys.argv[1]]))
"""
CONTINUE = """\
import sys
from npminimind import MiniMindForCausalLM
next(MiniMindForCausalLM.from_pretrained(sys.argv[1]).steps([[0, 1, 2, 3]], max_new_tokens=1, do_sample=False))
"""


def first_token(options):
    """Seconds of a whole process: ``import numpy`` alone, and ``npminimind generate`` to its first token.

    Weights that lie alone, without a tokenizer, are loaded by ``from_pretrained`` and continue four ids.
    ``read_files`` is the time to read the checkpoint's files once, block by block, and do nothing with them.
    """
    checkpoint = inspect(options.model or reference_weights() / "minimind-tiny")
    generate = [sys.executable, "-c", GENERATE if checkpoint.tokenizer_path else CONTINUE, checkpoint.path]
    numpy_alone, command = [], []
    for _ in range(options.repeats):
        numpy_alone.append(process_seconds([sys.executable, "-c", "import numpy"]))
        command.append(process_seconds(generate))
    return {
        "model": options.model or "the model in the box",
        "import_numpy": statistics.median(numpy_alone),
        "generate": statistics.median(command),
        "read_files": statistics.median(seconds(read_files, options.repeats, checkpoint.files)),
    }


def read_files(paths):
    block = bytearray(2**20)
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while file.readinto(block):
                pass


def process_seconds(command):
    start = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise ValueError(f"a process of its own ({command[-1]}) failed: {done.stderr.strip().splitlines()[-1]}")
    return time.perf_counter() - start
