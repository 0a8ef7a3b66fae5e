"""What Jupyter shows of a Step, a Trace and a MiniMindConfig: plain HTML, readable on light and on dark.

No style sheet and no script: text has the colour of the page around it, lines and bars are half transparent.
"""

from html import escape

import numpy as np

from .names import forward_names
from .params import param_shapes
from .stages import LOGITS

ROWS = 4  # sequences of a batch that are drawn
CANDIDATES = 8  # tokens of a sequence that are drawn
LINE = "1px solid rgba(128,128,128,.45)"
ROW = f"text-align:right;border-bottom:{LINE}"
BAR = "display:inline-block;height:.75em;background:#3b8bd0;vertical-align:baseline"


def element(tag, content, style="", **attributes):
    """``<tag style=…>content</tag>``; the content is HTML already.

    Examples
    --------
    >>> element("b", "round 0")
    '<b>round 0</b>'
    """
    attributes = {"style": style} | attributes if style else attributes
    inside = "".join(f' {name}="{escape(str(value))}"' for name, value in attributes.items())
    return f"<{tag}{inside}>{content}</{tag}>"


def table(head, rows):
    """A table whose cells are HTML, inside a box that scrolls where the page is too narrow.

    Examples
    --------
    >>> "<th" in table(["id"], [["7"]])
    True
    """
    lines = [element("tr", "".join(element("th", name) for name in head), ROW)]
    lines += [element("tr", "".join(element("td", cell) for cell in row), ROW) for row in rows]
    style = "border-collapse:collapse;margin:.3em 0;font-variant-numeric:tabular-nums"
    drawn = element("table", "".join(lines), style, cellpadding=4)
    return element("div", drawn, "overflow-x:auto;max-width:100%")


def number(x):
    """A number in few characters; what a filter has cut is a faint ``cut``.

    Examples
    --------
    >>> number(1.23456), number(3)
    ('1.235', '3')
    """
    if isinstance(x, (int, np.integer)):
        return f"{x:,}"
    return element("span", "cut", "opacity:.45") if x == -np.inf else f"{x:.4g}"


def shape(x):
    return str(list(np.shape(x))).replace(" ", "\u00a0")  # which does not wrap


def token_text(tokenizer, token_id):
    """A token as it reads, blanks and line ends made visible; without a tokenizer nothing."""
    text = "" if tokenizer is None else tokenizer.decode([int(token_id)], skip_special_tokens=False)
    return element("code", escape(text).replace(" ", "␣").replace("\n", "↵")) if text else ""


def step_view(step, tokenizer=None):
    """One round of the loop: what was fed, then the likeliest tokens through every stage.

    Parameters
    ----------
    step : Step
    tokenizer : Tokenizer or None
        Given one, tokens are shown as text too.

    Returns
    -------
    str
        HTML.
    """
    phase = "prefill" if step.past_len == 0 else "decode"
    facts = [f"<b>round {step.round}</b> ({phase})", f"past_len {step.past_len}", f"fed_ids {shape(step.fed_ids)}"]
    facts += [f"logits {shape(step.logits)}", f"input_ids {shape(step.input_ids)}"]
    if step.past_key_values:
        facts.append(f"cache {len(step.past_key_values)} × 2 × {shape(step.past_key_values[0][0])}")
    views = [element("div", " · ".join(facts))]
    views += [row_view(step, row, tokenizer) for row in range(min(len(step.logits), ROWS))]
    hidden = len(step.logits) - ROWS
    return "".join(views) + (element("div", f"… and {hidden} more rows") if hidden > 0 else "")


def row_view(step, row, tokenizer):
    """The likeliest tokens of one sequence, from logit to probability, the chosen one marked."""
    chosen = int(step.next_token[row, 0])
    ids = np.argsort(-step.logits[row], kind="stable")[:CANDIDATES].tolist()
    ids += [] if chosen in ids else [chosen]
    head = ["id", "token", "logit", "÷ temperature", "penalty", "top-k", "top-p", "probability", ""]
    rows = []
    for i in ids:
        probability = float(step.probs[row, i])
        bar = element("span", "", f"{BAR};width:{6 * probability:.2f}em") + f"\u00a0{probability:.3f}"
        stages = [number(getattr(step, stage)[row, i]) for stage in LOGITS]
        mark = "◀\u00a0chosen" if i == chosen else ""
        rows.append([str(i), token_text(tokenizer, i), *stages, bar, mark])
    kept = [f"{int(np.isfinite(getattr(step, stage)[row]).sum()):,}" for stage in LOGITS]
    rows.append(["", "candidates left", *kept, "", "finished" if step.finished[row] else ""])
    return table(head, rows)


def trace_view(trace):
    """All arrays of a trace: shape, dtype, size of the numbers; one folded group a layer.

    Parameters
    ----------
    trace : Trace

    Returns
    -------
    str
        HTML.
    """
    groups = {}
    for name, array in trace.items():
        groups.setdefault(group_of(name), []).append((name, np.asarray(array)))
    views = [element("div", f"<b>Trace</b> of {len(trace)} arrays")]
    for group, arrays in groups.items():
        rows = [[escape(name), shape(a), str(a.dtype), *map(number, spread(a))] for name, a in arrays]
        summary = element("summary", f"{escape(group)}: {len(arrays)} arrays", "cursor:pointer")
        views.append(element("details", summary + table(["name", "shape", "dtype", "min", "max", "RMS"], rows)))
    return "".join(views)


def group_of(name):
    """Which group an array is shown in: its round, its layer, or the ends of the model.

    Examples
    --------
    >>> group_of("round_1.model.layers.3.mlp.act"), group_of("lm_head")
    ('round_1 layer 3', 'embedding, final norm, head')
    """
    parts = name.split(".")
    where = [parts.pop(0)] if parts[0].startswith("round_") else []
    if parts[:2] == ["model", "layers"]:
        return " ".join([*where, "layer", parts[2]])
    return " ".join([*where, "sampling" if parts[0] == "sample" else "embedding, final norm, head"])


def spread(array):
    """Least, greatest and root mean square of the finite entries."""
    numbers = array[np.isfinite(array)].astype(np.float64) if array.size else array
    if not numbers.size:
        return np.nan, np.nan, np.nan
    return float(numbers.min()), float(numbers.max()), float(np.sqrt(np.mean(numbers**2)))


def config_view(config):
    """Every number of a config, and what follows from them.

    Parameters
    ----------
    config : MiniMindConfig

    Returns
    -------
    str
        HTML.
    """
    parameters = sum(int(np.prod(shape)) for shape in param_shapes(config).values())
    derived = {
        "parameters": parameters,
        "named intermediates of a forward pass": len(forward_names(config)),
        "cache per token": f"{config.cache_elements(1):,} numbers, {4 * config.cache_elements(1):,} bytes in float32",
        "query heads per key/value head": config.num_attention_heads // config.num_key_value_heads,
    }
    rows = [[escape(name), escape(str(value))] for name, value in config.to_dict().items() if value is not None]
    facts = [[f"<i>{name}</i>", number(value) if isinstance(value, int) else value] for name, value in derived.items()]
    return table(["MiniMindConfig", ""], rows + facts)
