"""``npminimind conform``: put a program in any language through the golden vectors."""

import json
import sys

HELP = "check an implementation in any language against the golden vectors"
EXAMPLES = """\
examples:
  npminimind conform -- ./my-port                       all suites, then a search for further inputs
  npminimind conform --only rms_norm -- node port.js    one operator
  npminimind conform --no-search --junit report.xml -- ./my-port

The program reads a JSON request a line and answers with a JSON line: reference_weights/vectors/PROTOCOL.md.
exit codes: 0 agrees, 1 differs, 2 it could not be run, or supports nothing that was asked
"""


def add_arguments(parser):
    parser.add_argument("command", metavar="COMMAND", nargs="+", help="how to start the program; put -- in front")
    parser.add_argument("--only", metavar="SUITE", action="append", help="a suite to run; may be given again [all]")
    parser.add_argument("--no-search", action="store_true", help="golden cases only")
    parser.add_argument("--examples", type=int, default=100, metavar="N", help="inputs the search tries a suite [100]")
    parser.add_argument("--seed", type=int, default=0, help="of the search [0]")
    parser.add_argument("--timeout", type=float, default=10.0, metavar="S", help="seconds for one answer [10]")
    parser.add_argument("--junit", metavar="FILE", help="also write JUnit XML")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")


def run(args):
    from ..oracle.conform import conform
    from ..oracle.conform_report import as_json, as_junit, as_text, line_of
    from ..oracle.search import available

    if not args.no_search and not available():
        print("npminimind: hypothesis is not installed, so only the golden cases are run", file=sys.stderr)

    def progress(result):
        if sys.stderr.isatty():
            print(line_of(result), file=sys.stderr)

    outcome = conform(
        args.command, args.only, not args.no_search, args.seed, args.timeout, args.examples, seen=progress
    )
    print(json.dumps(as_json(outcome), ensure_ascii=False) if args.json else as_text(outcome))
    if args.junit:
        with open(args.junit, "w", encoding="utf-8") as file:
            file.write(as_junit(outcome))
    return outcome.exit_code
