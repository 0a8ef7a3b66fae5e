"""A corpus of malicious ``.pth`` and ``.safetensors`` files, and the program that reads them in its own process.

``python hostile.py FOLDER`` reads each file there with limited memory, and prints a JSON line
each time: name, kind and text of the exception, MB of memory needed so far.
"""

import json
import os
import pickle
import struct
import sys

PROTO, STOP = b"\x80\x02", b"."
TENSOR = b"ctorch._utils\n_rebuild_tensor_v2\n"
ORDERED = b"ccollections\nOrderedDict\n"


def text(value):
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def integer(value):
    size = max(1, (value.bit_length() + 8) // 8)
    return b"\x8a" + bytes([size]) + value.to_bytes(size, "little", signed=True)


def storage(kind="FloatStorage", key="0", count=4, module="torch"):
    return b"(" + text("storage") + f"c{module}\n{kind}\n".encode() + text(key) + text("cpu") + integer(count) + b"tQ"


def sizes(values):
    return b"(" + b"".join(map(integer, values)) + b"t"


def tensor(offset=0, shape=(4,), stride=(1,), of=None):
    return (
        TENSOR + b"(" + (of or storage()) + integer(offset) + sizes(shape) + sizes(stride) + b"\x89" + ORDERED + b")RtR"
    )


def state_dict(value, name="model.norm.weight"):
    return PROTO + b"}(" + text(name) + value + b"u" + STOP


class Reduce:
    """Pickles to a call of any function."""

    def __init__(self, function, *arguments):
        self.value = (function, arguments)

    def __reduce__(self):
        return self.value


def programs(marker):
    """Name -> pickle. Those that could run code would leave the file ``marker`` behind."""
    command = f"touch {marker}"
    python = f"open({marker!r}, 'w').close()"
    system = b"cos\nsystem\n" + b"(" + text(command) + b"t"
    yield "reduce to os.system", pickle.dumps({"a": Reduce(os.system, command)}, 2)
    yield "reduce to eval", pickle.dumps({"a": Reduce(eval, python)}, 2)
    yield "reduce to exec, protocol 5", pickle.dumps({"a": Reduce(exec, python)}, 5)
    yield "stack global", pickle.dumps([Reduce(os.system, command)], 4)
    yield "nested in a list of dicts", pickle.dumps({"a": [{"b": (Reduce(os.system, command),)}]}, 2)
    yield "protocol 0", pickle.dumps({"a": Reduce(os.system, command)}, 0)
    yield "called before the end is bad", PROTO + system + b"R" + b"\xff"
    yield "posix by its own name", PROTO + b"cposix\nsystem\n(" + text(command) + b"tR."
    yield "builtins through getattr", PROTO + b"c__builtin__\ngetattr\n(" + text("x") + b"tR."
    yield "dotted name", PROTO + b"\x8c\x05torch\x8c\x13serialization.os.sy\x93."
    yield "name with dots of an allowed module", PROTO + b"ctorch._utils\n_rebuild_tensor_v2.__globals__\n."
    yield "attribute of an allowed class", PROTO + b"ccollections\nOrderedDict.__init__\n)R."
    yield "name with newline tricks", PROTO + b"\x8c\x05torch\x8c\x0eSize\nos.system\n\x93)R."
    yield "name that is a number", PROTO + b"K\x01K\x02\x93."
    yield "torch.load itself", PROTO + b"ctorch\nload\n(" + text(marker) + b"tR."
    yield "INST", PROTO + b"(" + text(command) + b"ios\nsystem\n."
    yield "OBJ", PROTO + b"(cos\nsystem\n" + text(command) + b"o."
    yield "NEWOBJ", PROTO + b"cos\nsystem\n(" + text(command) + b"t\x81."
    yield "NEWOBJ of an allowed class", PROTO + ORDERED + b")\x81."
    yield "BUILD with a state that is code", PROTO + ORDERED + b")R}(" + text("__reduce__") + system + b"Rub."
    yield "BUILD on a function", PROTO + TENSOR + b"}b."
    yield "BUILD on a list", PROTO + b"]}b."
    yield "extension registry", PROTO + b"\x82\x01."
    yield "persistent id is a call", PROTO + b"}(" + text("a") + system + b"RQu."
    yield "persistent id is a text", state_dict(text(command) + b"Q")
    yield "persistent id as text", PROTO + b"Pos.system\n."
    yield "persistent id of a module", state_dict(b"(" + text("module") + text("x") + text("y") + text(command) + b"tQ")
    yield "persistent id too short", state_dict(b"(" + text("storage") + b"tQ")
    yield (
        "persistent id with a function as type",
        state_dict(b"(" + text("storage") + TENSOR + text("0") + text("cpu") + integer(4) + b"tQ"),
    )
    yield "storage key is a path", state_dict(tensor(of=storage(key="../../../../etc/passwd")))
    yield "storage key is a number", state_dict(tensor(of=storage().replace(text("0"), integer(0))))
    yield "storage of a hidden type", state_dict(tensor(of=storage("QInt8Storage")))
    yield "storage is a dtype", state_dict(tensor(of=storage("float32")))
    yield "calls a text", PROTO + text("os.system") + b")R."
    yield "calls a storage type", PROTO + b"ctorch\nFloatStorage\n)R."
    yield "calls with a list", PROTO + ORDERED + b"]R."
    yield "OrderedDict of an argument", PROTO + ORDERED + b"(" + text("x") + b"tR."
    yield "Size of texts", PROTO + b"ctorch\nSize\n((" + text("x") + b"ttR."
    # _rebuild_tensor with wrong sizes
    yield "shape beyond the storage", state_dict(tensor(shape=(5,)))
    yield "offset beyond the storage", state_dict(tensor(offset=1))
    yield "negative offset", state_dict(tensor(offset=-1, shape=(1,)))
    yield "offset of 2^62", state_dict(tensor(offset=1 << 62, shape=(0,)))
    yield "negative stride", state_dict(tensor(shape=(2,), stride=(-1,)))
    yield "stride beyond the storage", state_dict(tensor(shape=(2,), stride=(4,)))
    yield "stride of 2^61", state_dict(tensor(shape=(2,), stride=(1 << 61,)))
    yield "stride 0 blows one number up", state_dict(tensor(shape=(1 << 40,), stride=(0,)))
    yield "overlapping windows blow up", state_dict(tensor(shape=(2, 3, 2), stride=(1, 0, 1)))
    yield "shape overflows 64 bits", state_dict(tensor(shape=(1 << 33, 1 << 33), stride=(0, 0)))
    yield "huge in a dimension, zero in another", state_dict(tensor(shape=(1 << 60, 0), stride=(1, 1)))
    yield "negative size", state_dict(tensor(shape=(-4,)))
    yield "size of 2^2000", state_dict(tensor(shape=(1 << 2000,)))
    yield "sizes are floats", state_dict(tensor().replace(sizes((4,)), b"(G@\x10\0\0\0\0\0\0t", 1))
    yield "shape is a list", state_dict(tensor().replace(sizes((4,)), b"]", 1))
    yield "shape and stride differ", state_dict(tensor(shape=(2, 2), stride=(1,)))
    yield "17 dimensions", state_dict(tensor(shape=(1,) * 17, stride=(1,) * 17))
    yield "storage count is not the entry's", state_dict(tensor(of=storage(count=1 << 40)))
    yield "storage count is negative", state_dict(tensor(of=storage(count=-4)))
    yield "no arguments at all", state_dict(TENSOR + b")R")
    yield "a tensor of a tensor", state_dict(tensor(of=tensor()))
    yield "too many arguments", state_dict(TENSOR + b"(" + integer(1) * 100_000 + b"tR")
    yield "parameter of a text", state_dict(b"ctorch._utils\n_rebuild_parameter\n(" + text("x") + b"tR")
    # memo and stack
    yield "memo never stored", PROTO + b"h\x07."
    yield "memo at 2^32 - 1", PROTO + b"}r\xff\xff\xff\xff0."
    yield "memo of an empty stack", PROTO + b"q\x00."
    yield "memo of a mark", PROTO + b"(q\x00."
    yield "dict that holds itself", PROTO + b"}q\x00(" + text("model") + b"h\x00u."
    yield "list that holds itself", PROTO + b"]q\x00h\x00a."
    yield "tuple bomb", PROTO + b")q\x00" + b"h\x00h\x00\x87q\x00" * 200 + b"."
    yield "list bomb", PROTO + b"]q\x00" + (b"q\x01](" + b"h\x01" * 9 + b"e\x86q\x01") * 60 + b"."
    yield "dict key is a tuple bomb", PROTO + b"}(" + b")q\x00" + b"h\x00h\x00\x86q\x00" * 100 + b"K\x01u."
    yield (
        "keys that collide",
        PROTO + b"}(" + b"".join(integer(i * ((1 << 61) - 1)) + b"N" for i in range(20_000)) + b"u.",
    )
    yield "key is a list", PROTO + b"}]Ns."
    yield "stop on an empty stack", PROTO + b"."
    yield "stop on a mark", PROTO + b"(."
    yield "stop with two values", PROTO + b"NN."
    yield "tuple without mark", PROTO + b"Nt."
    yield "items without mark", PROTO + b"}NNu."
    yield "odd number of items", PROTO + b"}(Nu."
    yield "items of a list", PROTO + b"](" + text("a") + b"Nu."
    yield "append to a dict", PROTO + b"}Na."
    yield "append to the empty stack", PROTO + b"Na."
    yield "append to a mark", PROTO + b"(Na."
    yield "tuple eats the mark", PROTO + b"(N\x87."
    yield "reduce on nothing", PROTO + b"R."
    yield "two million dicts", PROTO + b"}" * 2_000_000 + b"."
    yield "two million instructions", PROTO + b"N" * 2_000_000 + b"."
    yield "nested 300,000 deep", PROTO + b"N" + b"\x85" * 300_000 + b"."
    yield "lists 300,000 deep", PROTO + b"]" * 300_000 + b"a" * 299_999 + b"."
    # lengths
    yield "text of 4 GB", PROTO + b"X\xff\xff\xff\xff" + b"a."
    yield "text of 2^60 bytes", PROTO + b"\x8d" + struct.pack("<Q", 1 << 60) + b"a."
    yield "number of 2 GB", PROTO + b"\x8b\xff\xff\xff\x7f."
    yield "bytes of 4 GB", PROTO + b"B\xff\xff\xff\xff."
    yield "bytearray of 2^60", PROTO + b"\x96" + struct.pack("<Q", 1 << 60) + b"."
    yield "frame of 2^60", PROTO + b"\x95" + struct.pack("<Q", 1 << 60) + b"N."
    yield "decimal number of a million digits", PROTO + b"I" + b"9" * 1_000_000 + b"\n."
    yield "name without end", PROTO + b"c" + b"a" * 1_000_000
    yield "broken text", PROTO + b"X\x01\x00\x00\x00\xff."
    yield "text that is a lone surrogate as a name", state_dict(tensor(), "\x00\x1b[31m")
    yield "protocol 200", b"\x80\xc8}."
    yield "nothing", b""
    yield "only the protocol", PROTO
    yield "unknown instruction", PROTO + b"\xfe."
    yield "17 MB of pickle", PROTO + b"N" * (17 << 20) + b"."


def archives(folder, write_zip, write_pth):
    """Name -> path of zip archives that are hostile themselves."""
    import zipfile

    good = state_dict(tensor())

    def path(name):
        return os.path.join(folder, name.replace(" ", "_") + ".pth")

    yield write_zip(path("bomb in the pickle"), {"a/data.pkl": b"N" * (64 << 20)}, zipfile.ZIP_DEFLATED)
    bomb = {"a/data.pkl": good, "a/data/0": bytes(64 << 20)}
    yield write_zip(path("bomb in a storage"), bomb, zipfile.ZIP_DEFLATED)
    yield write_zip(path("bzip2"), {"a/data.pkl": good, "a/data/0": bytes(16)}, zipfile.ZIP_BZIP2)
    yield write_zip(path("entry with dots"), {"../../data.pkl": good, "../../data/0": bytes(15)})
    yield write_zip(path("absolute entry"), {"/etc/data.pkl": good, "/etc/passwd": b"x"})
    yield write_zip(
        path("odd names"), {"a\\..\\b/data.pkl": good, "\x1b[31m": b"", "con": b"", "a/data/0/../1": bytes(16)}
    )
    yield write_pth(path("missing storage"), good)
    yield write_pth(path("storage too short"), good, {"0": bytes(15)})
    yield write_pth(path("storage too long"), good, {"0": bytes(17)})
    yield write_zip(path("10000 entries"), {f"a/{i}": b"" for i in range(10_000)})
    sound = open(write_pth(path("sound"), good, {"0": bytes(16)}), "rb").read()
    central, end = sound.index(b"PK\x01\x02"), sound.index(b"PK\x05\x06")
    yield patched(path("encrypted"), sound, central + 8, b"\x01\x00")
    yield patched(path("entry size of 4 GB"), sound, central + 20, struct.pack("<2L", 0xFFFFFFFE, 0xFFFFFFFE))
    yield patched(path("entry elsewhere"), sound, central + 42, struct.pack("<L", 0x7FFFFFFF))
    yield patched(path("entry in the middle"), sound, central + 42, struct.pack("<L", 5))
    yield patched(path("entry name of 64 kB"), sound, central + 28, b"\xff\xff")
    yield patched(path("directory of 4 GB"), sound, end + 12, struct.pack("<L", 0xFFFFFFFE))
    yield patched(path("directory elsewhere"), sound, end + 16, struct.pack("<L", 0xFFFFFFFE))
    yield patched(path("one entry more"), sound, end + 8, struct.pack("<2H", 9, 9))
    yield patched(path("zip64 that is not there"), sound, end + 8, b"\xff\xff\xff\xff")
    yield patched(path("part of a split archive"), sound, end + 4, b"\x05\x00")
    twice = open(write_pth(path("sound"), good, {"0": bytes(16), "00": bytes(16)}), "rb").read()
    yield patched(path("two entries of one name"), twice, twice.rindex(b"archive/version"), b"archive/data/00")
    yield patched(path("no directory"), sound, end, b"XX")


def patched(path, data, at, new):
    with open(path, "wb") as file:
        file.write(data[:at] + new + data[at + len(new) :])
    return path


def write_corpus(folder, marker):
    """Write every file, and a sound one that differs from them only in being sound."""
    from checkpoint_helpers import write_pth, write_zip

    write_pth(os.path.join(folder, "sound.pth"), state_dict(tensor()), {"0": bytes(16)})
    for name, program in programs(marker):
        write_pth(os.path.join(folder, name.replace(" ", "_").replace("/", "_") + ".pth"), program, {"0": bytes(16)})
    list(archives(folder, write_zip, write_pth))
    names = b",".join(b'"%d":0' % i for i in range(700_000))
    for name, header in {"lists": b'{"a":[' + b"[]," * 2_700_000 + b"0]}", "names": b"{" + names + b"}"}.items():
        with open(os.path.join(folder, f"header_of_{name}.safetensors"), "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header)


def read_corpus(folder):
    """Read every file with limited memory; print what became of each."""
    import resource

    from npminimind.checkpoint import load_weights

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    resource.setrlimit(resource.RLIMIT_AS, (3 << 30, resource.RLIM_INFINITY))
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        kind, message = "none", ""
        try:
            load_weights(path)
        except BaseException as error:
            kind, message = type(error).__name__, str(error)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(json.dumps([name, kind, message.replace(path, "PATH"), peak - before]), flush=True)


if __name__ == "__main__":
    read_corpus(sys.argv[1])
