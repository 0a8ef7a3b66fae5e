"""What a port has shown of itself, and how well a model reproduces it."""

from typing import NamedTuple

import numpy as np

from . import compare_names
from .compare_arrays import aligned, comparable, counted, difference, only_pads, unmasked
from .compare_files import IDS
from .compare_floor import FLOAT32, SLACK, allowed, spread
from .compare_run import dims_of, place_of, replay
from .compare_ties import near_tie, nucleus_undecided

LOOP = ("rounds", "prompt", "ended")  # what a loop did, beside the arrays of its rounds


class Evidence:
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
        self.given, self.last, self.whole_rows_only = {}, {}, False
        if IDS in candidate:
            self.take_ids(np.atleast_2d(np.asarray(candidate[IDS])))
        else:
            self.take_arrays(candidate)
        self.truth = replay(model, self.run)
        self.check_computed()
        self.floors = self.local_floors()
        self.right = {}  # name -> Known: what the model without a mistake makes of it
        self.misfit(model, remember=self.right)

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

    # -----------------------------------------------------------------------------------------
    # How well does a model fit?

    def misfit(self, model, blurred=(), early=False, remember=None):
        """How far each given array is from what ``model`` makes of the given ones before it.

        Parameters
        ----------
        model : MiniMindForCausalLM
            Perhaps with a mistake planted.
        blurred : tuple of str
            Endings of names to leave out.
        early : bool
            Stop at the first that does not fit.
        remember : dict, optional
            Takes the arrays and distances.

        Returns
        -------
        dict of str -> float
            Distance in units of what is allowed: 1 and less fits.
        """
        blurred = tuple(blurred)
        put, found, computed = self.instead(), {}, {}

        def watch(name, array):
            array = computed[name] = np.asarray(array)
            if name not in self.given or name.endswith(blurred):
                return None
            # Most mistakes leave most arrays as they are: these need not be judged again.
            before = self.right.get(name)
            same = before is not None and np.array_equal(before.array, array, equal_nan=array.dtype.kind == "f")
            found[name] = before.distance if same and not is_choice(name) else self.distance(name, array, computed)
            if early and found[name] > 1:
                raise Enough
            other = before.instead if same else put(name, array)
            if remember is not None:
                remember[name] = Known(array, found[name], other)
            if other is not None and name.endswith("topk_idx"):
                computed[name] = other
            return other

        try:
            computed |= {name: value for name, value in replay(model, self.run, watch).items() if name in LOOP}
        except Enough:
            return found
        if "ended" in computed and self.ends_in_nan(found):
            return found
        for name, theirs in self.given.items():
            if name in LOOP:
                same = name in computed and np.array_equal(computed[name], theirs)
                found[name] = 0.0 if same else np.inf
            elif name not in found and not name.endswith(blurred) and not only_pads(name, self.given, self.run):
                found[name] = np.inf  # it never came to that
        return found

    def ends_in_nan(self, found):
        """Whether the candidate had nan where our loop refuses to go on: then what comes after says nothing."""
        reached = [name for name in found if name.endswith(("lm_head", "sample.logits"))]
        return bool(reached) and bool(np.isnan(self.given[reached[-1]]).any())

    def distance(self, name, ours, computed):
        """One array, in units of what is allowed."""
        theirs = aligned(name, ours, self.given[name], computed, self.given, self.run)
        count = counted(name, ours.shape, self.run, computed) & self.rows(name, ours.shape)
        if name in self.last:
            count = np.broadcast_to(count, ours.shape)[:, -self.last[name] :]
            ours = ours[:, -self.last[name] :]
        if ours.shape != theirs.shape:
            return np.inf
        d = difference(ours, theirs, count)
        if is_choice(name) and d.max_abs:
            theirs = np.where(count, theirs, ours)
            tie = near_tie(name, ours, theirs, computed, self.run, self.floors, self.given)
            if tie or self.undecided(name, computed):
                return 0.5
        if ours.dtype.kind != "f":
            return np.inf if d.max_abs else 0.0
        if self.shows_future(name, ours, theirs):
            return np.inf
        return d.relative / allowed(self.floors.get(name, 0.0), ours, count)

    def shows_future(self, name, ours, theirs):
        """Whether the candidate leaves scores unmasked that are masked here."""
        open_ = unmasked(name, theirs, self.run)
        return open_ is not None and bool((open_ & ~unmasked(name, ours, self.run) & self.rows(name, ours.shape)).any())

    def rows(self, name, shape):
        """All rows, or only those without a pad."""
        mask = self.run.mask_of_round(0) if self.whole_rows_only else None
        dims = dims_of(name)
        if mask is None or dims[:1] not in (["B"], ["B*S"]):
            return np.True_
        whole = (mask == 1).all(axis=1)
        return np.repeat(whole, shape[0] // len(whole)).reshape(-1, *[1] * (len(shape) - 1))

    def set_whole_rows_only(self):
        """Leave out rows with pads; False where that leaves nothing, or nothing to leave out.

        A mistake can spread what stands at pads, and that is rounding noise: -1e9 in float32 has a spacing of 64.
        """
        mask = self.run.mask_of_round(0)
        if self.whole_rows_only or mask is None or not (mask == 1).all(axis=1).any():
            return False
        self.whole_rows_only, self.right = True, {}
        self.misfit(self.model, remember=self.right)
        return True

    def undecided(self, name, computed):
        """Whether rounding decides which tokens this choice was made from."""
        if not name.endswith("sample.next_token"):
            return False
        if name.replace("next_token", "probs") in self.given:
            return False
        logits = computed.get(name.replace("next_token", "after_top_k"))
        slack = SLACK * max(self.floors.get(name.replace("next_token", "probs"), 0.0), FLOAT32)
        return logits is not None and nucleus_undecided(logits, self.run.arguments.get("top_p", 0.85), slack)


class Known(NamedTuple):
    """One array of the right model, its distance from the candidate's, and what was put in its place."""

    array: np.ndarray
    distance: float
    instead: np.ndarray | None


CHOICES = ("topk_idx", "after_top_k", "after_top_p", "next_token", "finished")


def is_choice(name):
    """Whether an array is judged by others beside itself: near-ties."""
    return name.endswith(CHOICES)


class Enough(Exception):
    """One array does not fit: no need to compute the others."""


def merged(name, computed, theirs, run, arrays):
    """The candidate's array where it means something, the computed one elsewhere."""
    count = counted(name, computed.shape, run, arrays)
    open_ = unmasked(name, theirs, run)
    if open_ is not None:
        count = count | open_
    return np.where(count, theirs, computed).astype(computed.dtype)
