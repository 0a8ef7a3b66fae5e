"""Text in columns: wide characters take two, tokens are made visible."""

import unicodedata


def width(text):
    """How many columns a terminal gives a text.

    Examples
    --------
    >>> width("abc"), width("你好"), width("e\\u0301")
    (3, 4, 1)
    """
    return sum(columns_of(character) for character in text)


def columns_of(character):
    if unicodedata.combining(character) or unicodedata.category(character) in ("Cf", "Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def left(text, columns):
    """A text filled up with blanks on its right, or cut.

    Examples
    --------
    >>> left("你好", 6) + "|", left("你好吗", 5) + "|"
    ('你好  |', '你好…|')
    """
    return cut(text, columns) + " " * max(0, columns - width(cut(text, columns)))


def right(text, columns):
    """A text filled up with blanks on its left, or cut."""
    return " " * max(0, columns - width(cut(text, columns))) + cut(text, columns)


def cut(text, columns):
    if width(text) <= columns:
        return text
    while width(text) > columns - 1:
        text = text[:-1]
    return text + "…"


def tail(text, columns):
    """The end of a long text."""
    if width(text) <= columns:
        return text
    while width(text) > columns - 1:
        text = text[1:]
    return "…" + text


def visible(text):
    """A text in quotes, its newlines and control characters escaped, its letters as they are.

    Examples
    --------
    >>> print(visible("\\n你好"))
    "\\n你好"
    """
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return '"' + "".join(escapes.get(c, c if c.isprintable() else f"\\u{ord(c):04x}") for c in text) + '"'


def token_text(tokenizer, token_id):
    """How one token is shown: its text, or its bytes where they are only a part of a character."""
    text = tokenizer.decode([token_id], skip_special_tokens=False)
    token = tokenizer.backend.id_to_token(token_id)
    if token is None:
        return "(no token)"
    known = byte_of_letter()
    if "\ufffd" not in text or not all(letter in known for letter in token):
        return visible(text)
    return '"' + "".join(f"\\x{known[letter]:02x}" for letter in token) + '"'


def byte_of_letter():
    """GPT-2's letters for bytes, which byte-level tokenizers write their tokens in.

    Printable bytes stand for themselves, the others for the letters from U+0100 on.

    Examples
    --------
    >>> byte_of_letter()["A"], byte_of_letter()["Ġ"]
    (65, 32)
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


def percent(share):
    """A probability in six columns.

    Examples
    --------
    >>> percent(0.62154), percent(1.0), percent(0.00001)
    ('62.15%', '100.0%', ' 0.00%')
    """
    return "100.0%" if share >= 0.99995 else f"{100 * share:5.2f}%"


def amount_of_bytes(count):
    """A number of bytes for people.

    Examples
    --------
    >>> amount_of_bytes(1_228_800), amount_of_bytes(512)
    ('1.23 MB', '512 bytes')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}" if count / size < 1000 else f"{count / size:,.0f} {unit}"
    return f"{count:,} bytes"
