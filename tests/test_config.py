"""The config: MiniMind's names and defaults, derived values, and refusals that name the field."""

import dataclasses
import math

import pytest
from conftest import refusal
from hypothesis import given
from hypothesis import strategies as st

from npminimind import MiniMindConfig
from npminimind.config import YARN, intermediate_size_of
from npminimind.params import param_shapes

INTS = (
    "hidden_size num_hidden_layers vocab_size num_attention_heads num_key_value_heads head_dim intermediate_size "
    "max_position_embeddings num_experts num_experts_per_tok moe_intermediate_size"
).split()
FLAGS = "use_moe tie_word_embeddings inference_rope_scaling norm_topk_prob qk_norm".split()


def test_defaults_are_minimind_3():
    """Facts, sections 2 and 3."""
    want = dict(
        hidden_size=768, num_hidden_layers=8, use_moe=False, vocab_size=6400, bos_token_id=1, eos_token_id=2,
        num_attention_heads=8, num_key_value_heads=4, head_dim=96, hidden_act="silu", intermediate_size=2432,
        max_position_embeddings=32768, rms_norm_eps=1e-6, rope_theta=1e6, tie_word_embeddings=True,
        inference_rope_scaling=False, rope_scaling=None, num_experts=4, num_experts_per_tok=1,
        moe_intermediate_size=2432, norm_topk_prob=True, qk_norm=True, n_shared_experts=0,
    )  # fmt: skip
    assert MiniMindConfig().to_dict() == want


def test_the_three_that_upstream_takes_by_position():
    config = MiniMindConfig(512, 4, True)
    assert (config.hidden_size, config.num_hidden_layers, config.use_moe) == (512, 4, True)


@given(st.integers(1, 10_000))
def test_intermediate_size_is_the_next_64_above_pi_times_hidden(hidden):
    size = intermediate_size_of(hidden)
    assert size % 64 == 0 and size - 64 < math.pi * hidden <= size


def test_derived_values_follow_what_is_given():
    config = MiniMindConfig(hidden_size=64, num_attention_heads=4, num_key_value_heads=2)
    assert (config.head_dim, config.intermediate_size, config.moe_intermediate_size) == (16, 256, 256)
    config = MiniMindConfig(head_dim=10, intermediate_size=100)
    assert (config.head_dim, config.intermediate_size, config.moe_intermediate_size) == (10, 100, 100)


def test_a_dict_and_back():
    for config in (MiniMindConfig(), MiniMindConfig(inference_rope_scaling=True, use_moe=True)):
        assert MiniMindConfig(**config.to_dict()) == config


def test_it_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        MiniMindConfig().hidden_size = 5


def test_cache_size_of_chapter_10_3():
    assert MiniMindConfig().cache_elements(100) == 8 * 2 * 100 * 4 * 96 == 614_400
    assert MiniMindConfig().cache_elements(100, batch=3) == 3 * 614_400


def test_every_parameter_has_a_name_and_shape():
    shapes = param_shapes(MiniMindConfig(num_hidden_layers=1))
    layer = "model.layers.0."
    assert shapes == {
        "model.embed_tokens.weight": (6400, 768),
        layer + "input_layernorm.weight": (768,),
        layer + "self_attn.q_proj.weight": (768, 768),
        layer + "self_attn.k_proj.weight": (384, 768),
        layer + "self_attn.v_proj.weight": (384, 768),
        layer + "self_attn.o_proj.weight": (768, 768),
        layer + "self_attn.q_norm.weight": (96,),
        layer + "self_attn.k_norm.weight": (96,),
        layer + "post_attention_layernorm.weight": (768,),
        layer + "mlp.gate_proj.weight": (2432, 768),
        layer + "mlp.up_proj.weight": (2432, 768),
        layer + "mlp.down_proj.weight": (768, 2432),
        "model.norm.weight": (768,),
    }
    assert param_shapes(MiniMindConfig(tie_word_embeddings=False))["lm_head.weight"] == (6400, 768)
    moe = param_shapes(MiniMindConfig(num_hidden_layers=1, use_moe=True))
    assert moe[layer + "mlp.gate.weight"] == (4, 768)
    assert moe[layer + "mlp.experts.3.down_proj.weight"] == (768, 2432)


class TestYarn:
    def test_inference_rope_scaling_stands_for_16_times_2048(self):
        config = MiniMindConfig(inference_rope_scaling=True)
        assert config.yarn == config.rope_scaling
        asked = dict(factor=16, original_max_position_embeddings=2048, beta_fast=32, beta_slow=1, attention_factor=1.0)
        assert asked.items() <= config.yarn.items()

    def test_off_by_default_and_where_the_table_is_short(self):
        assert MiniMindConfig().yarn is None
        assert MiniMindConfig(inference_rope_scaling=True, max_position_embeddings=2048).yarn is None
        assert MiniMindConfig(inference_rope_scaling=True, max_position_embeddings=2049).yarn is not None

    def test_the_common_dict_is_not_shared(self):
        MiniMindConfig(inference_rope_scaling=True).rope_scaling["factor"] = 99
        assert YARN["factor"] == 16

    @pytest.mark.parametrize(
        "scaling", [{"type": "linear"}, {"rope_type": "dynamic"}, {"rope_type": "x", "type": "yarn"}]
    )
    def test_other_kinds(self, scaling):
        refusal(lambda: MiniMindConfig(rope_scaling=scaling), "rope_scaling", "known: yarn")

    @pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, "16", None, True])
    def test_impossible_numbers(self, value):
        refusal(lambda: MiniMindConfig(rope_scaling={"type": "yarn", "factor": value}), "factor")

    @pytest.mark.parametrize("scaling", ["yarn", 16, [("factor", 16)]])
    def test_no_dict(self, scaling):
        refusal(lambda: MiniMindConfig(rope_scaling=scaling), "rope_scaling", error=TypeError)


@pytest.mark.parametrize("name", INTS)
class TestInts:
    @pytest.mark.parametrize("value", [0, -1, 2**31])
    def test_out_of_range(self, name, value):
        refusal(lambda: MiniMindConfig(**{name: value}), name)

    @pytest.mark.parametrize("value", [8.0, "8", True, [8], math.nan])
    def test_no_int(self, name, value):
        refusal(lambda: MiniMindConfig(**{name: value}), name, error=TypeError)


@pytest.mark.parametrize("name", ["rms_norm_eps", "rope_theta"])
@pytest.mark.parametrize("value", [0, -1e-6, math.nan, math.inf])
def test_numbers_that_must_be_positive(name, value):
    refusal(lambda: MiniMindConfig(**{name: value}), name, "positive")


@pytest.mark.parametrize(
    "name", ["use_moe", "tie_word_embeddings", "inference_rope_scaling", "norm_topk_prob", "qk_norm"]
)
@pytest.mark.parametrize("value", [0, 1, "true", None])
def test_flags(name, value):
    refusal(lambda: MiniMindConfig(**{name: value}), name, "True or False", error=TypeError)


@pytest.mark.parametrize(
    "fields, words",
    [
        (dict(num_attention_heads=8, num_key_value_heads=3), ["multiple", "8", "3"]),
        (dict(num_attention_heads=4, num_key_value_heads=8), ["multiple"]),
        (dict(head_dim=95), ["head_dim", "even"]),
        (dict(use_moe=True, num_experts=2, num_experts_per_tok=3), ["num_experts_per_tok (3)", "num_experts (2)"]),
        (dict(hidden_act="swish"), ["hidden_act", "silu, gelu"]),
        (dict(eos_token_id=-1), ["eos_token_id"]),
        (dict(n_shared_experts=-1), ["n_shared_experts"]),
        (dict(hidden_size=4, num_attention_heads=8), ["head_dim"]),
    ],
)
def test_values_that_do_not_fit(fields, words):
    refusal(lambda: MiniMindConfig(**fields), *words)


def test_unknown_fields():
    with pytest.raises(TypeError, match="dropout"):
        MiniMindConfig(dropout=0.0)
