"""Files of a live store's log that may be archived: which are closed for good, and how far the last one is written.

Nothing is locked or written in the store's directory; its owner, perhaps a broker, continues beside it.

- A file is *closed* once the next one has a record: records are appended in order, so all of the closed file's are
  complete. (A broker makes files ahead; that a next one exists says nothing.)
- A frame that ends in the next file must be whole there: recovery cuts off a frame that is not, from its own start.
- What is archived is brought to the device first, which the owner may do only seconds later: else a power cut could
  take it back, and other records would come in its place. A sync needs no permission to write, and changes no file.
- Of the last file, beside an owner, a batch that is still being dispatched is left out, and the last record until a
  queue leads to it: it may be half written before.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from commitlog_store.archive.segments import written_records
from commitlog_store.batch.frames import FoundFrame, is_whole
from commitlog_store.batch.visibility import GateReader
from commitlog_store.errors import ArchiveGap, CommitLogError, FileChanged
from commitlog_store.files import disk
from commitlog_store.files.mapped_file import MappedFile
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.format.record import RECORD_PREFIX_SIZE
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.paths import ABORT
from commitlog_store.queue.catalog import QueueCatalog

_Found = TypeVar("_Found")


class Ready(NamedTuple):
    """A file to archive, open, and how many of its bytes: all of a closed one."""

    file: MappedFile
    size: int
    is_closed: bool


class LogSource:
    """The log of the store at ``paths``, as an archiver reads it."""

    def __init__(self, paths: StorePaths) -> None:
        self.paths = paths
        self.log = CommitLog(paths.commit_log)
        self._gate = GateReader(paths.root)
        self._queues = QueueCatalog(paths.root, self.log)

    def bases(self) -> list[int]:
        """Where the files begin that exist now. ``LogNotFound`` when there were some before."""
        self.log.refresh()
        return list(self.log.bases)

    def topics(self) -> list[str]:
        """The topics that have queues."""
        return self._queues.topics()

    def last_written(self, bases: list[int]) -> int:
        """Where the file begins that is being written: the last one with a record."""
        return next((base for base in reversed(bases) if self._has_record(base)), bases[0])

    @property
    def file_size(self) -> int:
        """The size of the log's files, which is that of the first one; 0 without files."""
        sizes = (disk.file_size(self.log.path_of(base)) for base in self.bases())
        return next(filter(None, sizes), 0)  # retention may remove the first ones between two calls

    def open(self, base: int) -> MappedFile | None:
        """The file that begins there; None when it does not exist (any more). It can be read though it is deleted."""
        try:
            return MappedFile.open(self.log.path_of(base), base)
        except FileNotFoundError:
            return None

    def look_at(self, base: int, look: Callable[[MappedFile], _Found]) -> _Found | None:
        """What ``look`` finds in the file that begins there; None when it does not exist (any more)."""
        file = self.open(base)
        if file is None:
            return None
        try:
            return look(file)
        finally:
            file.close()

    def ready(self, base: int, file_size: int, *, with_last: bool) -> Ready | None:
        """The file that begins there, if all of it is to be archived, or with ``with_last`` a part of it.

        None when there is nothing to archive yet; else the caller closes the file. ``ArchiveGap`` when retention took
        it, ``FileChanged`` when it has another size than the log's files.
        """
        bases = self.bases()
        if not bases or base > bases[-1]:
            return None
        file = self.open(base)
        if file is None:
            later = [one for one in self.bases() if one > base]
            raise gap(self.log.path, base, later[0] if later else base + file_size)
        try:
            found = self._part(file, file_size, with_last=with_last)
        except BaseException:
            file.close()
            raise
        if found is None:
            file.close()
        return found

    def _part(self, file: MappedFile, file_size: int, *, with_last: bool) -> Ready | None:
        if self._has_record(file.base + file_size):
            if file.capacity != file_size:
                raise FileChanged(
                    f"{file.path} has {file.capacity} bytes, and the files of this log have {file_size}: a part is "
                    "missing. Restore it, or run 'commitlog salvage'.",
                    path=file.path,
                )
            file.sync()
            return Ready(file, file_size, True)
        end = self._written_end(file) if with_last else file.base
        if end == file.base:
            return None
        file.sync()
        return Ready(file, end - file.base, False)

    def _has_record(self, base: int) -> bool:
        """Whether the file that begins there exists, and a record was begun in it."""
        return self.look_at(base, lambda file: any(file.read(0, RECORD_PREFIX_SIZE))) or False

    def _written_end(self, file: MappedFile) -> int:
        """The end of the part of the last file that nothing takes back."""
        gate = self._gate.look()
        limit = file.base + file.capacity
        if not gate.is_open:
            limit = min(limit, max(gate.start, file.base))
        written = written_records(file, limit)
        end = written.last_record if self._may_be_half_written(written.last_record) else written.end
        frame = written.last_frame
        return end if frame is None or frame.end <= end else min(end, frame.physical_offset)

    def _may_be_half_written(self, last_record: int) -> bool:
        """Whether an owner may be writing the log's last record. Owners dispatch a record once it is complete."""
        if not disk.exists(os.path.join(self.paths.root, ABORT)):
            return False
        try:
            self.log.refresh()
            record = self.log.read_record(last_record)
            queue = self._queues.queue(record.topic.decode(), record.queue_id)
            queue.bounds()  # looks for new units
            return queue.unit(record.queue_offset) != (last_record, record.total_size)
        except (CommitLogError, UnicodeDecodeError):  # also without the queue
            return True

    def holds_whole(self, frame: FoundFrame) -> bool:
        """Whether a batch whose frame reaches into later files is whole in them, on the device too."""
        self.log.refresh()
        if not is_whole(self.log, frame):
            return False
        for base in self.bases():
            if frame.physical_offset < base < frame.end:
                self.look_at(base, MappedFile.sync)
        return True

    def close(self) -> None:
        self.log.close()
        self._gate.close()


def gap(log_path: str, start: int, stop: int) -> ArchiveGap:
    """The error for files that are gone before they were archived."""
    return ArchiveGap(
        f"{log_path} has no bytes from physical offset {start} to {stop} any more: retention deleted them before they "
        f"were archived. An archive with this gap is continued with allow_gap (--allow-gap); let retention keep files "
        "for longer, or archive more often.",
        start=start,
        stop=stop,
    )
