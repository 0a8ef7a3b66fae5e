"""Measure a model with npminimind itself and write ``evaluation.json``: every number of the card comes from here.

    python -m training.evaluate minimind-tiny

Kinds whose combinations are held out (``split.py``) are asked only what the training text never contained; kinds that a
model of this size learns by heart are listed as memorised.
"""

import argparse
import json
import random
import re
import time
from pathlib import Path

import numpy as np

from . import corpus, data, questions, stories
from .grammar import pick

SEED = 4711
LANGS = ("en", "zh")
EACH = 20  # questions of a kind and language
THINKING = ("plus", "minus", "count_things", "who_has", "which_colour", "yes_no")


def conversation(question):
    messages = []
    for user, assistant in question.before:
        messages += [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]
    return messages + [{"role": "user", "content": question.ask}]


def complete(model, prompts, max_new_tokens=200, batch=32, **arguments):
    """Texts -> list of (continuation, ended): greedy unless told otherwise, prompts batched by npminimind."""
    arguments = {"do_sample": False, **arguments}
    out = []
    for start in range(0, len(prompts), batch):
        ids, mask = model.tokenizer.batch(prompts[start : start + batch])
        result = model.generate(ids, attention_mask=mask, max_new_tokens=max_new_tokens, **arguments)
        for row in result[:, ids.shape[1] :].tolist():
            ended = 2 in row
            row = row[: row.index(2)] if ended else row
            out.append((model.tokenizer.decode(row), ended))
    return out


def different(rng, lang, kind, n):
    """n questions of a kind, held out where the kind holds out, without asking the same thing twice where possible."""
    found, tries = {}, 0
    while len(found) < n and tries < 40 * n:
        question = questions.draw(rng, lang, kind, wanted=kind in questions.COMPOSED)
        found.setdefault(question.ask, question)
        tries += 1
    return list(found.values())


def ask(model, asked, thinking=False):
    """Greedy answers -> list of (right, ended, answer)."""
    prompts = [model.tokenizer.apply_chat_template(conversation(q), thinking=thinking) for q in asked]
    out = []
    for question, (text, ended) in zip(asked, complete(model, prompts, max_new_tokens=100)):
        answer = text.split("</think>")[-1].lstrip("\n") if thinking else text
        out.append((ended and question.is_right(answer), ended, text))
    return out


def measure_questions(model, each=EACH):
    """kind -> per language: asked, right, ended and some failures."""
    rng, report = random.Random(SEED), {}
    kinds = [k for k in questions.KINDS if k not in ("story", "song")]
    for kind in kinds:
        sort = "held out" if kind in questions.COMPOSED else "memorised" if kind in questions.MEMORISED else "open"
        report[kind] = {"sort": sort}
        for lang in LANGS:
            asked = different(rng, lang, kind, each)
            results = ask(model, asked)
            report[kind][lang] = {
                "asked": len(asked),
                "right": sum(r for r, _, _ in results),
                "ended": sum(e for _, e, _ in results),
                "failures": [[q.ask, text] for q, (right, _, text) in zip(asked, results) if not right][:3],
            }
    return report


def measure_thinking(model, each=10):
    """The same kinds with an open think block: is the answer behind it right?"""
    rng, report = random.Random(SEED + 1), {}
    for kind in THINKING:
        report[kind] = {}
        for lang in LANGS:
            asked = different(rng, lang, kind, each)
            results = ask(model, asked, thinking=True)
            thought = sum(0 < text.find("</think>") for _, _, text in results)
            report[kind][lang] = {
                "asked": len(asked),
                "right": sum(r for r, _, _ in results),
                "thought": thought,
                "failures": [[q.ask, text] for q, (right, _, text) in zip(asked, results) if not right][:2],
            }
    return report


def beginning(text, lang, sentences=3):
    """The first sentences of a story."""
    ends = [m.end() for m in re.finditer(r"[.?!]”?(?= )|[。？！]”?", text)]
    return text[: ends[sentences - 1]]


def judge_story(given, told, ended, lang, hero, thing):
    """(ended, parses, name kept, thing kept): the first two of the whole text, the others of what the model told."""
    return ended, stories.read(given + told, lang) is not None, hero in told, thing in told


def measure_stories(model, each=50):
    """Openings and requests with a name-thing or name-place-event that the training text lacks; greedy, sampled."""
    rng, report = random.Random(SEED + 2), {}
    for lang in LANGS:
        openings, asked = [], []
        for _ in range(each):
            slots, plot = stories.draw(rng, lang, wanted=True)
            openings.append((beginning("".join(stories.tell(rng, lang, slots, plot)), lang), slots))
        for _ in range(each):
            # a request names only hero and thing, so those are what has to be new
            while True:
                question = questions.draw(rng, lang, "story", wanted=True)
                if stories.pair_held_out(lang, *question.key[:2]):
                    break
            asked.append(question)
        prompts = [model.tokenizer.apply_chat_template(conversation(q)) for q in asked]
        report[lang] = {}
        for how, arguments in {
            "greedy": {},
            "sampled": {"do_sample": True, "temperature": 0.85, "top_p": 0.85, "top_k": 50, "rng": SEED},
        }.items():
            told = complete(model, [opening for opening, _ in openings], **arguments)
            asked_for = complete(model, prompts, **arguments)
            items = {
                "openings": [(o, *t, s["hero"]["word"], s["obj"]["word"]) for (o, s), t in zip(openings, told)],
                "requests": [("", *t, *q.key[:2]) for q, t in zip(asked, asked_for)],
            }
            for name, stories_told in items.items():
                judged = [judge_story(given, text, ended, lang, *kept) for given, text, ended, *kept in stories_told]
                counts = {key: sum(j[i] for j in judged) for i, key in enumerate(("ended", "parses", "name", "thing"))}
                failures = [given + text for (given, text, *_), j in zip(stories_told, judged) if not all(j)]
                report[lang][f"{name}, {how}"] = {"asked": len(judged), **counts, "failures": failures[:2]}
    return report


def measure_refrains(model, limit=300):
    """Raw refrains after two rounds: does greedy decoding loop, and what ends the loop?"""
    report = {}
    for lang in LANGS:
        comma = ", " if lang == "en" else "，"
        prompts = [line + comma + (line[0].lower() + line[1:]) for _, line, _ in questions.REFRAINS[lang]]
        ways = {
            "greedy": {},
            "greedy, repetition_penalty 1.3": {"repetition_penalty": 1.3},
            "temperature 1, top_p 0.85": {"do_sample": True, "temperature": 1.0, "top_p": 0.85, "rng": SEED},
            "temperature 1, top_p off": {"do_sample": True, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "rng": SEED},
        }
        report[lang] = {
            "prompts": len(prompts),
            "limit": limit,
            "ended": {
                way: sum(e for _, e in complete(model, prompts, max_new_tokens=limit, **a)) for way, a in ways.items()
            },
        }
    return report


def held_out_documents(tokenizer, lang, n=100):
    """Documents made only of held-out combinations: stories and composed questions."""
    rng, out = random.Random(SEED + 3), []
    for i in range(n):
        if i % 2:
            slots, plot = stories.draw(rng, lang, wanted=True)
            parts = [("".join(stories.tell(rng, lang, slots, plot)) + corpus.END, True)]
        else:
            question = questions.draw(rng, lang, pick(rng, list(questions.COMPOSED)), wanted=True)
            parts = []
            for user, assistant in question.before:
                parts += [(text, False) for text, _ in corpus.turn_parts(user, assistant)]
            parts += corpus.turn_parts(question.ask, question.written)
        out.append(data.encode(tokenizer, parts))
    return out


def measure_loss(model):
    """Held-out loss in nats a token (of those that training counts), per language; stories and answers apart, too."""
    report = {}
    for lang in LANGS:
        sums = {"answers": [0.0, 0], "stories": [0.0, 0]}
        for i, (ids, counts) in enumerate(held_out_documents(model.tokenizer.backend, lang)):
            chosen = model.logprobs([ids])[0][np.array(counts[1:])]
            entry = sums["stories" if i % 2 else "answers"]
            entry[0] -= float(chosen.sum())
            entry[1] += chosen.size
        total = [sum(s[i] for s in sums.values()) for i in (0, 1)]
        report[lang] = {"loss": total[0] / total[1], "tokens": total[1], **{k: s / n for k, (s, n) in sums.items()}}
    return report


def quantiles(x):
    x = np.asarray(x, np.float64)
    return {
        "smallest": float(x.min()),
        "1 %": float(np.quantile(x, 0.01)),
        "10 %": float(np.quantile(x, 0.1)),
        "median": float(np.median(x)),
    }


def measure_numerics(model, n=24):
    """float32 against float64 on held-out documents, top-1/top-2 margins of the logits, and the router's margins."""
    wide = model.astype(np.float64)
    differences, hidden, margins, largest, flips, positions = 0.0, 0.0, [], 0.0, 0, 0
    router, load = [], np.zeros(model.config.num_experts if model.config.use_moe else 0)

    def tap(name, array):
        if name.endswith("router_probs"):
            top = np.sort(array, -1)
            router.append(top[:, -1] - top[:, -2])
            load[:] += np.bincount(array.argmax(-1), minlength=array.shape[-1])
        return array

    for lang in LANGS:
        for ids, _ in held_out_documents(model.tokenizer.backend, lang, n):
            a = model([ids])
            b = wide([ids], tap=tap if model.config.use_moe else None)
            differences = max(differences, float(np.abs(a.logits - b.logits).max()))
            hidden = max(hidden, float(np.abs(a.hidden_states - b.hidden_states).max()))
            largest = max(largest, float(np.abs(b.logits).max()))
            flips += int((a.logits.argmax(-1) != b.logits.argmax(-1)).sum())
            top = np.sort(b.logits[0], -1)
            margins += (top[:, -1] - top[:, -2]).tolist()
            positions += len(ids)
    report = {
        "positions": positions,
        "largest logit": largest,
        "float32 - float64, logits": differences,
        "float32 - float64, final norm": hidden,
        "argmax differs": flips,
        "top-1 minus top-2 logit": quantiles(margins),
    }
    if router:
        report["router, top-1 minus top-2 probability"] = quantiles(np.concatenate(router))
        report["tokens of each expert"] = (load / load.sum()).round(4).tolist()
    return report


PROMPTS = {
    "en": ["Once upon a time", "Once upon a time there was a shy hedgehog called"],
    "zh": ["从前", "从前，森林里住着一只"],
}
CHATS = {
    "en": [
        "Who are you?",
        "Tell me a story about Oscar and a lamp.",
        "The hat is green and the boat is pink. What colour is the boat?",
        "What is 7 + 8?",
        "How do you say “a blue key” in Chinese?",
        "What is the capital of France?",
        "Tell me a joke.",
        "Say after me: moon soup fox",
    ],
    "zh": [
        "你是谁？",
        "讲一个朵朵和茶壶的故事。",
        "帽子是绿色的，小船是粉色的。小船是什么颜色？",
        "7加8等于几？",
        "“一把蓝色的钥匙”用英语怎么说？",
        "法国的首都是哪里？",
        "讲个笑话吧。",
        "跟我说：月亮、汤、狐狸",
    ],
}


def samples(model):
    """What the card shows: raw prompts at three temperatures, chat answers at the defaults; seed 1, not selected."""
    out = {}
    for lang in LANGS:
        raw = [
            {
                "prompt": prompt,
                "temperature": t,
                "text": complete(model, [prompt], do_sample=t > 0, temperature=t or 1.0, rng=1 if t else None)[0][0],
            }
            for prompt in PROMPTS[lang]
            for t in (0, 0.85, 1.3)
        ]
        prompts = [model.tokenizer.apply_chat_template([{"role": "user", "content": q}]) for q in CHATS[lang]]
        chat = [
            {"user": q, "text": complete(model, [p], do_sample=True, rng=1)[0][0]} for q, p in zip(CHATS[lang], prompts)
        ]
        q = CHATS[lang][3]
        thought = complete(
            model,
            [model.tokenizer.apply_chat_template([{"role": "user", "content": q}], thinking=True)],
            do_sample=True,
            rng=1,
        )[0][0]
        out[lang] = {"raw": raw, "chat": chat + [{"user": q, "thinking": True, "text": thought}]}
    return out


def overall(report):
    """Shares over all questions: every kind counts as often as it was asked; open chat is not scored."""
    scored = [v[lang] for v in report["questions"].values() if v["sort"] != "open" for lang in LANGS]
    asked = sum(s["asked"] for s in scored)
    everything = [v[lang] for v in report["questions"].values() for lang in LANGS]
    by = {
        sort: {
            lang: sum(v[lang]["right"] for v in report["questions"].values() if v["sort"] == sort)
            / sum(v[lang]["asked"] for v in report["questions"].values() if v["sort"] == sort)
            for lang in LANGS
        }
        for sort in ("held out", "memorised")
    }
    return {
        "asked": asked,
        "right": sum(s["right"] for s in scored) / asked,
        "ended": sum(s["ended"] for s in everything) / sum(s["asked"] for s in everything),
        "asked per language": {
            lang: sum(v[lang]["asked"] for v in report["questions"].values() if v["sort"] != "open") for lang in LANGS
        },
        **by,
    }


def evaluate(folder):
    from npminimind import MiniMindForCausalLM

    started, folder = time.time(), Path(folder)
    model = MiniMindForCausalLM.from_pretrained(folder)
    report = {
        "questions": measure_questions(model),
        "thinking": measure_thinking(model),
        "stories": measure_stories(model),
        "refrains": measure_refrains(model),
        "held-out loss": measure_loss(model),
        "numerics": measure_numerics(model),
        "samples": samples(model),
    }
    report["overall"] = overall(report)
    report["parameters"] = int(sum(p.size for p in model.params.values()))
    report["bytes"] = {
        p.name: p.stat().st_size
        for p in sorted(folder.glob("*"))
        if p.suffix in (".json", ".safetensors") and p.name != "evaluation.json"
    }
    print(f"evaluated in {time.time() - started:.0f} s")
    return report


def write(folder, out=None):
    report = evaluate(folder)
    out = Path(out) if out else Path(folder) / "evaluation.json"
    out.write_text(json.dumps(report, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return report


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--out", help="default: evaluation.json in the folder")
    args = parser.parse_args()
    print(json.dumps(write(args.folder, args.out)["overall"], indent=1))
