"""Which combinations are kept for the evaluation.

A combination is held out if a checksum of its words says so: no list to store, the same answer in every run, and
the corpus, the evaluation and the test all ask this one function.
"""

import zlib


def held_out(kind, lang, *words, one_in=8):
    """True if this combination must not occur in the training text.

    >>> held_out("copy", "en", "fox", "lamp"), held_out("copy", "en", "fox", "kite")
    (False, True)
    """
    return zlib.crc32("|".join((kind, lang) + tuple(map(str, words))).encode()) % one_in == 0
