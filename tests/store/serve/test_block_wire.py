"""Blocks on their way from a server: what arrives is what was sent, in few bytes beside those of the records."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog_store.queue.log_blocks import Block, Messages
from commitlog_store.remote.block_wire import decode_piece, encode_piece

# The bounds of each width that a number may travel in.
STEPS = st.sampled_from([0, 1, 200, 255, 256, 65_535, 65_536, 2**31 - 1, 2**31, 2**36])


def block(*, sizes: list[int], gaps: list[int], offsets: list[int], ranges: list[int], start: int = 0) -> Block:
    """Records with a gap before each one. None of their bytes are there, since none are looked at."""
    taken, before = np.array(sizes, np.int64), np.array(gaps, np.int64)
    starts = np.cumsum(taken + before) - taken
    messages = Messages(starts + start, taken, np.array(ranges, np.int32), np.array(offsets, np.int64))
    return Block(np.zeros(1, np.uint8), starts, messages, np.array([7, 2**62], np.int64))


def sent(value: Block) -> Block:
    arrived = decode_piece(encode_piece(value, "log", 5)).value
    assert isinstance(arrived, Block)
    return arrived


@given(st.lists(st.tuples(STEPS, STEPS, STEPS, STEPS), max_size=5), st.sampled_from([0, 2**40]))
def test_a_block_arrives_as_it_was_sent(rows: list[tuple[int, int, int, int]], start: int) -> None:
    value = block(
        sizes=[max(size, 1) for size, _, _, _ in rows],
        gaps=[gap for _, gap, _, _ in rows],
        offsets=[offset for _, _, offset, _ in rows],
        ranges=[index % 2**31 for _, _, _, index in rows],
        start=start,
    )
    arrived = sent(value)
    assert arrived.positions.tolist() == value.positions.tolist()
    assert len(arrived) == len(value)
    for name in ("physical_offsets", "sizes", "ranges", "queue_offsets"):
        there, here = getattr(arrived.messages, name), getattr(value.messages, name)
        assert there.dtype == here.dtype
        assert there.tolist() == here.tolist()
    assert arrived.starts.tolist() == value.starts.tolist()


@pytest.mark.parametrize(("gap", "most"), [(0, 5.1), (50, 9.1)])
def test_places_of_interleaved_records_take_few_bytes(gap: int, most: float) -> None:
    count = 10_000
    value = block(
        sizes=[290 + row % 3 for row in range(count)],
        gaps=[gap * (row % 2) for row in range(count)],
        offsets=[row // 4 + row % 4 * 1_000 for row in range(count)],
        ranges=[row % 4 for row in range(count)],
        start=2**40,
    )
    places = encode_piece(value, "log", 0).column(1)[0].as_buffer()
    assert len(places) < most * count
    assert sent(value).starts.tolist() == value.starts.tolist()
