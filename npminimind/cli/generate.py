"""``npminimind generate``: continue a text, as a stream."""

import sys

from ..stopping import StopText, parse_stop
from ..text import pieces
from .options import (
    PROMPT,
    add_ending,
    add_model,
    add_sampling,
    ending_arguments,
    load_model,
    prompt_of,
    sampling_arguments,
    text_argument,
)
from .stats import Stats, say
from .steps import step_table

HELP = "continue a text"
EXAMPLES = """\
examples:
  npminimind generate "Once upon a time"
  npminimind generate "从前" --seed 7 --stats
  npminimind generate "Once upon a time" --steps --max-new-tokens 3     a table for each step, on stderr
  npminimind generate "One, two," --greedy --stop "."
  cat prompt.txt | npminimind generate --model path/to/MiniMind3
"""


def add_arguments(parser):
    parser.add_argument(
        "prompt",
        nargs="?",
        metavar="PROMPT",
        type=text_argument,
        help=f"taken as it is, without a chat template; else what is piped in, else {PROMPT!r}",
    )
    add_model(parser)
    add_ending(parser)
    parser.add_argument("--no-echo", action="store_true", help="print only what is new, without the prompt")
    parser.add_argument("--stats", action="store_true", help="tokens, speed, time to the first token, seed; on stderr")
    parser.add_argument(
        "--steps", action="store_true", help="how each token is chosen, as a table on stderr; then the text"
    )
    add_sampling(parser)


def run(args):
    prompt = prompt_of(args)
    model = load_model(args)
    arguments = sampling_arguments(args, model) | ending_arguments(args, model)
    arguments["streamer"] = stats = Stats()
    text = tabled(model, prompt, arguments) if args.steps else model.stream(prompt, **arguments)
    held = []
    put = held.append if args.steps else say  # the tables come first, then the text in one piece
    try:
        put("" if args.no_echo else prompt)
        for piece in text:
            put(piece)
        put("\n")
    finally:
        say("".join(held))
        if args.stats:
            print(stats.report(args, arguments), file=sys.stderr)
    return 0


def tabled(model, prompt, arguments):
    """What ``model.stream`` gives, with a table on stderr for each step."""
    tokenizer = model.need_tokenizer()
    steps = model.steps(tokenizer.batch([prompt])[0], **arguments)
    return pieces(shown(steps, tokenizer, arguments), StopText(tokenizer, *parse_stop(arguments["stop"], tokenizer)))


def shown(steps, tokenizer, arguments):
    for step in steps:
        print(step_table(step, tokenizer, arguments), file=sys.stderr)
        yield step
