"""diagnose: mistakes made by a port that is not this package are named, and a port that is right is never accused.

The port is ``tests/mutants/port.py``; right numbers are also PyTorch's (``tests/data/upstream``).
"""

import json
from pathlib import Path

import numpy as np
import pytest
from mutants import measure
from mutants.cases import CONFIGS, ROUNDS, make_case

from npminimind import MiniMindForCausalLM, trace
from npminimind.checkpoint import read_safetensors, save_safetensors
from npminimind.oracle import diagnose
from npminimind.oracle.compare_run import Run
from npminimind.oracle.diagnose_fit import Evidence
from npminimind.oracle.mistakes import MISTAKES, by_id

UPSTREAM = Path(__file__).parent / "data" / "upstream"
NAMES = sorted(path.name for path in UPSTREAM.iterdir() if path.is_dir())


@pytest.fixture(scope="module")
def case():
    return make_case("dense")


# ---------------------------------------------------------------------------------------------
# Right is right


@pytest.mark.parametrize("name", NAMES)
def test_pytorch_is_not_accused(name):
    """Logits, caches and greedy ids of PyTorch's own MiniMind: with pads, penalty, EOS, copies of rows."""
    model = MiniMindForCausalLM.from_pretrained(UPSTREAM / name, np.float64)
    io, _ = read_safetensors(UPSTREAM / name / "io.safetensors")
    arrays = {key: io[key] for key in io if key.startswith("forward.")}
    assert diagnose(model, arrays, input_ids=io["input_ids"]).correct
    masked = {"attention_mask": io["masked.attention_mask"]}
    assert diagnose(model, io["masked.logits"], input_ids=io["input_ids"], **masked).correct
    if name not in ("dense_gqa", "moe_top2", "untied"):  # each call takes a while
        return
    calls = json.loads((UPSTREAM / name / "io.json").read_text(encoding="utf-8"))["generate"]
    tried = 0
    for call in calls:
        said = dict(call["args"])
        if said.get("do_sample") is False and not said.get("rows") and said["max_new_tokens"] == 14:
            mask = masked if said.pop("mask", False) else {}
            said.pop("use_cache", None)
            assert diagnose(model, np.array(call["generated_ids"]), input_ids=io["input_ids"], **mask, **said).correct
            tried += 1
    assert tried >= 4


@pytest.mark.parametrize("name", [name for name in CONFIGS if name != "deep"])
@pytest.mark.parametrize("evidence", measure.EVIDENCE)
def test_the_port_without_switches_is_not_accused(name, evidence):
    found = measure.diagnosed(make_case(name, seed=1), evidence)
    assert found.correct and not found.ids


# ---------------------------------------------------------------------------------------------
# Wrong is named. The whole matrix takes minutes and stands in rates.json; a part of it runs each time.

FROM_TRACE = {
    "dense": """rope-neighbours rope-positions-restart rope-positions-from-one qk-norm-after-rope v-norm
        norm-eps-outside-root attention-scale-missing heads-tiled causal-square-only softmax-over-queries
        residual-after-norm block-post-norm penalty-divides-negatives top-p-not-shifted""",
    "yarn-untied-gelu": "yarn-factor-4 head-tied gelu-tanh",
    "experts": "router-not-renormalised attention-residual-missing",
}
FROM_LOGITS = "qk-norm-missing silu-gelu causal-missing"
FROM_IDS = """rope-sign penalty-skips-prompt temperature-last eos-row-goes-on u-skips-finished
    return-sequences-interleaved"""
PART = [(name, "trace", id) for name, ids in FROM_TRACE.items() for id in ids.split()]
PART += [("dense", "logits", id) for id in FROM_LOGITS.split()] + [
    ("dense", "generated ids", id) for id in FROM_IDS.split()
]


@pytest.fixture(scope="module")
def cases():
    return {name: make_case(name) for name in FROM_TRACE}


@pytest.mark.parametrize("name, evidence, id", PART)
def test_named(cases, name, evidence, id):
    what, found = measure.outcome(cases[name], evidence, by_id(id))
    assert what == "named", (what, found.ids, found.wrong)


def test_equal_by_nature_is_listed_or_said_to_be_invisible(case):
    """Positions from 1 leave logits as they are: RoPE is relative. A trace shows them."""
    what, found = measure.outcome(case, "logits", by_id("rope-positions-from-one"))
    assert what == "inside the floor" and "rope-positions-from-one" in str(found)


def test_recorded_rates_are_of_this_table():
    recorded = json.loads(measure.RATES.read_text(encoding="utf-8"))["evidence"]
    for evidence in measure.EVIDENCE:
        counts = recorded[evidence]["counts"]
        assert "correct port accused" not in counts and "misnamed" not in counts
        assert recorded[evidence]["mutants"] >= len(MISTAKES)
    assert recorded["trace"]["named_of_visible"] >= 0.95


# ---------------------------------------------------------------------------------------------
# More than one, something else, and nothing to go by


def test_two_mistakes_together(case):
    found = diagnose(case.model, case.dumped("silu-gelu", "rope-sign"), case.reference())
    assert sorted(found.ids[0].split("+")) == ["rope-sign", "silu-gelu"] and len(found.ids) == 1


@pytest.mark.parametrize("bits", ["float16", "bfloat16"])
def test_rounded_weights_are_no_mistake(case, tmp_path, bits):
    save_safetensors(tmp_path / "half.safetensors", case.weights, dtype=bits)
    case = make_case("dense")
    case.weights = dict(read_safetensors(tmp_path / "half.safetensors")[0])
    case.weights = {name: array.astype(np.float32) for name, array in case.weights.items()}
    found = diagnose(case.model, case.dumped(), case.reference())
    assert not found.correct and found.weights == bits and not found.ids and bits in str(found)
    found = diagnose(case.model, case.dumped("rope-k-twice"), case.reference())
    assert found.weights == bits and found.ids == ["rope-k-twice"]


def test_an_unknown_mistake_is_not_given_a_name(case):
    arrays = case.dumped()
    arrays = {name: array * 1.01 if name.endswith("mlp.act_fn") else array for name, array in arrays.items()}
    found = diagnose(case.model, arrays, case.reference())
    assert not found.correct and found.ids == []
    assert found.wrong and all(name.endswith(("mlp.act", "mlp.down_proj")) for name in found.wrong)
    assert "none of the known mistakes" in str(found) and "mlp.act" in str(found)


def test_a_head_of_its_own_is_hinted_at(case):
    arrays = case.dumped()
    for r in range(ROUNDS):
        rng = np.random.default_rng(r)
        arrays[f"round_{r}.lm_head"] = rng.standard_normal(arrays[f"round_{r}.lm_head"].shape)
    arrays = {name: array for name, array in arrays.items() if ".sample." not in name}
    found = diagnose(case.model, arrays, case.reference())
    assert found.ids == [] and "is lm_head tied to embed_tokens" in str(found)


def test_noise_inside_the_floor_is_not_accused(case):
    arrays = case.dumped()
    rng = np.random.default_rng(0)
    noisy = {
        name: array * (1 + 1e-7 * rng.standard_normal(array.shape)) if array.dtype.kind == "f" else array
        for name, array in arrays.items() if ".sample." not in name
    }  # fmt: skip
    assert diagnose(case.model, noisy, case.reference()).correct


def test_a_trace_of_single_arrays_is_enough(case):
    dumped = case.dumped("heads-tiled")
    few = {name: a for name, a in dumped.items() if name.endswith(("context", "key", "next_token"))}
    assert diagnose(case.model, few, case.reference()).ids == ["heads-tiled"]


def test_later_rounds_without_their_tokens_say_so(case):
    """The port went on with its own tokens and did not dump them: then nothing fits, and the report says why."""
    few = {name: a for name, a in case.dumped("heads-tiled").items() if name.endswith("lm_head")}
    found = diagnose(case.model, few, case.reference())
    assert found.ids == [] and "sample.next_token" in str(found)


def test_plain_arrays_are_ids_or_logits(case):
    logits = trace(case.model, case.ids)["lm_head"]
    assert diagnose(case.model, logits, input_ids=case.ids).evidence == "logits"


def test_each_array_is_judged_by_the_candidates_own_inputs(case):
    """An error made once is wrong once, though everything after it differs from the reference."""
    arrays = case.dumped("rope-neighbours")
    evidence = Evidence(case.model, arrays, Run.of(case.reference()))
    misfit = evidence.misfit(case.model)
    wrong = {name.split(".", 1)[1] for name, distance in misfit.items() if distance > 1}
    assert wrong == {f"model.layers.{i}.self_attn.{x}" for i in range(2) for x in ("q_rope", "k_cache")}


@pytest.mark.parametrize(
    "candidate, arguments, words",
    [
        (np.zeros((1, 3), int), dict(input_ids=[[3, 4, 5]]), "more than the 3 ids of the prompt"),
        (np.array([[3, 4, 5, 99]]), dict(input_ids=[[3, 4, 5]]), "outside the vocabulary"),
        (np.array([[3, 4, 5, 6]]), dict(), "reference trace, or the input_ids"),
        ({"foo": np.zeros(3)}, dict(input_ids=[[3, 4, 5]]), "no name of the candidate is known"),
        (np.array([[3, 4, 5, 6, 7]]), dict(input_ids=[[3, 4, 5]], u=[0.5]), "random numbers"),
    ],
)
def test_what_can_not_be_diagnosed(case, candidate, arguments, words):
    with pytest.raises(ValueError, match=words):
        diagnose(case.model, candidate, **arguments)
