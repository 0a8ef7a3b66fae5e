"""How well a model, perhaps with a mistake planted, reproduces what a port has shown."""

from typing import NamedTuple

import numpy as np

from .compare_arrays import aligned, counted, difference, only_pads, unmasked
from .compare_floor import FLOAT32, SLACK, allowed
from .compare_run import dims_of, replay
from .compare_ties import near_tie, nucleus_undecided
from .diagnose_evidence import Shown

LOOP = ("rounds", "prompt", "ended")  # what a loop did, beside the arrays of its rounds
CHOICES = ("topk_idx", "after_top_k", "after_top_p", "next_token", "finished")


class Evidence(Shown):
    """What a port has shown, and how far a model is from it. Made as :class:`Shown`.

    Attributes
    ----------
    right : dict of str -> Known
        What the model without a mistake makes of it.
    whole_rows_only : bool
        Rows with pads are left out.
    """

    def __init__(self, model, candidate, run):
        super().__init__(model, candidate, run)
        self.whole_rows_only, self.right = False, {}
        self.misfit(model, remember=self.right)

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


def is_choice(name):
    """Whether an array is judged by others beside itself: near-ties."""
    return name.endswith(CHOICES)


class Enough(Exception):
    """One array does not fit: no need to compute the others."""
