"""Stop words: strings or id sequences that end a row, found also where they straddle tokens."""

import numbers

import numpy as np


class Stops:
    """Watches each row of a generation for a completed stop.

    Parameters
    ----------
    stop : str, id sequence, list of these, or None
    tokenizer : Tokenizer or None
        Needed for strings.
    batch : int
    """

    def __init__(self, stop, tokenizer, batch):
        self.strings, self.sequences = parse_stop(stop, tokenizer)
        watched = batch if self.strings or self.sequences else 0
        self.rows = [StopText(tokenizer, self.strings, self.sequences) for _ in range(watched)]

    def completed(self, next_ids, finished):
        """Which rows complete a stop with these new ids ``[B]``; rows that have finished are not read."""
        done = np.zeros(len(next_ids), bool)
        for row, (text, token) in enumerate(zip(self.rows, next_ids)):
            if not finished[row]:
                text.put(int(token))
                done[row] = text.stopped
        return done


class StopText:
    """Turns the ids of one row into text, up to a stop. What may become part of a stop is held back.

    Parameters
    ----------
    tokenizer : Tokenizer or None
        Without one only ids are watched.
    strings : list of str
    sequences : list of tuple of int
    """

    def __init__(self, tokenizer, strings=(), sequences=()):
        self.strings, self.sequences = strings, sequences
        self.detokenizer = tokenizer.stream() if tokenizer else None
        self.ids, self.text, self.stopped = (), "", False

    def put(self, token_id):
        """Take one id; the text that is now certain."""
        self.ids += (token_id,)
        for sequence in self.sequences:
            if self.ids[-len(sequence) :] == sequence:
                self.stopped = True
                return self.release(len(self.ids) - len(sequence), last=True)
        return self.release(len(self.ids) - held_back(self.ids, self.sequences))

    def end(self):
        """No more ids come: the text that was held back. Half a character is dropped."""
        return "" if self.stopped else self.release(len(self.ids), last=True)

    def release(self, count, last=False):
        """Decode the first ``count`` held ids; cut at a stop string, hold back what may begin one."""
        ids, self.ids = self.ids[:count], self.ids[count:]
        if self.detokenizer is None:
            return ""
        self.text += "".join(self.detokenizer.put(token_id) for token_id in ids)
        self.text += self.detokenizer.end() if last else ""
        ends = [self.text.find(string) for string in self.strings if string in self.text]
        if ends:
            self.stopped = True
            return self.text[: min(ends)]
        keep = 0 if last else held_back(self.text, self.strings)
        text, self.text = self.text[: len(self.text) - keep], self.text[len(self.text) - keep :]
        return text


def held_back(sequence, stops):
    """How many last elements of ``sequence`` may be the beginning of a stop.

    Examples
    --------
    >>> held_back("the en", ["end", "stop"]), held_back((5, 6), [(6, 7, 8)]), held_back("x", ["end"])
    (2, 1, 0)
    """
    longest = max((len(stop) for stop in stops), default=1) - 1
    for length in range(min(len(sequence), longest), 0, -1):
        if any(sequence[-length:] == stop[:length] for stop in stops):
            return length
    return 0


def parse_stop(stop, tokenizer):
    """One stop or a list of them -> (strings, id sequences)."""
    if stop is None:
        return [], []
    single = isinstance(stop, (str, numbers.Integral))
    if not single and (isinstance(stop, bytes) or not hasattr(stop, "__iter__")):
        raise TypeError(f"stop must be a string, a sequence of ids, or a list of these; not {stop!r}")
    stop = stop if single else list(stop)
    if single or stop and all(isinstance(s, numbers.Integral) for s in stop):
        stop = [stop]
    strings, sequences = [], []
    for one in stop:
        if isinstance(one, str) and one:
            if tokenizer is None:
                raise ValueError("stop strings need a tokenizer, this model has none: give id sequences")
            special = tokenizer.special_id(one)
            strings.append(one) if special is None else sequences.append((special,))
        elif not isinstance(one, (str, bytes, bool)) and len(ids := np.atleast_1d(one)) and ids.dtype.kind in "iu":
            sequences.append(tuple(ids.tolist()))
        else:
            raise ValueError(f"a stop is a string or a sequence of ids, neither empty; not {one!r}")
    return strings, sequences
