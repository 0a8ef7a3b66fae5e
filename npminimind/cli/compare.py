"""``npminimind compare``: a port's arrays beside the reference's, the first that is wrong, and the mistake's name."""

import json
import sys
from pathlib import Path

import numpy as np

from .. import MiniMindForCausalLM
from ..oracle.compare_files import IDS, read_trace
from ..oracle.compare_traces import compare
from ..oracle.diagnose_mistakes import diagnose
from ..oracle.report_html import as_html
from ..oracle.report_text import as_data, as_text
from .options import model_path

HELP = "find the first array of a port that is wrong, and why"
EXAMPLES = """\
examples:
  npminimind trace "Once upon a time" --out reference.safetensors
  npminimind compare reference.safetensors mine.safetensors
  npminimind compare reference.safetensors mine.npz --diagnose --html report.html
  npminimind compare reference.safetensors ids.json --diagnose     only generated ids: [[1, 2, 3 …]]

The candidate's arrays may be called as torch hooks, HF, MiniMind-1 or llama.cpp call them.
"""


def add_arguments(parser):
    parser.add_argument("reference", metavar="REFERENCE", help="what `npminimind trace` has written")
    parser.add_argument("candidate", metavar="CANDIDATE", help="*.safetensors, *.npz, a folder of *.npy; ids as *.json")
    parser.add_argument("--model", metavar="PATH", help="what made the reference, if it does not say so or has moved")
    parser.add_argument("--diagnose", action="store_true", help="name the mistake: plant each known one and try")
    parser.add_argument("--atol", type=float, metavar="A", help="allow A + R * |reference|, not the measured floor")
    parser.add_argument("--rtol", type=float, metavar="R", help="see --atol")
    parser.add_argument("--all", action="store_true", help="list every array, not only those near the divergence")
    parser.add_argument("--json", action="store_true", help="the whole report as JSON")
    parser.add_argument("--html", metavar="FILE", help="write a page that shows where the error starts and grows")


def run(args):
    reference, candidate = read_trace(args.reference), read_trace(args.candidate)
    model = find_model(args, reference)
    if IDS in candidate:
        return run_ids(args, model, reference, candidate)
    report = compare(reference, candidate, model, args.atol, args.rtol)
    if args.diagnose:
        report.diagnosis = diagnose(needed(model, args), candidate, reference)
    if args.html:
        page = as_html(report, args.reference, args.candidate)
        Path(args.html).write_text(page, encoding="utf-8")
        print(f"{args.html}: written", file=sys.stderr)
    print(json.dumps(as_data(report), indent=1, allow_nan=False) if args.json else as_text(report, args.all), end="")
    if args.json:
        print()
    elif args.diagnose:
        print(report.diagnosis, end="")
    return 0 if report.agrees else 1


def run_ids(args, model, reference, candidate):
    """Ids alone have no arrays to walk through: each token is a test of its own."""
    if args.html:
        raise ValueError("ids alone make no page; dump arrays for --html")
    diagnosis = diagnose(needed(model, args), candidate, reference)
    agrees = {"agrees": diagnosis.correct}
    print(json.dumps(agrees | diagnosis.as_data(), indent=1) if args.json else diagnosis, end="\n" if args.json else "")
    return 0 if diagnosis.correct else 1


def find_model(args, reference):
    """The model that made the reference, in float64; None where it is not said or not there."""
    said = args.model or reference.metadata.get("model")
    if not isinstance(said, str):
        return None
    path = model_path(said)
    if not args.model and not Path(path).exists():
        return None
    return MiniMindForCausalLM.from_pretrained(path, dtype=np.float64)


def needed(model, args):
    if model is None:
        raise ValueError(f"{args.reference} does not say which model made it, or that has moved: give --model")
    return model
