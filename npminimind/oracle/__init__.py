"""The oracle: what is right, where an implementation first differs, and which mistake it made."""

from .check import check
from .compare_traces import Report, compare
from .conform import ConformResult, conform
from .diagnose_mistakes import Diagnosis, diagnose
from .mistakes import MISTAKES, Mistake
from .vectors import Case, load_vectors

__all__ = [
    "MISTAKES",
    "Case",
    "ConformResult",
    "Diagnosis",
    "Mistake",
    "Report",
    "check",
    "compare",
    "conform",
    "diagnose",
    "load_vectors",
]
