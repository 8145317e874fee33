"""All consume queues of a store in its owner's hands."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator

from commitlog.errors import NotAStore, TopicNotFound, UnsupportedStore
from commitlog.format.dispatch_request import QueueUnits
from commitlog.log.queue_catalog import QueueCatalog
from commitlog.log.queue_writer import OpenFiles, QueueWriter
from commitlog.paths import CONSUME_QUEUE

__all__ = ["QueueWriters"]


class QueueWriters:
    """One ``QueueWriter`` for each queue that was touched. Dispatch writes from one thread, another one flushes."""

    def __init__(self, store_path: str, file_size: int, catalog: QueueCatalog) -> None:
        self.path = os.path.join(store_path, CONSUME_QUEUE)
        self._file_size = file_size
        self._catalog = catalog
        self._open_files = OpenFiles()
        self._writers: dict[tuple[str, int], QueueWriter] = {}
        self._lock = threading.Lock()

    def known_queues(self) -> Iterator[tuple[str, int]]:
        """Every queue that has a directory. Topics that are kept another way are left alone."""
        for topic in self._catalog.topics():
            try:
                queue_ids = self._catalog.queue_ids(topic)
            except (TopicNotFound, UnsupportedStore):
                continue
            for queue_id in queue_ids:
                yield topic, queue_id

    def count(self) -> int:
        """How many queues there are."""
        return sum(1 for _ in self.known_queues())

    def highest_id(self, topic: str) -> int:
        """The highest id among a topic's queues; -1 when it has none."""
        with self._lock:
            try:
                ids = self._catalog.queue_ids(topic)
            except (TopicNotFound, UnsupportedStore):
                ids = []
        return max(ids, default=-1)

    def writer(self, topic: str, queue_id: int) -> QueueWriter:
        found = self._writers.get((topic, queue_id))
        if found is None:
            if topic in (".", "..") or "/" in topic or "\0" in topic or queue_id < 0:
                # The log of a store that somebody else wrote may name anything (invariant 10).
                raise NotAStore(
                    f"A message in the log names topic {topic!r}, queue {queue_id}, which cannot be a directory of "
                    f"{self.path}.",
                    path=self.path,
                )
            path = os.path.join(self.path, topic, str(queue_id))
            found = QueueWriter(path, topic, queue_id, self._file_size, self._open_files)
            self._writers[topic, queue_id] = found
        return found

    def next_offset(self, topic: str, queue_id: int) -> int:
        """The offset of the queue's next message; 0 for a queue that is not there yet."""
        with self._lock:
            return self._positioned(topic, queue_id).next_offset or 0

    def _positioned(self, topic: str, queue_id: int) -> QueueWriter:
        writer = self.writer(topic, queue_id)
        if writer.next_offset is None:
            writer.next_offset = 0 if writer.is_empty else self._catalog.bounds(topic, queue_id)[1]
        return writer

    def append(self, groups: Iterable[QueueUnits]) -> None:
        """Dispatch: add the units of each queue. ``CorruptConsumeQueue``, ``StoreIOError``."""
        with self._lock:
            for group in groups:
                self._positioned(group.topic, group.queue_id).append(group.queue_offsets, group.units)

    def rewrite(self, group: QueueUnits, *, from_start: bool) -> bool:
        """Recovery: ``QueueWriter.rewrite`` of the group's queue. Nobody else writes meanwhile."""
        return self.writer(group.topic, group.queue_id).rewrite(group.queue_offsets, group.units, from_start=from_start)

    def forget(self) -> None:
        """Look at every queue anew. ``StoreIOError``."""
        self.flush_all()
        with self._lock:
            self._writers = {}

    def flush(self, least_pages: int = 0) -> None:
        """Sync every queue that has at least that many dirty pages. ``StoreIOError``."""
        with self._lock:
            for writer in self._writers.values():
                if writer.dirty_pages >= max(least_pages, 1) or (not least_pages and writer.dirty_bytes):
                    writer.flush()

    def flush_all(self) -> None:
        """Sync every queue that was written, zeroed ends included. ``StoreIOError``."""
        with self._lock:
            for writer in self._writers.values():
                writer.flush()

    def reset(self) -> None:
        """Delete every queue file: they are to be built anew."""
        with self._lock:
            for topic, queue_id in list(self.known_queues()):
                self.writer(topic, queue_id).delete()
            self._writers = {}

    def close(self) -> None:
        with self._lock:
            self._open_files.close()
            self._writers = {}
