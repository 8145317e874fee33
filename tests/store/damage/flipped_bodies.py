"""Stores in which a byte of one body was flipped after it was stored: put alone, in a batch, or compressed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from commitlog_store import Message, MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.columnar.bodies import plain_body
from commitlog_store.format import compression
from commitlog_store.format.record import header_size
from commitlog_store.format.sys_flag import COMPRESSED_FLAG, CompressionType
from tests.support.store_builder import StoreBuilder

COUNT = 10
SMALL = MessageStoreConfig(mapped_file_size_commit_log=32 << 20)
# The queue offset of the message whose body is damaged.
BAD = 4
_LZ4_FLAG = COMPRESSED_FLAG | CompressionType.LZ4.value


@dataclass(frozen=True)
class FlippedStore:
    """The store, where the damaged record starts in its log, and the bodies of the queue, as sent and as they are."""

    path: Path
    place: int
    whole: list[bytes]
    changed: list[bytes]

    @property
    def good(self) -> list[bytes]:
        """The bodies that match their CRC."""
        return [body for number, body in enumerate(self.whole) if number != BAD]


def flip_byte(path: Path, physical_offset: int) -> None:
    """Flip a bit of the byte at a physical offset of a store with one log file."""
    (log,) = (path / "commitlog").iterdir()
    with log.open("r+b") as file:
        file.seek(physical_offset)
        (byte,) = file.read(1)
        file.seek(physical_offset)
        file.write(bytes([byte ^ 2]))


def _bodies() -> list[bytes]:
    rng = np.random.default_rng(4)
    return [b"body %d " % number + rng.bytes(60).hex().encode() for number in range(COUNT)]


def _messages() -> list[Message]:
    return [
        Message(
            topic="orders",
            body=body,
            keys=[f"k{number}"],
            queue_id=0,
        )
        for number, body in enumerate(_bodies())
    ]


def _flipped(path: Path) -> FlippedStore:
    with StoreReader.open(path) as reader:
        (units,) = reader.units("orders", 0, BAD, BAD + 1)
        place = int(units["physical_offset"][0])
        sys_flag = reader.message_at(place).sys_flag
    at, body = _stored_body(path, place, sys_flag)
    whole = _bodies()
    # A byte in the middle: of an LZ4 frame, one that is copied to the body.
    within = len(body) // 2
    flip_byte(path, at + within)
    damaged = bytearray(body)
    damaged[within] ^= 2
    changed = [*whole[:BAD], plain_body(bytes(damaged), sys_flag), *whole[BAD + 1 :]]
    assert changed[BAD] != whole[BAD]
    return FlippedStore(path, place, whole, changed)


def _stored_body(path: Path, place: int, sys_flag: int) -> tuple[int, bytes]:
    """Where the body of a record starts in the log, and its bytes as stored."""
    (log,) = (path / "commitlog").iterdir()
    head = header_size(sys_flag)
    with log.open("rb") as file:
        file.seek(place + head - 4)
        size = int.from_bytes(file.read(4), "big")
        return place + head, file.read(size)


def _put_alone(path: Path) -> None:
    with MessageStore.open(path, SMALL) as store:
        for message in _messages():
            store.put_message(message)


def _put_as_a_batch(path: Path) -> None:
    with MessageStore.open(path, SMALL) as store, store.transaction("loader", version=1) as batch:
        batch.put_messages(_messages())


def _compressed(path: Path) -> None:
    packed = [compression.compress(body, CompressionType.LZ4) for body in _bodies()]
    keys = [f"k{number}" for number in range(COUNT)]
    builder = StoreBuilder(path)
    places = builder.append("orders", 0, packed, keys=keys, sys_flag=_LZ4_FLAG).tolist()
    with StoreReader.open(path) as reader:
        times = [reader.message_at(place).store_timestamp for place in places]
    entries = [(f"orders#{key}", place, time) for key, place, time in zip(keys, places, times, strict=True)]
    builder.write_index("20260101000000000", entries)


_MAKERS: dict[str, Callable[[Path], None]] = {
    "put alone": _put_alone,
    "batch": _put_as_a_batch,
    "compressed": _compressed,
}
KINDS = tuple(_MAKERS)


def make(kind: str, path: Path) -> FlippedStore:
    """The store of a kind."""
    _MAKERS[kind](path)
    return _flipped(path)
