"""Columns of bytes joined row by row, against Python's own joining."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from commitlog_store.columnar.byte_parts import Part, join_rows

_COUNT = 5
_of_one_length = st.integers(0, 4).flatmap(
    lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=_COUNT, max_size=_COUNT)
)
_of_any_length = st.lists(st.binary(max_size=4), min_size=_COUNT, max_size=_COUNT)
_columns = st.lists(st.one_of(st.binary(max_size=3), _of_one_length, _of_any_length), max_size=6)


@given(_columns, st.integers(0, _COUNT), st.integers(0, _COUNT))
def test_parts_follow_each_other_in_every_row(columns: list[bytes | list[bytes]], first: int, stop: int) -> None:
    """Also of slices of arrays, of no rows and of no parts."""
    count = max(stop - first, 0)
    parts: list[Part] = [
        column if isinstance(column, bytes) else pa.array(column, pa.large_binary()).slice(first, count)
        for column in columns
    ]
    starts, data = join_rows(parts, count)
    rows = [data[start:end].tobytes() for start, end in pairwise(starts.tolist())]
    assert rows == [
        b"".join(column if isinstance(column, bytes) else column[row] for column in columns)
        for row in range(first, first + count)
    ]
    assert len(data) == starts[-1]
    assert data.flags.writeable


def test_large_even_parts_among_uneven_ones_stand_in_their_places() -> None:
    large, small = [bytes([row]) * 300 for row in range(3)], [b"", b"x", b"yz"]
    arrays = [pa.array(column, pa.large_binary()) for column in (large, small)]
    starts, data = join_rows([b"<", arrays[0], b"|", arrays[0], arrays[1], b">"], 3)
    assert data.tobytes() == b"".join(b"<%b|%b%b>" % (one, one, two) for one, two in zip(large, small, strict=True))
    assert starts.tolist() == [0, 603, 1207, 1812]
