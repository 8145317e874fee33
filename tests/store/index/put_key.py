"""RocketMQ's ``IndexFile.putKey`` in plain Python, from ``store/index/IndexFile.java``, and rows to put with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from commitlog_store.format.index_file import (
    HEADER_SIZE,
    INDEX_ENTRY_DTYPE,
    IndexEntry,
    IndexHeader,
    decode_header,
    encode_header,
    entry_offset,
    file_size,
    slot_offset,
)
from commitlog_store.format.java_hash import index_key_hash
from commitlog_store.index.writer import IndexWriter
from tests.support.encoders import encode_entry

# Key hash, physical offset, store timestamp (ms).
Rows = list[tuple[int, int, int]]

T0 = 1_700_000_000_000
SLOTS, CAPACITY = 11, 8
# 30 messages with a key of their own, one of every fourth message, and odd ones with a third: 75 rows in 11 files.
ROWS: Rows = [
    (index_key_hash(f"t#{key}"), 100 * number, T0 + 700 * number)
    for number in range(30)
    for key in (f"only{number}", f"some{number % 4}", f"often{number % 2}")[: 2 + number % 2]
]
OFFSETS = sorted({row[1] for row in ROWS})


class PutKey:
    """The bytes of an index file that RocketMQ would have written."""

    def __init__(self, slots: int, capacity: int) -> None:
        self.slots, self.capacity = slots, capacity
        self.data = bytearray(file_size(slots, capacity))
        self.header = IndexHeader(0, 0, 0, 0, 0, 1)

    def put(self, key_hash: int, physical_offset: int, store_timestamp: int) -> bool:
        begin, _, begin_offset, _, used, count = (getattr(self.header, name) for name in IndexHeader.__slots__)
        if count >= self.capacity:
            return False
        slot = slot_offset(key_hash % self.slots)
        previous = int.from_bytes(self.data[slot : slot + 4], "big", signed=True)
        if previous <= 0 or previous > count:
            previous = 0
        # Java divides towards zero; what is below zero becomes zero either way.
        seconds = 0 if begin <= 0 else max(0, min((store_timestamp - begin) // 1000, 2**31 - 1))
        at = entry_offset(count, self.slots)
        self.data[at : at + 20] = encode_entry(IndexEntry(key_hash, physical_offset, seconds, previous))
        self.data[slot : slot + 4] = count.to_bytes(4, "big")
        if count <= 1:
            begin_offset, begin = physical_offset, store_timestamp
        used += previous == 0
        self.header = IndexHeader(begin, store_timestamp, begin_offset, physical_offset, used, count + 1)
        self.data[:HEADER_SIZE] = encode_header(self.header)
        return True


def columns(rows: Rows) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The rows as the writers take them."""
    hashes, offsets, times = zip(*rows, strict=True) if rows else ((), (), ())
    return np.array(hashes, np.int32), np.array(offsets, np.int64), np.array(times, np.int64)


def decoded_rows(path: Path, slots: int) -> Rows:
    """What was put into an index file, its times rounded down to whole seconds after the first."""
    data = path.read_bytes()
    header = decode_header(data[:HEADER_SIZE])
    entries = np.frombuffer(data, INDEX_ENTRY_DTYPE, header.index_count - 1, entry_offset(1, slots))
    return [
        (int(entry["key_hash"]), int(entry["physical_offset"]), header.begin_timestamp + 1000 * int(entry["seconds"]))
        for entry in entries
    ]


def new_writer(directory: Path, slots: int = SLOTS, capacity: int = CAPACITY) -> IndexWriter:
    writer = IndexWriter(str(directory / "index"), max_hash_slot_num=slots, max_index_num=capacity)
    writer.open()
    return writer


def put(writer: IndexWriter, rows: Rows) -> None:
    writer.put(*columns(rows))


def files(directory: Path) -> list[Path]:
    return sorted((directory / "index").iterdir())


def contents(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in files(directory)]


def put_keys(rows: Rows, slots: int = SLOTS, capacity: int = CAPACITY) -> list[bytes]:
    oracles = [PutKey(slots, capacity)] if rows else []
    for row in rows:
        if not oracles[-1].put(*row):
            oracles.append(PutKey(slots, capacity))
            assert oracles[-1].put(*row)
    return [bytes(oracle.data) for oracle in oracles]
