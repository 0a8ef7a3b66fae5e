"""The oracle: what is right, where an implementation first differs, and which mistake it made."""

from .check import check
from .vectors import Case, load_vectors

__all__ = ["Case", "check", "load_vectors"]
