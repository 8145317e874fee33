"""SelectedLog: the messages of some topics, as a log of their own, which is archived like that of any store.

The records are those of the store's log, in its order and byte for byte, but for their PHYSICALOFFSET: they are moved
together into files of the size of the store's. PREPAREDTRANSACTIONOFFSET, which names a place in the store's log, is 0.
Frame records of batches are left out (``SelectedTopics``). The first file begins where the store's log did.

The newest generation says how far the store's log was read for the records that it has (``Selection``): both are
committed by one conditional put, so a run continues there, wherever another one was killed. The part of a file with
which the archive ends is filled further: it is in the work directory, or is downloaded. The same records give the same
bytes, so two archivers of the same topics make the same files.

Bytes that the store does not have any more, or that are damaged, leave a gap as large in this log, from the next file
on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from commitlog_store.archive.log_files import LogSource, Ready
from commitlog_store.archive.manifest import Manifest, Selection
from commitlog_store.archive.moved_deletions import MovedDeletions
from commitlog_store.archive.refusals import file_before, refuse_other_source, sums_before
from commitlog_store.archive.restore import download
from commitlog_store.archive.segments import LastOfFile, last_of_file
from commitlog_store.archive.selected_copy import SelectedCopy
from commitlog_store.archive.selected_topics import SelectedTopics
from commitlog_store.batch.frames import frames_in
from commitlog_store.columnar.moved_records import moved_records
from commitlog_store.columnar.scan import RecordScan
from commitlog_store.errors import ArchiveGap
from commitlog_store.format.arrays import Int64Array
from commitlog_store.log.past_damage import Gap, walk_past_damage
from commitlog_store.object_storage.object_store import ObjectStore
from commitlog_store.paths import BATCH_TOPIC, DELETED_TOPICS

_BLOCK_SIZE = 16 << 20
# Files of the store that a call reads: what it has found by then is archived, so that a kill does not lose more.
_MOST_FILES = 64


class SelectedLog:
    """The log of ``topics`` of the store with the log ``store``, from the newest generation of an archive on.

    Its owner closes it, and ``store``. ``copy`` reads the file that is being made, and ``selection`` says what it was
    made of.
    """

    def __init__(
        self,
        store: LogSource,
        objects: ObjectStore,
        topics: SelectedTopics,
        work_dir: str | None,
        *,
        until_ms: int | None,
        allow_gap: bool,
    ) -> None:
        """``InvalidValue`` and ``StoreLocked`` for a work directory that is not one, or is another archiver's."""
        self.topics = topics
        self.selection: Selection | None = None
        self._store = store
        self._objects = objects
        self._work_dir = work_dir
        self._taken = (*store.paths.directories, *filter(None, (objects.directory,)))
        self._file = SelectedCopy.open(work_dir, self._taken)
        self.copy = LogSource(self._file.paths)
        self._until_ms = until_ms
        self._allow_gap = allow_gap
        # All of this generation is in the file, or in the files before it; -1 before the first call.
        self._generation = -1
        # Where to read the store's log, and the place after the last record before that.
        self._position = self._tail_stop = 0
        # Such a place, and the checksums before it, by which the next run knows the store again.
        self._mark = (0, 0, 0)
        # Whether the last call ended before the log did.
        self.has_more = False
        # The batch that was read last: where it ends in the store's log, and the place here of its first record.
        self._batch = (0, 0)
        # What the archive says of deleted topics, and how that follows from what the store says.
        self._deleted = MovedDeletions()
        # What was found out last about a file of the store, from the place on where it was read then: its first byte,
        # how much of it, and what that has.
        self._looked: tuple[int, int, LastOfFile] = (-1, 0, LastOfFile(-1, None))

    @property
    def config_directory(self) -> str:
        """The directory that has the config files of the topics in ``config/``."""
        return self._file.paths.root

    def take(self, newest: Manifest | None, *, with_last: bool) -> bool:
        """Read on in the store's log, until a file is full, or there is no more. Whether ``newest`` lacks a record.

        A call reads ``_MOST_FILES`` files of the store at most. ``has_more`` is true when it ended before the log did.

        ``ArchiveMismatch`` for another store than before, ``ArchiveGap`` where its log has a gap, unless this is
        allowed: once all before it is archived; ``TargetFailed``; the errors of reading a store and of a download.
        """
        if not self._file.is_whole:
            self._open_again()
        try:
            return self._take(newest, with_last=with_last)
        except BaseException:
            self._generation = -1  # the file may have records after the position that was stored
            raise

    def _take(self, newest: Manifest | None, *, with_last: bool) -> bool:
        size = self._store.file_size if newest is None else newest.file_size
        if not size:
            return False
        if newest is not None and newest.selection is not None:
            refuse_other_source(self._objects, self._store, newest.selection, size)
        if not self._has_all_of(newest):
            self._continue_from(newest, size)
        if self._file.is_full and newest is not None and newest.stop == self._file.end:
            self._file.begin(self._file.end, size)
        files = 0
        while not self._file.is_full and files < _MOST_FILES and self._take_file(newest, size, with_last=with_last):
            files += 1
        self.has_more = self._file.is_full or files == _MOST_FILES
        self._note_tail(size)
        self.selection = Selection(
            topics=self.topics.patterns,
            source_stop=self._position,
            tail_stop=self._mark[0],
            head_crc32=self._mark[1],
            tail_crc32=self._mark[2],
            batch_stop=self._batch[0] if self._is_within_batch else 0,
            next_start=self._file.base if self._file.is_empty else 0,
        )
        return self._is_ahead(newest)

    def write_config(self) -> None:
        """Write the config files of the topics, to be archived with what was taken."""
        files = self.topics.config_files(self._store.paths.root)
        deleted = self._deleted.encoded(self._file.end)
        self._file.write_config(files if deleted is None else {**files, DELETED_TOPICS: deleted})

    @property
    def open_batch(self) -> tuple[int, int] | None:
        """``Manifest.open_batch``: the first record's place of a batch of which the next file has more."""
        place = self._batch[1]
        return (place, self._file.end + 1) if self._is_within_batch and place < self._file.end else None

    @property
    def _is_within_batch(self) -> bool:
        """Whether the file is full and the next record is of the same batch as the one before."""
        return self._file.is_full and self._position < self._batch[0]

    def is_worth_a_note(self, newest: Manifest) -> bool:
        """Whether the store's log was read on for a file or more, or past a gap, and had no record of the topics.

        Without a note of it, the next run would read that again, or report a gap that is none, or was allowed.
        """
        known, size = newest.selection, newest.file_size
        if known is None:
            return False
        is_after_gap = self._file.is_empty and self._file.base > max(newest.stop, known.next_start)
        return is_after_gap or self._position // size > known.source_stop // size

    def close(self) -> None:
        """Close the file that is being made, and release the work directory."""
        self.copy.close()
        self._file.close()

    def _open_again(self) -> None:
        """Make the work directory again, of which a part is gone: temporary ones are cleaned while a run waits."""
        self.copy.close()
        self._file.close()
        self._generation = -1
        self._file = SelectedCopy.open(self._work_dir, self._taken)
        self.copy = LogSource(self._file.paths)

    def _has_all_of(self, newest: Manifest | None) -> bool:
        """Whether the file continues the newest generation, which may be what it was made for."""
        generation = 0 if newest is None else newest.generation
        if self._generation == generation or (
            newest is not None
            and self._generation >= 0
            and newest.selection == self.selection
            and newest.stop in (self._file.end, self._file.base)
        ):
            self._generation = generation
            return True
        return False

    def _continue_from(self, newest: Manifest | None, size: int) -> None:
        """Begin with what the newest generation says."""
        self._deleted = MovedDeletions(self._archived(newest, DELETED_TOPICS))
        if newest is None or newest.selection is None:
            self._position = self._tail_stop = self._store.bases()[0]
            self._file.begin(self._position, size)
            self._batch = (0, 0)
        else:
            known, last = newest.selection, newest.segments[-1]
            self._position, self._tail_stop = known.source_stop, known.tail_stop
            self._mark = known.tail_stop, known.head_crc32, known.tail_crc32
            if last.log.size < size and not known.next_start:
                self._file.begin(last.start, size, last.log, partial(download, self._objects))
            else:
                self._file.begin(max(last.stop, known.next_start), size)
            self._batch = (known.batch_stop, self._file.end if newest.open_batch is None else newest.open_batch[0])
        self._generation = 0 if newest is None else newest.generation

    def _archived(self, newest: Manifest | None, name: str) -> bytes | None:
        """A config file as the newest generation has it."""
        ref = None if newest is None else newest.config.get(name)
        return None if ref is None else b"".join(download(self._objects, ref))

    def _is_ahead(self, newest: Manifest | None) -> bool:
        """Whether the file has records that the newest generation lacks."""
        return self._file.end > max(self._file.base, 0 if newest is None else newest.stop)

    def _take_file(self, newest: Manifest | None, size: int, *, with_last: bool) -> bool:
        """Take the records of one file of the store. Whether there may be more to take."""
        base = self._position - self._position % size
        try:
            found = self._rest_of_batch(base, size) or self._store.ready(base, size, with_last=with_last)
        except ArchiveGap as gap:
            return self._pass_gap(newest, size, gap)
        if found is None:
            return False
        try:
            limit = self._limit(found)
            if limit <= self._position:
                return False
            # After the limit: topics that are deleted from now on have no message in what is read after that.
            self._deleted.look(self._store.paths.root, self.topics, self._position)
            gap_found = self._walk(limit)
        finally:
            found.file.close()
        if gap_found is None:
            return True
        path = self._store.log.path_of(base)
        return self._pass_gap(
            newest,
            size,
            ArchiveGap(
                f"{path} cannot be read from physical offset {gap_found.start} to {gap_found.stop}: "
                f"{gap_found.reason}. An archive of topics with this gap is continued with allow_gap (--allow-gap); "
                "'commitlog verify' says more.",
                start=gap_found.start,
                stop=gap_found.stop,
            ),
        )

    def _rest_of_batch(self, base: int, size: int) -> Ready | None:
        """The file at ``base`` up to the end of a batch that was found to be whole, and is taken in part so far."""
        if self._position >= self._batch[0]:
            return None
        file = self._store.open(base)
        return None if file is None else Ready(file, min(size, self._batch[0] - base), is_closed=False)

    def _limit(self, found: Ready) -> int:
        """Up to where to read, from a file that may be archived: with all of its last batch. Its start for nothing."""
        base, stop = found.file.base, max(found.file.base + found.size, self._batch[0])
        if self._looked[:2] != (base, found.size):
            last = last_of_file(found.file, max(self._position, base), found.size)
            self._looked = (base, found.size, last)
        last = self._looked[2]
        if self._until_ms is not None and last.timestamp_ms >= self._until_ms:
            return base
        if last.frame is None or last.frame.end <= stop:
            return stop
        return last.frame.end if self._store.holds_whole(last.frame) else base

    def _walk(self, limit: int) -> Gap | None:
        """Take records up to a physical offset, a gap, which is returned, or the file's end."""
        for part in walk_past_damage(self._store.log, self._position, limit, block_size=_BLOCK_SIZE):
            if isinstance(part, Gap):
                return part
            codes, topics = part.topics
            chosen = np.array([topic in self.topics for topic in topics])
            if not self._append(part, np.flatnonzero(chosen[codes]), limit):
                return None
            self._position = self._tail_stop = part.physical_offset + part.end
        self._position = limit
        return None

    def _append(self, scan: RecordScan, rows: Int64Array, limit: int) -> bool:
        """Append rows of a scan, of a walk up to ``limit``, to the file; False when it is full before one of them."""
        ends = np.cumsum(scan.sizes[rows])
        begun = self._file.end
        count = int(np.searchsorted(ends, self._file.room, side="right"))
        if count:
            taken = rows[:count]
            places = begun + ends[:count] - scan.sizes[taken]
            offsets = scan.field("queue_offset")[taken].astype(np.int64)
            self._file.append(moved_records(scan, taken, offsets, places, lambda _: 0))
        is_full = count < len(rows)
        stop = int(scan.positions[rows[count]]) if is_full else scan.end

        def place_after(row: int) -> int:
            return begun + int(np.concatenate(([0], ends))[np.searchsorted(rows, row)])

        self._note_batch(scan, stop, limit, place_after)
        for place in self._deleted.places_before(scan.physical_offset + stop):
            row = int(np.searchsorted(scan.positions, place - scan.physical_offset))
            self._deleted.set_place(place, place_after(row))
        if is_full:
            self._file.fill()
            self._position = self._tail_stop = scan.physical_offset + stop
        return not is_full

    def _note_batch(self, scan: RecordScan, stop: int, limit: int, place_after: Callable[[int], int]) -> None:
        """Note the last batch that begins in a scan before ``stop``, and where the first record after its frame is.

        A walk goes to the end of every batch, so what claims to end after that is not one.
        """
        if BATCH_TOPIC not in scan.topics[1]:
            return
        frames = frames_in(scan)
        begun = [one for one in frames if one.physical_offset < scan.physical_offset + stop and one.end <= limit]
        if begun:
            row = int(np.searchsorted(scan.positions, begun[-1].physical_offset - scan.physical_offset))
            self._batch = (begun[-1].end, place_after(row))

    def _note_tail(self, size: int) -> None:
        """Let the next run know the store by what was read last, unless retention has taken that file."""
        if self._tail_stop != self._mark[0]:
            base = file_before(self._tail_stop, size)
            sums = self._store.look_at(base, partial(sums_before, self._tail_stop))
            self._mark = self._mark if sums is None else (self._tail_stop, *sums)

    def _pass_gap(self, newest: Manifest | None, size: int, gap: ArchiveGap) -> bool:
        """Continue after a gap in the next file, as many bytes further. ``ArchiveGap`` if that is not allowed.

        False while the records before it are not archived: they come first.
        """
        if self._is_ahead(newest):
            return False
        if not self._allow_gap:
            raise gap
        lost = gap.stop - self._position
        self._position = gap.stop
        after = 0 if newest is None else _up(newest.stop, size)
        self._file.begin(max(after, self._file.base) + _up(lost, size), size)
        return True


def _up(number: int, size: int) -> int:
    """The next multiple of a file's size."""
    return -(-number // size) * size
