"""``npminimind trace``: every intermediate of a generation, as files that a port can be compared with."""

import sys

import numpy as np

from ..trace import trace, trace_generation
from .options import add_model, add_sampling, load_model, prompt_of, sampling_arguments, text_argument

HELP = "write every intermediate array of a run to a file"
EXAMPLES = """\
examples:
  npminimind trace "Once upon a time" --rounds 3 --greedy --out trace.safetensors
  npminimind trace --ids 1,832,311 --rounds 0 --out forward.npz              one forward pass, no sampling
  npminimind trace --ids "1,5,7;1,6,9" --force-ids 4,2 --u 0.1,0.9,0.5,0.3 --out folder
"""
ROUNDS = 4


def add_arguments(parser):
    parser.add_argument("prompt", nargs="?", metavar="PROMPT", type=text_argument, help="a text; else what is piped in")
    parser.add_argument("--ids", type=ids, metavar="I,I,…", help="token ids instead of a text; rows parted by ;")
    parser.add_argument("--out", required=True, metavar="FILE", help="*.safetensors, *.npz, or a new folder (of .npy)")
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, metavar="N", help=f"tokens to generate [{ROUNDS}]; 0: one forward pass"
    )
    parser.add_argument("--force-ids", type=ids, metavar="I,I,…", help="go on with these tokens, whatever is chosen")
    parser.add_argument(
        "--u", type=numbers, metavar="U,U,…", help="the uniform numbers to draw with, one a row and round"
    )
    add_model(parser, dtype="float64")
    add_sampling(parser)


def ids(text):
    """``"1,5;1,6"`` -> ``[[1, 5], [1, 6]]``.

    Examples
    --------
    >>> ids("1,5;1,6"), ids("7 8")
    ([[1, 5], [1, 6]], [[7, 8]])
    """
    return [[int(one) for one in row.replace(",", " ").split()] for row in text.split(";")]


def numbers(text):
    return [float(one) for one in text.replace(",", " ").split()]


def run(args):
    if args.ids is not None and args.prompt is not None:
        raise ValueError("give a text or --ids, not both")
    text = prompt_of(args) if args.ids is None else None
    model = load_model(args)
    input_ids = model.need_tokenizer().batch([text])[0] if args.ids is None else args.ids
    if args.rounds == 0 and args.force_ids is None:
        result = trace(model, input_ids)
    else:
        result = trace_generation(model, input_ids, rounds=args.rounds, **generation_arguments(args, model))
    result.metadata |= {"model": args.model, "text": text, "torch_seed": args.torch_seed}
    result.save(args.out)
    size = sum(np.asarray(array).nbytes for array in result.values())
    print(f"{args.out}: {len(result):,} arrays, {size:,} bytes, {model.dtype}", file=sys.stderr)
    return 0


def generation_arguments(args, model):
    """What ``trace_generation`` takes. Without a seed it is 0: the same command writes the same trace."""
    arguments = sampling_arguments(args, model)
    if args.u is not None:
        arguments |= {"rng": args.u, "do_sample": not args.greedy}
    elif args.seed is None and args.torch_seed is None:
        arguments["rng"] = 0
    return arguments | ({"force_ids": args.force_ids} if args.force_ids is not None else {})
