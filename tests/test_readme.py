"""The READMEs say what is true: their outputs are today's, their two languages agree, their names exist."""

import importlib
import re

import pytest
from readme_blocks import CHECKOUT, READMES, blocks, run_all

NUMBER = re.compile(r"\d+\.\d+")


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    return run_all("README.md", tmp_path_factory.mktemp("readme"))


def test_every_output_shown_is_real(outputs):
    """Decimals may differ by one in their last place: another BLAS rounds otherwise."""
    assert {language for language, *_ in outputs} == {"sh", "console", "python", "text"}
    for _, shown, real in outputs:
        assert NUMBER.sub("#", shown) == NUMBER.sub("#", real)
        for before, now in zip(NUMBER.findall(shown), NUMBER.findall(real)):
            assert abs(float(before) - float(now)) <= 1.01 * 10.0 ** -len(before.split(".")[1])


def test_both_languages_run_and_show_the_same():
    """The Chinese README opens the Chinese notebook."""
    english = [(language, code.replace("notebooks/en/", "notebooks/zh/")) for language, code in blocks("README.md")]
    assert english == blocks("README_zh.md")


def test_the_first_two_commands_set_up_and_run():
    """``.ci/run`` runs these very lines."""
    first, second = [content for language, content in blocks("README.md") if language == "sh"][:2]
    for line, end in ((first, 'npminimind generate "Once upon a time"'), (second, "python -m pytest")):
        assert line.count("\n") == 1 and line.startswith("python3 -m venv .venv && ") and line.strip().endswith(end)


@pytest.mark.parametrize("readme", READMES)
def test_the_functions_in_the_table_exist(readme):
    """A cell of the table of chapter 10 names functions as ``file.function`` of the package."""
    rows = [line for line in (CHECKOUT / readme).read_text("utf-8").splitlines() if re.match(r"\| 10\.\d", line)]
    assert len(rows) == 10
    for row in rows:
        names = re.findall(r"`(\w+)\.([\w.]+)`", row.split("|")[4])
        assert names, row
        for module, path in names:
            found = importlib.import_module(f"npminimind.{module}")
            for part in path.split("."):
                found = getattr(found, part)


@pytest.mark.parametrize("readme", READMES)
def test_links_lead_somewhere(readme):
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", (CHECKOUT / readme).read_text("utf-8"))
    assert targets and all((CHECKOUT / target).exists() for target in targets), targets
