"""Checked pages: content comes out as it went in, whatever the borders, and each flipped byte is noticed."""

from __future__ import annotations

import numpy as np
import pytest

from commitlog_store.format.checksum import crc32
from commitlog_store.object_storage.checked_pages import (
    CHECKED_PAGE,
    checked_pages,
    content_of,
    content_size,
    stored_place,
    wrong_page,
)

CONTENT = CHECKED_PAGE - 4


@pytest.mark.parametrize("size", [1, CONTENT - 1, CONTENT, CONTENT + 1, 2 * CONTENT, 2 * CONTENT + 77])
def test_content_is_read_from_any_place_to_any(size: int) -> None:
    content = np.random.default_rng(size).bytes(size)
    data = memoryview(b"".join(checked_pages([content[:5], content[5:]])))
    assert content_size(len(data)) == size
    assert wrong_page(data) is None
    borders = sorted({0, 1, CONTENT - 1, CONTENT, CONTENT + 1, 2 * CONTENT, size - 1, size} & set(range(size + 1)))
    for start in borders:
        for stop in (one for one in borders if one > start):
            stored = data[stored_place(start) : stored_place(stop - 1) + 1]
            assert content_of(stored, start) == content[start:stop]


def test_a_flipped_byte_is_in_the_page_that_is_named() -> None:
    whole = b"".join(checked_pages([bytes(2 * CONTENT + 100)]))
    for at in (
        0,
        CONTENT - 1,
        CONTENT,
        CHECKED_PAGE - 1,
        CHECKED_PAGE,
        2 * CHECKED_PAGE,
        2 * CHECKED_PAGE + 99,
        len(whole) - 1,
    ):
        data = bytearray(whole)
        data[at] ^= 1
        page = wrong_page(memoryview(data))
        assert page is not None
        assert page.stored == int.from_bytes(data[page.offset + page.size - 4 : page.offset + page.size], "big")
        assert page.computed == crc32(bytes(data[page.offset : page.offset + page.size - 4]))
        assert (page.offset, page.size) == (
            at // CHECKED_PAGE * CHECKED_PAGE,
            min(CHECKED_PAGE, len(whole) - at // CHECKED_PAGE * CHECKED_PAGE),
        )
