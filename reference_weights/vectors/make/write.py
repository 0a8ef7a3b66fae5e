"""The files of the golden vectors: suites as JSON, large arrays and models as safetensors, the manifest."""

import hashlib
import json
import sys
import tempfile
from pathlib import Path

import cases_block
import cases_model
import cases_rope
import cases_sampling
import cases_small
from models import write_models
from storing import stored

import npminimind
from npminimind.checkpoint import save_safetensors
from npminimind.oracle.arrays import from_json
from npminimind.oracle.mistakes import by_id

HERE = Path(__file__).resolve().parent.parent
LARGE = 64  # numbers; more of them are not read by eye
LARGE_SUITES = ("block", "forward")
GENERATOR = 1  # counted up whenever stored numbers change
SUITES = [*cases_small.SUITES, *cases_rope.SUITES, *cases_block.SUITES, *cases_sampling.SUITES]
SUITES += cases_model.SUITES


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
    files = {}
    for suite in SUITES:
        plain, tensors = suite_as_json(suite), {}
        if suite.name in LARGE_SUITES:
            plain["cases"] = [outsourced(case, str(case["id"]), tensors) for case in plain["cases"]]
        files[f"{suite.name}.json"] = text_of(plain).encode()
        if tensors:
            files[f"{suite.name}.safetensors"] = bytes_of(lambda path, t=tensors: save_safetensors(path, t))
    return files | model_files()


def model_files():
    with tempfile.TemporaryDirectory() as folder:
        write_models(folder)
        return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(Path(folder).rglob("*")) if p.is_file()}


def bytes_of(write):
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "file")
        return (Path(folder) / "file").read_bytes()


def outsourced(value, path, tensors):
    """Large arrays go to a safetensors file, and their place says under which name."""
    if isinstance(value, dict) and "shape" in value and "dtype" in value:
        array = from_json(value)
        if array.size <= LARGE:
            return value
        tensors[path] = array
        return {"shape": value["shape"], "dtype": value["dtype"], "tensor": path}
    if isinstance(value, dict):
        return {key: outsourced(inner, f"{path}.{key}", tensors) for key, inner in value.items()}
    return value


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
    path = HERE / "v1" / "ids.json"
    ledger = json.loads(path.read_text()) if path.exists() else {}
    for data in (data for name, data in files.items() if name.endswith(".json") and "/" not in name):
        for case in json.loads(data)["cases"]:
            known = ledger.setdefault(str(case["id"]), case["name"])
            if known != case["name"]:
                sys.exit(f"id {case['id']} belongs to {known}; give {case['name']} a new one")
    path.write_text(json.dumps(dict(sorted(ledger.items(), key=lambda item: int(item[0]))), indent=0) + "\n")


def main():
    files = all_files()
    check_ledger(files)
    for name, data in files.items():
        (HERE / "v1" / name).parent.mkdir(exist_ok=True)
        (HERE / "v1" / name).write_bytes(data)
    write_manifest(manifest(files, {suite.name: [] for suite in SUITES}))
    import crosscheck  # needs torch, transformers, mpmath

    write_manifest(manifest(files, {suite.name: crosscheck.cross_checks(suite.name) for suite in SUITES}))


def write_manifest(content):
    (HERE / "v1" / "manifest.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
