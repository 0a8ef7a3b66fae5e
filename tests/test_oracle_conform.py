"""conform: two small ports in C and JavaScript pass, planted mistakes are caught, misbehaviour is survived."""

import json
import shutil
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from conftest import CHECKOUT

from npminimind.cli import main
from npminimind.oracle.arrays import encode
from npminimind.oracle.conform import conform
from npminimind.oracle.mistakes import MISTAKES
from npminimind.oracle.protocol import CouldNotRun
from npminimind.oracle.signatures import SIGNATURES
from npminimind.oracle.vectors import load_vectors, suites

PORTS = CHECKOUT / "tests" / "ports"
VECTORS = CHECKOUT / "reference_weights" / "vectors"
OPERATORS = list(SIGNATURES)
IN_OPERATORS = [mistake for mistake in MISTAKES if mistake.ops]


@pytest.fixture(scope="session")
def c_port(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        pytest.skip("no C compiler here")
    program = tmp_path_factory.mktemp("port") / "port"
    command = [compiler, "-O2", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Werror", PORTS / "port.c", "-o", program, "-lm"]
    subprocess.run([str(word) for word in command], check=True)
    return str(program)


@pytest.fixture(scope="session")
def js_port():
    node = shutil.which("node")
    if not node:
        pytest.skip("no node here")
    return [node, str(PORTS / "port.mjs")]


def misbehaving(how):
    return [sys.executable, str(PORTS / "misbehave.py"), how]


def check_port(command):
    golden = conform(command, search=False)
    assert golden.exit_code == 0, str(golden)
    done = [result.operator for result in golden.results if result.status == "passed"]
    assert done == [name for name in suites() if name in OPERATORS]
    assert all(not result.skipped for result in golden.results if result.operator in OPERATORS)
    assert "skipped as unsupported" in str(golden)
    searched = conform(command, only=["rms_norm", "attention", "apply_top_p", "multinomial"], examples=20)
    assert searched.exit_code == 0, str(searched)
    assert all(result.searched >= 20 for result in searched.results)


def test_c_port_conforms(c_port):
    check_port([c_port])


def test_javascript_port_conforms(js_port):
    check_port(js_port)


@pytest.mark.parametrize("mistake", IN_OPERATORS, ids=lambda mistake: mistake.id)
def test_mistakes_planted_in_c_are_caught(c_port, mistake):
    """The switch is written in C; the names come from the table. Small differences of taste are called similar."""
    (operator,) = mistake.ops
    affected = ["apply_top_p"] if operator == "top_p_mask" else [operator]  # a mask alone has many ways to be wrong
    outcome = conform([c_port, "--bug", mistake.id], only=affected, search=False)
    assert outcome.exit_code == 1
    (result,) = outcome.results
    named = result.mistakes or [other for other, _ in result.similar]
    assert mistake in named, str(result)


@pytest.mark.parity
def test_a_whole_port_in_torch_conforms():
    """Every suite, through the protocol, by code that shares nothing with ours. It does not check its arguments."""
    for module in ("torch", "transformers", "mpmath", "safetensors"):
        pytest.importorskip(module)
    outcome = conform([sys.executable, "-W", "ignore", str(PORTS / "torch_port.py")], search=False, timeout=120)
    assert [result.operator for result in outcome.results] == suites()
    wrong = [case for result in outcome.results for case, problem in result.outcomes if problem]
    empty = {"causal_mask.none", "rope_tables.empty"}  # an empty list has lost its shape
    assert {case.name for case in wrong if case.result != "invalid"} == empty, str(outcome)


def test_an_unknown_switch_plants_nothing(c_port):
    assert conform([c_port, "--bug", "no-such-mistake"], only=["rms_norm"], search=False).exit_code == 0


def test_finding_is_printed_with_its_name(c_port, capsys):
    assert main(["conform", "--no-search", "--only", "apply_rope", "--", c_port, "--bug", "rope-neighbours"]) == 1
    printed = capsys.readouterr().out
    for words in ("apply_rope", "differs", "expected q", "got q", "rope-neighbours: it rotates neighbours"):
        assert words in printed


# ---------------------------------------------------------------------------------------------
# The protocol, and the guide


def test_lines_follow_the_protocols_schema(js_port):
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((VECTORS / "protocol.schema.json").read_text(encoding="utf-8"))
    cases = [min(load_vectors(name), key=lambda case: len(str(case.args))) for name in suites()]
    requests = [{"id": i, "op": case.operator, "args": encode(case.args)} for i, case in enumerate(cases, 1)]
    sent = "".join(json.dumps(request) + "\n" for request in requests)
    run = subprocess.run(js_port, input=sent, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in run.stdout.splitlines()]
    assert [answer["id"] for answer in answers] == [request["id"] for request in requests]
    for line in requests + answers:
        jsonschema.validate(line, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"id": 1, "out": {"shape": [1], "dtype": "float64"}}, schema)


def test_every_operator_stands_in_the_protocol():
    page = (VECTORS / "PROTOCOL.md").read_text(encoding="utf-8")
    assert all(f"`{case.operator}`" in page for case in load_vectors())


def test_the_guide_tells_the_truth(tmp_path, capsys):
    """Its ports are run, and print what the guide says."""
    guide = (VECTORS / "README.md").read_text(encoding="utf-8")
    loop, norm = (block.split("```")[0] for block in guide.split("```python\n")[1:])
    first, second, third = (tmp_path / name for name in ("first.py", "second.py", "third.py"))
    first.write_text(loop)
    second.write_text(with_norm(loop, norm))
    third.write_text(with_norm(loop, norm.replace("/ len(x)) + eps", "/ len(x) + eps)")))
    for file, code in ((first, 1), (second, 1), (third, 0)):
        command = ["conform", "--only", "silu", "--only", "rms_norm"]
        assert main([*command, "--", sys.executable, str(file)]) == code
        printed = capsys.readouterr().out.splitlines()[:-2]
        if code:
            missing = [line for line in printed if line and line not in guide and "stderr" not in line]
            assert not missing


def with_norm(loop, norm):
    """The guide's loop with its cure and the second operator."""
    loop = loop.replace("math.exp(-x)", "math.exp(min(-x, 700))")
    dispatch = """    elif request["op"] == "rms_norm":
        x, weight = request["args"]["x"], request["args"]["weight"]["data"]
        if len(weight) == x["shape"][-1]:
            data = rms_norm(x["data"], weight, request["args"]["eps"])
            answer["out"] = {"shape": x["shape"], "dtype": "float64", "data": data}
        else:
            answer["error"] = "as many weights as features"
    else:"""
    return loop.replace("for line in sys.stdin", norm + "\nfor line in sys.stdin").replace("    else:", dispatch)


# ---------------------------------------------------------------------------------------------
# Programs that misbehave


@pytest.mark.parametrize(
    "how, words",
    [
        ("banner", "its stdout holds a line that is no answer to request 1: 'Loading my model ...'"),
        ("dead", "ended with exit code 1 instead of answering; the end of its stderr: no model found"),
    ],
)
def test_a_bad_start_is_an_error(how, words):
    with pytest.raises(CouldNotRun, match="misbehave.py") as error:
        conform(misbehaving(how), only=["silu"])
    assert words in str(error.value)


def test_a_program_that_is_not_there(capsys):
    assert main(["conform", "--", "./there-is-no-such-program"]) == 2
    assert (
        capsys.readouterr().err.strip()
        == "npminimind: ./there-is-no-such-program can't be started: No such file or directory"
    )


def test_noise_fails_the_case_and_the_run_goes_on():
    outcome = conform(misbehaving("noise"), only=["silu"], search=False)
    assert outcome.exit_code == 1 and not outcome.ended
    assert len(outcome.results[0].failures) == 4
    assert "'debug: computing silu'; write messages to stderr" in str(outcome)


def test_hanging_ends_the_run():
    outcome = conform(misbehaving("hang"), only=["silu", "rotate_half"], search=False, timeout=0.1)
    assert outcome.exit_code == 1
    assert "no answer within 0.1 seconds" in outcome.ended and "giving up" in outcome.ended


def test_deaths_quote_stderr():
    outcome = conform(misbehaving("die"), only=["silu"], search=False)
    assert outcome.exit_code == 1
    assert "ended with exit code 3 instead of answering; the end of its stderr: out of registers" in str(outcome)


def test_a_death_in_the_search_is_not_shrunk():
    """No golden case of silu has four numbers."""
    outcome = conform(misbehaving("die_on_four"), only=["silu"], examples=60)
    assert outcome.exit_code == 1 and not outcome.ended
    assert len(outcome.results[0].failures) == 1
    assert "found by search" in str(outcome) and "was killed by SIGABRT" in str(outcome)


def test_answers_that_can_not_be_read():
    outcome = conform(misbehaving("ragged"), only=["silu"], search=False)
    assert "its answer can't be read: shape [2] needs 2 numbers, there are 1" in str(outcome)


def test_unsupported_is_never_passed():
    outcome = conform(misbehaving("unsupported"), only=["silu", "gelu"])
    assert outcome.exit_code == 2
    assert [result.status for result in outcome.results] == ["skipped", "skipped"]
    assert "nothing was checked: the program supports none of these operators" in str(outcome)


def test_both_ways_to_write_arrays(monkeypatch):
    monkeypatch.setenv("ARRAYS", "base64")
    outcome = conform(misbehaving("well"), only=["top_p_mask", "moe"], examples=10)
    assert outcome.exit_code == 0, str(outcome)


def test_unknown_suites_are_refused(capsys):
    assert main(["conform", "--only", "layer_norm", "--", sys.executable]) == 2
    assert "no suite is called 'layer_norm'" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------
# Reports


def test_junit_and_json(tmp_path, capsys):
    report = tmp_path / "report.xml"
    command = ["conform", "--no-search", "--only", "silu", "--only", "encode", "--json", "--junit", str(report)]
    assert main([*command, "--", *misbehaving("noise")]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [suite["status"] for suite in found["suites"]] == ["failed", "skipped"]
    assert found["exit_code"] == 1 and found["suites"][0]["failures"][0]["kind"] == "noise"
    root = ElementTree.parse(report).getroot()
    counts = {suite.get("name"): [suite.get(key) for key in ("tests", "failures", "skipped")] for suite in root}
    assert counts["silu"] == ["4", "4", "0"]
    assert counts["encode"][1:] == ["0", counts["encode"][0]]
