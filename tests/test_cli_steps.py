"""The tables of ``generate --steps`` against the chapter's arithmetic, done again here in plain Python."""

import math
import re

import numpy as np
import pytest
from cli_helpers import LETTERS, run, speaking_folder

from npminimind import MiniMindForCausalLM
from npminimind.cli import table


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return speaking_folder(tmp_path_factory.mktemp("model"))


SETTINGS = ["--temperature", "1.5", "--repetition-penalty", "1.2", "--top-k", "30", "--top-p", "0.6", "--seed", "3"]


def tables(capsys, folder, *options):
    command = ["generate", LETTERS[5] + LETTERS[9], "--model", folder, "--steps", "--max-new-tokens", 3, *options]
    code, out, err = run(capsys, *command)
    assert code == 0
    return out, err.strip().split("\n\n")


def rows(table_text):
    """id -> the cells of its row: percentages as numbers, ``cut``, the interval of u."""
    found = {}
    for line in table_text.splitlines()[2:]:
        if match := re.match(r"[→ ] *(\d+) \"(?:[^\"]|\\\")+\" *(.*)", line):
            found[int(match[1])] = match[2].split()
    return found


def by_hand(logits, seen, temperature, penalty, top_k, top_p):
    """The stages of chapter 10 in lists of floats: probabilities after each, None where cut."""

    def probabilities(values):
        total = math.fsum(math.exp(v) for v in values if v is not None)
        return [None if v is None else math.exp(v) / total for v in values]

    scaled = [x / temperature for x in logits]
    penalised = [x if i not in seen else x / penalty if x > 0 else x * penalty for i, x in enumerate(scaled)]
    threshold = sorted(penalised, reverse=True)[top_k - 1]
    candidates = [x if x >= threshold else None for x in penalised]
    p, total, nucleus = probabilities(candidates), 0.0, list(candidates)
    for i in sorted((i for i, x in enumerate(p) if x is not None), key=lambda i: -p[i]):
        if total > top_p:
            nucleus[i] = None
        total += p[i]
    return [probabilities(stage) for stage in (logits, scaled, penalised, candidates, nucleus)]


def test_each_stage_is_the_chapters(capsys, folder):
    _, shown = tables(capsys, folder, *SETTINGS)
    model = MiniMindForCausalLM.from_pretrained(folder)
    logits = [float(x) for x in model([[5, 9]]).logits[0, -1]]
    stages = by_hand(logits, {5, 9}, 1.5, 1.2, 30, 0.6)
    cells = rows(shown[0])
    assert len(cells) >= 8 and any("cut" in row for row in cells.values())
    for i, row in cells.items():
        values = [stage[i] for stage in stages]
        for value, cell in zip(values, row):
            assert cell == "cut" if value is None else abs(float(cell.rstrip("%*")) - 100 * value) < 0.0051, (i, row)
        assert len(row) == (6 if None not in values else values.index(None) + 1)
    best = sorted(range(len(logits)), key=lambda i: -stages[2][i])
    assert list(cells)[:8] == best[:8]
    assert (
        f"top-k leaves {sum(x is not None for x in stages[3])}, top-p {sum(x is not None for x in stages[4])}"
        in shown[0]
    )


def test_u_falls_into_the_interval_of_the_token_that_is_marked(capsys, folder):
    out, shown = tables(capsys, folder, *SETTINGS)
    assert len(shown) == 3 and out.startswith(LETTERS[5] + LETTERS[9])
    for number, step in enumerate(shown):
        chosen = LETTERS[int(re.search(r"^→ *(\d+)", step, re.M)[1])]
        assert chosen == out[2 + number]
        u = float(re.search(r"u = ([\d.]+)", step)[1])
        low, high = map(float, re.search(r"^→.* ([\d.]+)–([\d.]+)$", step, re.M).groups())
        assert low - 0.0005 <= u < high + 0.0005
    u = np.random.Generator(np.random.PCG64(3)).random(3)  # the contract: an int seeds PCG64
    assert [float(re.search(r"u = ([\d.]+)", step)[1]) for step in shown] == pytest.approx(u, abs=1e-6)


def test_stages_that_are_off_and_other_ways_to_choose(capsys, folder):
    _, shown = tables(capsys, folder, "--greedy", "--top-k", 0, "--top-p", 1)
    assert "top-k off top-p off" in shown[0] and "pen. off" in shown[0] and "cut" not in shown[0]
    assert "greedy takes" in shown[0] and "–" not in shown[0]
    _, shown = tables(capsys, folder, "--torch-seed", 1)
    assert "torch's random numbers choose" in shown[0] and "–" not in shown[0]


def test_without_a_cache_everything_is_fed_again(capsys, folder):
    _, shown = tables(capsys, folder, *SETTINGS)
    assert [step.splitlines()[0].split("   ")[0] for step in shown] == [
        "step 0: 2 tokens in, 0 cached",
        "step 1: 1 token in, 2 cached",
        "step 2: 1 token in, 3 cached",
    ]
    _, shown = tables(capsys, folder, *SETTINGS, "--no-cache")
    assert shown[2].startswith("step 2: 4 tokens in, 0 cached")


def test_columns_stand_under_each_other_with_wide_characters(capsys, folder):
    _, shown = tables(capsys, folder, *SETTINGS)
    lines = [line for line in shown[0].splitlines()[2:] if "%" in line]
    ends = {table.width(line[: line.index("%")]) for line in lines}
    assert len(ends) == 1 and max(table.width(line) for line in shown[0].splitlines()) <= 80


@pytest.mark.parametrize(
    "text, columns", [("a", 1), ("中", 2), ("ｗ", 2), ("é", 1), ("e\u0301", 1), ("😀", 2), ("\u200b", 0), ("가", 2)]
)
def test_width_of_characters(text, columns):
    """Widths of UAX #11: W and F take two columns, combining marks none."""
    assert table.width(text) == columns


def test_bytes_of_half_a_character_are_shown():
    """GPT-2's table of letters for bytes: 你 is E4 BD A0."""
    letters = {byte: letter for letter, byte in table.byte_of_letter().items()}
    assert len(letters) == 256
    assert "".join(letters[byte] for byte in "你".encode()) == "ä½ł"
    assert letters[ord(" ")] == "Ġ" and letters[ord("\n")] == "Ċ"
