"""``npminimind bench``: how fast this machine runs a model."""

import json
import sys

from ..bench import Options, measure, plot, table
from .options import BOX, model_path

HELP = "measure speed and memory on this machine, beside the machine's own limits"
EXAMPLES = """\
examples:
  npminimind bench                                MiniMind-3's shape, random weights
  npminimind bench --model out/full_sft_768.pth   your checkpoint
  npminimind bench --against transformers --json > bench.json
"""


def add_arguments(parser):
    parser.add_argument(
        "--model", metavar="PATH", help=f"a folder, a file, or one of {', '.join(BOX)} (default: MiniMind-3's shape)"
    )
    parser.add_argument("--against", choices=("transformers",), help="run a peer with the same weights in turn")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="measurements of each kind (default: 5)")
    parser.add_argument(
        "--long", type=int, nargs="*", default=[8192], metavar="N", help="long prefills to measure (default: 8192)"
    )
    parser.add_argument("--quick", action="store_true", help="one short measurement of each kind, to see that it runs")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("--plot", metavar="FILE", help="draw the result too (.svg, .png; needs matplotlib)")


def run(args):
    if args.repeats < 1:
        raise ValueError(f"--repeats must be 1 or more, not {args.repeats}")
    options = Options(
        model=str(model_path(args.model)) if args.model else None,
        against=args.against,
        repeats=args.repeats,
        long=tuple(args.long),
    )
    if args.quick:
        options.repeats, options.new_tokens, options.context, options.prompt, options.long = 1, 3, 64, 64, (128,)
    result = measure(options, progress=lambda text: print(f"measuring {text} …", file=sys.stderr))
    print(json.dumps(result, indent=2) if args.json else table(result))
    if args.plot:
        plot(result, args.plot)
    return 0
