"""The measurements as a table and as a picture."""


def table(result):
    """What ``npminimind bench`` prints.

    Parameters
    ----------
    result : dict
        From :func:`npminimind.bench.measure`.

    Returns
    -------
    str
    """
    m, limit = result["machine"], result["limits"]
    lines = [
        f"{m['processor']}, {m['threads']} threads; Python {m['python']}, NumPy {m['numpy']}, {m['blas']}",
        result["model"].strip("<>"),
        f"limits of this machine: one-row products {limit['bytes_per_second'] / 1e9:.1f} GB/s, "
        f"large products {limit['flops_per_second'] / 1e9:.0f} GFLOP/s",
        "",
        f"{'':34s} {'ms':>9s} {'tokens/s':>9s}  {'of the limit':>12s} {'over products':>13s} {'transformers':>13s}",
    ]
    lines += [case_line(case) for case in result["cases"]]
    s, t, f = result["sampling"], result["tap"], result["first_token"]
    lines += [
        "",
        f"sampling, all stages: {s['1'] * 1e3:.2f} ms for one row, {s['64'] * 1e3:.1f} ms for 64",
        f"a tap that keeps everything: {t['ratio']:.2f} times the plain step",
        f"first token, whole process, {f['model']}: {f['generate'] * 1e3:.0f} ms, "
        f"{f['generate'] / f['import_numpy']:.1f} times `import numpy` ({f['import_numpy'] * 1e3:.0f} ms); "
        f"its files alone are read in {f['read_files'] * 1e3:.0f} ms",
    ]
    for row in result["memory"]:
        lines.append(
            f"prefill {row['length']:,}: {row['seconds']:.1f} s, {row['length'] / row['seconds']:.0f} tokens/s, "
            f"{row['bytes'] / 2**20:.0f} MiB above the weights at the peak"
        )
    return "\n".join(lines)


def case_line(case):
    share = case.get("share_of_memory_limit", case.get("share_of_gemm_limit"))
    peer = case.get("times_transformers")
    return (
        f"{case['name']:34s} {case['seconds']['npminimind'] * 1e3:9.1f} {case['tokens_per_second']:9.1f}  "
        f"{'' if share is None else f'{share:.0%}':>12s} {case['over_products']:12.2f}x "
        f"{'' if peer is None else f'{peer:.2f}x':>13s}"
    )


def plot(result, path):
    """Draw tokens a second of each case, the peer beside it.

    Raises
    ------
    ValueError
        Without matplotlib.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("--plot needs matplotlib: pip install matplotlib") from None
    cases = result["cases"]
    figure = Figure(figsize=(8, 1 + 0.8 * len(cases)), layout="constrained")
    axes = figure.subplots()
    names = [name for name in ("transformers", "npminimind") if name in cases[0]["seconds"]]
    for offset, name in enumerate(names):
        speed = [c["tokens_per_second"] * c["seconds"]["npminimind"] / c["seconds"][name] for c in cases]
        rows = [i + 0.4 * offset for i in range(len(cases))]
        bars = axes.barh(rows, speed, height=0.38, label=name, color={"npminimind": "#0072b2"}.get(name, "#b0b0b0"))
        axes.bar_label(bars, fmt="{:,.0f}", padding=3)
    axes.set_yticks([i + 0.2 * (len(names) - 1) for i in range(len(cases))], [c["name"] for c in cases])
    axes.set_xscale("log")
    axes.set_xlabel("tokens a second (log scale)")
    axes.tick_params(axis="x", which="both", bottom=False, labelbottom=False)  # the bars carry their numbers
    axes.invert_yaxis()
    axes.legend()
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)
