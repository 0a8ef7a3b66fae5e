"""What all tests share: the Hypothesis profile, small random models, the recorded upstream numbers."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from npminimind import MiniMindConfig, MiniMindForCausalLM

CHECKOUT = Path(__file__).parent.parent
# Programs that tests start use this checkout too, installed or not.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")]))

# The same examples in every run: a failure is a failure for everybody. HYPOTHESIS_PROFILE=long looks further.
settings.register_profile(
    "default", max_examples=25, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("long", parent=settings.get_profile("default"), max_examples=500, derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

SMALL = dict(
    hidden_size=32, num_hidden_layers=2, vocab_size=60, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
    intermediate_size=48, max_position_embeddings=256,
)  # fmt: skip
EXPERTS = dict(use_moe=True, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=24)


def peaked(config, seed=0, dtype=np.float32):
    """A random model whose distributions are not flat, so that a mistake shows in the tokens."""
    model = MiniMindForCausalLM.random(config, seed, dtype)
    model.params["model.embed_tokens.weight"][...] *= 3
    return model


def scripted(model, columns):
    """The same model, made to choose these ids when greedy: one list a step, one id a row."""
    rest = iter(columns)
    return model.with_ops(greedy=lambda logits: np.array(next(rest)))


@pytest.fixture(scope="session")
def dense():
    return peaked(MiniMindConfig(**SMALL))


@pytest.fixture(scope="session")
def experts():
    return peaked(MiniMindConfig(**SMALL, **EXPERTS))


@pytest.fixture(scope="session")
def dense64(dense):
    return dense.astype(np.float64)


@pytest.fixture(scope="session", params=["dense", "experts"])
def model64(request):
    """In float64 rounding hides nothing: what should be equal is equal to 1e-12."""
    return request.getfixturevalue(request.param).astype(np.float64)


@pytest.fixture(scope="session")
def chapter_model():
    """MiniMind-3's own sizes (chapter 10.3: K = 4, D = 96, 8 layers), random weights; narrow inside, to be quick."""
    return MiniMindForCausalLM.random(MiniMindConfig(intermediate_size=64, vocab_size=6400))


@pytest.fixture(scope="session")
def run_python():
    """Run code in a fresh interpreter, with other environment variables; its standard output."""

    def run(code, **environment):
        env = os.environ | {"PYTHONPATH": str(CHECKOUT)} | environment
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def refusal(call, *words, error=ValueError):
    """Assert that ``call`` is refused with this error and a message in which all the words stand."""
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert "\n" not in message


@pytest.fixture(scope="session")
def tokenizer():
    """Bytes as tokens (ids 3 … 258) behind MiniMind's first three special tokens, and a few merged pairs."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, pre_tokenizers

    from npminimind.tokenizer import Tokenizer

    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    merges = [("h", "e"), ("l", "l"), ("e", "n")]
    pieces = specials + sorted(pre_tokenizers.ByteLevel.alphabet()) + ["".join(pair) for pair in merges]
    backend = Backend(models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(specials)
    return Tokenizer(backend)


@pytest.fixture(scope="session")
def speaker(tokenizer):
    """A model that has the toy tokenizer."""
    model = peaked(MiniMindConfig(**SMALL | {"vocab_size": tokenizer.vocab_size, "max_position_embeddings": 512}))
    model.tokenizer = tokenizer
    return model


@pytest.fixture(scope="session")
def saying(speaker):
    """``saying(ids)``: the same model, made to choose these ids one after the other."""
    return lambda ids: scripted(speaker, [[i] for i in ids])
