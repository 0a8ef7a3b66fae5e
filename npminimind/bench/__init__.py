"""How fast this machine runs a model, and how far that is from what the machine can do."""

from .measure import Options, measure
from .report import plot, table

__all__ = ["Options", "measure", "plot", "table"]
