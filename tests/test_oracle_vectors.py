"""The golden vectors: well-formed, reproducible, and equal to what others compute."""

import json
import shutil
import sys

import numpy as np
import pytest
from conftest import CHECKOUT

from npminimind import MiniMindForCausalLM, trace_files
from npminimind.oracle.arrays import decode, encode, from_json, to_json
from npminimind.oracle.judging import distance, judge
from npminimind.oracle.lint import lint, main
from npminimind.oracle.mistakes import MISTAKES
from npminimind.oracle.signatures import SIGNATURES
from npminimind.oracle.vectors import load_vectors, suites, vectors_folder

MAKE = CHECKOUT / "reference_weights" / "vectors" / "make"
CASES = {case.name: case for case in load_vectors()}
RIGHT = [case for case in CASES.values() if case.result != "invalid"]

# What the vectors must hold, whatever else they do.
EDGES = """
rms_norm.zero_row rms_norm.eps_dominated rms_norm.half_overflow rope_tables.offset.start5
rope_tables.table_end.start32766 rope_tables.yarn.d96 apply_rope.yarn.d16 apply_rope.plain.d16
attention.fully_masked_row attention.cache.s2.past3 softmax.fully_masked_row moe.tie.top1 moe.unused_expert
apply_repetition_penalty.zero_logit apply_repetition_penalty.signs apply_repetition_penalty.masked_logit
apply_repetition_penalty.repeated_ids apply_top_k.ties apply_top_p.exact_hit apply_top_p.ties_at_edge
multinomial.u_zero multinomial.u_next_to_one multinomial.on_an_edge forward.dense.past_the_table
forward.dense.last_position generate.eos_first generate.rows_end_apart generate.continued
stream.stop_word_over_tokens stream.character_over_tokens forced.exact_tie
"""


@pytest.fixture(scope="module")
def make():
    """The generator's modules."""
    sys.path.insert(0, str(MAKE))
    yield
    sys.path.remove(str(MAKE))


# ---------------------------------------------------------------------------------------------
# Form


def one_suite(folder, name="rotate_half"):
    """Vectors of one suite only, so that looking at them takes no time."""
    manifest = json.loads((vectors_folder() / "manifest.json").read_text(encoding="utf-8"))
    manifest["suites"] = {name: manifest["suites"][name]}
    manifest["files"] = {f"{name}.json": manifest["files"][f"{name}.json"]}
    for file in (f"{name}.json", "schema.json", "ids.json"):
        shutil.copy(vectors_folder() / file, folder)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_linter_finds_nothing(tmp_path):
    assert lint() == []
    assert lint(one_suite(tmp_path)) == []


@pytest.mark.parametrize(
    "change, complaint",
    [
        (lambda text: text.replace("0x1.0000000000000p+0", "0x1.0000000000001p+0", 1), "different numbers"),
        (lambda text: text.replace('"id": 3002', '"id": 3001', 1), "used twice"),
        (lambda text: text.replace("rotate_half.rows", "rotate_half.Rows", 1), "does not follow"),
        (lambda text: text.replace("rotate_half.rows", "rotate_half.lines", 1), "stands for rotate_half.rows"),
        (lambda text: text.replace('"flags": [', '"flags": ["rope-theta", ', 1), "same mistakes"),
        (lambda text: text.replace("instead of [-b, a]", "", 1), "not described as"),
    ],
)
def test_linter_finds_a_damaged_suite(tmp_path, change, complaint):
    folder = one_suite(tmp_path)
    file = folder / "rotate_half.json"
    damaged = change(file.read_text(encoding="utf-8"))
    assert damaged != file.read_text(encoding="utf-8")
    file.write_text(damaged, encoding="utf-8")
    found = list(lint(folder))
    assert any(complaint in problem for problem in found)
    assert any("sha256 differs" in problem for problem in found)
    assert main([folder]) == 1


def test_linter_finds_strange_and_missing_files(tmp_path):
    folder = one_suite(tmp_path)
    (folder / "notes.txt").write_text("hello")
    assert "notes.txt is not listed in the manifest" in lint(folder)
    (folder / "notes.txt").unlink()
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["softmax.safetensors"] = {"sha256": "0"}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert "softmax.safetensors is missing, but listed in the manifest" in lint(folder)


def test_schema_refuses_what_it_should():
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((vectors_folder() / "schema.json").read_text(encoding="utf-8"))
    suite = json.loads((vectors_folder() / "silu.json").read_text(encoding="utf-8"))
    jsonschema.validate(suite, schema)
    suite["cases"][0]["result"] = "perhaps"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(suite, schema)


def test_there_are_enough_cases_with_all_edges():
    assert len(CASES) >= 150
    assert set(EDGES.split()) <= CASES.keys()
    assert set(suites()) >= set(SIGNATURES)


def test_every_mistake_in_an_operator_is_caught():
    caught = {flag for case in CASES.values() for flag in case.flags}
    assert {mistake.id for mistake in MISTAKES if mistake.ops} <= caught
    missed = {mistake.id for mistake in MISTAKES} - caught
    assert missed <= {"layers-sorted-as-text"}  # needs eleven layers, the tiny models have two


def test_unknown_suite_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match="no suite is called 'nothing'; there are: rms_norm, softmax"):
        load_vectors("nothing")


@pytest.mark.parametrize("form", ["data", "hex", "base64"])
@pytest.mark.parametrize(
    "array",
    [
        np.array([[0.1, -np.inf], [np.nan, 5e-324]]),
        np.float32([1e-45, 3.4e38]),
        np.array([2**62 + 1]),
        np.array(2.5),
        np.zeros((0, 3)),
        np.array([True]),
    ],
    ids=str,
)
def test_arrays_survive_json(array, form):
    back = from_json(json.loads(json.dumps(to_json(array, form))))
    assert back.dtype == array.dtype and back.shape == array.shape
    np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize(
    "described, complaint",
    [
        ({"dtype": "float64", "data": [1]}, "needs a shape"),
        ({"shape": [2], "dtype": "float64", "data": [1]}, r"needs 2 numbers, there are 1"),
        ({"shape": [1], "dtype": "double", "data": [1]}, "dtype 'double' is not known"),
        ({"shape": [1], "dtype": "float64"}, "needs its numbers"),
        ({"shape": [1], "dtype": "float64", "data": ["Infinity"]}, "is no number"),
        ({"shape": [1], "dtype": "int64", "data": [1.5]}, "whole numbers"),
        ({"shape": [1], "dtype": "float64", "base64": "AAA="}, "can't be read"),
    ],
)
def test_arrays_that_are_none(described, complaint):
    with pytest.raises(ValueError, match=complaint):
        from_json(described)


# ---------------------------------------------------------------------------------------------
# Truth


def test_by_hand():
    """mean(x²) of 3, 4 is 12.5; e0 at position 1 turns to cos 1, sin 1; silu(2) = 2 / (1 + e^-2)."""
    norm = CASES["rms_norm.three_four"].expected["out"]
    np.testing.assert_allclose(norm, [[3 / 12.500001**0.5, 40 / 12.500001**0.5]], rtol=1e-15)
    turned = CASES["apply_rope.unit_vector"].expected["q"].ravel()
    np.testing.assert_allclose(turned, [0.5403023058681398, 0, 0.8414709848078965, 0], atol=3e-8)
    np.testing.assert_allclose(CASES["swiglu.one"].expected["out"], [[2 / (1 + np.exp(-2)) * 30]], rtol=1e-15)
    assert CASES["multinomial.on_an_edge"].expected["out"].tolist() == [2]
    assert CASES["chat_template.one_turn"].expected["out"].endswith("assistant\n<think>\n\n</think>\n\n")


def test_truth_is_the_same_here(make):
    """Computed again, with numpy alone, on whatever machine this is: within 1e-12 of what is stored."""
    from storing import truth_of

    for case in RIGHT:
        again = truth_of(case.operator, case.args)
        for name, right in case.expected.items():
            if isinstance(right, str):
                assert again[name] == right
            else:
                free = case.free.get(name, False)
                scale = np.abs(right[np.isfinite(right)]).max(initial=1) if right.dtype.kind == "f" else 1
                assert np.where(free, 0, distance(right, again[name])).max(initial=0) <= 1e-12 * scale, case.name


def test_regenerating_gives_the_same_bytes(make):
    from cases_small import SUITES
    from write import suite_as_json, text_of

    for suite in SUITES:
        text = text_of(suite_as_json(suite))
        assert text == text_of(suite_as_json(suite))
        if suite.name in ("repeat_kv", "causal_mask"):  # nothing is rounded there: the same bytes everywhere
            assert text == (vectors_folder() / f"{suite.name}.json").read_text(encoding="utf-8")


def test_tiny_models_are_the_generators(make):
    import models

    for name in ("tiny-dense", "tiny-moe"):
        model = MiniMindForCausalLM.from_pretrained(vectors_folder() / name, dtype=np.float64)
        assert model.config == models.CONFIGS[name]
        for key, weight in models.weights(name).items():
            np.testing.assert_array_equal(model.params[key], weight)


@pytest.mark.parametrize("name", ["tiny-dense", "tiny-moe"])
def test_traces_belong_to_the_tiny_models(name):
    arrays, metadata = trace_files.load(vectors_folder() / name / "trace.safetensors")
    model = MiniMindForCausalLM.from_pretrained(vectors_folder() / name, dtype=np.float64)
    logits = model(metadata["input_ids"]).logits
    np.testing.assert_allclose(arrays["round_0.lm_head"], logits, atol=1e-12)
    chosen = [arrays[f"round_{r}.sample.next_token"].item() for r in range(3)]
    whole = model.generate(metadata["input_ids"], max_new_tokens=3, do_sample=False, eos_token_id=None)
    assert whole[0, -3:].tolist() == chosen


def test_floors_are_a_ladder():
    """float32 rounds to 24 bits, bfloat16 weights to 8: three decades apart on a whole model."""
    for case in load_vectors("forward"):
        if case.result == "valid":
            single, half, brain = (case.floor[dtype]["out"] for dtype in ("float32", "float16", "bfloat16"))
            assert 0 < 100 * single < half < brain


def test_near_ties_are_said():
    case = CASES["forced.exact_tie"]
    tied = [step[0] for step in case.steps if "acceptable_ids" in step[0]]
    assert [step["acceptable_ids"] for step in tied] == [[62, 63]] and tied[0]["margin"] == 0
    assert (
        case.alternatives[0]["out"].tolist() == np.where(case.expected["out"] == 62, 63, case.expected["out"]).tolist()
    )
    for case in CASES.values():  # a stored greedy choice is either safe by far, or said to be near
        for step in case.steps:
            assert all(row.get("margin", 1) > 1e-3 or len(row["acceptable_ids"]) > 1 for row in step)


def test_drawn_steps_know_their_interval():
    steps = CASES["generate.sampled"].steps
    assert len(steps) == 6
    assert all(
        0 <= row["below"] and 0 < row["above"] and row["below"] + row["above"] <= 1 for step in steps for row in step
    )


@pytest.mark.parametrize("case", [case for case in RIGHT if case.wrong], ids=lambda case: case.name)
def test_fingerprints_are_wrong_answers(case):
    for mark in case.wrong.values():
        if "at" in mark:
            right = case.expected[mark["result"]]
            wrong = right.astype(np.float64)
            wrong[tuple(mark["at"])] = decode(mark["value"])
            floor = case.floor.get("float32", {}).get(mark["result"], 0.0)
            assert judge({"out": right}, {"out": wrong.astype(right.dtype)}, {"out": floor})


@pytest.mark.parametrize("suite", suites())
@pytest.mark.parity
def test_others_compute_the_same(make, suite):
    """mpmath, exact fractions, torch: within 1e-12; transformers in float32: within 1e-5."""
    for module in ("torch", "transformers", "mpmath", "safetensors"):
        pytest.importorskip(module)
    from crosscheck import HF, cross_checks

    found = cross_checks(suite)
    assert found
    for check in found:
        assert check["max_relative"] <= (1e-5 if check["with"] == HF else 1e-12), check


def test_encode_leaves_plain_values_alone():
    plain = {"p": 0.5, "k": None, "text": "hello", "ids": [1, 2]}
    assert decode(encode(plain)) == plain
