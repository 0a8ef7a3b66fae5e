"""The options of MiniMind's own ``eval_llm.py``, so that its users type what their fingers know."""

import os
from dataclasses import replace

from .. import MiniMindForCausalLM
from ..errors import CheckpointError
from ..tokenizer import Tokenizer
from .options import load_model

NATIVE = "model"  # ``--load_from model`` is MiniMind's checkout: its tokenizer, and torch weights in ``--save_dir``
START = "<|im_start|>"


def add_upstream(parser):
    group = parser.add_argument_group("MiniMind's own (eval_llm.py; - and _ are the same)")
    group.add_argument("--load-from", metavar="PATH", help="'model': torch weights in --save-dir; else as --model")
    group.add_argument("--save-dir", metavar="DIR", default="out", help="where the torch weights are [out]")
    group.add_argument("--weight", metavar="NAME", help="DIR/NAME_HIDDEN.pth or NAME_HIDDEN_moe.pth is read [full_sft]")
    group.add_argument("--lora-weight", metavar="NAME", default="None", help="DIR/NAME_HIDDEN.pth is merged")
    group.add_argument("--hidden-size", type=int, metavar="N", default=768, help="a part of these names [768]")
    group.add_argument("--num-hidden-layers", type=int, metavar="N", help="refuse a file with another number")
    group.add_argument("--use-moe", type=int, choices=(0, 1), default=0, help="1 reads the file with experts")
    group.add_argument(
        "--inference-rope-scaling", action="store_true", help="YaRN, 16 times the trained 2,048 positions"
    )
    group.add_argument("--open-thinking", type=int, choices=(0, 1), default=0, help="1 lets the model think first")
    group.add_argument("--historys", type=int, metavar="N", help="remember the last N messages [all that fit]")
    group.add_argument("--show-speed", type=int, choices=(0, 1), default=0, help="1 prints the speed of each answer")
    group.add_argument("--device", choices=("cpu",), help="where NumPy runs")


def is_native(args):
    """Whether torch weights of MiniMind's checkout are meant, not one path."""
    if args.load_from is None:
        return args.weight is not None
    return os.path.basename(os.path.normpath(args.load_from)) == NATIVE


def is_pretrained(args):
    """Weights of this name continue text and have never seen the chat template."""
    return is_native(args) and "pretrain" in (args.weight or "")


def load_chat_model(args):
    """The model that the options mean.

    Raises
    ------
    CheckpointError
        No such file, or another number of layers than ``--num-hidden-layers`` says.
    """
    if is_native(args):
        use_native_paths(args)
    elif args.load_from is not None:
        args.model = args.load_from
    model = load_model(args)
    layers = args.num_hidden_layers
    if layers is not None and layers != model.config.num_hidden_layers:
        raise CheckpointError(
            f"{args.model}: has {model.config.num_hidden_layers} layers, --num-hidden-layers says {layers}"
        )
    if is_native(args) and (args.load_from or model.tokenizer is None):
        model.tokenizer = Tokenizer.from_pretrained(args.load_from or NATIVE)
    return with_yarn(model) if args.inference_rope_scaling else model


def use_native_paths(args):
    """``--save_dir out --weight full_sft --hidden_size 768`` is ``out/full_sft_768.pth``."""
    experts = "_moe" if args.use_moe else ""
    args.model = os.path.join(args.save_dir, f"{args.weight or 'full_sft'}_{args.hidden_size}{experts}.pth")
    if args.lora_weight != "None":
        args.lora = os.path.join(args.save_dir, f"{args.lora_weight}_{args.hidden_size}.pth")


def with_yarn(model):
    """The same weights, with RoPE scaled as MiniMind's ``inference_rope_scaling`` does."""
    config = replace(model.config, inference_rope_scaling=True, rope_scaling=None)
    other = MiniMindForCausalLM(config, model.weights, tokenizer=model.tokenizer)
    other.checkpoint = model.checkpoint
    return other
