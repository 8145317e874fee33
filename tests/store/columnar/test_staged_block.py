"""Staged blocks: written blocks are read back, and impossible ones are refused, with or without a checksum."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from commitlog_store.columnar.staged_block import (
    BLOCK_HEAD_SIZE,
    StagedBlock,
    decode_block,
    decode_block_head,
    encode_block,
)
from commitlog_store.errors import InvalidValue
from tests.store.columnar.encoded_rows import encode

ROWS = 50


def staged(**columns: object) -> StagedBlock:
    rows = pa.table(
        {"body": [b"b" * row for row in range(ROWS)], "tags": ["paid"] * ROWS, "keys": ["k1 k2"] * ROWS} | columns
    )
    queued = encode(rows).queued()
    crc = zlib.crc32(queued.records.data.data)
    return StagedBlock(queued.records, queued.host_flags, queued.queues, queued.queue_codes, queued.hints, crc)


def read(encoded: bytes) -> StagedBlock:
    head = decode_block_head(encoded[:BLOCK_HEAD_SIZE])
    meta = encoded[BLOCK_HEAD_SIZE : BLOCK_HEAD_SIZE + head.meta_size]
    rest = encoded[BLOCK_HEAD_SIZE + head.meta_size :]
    if len(rest) != head.records_size:
        raise InvalidValue("another size, as who reads the file finds")
    return decode_block(head, meta, np.frombuffer(rest, np.uint8))


def whole(block: StagedBlock) -> bytes:
    head, data = encode_block(block)
    return head + data.tobytes()


@pytest.mark.parametrize("delayed", [False, True])
def test_a_block_is_read_as_it_was_written(delayed: bool) -> None:
    block = staged(delayLevel=[2] * ROWS) if delayed else staged()
    found = read(whole(block))
    assert found.records.data.tobytes() == block.records.data.tobytes()
    assert found.records.starts.tolist() == block.records.starts.tolist()
    assert (found.queues, found.queue_codes.tolist(), found.crc) == (
        block.queues,
        block.queue_codes.tolist(),
        block.crc,
    )
    assert (found.hints is None) == delayed
    if block.hints is not None and found.hints is not None:
        one, other = found.hints, block.hints
        assert one.tags_codes.tolist() == other.tags_codes.tolist()
        assert [array.tolist() for array in one.entries] == [array.tolist() for array in other.entries]


def changed(change: Callable[[bytearray], None], names: object = None) -> bytes:
    """The block with other numbers, or names, and checksums that are right all the same."""
    encoded = bytearray(whole(staged()))
    head = decode_block_head(bytes(encoded[:BLOCK_HEAD_SIZE]))
    meta = encoded[BLOCK_HEAD_SIZE : BLOCK_HEAD_SIZE + head.meta_size]
    rest = encoded[BLOCK_HEAD_SIZE + head.meta_size :]
    first = bytearray(encoded[:BLOCK_HEAD_SIZE])
    if names is not None:
        written = names.encode() if isinstance(names, str) else json.dumps(names).encode()
        meta = bytearray(written) + meta[head.names_size :]
        struct.pack_into(">I", first, 24, len(written))
    change(meta)
    struct.pack_into(">I", first, 32, zlib.crc32(meta))
    return bytes(first + meta + rest)


def nothing(_: bytearray) -> None:
    """No number changes."""


@pytest.mark.parametrize(
    "names",
    [
        [["bills", 7]],
        [["orders", -1]],
        [["orders", 2**31]],
        [["orders", 1e400]],
        '[["orders", 1e999]]',
        [["orders"]],
        "{",
        [],
        3,
    ],
)
def test_queues_that_are_not_the_records_own_are_refused(names: object) -> None:
    with pytest.raises(InvalidValue):
        read(changed(nothing, names))


def test_numbers_that_are_not_the_records_own_are_refused() -> None:
    names = len(json.dumps(staged().queues))

    def shifted(meta: bytearray) -> None:
        sizes = np.frombuffer(meta, np.uint32, 2, names).copy() + np.array([10, -10]).astype(np.uint32)
        meta[names : names + 8] = sizes.tobytes()

    def tiny(meta: bytearray) -> None:
        sizes = np.frombuffer(meta, np.uint32, 2, names).astype(np.int64)
        meta[names : names + 8] = np.array([4, sizes.sum() - 4], np.uint32).tobytes()

    def unknown_queue(meta: bytearray) -> None:
        meta[names + 4 * ROWS : names + 4 * ROWS + 4] = np.array([9], np.uint32).tobytes()

    def negative_hash(meta: bytearray) -> None:
        meta[names + 12 * ROWS : names + 12 * ROWS + 4] = np.array([-5], np.int32).tobytes()

    def row_behind_all(meta: bytearray) -> None:
        meta[-4:] = np.array([ROWS], np.uint32).tobytes()

    def rows_out_of_order(meta: bytearray) -> None:
        meta[-8:-4] = np.array([0], np.uint32).tobytes()

    for change in (shifted, tiny, unknown_queue, negative_hash, row_behind_all, rows_out_of_order):
        with pytest.raises(InvalidValue):
            read(changed(change))
    read(changed(nothing))


@pytest.mark.parametrize("at", range(BLOCK_HEAD_SIZE))
def test_a_damaged_byte_of_the_head_is_refused_wherever_it_is(at: int) -> None:
    encoded = bytearray(whole(staged()))
    encoded[at] ^= 0xFF
    with pytest.raises(InvalidValue):
        read(bytes(encoded))
