"""The table of known mistakes: complete, stable, and each mistake is the one that it says it is.

What a mistake must do is taken from elsewhere: numbers worked out by hand, the facts of upstream's history, torch.
"""

import math
import re

import numpy as np
import pytest

from npminimind import MiniMindConfig, MiniMindForCausalLM, ops
from npminimind.oracle.mistakes import MISTAKES, by_id, by_operator
from npminimind.trace import trace_generation

# What the issue lists; an id is a contract, golden vectors name it.
REQUIRED = """
rope-neighbours rope-sign rope-positions-restart rope-positions-from-one rope-k-twice rope-theta
rope-exponent-doubled heads-tiled qk-norm-missing qk-norm-after-rope qk-norm-whole-width v-norm
norm-eps-outside-root norm-eps norm-mean-subtracted attention-scale-missing attention-scale-hidden causal-shifted
causal-square-only softmax-over-queries silu-gelu gate-up-swapped attention-residual-missing mlp-residual-missing
residual-after-norm final-norm-missing head-tied yarn-attention-factor yarn-factor-4 yarn-off
router-not-renormalised router-weights-reversed penalty-divides-negatives penalty-counts-multiplicity
penalty-skips-prompt penalty-misses-last penalty-before-temperature temperature-last top-p-not-shifted
top-p-before-top-k top-p-exact-hit top-p-unsorted top-k-drops-ties cdf-float32 eos-row-goes-on eos-pad
return-sequences-interleaved argmax-last
""".split()


def wrong(id):
    (function,) = by_id(id).ops.values()
    return function


def small(seed=0, **changes):
    numbers = dict(
        hidden_size=32, num_hidden_layers=2, vocab_size=40, num_attention_heads=4, num_key_value_heads=2,
        head_dim=8, intermediate_size=48, max_position_embeddings=128,
    )  # fmt: skip
    model = MiniMindForCausalLM.random(MiniMindConfig(**numbers | changes), seed, np.float64)
    for array in model.params.values():
        array[...] *= np.random.default_rng(5).uniform(0.5, 1.5, array.shape) if array.ndim == 1 else 2
    return model


# ---------------------------------------------------------------------------------------------
# The table


def test_all_that_is_required_is_there():
    assert len(MISTAKES) >= 100
    assert not set(REQUIRED) - {mistake.id for mistake in MISTAKES}


def test_ids_are_unique_and_kebab_case():
    ids = [mistake.id for mistake in MISTAKES]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", id) for id in ids)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.id)
def test_each_says_what_it_is_and_has_one_plant(mistake):
    assert mistake.description and mistake.effect and "\n" not in mistake.description
    assert bool(mistake.ops) != (mistake.change is not None)
    assert set(mistake.ops) <= set(ops.OPERATORS) and set(mistake.operators) <= set(ops.OPERATORS)
    assert set(mistake.flag()) == {"bugType", "description", "effect"}


def test_by_operator_gives_those_that_replace_just_this_one():
    assert {mistake.id for mistake in by_operator("repeat_kv")} == {"heads-tiled"}
    found = [mistake for name in ops.OPERATORS for mistake in by_operator(name)]
    assert len(found) == sum(len(mistake.ops) == 1 for mistake in MISTAKES)


MODELS = {
    "dense": dict(),
    "yarn": dict(
        inference_rope_scaling=True, max_position_embeddings=4096, tie_word_embeddings=False, hidden_act="gelu"
    ),
    "experts": dict(use_moe=True, num_experts_per_tok=2, moe_intermediate_size=24),
    "raw": dict(use_moe=True, num_experts_per_tok=2, moe_intermediate_size=24, norm_topk_prob=False),
    "deep": dict(num_hidden_layers=11),
    "old": dict(rope_theta=1e4, rms_norm_eps=1e-5, qk_norm=False),
}
# These show only where something is exactly equal, which random numbers are not.
ONLY_ON_TIES = {"top-k-drops-ties", "top-p-exact-hit", "cdf-float32", "cdf-inclusive", "argmax-last"}


def traced(model):
    ids = np.random.default_rng(1).integers(3, 40, (2, 6))
    mask = np.array([[1] * 6, [0, 0, 1, 1, 1, 1]])
    u = np.random.default_rng(2).random(12)
    sampling = dict(repetition_penalty=1.3, temperature=0.9, top_k=8, top_p=0.8, num_return_sequences=2)
    arrays = {}
    try:
        with np.errstate(all="ignore"):
            free = model.generate(ids, mask, max_new_tokens=1, rng=u, eos_token_id=None, **sampling)
            eos = int(free[0, -1]) if (free[:, -1] != free[0, -1]).any() else None
            arrays = trace_generation(model, ids, mask, rounds=3, u=u, eos_token_id=eos, **sampling)
    except ValueError as error:
        assert "not finite" in str(error) or "nan" in str(error)
    return arrays


def test_every_mistake_changes_something_and_leaves_the_model_alone():
    seen = set()
    for changes in MODELS.values():
        model = small(**changes)
        right = traced(model)
        for mistake in MISTAKES:
            if mistake.applies(model.config) and mistake.id not in seen | ONLY_ON_TIES:
                found = traced(mistake.plant(model))
                same = found.keys() == right.keys() and all(np.array_equal(found[n], right[n]) for n in right)
                assert not same, mistake.id
                seen.add(mistake.id)
        again = traced(model)
        assert all(np.array_equal(again[name], right[name]) for name in right)
    assert seen | ONLY_ON_TIES == {mistake.id for mistake in MISTAKES}


def test_mistaken_operators_stay_in_float32():
    x = np.linspace(-2, 2, 24, dtype=np.float32).reshape(1, 2, 3, 4)
    for mistake in by_operator("rms_norm"):
        assert mistake.ops["rms_norm"](x, np.ones(4, np.float32), 1e-6).dtype == np.float32, mistake.id
    for mistake in [*by_operator("silu"), *by_operator("gelu")]:
        (function,) = mistake.ops.values()
        assert function(x).dtype == np.float32, mistake.id
    for mistake in by_operator("apply_repetition_penalty"):
        assert mistake.ops["apply_repetition_penalty"](x[0, 0], [[0], [1], [2]], 1.3).dtype == np.float32, mistake.id


# ---------------------------------------------------------------------------------------------
# Each is what it says: by hand


def unit(position, theta=100.0):
    e0 = np.array([1.0, 0, 0, 0]).reshape(1, 1, 1, 4)
    angle = position * theta ** (-np.array([0, 2]) / 4)
    return e0, np.cos(np.tile(angle, 2))[None], np.sin(np.tile(angle, 2))[None]


def test_rope_neighbours():
    assert wrong("rope-neighbours")(*[unit(1)[0]] * 2, *unit(1)[1:])[0].ravel() == pytest.approx(
        [math.cos(1), math.sin(1), 0, 0]
    )


def test_rope_sign_turns_back():
    np.testing.assert_array_equal(wrong("rope-sign")([1, 2, 3, 4]), [3, 4, -1, -2])


def test_rope_k_twice():
    e0, cos, sin = unit(1)
    assert wrong("rope-k-twice")(e0, e0, cos, sin)[1].ravel() == pytest.approx([math.cos(2), 0, math.sin(2), 0])


@pytest.mark.parametrize(
    "id, angles",
    [
        ("rope-positions-restart", [0, 1]), ("rope-positions-from-one", [6, 7]), ("rope-positions-late", [4, 5]),
    ],
)  # fmt: skip
def test_positions(id, angles):
    cos, _ = wrong(id)(2, 2, 100.0, start=5, dtype=np.float64)
    assert cos[:, 0] == pytest.approx(np.cos(angles))


@pytest.mark.parametrize("id, power", [("rope-exponent-without-two", -0.25), ("rope-exponent-doubled", -1.0)])
def test_exponents(id, power):
    _, sin = wrong(id)(4, 2, 100.0, dtype=np.float64)
    assert sin[1, 1] == pytest.approx(math.sin(100.0**power))


def test_yarn_attention_factor_is_hf_default():
    yarn = small(inference_rope_scaling=True, max_position_embeddings=4096).config.yarn
    cos, _ = wrong("yarn-attention-factor")(8, 1, 1e6, yarn, dtype=np.float64)
    assert cos[0] == pytest.approx(1.2772588722239782)  # 0.1 ln 16 + 1


def test_heads_tiled():
    assert wrong("heads-tiled")(np.array([7, 8]).reshape(1, 1, 2, 1), 2).ravel().tolist() == [7, 8, 7, 8]


@pytest.mark.parametrize(
    "id, seen",
    [
        ("causal-missing", [[1, 1, 1], [1, 1, 1]]), ("causal-shifted", [[1, 1, 1], [1, 1, 1]]),
        ("causal-excludes-self", [[1, 0, 0], [1, 1, 0]]), ("causal-square-only", [[1, 0, 0], [1, 1, 0]]),
    ],
)  # fmt: skip
def test_masks_of_two_new_tokens_after_one(id, seen):
    np.testing.assert_array_equal(np.isfinite(wrong(id)(2, 3)), np.array(seen, bool))


def test_norms():
    x, one = np.array([3.0, 4.0]), np.ones(2)
    assert wrong("norm-sum-not-mean")(x, one, 0.0) == pytest.approx([0.6, 0.8])
    assert wrong("norm-without-root")(x, one, 0.0) == pytest.approx([3 / 12.5, 4 / 12.5])
    assert wrong("norm-mean-subtracted")(x, one, 0.0) == pytest.approx([-1, 1])
    assert wrong("norm-eps-outside-root")(x, one, 1.0) == pytest.approx(x / (math.sqrt(12.5) + 1))
    assert wrong("norm-weight-plus-one")(x, one, 0.0) == pytest.approx(2 * x / math.sqrt(12.5))


def test_activations():
    assert wrong("silu-gelu")(np.array([1.0])) == pytest.approx(0.8413447460685429)  # the normal distribution at 1
    assert wrong("silu-quick-gelu")(np.array([1.0])) == pytest.approx(1 / (1 + math.exp(-1.702)))
    assert wrong("gelu-tanh")(np.array([1.0])) == pytest.approx(0.841191990607477)  # torch.nn.GELU("tanh")


def test_penalties():
    # The facts' example: logits [2, -2, 1], seen {0, 1}, p 1.5.
    logits, seen = [2.0, -2.0, 1.0], [0, 1, 1]
    assert wrong("penalty-divides-negatives")(logits, seen, 1.5) == pytest.approx([2 / 1.5, -2 / 1.5, 1])
    assert wrong("penalty-counts-multiplicity")(logits, seen, 1.5) == pytest.approx([2 / 1.5, -4.5, 1])


def test_filters():
    kept = lambda row: np.flatnonzero(np.isfinite(row)).tolist()  # noqa: E731
    assert kept(wrong("top-k-drops-ties")([1.0, 2.0, 2.0, 2.0], 2)) == [1, 2]
    assert kept(wrong("top-k-strict")([1.0, 4.0, 3.0, 2.0], 2)) == [1]
    logits = np.log([0.5, 0.25, 0.125, 0.125])
    assert wrong("top-p-exact-hit")(logits, 0.75).mask.tolist() == [False, False, True, True]  # HF keeps two
    assert wrong("top-p-not-shifted")(logits, 0.8).mask.tolist() == [False, False, True, True]
    assert wrong("top-p-one-more")(logits, 0.6).mask.tolist() == [False, False, False, True]


def test_draws():
    probs = np.array([[0.2, 0.5, 0.3]])
    assert wrong("cdf-sorted")(probs, [0.1]) == [1]  # 0.1 of 1 falls to the most likely
    assert wrong("cdf-inclusive")(np.array([[0.0, 1.0]]), [0.0]) == [0]
    assert wrong("argmax-last")([0.0, 3.0, 3.0]) == 2


def test_order_of_the_stages():
    # The facts: logits [3, 2, 1], T .5, p .8 keep {0}; with the temperature last they keep {0, 1}.
    model = small().with_ops(softmax=ops.OPERATORS["softmax"])
    arguments = dict(max_new_tokens=1, temperature=0.5, top_p=0.8, top_k=0, rng=[0.5])
    logits = np.full((1, 40), -np.inf)
    logits[0, :3] = 3, 2, 1
    give = lambda name, array: logits if name.endswith("sample.logits") else None  # noqa: E731
    right = next(iter(model.steps([[4]], tap=give, **arguments)))
    late = next(iter(by_id("temperature-last").plant(model).steps([[4]], tap=give, **arguments)))
    assert np.flatnonzero(right.probs).tolist() == [0] and np.flatnonzero(late.probs).tolist() == [0, 1]


def test_rows_of_the_loop():
    model = small()
    copies = by_id("return-sequences-interleaved").plant(model)
    ids = copies.generate([[3, 4], [5, 6]], max_new_tokens=1, num_return_sequences=2, do_sample=False)
    assert ids[:, 0].tolist() == [3, 3, 5, 5]
    eos = int(model.generate([[3, 4]], max_new_tokens=1, do_sample=False)[0, -1])
    arguments = dict(max_new_tokens=4, do_sample=False, eos_token_id=eos)
    prompts = [[3, 4], [5, 6]]
    assert (model.generate(prompts, **arguments)[0, 2:] == eos).all()
    assert by_id("eos-pad").plant(model).generate(prompts, **arguments)[0, 3:].tolist() == [0, 0, 0]
    assert by_id("eos-ends-all").plant(model).generate(prompts, **arguments).shape == (2, 3)
