"""What a known mistake is, and the four ways to plant one in a model without touching the forward pass."""

import copy
import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field

from ...loop import Loop
from ...tapping import no_tap


@dataclass(frozen=True)
class Mistake:
    """A mistake that ports of MiniMind are known to make.

    Exactly one of ``ops`` and ``change`` plants it.

    Attributes
    ----------
    id : str
        Stable, never reused: ``rope-neighbours``.
    bug_type : str
        The kind: ``layout``, ``sign``, ``position``, ``constant``, ``missing-step``, ``extra-step``, ``order``,
        ``axis``, ``function``, ``mask``, ``rule``, ``precision``, ``loop``.
    description : str
        What the port does, in one line.
    effect : str
        What it does to the numbers.
    operators : tuple of str
        The operators that it concerns (``npminimind.ops.OPERATORS``); empty where it lies between them.
    ops : dict of str -> function
        The wrong operators that stand in for the right ones.
    change : function model -> model
        For what is no operator: residuals, the order of steps, the loop.
    applies : function config -> bool
        Whether a model of this config can have it at all.
    blurred : tuple of str
        Endings of names that ports with this mistake dump at one point or another of the changed order: before
        it or after it. A diagnosis leaves them out.
    """

    id: str
    bug_type: str
    description: str
    effect: str
    operators: tuple = ()
    ops: dict = field(default_factory=dict)
    change: Callable | None = None
    applies: Callable = lambda config: True
    blurred: tuple = ()

    def plant(self, model):
        """The same model with this mistake; ``model`` stays as it is."""
        return self.change(model) if self.change else model.with_ops(**self.ops)

    def flag(self):
        """The mistake as the golden vectors describe it."""
        return {"bugType": self.bug_type, "description": self.description, "effect": self.effect}

    def __repr__(self):
        return f"<Mistake {self.id}: {self.description}>"


def wrong(name, function, *, id, bug_type, description, effect, **others):
    """A mistake inside one operator."""
    return Mistake(id, bug_type, description, effect, operators=(name,), ops={name: function}, **others)


# ---------------------------------------------------------------------------------------------
# Ways to change a model. Each returns a function model -> model, which leaves the given one alone.


def with_ops(make_ops):
    """Replace operators by some that know the model: ``make_ops(model) -> dict``."""
    return lambda model: model.with_ops(**make_ops(model))


def with_config(changes_of):
    """Compute with other numbers in the config, and the same parameters: ``changes_of(config) -> dict``."""

    def change(model):
        other = copy.copy(model)
        other.config = dataclasses.replace(model.config, **changes_of(model.config))
        return other

    return change


def with_methods(**methods):
    """Replace methods of the model."""

    def change(model):
        other = copy.copy(model)
        other.__class__ = type("Mistaken", (type(model),), methods)
        return other

    return change


def with_tap(alter):
    """Put another array in the place of a named one: ``alter(model, name, array) -> array``.

    A trace sees the array as it was; what comes after it computes with the other.
    """

    def change(model):
        def hidden_states(self, ids, mask, cache, tap=no_tap):
            def altered(name, array):
                return alter(model, name, tap(name, array))

            return type(model).hidden_states(self, ids, mask, cache, altered)

        return with_methods(hidden_states=hidden_states)(model)

    return change


def with_loop(**methods):
    """Replace methods of the generation loop (:class:`npminimind.loop.Loop`)."""
    mistaken = type("MistakenLoop", (Loop,), methods)

    def steps(self, *args, **kwargs):
        call = inspect.signature(self.generate).bind(*args, **kwargs)
        call.apply_defaults()
        return mistaken(self, **call.arguments)

    return with_methods(steps=steps)
