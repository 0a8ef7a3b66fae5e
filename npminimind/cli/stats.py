"""Text that appears piece by piece, and how fast."""

import time


def say(piece):
    """Write a piece of text to stdout, at once."""
    print(piece, end="", flush=True)


class Stats:
    """A streamer that counts and takes the time: prompt first, then each step's token."""

    def __init__(self):
        self.prompt, self.times = 0, []
        self.started = time.perf_counter()

    def put(self, ids):
        if self.prompt:
            self.times.append(time.perf_counter() - self.started)
        else:
            self.prompt, self.started = ids.size, time.perf_counter()

    def end(self):
        """Nothing is left to do."""

    def speed(self):
        """Tokens per second after the first, which waits for the whole prompt; None where there is no second."""
        passed = self.times[-1] - self.times[0] if self.times else 0
        return (len(self.times) - 1) / passed if passed else None

    def report(self, args, arguments):
        """One line: tokens, time to the first one, speed, and what makes the run repeatable."""
        parts = [f"{self.prompt} tokens in, {len(self.times)} out"]
        if self.times:
            parts.append(f"first after {1000 * self.times[0]:.1f} ms")
        if self.speed():
            parts.append(f"{self.speed():.1f} tokens/s")
        return ", ".join([*parts, choice_of(args, arguments)])


def choice_of(args, arguments):
    if not arguments["do_sample"] or arguments["temperature"] == 0:
        return "greedy"
    if args.torch_seed is not None:
        return f"--torch-seed {args.torch_seed}"
    return f"--seed {arguments['rng']}"
