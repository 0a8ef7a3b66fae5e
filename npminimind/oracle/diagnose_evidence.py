"""What a port has shown of itself, under the reference's names."""

import numpy as np

from . import compare_names
from .compare_arrays import aligned, comparable, counted, difference, unmasked
from .compare_files import IDS
from .compare_floor import spread
from .compare_run import place_of, replay


class Shown:
    """A candidate's arrays under the reference's names, and what they were made of.

    Parameters
    ----------
    model : MiniMindForCausalLM
        The right one, in float64.
    candidate : dict of str -> array
    run : Run

    Attributes
    ----------
    given : dict of str -> array
    kind : str
        ``"generated ids"``, ``"logits"`` or ``"trace"``.
    floors : dict of str -> float
        What float32 is off by when every given array is computed from the given ones before it.

    Raises
    ------
    ValueError
        Nothing that could be compared.
    """

    def __init__(self, model, candidate, run):
        self.model, self.run = model, run
        self.given, self.last = {}, {}
        if IDS in candidate:
            self.take_ids(np.atleast_2d(np.asarray(candidate[IDS])))
        else:
            self.take_arrays(candidate)
        self.truth = replay(model, self.run)
        self.check_computed()
        self.floors = self.local_floors()

    def take_ids(self, ids):
        """Generated ids are the tokens of every round, and teacher forcing makes each round a test of its own."""
        run, prompt = self.run, self.run.input_ids
        rows = len(prompt) * run.arguments.get("num_return_sequences", 1)
        if len(ids) != rows or ids.shape[1] <= prompt.shape[1]:
            raise ValueError(
                f"generated ids have shape {list(ids.shape)}, need {rows} rows and more than the {prompt.shape[1]} "
                "ids of the prompt, which stands first in each"
            )
        if ids.min() < 0 or ids.max() >= self.model.config.vocab_size:
            raise ValueError(f"generated ids lie outside the vocabulary of {self.model.config.vocab_size}")
        self.kind = "generated ids"
        new = ids.shape[1] - prompt.shape[1]
        self.run = run.forced(ids[:, prompt.shape[1] :])
        self.given = {f"round_{r}.sample.next_token": ids[:, prompt.shape[1] + r, None] for r in range(new)}
        self.given |= {"prompt": ids[:, : prompt.shape[1]], "rounds": np.asarray(new)}

    def take_arrays(self, candidate):
        tokens = {place_of(name)[0]: array for name, array in candidate.items() if name.endswith("sample.next_token")}
        if self.run.generation and tokens and None not in tokens:
            self.run = self.run.forced(np.concatenate([tokens[r] for r in sorted(tokens)], axis=1))
        matches, _ = compare_names.match(replay(self.model, self.run), candidate)
        self.given = {name: found.array for name, found in matches.items() if self.can_judge(name, matches)}
        self.last = {name: found.last for name, found in matches.items() if found.last}
        if not self.given:
            raise ValueError("no name of the candidate is known; dump arrays under the names of `npminimind.names`")
        logits = all(name.endswith(("lm_head", "sample.logits")) for name in self.given)
        self.kind = "logits" if logits else "trace"

    def can_judge(self, name, matches):
        return comparable(name, matches, self.run) and (self.run.draws_known or not name.endswith("sample.next_token"))

    def check_computed(self):
        if not self.truth:
            raise ValueError("the model could not be run on the reference's ids; is it the one that made it?")

    def local_floors(self):
        single = replay(self.model.astype(np.float32), self.run, self.instead(self.truth))
        floors = {}
        for name, array in self.truth.items():
            other = single.get(name)
            if array.dtype.kind == "f" and other is not None and other.shape == array.shape:
                relative = difference(array, other, counted(name, array.shape, self.run, self.truth)).relative
                floors[name] = relative if np.isfinite(relative) else 0.0
        return spread(floors)

    def instead(self, arrays=None):
        """A tap that puts the given arrays in place, so that every step is computed from the candidate's own inputs."""
        arrays = self.given if arrays is None else arrays

        seen = {}

        def put(name, computed):
            if name.endswith("topk_idx"):
                seen[name] = computed
            theirs = arrays.get(name)
            if name not in self.given or theirs is None or name in self.last:
                return None
            theirs = aligned(name, computed, theirs, seen, arrays, self.run)
            if theirs.shape != computed.shape:
                return None
            other = merged(name, np.asarray(computed), np.asarray(theirs), self.run, seen)
            if name in seen:
                seen[name] = other
            return other

        return put


def merged(name, computed, theirs, run, arrays):
    """The candidate's array where it means something, the computed one elsewhere."""
    count = counted(name, computed.shape, run, arrays)
    open_ = unmasked(name, theirs, run)
    if open_ is not None:
        count = count | open_
    return np.where(count, theirs, computed).astype(computed.dtype)
