"""ReplicaLog: the log of a mirror, which takes another store's records as they are."""

from __future__ import annotations

from collections.abc import Callable

from commitlog_store.engine.store_flush import StoreFlush
from commitlog_store.errors import CorruptRecord
from commitlog_store.files.frame_space import FrameSpace
from commitlog_store.format.record import FILLER_SIZE
from commitlog_store.recovery.open import OpenedLog


class ReplicaLog:
    """The log of an open store in the role SLAVE. One thread appends.

    A batch becomes a part of the log when all of it has come (invariant 11): until then its bytes lie after the end,
    as those of a commit do. So do those of a blank filler, which may be as long as a file. The first bytes of either
    are written last, so that what a killed process leaves is neither a frame nor a filler, and is received again:
    which of its bytes are missing follows no rule.
    """

    def __init__(self, log: OpenedLog, store_flush: StoreFlush, on_appended: Callable[[], None]) -> None:
        self._log = log
        self._store_flush = store_flush
        self._on_appended = on_appended
        # The batch, or the filler outside of a batch, that is being received, and the physical offset of its end; 0
        # between them.
        self._space: FrameSpace | None = None
        self.frame_end = 0
        # The physical offset of the end of the filler that is being received, in a batch or not; 0 between fillers.
        self.filler_end = 0
        # The first bytes of that batch or filler, until the rest is written.
        self._head = b""

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
    def flushed_end(self) -> int:
        """The physical offset after the last record that is on the device."""
        return min(self._log.files.flushed_where, self.end)

    @property
    def received_end(self) -> int:
        """The physical offset after the last byte that was appended: within a batch, after the log's end."""
        return self.end if self._space is None else self._space.position

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

    def append(self, data: bytes, *, last_record: int, last_store_timestamp: int, frame_end: int = 0) -> None:
        """Append whole records of one file. ``DiskFull``, ``StoreIOError``.

        With ``frame_end`` they are the frame record of a batch that ends there. What follows belongs to the batch up to
        that place, at which an append has to end.
        """
        if frame_end:
            data = self._begin(data, frame_end)
        if self._space is None:
            self._log.writer.append_replica(data, last_record=last_record, last_store_timestamp=last_store_timestamp)
            self._on_appended()
        else:
            self._write(self._space, data)
            if self._space.position >= self.frame_end:
                self._publish(self._space, last_record, last_store_timestamp)

    def append_filler(self, data: bytes, end: int) -> None:
        """Append the next bytes of a blank filler that ends a file at ``end``; the first ones have its header.
        ``DiskFull``, ``StoreIOError``.
        """
        if self._space is None:
            data = self._begin(data, end)
        space = self._space
        assert space is not None
        self.filler_end = end
        self._write(space, data)
        if space.position < end:
            return
        self.filler_end = 0
        if space.position >= self.frame_end:
            self._publish(space, -1, 0)

    def _begin(self, data: bytes, end: int) -> bytes:
        """Begin a batch or filler that ends at ``end``; returns the part of ``data`` to write now."""
        self._space, self.frame_end = self._log.writer.begin_replica_frame(), end
        self._space.skip(FILLER_SIZE)
        self._head = data[:FILLER_SIZE]
        return data[FILLER_SIZE:]

    def _write(self, space: FrameSpace, data: bytes) -> None:
        if not data:
            return
        if not space.room:
            space.next_file()
        space.write(data)

    def _publish(self, space: FrameSpace, last_record: int, last_store_timestamp: int) -> None:
        """All of a batch or filler has come: it is a part of the log. ``StoreIOError``."""
        space.write_at_start(self._head)
        self._forget_space()
        self._log.writer.end_replica_frame(space, last_record=last_record, last_store_timestamp=last_store_timestamp)
        self._on_appended()

    def drop_unfinished(self) -> None:
        """Remove the bytes of a batch or filler that is not whole: they will be received again. ``StoreIOError``."""
        space = self._forget_space()
        if space is not None:
            self._log.writer.discard_replica_frame(space)

    def _forget_space(self) -> FrameSpace | None:
        space, self._space = self._space, None
        self.frame_end = self.filler_end = 0
        self._head = b""
        return space

    def flush(self) -> None:
        """Bring everything that was appended to the device. ``StoreIOError``."""
        self._store_flush.flush_log()
