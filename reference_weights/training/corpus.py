"""The training text: documents of four sorts, drawn with a seed.

A document is a list of ``(text, counts)``: only parts that count are learnt (as in MiniMind's SFT the user's words are
given, not learnt). Everything ends with ``<|im_end|>``.

    python -m training.corpus --documents 8       # print some
"""

import argparse
import hashlib
import random

from . import lexicon as lex
from . import questions, stories
from .grammar import pick, weighted

START, END = "<|im_start|>", "<|im_end|>"
SEED = 20260

SYSTEMS = {
    "en": ["You are a helpful assistant.", "You are MiniMind, a small friendly model.", "Answer in English."],
    "zh": ["你是一个有用的助手。", "你是 MiniMind，一个友好的小模型。", "请用中文回答。"],
}


def turn_parts(user, assistant, thought=""):
    """One turn as the chat template writes it; the empty think block belongs to the prompt, a full one is learnt."""
    head = f"{START}user\n{user}{END}\n{START}assistant\n<think>\n"
    if thought:
        return [(head, False), (f"{thought}\n</think>\n\n{assistant}{END}", True), ("\n", False)]
    return [(head + "\n</think>\n\n", False), (f"{assistant}{END}", True), ("\n", False)]


def chat_document(rng, lang):
    """One to three questions with the chat template; about one answer in seven thinks first."""
    parts = []
    if rng.random() < 0.08:
        parts.append((f"{START}system\n{pick(rng, SYSTEMS[lang])}{END}\n", False))
    count = 1 if rng.random() < 0.72 else 2 + int(rng.random() * 2)
    for _ in range(count):
        # Long answers stand alone, so that a document fits into one row.
        kind = None if count == 1 else pick(rng, [k for k in questions.KINDS if k not in questions.ALONE])
        question = questions.draw(rng, lang, kind)
        for user, assistant in question.before:
            parts += turn_parts(user, assistant)
        parts += turn_parts(
            questions.casual(rng, question.ask), question.written, question.thought if rng.random() < 0.15 else ""
        )
    return parts[:-1]


def story_document(rng, lang):
    slots, plot = stories.draw(rng, lang)
    return [("".join(stories.tell(rng, lang, slots, plot)) + END, True)]


def refrain_document(rng, lang):
    return [(questions.refrain(rng, lang)[1] + END, True)]


def recital_document(rng, lang):
    """Text with one right continuation: numbers, weekdays, small facts."""
    sort = pick(rng, ["numbers", "days", "colours", "sounds"])
    en = lang == "en"
    if sort == "numbers":
        start = int(rng.random() * 9)
        text = (", " if en else "、").join(map(str, range(start, start + 8 + int(rng.random() * 4))))
    elif sort == "days":
        start = int(rng.random() * 7)
        text = (", " if en else "、").join(lex.WEEKDAYS[lang][(start + i) % 7] for i in range(7))
    elif sort == "colours":
        facts = [pick(rng, lex.COLOUR_OF[lang]) for _ in range(4)]
        text = (". " if en else "，").join(
            (t[0].upper() + t[1:] + " is " + c) if en else f"{t}是{c}的" for t, c in facts
        )
    else:
        facts = [pick(rng, lex.SOUNDS[lang]) for _ in range(4)]
        text = (". " if en else "，").join(f"The {w} says {s}" if en else f"{w}{s}叫" for w, s in facts)
    return [(text + ("." if en else "。") + END, True)]


SORTS = {chat_document: 0.70, story_document: 0.24, refrain_document: 0.03, recital_document: 0.03}


def documents(seed=SEED):
    """Endless documents, English and Chinese in turn."""
    rng = random.Random(seed)
    while True:
        for lang in ("en", "zh"):
            make = weighted(rng, SORTS)
            parts = make(rng, lang)
            if make is not chat_document and rng.random() < 0.25:
                parts.insert(0, (START, False))  # MiniMind's pretraining puts this before raw text
            yield lang, parts


def text_of(parts):
    return "".join(text for text, _ in parts)


def fingerprint(n, seed=SEED):
    """SHA-256 of the first n documents."""
    digest = hashlib.sha256()
    for _, (lang, parts) in zip(range(n), documents(seed)):
        digest.update(repr((lang, parts)).encode())
    return digest.hexdigest()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=8)
    parser.add_argument("--seed", type=int, default=SEED)
    args = parser.parse_args()
    for _, (lang, parts) in zip(range(args.documents), documents(args.seed)):
        print(f"--- {lang}\n{text_of(parts)}")
    print(f"--- sha256 of these documents: {fingerprint(args.documents, args.seed)}")
