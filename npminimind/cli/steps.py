"""One step of the loop as a table: what became of the best candidates, stage by stage (chapter 10.4 – 10.8)."""

import numpy as np

from ..primitives import softmax
from ..stages import LOGITS
from .table import left, percent, right, tail, token_text, visible

CANDIDATES = 8
TOKEN, COLUMN, INTERVAL = 11, 10, 12  # widths; 80 in all


def step_table(step, tokenizer, arguments):
    """The table of one step of a single row.

    Each column holds the probabilities after one stage, renormalised over what that stage has left.

    Parameters
    ----------
    step : Step
    tokenizer : Tokenizer
    arguments : dict
        What ``steps`` was called with.

    Returns
    -------
    str
    """
    token = int(step.next_token[0, 0])
    stages = [getattr(step, name)[0] for name in LOGITS]  # each [V]
    probs = [softmax(stage.astype(np.float64)) for stage in stages]
    cumulative = np.cumsum(probs[-1])  # ascending ids, as the draw adds up
    starred = step.seen[0] if arguments["repetition_penalty"] != 1 else ()
    lines = [title(step, tokenizer), header(arguments, drawn=step.u is not None)]
    for i in chosen_rows(stages, token):
        if i is None:
            lines.append("     …")
            continue
        cells = stage_cells(i, stages, probs, starred=i in starred)
        drawable = step.u is not None and probs[-1][i] > 0
        interval = f"{cumulative[i] - probs[-1][i]:.3f}–{cumulative[i]:.3f}" if drawable else ""
        name = left(token_text(tokenizer, i), TOKEN)
        lines.append(f"{'→' if i == token else ' '}{i:5d} {name}{cells}{right(interval, INTERVAL)}".rstrip())
    return "\n".join([*lines, *footer(step, stages, len(starred), token_text(tokenizer, token), arguments)]) + "\n"


def chosen_rows(stages, token):
    """Ids to show, best first: the greatest logits, the best that each filter cuts, the choice; None for a gap.

    Examples
    --------
    >>> after_top_k = np.where(np.arange(20) < 12, -np.arange(20.0), -np.inf)
    >>> chosen_rows([None, None, -np.arange(20.0), after_top_k, after_top_k], token=0)
    [0, 1, 2, 3, 4, 5, 6, 7, None, 12]
    """
    ranking = np.argsort(-stages[2], kind="stable")
    cut = [np.isneginf(stage[ranking]) for stage in stages[3:]]
    places = {*range(min(CANDIDATES, len(ranking))), int(np.argmax(ranking == token))}
    places |= {int(np.argmax(one)) for one in cut if one.any()}
    rows, last = [], -1
    for place in sorted(places):
        rows += [None] * (place > last + 1) + [int(ranking[place])]
        last = place
    return rows


def title(step, tokenizer):
    fed, text = step.fed_ids.shape[1], tokenizer.decode(step.input_ids[0, :-1], skip_special_tokens=False)
    what = f"step {step.round}: {fed} token{'s' if fed > 1 else ''} in, {step.past_len} cached"
    return f"{what}   {visible(tail(text, 72 - len(what)))}"


def header(arguments, drawn):
    columns = (
        "model",
        setting("T", arguments["temperature"], off=None),
        setting("pen.", arguments["repetition_penalty"], off=1),
        setting("top-k", arguments["top_k"], off=0),
        setting("top-p", arguments["top_p"], off=1),
    )
    line = f"{'id':>6s} {left('token', TOKEN)}" + "".join(right(c + " ", COLUMN) for c in columns)
    return line + (right("u in", INTERVAL) if drawn else "")


def setting(name, value, off):
    """A stage and its number in a few letters.

    Examples
    --------
    >>> setting("top-p", 0.85, off=1), setting("top-k", 0, off=0)
    ('top-p .85', 'top-k off')
    """
    return f"{name} off" if value in (None, off) else f"{name} {value:g}".replace(" 0.", " .")


def stage_cells(i, stages, probs, starred):
    """The columns of one candidate. The stage that cuts it says so, those behind it stay empty."""
    cells = ""
    for name, stage, share in zip(LOGITS, stages, probs):
        if stage[i] == -np.inf:
            cells += right("cut ", COLUMN)
            break
        cells += right(percent(share[i]) + ("*" if starred and name == "after_repetition_penalty" else " "), COLUMN)
    return left(cells, len(LOGITS) * COLUMN)


def footer(step, stages, starred, name, arguments):
    """What each filter has left, and how the choice fell."""
    kept = [int(np.isfinite(stage).sum()) for stage in stages[-2:]]
    note = "   * has occurred, so it is penalised" if starred else ""
    yield f"       of {len(stages[0]):,} ids top-k leaves {kept[0]:,}, top-p {kept[1]:,}{note}"
    if step.u is not None:
        yield f"       u = {step.u[0]:.6f} falls to {name}"
    elif arguments["do_sample"] and arguments["temperature"] != 0:
        yield f"       torch's random numbers choose {name}"
    else:
        yield f"       greedy takes {name}"
