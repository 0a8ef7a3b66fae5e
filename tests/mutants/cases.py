"""The models, prompts and arguments that the mutants run with."""

from dataclasses import dataclass

import numpy as np

from npminimind import MiniMindConfig, MiniMindForCausalLM
from npminimind.trace import trace_generation

from . import port

SMALL = dict(
    hidden_size=32, num_hidden_layers=2, vocab_size=60, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
    intermediate_size=64, max_position_embeddings=256,
)  # fmt: skip
CONFIGS = {
    "dense": MiniMindConfig(**SMALL),
    "deep": MiniMindConfig(**SMALL | {"num_hidden_layers": 12, "hidden_size": 16, "intermediate_size": 32}),
    "yarn-untied-gelu": MiniMindConfig(
        **SMALL | {"max_position_embeddings": 4096},
        inference_rope_scaling=True, tie_word_embeddings=False, hidden_act="gelu",
    ),
    "experts": MiniMindConfig(
        **SMALL, use_moe=True, num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=True
    ),
    "experts-raw": MiniMindConfig(
        **SMALL, use_moe=True, num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=False
    ),
}  # fmt: skip
SAMPLING = dict(temperature=1.1, top_p=0.8, top_k=10, repetition_penalty=1.3)
PORT = SAMPLING | {"penalty": SAMPLING["repetition_penalty"]}
del PORT["repetition_penalty"]
ROUNDS, LONG = 3, 20
DTYPE = np.float64


@dataclass
class Case:
    """One model with its prompts.

    Attributes
    ----------
    model : MiniMindForCausalLM
        float64
    weights : dict of str -> float32 array
        What the port reads: the same numbers.
    ids, mask : arrays [2, 9]
        The second row has three pads on the left.
    u, long_u : arrays [rounds, rows]
        The random numbers of a traced run, and of a long one of nothing but ids.
    eos : int
        A token that the long run meets.
    """

    model: MiniMindForCausalLM
    weights: dict
    ids: np.ndarray
    mask: np.ndarray
    u: np.ndarray
    long_u: np.ndarray
    eos: int = 2

    @property
    def config(self):
        return self.model.config

    def reference(self):
        """The trace that ports are compared with."""
        return trace_generation(self.model, self.ids, self.mask, rounds=ROUNDS, u=self.u.ravel(), **SAMPLING)

    def dumped(self, *mistakes, force=None):
        """What the port dumps of the same run, going on with its own tokens or with given ones."""
        arrays = {}
        arguments = PORT | {"us": self.u}
        with np.errstate(all="ignore"):
            port.generate(
                self.weights, self.config.to_dict(), self.ids, self.mask, ROUNDS,
                on=frozenset(mistakes), dump=arrays.__setitem__, force=force, **arguments,
            )  # fmt: skip
        return arrays

    def long_arguments(self):
        return SAMPLING | {"eos_token_id": self.eos, "num_return_sequences": 2, "max_new_tokens": LONG}

    def generated(self, *mistakes):
        """The ids that the port returns for two copies of each prompt."""
        arguments = PORT | {"us": self.long_u}
        with np.errstate(all="ignore"):
            return port.generate(
                self.weights, self.config.to_dict(), self.ids, self.mask, LONG, eos=self.eos, copies=2,
                on=frozenset(mistakes), **arguments,
            )  # fmt: skip


def make_case(name, seed=0):
    """A random model with peaked distributions, norms away from one, and a token that ends rows.

    Two ids share one row of the head, so that ties happen.
    """
    config = CONFIGS[name]
    rng = np.random.default_rng([seed, *map(ord, name)])
    model = MiniMindForCausalLM.random(config, seed=seed)
    for key, array in model.params.items():
        if array.ndim == 1:
            array[...] = rng.uniform(0.4, 1.6, array.shape)
        if key in ("model.embed_tokens.weight", "lm_head.weight"):
            array[...] = 2 * array
            array[7] = array[8]
    ids, mask = rng.integers(3, config.vocab_size, (2, 9)), np.ones((2, 9), np.int64)
    mask[1, :3] = 0
    long_u = rng.random((LONG, 4))
    long_u[3] = 0.0
    weights = {key: np.ascontiguousarray(array) for key, array in model.params.items()}
    case = Case(model.astype(DTYPE), weights, ids, mask, rng.random((ROUNDS, 2)), long_u)
    free = case.model.generate(
        ids, mask, max_new_tokens=LONG, eos_token_id=None, num_return_sequences=2, rng=long_u.ravel(), **SAMPLING
    )
    case.eos = int(free[0, 9 + 5])
    return case
