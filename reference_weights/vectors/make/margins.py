"""How close each decision was: what an error must exceed to change the answer."""

import numpy as np

from npminimind.oracle.signatures import reference


def margins(operator, args):
    """Name -> distance, for operators that decide something; empty for the others."""
    return FUNCTIONS.get(operator, lambda args: {})(args)


def gap(sorted_values, i):
    """The least distance between places i − 1 and i of rows that are sorted; None where one of them is missing."""
    if not 0 < i < sorted_values.shape[-1]:
        return None
    with np.errstate(invalid="ignore"):
        apart = sorted_values[..., i - 1] - sorted_values[..., i]
    apart = apart[np.isfinite(apart)]
    return float(apart.min()) if apart.size else None


def descending(values):
    return -np.sort(-np.asarray(values, np.float64), axis=-1)


def known(**distances):
    return {name: value for name, value in distances.items() if value is not None}


def greedy(args):
    return known(greatest=gap(descending(args["logits"]), 1))


def top_k(args):
    return known(kth=gap(descending(args["logits"]), args["k"] or 0))


def top_p(args):
    """Distance of the running sum to p, and between the logits on both sides of the edge."""
    if args["p"] is None or args["p"] >= 1:
        return {}
    steps = reference("top_p_mask", args)
    kept = int((~steps["shifted"]).sum(axis=-1).min())
    return known(p=float(np.abs(steps["cumulative"] - args["p"]).min()), edge=gap(steps["sorted_logits"], kept))


def multinomial(args):
    """Distance of u to the edges of the interval that it falls into."""
    cumulative = np.cumsum(args["probs"], axis=-1)
    edges = np.concatenate([np.zeros_like(cumulative[..., :1]), cumulative], axis=-1) / cumulative[..., -1:]
    chosen = reference("multinomial", args)["out"][..., None]
    below = np.take_along_axis(edges, chosen, axis=-1)[..., 0]
    above = np.take_along_axis(edges, chosen + 1, axis=-1)[..., 0]
    return known(below=float((args["u"] - below).min()), above=float((above - args["u"]).min()))


def moe(args):
    logits = args["x"].reshape(-1, args["x"].shape[-1]) @ args["gate"].T
    return known(router_logits=gap(descending(logits), args["num_experts_per_tok"]))


FUNCTIONS = {
    "greedy": greedy,
    "top_k_threshold": top_k,
    "apply_top_k": top_k,
    "top_p_mask": top_p,
    "apply_top_p": top_p,
    "multinomial": multinomial,
    "moe": moe,
}
