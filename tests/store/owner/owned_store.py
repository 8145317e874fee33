"""Small stores with an owner, their contents as readers see them, and ways to make the disk slow or bad."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from commitlog_store import (
    ALL_COLUMNS,
    FlushDiskType,
    Message,
    MessageExt,
    MessageStore,
    MessageStoreConfig,
    PutMessageResult,
    PutMessageStatus,
    StoreReader,
)
from commitlog_store.files import disk
from tests.support.waiting import WAIT_LIMIT_S

Row = dict[str, Any]
SYNC = FlushDiskType.SYNC_FLUSH


def small(**settings: Any) -> MessageStoreConfig:
    """Files of 16 KiB, queues of 50 units, small index files: everything rolls after a few messages."""
    sizes = {
        "mapped_file_size_commit_log": 16 << 10,
        "mapped_file_size_consume_queue": 50 * 20,
        "max_hash_slot_num": 100,
        "max_index_num": 400,
    }
    return MessageStoreConfig(**sizes | settings)


def open_store(path: Path, **settings: Any) -> MessageStore:
    return MessageStore.open(path, small(**settings))


def put_ok(store: MessageStore, topic: str = "orders", body: bytes = b"body", **fields: Any) -> PutMessageResult:
    """Put one message that has to be taken, into queue 0 unless another is named."""
    given: Row = {"topic": topic, "body": body, "queue_id": 0}
    result = store.put_message(Message(**given | fields))
    assert result.status is PutMessageStatus.PUT_OK, result
    return result


def rows(store: MessageStore | Path, topic: str = "orders", queue_id: int = 0) -> list[Row]:
    """Every row of a queue through a reader, all columns; what was put before is dispatched first."""
    if isinstance(store, MessageStore):
        store.dispatch()
    found = []
    with StoreReader.open(store.path if isinstance(store, MessageStore) else store) as reader:
        for batch in reader.read(topic, queue_id, 0, columns=ALL_COLUMNS, verify_crc=True):
            for row in batch.to_pylist():
                row["properties"] = dict(row["properties"])
                found.append(row)
    return found


def all_messages(reader: StoreReader) -> dict[tuple[str, int], list[MessageExt]]:
    """Every message of every queue, in the order of the queues."""
    found = {}
    for topic in reader.topics():
        for queue in reader.queues(topic):
            units = reader.units(topic, queue.queue_id, queue.min_offset, queue.max_offset)
            places = [int(unit["physical_offset"]) for block in units for unit in block]
            found[topic, queue.queue_id] = [reader.message_at(place) for place in places]
    return found


def commit_log_path(descriptor: int) -> str | None:
    """The CommitLog file that a descriptor has open; None for any other, and for one that is still being made."""
    path = Path(f"/proc/self/fd/{descriptor}").resolve()
    return str(path) if path.parent.name == "commitlog" and path.name.isdigit() else None


class Gate:
    """Stands before calls of ``files/disk.py`` that touch CommitLog files: shut, it holds the caller; broken, it fails.

    ``reached`` is set when a call came while it was shut; ``calls`` counts all.
    """

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()
        self.reached = threading.Event()
        self.calls = 0
        self.failure: OSError | None = None

    def shut(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def fail(self, number: int = errno.EIO) -> None:
        self.failure = OSError(number, "the disk is gone")

    def before(self, call: Callable[..., None]) -> Callable[..., None]:
        """The call that this gate holds; the descriptor is its first argument, or one by name."""

        def guarded(*arguments: Any, **named: Any) -> None:
            if commit_log_path(named.get("descriptor", arguments[0])) is not None:
                self._pass()
            call(*arguments, **named)

        return guarded

    def _pass(self) -> None:
        self.calls += 1
        if not self._open.is_set():
            self.reached.set()
            assert self._open.wait(WAIT_LIMIT_S), "the gate was not opened"
        if self.failure is not None:
            raise self.failure

    @classmethod
    @contextmanager
    def within(cls, monkeypatch: pytest.MonkeyPatch, *names: str) -> Iterator[Gate]:
        """A gate before ``disk.<name>``, open at first and open again in the end."""
        gate = cls()
        with monkeypatch.context() as patch:
            for name in names:
                patch.setattr(disk, name, gate.before(getattr(disk, name)))
            try:
                yield gate
            finally:
                gate.open()
