"""``npminimind chat``: a conversation with the chat template."""

import contextlib
import sys

import numpy as np

from .eval_llm import START, add_upstream, is_pretrained, load_chat_model
from .options import (
    add_ending,
    add_model,
    add_sampling,
    ending_arguments,
    is_piped,
    sampling_arguments,
    stdin_lines,
    text_argument,
)
from .stats import Stats, say

HELP = "talk with a model"
EXAMPLES = """\
examples:
  npminimind chat                                     /think, /new and /quit inside
  npminimind chat "Who are you?"                      one answer
  printf 'Hello\\nTell me a story\\n' | npminimind chat   each line is a message
  npminimind chat --model path/to/MiniMind3 --thinking
  npminimind chat --load_from model --weight full_sft --hidden_size 768 --use_moe 0     in MiniMind's checkout
"""
TOP_P = 0.95  # eval_llm.py's
COMMANDS = "/think switches thinking, /new forgets, /quit or Ctrl-D ends, Ctrl-C stops an answer"
ROOM = 4  # a quarter of the positions is kept free for the answer


def add_arguments(parser):
    parser.add_argument("message", nargs="?", metavar="MESSAGE", type=text_argument, help="answer this one and end")
    add_model(parser)
    parser.add_argument("--system", metavar="TEXT", type=text_argument, help="what stands in front of the conversation")
    parser.add_argument(
        "--thinking", dest="open_thinking", action="store_const", const=1, help="let the model think first"
    )
    parser.add_argument(
        "--stats", dest="show_speed", action="store_const", const=1, help="speed of each answer, on stderr"
    )
    add_ending(parser)
    add_sampling(parser, top_p=TOP_P)
    add_upstream(parser)


def run(args):
    if args.historys is not None and args.historys < 0:
        raise ValueError(f"--historys must be 0 or more, not {args.historys}")
    model = load_chat_model(args)
    arguments = sampling_arguments(args, model, top_p=TOP_P) | ending_arguments(args, model)
    conversation = Conversation(model, args, arguments)
    if args.message is not None:
        conversation.answer(args.message)
    elif is_piped():
        for line in stdin_lines():
            if line.strip():
                conversation.answer(line.rstrip("\r\n"))
    else:
        talk(conversation)
    return 0


class Conversation:
    """The messages so far, and how to answer the next.

    Parameters
    ----------
    model : MiniMindForCausalLM
    args : argparse.Namespace
    arguments : dict
        For ``stream``. A seed starts one generator for the whole conversation.
    """

    def __init__(self, model, args, arguments):
        self.model, self.args, self.arguments = model, args, arguments
        self.thinking = bool(args.open_thinking)
        self.system = [{"role": "system", "content": args.system}] if args.system else []
        self.seed = arguments["rng"]
        if args.torch_seed is None:
            arguments["rng"] = np.random.Generator(np.random.PCG64(self.seed))
        self.messages = []

    def answer(self, message):
        """Stream the answer to stdout and remember it, also when it is interrupted."""
        stats, text = Stats(), ""
        try:
            for piece in self.model.stream(self.prompt(message), streamer=stats, **self.arguments):
                say(piece)
                text += piece
            say("\n")
        finally:
            self.messages.append({"role": "assistant", "content": text})
            if self.args.show_speed:
                print(stats.report(self.args, self.arguments | {"rng": self.seed}), file=sys.stderr)

    def prompt(self, message):
        """The text to continue: with the template, but for weights that have only been pretrained."""
        if is_pretrained(self.args):
            return START + message
        if self.args.historys is not None:
            self.messages = self.messages[-self.args.historys :] if self.args.historys else []
        self.messages.append({"role": "user", "content": message})
        while not self.fits() and len(self.messages) > 1:
            del self.messages[:2]
        return self.rendered()

    def rendered(self):
        return self.model.need_tokenizer().apply_chat_template(self.system + self.messages, thinking=self.thinking)

    def fits(self):
        limit = self.model.config.max_position_embeddings
        return len(self.model.tokenizer.encode(self.rendered())) <= limit - limit // ROOM


def talk(conversation):
    """Read messages from the terminal until /quit or the end of input."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  - input() has then a history and can be edited
    print(f"{conversation.model!r}\n{COMMANDS}", file=sys.stderr)
    while True:
        try:
            message = ask()
        except EOFError:
            print(file=sys.stderr)
            return
        if message == "/quit":
            return
        if message == "/new":
            conversation.messages = []
        elif message == "/think":
            conversation.thinking = not conversation.thinking
            print(f"thinking is {'on' if conversation.thinking else 'off'}", file=sys.stderr)
        elif message.startswith("/"):
            print(COMMANDS, file=sys.stderr)
        elif message:
            try:
                conversation.answer(message)
            except KeyboardInterrupt:
                say("\n")


def ask():
    """A line from the terminal; where stdout is not one, the prompt goes to stderr."""
    if sys.stdout.isatty():
        return input("> ").strip()
    print("> ", end="", file=sys.stderr, flush=True)
    return input().strip()
