"""ReplicaLog: the log of a mirror, which takes another store's records as they are."""

from __future__ import annotations

from collections.abc import Callable

from commitlog.errors import CorruptRecord
from commitlog.recovery.open import OpenedLog
from commitlog.services.store_flush import StoreFlush

__all__ = ["ReplicaLog"]


class ReplicaLog:
    """The log of an open store in the role SLAVE. One thread appends."""

    def __init__(self, log: OpenedLog, store_flush: StoreFlush, on_appended: Callable[[], None]) -> None:
        self._log = log
        self._store_flush = store_flush
        self._on_appended = on_appended

    @property
    def file_size(self) -> int:
        return self._log.files.file_size

    @property
    def start(self) -> int:
        """The physical offset of the first byte that the log keeps."""
        return self._log.files.min_offset

    @property
    def end(self) -> int:
        """The physical offset after the last record, on the device or not."""
        return self._log.files.max_wrote

    @property
    def last_record(self) -> int:
        """The physical offset of the last record; -1 without one."""
        return self._log.writer.last_record

    @property
    def last_store_timestamp(self) -> int:
        """The store time of the last record, in ms; 0 without one."""
        return self._log.writer.last_store_timestamp

    def read(self, start: int, stop: int) -> bytes:
        """The log's bytes, whole records or not. ``CorruptRecord`` where the log has none."""
        parts = []
        while start < stop:
            file = self._log.files.find(start)
            if file is None:
                path = self._log.files.path
                raise CorruptRecord("Log", path=path, offset=start, expected="a file with it", found="none")
            end = min(stop, file.base + file.capacity)
            parts.append(file.read(start - file.base, end - start))
            start = end
        return b"".join(parts)

    def append(self, data: bytes, *, last_record: int, last_store_timestamp: int) -> None:
        """Append whole records of one file, or the end of one. ``DiskFull``: nothing is written. ``StoreIOError``."""
        self._log.writer.append_replica(data, last_record=last_record, last_store_timestamp=last_store_timestamp)
        self._on_appended()

    def flush(self) -> None:
        """Bring everything that was appended to the device. ``StoreIOError``."""
        self._store_flush.flush_log()
