"""What several commands share: the model, where text comes from, how to sample."""

import inspect
import os
import stat
import sys

import numpy as np

from .. import MiniMindForCausalLM, TorchGenerator, reference_weights
from ..errors import CheckpointError
from ..tokenizer import Tokenizer

BOX = ("minimind-tiny", "minimind-tiny-moe")
PROMPT = "Once upon a time"
SAMPLING = ("temperature", "top_k", "top_p", "repetition_penalty")
DTYPES = ("float32", "float64")


# ---------------------------------------------------------------------------------------------
# The model


def add_model(parser, dtype="float32"):
    group = parser.add_argument_group("model")
    group.add_argument(
        "--model",
        metavar="PATH",
        default=BOX[0],
        help=f"a folder or a file (*.safetensors, *.pth), or a model in the box: {', '.join(BOX)} (default: {BOX[0]})",
    )
    group.add_argument(
        "--tokenizer", metavar="PATH", help="tokenizer.json or its folder, where none lies by the weights"
    )
    group.add_argument("--lora", metavar="FILE", help="a LoRA file to merge into the weights")
    group.add_argument("--dtype", choices=DTYPES, default=dtype, help=f"what to compute in (default: {dtype})")


def model_path(name):
    """A path, or the name of a model in the box."""
    return reference_weights() / name if name in BOX else name


def load_model(args):
    model = MiniMindForCausalLM.from_pretrained(model_path(args.model), dtype=np.dtype(args.dtype), lora=args.lora)
    if args.tokenizer is not None:
        model.tokenizer = Tokenizer.from_pretrained(model_path(args.tokenizer))
    return model


# ---------------------------------------------------------------------------------------------
# Text that comes in


def text_argument(argument):
    """A text of the command line, as UTF-8 also where the locale knows only ASCII."""
    try:
        return os.fsencode(argument).decode("utf-8")
    except UnicodeError:
        raise ValueError("is not UTF-8 text") from None


def is_piped():
    """Whether stdin is a pipe or a file: neither a terminal nor /dev/null."""
    try:
        return not stat.S_ISCHR(os.fstat(sys.stdin.fileno()).st_mode)
    except (OSError, ValueError):  # not a real file: a notebook's or a test's
        return not sys.stdin.isatty()
    except AttributeError:  # no stdin at all
        return False


def read_stdin():
    """Everything on stdin; the newline that ``echo`` puts at the end is no part of the text."""
    return "".join(stdin_lines()).removesuffix("\n")


def stdin_lines():
    """The lines of stdin as they come, UTF-8, with their newlines."""
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict")
    try:
        yield from sys.stdin
    except UnicodeDecodeError as error:
        raise ValueError(f"stdin is not UTF-8 text (byte {error.start})") from None


def prompt_of(args, default=PROMPT):
    """The text of the command line, else of a pipe, else the default."""
    if args.prompt is not None:
        return args.prompt
    return read_stdin() if is_piped() else default


# ---------------------------------------------------------------------------------------------
# Sampling


def upstream_defaults():
    """The defaults of ``generate``, which are MiniMind's."""
    return {name: p.default for name, p in inspect.signature(MiniMindForCausalLM.generate).parameters.items()}


def add_sampling(parser, **default):
    """How tokens are chosen. None stands for "not named"."""
    default = upstream_defaults() | default
    title = "without an option the checkpoint's generation_config.json decides, without that the value in brackets"
    group = parser.add_argument_group("sampling", title)

    def option(name, kind, metavar, text):
        group.add_argument(f"--{name}", type=kind, metavar=metavar, help=f"{text} [{default[name.replace('-', '_')]}]")

    option("temperature", float, "T", "below 1 sharper, above 1 flatter, 0 greedy")
    option("repetition-penalty", float, "R", "above 1 makes tokens that have occurred less likely; 1 is off")
    option("top-k", int, "K", "draw from the K most likely tokens; 0 is off")
    option("top-p", float, "P", "draw from the most likely tokens that together reach P; 1 is off")
    group.add_argument("--greedy", action="store_true", help="always take the most likely token")
    seeds = group.add_mutually_exclusive_group()
    seeds.add_argument("--seed", type=int, metavar="S", help="the same seed draws the same text")
    seeds.add_argument("--torch-seed", type=int, metavar="S", help="draw what torch.manual_seed(S) makes MiniMind draw")


def add_ending(parser):
    """When to stop, and whether to keep a cache."""
    longest = upstream_defaults()["max_new_tokens"]
    parser.add_argument("--max-new-tokens", type=int, metavar="N", help=f"end after N tokens at the latest [{longest}]")
    parser.add_argument(
        "--stop", type=text_argument, action="append", metavar="TEXT", help="end before TEXT; repeatable"
    )
    parser.add_argument("--no-cache", action="store_true", help="feed the whole text at each step: slow, same result")


def sampling_arguments(args, model, **default):
    """How ``generate`` is to choose: the user's values, else the checkpoint's, else ``default``, else MiniMind's.

    Returns
    -------
    dict
        ``temperature``, ``top_k``, ``top_p``, ``repetition_penalty``, ``do_sample``, ``eos_token_id``, ``rng``.
    """
    chosen = {name: upstream_defaults()[name] for name in (*SAMPLING, "do_sample")} | default
    stored = stored_defaults(model)
    chosen |= {name: stored[name] for name in (*SAMPLING, "do_sample") if name in stored}
    chosen["eos_token_id"] = stored.get("eos_token_id", model.config.eos_token_id)
    chosen |= {name: getattr(args, name) for name in SAMPLING if getattr(args, name) is not None}
    named = (args.temperature, args.top_k, args.top_p, args.seed, args.torch_seed)
    if args.greedy or any(value is not None for value in named):
        chosen["do_sample"] = not args.greedy
    if args.torch_seed is not None:
        return chosen | {"rng": TorchGenerator(args.torch_seed)}
    return chosen | {"rng": fresh_seed() if args.seed is None else args.seed}


def fresh_seed():
    """A seed that ``--stats`` can name, so that a run can be had again."""
    return int.from_bytes(os.urandom(4), "little")


def ending_arguments(args, model):
    """``max_new_tokens``, ``stop`` and ``use_cache`` of ``generate``."""
    longest = args.max_new_tokens
    if longest is None:
        longest = stored_defaults(model).get("max_new_tokens", upstream_defaults()["max_new_tokens"])
    return {"max_new_tokens": longest, "stop": args.stop, "use_cache": not args.no_cache}


STORED = dict.fromkeys(SAMPLING, (int, float)) | {"top_k": int, "max_new_tokens": int, "do_sample": bool}
STORED |= {"eos_token_id": (int, list)}


def stored_defaults(model):
    """What the checkpoint's generation_config.json says of sampling and of the end."""
    checkpoint = model.checkpoint
    stored = checkpoint.generation_config if checkpoint and checkpoint.generation_config else {}
    found = {name: stored[name] for name in STORED if stored.get(name) is not None}
    for name, value in found.items():
        if not isinstance(value, STORED[name]) or isinstance(value, bool) != (name == "do_sample"):
            raise CheckpointError(
                f"{checkpoint.path}: generation_config.json has {name} {value!r}; correct it or delete it"
            )
    return found
