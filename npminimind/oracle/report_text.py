"""A comparison as lines of text, and as plain values for machines."""

import math
from textwrap import wrap

from .compare_floor import SLACK

MARK = {"agrees": "ok", "differs": "DIFFERS", "missing": "-", "shape": "SHAPE", "near-tie": "tie", "cascade": "..."}
AROUND = 12  # rows shown before and after the first divergence


def as_text(report, every=False):
    """The table, the first divergence, and what it means."""
    lines = [heading(report), ""]
    rows = report.compared
    shown = rows if every or len(rows) <= 3 * AROUND else near_first(report, rows)
    width = max((len(row.name) for row in shown), default=4)
    columns = f"{'max abs':>9s} {'relative':>9s} {'allowed':>9s} {'1-cosine':>9s}"
    lines.append(f"{'name':{width}s}  {'shape':18s} {'dtype':8s} {columns}")
    for row in shown:
        lines.append(
            f"{row.name:{width}s}  {'x'.join(map(str, row.shape)):18s} {row.dtype:8s} {row.max_abs:9.2g} "
            f"{row.relative:9.2g} {row.allowed:9.2g} {1 - row.cosine:9.1e} {MARK[row.verdict]}"
        )
    if len(shown) < len(rows):
        lines.append(f"({len(rows) - len(shown)} more rows; --all shows every one)")
    return "\n".join(lines + [""] + verdict(report)) + "\n"


def near_first(report, rows):
    """The rows around the first divergence, and the last one."""
    if report.first is None:
        return worst(rows)
    at = rows.index(report.first)
    return rows[max(at - AROUND, 0) : at + AROUND + 1]


def worst(rows):
    """Where nothing differs: the rows that come closest to what is allowed, in their order."""
    closest = sorted(rows, key=lambda row: -row.relative / row.allowed if row.allowed else 0.0)[: 2 * AROUND]
    return [row for row in rows if any(row is one for one in closest)]


def heading(report):
    missing = len(report.rows) - len(report.compared)
    text = f"{len(report.compared)} arrays compared"
    if missing:
        text += f", {missing} of the reference's not dumped"
    if report.unknown:
        text += f", {len(report.unknown)} unknown ({', '.join(report.unknown[:3])}{' …' if report.unknown[3:] else ''})"
    return f"{text}\n{tolerance(report)}"


def tolerance(report):
    """Where the tolerances are from, in words."""
    slack = "" if report.floor.startswith("given") else f"{SLACK} times the floor of float32, "
    return f"allowed: {slack}{report.floor}"


def verdict(report):
    ties = [row.name for row in report.rows if row.verdict == "near-tie"]
    lines = [f"near-ties, where either choice is right: {', '.join(ties)}"] if ties else []
    if report.agrees:
        return [*lines, "agrees"]
    row = report.first
    before = [other for other in report.compared[: report.compared.index(row)]]
    lines.append(f"first divergence: {row.name}" + (f" (dumped as {row.dumped})" if row.dumped != row.name else ""))
    lines += [f"  {why}" for why in row.why]
    if before:
        lines.append(f"  the last array before it that agrees: {before[-1].name}")
    skipped = between(report, before[-1] if before else None, row)
    if skipped:
        lines.append(f"  not dumped between them: {', '.join(skipped[:6])}{' …' if skipped[6:] else ''}")
    return lines


def between(report, before, row):
    start = report.rows.index(before) + 1 if before else 0
    return [other.name for other in report.rows[start : report.rows.index(row)] if other.verdict == "missing"]


def as_data(report):
    """Plain values for JSON. Infinity and nan become text."""
    first = report.first
    return {
        "agrees": report.agrees,
        "floor": report.floor,
        "first_divergence": first and row_data(first),
        "rows": [row_data(row) for row in report.rows],
        "unknown": report.unknown,
        "diagnosis": report.diagnosis and report.diagnosis.as_data(),
    }


def row_data(row):
    return {key: plain(value) for key, value in vars(row).items()}


def plain(value):
    if isinstance(value, tuple):
        return [int(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def diagnosis_text(diagnosis):
    """What explains the numbers, in words."""
    lines = [f"diagnosis from {EVIDENCE[diagnosis.evidence]}:"]
    if diagnosis.correct:
        lines.append("  no mistake: the model reproduces every number that was given")
        if diagnosis.hidden:
            lines.append(
                f"  {len(diagnosis.hidden)} known mistakes would not show here, their effect is inside the floor:"
            )
            lines += wrap(", ".join(mistake.id for mistake in diagnosis.hidden), 116, initial_indent="    ",
                          subsequent_indent="    ")  # fmt: skip
        return "\n".join(lines) + "\n"
    if diagnosis.weights:
        rest = ", and:" if diagnosis.mistakes else "; nothing else is wrong"
        lines.append(f"  the weights were rounded to {diagnosis.weights}{rest}")
    if len(diagnosis.mistakes) > 1:
        lines.append("  each of these reproduces every number; this evidence does not tell them apart:")
    for together in diagnosis.mistakes:
        if len(together) > 1:
            lines.append("  only together do these reproduce every number:")
        for mistake in together:
            lines += [f"  {mistake.id}: {mistake.description}", f"      effect: {mistake.effect}"]
    if not diagnosis.mistakes and not diagnosis.weights:
        lines += ["  none of the known mistakes reproduces these numbers", *wrong_by_itself(diagnosis)]
    return "\n".join(lines) + "\n"


EVIDENCE = {"trace": "a trace", "logits": "logits alone", "generated ids": "generated ids"}


def wrong_by_itself(diagnosis):
    """Where to look when no known mistake fits."""
    if diagnosis.evidence != "trace":
        lines = ["  a trace shows more: dump the names of `npminimind.names` and compare again"]
        if any(name.startswith("round_") and not name.startswith("round_0.") for name in diagnosis.wrong):
            lines.append(
                "  rounds count as fed with the reference's tokens; if yours were others, dump sample.next_token"
            )
        return lines
    lines = ["  wrong by themselves, though what goes in is the candidate's own:"]
    lines.append("    " + ", ".join(diagnosis.wrong[:8]) + (" …" if diagnosis.wrong[8:] else ""))
    if all(name.split(".")[-1] in ("lm_head", "logits") for name in diagnosis.wrong):
        lines.append("  only the head: is lm_head tied to embed_tokens, or loaded from the checkpoint?")
    return lines
