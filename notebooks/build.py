"""Sources -> notebooks in both languages: the code runs once, its outputs serve both.

    python notebooks/build.py                  # build what has changed
    python notebooks/build.py --all            # run everything again
    python notebooks/build.py 11_top_p         # this one
    python notebooks/build.py --handout DIR    # copies for a class: no solutions, no outputs

A source, ``source/11_top_p.py``, is a Python file in cells. ``# %% zh`` and ``# %% en`` hold the same text in two
languages, ``# %%`` holds code. Words behind the marker are tags: ``hint`` folds a text away, ``solution`` folds code
away and does not run it, ``measured`` exempts outputs from comparison, such as timings.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
LANGUAGES = ("zh", "en")
WORDS = {
    "zh": {
        "hint": "提示",
        "solution": "参考答案",
        "next": "下一本",
        "back": "上一本",
        "other": "English",
        "all": "全部",
    },
    "en": {
        "hint": "Hint",
        "solution": "Solution",
        "next": "Next",
        "back": "Back",
        "other": "中文",
        "all": "All of them",
    },
}


class Cell(NamedTuple):
    """One cell of a source: ``kind`` is zh, en or code."""

    kind: str
    tags: tuple
    text: str


class Pair(NamedTuple):
    """The same text in both languages."""

    tags: tuple
    zh: str
    en: str


def names():
    """All notebooks, in the order of the course."""
    return sorted(path.stem for path in (HERE / "source").glob("[0-9]*.py"))


def parse(source):
    """The text of a source -> list of Pair and Cell (code).

    Examples
    --------
    >>> parse('# %% zh\\nr\"\"\"\\n你好\\n\"\"\"\\n# %% en\\nr\"\"\"\\nHi\\n\"\"\"\\n# %% measured\\n1 + 1\\n')
    [Pair(tags=(), zh='你好', en='Hi'), Cell(kind='code', tags=('measured',), text='1 + 1')]
    """
    head, *parts = re.split(r"^# %%(.*)\n", source, flags=re.M)
    cells = [read_cell(marker.split(), body.strip("\n")) for marker, body in zip(parts[::2], parts[1::2])]
    result = []
    while cells:
        cell = cells.pop(0)
        if cell.kind == "code":
            result.append(cell)
            continue
        other = cells.pop(0) if cells else None
        if other is None or (cell.kind, other.kind) != LANGUAGES or cell.tags != other.tags:
            raise ValueError(f"a zh text needs its en text right behind it, with the same tags: {cell.text[:60]!r}")
        result.append(Pair(cell.tags, cell.text, other.text))
    return result


def read_cell(words, body):
    kind = words[0] if words and words[0] in LANGUAGES else "code"
    tags = tuple(word for word in words if word not in LANGUAGES)
    if kind == "code":
        return Cell(kind, tags, body.strip())
    text = re.fullmatch(r'r?"""\n?(.*?)\n?"""', body.strip(), flags=re.S)
    if not text:
        raise ValueError(f'a text stands between r""" and """: {body[:60]!r}')
    return Cell(kind, tags, text[1])


def cells_of(name, language, solutions=True):
    """The cells of a built notebook, without outputs: the one description that build and tests share.

    Parameters
    ----------
    name : str
    language : "zh" or "en"
    solutions : bool
        False leaves them out.

    Returns
    -------
    list of dict
        As nbformat 4.5 wants them.
    """
    words, cells = WORDS[language], []
    for item in [*parse((HERE / "source" / f"{name}.py").read_text(encoding="utf-8")), navigation(name)]:
        if isinstance(item, Pair):
            text = getattr(item, language)
            text = folded(words["hint"], text) if "hint" in item.tags else text
            cells.append(markdown(text))
        elif "solution" in item.tags:
            cells += [markdown(folded(words["solution"], f"```python\n{item.text}\n```"))] if solutions else []
        else:
            cells.append(code(item))
    for i, cell in enumerate(cells):
        cell["id"] = f"{name[:2]}-{i:02d}"
    return cells


def folded(summary, text):
    return f"<details>\n<summary>{summary}</summary>\n\n{text}\n\n</details>"


def navigation(name):
    """The last cell: the neighbours of a notebook, and itself in the other language."""
    order = names()
    at, links = order.index(name), {}
    for language, other in zip(LANGUAGES, reversed(LANGUAGES)):
        words, parts = WORDS[language], []
        parts += [f"← [{words['back']}]({order[at - 1]}.ipynb)"] if at else []
        parts += [f"[{words['next']}]({order[at + 1]}.ipynb) →"] if at + 1 < len(order) else []
        parts += [f"[{words['all']}](../README.md)", f"[{words['other']}](../{other}/{name}.ipynb)"]
        links[language] = "---\n\n" + " · ".join(parts)
    return Pair((), **links)


def markdown(text):
    return {"cell_type": "markdown", "metadata": {}, "source": text.splitlines(keepends=True)}


def code(cell):
    tags, source = {"tags": list(cell.tags)} if cell.tags else {}, cell.text.splitlines(keepends=True)
    return {"cell_type": "code", "metadata": tags, "source": source, "outputs": [], "execution_count": None}


def notebook(cells):
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def run(sources):
    """Run pieces of code in a fresh kernel.

    Returns
    -------
    list of list of dict
        The outputs of each piece.
    """
    import nbformat
    from nbclient import NotebookClient

    cells = [code(Cell("code", (), text)) | {"id": f"run-{i}"} for i, text in enumerate(sources)]
    book = nbformat.reads(json.dumps(notebook(cells)), as_version=4)
    NotebookClient(book, timeout=120, resources={"metadata": {"path": HERE / "source"}}, record_timing=False).execute()
    return [[tidied(output) for output in joined(cell["outputs"])] for cell in book["cells"]]


def joined(outputs):
    """Pieces of one stream that follow each other as one: how they were cut is chance."""
    result = []
    for output in outputs:
        last = result[-1] if result else {}
        if output["output_type"] == "stream" and last.get("name") == output["name"]:
            last["text"] += output["text"]
        elif "application/vnd.jupyter.widget-view+json" not in output.get("data", {}):  # alive only in a kernel
            result.append(dict(output))
    return result


def tidied(output):
    """What stays the same from run to run: no addresses in memory, no counters."""
    output = json.loads(json.dumps(output))
    if "execution_count" in output:
        output["execution_count"] = None
    if "image/png" in output.get("data", {}):
        output["data"]["text/plain"] = "<picture>"
    return output


def build(name):
    """Write a notebook in both languages."""
    outputs = run(["".join(cell["source"]) for cell in cells_of(name, "en") if cell["cell_type"] == "code"])
    for language in LANGUAGES:
        cells = cells_of(name, language)
        for count, (cell, made) in enumerate(zip((c for c in cells if c["cell_type"] == "code"), outputs), start=1):
            cell["outputs"] = [o | {"execution_count": count} if "execution_count" in o else o for o in made]
            cell["execution_count"] = count
        write(HERE / language / f"{name}.ipynb", cells)


def write(path, cells):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(notebook(cells), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def without_outputs(cells):
    """The cells as :func:`cells_of` describes them.

    Examples
    --------
    >>> without_outputs([{"cell_type": "code", "outputs": [1], "execution_count": 3}])
    [{'cell_type': 'code', 'outputs': [], 'execution_count': None}]
    """
    none = {"outputs": [], "execution_count": None}
    return [cell | none if cell["cell_type"] == "code" else cell for cell in cells]


def is_current(name):
    """Whether both built notebooks hold the cells of the source."""
    paths = [HERE / language / f"{name}.ipynb" for language in LANGUAGES]
    if not all(path.is_file() for path in paths):
        return False
    books = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    return all(without_outputs(b["cells"]) == cells_of(name, language) for b, language in zip(books, LANGUAGES))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="as in source/, without .py; default: those that have changed")
    parser.add_argument("--all", action="store_true", help="run everything again")
    parser.add_argument("--handout", metavar="DIR", type=Path, help="write copies without solutions and outputs there")
    arguments = parser.parse_args()
    if arguments.handout:
        return hand_out(arguments.handout)
    for name in arguments.names or [name for name in names() if arguments.all or not is_current(name)]:
        build(name)
        print(name, *(f"{(HERE / lang / f'{name}.ipynb').stat().st_size / 1000:.0f} kB" for lang in LANGUAGES))


def hand_out(folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "course.py").write_text((HERE / "course.py").read_text(encoding="utf-8"), encoding="utf-8")
    for language in LANGUAGES:
        for name in names():
            write(folder / language / f"{name}.ipynb", cells_of(name, language, solutions=False))
    print(f"{2 * len(names())} notebooks in {folder}")


if __name__ == "__main__":
    sys.exit(main())
