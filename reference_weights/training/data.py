"""Documents -> rows of token ids, packed whole: a row's end cuts no document, and none sees its neighbours."""

import hashlib
import json
import time
from pathlib import Path

import numpy as np

from . import corpus

PAD = 0
QUEUE = 16  # documents that wait for a row with room


def encode(tokenizer, parts):
    """(ids, counts) of one document; each part is encoded by itself, as a prompt and its answer are at inference."""
    ids, counts = [], []
    for text, count in parts:
        new = tokenizer.encode(text, add_special_tokens=False).ids
        ids += new
        counts += [count] * len(new)
    return ids, counts


def pack(tokenizer, rows, length, seed, progress=None):
    """``rows`` rows of ``length`` ids -> (ids, document number, counts), each [rows, length].

    A row takes the first document in the queue that still fits, so that few places stay empty; a document longer than
    a row is cut (only refrains are). Document number 0 is padding.
    """
    ids = np.full((rows, length), PAD, np.uint16)
    number = np.zeros((rows, length), np.uint8)
    counts = np.zeros((rows, length), bool)
    source, queue, read, digest = corpus.documents(seed), [], 0, hashlib.sha256()
    for row in range(rows):
        at, n = 0, 0
        while True:
            while len(queue) < QUEUE:
                _, parts = next(source)
                digest.update(corpus.text_of(parts).encode())
                read += 1
                new, new_counts = encode(tokenizer, parts)
                queue.append((new[:length], new_counts[:length]))
            fits = next((i for i, (new, _) in enumerate(queue) if at + len(new) <= length), None)
            if fits is None:
                break
            new, new_counts = queue.pop(fits)
            n += 1
            ids[row, at : at + len(new)] = new
            number[row, at : at + len(new)] = n
            counts[row, at : at + len(new)] = new_counts
            at += len(new)
        if progress and (row + 1) % 10_000 == 0:
            progress(row + 1)
    return (
        ids,
        number,
        counts,
        {
            "documents": read,
            "tokens": int((number > 0).sum()),
            "learnt_tokens": int(counts.sum()),
            "sha256": digest.hexdigest(),
        },
    )


def prepare(folder, tokenizer, rows, length=256, seed=corpus.SEED):
    """Make (or find) the packed corpus in ``folder``: three ``.npy`` files and ``corpus.json``."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    names = [folder / f"{n}.npy" for n in ("ids", "number", "counts")]
    wanted = {"rows": rows, "length": length, "seed": seed}
    note = folder / "corpus.json"
    if note.exists():
        about = json.loads(note.read_text())
        if all(about.get(k) == v for k, v in wanted.items()):
            return [np.load(n, mmap_mode="r") for n in names], about
    started = time.time()
    *arrays, about = pack(
        tokenizer, rows, length, seed, lambda row: print(f"corpus: row {row:,} of {rows:,}", flush=True)
    )
    about.update(wanted, seconds=round(time.time() - started, 1))
    for name, array in zip(names, arrays):
        np.save(name, array)
    note.write_text(json.dumps(about, indent=1) + "\n")
    return arrays, about
