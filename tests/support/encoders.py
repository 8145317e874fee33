"""Plain encoders of one record, one index entry and one tags code: what the package's own encoders are compared with.

They write the fields as they are given, also those that contradict each other.
"""

from __future__ import annotations

import struct

from commitlog_store.format.index_file import IndexEntry
from commitlog_store.format.java_hash import string_hash_code
from commitlog_store.format.record import HEADER_DTYPES, HOST_FLAGS, TOPIC_LENGTH_SIZE, Record

_CODES = {"i4": "i", "u4": "I", "i8": "q"}
_ENTRY = struct.Struct(">iqii")


def encode_record(record: Record) -> bytes:
    """The record's bytes. ``struct.error`` for a number that does not fit its field."""
    layout = HEADER_DTYPES[record.sys_flag & HOST_FLAGS]
    names = layout.names or ()
    codes = [_CODES.get(layout[name].str[1:], f"{layout[name].itemsize}s") for name in names]
    values = [len(record.body) if name == "body_length" else getattr(record, name) for name in names]
    return b"".join(
        (
            struct.pack(">" + "".join(codes), *values),
            record.body,
            len(record.topic).to_bytes(TOPIC_LENGTH_SIZE[record.magic], "big"),
            record.topic,
            len(record.properties).to_bytes(2, "big"),
            record.properties,
        )
    )


def encode_entry(entry: IndexEntry) -> bytes:
    """The 20 bytes of an index entry."""
    return _ENTRY.pack(*entry)


def tags_code(tags: str | None) -> int:
    """The tags code of a consume-queue unit: the tags' hash code, 0 for none or empty tags."""
    return string_hash_code(tags) if tags else 0
