"""A comparison as one self-contained page: where the error starts, and how it grows."""

import math
import re
from html import escape
from pathlib import Path

from .compare_run import place_of
from .report_text import tolerance, verdict

LOWEST, HIGHEST = -9, 2  # powers of ten of the chart
WIDTH, HEIGHT, LEFT, TOP = 1000, 300, 52, 14
CLASS = {"agrees": "ok", "near-tie": "tie", "cascade": "tie", "differs": "bad", "shape": "bad"}
WORDS = {kind: kind for kind in CLASS} | {"cascade": "follows from it"}

STYLE = Path(__file__).with_name("report.css").read_text(encoding="utf-8")


def as_html(report, reference, candidate):
    """The page.

    Parameters
    ----------
    report : Report
    reference, candidate : str
        What the two are called.

    Returns
    -------
    str
    """
    rows = report.compared
    body = [
        f"<h1>{escape(str(candidate))} against {escape(str(reference))}</h1>",
        f"<p class=faint>{len(rows)} arrays compared, {len(report.rows) - len(rows)} not dumped. "
        f"{escape(tolerance(report))}.</p>",
        card(report),
        diagnosis_card(report),
        "<h2>Relative error, in the order of execution</h2>",
        f"<div class=wide>{chart(report, rows)}</div>",
        "<p class=faint>Each dot is an array: its greatest error over its root mean square, on a logarithmic scale. "
        "The dashed line is what may differ; dots on the lower edge are equal. Blue agrees, red differs, "
        "yellow says nothing: a near-tie, or what comes after another token was chosen.</p>",
        "<h2>Layer by layer</h2>",
        *(group(title, members, report.first) for title, members in grouped(rows)),
    ]
    head = '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    head += '<meta name="viewport" content="width=device-width, initial-scale=1">'
    return f"{head}<title>npminimind compare</title><style>{STYLE}</style></head><body>{''.join(body)}</body></html>\n"


def card(report):
    lines = "".join(f"<p>{escape(line.strip())}</p>" for line in verdict(report))
    return f'<div class="card{"" if report.agrees else " bad"}">{lines}</div>'


def diagnosis_card(report):
    if report.diagnosis is None:
        return ""
    lines = "".join(f"<p>{escape(line.strip())}</p>" for line in str(report.diagnosis).splitlines())
    return f'<h2>Diagnosis</h2><div class="card{"" if report.diagnosis.correct else " bad"}">{lines}</div>'


def height_of(value):
    """From a relative error to a place in the chart."""
    power = LOWEST if not value > 0 else HIGHEST if math.isinf(value) else math.log10(value)
    share = (min(max(power, LOWEST), HIGHEST) - LOWEST) / (HIGHEST - LOWEST)
    return TOP + (HEIGHT - TOP) * (1 - share)


def chart(report, rows):
    """An SVG: a dot for each array, a band for every other layer, the tolerance as a dashed line."""
    step = (WIDTH - LEFT - 10) / max(len(rows), 1)
    x = [LEFT + step * (i + 0.5) for i in range(len(rows))]
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT + 24}" role="img" aria-label="relative error of each array">']
    at, labelled = 0, -100.0
    for i, (title, members) in enumerate(grouped(rows)):
        left, width = LEFT + step * at, step * len(members)
        if i % 2:
            parts.append(f'<rect class=band x="{left:.1f}" y="{TOP}" width="{width:.1f}" height="{HEIGHT - TOP}"/>')
        if left - labelled > 75 and not title.endswith("input"):
            parts.append(f'<text x="{left:.1f}" y="{HEIGHT + 16}">{escape(short(title))}</text>')
            labelled = left
        at += len(members)
    for power in range(LOWEST + 1, HIGHEST + 1, 2):
        y = height_of(10.0**power)
        parts.append(f'<line class=grid x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="8" y="{y + 4:.1f}">1e{power}</text>')
    points = " ".join(f"{a:.1f},{height_of(row.allowed):.1f}" for a, row in zip(x, rows) if row.allowed)
    parts.append(f'<polyline class=limit points="{points}"/>')
    for a, row in zip(x, rows):
        if row is report.first:
            parts.append(f'<line class=mark x1="{a:.1f}" x2="{a:.1f}" y1="{TOP}" y2="{HEIGHT}"/>')
        title = escape(f"{row.name}: {row.relative:.2g}, {WORDS[row.verdict]}")
        place = f'cx="{a:.1f}" cy="{height_of(row.relative):.1f}"'
        parts.append(f'<circle class={CLASS[row.verdict]} {place} r="3"><title>{title}</title></circle>')
    return "".join(parts) + "</svg>"


def short(title):
    return title.replace("round ", "r").replace(", layer ", " L").replace(", ", " ")


def title_of(row):
    """The part of the run that an array belongs to."""
    round_, rest, _ = place_of(row.name)
    part = f"layer {rest.split('.')[2]}" if rest.startswith("model.layers.") else "sampling"
    if not rest.startswith(("model.layers.", "sample.")):
        part = "input" if rest.startswith(("model.embed", "rope.")) else "output"
    return part if round_ is None else f"round {round_}, {part}"


def grouped(rows):
    """Runs of rows with one title."""
    groups = []
    for row in rows:
        if not groups or groups[-1][0] != title_of(row):
            groups.append((title_of(row), []))
        groups[-1][1].append(row)
    return groups


def group(title, rows, first):
    bad = sum(row.verdict in ("differs", "shape") for row in rows)
    opened = " open" if first is not None and any(row is first for row in rows) else ""
    count = f"<b class=bad>{bad} of {len(rows)} differ</b>" if bad else f"<span class=faint>{len(rows)} arrays</span>"
    names = ("array", "shape", "max abs", "relative", "allowed", "", "verdict", "why")
    head = "".join(f"<th>{name}</th>" for name in names)
    lines = "".join(line(row) for row in rows)
    table = f"<div class=wide><table><tr>{head}</tr>{lines}</table></div>"
    return f"<details{opened}><summary>{escape(title)}: {count}</summary>{table}</details>"


def line(row):
    kind = CLASS[row.verdict]
    width = 60 * (1 - (height_of(row.relative) - TOP) / (HEIGHT - TOP))
    cells = [
        f"<td>{escape(re.sub(r'^model.layers.[0-9]+.(?=.)', '', place_of(row.name)[1]))}</td>",
        f"<td>{'×'.join(map(str, row.shape))}</td>",
        *(f"<td>{value:.2g}</td>" for value in (row.max_abs, row.relative, row.allowed)),
        f'<td style="text-align:left"><span class="bar {kind}" style="width:{width:.0f}px"></span></td>',
        f"<td class={kind}>{WORDS[row.verdict]}</td><td class=why>{escape('; '.join(row.why))}</td>",
    ]
    return f"<tr>{''.join(cells)}</tr>"
