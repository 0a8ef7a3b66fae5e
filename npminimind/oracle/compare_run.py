"""What a trace was made of: the ids, the mask, the arguments; and running a model on the same again."""

import functools
import re
from dataclasses import dataclass, field, replace

import numpy as np

from ..names import (
    ATTENTION,
    DENSE,
    EXPERT,
    LAYER_OUTPUT,
    MODEL_HEAD,
    MODEL_TAIL,
    MOE_OUTPUT,
    ROUTER,
    SAMPLE,
    SHARED_EXPERT,
)

GROUPS = (
    MODEL_HEAD, ATTENTION, DENSE, ROUTER, EXPERT, SHARED_EXPERT, MOE_OUTPUT, LAYER_OUTPUT, MODEL_TAIL, SAMPLE,
)  # fmt: skip
TABLE = {name.name: name for group in GROUPS for name in group}
PLACES = {name: i for i, name in enumerate(TABLE)}
HEAD = [name.name for name in MODEL_HEAD]
FIRST_OF_EXPERT, LAST = EXPERT[0].name, 10**9
SAMPLING = ("temperature", "top_p", "top_k", "repetition_penalty", "do_sample", "eos_token_id", "num_return_sequences")


@functools.lru_cache(maxsize=100_000)
def place_of(name):
    """Take a name apart.

    Examples
    --------
    >>> place_of("round_2.model.layers.11.mlp.experts.3.act")
    (2, 'model.layers.11.mlp.experts.3.act', 'model.layers.{i}.mlp.experts.{e}.act')
    """
    round_, _, rest = name.partition(".") if name.startswith("round_") else ("", "", name)
    kind = re.sub(r"experts\.\d+\.", "experts.{e}.", re.sub(r"layers\.\d+", "layers.{i}", rest))
    return int(round_.removeprefix("round_")) if round_ else None, rest, kind


@functools.lru_cache(maxsize=100_000)
def dims_of(name):
    """The letters of its dims, or an empty list for a name that is not in the table."""
    entry = TABLE.get(place_of(name)[2])
    return entry.dims.split() if entry else []  # not to be changed: it is shared


def execution_order(names):
    """Names as the forward pass and the sampling stages come to them; files may list them otherwise.

    Examples
    --------
    >>> execution_order(["lm_head", "model.layers.10", "model.layers.9", "rope.cos"])
    ['rope.cos', 'model.layers.9', 'model.layers.10', 'lm_head']
    """
    return sorted(names, key=rank)


def rank(name):
    round_, rest, kind = place_of(name)
    layer = int(rest.split(".")[2]) if rest.startswith("model.layers.") else -1 if kind in HEAD else LAST
    expert = int(re.search(r"experts\.(\d+)", rest)[1]) if "experts.{e}" in kind else 0  # shared ones too
    index = PLACES.get(kind, LAST)
    part = PLACES[FIRST_OF_EXPERT] if "experts.{e}" in kind else index
    return -1 if round_ is None else round_, layer, part, expert, index


@dataclass
class Run:
    """One forward pass, or a generation whose tokens are given.

    Attributes
    ----------
    input_ids : int64 array [B, S]
    attention_mask : int64 array [B, S] or None
    generation : bool
    arguments : dict
        Of ``generate``.
    tokens : int64 array [B, R]
        Teacher forcing: what each round goes on with.
    u : float64 array [R, B] or None
    draws_known : bool
        False where torch's generator drew the tokens: these can't be derived from the probabilities.
    most : int
        The rounds that were allowed; more than R where all rows ended before.
    """

    input_ids: np.ndarray
    attention_mask: np.ndarray | None = None
    generation: bool = False
    arguments: dict = field(default_factory=dict)
    tokens: np.ndarray | None = None
    u: np.ndarray | None = None
    most: int = 0
    draws_known: bool = True
    masks: dict = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, trace):
        """Read from a trace's metadata and from the tokens and random numbers that it holds.

        Raises
        ------
        ValueError
            The metadata does not say what was run.
        """
        said = trace.metadata
        if "input_ids" not in said:
            raise ValueError("the reference does not say which input_ids it was made of (`npminimind trace` does)")
        arguments = said.get("arguments") or {}
        mask = arguments.get("attention_mask")
        run = cls(np.asarray(said["input_ids"], np.int64), None if mask is None else np.asarray(mask, np.int64))
        tokens = [trace[name] for name in sorted_rounds(trace, "sample.next_token")]
        if not tokens:
            return run
        run.generation = True
        run.arguments = {name: arguments[name] for name in SAMPLING if name in arguments}
        run.tokens = np.concatenate(tokens, axis=1)
        u = [trace[name] for name in sorted_rounds(trace, "sample.u")]
        run.u = np.stack(u) if u else None
        sampled = arguments.get("do_sample", True) and arguments.get("temperature") != 0
        run.draws_known = bool(u) or not sampled
        run.most = int(arguments.get("rounds") or len(tokens))
        return run

    def forced(self, tokens):
        """The same generation, going on with other tokens."""
        u = None if self.u is None else self.u[: tokens.shape[1]]
        if u is not None and len(u) < tokens.shape[1]:
            raise ValueError(f"{tokens.shape[1]} rounds, but random numbers (u) for {len(u)} only")
        return replace(self, tokens=tokens.astype(np.int64), u=u, most=max(self.most, tokens.shape[1]))

    def mask_of_round(self, round_):
        """The padding mask [B, T] of a round, or None where nothing is padded."""
        if round_ not in self.masks:
            self.masks[round_] = self.make_mask(round_)
        return self.masks[round_]

    def make_mask(self, round_):
        if self.attention_mask is None or self.attention_mask.all():
            return None
        copies = self.arguments.get("num_return_sequences", 1)
        mask = np.tile(self.attention_mask, (copies, 1))
        return np.concatenate([mask, np.ones((len(mask), round_ or 0), np.int64)], axis=1)


def sorted_rounds(trace, name):
    """The names of one array in every round, in order."""
    found = [key for key in trace if place_of(key)[1] == name and place_of(key)[0] is not None]
    return sorted(found, key=lambda key: place_of(key)[0])


def replay(model, run, instead=None):
    """Run a model as before, and keep every intermediate as it is computed.

    Parameters
    ----------
    model : MiniMindForCausalLM
    run : Run
    instead : function (name, array) -> array or None
        Puts another array in an intermediate's place, after it has been kept.

    Returns
    -------
    dict of str -> array
        As far as the run came: a model with a mistake may end in nan, which the loop refuses.
    """
    computed = {}

    def tap(name, array):
        computed[name] = array
        return instead(name, array) if instead else None

    try:
        with np.errstate(all="ignore"):
            if run.generation:
                generate(model, run, computed, tap)
            else:
                model(run.input_ids, run.attention_mask, tap=tap)
    except (ValueError, FloatingPointError, IndexError, ZeroDivisionError) as error:
        computed["ended"] = error
    return computed


def generate(model, run, computed, tap):
    """The loop with forced tokens; ``rounds`` counts those that it ran before it wanted to stop."""
    rounds = run.tokens.shape[1]

    def forcing(name, array):
        other = tap(name, array)
        if not name.endswith("sample.next_token"):
            return other
        return run.tokens[:, place_of(name)[0], None]

    rng = None if run.u is None else list(np.concatenate([run.u.ravel(), np.zeros(run.u[0].size)]))
    arguments = run.arguments | ({"do_sample": False} if rng is None else {"rng": rng})
    loop = model.steps(run.input_ids, run.attention_mask, max_new_tokens=rounds, tap=forcing, **arguments)
    computed["prompt"] = loop.input_ids
    for _ in loop:
        pass
    unfinished = rounds < run.most and not loop.finished.all()
    computed["rounds"] = np.asarray(loop.round + 1 if unfinished else loop.round)
