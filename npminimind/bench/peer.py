"""transformers in a process of its own: ``python -m npminimind.bench.peer``, one JSON request a line.

In one process the threads of two libraries wait for work on the same cores, and each slows the other down.
"""

import importlib.util
import json
import subprocess
import sys
import tempfile

import numpy as np

from .runners import Transformers, model_of


class Peer:
    """A :class:`~npminimind.bench.runners.Transformers` that runs elsewhere, and sleeps between two runs.

    Raises
    ------
    ValueError
        It is not installed, or its process failed.
    """

    name = Transformers.name

    def __init__(self, model_name, threads):
        if not all(importlib.util.find_spec(package) for package in ("torch", "transformers")):
            raise ValueError("--against transformers needs it: pip install 'npminimind[parity]'")
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "npminimind.bench.peer", model_name or "", str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,
        )  # fmt: skip
        self.answer()  # it has loaded the model

    def run(self, ids, new_tokens):
        """As :meth:`Ours.run <npminimind.bench.runners.Ours.run>`."""
        self.process.stdin.write(json.dumps({"ids": ids.tolist(), "new_tokens": new_tokens}) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.errors.seek(0)
            said = self.errors.read().strip().splitlines() or ["it ended without a word"]
            raise ValueError(f"transformers failed: {said[-1]}")
        return json.loads(line)

    def close(self):
        self.process.communicate()  # the end of its input ends it
        self.errors.close()


def main(model_name, threads):
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever a library prints is no answer
    runner = Transformers(model_of(model_name), threads)
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        times = runner.run(np.array(request["ids"]), request["new_tokens"])
        print(json.dumps(times), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
