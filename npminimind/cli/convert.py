"""``npminimind convert``: a checkpoint in another layout or element type."""

import sys

from ..checkpoint import convert
from .options import model_path

HELP = "write a checkpoint for transformers, vLLM, llama.cpp, or for MiniMind itself"
EXAMPLES = """\
examples:
  npminimind convert out/full_sft_768.pth MiniMind3                    an HF folder, its numbers unchanged
  npminimind convert MiniMind3 out --layout minimind --dtype float16   config.json and a .pth
"""


def add_arguments(parser):
    parser.add_argument("src", metavar="SRC", help="a folder or a file, as --model takes it elsewhere")
    parser.add_argument("dst", metavar="DST", help="the folder to write")
    parser.add_argument("--dtype", choices=("float16", "bfloat16", "float32", "float64"), help="[what the source has]")
    parser.add_argument("--layout", choices=("hf", "minimind"), default="hf", help="whose [hf]")


def run(args):
    for line in convert(model_path(args.src), args.dst, dtype=args.dtype, layout=args.layout):
        print(line, file=sys.stderr)
    return 0
