"""The tiny random models that lie among the vectors, so that a port can start before it has any weights."""

import functools
import json
from pathlib import Path

import numpy as np
from declare import splitmix64

from npminimind import MiniMindConfig, MiniMindForCausalLM, trace_generation
from npminimind.checkpoint import save_safetensors
from npminimind.params import param_shapes

SIZES = dict(
    hidden_size=32,
    num_hidden_layers=2,
    vocab_size=64,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    intermediate_size=48,
    max_position_embeddings=64,
)
EXPERTS = dict(use_moe=True, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24, tie_word_embeddings=False)
CONFIGS = {"tiny-dense": MiniMindConfig(**SIZES), "tiny-moe": MiniMindConfig(**SIZES, **EXPERTS)}
TWINS = (62, 63)  # two ids with the same row in the head, so with the same logit: an exact tie in every port
PROMPT = [[5, 17, 40, 3, 21, 9]]
ROUNDS = 3


def uniform(seed, shape):
    """Numbers in [-1, 1) of 24 bits, the same everywhere and for ever."""
    hashed = [splitmix64(seed * 1_000_003 + i) >> 40 for i in range(int(np.prod(shape)))]
    return (np.array(hashed, np.float64).reshape(shape) / 2**23 - 1).astype(np.float32)


@functools.cache
def weights(name):
    """MiniMind's key names -> float32 arrays [out, in]."""
    params = {}
    for number, (key, shape) in enumerate(param_shapes(CONFIGS[name]).items()):
        noise = uniform(900 + number, shape)
        if len(shape) == 1:
            params[key] = (1 + noise / 4).astype(np.float32)
        else:  # variance 3/in: every layer has its say
            params[key] = (noise * np.float32(3 / np.sqrt(shape[1]))).astype(np.float32)
    head = params.get("lm_head.weight", params["model.embed_tokens.weight"])
    head[TWINS[1]] = head[TWINS[0]]
    return params


@functools.cache
def tiny(name, dtype=np.float64, overrides=()):
    """A tiny model, some of its config changed."""
    config = MiniMindConfig(**(CONFIGS[name].to_dict() | dict(overrides)))
    needed = {key: weights(name)[key] for key in param_shapes(config)}
    return MiniMindForCausalLM(config, needed, dtype=dtype)


def config_json(name):
    """The config as HF and MiniMind write it."""
    config = CONFIGS[name].to_dict()
    architecture = "Qwen3MoeForCausalLM" if config["use_moe"] else "Qwen3ForCausalLM"
    return json.dumps({"architectures": [architecture], "model_type": "minimind"} | config, indent=1) + "\n"


def write_models(folder):
    """``tiny-dense/``, ``tiny-moe/``: config, weights, and a trace of the prompt and three greedy rounds."""
    for name in CONFIGS:
        place = Path(folder) / name
        place.mkdir(exist_ok=True)
        (place / "config.json").write_text(config_json(name))
        save_safetensors(place / "model.safetensors", weights(name))
        trace_generation(tiny(name), PROMPT, rounds=ROUNDS, do_sample=False, eos_token_id=None).save(
            place / "trace.safetensors"
        )


def half(model, rounded):
    """The same model with rounded weights."""
    return MiniMindForCausalLM(model.config, {key: rounded(array) for key, array in model.params.items()}, np.float64)
