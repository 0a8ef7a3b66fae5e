"""``npminimind info``: what is in a checkpoint, without running it."""

import json
import math
import os

from ..checkpoint import find_nonfinite, inspect
from ..checkpoint.safetensors import LazyTensors
from ..params import param_shapes
from ..tokenizer import Tokenizer
from .options import BOX, model_path
from .table import amount_of_bytes, left, percent

HELP = "what is in a checkpoint: config, parameters, cache, tokenizer, and why it was recognised"
EXAMPLES = """\
examples:
  npminimind info                       the model in the box
  npminimind info out/full_sft_768.pth
  npminimind info MiniMind3 --json
"""
LENGTHS = (1, 100, 1024, 8192, 32768)
# Which part of the model a parameter belongs to: the first piece of its name that fits.
PARTS = (
    ("embed_tokens", "token embedding"),
    ("lm_head", "head"),
    ("q_norm", "q/k norm"),
    ("k_norm", "q/k norm"),
    ("norm", "norms"),
    ("self_attn", "attention"),
    ("mlp.gate.weight", "router"),
    ("shared_experts", "shared experts"),
    ("experts", "experts"),
    ("mlp", "feed-forward"),
)


def add_arguments(parser):
    parser.add_argument("path", nargs="?", metavar="PATH", default=BOX[0], help=f"a folder or a file [{BOX[0]}]")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args):
    facts = describe(inspect(model_path(args.path)))
    print(json.dumps(facts, ensure_ascii=False, indent=2) if args.json else page(facts))
    return 0


# ---------------------------------------------------------------------------------------------
# Facts


def describe(checkpoint):
    """All that ``info`` says, as plain values. Reads every number once, to look for those that are none."""
    config, parts = checkpoint.config, parameter_parts(checkpoint.config)
    return {
        "path": checkpoint.path,
        "files": [os.path.basename(file) for file in checkpoint.files],
        "bytes": checkpoint.nbytes,
        "dtypes": checkpoint.dtypes,
        "generation": checkpoint.generation,
        "notes": checkpoint.notes,
        "config": config.to_dict(),
        "generation_config": checkpoint.generation_config,
        "parameters": sum(parts.values()),
        "active_parameters": active_parameters(config, parts),
        "parts": parts,
        "cache_elements": {n: config.cache_elements(n) for n in LENGTHS if n <= config.max_position_embeddings},
        "tokenizer": tokenizer_facts(checkpoint),
        "nonfinite": nonfinite(checkpoint),
    }


def parameter_parts(config):
    """Part of the model -> number of parameters. A tied head has none of its own.

    Examples
    --------
    >>> from npminimind import MiniMindConfig
    >>> parameter_parts(MiniMindConfig())["token embedding"]
    4915200
    """
    parts = {}
    for name, shape in param_shapes(config).items():
        part = next(part for piece, part in PARTS if piece in name)
        parts[part] = parts.get(part, 0) + math.prod(shape)
    return parts


def active_parameters(config, parts):
    """How many parameters one token meets: of the experts, only those that it takes."""
    experts = parts.get("experts", 0)
    return sum(parts.values()) - experts + experts * config.num_experts_per_tok // config.num_experts


def tokenizer_facts(checkpoint):
    if checkpoint.tokenizer_path is None:
        return None
    tokenizer = Tokenizer.from_pretrained(checkpoint.tokenizer_path)
    special = [token.content for token in tokenizer.backend.get_added_tokens_decoder().values()]
    return {
        "path": checkpoint.tokenizer_path,
        "entries": tokenizer.vocab_size,
        "special": special,
        "chat_template": tokenizer.chat_template is not None,
    }


def nonfinite(checkpoint):
    found = find_nonfinite(LazyTensors(checkpoint.tensors))
    return None if found is None else {"name": found.name, "index": list(found.index), "value": str(found.value)}


# ---------------------------------------------------------------------------------------------
# As a page


def page(facts):
    sections = (heading, recognised, architecture, parameters, cache, tokenizer, numbers)
    return "\n\n".join("\n".join(section(facts)) for section in sections)


def heading(facts):
    files = ", ".join(facts["files"][:3]) + (" …" if len(facts["files"]) > 3 else "")
    yield facts["path"]
    yield f"  {files}: {amount_of_bytes(facts['bytes'])}, {'+'.join(facts['dtypes'])}"


def recognised(facts):
    yield f"generation: {facts['generation']}"
    for note in facts["notes"]:
        yield f"  {note}"


def architecture(facts):
    yield "config"
    for name, value in facts["config"].items():
        yield f"  {name:26s}{value}"


def parameters(facts):
    total, active = facts["parameters"], facts["active_parameters"]
    yield f"parameters: {total:,}" + (f", of which a token meets {active:,}" if active != total else "")
    for part, count in facts["parts"].items():
        yield f"  {left(part, 18)}{count:>14,}  {percent(count / total)}  {amount_of_bytes(4 * count):>10s} in float32"
    if facts["config"]["tie_word_embeddings"]:
        yield "  the head is the token embedding (tied)"


def cache(facts):
    c = facts["config"]
    yield "KV cache of one row, by length: 2 · layers · length · kv heads · head_dim"
    for length, count in facts["cache_elements"].items():
        product = f"2 · {c['num_hidden_layers']} · {length} · {c['num_key_value_heads']} · {c['head_dim']}"
        sizes = f"{amount_of_bytes(4 * count)} in float32, {amount_of_bytes(2 * count)} in 16 bits"
        yield f"  {length:>6,d}  {product:26s} = {count:>12,} numbers, {sizes}"


def tokenizer(facts):
    found = facts["tokenizer"]
    if found is None:
        yield "tokenizer: none beside the weights; ids only"
        return
    template = "with a chat template" if found["chat_template"] else "no chat template of its own: ChatML"
    yield f"tokenizer: {found['entries']:,} entries, {len(found['special'])} special, {template}"
    yield f"  {found['path']}"
    size = facts["config"]["vocab_size"]
    if found["entries"] > size:
        yield f"  NOT ITS TOKENIZER: the model has only {size:,} ids"


def numbers(facts):
    bad = facts["nonfinite"]
    if bad is None:
        yield "all numbers are finite"
    else:
        yield f"NOT FINITE: {bad['name']} has {bad['value']} at {bad['index']}; generate will refuse"
