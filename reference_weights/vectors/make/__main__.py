"""Write the golden vectors: ``python reference_weights/vectors/make`` (numpy alone; checks need torch and mpmath)."""

import hashlib
import json
import sys
from pathlib import Path

import cases_block
import cases_rope
import cases_sampling
import cases_small
from build import stored

import npminimind
from npminimind.oracle.mistakes import by_id

HERE = Path(__file__).resolve().parent.parent
GENERATOR = 1  # counted up whenever stored numbers change
SUITES = [*cases_small.SUITES, *cases_rope.SUITES, *cases_block.SUITES, *cases_sampling.SUITES]


def suite_as_json(suite):
    """A suite as plain values: what it is about, the mistakes that it catches, its cases."""
    cases = [stored(declared, suite) for declared in suite.cases]
    flags = sorted({flag for case in cases for flag in case.get("flags", ())})
    return {
        "suite": suite.name,
        "operator": suite.operator,
        "source": suite.source,
        "flags": {flag: by_id(flag).flag() for flag in flags},
        "cases": cases,
    }


def text_of(suite):
    """JSON with one case a line, so that a change shows as the lines of its cases."""
    head = {key: value for key, value in suite.items() if key != "cases"}
    lines = ",\n".join("  " + json.dumps(case, ensure_ascii=False) for case in suite["cases"])
    return json.dumps(head, ensure_ascii=False, indent=1)[:-2] + ',\n "cases": [\n' + lines + "\n ]\n}\n"


def all_files():
    """File name -> bytes, manifest excepted."""
    return {f"{suite.name}.json": text_of(suite_as_json(suite)).encode() for suite in SUITES}


def manifest(files, cross_checks):
    return {
        "version": "v1",
        "generator": GENERATOR,
        "npminimind": npminimind.__version__,
        "profile": "minimind-3: jingyaogong/minimind at dddedc6 (2026-05-07) or later",
        "truth": "float64",
        "suites": {
            suite.name: {
                "file": f"{suite.name}.json",
                "cases": len(suite.cases),
                "cross_checks": cross_checks[suite.name],
            }
            for suite in SUITES
        },
        "files": {
            name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)} for name, data in files.items()
        },
    }


def check_ledger(files):
    """Ids are for ever: one that is known keeps its name, new ones are added to ids.json."""
    path = HERE / "ids.json"
    ledger = json.loads(path.read_text()) if path.exists() else {}
    for data in files.values():
        for case in json.loads(data)["cases"]:
            known = ledger.setdefault(str(case["id"]), case["name"])
            if known != case["name"]:
                sys.exit(f"id {case['id']} belongs to {known}; give {case['name']} a new one")
    path.write_text(json.dumps(dict(sorted(ledger.items(), key=lambda item: int(item[0]))), indent=0) + "\n")


def main():
    files = all_files()
    check_ledger(files)
    import crosscheck

    for name, data in files.items():
        (HERE / "v1" / name).write_bytes(data)
    text = json.dumps(manifest(files, crosscheck.all_suites(SUITES)), indent=1, ensure_ascii=False)
    (HERE / "v1" / "manifest.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
