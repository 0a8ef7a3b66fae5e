"""The oracle: what is right, where an implementation first differs, and which mistake it made."""

from .check import check
from .compare_traces import Report, compare
from .diagnose_mistakes import Diagnosis, diagnose
from .mistakes import MISTAKES, Mistake
from .vectors import Case, load_vectors

__all__ = ["MISTAKES", "Case", "Diagnosis", "Mistake", "Report", "check", "compare", "diagnose", "load_vectors"]
