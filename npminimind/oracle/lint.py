"""Check the golden vectors themselves: ``python -m npminimind.oracle.lint [FOLDER]``.

The schema (where jsonschema is installed), names, ids, flags, decimals against hex floats, checksums, size.
"""

import hashlib
import importlib.util
import json
import re
import sys
from pathlib import Path

import numpy as np

from .arrays import NOT_FINITE, from_json
from .mistakes import MISTAKES
from .vectors import vectors_folder

UNLISTED = ("manifest.json", "schema.json", "ids.json")  # ids.json only grows
MOST_BYTES = 2_000_000
# suite.situation[.variant …]: words of the situation joined by _; a variant is a word, or letters and a number.
NAME = re.compile(r"(?P<suite>[a-z][a-z0-9_]*)\.(?P<situation>[a-z][a-z0-9]*(_[a-z0-9]+)*)(\.[a-z][a-z_]*\d*)*")


def lint(folder=None):
    """What is wrong with the vectors.

    Parameters
    ----------
    folder : path, optional
        The ones in the box by default.

    Returns
    -------
    list of str
        Empty where all is well.
    """
    folder = Path(folder or vectors_folder())
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    suites = {name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in manifest["suites"]}
    problems = check_files(folder, manifest)
    for name, suite in suites.items():
        problems += [f"{name}: {text}" for text in (*check_schema(folder, suite), *check_suite(name, suite, manifest))]
    return [*problems, *check_ids(folder, suites)]


def check_files(folder, manifest):
    """Every file is listed with its checksum, and nothing else lies there."""
    there = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    for name in UNLISTED:
        there.pop(name, None)
    astray = sorted(manifest["files"].keys() ^ there.keys())
    if astray:
        return [
            f"{name} is {'not listed' if name in there else 'missing, but listed'} in the manifest" for name in astray
        ]
    changed = [name for name, path in there.items() if sha256(path) != manifest["files"][name]["sha256"]]
    size = sum(path.stat().st_size for path in there.values())
    too_large = [f"all files have {size:,} bytes, more than {MOST_BYTES:,}"] if size > MOST_BYTES else []
    return [f"{name} is not the file of the manifest: its sha256 differs" for name in changed] + too_large


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def check_schema(folder, suite):
    if not importlib.util.find_spec("jsonschema"):
        return []
    import jsonschema

    validator = jsonschema.Draft202012Validator(json.loads((folder / "schema.json").read_text(encoding="utf-8")))
    return [f"{'/'.join(map(str, e.absolute_path))}: {e.message[:200]}" for e in validator.iter_errors(suite)]


def check_suite(name, suite, manifest):
    """Names, flags and numbers of one suite."""
    known = {mistake.id: mistake.flag() for mistake in MISTAKES}
    for flag, described in suite["flags"].items():
        if known.get(flag) != described:
            yield f"flag {flag} is not described as in the table of mistakes; run reference_weights/vectors/make"
    if not manifest["suites"][name]["cross_checks"]:
        yield "has not been compared with anything independent"
    used = set()
    for case in suite["cases"]:
        match = NAME.fullmatch(case["name"])
        if not match or match["suite"] != name:
            yield f"case {case['id']}: the name {case['name']!r} does not follow suite.situation[.variant]"
        if case.get("flags", []) != list(case.get("wrong", {})):
            yield f"case {case['id']}: flags and fingerprints do not name the same mistakes"
        used |= set(case.get("flags", ()))
        yield from (f"case {case['id']}: {text}" for text in check_numbers(case))
    if used != set(suite["flags"]):
        yield f"flags that are described and used differ: {sorted(used ^ set(suite['flags']))}"


def check_numbers(value):
    """Decimal and hex floats of every array are the same numbers."""
    if isinstance(value, dict) and "shape" in value and "data" in value:
        array = from_json(value)
        if (array.dtype.kind == "f") != ("hex" in value):
            yield "an array of floats needs hex floats beside the decimals, others have none"
        elif "hex" in value:
            hexes = [NOT_FINITE[h] if h in NOT_FINITE else float.fromhex(h) for h in value["hex"]]
            if not np.array_equal(array.ravel(), hexes, equal_nan=True):
                yield "decimals and hex floats are different numbers"
    elif isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from check_numbers(inner)


def check_ids(folder, suites):
    """Ids are unique, and stand for what the ledger says they always stood for."""
    ledger, seen = json.loads((folder / "ids.json").read_text(encoding="utf-8")), set()
    for suite in suites.values():
        for case in suite["cases"]:
            if case["id"] in seen:
                yield f"id {case['id']} is used twice"
            seen.add(case["id"])
            if ledger.get(str(case["id"])) != case["name"]:
                yield f"id {case['id']} stands for {ledger.get(str(case['id']))} in ids.json, here for {case['name']}"


def main(argv=None):
    argv = sys.argv[1:] if argv is None else argv
    problems = list(lint(*argv))
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{len(problems)} problems" if problems else "the vectors are well-formed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
