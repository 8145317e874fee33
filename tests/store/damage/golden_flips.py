"""A golden store whose bytes are damaged one at a time, and what it may then give: the right rows, or a named error."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from commitlog_store import StoreReader
from commitlog_store.errors import CommitLogError, CorruptCheckpoint, CorruptIndex
from commitlog_store.format.consume_queue_unit import UNIT_SIZE
from commitlog_store.format.index_file import HEADER_SIZE, entry_offset, slot_offset
from commitlog_store.format.java_hash import index_key_hash
from commitlog_store.format.record import field_offset
from commitlog_store.format.sys_flag import COMPRESSED_FLAG, COMPRESSION_TYPE_MASK
from tests.store.damage.filled_store import damage_byte, flips, outcome
from tests.support import golden
from tests.support.stored_bodies import bodies

_LOG_FILE_SIZE = 1 << 18
_SLOTS = 1000
# More than the checkpoint's times and this package's mark take.
_CHECKPOINT_TIMES = 256
# Of the four bytes of SYSFLAG, the one with the compressed bit.
_LOW_SYS_FLAG = field_offset("sys_flag") + 3
_COLUMNS = ("body", "sysFlag", "storeSize", "physicalOffset", "keys", "uniqKey")


@dataclass(frozen=True, kw_only=True)
class StoredMessage:
    """One message: where it lies, and what it is."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    sys_flag: int
    body: bytes
    keys: tuple[str, ...]


class GoldenStore:
    """A copy of a golden store, read once while it is whole."""

    def __init__(self, name: str, target: Path) -> None:
        self.path = golden.copy_golden(name, target)
        self.messages: list[StoredMessage] = []
        self.ends: dict[tuple[str, int], int] = {}
        with StoreReader.open(self.path) as reader:
            for topic in reader.topics():
                for queue in reader.queues(topic):
                    self.ends[topic, queue.queue_id] = queue.max_offset
                    self.messages += self._messages(reader, topic, queue.queue_id)

    @staticmethod
    def _messages(reader: StoreReader, topic: str, queue_id: int) -> list[StoredMessage]:
        rows = (row for batch in reader.read(topic, queue_id, 0, columns=_COLUMNS) for row in batch.to_pylist())
        return [
            StoredMessage(
                topic=topic,
                queue_id=queue_id,
                queue_offset=offset,
                physical_offset=row["physicalOffset"],
                size=row["storeSize"],
                sys_flag=row["sysFlag"],
                body=row["body"],
                keys=(*(row["keys"] or "").split(), *filter(None, [row["uniqKey"]])),
            )
            for offset, row in enumerate(rows)
        ]

    def log_file(self, physical_offset: int) -> Path:
        return self.path / "commitlog" / f"{physical_offset - physical_offset % _LOG_FILE_SIZE:020d}"

    def flip_record(
        self,
        message: StoredMessage,
        values: Callable[[int], Iterable[int]] = flips,
        *,
        places: Iterable[int] | None = None,
    ) -> None:
        """Every byte of a message's record, or those at ``places``: its queue keeps its end, and gives that body or
        an error."""
        path, start = self.log_file(message.physical_offset), message.physical_offset % _LOG_FILE_SIZE
        data = path.read_bytes()
        whole = self.ends[message.topic, message.queue_id], [message.body]
        with StoreReader.open(self.path) as reader:
            for within in range(message.size) if places is None else places:
                for value in values(data[start + within]):
                    undo = damage_byte(path, start + within, value)
                    try:
                        found = outcome(lambda: _row(reader, message))
                    finally:
                        undo()
                    if _loses_compressed_bit(message, within, value) and not isinstance(found, CommitLogError):
                        assert (found[0], [zlib.decompress(body) for body in found[1]]) == whole
                        continue
                    assert isinstance(found, CommitLogError) or found == whole, (message, within, value)

    def flip_queue(
        self,
        topic: str,
        queue_id: int,
        values: Callable[[int], Iterable[int]] = flips,
        *,
        last: int | None = None,
    ) -> None:
        """Every byte of every unit of a queue, or of the ``last`` ones, and of two after them: all rows of the
        queue, or an error."""
        path = self.path / "consumequeue" / topic / str(queue_id) / f"{0:020d}"
        whole = [message.body for message in self.messages if (message.topic, message.queue_id) == (topic, queue_id)]
        data = path.read_bytes()
        first = 0 if last is None else len(whole) - last
        for at in range(first * UNIT_SIZE, (len(whole) + 2) * UNIT_SIZE):
            for value in values(data[at]):
                undo = damage_byte(path, at, value)
                try:
                    found = outcome(lambda: bodies(self.path, topic, queue_id))
                finally:
                    undo()
                assert isinstance(found, CommitLogError) or found == whole, (topic, queue_id, at, value)

    def index_keys(self) -> list[tuple[int, str, str]]:
        """Number, topic and key of the entries of the index, in the order in which they were written."""
        messages = sorted(self.messages, key=lambda message: message.physical_offset)
        by_place = {message.physical_offset: message for message in messages}
        (path,) = (self.path / "index").iterdir()
        data = path.read_bytes()
        count = int.from_bytes(data[36:40], "big")
        found = []
        for number in range(1, count):
            at = entry_offset(number, _SLOTS)
            message = by_place.get(int.from_bytes(data[at + 4 : at + 12], "big"))
            hashed = int.from_bytes(data[at : at + 4], "big")
            if message is not None:
                found += [(number, message.topic, key) for key in message.keys if _hash(message.topic, key) == hashed]
        return found

    def flip_index(
        self, entries: Iterable[tuple[int, str, str]], values: Callable[[int], Iterable[int]], *, header: bool
    ) -> None:
        """Every byte of entries and of the slots that lead to them, perhaps of the header too.

        A query gives no message that is not the key's, and none that is not as it was stored; it may give fewer: the
        hash and the time of an entry are only there.
        """
        (path,) = (self.path / "index").iterdir()
        data = path.read_bytes()
        with StoreReader.open(self.path) as reader:
            for number, topic, key in entries:
                whole = {message.physical_offset: message.body for message in reader.query(topic, key)}
                assert whole
                slot, entry = slot_offset(_hash(topic, key) % _SLOTS), entry_offset(number, _SLOTS)
                places = [*range(slot, slot + 4), *range(entry, entry + 20), *(range(HEADER_SIZE) if header else ())]
                for at in places:
                    for value in values(data[at]):
                        undo = damage_byte(path, at, value)
                        found = outcome(lambda: _query(reader, topic, key))  # noqa: B023
                        files = outcome(reader.index_files)
                        undo()
                        assert isinstance(found, CommitLogError) or found.items() <= whole.items(), (key, at, value)
                        assert not isinstance(files, CommitLogError) or isinstance(files, CorruptIndex)

    def flip_checkpoint(self, values: Callable[[int], Iterable[int]], step: int) -> None:
        """Every byte of the checkpoint's times, and one in ``step`` of the others: times, or an error.

        And all messages, since nothing else is made of it.
        """
        path = self.path / "checkpoint"
        data = path.read_bytes()
        first = self.messages[0]
        with StoreReader.open(self.path) as reader:
            for at in [*range(_CHECKPOINT_TIMES), *range(_CHECKPOINT_TIMES, len(data), step)]:
                for value in values(data[at]):
                    undo = damage_byte(path, at, value)
                    found = outcome(reader.checkpoint)
                    row = outcome(lambda: _row(reader, first))
                    undo()
                    assert not isinstance(found, CommitLogError) or isinstance(found, CorruptCheckpoint)
                    assert row == (self.ends[first.topic, first.queue_id], [first.body])


def _loses_compressed_bit(message: StoredMessage, within: int, value: int) -> bool:
    """Whether a compressed record without type bits, from before RocketMQ 5.0, then says that it is not compressed.

    No check finds that (docs/invariants.md).
    """
    packed_without_type = message.sys_flag & (COMPRESSED_FLAG | COMPRESSION_TYPE_MASK) == COMPRESSED_FLAG
    return packed_without_type and within == _LOW_SYS_FLAG and not value & COMPRESSED_FLAG


def _row(reader: StoreReader, message: StoredMessage) -> tuple[int, list[bytes]]:
    """The end of a message's queue, and the body at the message's offset."""
    end = reader.queue_info(message.topic, message.queue_id).max_offset
    offset = message.queue_offset
    batches = reader.read(message.topic, message.queue_id, offset, offset + 1, columns=["body"], verify_crc=True)
    return end, [body for batch in batches for body in batch["body"].to_pylist()]


def _query(reader: StoreReader, topic: str, key: str) -> dict[int, bytes]:
    return {message.physical_offset: message.body for message in reader.query(topic, key)}


def _hash(topic: str, key: str) -> int:
    return index_key_hash(f"{topic}#{key}")
