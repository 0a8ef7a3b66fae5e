"""The pictures of the course: colours, bars, maps, coloured text. The notebooks compute, this file draws."""

import io
from html import escape

import matplotlib
import numpy as np

matplotlib.use("agg")
import matplotlib.pyplot as plt
from IPython.display import HTML, Image

# Okabe and Ito's colours: told apart by colour-blind readers too. On a light ground of their own, so that
# a picture reads the same in a light and in a dark theme.
BLUE, ORANGE, GREEN, RED, SKY, PINK, YELLOW = "#0072B2 #E69F00 #009E73 #D55E00 #56B4E9 #CC79A7 #F0E442".split()
GREY, GROUND = "#B0B0B0", "#FBFBF8"
COLOURS = [BLUE, ORANGE, GREEN, RED, SKY, PINK]
STYLE = {
    "figure.facecolor": GROUND,
    "axes.facecolor": GROUND,
    "savefig.facecolor": GROUND,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": plt.cycler(color=COLOURS),
    "axes.grid": False,
    "font.size": 10,
    "axes.titlesize": 11,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.w_pad": 0.08,
    "figure.constrained_layout.h_pad": 0.08,
}
plt.rcParams.update(STYLE)


def figure(columns=1, rows=1, width=7.2, height=2.8, **options):
    """A figure and its axes; ``width`` and ``height`` in inches, height of one row."""
    return plt.subplots(rows, columns, figsize=(width, height * rows), **options)


def show(fig, alt):
    """The figure as a small PNG with a description for those who cannot see it."""
    from PIL import Image as Picture

    raw, small = io.BytesIO(), io.BytesIO()
    fig.savefig(raw, format="png", dpi=120)
    plt.close(fig)
    picture = Picture.open(raw).convert("RGB").quantize(96, dither=Picture.Dither.NONE)
    picture.save(small, format="png", optimize=True)
    return Image(small.getvalue(), format="png", width=picture.width * 72 // 96, alt=alt)


def label(text):
    """A token as an axis label: blanks visible, and no sign that the font lacks."""
    text = text.replace("\n", "↵").replace(" ", "␣")
    return "".join(c if c.isascii() or c in "↵␣“”’—" else "□" for c in text) or "∅"


def labels(tokenizer, ids):
    """Labels of several token ids."""
    return [label(tokenizer.decode([int(i)], skip_special_tokens=False)) for i in ids]


def bars(ax, values, names, colours=BLUE, title="", best=None):
    """Horizontal bars, the first on top, each with its number."""
    values = np.asarray(values, float)
    at = np.arange(len(values))
    ax.barh(at, values, color=colours, height=0.75)
    ax.set_yticks(at, names)
    ax.invert_yaxis()
    ax.set_xlim(0, (best or max(values.max(), 1e-9)) * 1.22)
    for y, value in zip(at, values):
        ax.text(value, y, f" {value:.3g}" if value else " 0", va="center", fontsize=8)
    ax.set_title(title)


def what_was_cut(ax, before, after, names, title=""):
    """Probabilities before a filter, in grey where it cut; what is left, renormalised, as outlines."""
    before, after = np.asarray(before, float), np.asarray(after, float)
    at = np.arange(len(before))
    ax.bar(at, before, color=np.where(after > 0, BLUE, GREY), width=0.7, label="before (grey: cut)")
    ax.bar(at, after, fill=False, edgecolor=RED, linewidth=1.4, width=0.86, label="after")
    ax.set_xticks(at, names)
    ax.set_ylabel("probability")
    ax.legend(fontsize=8)
    ax.set_title(title)


def nucleus(steps, p, most=20):
    """The steps of top-p as a picture: sorted probabilities, running sum, mask before and after the shift."""
    n = min(len(steps.mask), most)
    fig, (ax, below) = figure(rows=2, width=7.2, height=2.0, height_ratios=[2, 1], sharex=True)
    probs = np.diff(steps.cumulative, prepend=0)[:n]
    ax.bar(range(n), probs, color=np.where(steps.shifted[:n], GREY, BLUE), label="probability (grey: cut)")
    ax.step(range(n), steps.cumulative[:n], where="mid", color=RED, label="running sum")
    ax.axhline(p, color="black", linestyle="--", linewidth=0.8, label=f"p = {p:g}")
    ax.set(ylim=(0, 1.1), title=f"{(~steps.mask).sum()} tokens stay")
    ax.legend(fontsize=8, loc="center right")
    masks = np.array([steps.exceeds[:n], steps.shifted[:n]], float)
    heat(below, masks, rows=["sum > p", "shifted"], cmap="Greys", vmin=0, vmax=1.6)
    below.set(xticks=range(n), xlabel="rank")
    return show(fig, "Sorted probabilities, their running sum, and the mask before and after the shift")


def heat(ax, matrix, rows=None, columns=None, title="", numbers=False, **options):
    """A matrix as colours; dark is much. nan stays empty."""
    matrix = np.asarray(matrix, float)
    image = ax.imshow(matrix, cmap=options.pop("cmap", "cividis_r"), aspect="auto", **options)
    if columns is not None:
        ax.set_xticks(range(len(columns)), columns, rotation=90, fontsize=8)
    if rows is not None:
        ax.set_yticks(range(len(rows)), rows, fontsize=8)
    middle = np.nanmean([np.nanmin(matrix), np.nanmax(matrix)])
    if numbers:
        for (i, j), value in np.ndenumerate(matrix):
            if np.isfinite(value):
                colour = "white" if value > middle else "black"
                ax.text(j, i, brief(value), ha="center", va="center", color=colour, fontsize=8)
    ax.spines[:].set_visible(False)
    ax.set_title(title)
    return image


def brief(value):
    """A number that fits into a square."""
    return "0" if abs(value) < 0.005 else f"{value:.0f}" if abs(value) >= 100 else f"{value:.2g}"


def shapes(**arrays):
    """Print name, shape and dtype of arrays, one a line."""
    width = max(map(len, arrays))
    for name, array in arrays.items():
        array = np.asarray(array)
        print(f"{name:{width}}  {str(list(array.shape)):18} {array.dtype}")


class Coloured(HTML):
    """Coloured text that is plain text where HTML is not shown."""

    def __init__(self, html, plain):
        super().__init__(html)
        self.plain = plain

    def __repr__(self):
        return self.plain


def coloured(tokenizer, ids, probabilities):
    """Tokens on a ground that tells how likely each was: white certain, dark orange a surprise."""
    spans, plain = [], []
    for token_id, p in zip(ids, probabilities):
        text = tokenizer.decode([int(token_id)], skip_special_tokens=False)
        surprise = min(1, -np.log2(max(float(p), 1e-9)) / 8)
        red, green, blue = (round(255 - surprise * (255 - end)) for end in (213, 94, 0))
        style = f"background:rgb({red},{green},{blue});color:#000;padding:.1em .15em;white-space:pre-wrap"
        shown = escape(text).replace("\n", "↵<br>")
        spans.append(f'<span style="{style}" title="id {int(token_id)}, probability {p:.3f}">{shown}</span>')
        plain.append(f"{text!r} {p:.3f}")
    return Coloured(f'<div style="line-height:2;max-width:44em">{"".join(spans)}</div>', "\n".join(plain))


def table(head, rows):
    """A table, readable in both themes, and as text."""
    from npminimind.html import table as drawn

    head, *cells = [[str(cell) for cell in row] for row in [head, *rows]]
    widths = [max(len(row[i]) for row in [head, *cells]) for i in range(len(head))]
    plain = "\n".join("  ".join(f"{cell:>{w}}" for cell, w in zip(row, widths)) for row in [head, *cells])
    return Coloured(drawn(map(escape, head), [[escape(cell) for cell in row] for row in cells]), plain)


class Grade:
    """What became of an exercise that the oracle has no operator for. Prints itself, as the oracle's result does."""

    def __init__(self, ok, message):
        self.ok, self.message = ok, message

    def __repr__(self):
        return self.message


def grade(function, reference, cases):
    """Run both on the same cases: solved if all results are equal, numbers up to rounding.

    Parameters
    ----------
    function, reference : functions
    cases : list of tuple
        Arguments.
    """
    for case in cases:
        try:
            got = function(*case)
        except NotImplementedError:
            return Grade(False, f"{function.__name__}: unsolved")
        except Exception as error:
            return Grade(False, f"{function.__name__}{case} raised {type(error).__name__}: {error}")
        expected = reference(*case)
        if not same(got, expected):
            return Grade(False, f"{function.__name__}{case}\n  got      {got!r}\n  expected {expected!r}")
    return Grade(True, f"{function.__name__}: right, {len(cases)} cases")


def same(got, expected):
    if isinstance(expected, (str, bytes, type(None))):
        return got == expected
    if isinstance(expected, tuple):
        return isinstance(got, tuple) and len(got) == len(expected) and all(map(same, got, expected))
    got, expected = np.asarray(got), np.asarray(expected)
    return got.shape == expected.shape and np.allclose(got, expected, rtol=1e-6, atol=1e-12, equal_nan=True)


def sliders(draw, **ranges):
    """Move the numbers of a picture: ``sliders(draw, temperature=(0.1, 2.0, 0.85))``, least, most, first.

    Shown only in a running notebook that has ipywidgets; elsewhere the picture above it must do.
    """
    try:
        import ipywidgets
        from IPython.display import display
    except ImportError:
        return print("sliders need ipywidgets: pip install ipywidgets")

    def slider(least, most, first):
        kind = ipywidgets.IntSlider if isinstance(first, int) else ipywidgets.FloatSlider
        step = 1 if isinstance(first, int) else (most - least) / 100
        return kind(value=first, min=least, max=most, step=step, continuous_update=False)

    controls = {name: slider(*limits) for name, limits in ranges.items()}
    shown = ipywidgets.interactive_output(lambda **values: display(draw(**values)), controls)
    for name, control in controls.items():
        control.description = name
    display(ipywidgets.VBox([*controls.values(), shown]))
