"""Checked pages: an object each page of which ends with the CRC-32 of the page's other bytes.

A reader gives ``wrong_page`` whole pages, so every byte of such an object that it uses was compared. The size of a page
is part of the format. Big-endian::

    0                                   262140      262144
    +-----------------------------------+-----------+-----------------------------------+-----------+----
    | content                           | CRC-32  4 | content, as it continues          | CRC-32  4 | ...
    +-----------------------------------+-----------+-----------------------------------+-----------+----

The last page ends where the content does, and has its CRC-32 there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

from commitlog_store.format.arrays import Int64Array
from commitlog_store.format.checksum import crc32

CHECKED_PAGE = 256 << 10
_SUM = struct.Struct(">I")
_CONTENT = CHECKED_PAGE - _SUM.size
assert _CONTENT == 262_140

_Places = TypeVar("_Places", int, Int64Array)


class WrongPage(NamedTuple):
    """A page whose checksum is not that of its content: where it begins, and how long it is. ``stored`` is the checksum
    at its end, and ``computed`` that of its content."""

    offset: int
    size: int
    stored: int
    computed: int


def checked_pages(parts: Sequence[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """The pieces of an object with this content."""
    content = memoryview(b"".join(parts))
    for at in range(0, len(content), _CONTENT):
        page = content[at : at + _CONTENT]
        yield page
        yield _SUM.pack(crc32(page))


def content_size(size: int) -> int:
    """The size of the content of an object of that size."""
    return size - _SUM.size * -(-size // CHECKED_PAGE)


def stored_place(at: _Places) -> _Places:
    """Where in an object a byte of the content is; of many bytes, too."""
    return at // _CONTENT * CHECKED_PAGE + at % _CONTENT


def content_of(data: memoryview, start: int) -> memoryview:
    """The content of an object's bytes that begin with the byte ``start`` of the content, and end with one of it."""
    first = _CONTENT - start % _CONTENT
    if len(data) <= first:
        return data
    later = [data[at : at + _CONTENT] for at in range(first + _SUM.size, len(data), CHECKED_PAGE)]
    return memoryview(b"".join([data[:first], *later]))


def wrong_page(data: memoryview) -> WrongPage | None:
    """The first of these whole pages that is damaged."""
    for at in range(0, len(data), CHECKED_PAGE):
        page = data[at : at + CHECKED_PAGE]
        stored, computed = int.from_bytes(page[-_SUM.size :], "big"), crc32(page[: -_SUM.size])
        if stored != computed:
            return WrongPage(at, len(page), stored, computed)
    return None
