"""Peak memory of a long prefill, measured in a process of its own: ``python -m npminimind.bench.memory``."""

import json
import resource
import subprocess
import sys
import time

import numpy as np

from .runners import model_of


def peak_of_prefill(model_name, length):
    """Prefill ``length`` tokens in a fresh process.

    Returns
    -------
    dict
        ``seconds``, and ``bytes`` of peak memory above the process with its weights loaded.
    """
    command = [sys.executable, "-m", "npminimind.bench.memory", model_name or "", str(length)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"the prefill of {length} tokens failed: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout)


def peak_bytes():
    """Most memory this process has held. Linux's own figure where it is there: getrusage's counts the parent's too."""
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def main(model_name, length):
    model = model_of(model_name)
    ids = np.random.default_rng(0).integers(0, model.config.vocab_size, (1, length))
    before, start = peak_bytes(), time.perf_counter()
    next(model.steps(ids, max_new_tokens=1, do_sample=False))
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "bytes": peak_bytes() - before}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
