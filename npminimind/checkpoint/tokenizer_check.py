"""Does the tokenizer belong to the weights? MiniMind2's and MiniMind-3's both have 6400 entries and share nine ids."""

import json
import os

from .infer import MINIMIND_VOCAB

LARGEST = 16 << 20  # bytes; MiniMind's tokenizer.json has 450,000, Qwen3's 11 million; a longer one is not looked at

# A token that only one generation's tokenizer has at this id. Source: upstream's history.
MARKS = {"minimind-3": ("<think>", 25), "minimind2": ("<|im_start|>", 1), "minimind-1": ("<s>", 1)}


def tokenizer_notes(folder, config, generation):
    """What speaks against a tokenizer, as sentences; none where nothing does.

    Parameters
    ----------
    folder : str
        With tokenizer.json. A file that cannot be read is the tokenizer's own reader's business.
    config : MiniMindConfig
    generation : str
        Of the weights.
    """
    ids = read_ids(os.path.join(folder, "tokenizer.json"))
    if not ids:
        return []
    notes, highest = [], max(ids.values())
    if highest >= config.vocab_size:
        notes.append(
            f"Warning: {folder} has a tokenizer with ids up to {highest}, the weights have {config.vocab_size} "
            "rows: it belongs to another model."
        )
    found = next((name for name, (token, at) in MARKS.items() if ids.get(token) == at), None)
    if config.vocab_size == MINIMIND_VOCAB and generation in MARKS and found not in (None, generation):
        notes.append(
            f"Warning: the weights are {generation}'s, the tokenizer in {folder} is {found}'s: "
            "the text will be gibberish. Use the tokenizer that came with the weights."
        )
    return notes


def read_ids(path):
    """Token -> id, as tokenizer.json has them; empty where it has none."""
    try:
        with open(path, "rb") as file:
            raw = json.loads(file.read(LARGEST))
        ids = dict(raw["model"]["vocab"]) | {token["content"]: token["id"] for token in raw["added_tokens"]}
        return {token: at for token, at in ids.items() if type(at) is int}
    except (OSError, ValueError, KeyError, TypeError, RecursionError, MemoryError):
        return {}
