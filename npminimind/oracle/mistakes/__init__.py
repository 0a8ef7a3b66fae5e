"""The mistakes that ports of MiniMind are known to make, each ready to be planted in a model.

A table, grouped in files by what they concern. Golden vectors name them in their flags, ``conform`` and
``check`` try whether one explains a port's answer, ``diagnose`` whether one explains a trace.
"""

from . import attention, loop, mlp, model, norms, rope, sampling
from .mistake import Mistake

__all__ = ["MISTAKES", "Mistake", "by_id", "by_operator"]

# In the order in which a forward pass and a generation meet them.
MISTAKES = tuple(
    mistake for group in (norms, rope, attention, mlp, model, sampling, loop) for mistake in group.MISTAKES
)


def by_id(id):
    """The mistake of this id.

    Raises
    ------
    KeyError

    Examples
    --------
    >>> by_id("rope-sign").description
    'rotates the other way: [b, -a] instead of [-b, a]'
    """
    return {mistake.id: mistake for mistake in MISTAKES}[id]


def by_operator(name):
    """The mistakes that replace exactly this one operator, so that its answer alone can show them.

    Parameters
    ----------
    name : str
        Of ``npminimind.ops.OPERATORS``; the wrong function is ``mistake.ops[name]``.

    Returns
    -------
    list of Mistake

    Examples
    --------
    >>> [mistake.id for mistake in by_operator("greedy")]
    ['argmax-last']
    """
    return [mistake for mistake in MISTAKES if tuple(mistake.ops) == (name,)]
