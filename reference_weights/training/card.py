# ruff: noqa: E501 - the card's sentences are longer than lines
"""``evaluation.json`` and the training log -> the model card (README.md) and the picture of the loss curve."""

import argparse
import json
from pathlib import Path

TITLES = {
    "copy": "say the words again",
    "first_last": "first or last word of a list",
    "count_things": "count things",
    "count_range": "count from a to b",
    "phrase": "translate a colour and a thing",
    "has": "what does X have?",
    "who_has": "two people, two things: who has it?",
    "which_colour": "two things, two colours: which?",
    "yes_no": "is X red?",
    "my_name": "my name is X. What is my name?",
    "remember": "the name from an earlier turn",
    "dont_know": "“I don't know” for what lies outside",
    "no_name": "asked for a name never told",
    "plus": "sums up to 20",
    "minus": "differences",
    "colour": "colours of things",
    "opposite": "opposites",
    "weekday": "the day before or after",
    "sound": "animal sounds",
    "word": "translate a word",
    "chat": "small talk (one of the known answers)",
}
SORTS = ("held out", "memorised", "open")
LANGS = ("en", "zh")


def percent(x):
    return f"{100 * x:.1f} %"


def score(cell):
    return f"{cell['right']}/{cell['asked']}"


def table(head, rows):
    """A Markdown table as a list of lines."""
    line = lambda cells: "| " + " | ".join(map(str, cells)) + " |"  # noqa: E731
    return [line(head), "|" + "---|" * len(head), *map(line, rows), ""]


def quote(text):
    return "\n".join("> " + line if line else ">" for line in text.split("\n"))


def picture(log, path):
    """The loss curve as a small PNG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(5, 3), dpi=90)
    axes.plot([r["tokens"] / 1e6 for r in log], [r["loss"] for r in log], lw=0.8, label="training, mean of 20 steps")
    checks = [r for r in log if "check_loss" in r]
    axes.plot([r["tokens"] / 1e6 for r in checks], [r["check_loss"] for r in checks], "o-", ms=3, lw=0.8, label="text of another seed")
    axes.set(xlabel="million tokens", ylabel="loss, nats a token", yscale="log")
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Software": None})
    plt.close(figure)


def about(name, config, report, training):
    moe = config["use_moe"]
    kind = "mixture of experts" if moe else "dense model"
    inner = ("experts", f"{config['num_experts']}, top-{config['num_experts_per_tok']}, {config['moe_intermediate_size']} wide") if moe else ("intermediate", config["intermediate_size"])
    return [
        f"# {name}",
        "",
        "*Written by `training/card.py` from `evaluation.json` and the training log; no number was typed by hand.*",
        "",
        f"A {kind} with MiniMind-3's architecture (`{config['architectures'][0]}` in transformers), small enough to travel with the code: "
        f"{report['parameters']:,} parameters, `model.safetensors` of {report['bytes']['model.safetensors']:,} bytes (float16). "
        "It was made to tell little stories, answer small questions and think first where asked, in English and in Chinese.",
        "",
        *table(
            ("", ""),
            [
                ("hidden, layers", f"{config['hidden_size']}, {config['num_hidden_layers']}"),
                ("heads, kv heads, head_dim", f"{config['num_attention_heads']}, {config['num_key_value_heads']}, {config['head_dim']}"),
                inner,
                ("vocabulary", f"{config['vocab_size']}; special tokens at ids 0–35 as in MiniMind-3"),
                ("positions", f"a table of {config['max_position_embeddings']}; trained on rows of {training['length']} tokens, so longer texts are untrained ground"),
                ("training text", f"{training['tokens']:,} tokens, {training['documents']:,} documents, each read once; {training['learnt_tokens']:,} tokens were learnt (the users' words are read, not learnt)"),
                ("training", f"{training['steps']:,} steps of {training['batch']} rows; Muon for the matrices inside the blocks, AdamW for the rest; a token counts 1/√n where n tokens of its document are learnt; the rate goes up to {training['peak']}, stays and falls to 0; torch {training['torch']} on a CPU; seed {training['seed']}"),
            ],
        ),
        "![loss curve](loss.png)",
        "",
    ]


def answers(report):
    total = report["overall"]
    by_sort = sorted(report["questions"].items(), key=lambda item: SORTS.index(item[1]["sort"]))
    return [
        "## Questions",
        "",
        f"Greedy answers, exact match. Of {total['asked']} questions ({', '.join(f'{lang} {n}' for lang, n in total['asked per language'].items())}) "
        f"**{percent(total['right'])}** were answered right; {percent(total['ended'])} of the answers ended with `<|im_end|>`.",
        "",
        *table(("", "English", "Chinese"), [(sort, percent(total[sort]["en"]), percent(total[sort]["zh"])) for sort in ("held out", "memorised")]),
        "*Held out*: no combination asked for occurs in the training text (`training/split.py`; checked by `tests/test_reference_weights.py`). "
        "*Memorised*: the whole table was in the training text. A pair outside it would be unknown: sums above 20 are not calculated.",
        "",
        *table(("kind", "", "English", "Chinese"), [(TITLES[k], v["sort"], score(v["en"]), score(v["zh"])) for k, v in by_sort]),
        "Where a question offers two answers (who has it? which of two colours?), half of them come right by chance.",
        "",
        "With an open think block, the answer behind it:",
        "",
        *table(("kind", "English", "Chinese"), [(TITLES[k], score(v["en"]), score(v["zh"])) for k, v in report["thinking"].items()]),
    ]


def tales(report):
    rows = [
        (f"{lang}, {name}", s["asked"], *(percent(s[key] / s["asked"]) for key in ("ended", "parses", "name", "thing")))
        for lang in LANGS
        for name, s in report["stories"][lang].items()
    ]
    en, zh = (report["refrains"][lang] for lang in LANGS)
    return [
        "## Stories",
        "",
        "An opening gives the first three sentences; a request names a hero and a thing. All are held-out combinations. *Parses*: the whole text is one that "
        "the grammar of the training text could have written, every repeated name, animal and thing in agreement, and no animal meeting its own kind. *Keeps*: the model's own words name the hero, the thing.",
        "",
        *table(("", "asked", "ends", "parses", "keeps the name", "keeps the thing"), rows),
        "## Refrains",
        "",
        "Made to loop: in the training text another round follows 86 times in 100, so the most likely token never leads out. "
        f"How many of {en['prompts']} prompts in each language ended within {en['limit']} tokens:",
        "",
        *table(("decoding", "English", "Chinese"), [(way, en["ended"][way], zh["ended"][way]) for way in en["ended"]]),
    ]


def numbers(report):
    loss, n = report["held-out loss"], report["numerics"]
    spread = lambda q: ", ".join(f"{v:.2g}" for v in q.values())  # noqa: E731
    rows = [
        ("largest logit", f"{n['largest logit']:.1f}"),
        ("float32 against float64: largest difference of a logit", f"{n['float32 - float64, logits']:.1e}"),
        ("the same after the final norm", f"{n['float32 - float64, final norm']:.1e}"),
        ("positions where the most likely token differs", n["argmax differs"]),
        ("top-1 minus top-2 logit: smallest, 1 %, 10 %, median", spread(n["top-1 minus top-2 logit"])),
    ]
    if "tokens of each expert" in n:
        rows += [
            ("router, top-1 minus top-2 probability: smallest, 1 %, 10 %, median", spread(n["router, top-1 minus top-2 probability"])),
            ("tokens of each expert, all layers", ", ".join(f"{100 * v:.0f} %" for v in n["tokens of each expert"])),
        ]
    return [
        "## Held-out loss",
        "",
        "Documents made of held-out combinations only, nats a token.",
        "",
        *table(("", "all", "stories", "answers", "tokens"), [(lang, *(f"{loss[lang][k]:.3f}" for k in ("loss", "stories", "answers")), f"{loss[lang]['tokens']:,}") for lang in LANGS]),
        "## How exact is exact",
        "",
        f"npminimind on {n['positions']:,} positions of held-out documents:",
        "",
        *table(("", ""), rows),
    ]


def sample_page(report):
    out = ["## Samples", "", "Seed 1, nothing selected; top_p 0.85 and top_k 50 where sampled, temperature 0 is greedy. Answers: temperature 0.85.", ""]
    for lang in LANGS:
        for s in report["samples"][lang]["raw"]:
            out += [f"**{s['prompt']}** · temperature {s['temperature']}", "", quote(s["prompt"] + s["text"]), ""]
        for s in report["samples"][lang]["chat"]:
            out += [f"**User: {s['user']}**" + (" · thinking" if s.get("thinking") else ""), "", quote(s["text"]), ""]
    return out


def failures(report):
    flat = lambda text: " ".join(text.split())  # noqa: E731
    wrong = [f"* {TITLES[k]}: “{q}” → “{flat(text)}”" for k, v in report["questions"].items() if v["sort"] != "open" for lang in LANGS for q, text in v[lang]["failures"][:2]]
    wrong += [f"* thinking, {TITLES[k]}: “{q}” → “{flat(text)}”" for k, v in report["thinking"].items() for lang in LANGS for q, text in v[lang]["failures"][:1]]
    wrong += [f"* story ({lang}, {name}): {flat(s['failures'][0])}" for lang in LANGS for name, s in report["stories"][lang].items() if s["failures"]]
    return [
        "## Where it fails",
        "",
        *(wrong or ["No wrong answer among those asked."]),
        "",
        "Outside its world it is helpless: other names, other animals, sums above 20 and questions put another way are often answered wrongly, and with confidence.",
        "",
        "## License",
        "",
        "Weights and training text are this project's own work, under the project's license.",
        "",
    ]


def write(folder, build, model):
    folder, build = Path(folder), Path(build) / model
    report = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    training = json.loads((build / "training.json").read_text(encoding="utf-8"))
    picture([json.loads(line) for line in (build / "log.jsonl").read_text().splitlines()], folder / "loss.png")
    lines = about(folder.resolve().name, config, report, training)
    for section in (answers, tales, numbers, sample_page, failures):
        lines += section(report)
    (folder / "README.md").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--build", default="build")
    parser.add_argument("--model", choices=["dense", "moe"], default="dense")
    args = parser.parse_args()
    write(args.folder, args.build, args.model)
