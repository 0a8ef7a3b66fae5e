"""What Jupyter shows: true numbers, escaped text, no style sheet, no script."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from npminimind import MiniMindConfig, MiniMindForCausalLM, html, trace

SMALL = MiniMindConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=50)


@pytest.fixture(scope="module")
def model():
    return MiniMindForCausalLM.random(SMALL, seed=0)


@pytest.fixture(scope="module")
def step(model):
    return next(model.steps([[3, 4], [5, 6]], max_new_tokens=1, top_k=5, top_p=1.0, rng=0, eos_token_id=None))


class Cells(HTMLParser):
    """Rows of cells as text; fails where a tag is not closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.rows = [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data


def test_a_step_shows_what_each_stage_left(step):
    rows = Cells(step._repr_html_()).rows
    counts = [row for row in rows if "candidates left" in row]
    assert [row[2:7] for row in counts] == [["50", "50", "50", "5", "5"]] * 2


def test_a_step_marks_the_chosen_token_and_its_probability(step):
    chosen = [row for row in Cells(step._repr_html_()).rows if row[-1].endswith("chosen")]
    assert [int(row[0]) for row in chosen] == step.next_token[:, 0].tolist()
    for row, probs, token in zip(chosen, step.probs, step.next_token[:, 0]):
        assert float(row[7]) == pytest.approx(probs[token], abs=5e-4)


def test_a_big_batch_shows_four_rows_and_says_so(model):
    many = next(model.steps([[3]] * 6, max_new_tokens=1, rng=0, eos_token_id=None))
    assert many._repr_html_().count("<table") == 4 and "2 more rows" in many._repr_html_()


def test_token_text_is_escaped(step):
    class Hostile:
        def decode(self, ids, skip_special_tokens):
            return "<script>"

    text = html.step_view(step, Hostile())
    assert "<script>" not in text and "&lt;script&gt;" in text


def test_a_trace_shows_every_array_with_its_shape(model):
    kept = trace(model, [[3, 4, 5]])
    rows = {row[0]: row[1:] for row in Cells(kept._repr_html_()).rows}
    assert rows.keys() - {"name"} == kept.keys()
    for name, array in kept.items():
        assert rows[name][0].replace("\u00a0", " ") == str(list(array.shape)) and rows[name][1] == str(array.dtype)
    largest = float(rows["lm_head"][3].replace(",", ""))
    assert largest == pytest.approx(kept["lm_head"].max(), rel=1e-3)


def test_a_trace_of_no_finite_number_is_shown():
    assert html.spread(np.full(3, -np.inf)) == pytest.approx((np.nan,) * 3, nan_ok=True)


def test_a_config_shows_its_numbers_and_what_follows(model):
    rows = dict(Cells(SMALL._repr_html_()).rows)
    assert rows["hidden_size"] == "64" and rows["query heads per key/value head"] == "2"
    assert int(rows["parameters"].replace(",", "")) == sum(a.size for a in model.params.values())


def test_views_fit_any_theme(step, model):
    for view in (step._repr_html_(), trace(model, [[3]])._repr_html_(), SMALL._repr_html_()):
        assert not re.search(r"<(style|script|link)|(?<!-)color:", view.replace("background:", ""))
