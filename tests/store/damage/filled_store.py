"""The store that the tests here damage, and what they damage and read it with."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from commitlog_store import ALL_COLUMNS, StoreReader
from commitlog_store.errors import CommitLogError
from commitlog_store.format import compression
from commitlog_store.format.sys_flag import COMPRESSED_FLAG, CompressionType
from tests.support.store_builder import StoreBuilder

LOG_FILE_SIZE = 2400
QUEUE_FILE_UNITS = 20


def fill(builder: StoreBuilder) -> None:
    """Thirty messages of two topics, some compressed, over three log files, with an index."""
    entries: list[tuple[str, int, int]] = []
    for topic, start in (("a", 0), ("b", 10), ("a", 20)):
        numbers = range(start, start + 10)
        times = range(builder.now_ms, builder.now_ms + 10_000, 1000)
        places = builder.append(
            topic, [0, 1], [BODIES[n] for n in numbers], keys=[f"k{n}" for n in numbers], step_ms=1000
        )
        entries += [(f"{topic}#k{n}", int(p), t) for n, p, t in zip(numbers, places, times, strict=True)]
    for body, kind in zip(PACKED_STORED, CompressionType, strict=True):
        builder.append("packed", 0, [body], sys_flag=COMPRESSED_FLAG | kind.value)
    builder.write_index("20261121000000000", entries, slots=10)


BODIES = [f"body of message {n} ".encode() * (n % 7 + 1) for n in range(30)]
PACKED = [f"packed {n} ".encode() * 100 for n in range(3)]
PACKED_STORED = [compression.compress(body, kind) for body, kind in zip(PACKED, CompressionType, strict=True)]


def expected_bodies() -> dict[tuple[str, int], list[bytes]]:
    a = [*BODIES[0:10], *BODIES[20:30]]
    b = BODIES[10:20]
    return {("a", 0): a[::2], ("a", 1): a[1::2], ("b", 0): b[::2], ("b", 1): b[1::2], ("packed", 0): PACKED}


def log_file(builder: StoreBuilder, number: int = 0) -> Path:
    return sorted((builder.path / "commitlog").iterdir())[number]


def queue_file(builder: StoreBuilder) -> Path:
    return builder.path / "consumequeue" / "a" / "0" / f"{0:020d}"


def index_file(builder: StoreBuilder) -> Path:
    return builder.path / "index" / "20261121000000000"


def read_everything(store: Path) -> dict[tuple[str, int], list[bytes]]:
    """All bodies of all queues, through every column, with the CRC checked."""
    found = {}
    with StoreReader.open(store) as reader:
        for topic in reader.topics():
            for queue in reader.queues(topic):
                batches = reader.read(topic, queue.queue_id, queue.min_offset, columns=ALL_COLUMNS, verify_crc=True)
                found[topic, queue.queue_id] = [body for batch in batches for body in batch["body"].to_pylist()]
    return found


T = TypeVar("T")


def outcome(look: Callable[[], T]) -> T | CommitLogError:
    """What a look gives, or the error it ends in; any other exception is a failure of the test."""
    try:
        return look()
    except CommitLogError as error:
        return error


def damage_byte(path: Path, at: int, value: int) -> Callable[[], None]:
    with path.open("r+b") as file:
        file.seek(at)
        old = file.read(1)
        file.seek(at)
        file.write(bytes([value]))

    def undo() -> None:
        with path.open("r+b") as file:
            file.seek(at)
            file.write(old)

    return undo


def flips(byte: int) -> list[int]:
    return [value for value in dict.fromkeys((byte ^ 0xFF, byte ^ 0x01, 0, 0x80 ^ byte)) if value != byte]


def records_of(reader: StoreReader) -> Iterator[tuple[str, int, int, int, int]]:
    """Topic, queue id, queue offset, physical offset and size of every message."""
    for topic in reader.topics():
        for queue in reader.queues(topic):
            for units in reader.units(topic, queue.queue_id, 0, queue.max_offset):
                for offset, (place, size, _) in enumerate(units.tolist()):
                    yield topic, queue.queue_id, offset, place, size


def poke(path: Path, at: int, code: str, value: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(struct.pack(">" + code, value))
