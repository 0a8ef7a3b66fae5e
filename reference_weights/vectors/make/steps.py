"""How close each step of a generation was: near-ties are data."""

import numpy as np
from model_truth import longer, model_of

from npminimind.oracle.judging import SLACK

TOP = 5


def steps(operator, args, truth):
    """One entry a round: for each row the greatest logits and their margin, or u and its distance to both edges."""
    if operator == "forced":
        whole = np.concatenate([args["input_ids"], args["force_ids"]], axis=1)
    elif operator == "generate" and "in_calls" not in args and "num_return_sequences" not in args:
        whole = truth["out"]
    else:
        return []
    if "u" in args:
        return draws(args)
    if args.get("repetition_penalty", 1.0) != 1.0:
        return []
    start, mask = args["input_ids"].shape[1], longer(args.get("attention_mask"), whole.shape[1] - 1)
    both = [
        model_of(operator, args, dtype)(whole[:, :-1], mask).logits[:, start - 1 :]
        for dtype in (np.float64, np.float32)
    ]
    floor = float(np.abs(both[0] - both[1]).max()) if both[0].size else 0.0
    return [[ranked(row, floor) for row in both[0][:, r]] for r in range(whole.shape[1] - start)]


def ranked(logits, floor):
    order = np.argsort(-logits, kind="stable")[:TOP]
    top = logits[order]
    near = order[top[0] - top <= 2 * SLACK * floor].tolist()
    entry = {"ids": order.tolist(), "logits": top.tolist(), "margin": float(top[0] - top[1])}
    return entry | ({"acceptable_ids": near} if len(near) > 1 else {})


def draws(args):
    """For each step and row u, and how far it lies from both ends of the interval of the id that was drawn."""
    arguments = {key: value for key, value in args.items() if key not in ("model", "config", "u")}
    return [
        [interval(probs, u) for probs, u in zip(step.probs, step.u.tolist())]
        for step in model_of("generate", args).steps(**arguments, rng=args["u"])
    ]


def interval(probs, u):
    edges = np.concatenate([[0.0], np.cumsum(probs)]) / probs.sum()
    drawn = np.flatnonzero(edges[1:] > u)[0]
    return {"u": u, "below": float(u - edges[drawn]), "above": float(edges[drawn + 1] - u)}
