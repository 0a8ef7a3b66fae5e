"""The course: the same in both languages, up to date, and true when it is run again.

The first part reads files and needs nothing. The second, marked ``notebooks``, executes every notebook in a fresh
kernel (extra ``notebooks``) and compares what it prints with what is stored.
"""

import ast
import importlib.util
import json
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "notebooks"
if not (FOLDER / "build.py").is_file():
    pytest.skip("the course is not installed with the package", allow_module_level=True)


def imported(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build = imported("build")
NAMES = build.names()
GRADED = ("oracle.check(", "course.grade(")


def source_of(name):
    return build.parse((FOLDER / "source" / f"{name}.py").read_text(encoding="utf-8"))


def stored(name, language):
    return json.loads((FOLDER / language / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]


def code_of(cells):
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def test_there_are_seventeen_in_order():
    assert [int(name[:2]) for name in NAMES] == list(range(1, 18))


@pytest.mark.parametrize("name", NAMES)
def test_built_notebooks_hold_what_the_source_says(name):
    assert build.is_current(name), f"python notebooks/build.py {name}"


@pytest.mark.parametrize("name", NAMES)
def test_code_and_outputs_are_the_same_in_both_languages(name):
    zh, en = ([cell for cell in stored(name, lang) if cell["cell_type"] == "code"] for lang in ("zh", "en"))
    assert zh == en


def structure(text):
    """What a translation must keep: paragraphs, headings, formulas, code, list items."""
    return {
        "paragraphs": len(re.findall(r"\n\s*\n", text)),
        "headings": re.findall(r"^#+", text, flags=re.M),
        "formulas": len(re.findall(r"\$\$?[^$]+\$\$?", text)),
        "items": len(re.findall(r"^(?:-|\d\.) ", text, flags=re.M)),
    }


@pytest.mark.parametrize("name", NAMES)
def test_no_language_lacks_a_paragraph(name):
    for pair in source_of(name):
        if isinstance(pair, build.Pair):
            assert structure(pair.zh) == structure(pair.en), pair.en
            assert re.search("[\u4e00-\u9fff]", pair.zh), pair.zh


def sections(name):
    """The code of each section that has code."""
    parts = [[]]
    for item in source_of(name):
        if isinstance(item, build.Pair):
            parts += [[]] if item.en.startswith("## ") else []
        elif "solution" not in item.tags:
            parts[-1].append(item.text)
    return ["\n".join(part) for part in parts[1:] if part]


@pytest.mark.parametrize("name", NAMES)
def test_every_section_asserts_something(name):
    for code in sections(name):
        tests_itself = any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(code)))
        assert tests_itself or any(call in code for call in GRADED), code


@pytest.mark.parametrize("name", NAMES)
def test_every_exercise_has_a_hint_and_a_solution(name):
    items = source_of(name)
    stubs = [item for item in items if not isinstance(item, build.Pair) and "NotImplementedError" in item.text]
    hints = [item for item in items if "hint" in item.tags]
    solutions = [item for item in items if "solution" in item.tags]
    assert 1 <= len(stubs) == len(hints) == len(solutions)
    for stub, solution in zip(stubs, solutions):
        assert re.findall(r"^def (my_\w+)", stub.text, flags=re.M) == re.findall(
            r"^def (my_\w+)", solution.text, flags=re.M
        )


@pytest.mark.parametrize("name", NAMES)
def test_unsolved_stubs_are_reported_as_unsolved(name):
    cells = stored(name, "en")
    graded = [
        cell
        for cell in cells
        if cell["cell_type"] == "code" and "".join(cell["source"]).splitlines()[-1].startswith(GRADED)
    ]
    assert graded and all("unsolved" in json.dumps(cell["outputs"]) for cell in graded)


@pytest.mark.parametrize("name", NAMES)
def test_sizes_and_stored_outputs(name):
    path = FOLDER / "en" / f"{name}.ipynb"
    assert path.stat().st_size <= 300_000
    cells = stored(name, "en")
    assert len(cells) < 40
    assert len({cell["id"] for cell in cells}) == len(cells)
    for output in (output for cell in cells for output in cell.get("outputs", [])):
        assert output["output_type"] != "error" and output.get("name") != "stderr"
        if "image/png" in output.get("data", {}):
            assert output["metadata"]["image/png"]["alt"]
    assert not re.search(r"/(home|root|tmp|work|Users)/|\bat 0x[0-9a-f]{6}", path.read_text(encoding="utf-8"))


def test_the_whole_course_is_small():
    assert sum(path.stat().st_size for path in FOLDER.rglob("*.ipynb")) <= 6_000_000


def test_the_readme_lists_every_notebook_and_no_other():
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    for language in build.LANGUAGES:
        assert sorted(set(re.findall(rf"\({language}/([\w]+)\.ipynb\)", text))) == NAMES


def test_the_handout_has_no_solutions(tmp_path):
    build.hand_out(tmp_path)
    for language in build.LANGUAGES:
        for name in NAMES:
            text = (tmp_path / language / f"{name}.ipynb").read_text(encoding="utf-8")
            assert build.WORDS[language]["solution"] not in text and '"image/png"' not in text
            assert "NotImplementedError" in text


WRONG = [
    (operator, mistake, f)
    for operator, rows in imported("wrong_solutions").WRONG.items()
    for mistake, f in rows.items()
]


@pytest.mark.parametrize(("operator", "mistake", "function"), WRONG, ids=[mistake for _, mistake, _ in WRONG])
def test_a_wrong_solution_is_caught_and_named(operator, mistake, function):
    from npminimind import oracle

    result = oracle.check(operator, function, search=False)
    assert not result.ok and not result.unsolved
    assert mistake in [m.id for m in result.mistakes] + [m.id for m, _ in result.similar]


# ---------------------------------------------------------------------------------------------
# Execution. One run of a notebook serves all that is asked about it.

NUMBER = re.compile(r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")


def agree(one, other):
    """Whether two printed texts say the same: words equal, numbers up to their last digit.

    >>> agree("p 0.302 of 5", "p  0.303 of 5"), agree("5 kept", "6 kept"), agree("1e-16 off", "3e-16 off")
    (True, False, True)
    """
    if re.sub(r"\s+", "", NUMBER.sub("#", one)) != re.sub(r"\s+", "", NUMBER.sub("#", other)):
        return False
    return all(map(close, NUMBER.findall(one), NUMBER.findall(other)))


def close(a, b):
    if a == b:
        return True
    if not re.search("[.e]", a + b):
        return False  # whole numbers are ids and counts
    digits = len(a.lower().split("e")[0].partition(".")[2])
    unit = 10.0 ** (int(a.lower().partition("e")[2] or 0) - digits)
    return abs(float(a) - float(b)) <= max(1.01 * unit, 1e-9)  # below that it is rounding noise


def said(outputs):
    """What a cell's outputs say as text."""
    texts = ["".join(o["text"]) if "text" in o else "".join(o.get("data", {}).get("text/plain", "")) for o in outputs]
    return "\n".join(texts)


def with_solutions(name):
    """All code of a notebook, then each solution and its check: (source, its stored cell or None)."""
    items = [item for item in source_of(name) if not isinstance(item, build.Pair)]
    cells, behind, check = [], [], None
    for item in items:
        if "solution" in item.tags:
            behind += [item.text, asserting(check)]
        else:
            cells.append(item.text)
            check = item.text if any(call in item.text for call in GRADED) else check
    return cells, behind


def asserting(check):
    """A check's cell whose last line must find the solution right."""
    tree = ast.parse(check)
    graded = ast.unparse(tree.body.pop())
    return f"{ast.unparse(tree)}\ngraded = {graded}\nassert graded.ok, str(graded)"


def test_agree_tells_numbers_apart():
    assert agree("p 0.302 of 5", "p  0.303 of 5") and agree("1e-16 off", "3e-16 off")
    assert not agree("5 kept", "6 kept") and not agree("p 0.302", "p 0.305") and not agree("a 1.0", "b 1.0")


@pytest.mark.notebooks
@pytest.mark.parametrize("name", NAMES)
def test_it_runs_prints_what_is_stored_and_its_solutions_are_right(name):
    pytest.importorskip("nbclient")
    cells, behind = with_solutions(name)
    outputs = build.run([*cells, *behind])
    recorded = [cell for cell in stored(name, "en") if cell["cell_type"] == "code"]
    assert len(recorded) == len(cells)
    for cell, new in zip(recorded, outputs):
        if "measured" not in cell["metadata"].get("tags", []):
            assert agree(said(cell["outputs"]), said(new)), f"{cell['id']} prints now:\n{said(new)}"
