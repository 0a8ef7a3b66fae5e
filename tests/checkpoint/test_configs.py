"""config.json in all its spellings; what the family lacks is refused by name; nonsense is refused."""

import json
import math

import numpy as np
import pytest
from checkpoint_helpers import DENSE, EXPERTS, config_of, random_params, refused, write_folder
from hypothesis import given
from hypothesis import strategies as st

from npminimind.checkpoint import inspect, load_weights
from npminimind.checkpoint.configs import read_config
from npminimind.checkpoint.shapes import Shapes
from npminimind.config import YARN
from npminimind.errors import CheckpointError

SHAPES = Shapes(
    vocab_size=50, hidden_size=32, num_hidden_layers=2, query_rows=32, kv_rows=16, head_dim=8, inner_size=48,
    num_experts=0, n_shared_experts=0, has_head=False, fused=False, neighbours=False,
)  # fmt: skip
MOE_SHAPES = SHAPES._replace(num_experts=4, inner_size=24)
NO_NORM = SHAPES._replace(head_dim=None)
QWEN3 = dict(DENSE, model_type="qwen3", rms_norm_eps=1e-6)
QWEN3_MOE = dict(DENSE, model_type="qwen3_moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24)
LLAMA = dict(DENSE, model_type="llama")


def read(raw, shapes=SHAPES, untied=False):
    return read_config("config.json", raw, shapes, untied)[0]


def says(raw, *words, shapes=SHAPES, untied=False):
    refused("config.json", *words, read=lambda _: read(raw, shapes, untied))


# ---------------------------------------------------------------------------------------------
# Spellings


def test_minimind_3():
    config = read(DENSE | dict(rope_theta=1e5, rms_norm_eps=1e-4, hidden_act="gelu", max_position_embeddings=99))
    assert config == config_of(rope_theta=1e5, rms_norm_eps=1e-4, hidden_act="gelu", max_position_embeddings=99)
    assert read(DENSE) == config_of()


def test_both_spellings_of_rope_theta():
    for raw in (
        dict(rope_theta=5e5),
        dict(rope_parameters=dict(rope_theta=5e5)),
        dict(rope_parameters=dict(rope_theta=5e5, rope_type="default"), rope_scaling=None),
    ):
        assert read(QWEN3 | raw).rope_theta == 5e5
        assert read(DENSE | raw).rope_theta == 5e5
    assert read(QWEN3).rope_theta == 1e4  # the class's own default
    assert read(DENSE).rope_theta == 1e6


def test_family_names():
    assert read(QWEN3_MOE | dict(norm_topk_prob=True), MOE_SHAPES).use_moe
    assert read(QWEN3_MOE, MOE_SHAPES).norm_topk_prob is False  # Qwen3-MoE's default, not MiniMind's
    assert read(DENSE | EXPERTS, MOE_SHAPES).norm_topk_prob is True
    llama = read(LLAMA, NO_NORM)
    assert not llama.qk_norm and llama.rms_norm_eps == 1e-6 and llama.max_position_embeddings == 2048
    experts = dict(QWEN3_MOE, num_local_experts=4)
    del experts["num_experts"]
    assert read(experts, MOE_SHAPES).num_experts == 4
    assert read(QWEN3 | dict(hidden_act="swish")).hidden_act == "silu"


def test_heads_that_a_config_leaves_out():
    for raw in (QWEN3, DENSE):
        some = {name: value for name, value in raw.items() if "heads" not in name and name != "head_dim"}
        config = read(some)
        assert (config.num_attention_heads, config.num_key_value_heads, config.head_dim) == (4, 2, 8)
    many = NO_NORM._replace(kv_rows=32)
    assert read(LLAMA | dict(num_key_value_heads=None), many).num_key_value_heads == 4
    says({name: LLAMA[name] for name in LLAMA if "heads" not in name}, "num_attention_heads", shapes=NO_NORM)


def test_eos_list():
    config, _, notes = read_config("c", QWEN3 | dict(eos_token_id=[7, 8], bos_token_id=None), SHAPES, False)
    assert config.eos_token_id == 7 and config.bos_token_id == 1
    assert any("list" in note for note in notes)


def test_published_as():
    """MiniMind-3 is published as Qwen3, MiniMind2 as Llama: the vocabulary gives them away."""
    for raw, shapes, label in ((QWEN3, SHAPES, "minimind-3"), (LLAMA, NO_NORM, "minimind2")):
        assert read_config("c", raw, shapes, False)[1] == raw["model_type"]
        big = read_config("c", raw | dict(vocab_size=6400), shapes._replace(vocab_size=6400), False)
        assert big[1] == label


def test_yarn():
    given = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=1000, beta_fast=30, beta_slow=2)
    expected = dict(YARN, factor=4.0, original_max_position_embeddings=1000, beta_fast=30, beta_slow=2)
    scaled = read(QWEN3 | dict(rope_scaling=given | dict(attention_factor=1.5)))
    assert scaled.rope_scaling == expected | dict(attention_factor=1.5)
    # transformers' default for the attention factor, and the older spelling "type"
    scaled = read(QWEN3 | dict(rope_parameters=given | dict(rope_theta=1e5)))
    assert scaled.rope_scaling["attention_factor"] == pytest.approx(0.1 * math.log(4) + 1) and scaled.rope_theta == 1e5
    old = {("type" if name == "rope_type" else name): value for name, value in given.items()}
    assert read(QWEN3 | dict(rope_scaling=old)).rope_scaling == scaled.rope_scaling
    # MiniMind: a switch; the numbers are its own
    assert read(DENSE | dict(inference_rope_scaling=True)).rope_scaling == YARN
    assert read(DENSE | dict(inference_rope_scaling=True, rope_scaling=old)).rope_scaling["factor"] == 4
    assert read(DENSE | dict(inference_rope_scaling=False, rope_scaling=old)).rope_scaling is None


def test_yarn_of_a_table_no_longer_than_the_trained_one():
    """transformers scales all the same; MiniMind's rule must not switch it off."""
    given = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=2048)
    config = read(QWEN3 | dict(max_position_embeddings=2048, rope_scaling=given))
    assert config.yarn and config.max_position_embeddings == 8192


# ---------------------------------------------------------------------------------------------
# Refused by name


@pytest.mark.parametrize(("change", "word"), [
    (dict(attention_bias=True), "attention_bias"),
    (dict(mlp_bias=True), "mlp_bias"),
    (dict(sliding_window=512, use_sliding_window=True), "sliding window of 512"),
    (dict(sliding_window=512), "sliding window"),
    (dict(layer_types=["full_attention", "sliding_attention"]), "layer_types"),
    (dict(rope_scaling=dict(rope_type="linear", factor=2.0)), "'linear'"),
    (dict(rope_scaling=dict(type="dynamic", factor=2.0)), "'dynamic'"),
    (dict(rope_parameters=dict(rope_type="llama3", rope_theta=1e4)), "'llama3'"),
    (dict(rope_parameters=dict(full_attention=dict(rope_theta=1e4))), "layer type"),
    (dict(rope_scaling=dict(rope_type="yarn", factor=4.0, mscale=1.0)), "mscale"),
    (dict(rope_scaling=dict(rope_type="yarn", factor=4.0, truncate=False)), "truncate"),
    (dict(rope_scaling=dict(rope_type="yarn")), "factor"),
    (dict(rope_scaling=dict(rope_type="yarn", factor=float("inf"))), "factor"),
    (dict(rope_scaling="yarn"), "rope_scaling"),
    (dict(partial_rotary_factor=0.5), "partial_rotary_factor"),
    (dict(rope_parameters=dict(partial_rotary_factor=0.5)), "partial_rotary_factor"),
    (dict(hidden_act="relu"), "relu"),
    (dict(hidden_act="gelu_pytorch_tanh"), "gelu_pytorch_tanh"),
    (dict(quantization_config=dict(bits=4)), "quantized"),
    (dict(attn_logit_softcapping=50.0), "soft cap"),
    (dict(final_logit_softcapping=30.0), "soft cap"),
    (dict(model_type="gemma2"), "gemma2"),
    (dict(model_type=["qwen3"]), "type"),
])  # fmt: skip
@pytest.mark.parametrize("raw", [QWEN3, DENSE], ids=["qwen3", "minimind"])
def test_refused_by_name(raw, change, word):
    says(raw | change, word)


@pytest.mark.parametrize(("change", "word"), [
    (dict(mlp_only_layers=[0]), "mlp_only_layers"),
    (dict(decoder_sparse_step=2), "decoder_sparse_step"),
    (dict(scoring_func="sigmoid"), "sigmoid"),
    (dict(num_experts_per_tok=9), "num_experts_per_tok"),
    (dict(num_experts=5), "num_experts 5, the file holds 4"),
    (dict(num_experts=4, n_routed_experts=5), "two things at once"),
    (dict(n_shared_experts=1), "n_shared_experts 1, the file holds 0"),
])  # fmt: skip
def test_experts_refused(change, word):
    says(DENSE | EXPERTS | change, word, shapes=MOE_SHAPES)


def test_what_is_switched_off_is_fine():
    off = dict(attention_bias=False, mlp_bias=False, sliding_window=4096, use_sliding_window=False, rope_scaling=None)
    off |= dict(layer_types=["full_attention"] * 2, partial_rotary_factor=1.0, quantization_config=None)
    assert read(QWEN3 | off, SHAPES)


# ---------------------------------------------------------------------------------------------
# A config of another model


@pytest.mark.parametrize(("change", "words"), [
    (dict(num_hidden_layers=16), ("num_hidden_layers 16, the file holds 2",)),
    (dict(num_hidden_layers=2**31 - 1), ("num_hidden_layers 2147483647, the file holds 2",)),
    (dict(hidden_size=64), ("hidden_size 64, the file holds 32",)),
    (dict(vocab_size=6400), ("vocab_size 6400, the file holds 50",)),
    (dict(intermediate_size=96), ("intermediate_size 96, the file holds 48",)),
    (dict(head_dim=16), ("head_dim 16, the file holds 8",)),
    (dict(num_attention_heads=8), ("8 heads of 8, so 64 rows, the file holds 32 rows",)),
    (dict(num_key_value_heads=4), ("k_proj 4 heads of 8, so 32 rows, the file holds 16 rows",)),
    (dict(use_moe=True), ("use_moe True", "0 experts")),
    (dict(num_hidden_layers=16, vocab_size=7), ("num_hidden_layers 16", "vocab_size 7")),
    (dict(tie_word_embeddings=False), ("lm_head",)),
    (dict(qk_norm=False), ("q/k norm",)),
    (dict(model_type="llama"), ("q/k norm absent",)),
])  # fmt: skip
def test_config_of_another_model(change, words):
    says(DENSE | change, "the file holds", *words)


def test_qwen3_config_over_llama_weights():
    says(QWEN3, "q/k norm there, the file holds none", shapes=NO_NORM)


def test_tied_or_not():
    own = SHAPES._replace(has_head=True)
    assert read(DENSE, own, untied=True).tie_word_embeddings is False  # nothing said: the file decides
    assert read(DENSE, own).tie_word_embeddings is True
    assert read(DENSE | dict(tie_word_embeddings=False), own).tie_word_embeddings is False
    config, _, notes = read_config("c", DENSE | dict(tie_word_embeddings=True), own, True)
    assert config.tie_word_embeddings is False and any("differs" in note for note in notes)


# ---------------------------------------------------------------------------------------------
# Nonsense


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("config"), random_params(config_of()))


NONSENSE = [
    dict(hidden_size="32"), dict(hidden_size=32.0), dict(hidden_size=0), dict(hidden_size=-32),
    dict(hidden_size=True), dict(hidden_size=10**400), dict(hidden_size=[32] * 10_000),
    dict(num_hidden_layers=0), dict(vocab_size=-1),
    dict(num_attention_heads=0), dict(num_attention_heads=3), dict(num_key_value_heads=3), dict(head_dim=0),
    dict(head_dim=7), dict(max_position_embeddings=0), dict(max_position_embeddings=2**40), dict(rms_norm_eps=0),
    dict(rms_norm_eps=-1e-6), dict(rms_norm_eps="1e-6"), dict(rope_theta=0), dict(rope_theta=-1),
    dict(rope_theta=[1e6]), dict(rope_theta=10**400), dict(rope_parameters=dict(rope_theta="x")),
    dict(hidden_act=3), dict(hidden_act=["silu"]), dict(tie_word_embeddings="yes"),
    dict(eos_token_id=-1), dict(eos_token_id="2"), dict(eos_token_id=[[1]]),
    dict(bos_token_id=1.5), dict(use_moe="no"), dict(use_moe=1), dict(inference_rope_scaling=True, rope_scaling=3),
    dict(rope_scaling=dict(rope_type=["yarn"])), dict(rope_scaling=dict(type="yarn", factor=-1)),
    dict(rope_scaling=dict(type="yarn", factor=10**400)), dict(n_layers=3, num_hidden_layers=2),
]  # fmt: skip


@pytest.mark.parametrize("change", NONSENSE, ids=lambda change: str(change)[:40])
def test_nonsense(folder, change):
    path = folder / "config.json"
    path.write_text(json.dumps(DENSE | change))
    refused(folder, "config.json")


@pytest.mark.parametrize(("text", "word"), [
    ("", "JSON"), ("{", "JSON"), ("[]", "list"), ("null", "NoneType"), ('{"hidden_size": NaN}', "NaN"),
    ('{"rope_theta": Infinity}', "Infinity"), ('{"rope_theta": 1e999}', "rope_theta"), ('{"a": 1, "a": 2}', "twice"),
    ("[" * 100_000, "JSON"), ('{"a":' * 50_000, "JSON"), ('{"hidden_size": ' + "9" * 5000 + "}", "JSON"),
    ("version https://git-lfs.github.com/spec/v1\n", "Git LFS"), ("<!DOCTYPE html><html>", "web page"),
    ("\x00\x01", "JSON"), (" " * (9 << 20), "longer"),
], ids=lambda value: str(value)[:20])  # fmt: skip
def test_broken_json(folder, text, word):
    (folder / "config.json").write_text(text)
    refused(folder, "config.json", word)


def test_byte_order_mark_is_fine(folder):
    (folder / "config.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(DENSE).encode())
    assert load_weights(folder).config == config_of()


VALUES = st.none() | st.booleans() | st.integers(-4, 100) | st.floats() | st.text(max_size=6) | st.just(10**30)
VALUES = st.recursive(VALUES, lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=6), x, max_size=3))
ROPE = st.dictionaries(
    st.sampled_from(["rope_type", "type", "factor", "rope_theta", "attention_factor", *YARN]),
    st.sampled_from(["yarn", "default", "linear"]) | VALUES,
)
KEYS = [*DENSE, *EXPERTS, "rope_theta", "rms_norm_eps", "hidden_act", "eos_token_id", "tie_word_embeddings", "dim",
        "model_type", "inference_rope_scaling", "layer_types", "sliding_window", "n_shared_experts"]  # fmt: skip


@given(st.dictionaries(st.sampled_from(KEYS), VALUES), st.none() | ROPE, st.none() | ROPE | VALUES)
def test_fuzz_configs(folder, changes, scaling, parameters):
    """Whatever stands in config.json: a config, or the one exception with the file's name."""
    raw = DENSE | changes | dict(rope_scaling=scaling, rope_parameters=parameters)
    for shapes in (SHAPES, NO_NORM, MOE_SHAPES):
        try:
            config = read(raw, shapes)
            assert np.isfinite(config.rope_theta) and config.hidden_size == 32
        except CheckpointError as error:
            assert str(error).startswith("config.json") and len(str(error)) < 800
    (folder / "config.json").write_text(json.dumps(raw))
    try:
        inspect(folder)
    except CheckpointError as error:
        assert str(error).startswith(str(folder / "config.json"))
