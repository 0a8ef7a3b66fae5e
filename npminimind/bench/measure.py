"""The measurements: medians of several runs, peers in turn in the same run."""

import os
import statistics
import time
from dataclasses import dataclass

import numpy as np

from .. import sampling
from . import limits, memory
from .counts import active_parameters, prefill_flops
from .peer import Peer
from .runners import Ours, model_of, products_alone
from .start import first_token


@dataclass
class Options:
    """What to measure.

    Attributes
    ----------
    model : str or None
        A path; None is MiniMind-3's shape with random weights.
    against : str or None
        ``"transformers"``, or nobody.
    repeats : int
        How often each measurement is taken; medians are reported.
    new_tokens : int
        Decode steps a run.
    long : tuple of int
        Lengths whose prefill is measured in a process of its own, with its peak memory.
    """

    model: str | None = None
    against: str | None = None
    repeats: int = 5
    new_tokens: int = 32
    long: tuple = (8192,)
    context: int = 2000
    prompt: int = 512


def measure(options, progress=lambda text: None):
    """Run everything.

    Parameters
    ----------
    options : Options
    progress : function (str)
        Told what is being measured.

    Returns
    -------
    dict
        ``machine``, ``limits``, ``cases`` (one dict each), ``first_token``, ``sampling``, ``tap``, ``memory``.
    """
    model = model_of(options.model)
    peer = [Peer(options.model, threads())] if options.against else []
    progress("the machine's limits")
    limit = machine_limits(model, options.repeats)
    result = {"machine": machine(), "model": repr(model), "limits": limit, "cases": []}
    for case in cases(model.config, options):
        progress(case["name"])
        result["cases"].append(measure_case(model, [Ours(model), *peer], case, limit, options))
    for runner in peer:
        runner.close()
    progress("sampling and taps")
    result["sampling"] = sampling_times(model.config.vocab_size, options.repeats)
    result["tap"] = tap_times(model, options)
    progress("first token")
    result["first_token"] = first_token(options)
    result["memory"] = []
    for length in options.long:
        if length <= model.config.max_position_embeddings:
            progress(f"prefill of {length:,} tokens in a process of its own")
            result["memory"].append({"length": length, **memory.peak_of_prefill(options.model, length)})
    return result


def cases(config, options):
    """Name, batch, prompt length and decode steps of what is measured; only what the position table holds."""
    room = config.max_position_embeddings - options.new_tokens - 1
    every = [
        ("decode, batch 1, context 32", 1, 32, options.new_tokens),
        (f"decode, batch 1, context {options.context:,}", 1, options.context, options.new_tokens),
        ("decode, batch 8, context 32", 8, 32, options.new_tokens),
        (f"prefill {options.prompt:,}", 1, options.prompt, 0),
    ]
    return [dict(zip(("name", "batch", "prompt", "new_tokens"), case)) for case in every if case[2] <= room]


def measure_case(model, runners, case, limit, options):
    """All runners in turn, several times; the median of each and the ratios."""
    ids = np.random.default_rng(1).integers(0, model.config.vocab_size, (case["batch"], case["prompt"]))
    decoding = case["new_tokens"] > 0
    times = {runner.name: [] for runner in runners}
    alone = products_alone(model, case["batch"] * (1 if decoding else case["prompt"]), case["batch"])
    times["products alone"] = []
    for _ in range(options.repeats):
        for runner in runners:
            if not decoding:
                runner.run(ids, 0)  # the first after a pause is slower, and does not count
            prefill, decode = runner.run(ids, case["new_tokens"])
            times[runner.name].append(statistics.median(decode) if decoding else prefill)
        times["products alone"].append(statistics.median(limits.seconds(alone, 3)))
    medians = {name: statistics.median(values) for name, values in times.items()}
    ours, tokens = medians["npminimind"], case["batch"] * (1 if decoding else case["prompt"])
    result = case | {"seconds": medians, "tokens_per_second": tokens / ours}
    result["over_products"] = ours / medians["products alone"]
    if decoding and case["batch"] == 1:
        result["share_of_memory_limit"] = limit["weight_bytes"] / limit["bytes_per_second"] / ours
    if not decoding:
        result["share_of_gemm_limit"] = prefill_flops(model, case) / limit["flops_per_second"] / ours
    if "transformers" in medians:
        result["times_transformers"] = medians["transformers"] / ours
    return result


def machine_limits(model, repeats):
    count = active_parameters(model)
    return {
        "bytes_per_second": limits.one_row_bandwidth(model.dtype, repeats),
        "flops_per_second": limits.gemm_rate(model.dtype, repeats),
        "active_parameters": count,
        "weight_bytes": count * model.dtype.itemsize,
    }


def sampling_times(vocab_size, repeats):
    """Seconds of all stages together, for one row and for 64."""
    result = {}
    for rows in (1, 64):
        rng = np.random.default_rng(0)
        logits = 3 * rng.standard_normal((rows, vocab_size), dtype=np.float32)
        ids, u = rng.integers(0, vocab_size, (rows, 64)), rng.random(rows)
        result[str(rows)] = statistics.median(limits.seconds(all_stages, 10 * repeats, logits, ids, u))
    return result


def all_stages(logits, ids, u):
    x = sampling.apply_temperature(logits, 0.85)
    x = sampling.apply_repetition_penalty(x, ids, 1.1)
    x = sampling.apply_top_p(sampling.apply_top_k(x, 50), 0.85)
    return sampling.multinomial(sampling.softmax(x), u)


def tap_times(model, options):
    """Seconds of a decode step without a tap, and with one that keeps every array."""
    kept = {}

    def decode(tap):
        times, last = [], time.perf_counter()
        for _ in model.steps(
            [[1] * 32], max_new_tokens=options.new_tokens, do_sample=False, eos_token_id=None, tap=tap
        ):
            now = time.perf_counter()
            times.append(now - last)
            last = now
        return statistics.median(times[1:])

    pairs = [(decode(None), decode(lambda name, array: kept.setdefault(name, array))) for _ in range(options.repeats)]
    plain, tapped = (statistics.median(values) for values in zip(*pairs))
    return {"plain": plain, "keeping": tapped, "ratio": statistics.median(b / a for a, b in pairs)}


def threads():
    """How many threads NumPy's products use: the cores we may run on, unless the environment says fewer."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def machine():
    import platform

    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return {
        "processor": processor(),
        "threads": threads(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "blas": f"{blas.get('name')} {blas.get('version')}",
    }


def processor():
    import platform

    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
        return names[0]
    except (OSError, IndexError):
        return platform.processor() or platform.machine()
