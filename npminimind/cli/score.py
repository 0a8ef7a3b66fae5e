"""``npminimind score``: how likely a model finds a text."""

import json

import numpy as np

from .options import add_model, load_model, prompt_of, text_argument
from .table import left, percent, token_text

HELP = "log-probability of each token of a text, and perplexity"
EXAMPLES = """\
examples:
  npminimind score "Once upon a time there was a cat."
  npminimind score --json < text.txt
"""


def add_arguments(parser):
    parser.add_argument("prompt", nargs="?", metavar="TEXT", type=text_argument, help="else what is piped in")
    parser.add_argument("--json", action="store_true", help="as JSON")
    add_model(parser)


def run(args):
    text = prompt_of(args)
    model = load_model(args)
    tokenizer = model.need_tokenizer()
    ids = tokenizer.batch([text])[0]
    logprobs = [None, *model.logprobs(ids)[0].astype(float).tolist()]  # nothing stands before the first
    total = float(np.sum(logprobs[1:]))
    result = {
        "tokens": [
            {
                "id": int(i),
                "text": tokenizer.decode([i], skip_special_tokens=False),
                "logprob": logprob,
                "prob": prob(logprob),
            }
            for i, logprob in zip(ids[0], logprobs)
        ],
        "logprob": total,
        "perplexity": float(np.exp(-total / len(logprobs[1:]))),
    }
    print(json.dumps(result, ensure_ascii=False) if args.json else table(result, tokenizer))
    return 0


def prob(logprob):
    return None if logprob is None else float(np.exp(logprob))


def table(result, tokenizer):
    lines = [f"{'id':>6s} {left('token', 20)}{'log p':>10s}{'p':>9s}"]
    for token in result["tokens"]:
        log_p, p = ("–", "–") if token["logprob"] is None else (f"{token['logprob']:.4f}", percent(token["prob"]))
        lines.append(f"{token['id']:6d} {left(token_text(tokenizer, token['id']), 20)}{log_p:>10s}{p:>9s}")
    scored = len(result["tokens"]) - 1
    end = f"log p of the text {result['logprob']:.4f}, per token {result['logprob'] / scored:.4f}"
    return "\n".join([*lines, f"{end}, perplexity {result['perplexity']:.3f}"])
