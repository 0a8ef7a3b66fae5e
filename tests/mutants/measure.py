"""How often the oracle names the mistake, by evidence: ``python -m tests.mutants.measure`` writes ``rates.json``."""

import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np

from npminimind.oracle.diagnose_mistakes import beyond, diagnose
from npminimind.oracle.mistakes import MISTAKES

from .cases import CONFIGS, ROUNDS, make_case

RATES = Path(__file__).with_name("rates.json")
EVIDENCE = ("trace", "logits", "generated ids")
MOST = 3  # so many explanations at most, the true one among them, count as naming it


def shown(case, evidence, mistakes):
    """What a port with these mistakes shows."""
    if evidence == "generated ids":
        return case.generated(*mistakes)
    if evidence == "trace":
        return case.dumped(*mistakes)
    reference = case.reference()
    tokens = np.concatenate([reference[f"round_{r}.sample.next_token"] for r in range(ROUNDS)], axis=1)
    arrays = case.dumped(*mistakes, force=tokens)
    return {name: array for name, array in arrays.items() if name.endswith("lm_head")}


def diagnosed(case, evidence, *mistakes):
    candidate = shown(case, evidence, mistakes)
    if evidence == "generated ids":
        return diagnose(
            case.model, candidate, input_ids=case.ids, attention_mask=case.mask, u=case.long_u, **case.long_arguments()
        )
    return diagnose(case.model, candidate, case.reference())


def outcome(case, evidence, mistake):
    """``named``, ``too many``, ``misnamed``, ``not named``, or ``inside the floor``."""
    found = diagnosed(case, evidence, mistake.id)
    if found.correct:
        planted = mistake.plant(found.shown.model)
        hidden = not beyond(found.shown.misfit(planted, mistake.blurred))
        return "inside the floor" if hidden else "missed", found
    if mistake.id in found.ids:
        return "named" if len(found.ids) <= MOST else "too many", found
    return "misnamed" if found.ids else "not named", found


def measure(seed=0, everywhere=False):
    """Every mistake by every kind of evidence: in the first model that can have it, or in all that can."""
    counts, details = {evidence: Counter() for evidence in EVIDENCE}, {evidence: {} for evidence in EVIDENCE}
    done = set()
    for name in CONFIGS:
        case = make_case(name, seed)
        mistakes = [m for m in MISTAKES if m.applies(case.config) and (everywhere or m.id not in done)]
        for evidence in EVIDENCE:
            correct = diagnosed(case, evidence)
            counts[evidence]["correct port cleared" if correct.correct else "correct port accused"] += 1
            for mistake in mistakes:
                what, found = outcome(case, evidence, mistake)
                counts[evidence][what] += 1
                if what != "named":
                    taken_for = f", taken for {', '.join(found.ids)}" if found.ids else ""
                    details[evidence].setdefault(what, []).append(f"{name}: {mistake.id}{taken_for}")
                    print(name, evidence, what, mistake.id, found.ids, found.wrong[:3], flush=True)
        done |= {mistake.id for mistake in mistakes}
        print(name, {e: dict(c) for e, c in counts.items()}, flush=True)
    return {
        "seed": seed,
        "models": list(CONFIGS),
        "everywhere": everywhere,
        "evidence": {e: rates(counts[e]) | details[e] for e in EVIDENCE},
    }


def rates(counts):
    visible = sum(counts[what] for what in ("named", "too many", "misnamed", "not named", "missed"))
    return {"mutants": visible + counts["inside the floor"], "counts": dict(counts), "visible": visible,
            "named_of_visible": round(counts["named"] / visible, 4)}  # fmt: skip


if __name__ == "__main__":
    RATES.write_text(json.dumps(measure(everywhere="--everywhere" in sys.argv), indent=1) + "\n", encoding="utf-8")
