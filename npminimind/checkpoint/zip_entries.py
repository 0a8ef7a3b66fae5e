"""Where the entries of a zip archive lie, as byte ranges of the file. Nothing is ever unpacked.

torch.save stores its entries uncompressed, so a tensor in a ``.pth`` is a byte range of the file,
read like one of safetensors, and there is nothing that a zip bomb could blow up. Entry names are
only compared, never used as paths.

Source: PKWARE's APPNOTE.TXT, sections 4.3.7 (local header), 4.3.12 (central directory), 4.3.14-16.
"""

import os
import struct
from typing import NamedTuple

from .files import DOWNLOAD, RESAVE, quote, reading, refuse

LARGEST_DIRECTORY = 16 << 20  # bytes of the central directory: some 200,000 entries
END = struct.Struct("<4s4H2LH")  # end of central directory
END64_LOCATOR = struct.Struct("<4sLQL")
END64 = struct.Struct("<4sQ2H2L4Q")
CENTRAL = struct.Struct("<4s6H3L5H2L")
LOCAL = struct.Struct("<4s5H3L2H")
FULL16, FULL32 = 0xFFFF, 0xFFFFFFFF


class Entry(NamedTuple):
    offset: int  # of the local header
    size: int


def read_entries(path):
    """Name -> :class:`Entry` of every file in an archive, from its central directory."""
    with reading(path), open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        count, length, start = find_directory(path, file, size)
        if length > LARGEST_DIRECTORY or start + length > size:
            refuse(path, f"has a damaged zip directory ({length:,} bytes at {start:,}); {DOWNLOAD}")
        file.seek(start)
        directory = file.read(length)
    return parse_directory(path, directory, count)


def find_directory(path, file, size):
    """Count, length and start of the central directory, from the record at the file's end."""
    tail_start = max(0, size - END.size - FULL16)
    file.seek(tail_start)
    tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or at + END.size > len(tail):
        refuse(path, f"is a zip (.pth) without its end: truncated at {size:,} bytes; {DOWNLOAD}")
    _, disk, start_disk, _, count, length, start, _ = END.unpack_from(tail, at)
    if disk not in (0, FULL16) or start_disk not in (0, FULL16):
        refuse(path, f"is one part of a split zip; {RESAVE}")
    if FULL16 == count or FULL32 in (length, start):
        return find_directory64(path, file, tail_start + at - END64_LOCATOR.size, size)
    return count, length, start


def find_directory64(path, file, at, size):
    """The same from the zip64 records, which archives above 4 GB have."""
    file.seek(max(0, at))
    locator = file.read(END64_LOCATOR.size)
    if len(locator) == END64_LOCATOR.size and locator.startswith(b"PK\x06\x07"):
        _, _, end_at, _ = END64_LOCATOR.unpack(locator)
        file.seek(min(end_at, size))
        record = file.read(END64.size)
        if len(record) == END64.size and record.startswith(b"PK\x06\x06"):
            *_, count, length, start = END64.unpack(record)
            return count, length, start
    refuse(path, f"has a damaged zip64 directory; {DOWNLOAD}")


def parse_directory(path, directory, count):
    entries, at = {}, 0
    while at < len(directory):
        if directory[at : at + 4] != b"PK\x01\x02" or at + CENTRAL.size > len(directory):
            refuse(path, f"has a damaged zip directory; {DOWNLOAD}")
        fields = CENTRAL.unpack_from(directory, at)
        flags, method, packed, size, name_length, extra_length, comment_length = (
            fields[i] for i in (3, 4, 8, 9, 10, 11, 12)
        )
        at += CENTRAL.size
        name = directory[at : at + name_length].decode("utf-8", "backslashreplace")
        extra = directory[at + name_length : at + name_length + extra_length]
        at += name_length + extra_length + comment_length
        size, packed, offset = wide_fields(path, extra, size, packed, fields[16])
        check_entry(path, name, flags, method, size, packed)
        if name in entries:
            refuse(path, f"has two zip entries {quote(name)}; the file is damaged or hostile")
        entries[name] = Entry(offset, size)
    if at != len(directory) or len(entries) != count:
        refuse(path, f"has a damaged zip directory: {len(entries)} entries of {count}; {DOWNLOAD}")
    return entries


def wide_fields(path, extra, size, packed, offset):
    """Replace the fields that are full by their 64-bit values in the extra field 1."""
    values = [size, packed, offset]
    wanted = [i for i, value in enumerate(values) if value == FULL32]
    if not wanted:
        return values
    at = 0
    while at + 4 <= len(extra):
        tag, length = struct.unpack_from("<2H", extra, at)
        if tag == 1 and at + 4 + length <= len(extra) and length >= 8 * len(wanted):
            for k, i in enumerate(wanted):
                (values[i],) = struct.unpack_from("<Q", extra, at + 4 + 8 * k)
            return values
        at += 4 + length
    refuse(path, f"has a damaged zip64 entry; {DOWNLOAD}")


def check_entry(path, name, flags, method, size, packed):
    if flags & 1:
        refuse(path, f"has the encrypted zip entry {quote(name)}; {RESAVE}")
    if method != 0 or packed != size:
        refuse(path, f"has the compressed zip entry {quote(name)}; torch.save stores uncompressed: {RESAVE}")


def data_offset(path, file, name, entry, size):
    """Where an entry's bytes begin: behind its local header, which says its own length."""
    file.seek(min(entry.offset, size))
    header = file.read(LOCAL.size)
    if len(header) < LOCAL.size or not header.startswith(b"PK\x03\x04"):
        refuse(path, f"zip entry {quote(name)} is not where the directory says; {DOWNLOAD}")
    name_length, extra_length = LOCAL.unpack(header)[-2:]
    start = entry.offset + LOCAL.size + name_length + extra_length
    if start + entry.size > size:
        refuse(path, f"zip entry {quote(name)} reaches beyond the end of the file: truncated; {DOWNLOAD}")
    return start
