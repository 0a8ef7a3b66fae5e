"""The part of the pickle language that torch.save uses for dicts of tensors, interpreted by us.

A pickle is a program for a stack machine; Python's own machine can import and call anything. This
one has no import and no call: the names in ``pickle_names.CALLS`` stand for the few functions there,
those in ``VALUES`` for constants, every other name, and every other instruction, is refused by
name. Its work is bounded by the number of bytes; it builds only dicts, lists, tuples, texts and
numbers, and :class:`Storage`/:class:`Tensor` descriptions without data.

Source: the comments in Python's ``pickletools.py``; ``torch/_utils.py`` for the arguments.
"""

import struct

from .files import quote
from .pickle_names import CALLS, STORAGES, VALUES, Name, Refused, Storage, is_count

LARGEST_PROGRAM = 16 << 20  # bytes
MOST_STEPS = 1_500_000  # instructions: room for some 45,000 tensors
LARGEST_KEY = 1 << 31


MARK = object()


class Machine:
    """The state of one run: program, position, stack, memo."""

    def __init__(self, program):
        self.program, self.at = program, 0
        self.stack, self.memo = [], {}

    def take(self, count):
        """The next bytes of the program."""
        if count > len(self.program) - self.at:
            raise Refused("has a pickle that ends in the middle of an instruction: truncated or damaged")
        self.at += count
        return self.program[self.at - count : self.at]

    def number(self, form):
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))[0]

    def text(self, length):
        try:
            return self.take(length).decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            raise Refused("has a pickle with broken text") from None

    def line(self):
        end = self.program.find(b"\n", self.at, self.at + 400)
        if end < 0:
            raise Refused("has a pickle with a name that does not end")
        return self.text(end + 1 - self.at)[:-1]

    def push(self, value):
        self.stack.append(value)

    def pop(self):
        if not self.stack or self.stack[-1] is MARK:
            raise Refused("has a pickle that takes from an empty stack; damaged or hostile")
        return self.stack.pop()

    def top(self, kind):
        if not self.stack or type(self.stack[-1]) is not kind:
            raise Refused(f"has a pickle that fills something else than a {kind.__name__}; damaged or hostile")
        return self.stack[-1]

    def pop_to_mark(self):
        items = []
        while self.stack and self.stack[-1] is not MARK:
            items.append(self.stack.pop())
        if not self.stack:
            raise Refused("has a pickle without the mark it goes back to; damaged or hostile")
        self.stack.pop()
        return items[::-1]


def store(machine, index):
    if not machine.stack or machine.stack[-1] is MARK:
        raise Refused("has a pickle that remembers nothing; damaged or hostile")
    machine.memo[index] = machine.stack[-1]


def recall(machine, index):
    if index not in machine.memo:
        raise Refused("has a pickle that recalls what it never stored; damaged or hostile")
    machine.push(machine.memo[index])


def set_items(machine, items):
    target = machine.top(dict)
    if len(items) % 2:
        raise Refused("has a pickle with a key without value; damaged or hostile")
    for key, value in zip(items[::2], items[1::2]):
        # Texts and small numbers only: their hashes cannot be made to collide.
        if type(key) is not str and not (type(key) is int and 0 <= key < LARGEST_KEY):
            raise Refused(f"has a dict with {quote(key)} as a key; known are texts and small numbers")
        target[key] = value


def pop_tuple(machine, count):
    return tuple([machine.pop() for _ in range(count)][::-1])


def push_name(machine, module, name):
    full = f"{module}.{name}"
    if full not in CALLS and full not in VALUES:
        raise Refused(
            f"asks for {quote(full)}, which has no place among tensors: refused, and nothing of it was run. "
            "If you trust the file, re-save it with torch.save(model.state_dict(), ...)"
        )
    machine.push(Name(full))


def stack_name(machine):
    name, module = machine.pop(), machine.pop()
    if type(module) is not str or type(name) is not str:
        raise Refused("has a pickle that asks for a name that is no text; damaged or hostile")
    push_name(machine, module, name)


def call(machine):
    arguments, function = machine.pop(), machine.pop()
    if type(function) is not Name or function.name not in CALLS or type(arguments) is not tuple:
        raise Refused("has a pickle that calls what is no function; damaged or hostile")
    machine.push(CALLS[function.name](*arguments))


def build(machine):
    """The state of an OrderedDict (torch's ``_metadata``): dropped."""
    machine.pop()
    machine.top(dict)


def persistent(machine):
    """``("storage", type, key, location, count)``: torch's way to say "the entry data/key"."""
    pid = machine.pop()
    ok = type(pid) is tuple and len(pid) == 5 and pid[0] == "storage" and type(pid[1]) is Name
    if not ok or pid[1].name not in VALUES or type(pid[2]) is not str or not is_count(pid[4]):
        raise Refused("has a pickle with a persistent id that is no storage; damaged or hostile")
    last = pid[1].name.rpartition(".")[2]
    if last not in STORAGES and last != "UntypedStorage":
        raise Refused("has a pickle with a storage of no known type; damaged or hostile")
    machine.push(Storage(pid[2], STORAGES.get(last), pid[4]))


def protocol(machine):
    if machine.number("B") > 5:
        raise Refused("has a pickle of an unknown protocol")


# Instruction byte -> what it does. The names in the comments are pickletools'.
INSTRUCTIONS = {
    b"\x80": protocol,  # PROTO
    b"\x95": lambda m: m.take(8),  # FRAME
    b"(": lambda m: m.push(MARK),
    b"N": lambda m: m.push(None),
    b"\x88": lambda m: m.push(True),
    b"\x89": lambda m: m.push(False),
    b"K": lambda m: m.push(m.number("B")),  # BININT1
    b"M": lambda m: m.push(m.number("H")),  # BININT2
    b"J": lambda m: m.push(m.number("i")),  # BININT
    b"\x8a": lambda m: m.push(int.from_bytes(m.take(m.number("B")), "little", signed=True)),  # LONG1
    b"G": lambda m: m.push(struct.unpack(">d", m.take(8))[0]),  # BINFLOAT
    b"X": lambda m: m.push(m.text(m.number("I"))),  # BINUNICODE
    b"\x8c": lambda m: m.push(m.text(m.number("B"))),  # SHORT_BINUNICODE
    b"U": lambda m: m.push(m.text(m.number("B"))),  # SHORT_BINSTRING (Python 2)
    b"}": lambda m: m.push({}),
    b"]": lambda m: m.push([]),
    b")": lambda m: m.push(()),
    b"\x85": lambda m: m.push(pop_tuple(m, 1)),
    b"\x86": lambda m: m.push(pop_tuple(m, 2)),
    b"\x87": lambda m: m.push(pop_tuple(m, 3)),
    b"t": lambda m: m.push(tuple(m.pop_to_mark())),
    b"s": lambda m: set_items(m, pop_tuple(m, 2)),  # SETITEM
    b"u": lambda m: set_items(m, m.pop_to_mark()),
    b"a": lambda m: append(m, pop_tuple(m, 1)),  # APPEND
    b"e": lambda m: append(m, m.pop_to_mark()),
    b"q": lambda m: store(m, m.number("B")),  # BINPUT
    b"r": lambda m: store(m, m.number("I")),  # LONG_BINPUT
    b"\x94": lambda m: store(m, len(m.memo)),  # MEMOIZE
    b"h": lambda m: recall(m, m.number("B")),  # BINGET
    b"j": lambda m: recall(m, m.number("I")),  # LONG_BINGET
    b"c": lambda m: push_name(m, m.line(), m.line()),  # GLOBAL
    b"\x93": stack_name,  # STACK_GLOBAL
    b"R": call,  # REDUCE
    b"b": build,
    b"Q": persistent,  # BINPERSID
}
KNOWN_BUT_REFUSED = {
    b"i": "INST",
    b"o": "OBJ",
    b"\x81": "NEWOBJ",
    b"\x92": "NEWOBJ_EX",
    b"P": "PERSID",
    b"\x82": "EXT1",
    b"\x83": "EXT2",
    b"\x84": "EXT4",
    b"\x8b": "LONG4",
    b"\x8f": "EMPTY_SET",
    b"B": "BINBYTES",
    b"C": "SHORT_BINBYTES",
    b"I": "INT",
    b"L": "LONG",
    b"V": "UNICODE",
    b"\x8d": "BINUNICODE8",
    b"\x8e": "BINBYTES8",
    b"\x96": "BYTEARRAY8",
    b"d": "DICT",
    b"0": "POP",
    b"2": "DUP",
}


def append(machine, items):
    machine.top(list).extend(items)


def run(program):
    """Interpret a pickle; the value it leaves, made of dicts, lists, tuples, texts, numbers, Tensors.

    Raises
    ------
    Refused
        The program does something that torch.save's pickles of tensors do not.
    """
    if len(program) > LARGEST_PROGRAM:
        raise Refused(f"has a pickle of {len(program):,} bytes, more than {LARGEST_PROGRAM:,}")
    machine = Machine(program)
    for _ in range(MOST_STEPS):
        byte = machine.take(1)
        if byte == b".":
            result = machine.pop()
            if machine.stack:
                raise Refused("has a pickle that ends too early; damaged or hostile")
            return result
        if byte not in INSTRUCTIONS:
            name = KNOWN_BUT_REFUSED.get(byte, "unknown")
            raise Refused(f"has a pickle with the instruction {byte!r} ({name}), which tensors do not need: refused")
        INSTRUCTIONS[byte](machine)
    raise Refused(f"has a pickle of more than {MOST_STEPS:,} instructions")
