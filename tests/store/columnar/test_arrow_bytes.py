"""Values gathered from their places, and text made of them."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog_store.columnar.arrow_bytes import gather_binary, strided_view, to_text
from commitlog_store.format.properties import decode_utf8
from tests.store.columnar.record_blocks import odd_properties


@pytest.mark.parametrize("size", [59, 64, 65, 200])
@pytest.mark.parametrize("behind", [0, 1, 11, 12, 13])
def test_values_of_every_length_around_the_inline_limit_are_gathered(behind: int, size: int) -> None:
    """12 bytes fit a view itself; at the end of the data there may be fewer than 12 bytes to fetch."""
    data = np.arange(1, size + 1, dtype=np.uint8)
    for length in range(20):
        end = len(data) - behind
        starts = np.array([0, 5, end - length], np.int64)
        lengths = np.full(3, length, np.int64)
        expected = [data[s : s + length].tobytes() for s in starts.tolist()]
        found = gather_binary(data, starts, lengths)
        found.validate(full=True)
        assert found.to_pylist() == expected


def test_short_values_at_the_ends_of_much_data_do_not_copy_it() -> None:
    """The last record of a block most often has one there, and a block of many queues may be all of a log file."""
    data = np.zeros(8 << 20, np.uint8)
    starts = np.array([0, 1 << 20, len(data) - 2], np.int64)
    tracemalloc.start()
    try:
        found = gather_binary(data, starts, np.array([3, 0, 2], np.int64))
        assert tracemalloc.get_traced_memory()[1] < 1 << 16
    finally:
        tracemalloc.stop()
    assert found.to_pylist() == [bytes(3), b"", bytes(2)]


@given(st.binary(min_size=1, max_size=120), st.data())
def test_gathered_values_are_the_slices(raw: bytes, data: st.DataObject) -> None:
    values = data.draw(
        st.lists(
            st.integers(0, len(raw)).flatmap(lambda s: st.tuples(st.just(s), st.integers(0, len(raw) - s))), max_size=10
        )
    )
    starts = np.array([start for start, _ in values], np.int64)
    lengths = np.array([length for _, length in values], np.int64)
    found = gather_binary(np.frombuffer(raw, np.uint8), starts, lengths)
    found.validate(full=True)
    assert found.type == pa.binary()
    assert found.to_pylist() == [raw[start : start + length] for start, length in values]


def test_a_strided_view_may_be_empty_or_wider_than_the_data() -> None:
    data = np.arange(3, dtype=np.uint8)
    assert len(strided_view(data, 4)) == 0
    assert [item.tobytes() for item in strided_view(data, 2)] == [b"\0\x01", b"\x01\x02"]


@given(st.lists(st.one_of(st.none(), st.binary(max_size=12), odd_properties), max_size=6))
def test_text_is_what_decode_utf8_gives(raw: list[bytes | None]) -> None:
    found = to_text(pa.array(raw, pa.binary()))
    found.validate(full=True)
    assert found.to_pylist() == [None if value is None else decode_utf8(value) for value in raw]
