"""What every reader and writer of files needs: recognise a file, read JSON strictly, write whole files or none."""

import contextlib
import json
import os
import stat

from ..errors import CheckpointError

LARGEST_JSON = 8 << 20  # bytes; a config has a few thousand, an index of 50,000 tensors 5 million


def refuse(path, message):
    """Raise the one exception of this package: the file's name, what was found, what to do."""
    raise CheckpointError(f"{os.fspath(path)}: {message}")


def quote(text, longest=80):
    """A name from a stranger's file, safe to print: quoted, escaped, cut."""
    text = ascii(text) if isinstance(text, str) else f"a {type(text).__name__}"
    return text if len(text) <= longest else text[: longest - 4] + "...'"


def short(value):
    """A value from a config, short enough for a message."""
    return repr(value)[:60] if isinstance(value, (int, float, str)) else type(value).__name__


@contextlib.contextmanager
def reading(path):
    """Turn the operating system's complaints about a file into CheckpointError."""
    try:
        yield
    except OSError as error:
        refuse(path, f"cannot be read: {error.strerror or error}")
    except MemoryError:
        refuse(path, "does not fit into the memory of this machine")


# ---------------------------------------------------------------------------------------------
# What kind of file is it? Its first bytes say; names lie.

DOWNLOAD = "download it again (and check the size)"
RESAVE = "re-save it with torch.save(model.state_dict(), ...) or as .safetensors"
STRANGERS = (
    (b"version https://git-lfs", "is a Git LFS pointer, not the weights; run `git lfs pull` in its repository"),
    (b"<!doctype html", f"is a web page, not weights; {DOWNLOAD}"),
    (b"<html", f"is a web page, not weights; {DOWNLOAD}"),
    (b"<?xml", f"is an XML page (an error of the server?), not weights; {DOWNLOAD}"),
    (b"gguf", "is a GGUF file (llama.cpp); quantized formats are not read, use the original safetensors"),
    (b"\x80\x02\x8a\nl\xfc\x9cf\xf9 j\xa8p\x19", f"is a .pth in torch's old format of before 1.6; {RESAVE}"),
    (b"\x80", f"is a bare pickle, not a .pth of torch.save; {RESAVE}"),
    (b"\x1f\x8b", "is a gzip archive; unpack it first"),
    (b"7z\xbc\xaf", "is a 7z archive; unpack it first"),
    (b"rar!", "is a RAR archive; unpack it first"),
    (b"\x93numpy", f"is a NumPy file; {RESAVE}"),
    (b"\x89hdf", f"is an HDF5 file; {RESAVE}"),
    (b"{", f"is JSON text (the answer of a server?), not weights; {DOWNLOAD}"),
    (b"entry not found", f"is the answer of a server that has no such file; {DOWNLOAD}"),
)


def kind_of(path):
    """Say by its first bytes whether a file is ``"safetensors"`` or ``"zip"`` (a ``.pth``).

    Raises
    ------
    CheckpointError
        Anything else, recognised for what it is where that helps: an empty file, a Git LFS
        pointer, a web page, GGUF, an archive, torch's old format.
    """
    with reading(path), open(path, "rb") as file:
        head = file.read(512)
    if not head:
        refuse(path, f"is empty (0 bytes); {DOWNLOAD}")
    if head.startswith(b"PK\x03\x04"):
        return "zip"
    # A header of 123 + 256 n bytes begins with "{" too, but text has no zero bytes.
    if head[8:9] == b"{" and (not head.startswith(b"{") or head[4:8] == bytes(4)):
        return "safetensors"
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    for magic, message in STRANGERS:
        if start.startswith(magic):
            refuse(path, message)
    if head[257:262] == b"ustar":
        refuse(path, "is a tar archive; unpack it first")
    refuse(path, f"is neither safetensors nor a .pth of torch.save (it starts with {bytes(head[:8])!r}); {DOWNLOAD}")


# ---------------------------------------------------------------------------------------------
# JSON, strictly


def no_duplicates(pairs):
    result = dict(pairs)
    if len(result) < len(pairs):
        seen = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise ValueError(f"the name {quote(twice)} appears twice in one object")
    return result


def no_constant(name):
    raise ValueError(f"{name} is not a number that JSON knows")


def parse_json(data, path, what):
    """A JSON object from bytes: UTF-8, no name twice, no NaN, an object at the top."""
    try:
        value = json.loads(data.decode("utf-8-sig"), object_pairs_hook=no_duplicates, parse_constant=no_constant)
    except (ValueError, RecursionError) as error:
        reason = "too deeply nested" if isinstance(error, RecursionError) else error
        refuse(path, f"{what} is not sound JSON: {reason}; {DOWNLOAD}")
    if not isinstance(value, dict):
        refuse(path, f"{what} is a JSON {type(value).__name__}, not an object {{...}}")
    return value


def read_json(path):
    """Read a small JSON file (a config, an index) as a dict."""
    with reading(path), open(path, "rb") as file:
        data = file.read(LARGEST_JSON + 1)
    if len(data) > LARGEST_JSON:
        refuse(path, f"is longer than {LARGEST_JSON:,} bytes, which no config or index is")
    start = data[:64].lstrip().lower()
    for magic, message in STRANGERS[:4]:
        if start.startswith(magic):
            refuse(path, message.replace("the weights", "the file").replace("weights", "JSON"))
    return parse_json(data, path, "the file")


# ---------------------------------------------------------------------------------------------
# Writing: the whole file or none


@contextlib.contextmanager
def replacing(path):
    """Open a binary file for writing that takes its name only when it is complete.

    It is written under a temporary name in the same folder and renamed at the end, so an
    interrupted run, or a full disk, leaves what was there before. A device or pipe
    (``/dev/stdout``) cannot be renamed and is written directly.
    """
    target = os.path.realpath(path)
    try:
        if os.path.exists(target) and not stat.S_ISREG(os.stat(target).st_mode):
            with open(target, "wb") as file:
                yield file
            return
        temporary = f"{target}.{os.urandom(4).hex()}.tmp"
        try:
            with open(temporary, "xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
    except BrokenPipeError:
        raise
    except OSError as error:
        refuse(path, f"cannot be written: {error.strerror or error}")


def write_json(path, value):
    """Write a dict as indented JSON, whole or not at all."""
    with replacing(path) as file:
        file.write((json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())
