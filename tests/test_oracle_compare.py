"""compare: names, layouts, floors, patterns, the command. Right answers come from PyTorch and from plain arithmetic."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from npminimind import MiniMindConfig, MiniMindForCausalLM, Trace, trace
from npminimind.checkpoint import read_safetensors, save_safetensors
from npminimind.cli import main
from npminimind.errors import CheckpointError
from npminimind.oracle import compare
from npminimind.oracle.compare_arrays import difference
from npminimind.oracle.compare_files import read_trace
from npminimind.oracle.compare_floor import measured_floors, stated_floors
from npminimind.oracle.compare_names import fitted, names_for
from npminimind.oracle.compare_pattern import explain
from npminimind.oracle.compare_run import TABLE, Run, execution_order
from npminimind.oracle.compare_ties import beside_edge
from npminimind.trace import trace_generation

UPSTREAM = Path(__file__).parent / "data" / "upstream"
NAMES = sorted(path.name for path in UPSTREAM.iterdir() if path.is_dir())
SMALL = dict(
    hidden_size=32, num_hidden_layers=2, vocab_size=60, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
    intermediate_size=48, max_position_embeddings=256,
)  # fmt: skip
IDS = np.random.default_rng(0).integers(3, 60, (2, 7))
MASK = np.array([[1] * 7, [0, 0, 1, 1, 1, 1, 1]])


def small(**changes):
    return MiniMindForCausalLM.random(MiniMindConfig(**SMALL | changes), seed=1, dtype=np.float64)


@pytest.fixture(scope="module")
def model():
    return small()


@pytest.fixture(scope="module")
def reference(model):
    return trace(model, IDS, MASK)


def changed(reference, name, alter):
    """The reference in float32, one array altered."""
    arrays = {key: np.array(array, np.float32) for key, array in reference.items()}
    arrays[name] = alter(np.array(arrays[name]))
    return arrays


# ---------------------------------------------------------------------------------------------
# PyTorch's numbers are right


@pytest.mark.parametrize("name", NAMES)
def test_what_pytorch_computed_agrees(name):
    """Under its own names, cache layout and all; with the measured and with the stated floor."""
    model = MiniMindForCausalLM.from_pretrained(UPSTREAM / name, np.float64)
    recorded, _ = read_safetensors(UPSTREAM / name / "io.safetensors")
    arrays = {key: recorded[key] for key in recorded if key.startswith("forward.")}
    ours = trace(model, recorded["input_ids"])
    for report in (compare(ours, arrays, model), compare(ours, arrays)):
        assert report.agrees and not report.unknown
        assert len(report.compared) == 2 + 2 * model.config.num_hidden_layers
    masked = trace(model, recorded["input_ids"], recorded["masked.attention_mask"])
    assert compare(masked, {"logits": recorded["masked.logits"]}, model).agrees


@pytest.mark.parametrize("name", NAMES)
def test_the_stated_floor_covers_the_measured_one(name):
    model = MiniMindForCausalLM.from_pretrained(UPSTREAM / name, np.float64)
    rng = np.random.default_rng(1)
    ids = rng.integers(3, model.config.vocab_size, (2, 12))
    ours = trace_generation(model, ids, rounds=3, u=rng.random(6), top_k=20)
    measured, stated = measured_floors(model, Run.of(ours), ours), stated_floors(ours)
    assert set(measured) <= set(stated)
    assert all(measured[key] <= stated[key] for key in measured)
    assert 1e-8 < measured["round_0.lm_head"] < 1e-5  # float32 rounding: neither nothing nor a mistake


@pytest.mark.parity
def test_hf_qwen3_with_forward_hooks_agrees():
    """Another framework's arrays, dumped as a torch user would dump them."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = small(head_dim=16)
    c = model.config
    config = transformers.Qwen3Config(
        vocab_size=c.vocab_size, hidden_size=c.hidden_size, intermediate_size=c.intermediate_size,
        num_hidden_layers=c.num_hidden_layers, num_attention_heads=c.num_attention_heads,
        num_key_value_heads=c.num_key_value_heads, head_dim=c.head_dim, rms_norm_eps=c.rms_norm_eps,
        rope_theta=c.rope_theta, tie_word_embeddings=True, attn_implementation="eager",
        max_position_embeddings=c.max_position_embeddings,
    )  # fmt: skip
    config.rope_parameters = {"rope_type": "default", "rope_theta": c.rope_theta}
    torch.manual_seed(0)
    hf = transformers.Qwen3ForCausalLM(config).eval()
    weights = {key: torch.tensor(np.ascontiguousarray(a), dtype=torch.float32) for key, a in model.params.items()}
    assert not hf.load_state_dict(weights | {"lm_head.weight": weights["model.embed_tokens.weight"]}).missing_keys
    dumped = {}

    def keep(name):
        def hook(module, given, out):
            for i, part in enumerate(out if isinstance(out, tuple) else (out,)):
                if isinstance(part, torch.Tensor):
                    dumped[f"{name}.{i}" if isinstance(out, tuple) else name] = part.detach().numpy()

        return hook

    for name, module in hf.named_modules():
        if name and name != "model":
            module.register_forward_hook(keep(name))
    with torch.no_grad():
        out = hf(torch.tensor(IDS), use_cache=True)
    for i, layer in enumerate(out.past_key_values.layers):
        dumped[f"past_key_values.{i}.key"], dumped[f"past_key_values.{i}.value"] = (
            layer.keys.numpy(),
            layer.values.numpy(),
        )
    ours = trace(model, IDS)
    report = compare(ours, dumped, model)
    assert report.agrees, str(report)
    assert len(report.compared) >= 15 * c.num_hidden_layers and not report.unknown
    spoilt = dumped | {"model.layers.1.mlp.act_fn": dumped["model.layers.1.mlp.act_fn"] * 1.001}
    assert compare(ours, spoilt, model).first.name == "model.layers.1.mlp.act"


# ---------------------------------------------------------------------------------------------
# Where they part


def test_float32_agrees_and_every_array_was_looked_at(model, reference):
    report = compare(reference, trace(model.astype(np.float32), IDS, MASK), model)
    assert report.agrees and len(report.compared) == len(reference)


@pytest.mark.parametrize(
    "name", ["rope.sin", "model.layers.0.self_attn.k_cache", "model.layers.1.mlp.hidden", "lm_head"]
)
def test_first_divergence_is_the_first_in_execution_order(model, reference, name):
    report = compare(reference, changed(reference, name, lambda a: a * 1.001), model)
    assert report.first.name == name and not report.agrees
    assert sum(row.verdict == "differs" for row in report.rows) == 1


def test_execution_order_of_a_file_in_alphabetical_order(reference):
    assert execution_order(sorted(reference)) == list(reference)
    experts = trace(small(use_moe=True, num_experts_per_tok=2, moe_intermediate_size=16), IDS)
    assert execution_order(sorted(experts)) == list(experts)


def test_pads_do_not_count_but_real_tokens_do(model, reference):
    name = "model.layers.0.resid_mid"
    pads = changed(reference, name, lambda a: np.where(MASK[..., None] == 1, a, np.nan))
    assert compare(reference, pads, model).agrees

    def spoil(a):
        a[1, 2] += 1e-3
        return a

    report = compare(reference, changed(reference, name, spoil), model)
    assert report.first.name == name and report.first.at[:2] == (1, 2)


def test_masked_scores_may_be_any_great_negative_but_must_be_masked(model, reference):
    name = "model.layers.0.self_attn.masked_scores"
    causal = np.tril(np.ones((7, 7), bool))
    assert compare(reference, changed(reference, name, lambda a: np.where(causal, a, -65504)), model).agrees
    report = compare(reference, changed(reference, name, lambda a: np.where(causal, a, 0)), model)
    assert report.first.name == name and "must be masked" in report.first.why[0]


def test_nothing_in_common_and_wrong_model_are_errors(model, reference):
    with pytest.raises(ValueError, match="no name of the reference"):
        compare(reference, {"foo": np.zeros(3)})
    with pytest.raises(ValueError, match="does not compute the reference"):
        compare(reference, reference, small(rope_theta=1e4))


def test_given_tolerances_stand_in_for_the_floor(model, reference):
    candidate = changed(reference, "lm_head", lambda a: a + 1e-3)
    assert not compare(reference, candidate).agrees
    assert compare(reference, candidate, atol=2e-3).agrees
    assert not compare(reference, candidate, atol=5e-4).agrees


def test_shape_that_does_not_fit(model, reference):
    report = compare(reference, changed(reference, "model.norm", lambda a: a[:, :, :5]), model)
    assert report.first.verdict == "shape" and "need [2, 7, 32]" in report.first.why[0]


def test_only_the_last_position_is_compared_where_only_that_was_dumped(model):
    ours = trace(model, IDS[:1])
    assert compare(ours, {"lm_head": ours["lm_head"][:, -1:]}, model).agrees
    assert compare(ours, {"logits": ours["lm_head"][0, -1]}, model).agrees
    assert not compare(ours, {"logits": ours["lm_head"][0, 0]}, model).agrees


# ---------------------------------------------------------------------------------------------
# Names and layouts


@pytest.mark.parametrize(
    "dumped, name",
    [
        ("l_out-3", "model.layers.3"), ("Qcur-0", "model.layers.0.self_attn.q_rope"), ("result_output", "lm_head"),
        ("layers.2.attention.wq", "model.layers.2.self_attn.q_proj"), ("module.model.norm", "model.norm"),
        ("round_1.past_key_values.1.key", "round_1.model.layers.1.self_attn.k_cache"),
        ("model.layers.1.self_attn.1", "model.layers.1.self_attn.probs"),
    ],
)  # fmt: skip
def test_aliases(dumped, name):
    assert name in [one for one, _ in names_for(dumped)]


def test_every_alias_leads_to_a_name_of_the_table():
    tables = json.loads((Path(sys.modules["npminimind"].__file__).parent / "oracle/aliases.json").read_text())["tables"]
    for table in tables.values():
        for alias, target in table.items():
            if alias != "_comment":
                assert (target if isinstance(target, str) else target["name"]) in TABLE, alias


def test_layouts():
    k = np.arange(2 * 5 * 2 * 4.0).reshape(2, 5, 2, 4)
    name = "model.layers.0.self_attn.k_cache"
    np.testing.assert_array_equal(fitted(name, k.shape, k.swapaxes(1, 2))[0], k)
    square = k[:, :2]  # as many positions as heads: only the alias can tell
    np.testing.assert_array_equal(fitted(name, square.shape, square.swapaxes(1, 2), "B K T D")[0], square)
    q = np.arange(30.0).reshape(1, 5, 6)
    np.testing.assert_array_equal(fitted("model.layers.0.self_attn.q_proj", (1, 5, 6), q.reshape(1, 5, 2, 3))[0], q)
    np.testing.assert_array_equal(fitted("model.norm", (1, 5, 6), q[0])[0], q)


# ---------------------------------------------------------------------------------------------
# What the pattern says

RNG = np.random.default_rng(3)
HEADS = RNG.standard_normal((2, 5, 4, 6))
Q = "model.layers.0.self_attn.q_rope"  # [B,S,N,D]


def said(theirs, ours=HEADS, name=Q):
    return " | ".join(explain(name, ours, theirs, difference(ours, theirs).apart, 1e-9))


def spoiled(where):
    theirs = HEADS.copy()
    theirs[where] += RNG.standard_normal(theirs[where].shape)
    return theirs


@pytest.mark.parametrize(
    "theirs, words",
    [
        (HEADS * np.sqrt(6), "sqrt(D) with D = 6"),
        (HEADS / 6, "1/D with D = 6"),
        (-HEADS, "sign is flipped"),
        (HEADS + 0.5, "a constant 0.5 was added"),
        (HEADS * 0, "all zeros"),
        (HEADS.astype(np.float16), "rounded to float16"),
        (HEADS[:, :, ::-1], "heads are in another order: [3, 2, 1, 0]"),
        (HEADS.swapaxes(1, 2).reshape(HEADS.shape), "transposed: S and N are exchanged"),
        (HEADS.reshape(2, 5, 4, 2, 3).swapaxes(3, 4).reshape(HEADS.shape), "woven"),
        (HEADS[:, ::-1, :, ::-1], "same numbers in another order"),
        (spoiled(np.s_[:, 1:]), "right at position 0 and wrong later"),
        (spoiled(np.s_[:, 3:]), "right up to position 2 and wrong from 3 on"),
        (spoiled(np.s_[:, :-1]), "only the last position is right"),
        (spoiled(np.s_[1]), "only row 1 of 2"),
        (spoiled(np.s_[:, :, 2:]), "only heads 2, 3 of 4"),
        (np.where(HEADS > 2, np.nan, HEADS), "NaN starts here"),
        (HEADS * (1 + 1e-5 * RNG.standard_normal(HEADS.shape)), "small, but more than float32 rounding"),
        (HEADS * (1 + 3e-4 * RNG.standard_normal(HEADS.shape)), "weights rounded to float16"),
        (HEADS * (1 + 2e-2 * RNG.standard_normal(HEADS.shape)), "bfloat16"),
        (RNG.standard_normal(HEADS.shape), "too large for rounding"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_patterns(theirs, words):
    assert words in said(np.asarray(theirs, np.float64))


def test_square_arrays_that_are_transposed():
    square = RNG.standard_normal((1, 4, 4))
    assert "transposed: S and H are exchanged" in said(square.swapaxes(1, 2), square, "model.norm")


def test_only_padded_rows(model, reference):
    run = Run.of(reference)
    ours = np.asarray(reference["model.norm"])
    theirs = ours.copy()
    theirs[1] += 1
    assert "only padded rows are wrong: [1]" in explain("model.norm", ours, theirs, np.abs(ours - theirs), 1e-9, run)


@pytest.mark.parametrize("bits", ["float16", "bfloat16"])
def test_sizes_of_the_ladder_are_those_of_rounded_weights(bits, tmp_path):
    """On MiniMind's recorded models: the size alone names the rounding."""
    for name in ("dense_gqa", "head_dim", "untied", "yarn"):
        model = MiniMindForCausalLM.from_pretrained(UPSTREAM / name, np.float64)
        path = tmp_path / f"{name}.safetensors"
        save_safetensors(path, model.params, dtype=bits)
        rounded, _ = read_safetensors(path)
        other = MiniMindForCausalLM(model.config, dict(rounded), np.float64)
        ours, theirs = trace(model, IDS), trace(other, IDS)
        for array in ("model.layers.0.self_attn.q_proj", "model.norm", "lm_head"):
            d = difference(ours[array], theirs[array])
            assert bits in " ".join(explain(array, ours[array], theirs[array], d.apart, 1e-6)), (name, array)


# ---------------------------------------------------------------------------------------------
# Near-ties


def test_another_choice_between_equals_is_a_near_tie():
    model = small()
    logits = np.where(np.isin(np.arange(60), [10, 11]), 9.0, 0.0)[None]
    arrays = Trace(metadata={"input_ids": [[4, 5]], "arguments": {"do_sample": False, "rounds": 1}})

    def keep(name, array):
        arrays[name] = logits if name.endswith("sample.logits") else array
        return arrays[name]

    for _ in model.steps([[4, 5]], max_new_tokens=1, do_sample=False, tap=keep):
        pass
    assert arrays["round_0.sample.next_token"].item() == 10
    other = dict(arrays) | {"round_0.sample.next_token": np.array([[11]])}
    report = compare(arrays, other)
    assert report.agrees and [row.verdict for row in report.rows if row.name.endswith("next_token")] == ["near-tie"]
    worse = dict(arrays) | {"round_0.sample.next_token": np.array([[12]])}
    assert compare(arrays, worse).first.name == "round_0.sample.next_token"


def test_edges_of_a_draw():
    probs = np.array([0.25, 0.5, 0.25])
    assert beside_edge(probs, 0.75 + 1e-8, 1, 1e-6) and beside_edge(probs, 0.75 - 1e-8, 2, 1e-6)
    assert not beside_edge(probs, 0.5, 1, 1e-6) and not beside_edge(probs, 0.75, 0, 1e-6)


# ---------------------------------------------------------------------------------------------
# Files and the command


@pytest.fixture(scope="module")
def files(tmp_path_factory, model):
    """A model's folder, a reference and three candidates, one in each format."""
    folder = tmp_path_factory.mktemp("compare")
    (folder / "model").mkdir()
    save_safetensors(folder / "model/model.safetensors", model.params, dtype="float64")
    (folder / "model/config.json").write_text(json.dumps(model.config.to_dict()))
    rng = np.random.default_rng(7)
    ours = trace_generation(model, IDS, MASK, rounds=3, u=rng.random(6), temperature=1.1)
    ours.metadata["model"] = str(folder / "model")
    ours.save(folder / "reference.safetensors")
    right = trace_generation(model.astype(np.float32), IDS, MASK, rounds=3, u=ours_u(ours), temperature=1.1)
    right.save(folder / "right")
    wrong = trace_generation(model.with_ops(silu=np.tanh), IDS, MASK, rounds=3, u=ours_u(ours), temperature=1.1)
    save_safetensors(folder / "wrong.safetensors", wrong, {"format": "pt"})
    scale = model.with_ops(
        attention=lambda q, k, v, m, tap: __import__("npminimind").attention(q * 8**0.5, k, v, m, tap)
    )
    trace_generation(scale, IDS, MASK, rounds=3, u=ours_u(ours), temperature=1.1).save(folder / "scale.npz")
    return folder


def ours_u(ours):
    return np.stack([ours[f"round_{r}.sample.u"] for r in range(3)]).ravel()


def run(capsys, *arguments):
    code = main(["compare", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def test_command_agrees(files, capsys):
    code, out, err = run(capsys, files / "reference.safetensors", files / "right")
    assert code == 0 and out.rstrip().endswith("agrees") and "measured" in out and not err


def test_command_differs(files, capsys):
    code, out, _ = run(capsys, files / "reference.safetensors", files / "wrong.safetensors")
    assert code == 1 and "first divergence: round_0.model.layers.0.mlp.act" in out


def test_command_diagnoses(files, capsys):
    code, out, _ = run(capsys, files / "reference.safetensors", files / "scale.npz", "--diagnose")
    assert code == 1 and "attention-scale-missing: does not divide the scores by sqrt(D)" in out


def test_json_is_plain(files, capsys):
    code, out, _ = run(capsys, files / "reference.safetensors", files / "wrong.safetensors", "--json")
    report = json.loads(out, parse_constant=lambda text: pytest.fail(f"{text} is no JSON"))
    assert code == 1 and report["agrees"] is False
    assert report["first_divergence"]["name"] == "round_0.model.layers.0.mlp.act"
    assert len(report["rows"]) > 100


def test_page_is_self_contained(files, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert run(capsys, files / "reference.safetensors", files / "wrong.safetensors", "--html", page)[0] == 1
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"https?://|<script|<link|@import|url\(", text)
    assert "prefers-color-scheme: dark" in text and 'name="viewport"' in text
    assert "first divergence: round_0.model.layers.0.mlp.act" in text and text.count("<circle") > 100


@pytest.mark.parametrize("content", [None, b"", b"not a file of arrays"], ids=["absent", "empty", "noise"])
@pytest.mark.parametrize("ending", ["safetensors", "npz", "npy", "json", "txt"])
def test_bad_input_is_one_line_and_exit_code_2(files, tmp_path, capsys, ending, content):
    path = tmp_path / f"candidate.{ending}"
    if content is not None:
        path.write_bytes(content)
    code, out, err = run(capsys, files / "reference.safetensors", path)
    assert code == 2 and not out and err.startswith("npminimind:") and err.count("\n") == 1


def test_truncated_file(files, tmp_path, capsys):
    path = tmp_path / "cut.safetensors"
    path.write_bytes((files / "wrong.safetensors").read_bytes()[:-100])
    assert run(capsys, files / "reference.safetensors", path)[0] == 2


def test_ids_alone(files, tmp_path, capsys, model):
    ours = read_trace(files / "reference.safetensors")
    ids = model.generate(IDS, MASK, max_new_tokens=3, rng=ours_u(ours), temperature=1.1)
    (tmp_path / "ids.json").write_text(json.dumps(ids.tolist()))
    code, out, _ = run(capsys, files / "reference.safetensors", tmp_path / "ids.json", "--json")
    assert code == 0 and json.loads(out)["evidence"] == "generated ids"
    with pytest.raises(CheckpointError, match="need generated ids"):
        (tmp_path / "bad.json").write_text('{"tokens": "x"}')
        read_trace(tmp_path / "bad.json")


def test_compare_needs_numpy_only(files):
    """Neither tokenizers nor torch are imported on the way."""
    code = (
        "import sys; sys.modules['torch'] = None; sys.modules['tokenizers'] = None\n"
        "from npminimind.cli import main\n"
        f"sys.exit(main(['compare', {str(files / 'reference.safetensors')!r}, {str(files / 'right')!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parent.parent
    )
    assert done.returncode == 0, done.stderr
