"""Saved ends of queues: the file ``<store>/savedends``, by which a queue need not be opened to know its end.

Its owner writes it when it closes a store with many queues. Big-endian::

    0        4        8            16          32         40         48       52       56       60
    +--------+--------+------------+-----------+----------+----------+--------+--------+--------+-- - - --+
    | MAGIC  | CRC-32 | GENERATION | BOOT ID   | DEVICE   | INODE    | TOPICS | QUEUES | FILES  | tables  |
    | "PYSF" | of the | named by   | of the    | of the directory    | rows of the three tables |         |
    |        | rest   | the mark   | machine   | consumequeue        |        |        |        |         |
    +--------+--------+------------+-----------+----------+----------+--------+--------+--------+-- - - --+

    topic:  INODE 8, CHANGED 8, QUEUES 4
    queue:  QUEUE ID 4, INODE 8, CHANGED 8, END 8, LAST PLACE 8, LAST SIZE 4, FIRST PLACE 8, FILES 4
    file:   FIRST BYTE 8, INODE 8, SIZE 8, CHANGED 8

The rows of all topics come first, then those of all queues, topic by topic, then those of all files, queue by queue,
then the names of the topics with a slash between them.

An entry is a claim: while the directory and the files have these inodes, sizes and times of change, the queue ends at
END, and its last unit leads to the record of LAST SIZE bytes at LAST PLACE. It is compared with the directory and the
files each time, so it proves itself, whichever program has written the queue since. CHANGED is 0 where the time cannot
prove anything: of what had changed just before it was looked at, a later change may have the same time.

Which file may be used at all, and why, is in docs/decisions/0038-saved-ends.md.
"""

from __future__ import annotations

import os
import stat
import struct
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from itertools import compress, groupby, repeat
from operator import attrgetter, eq
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from commitlog_store.errors import CommitLogError
from commitlog_store.files import disk
from commitlog_store.files.whole_file import replace_file
from commitlog_store.format.checksum import crc32
from commitlog_store.format.consume_queue_unit import FILLER_SIZE, UNIT_SIZE, unit_place
from commitlog_store.log.store_checkpoint import mark_if_readable
from commitlog_store.paths import (
    ABORT,
    CHECKPOINT,
    CONSUME_QUEUE,
    SAVED_ENDS,
    file_name_for_offset,
    is_queue_id,
    parse_file_name,
)
from commitlog_store.queue.written_units import last_written, written_units

Bools: TypeAlias = npt.NDArray[np.bool_]
Rows: TypeAlias = npt.NDArray[np.int64]

# With fewer queues no file is written: looking at them takes a few milliseconds.
_LEAST_QUEUES = 256
_MAGIC = b"PYSF"
_HEADER = struct.Struct(">4sIQ16sQQIII")
_TOPIC = struct.Struct(">QqI")
_QUEUE = struct.Struct(">IQqqqiqI")
_FILE = struct.Struct(">qQqq")
_AFTER_CRC = 8
_BETWEEN_NAMES = "/"


def _rows_of(row: struct.Struct, *names: str) -> np.dtype[np.void]:
    """A table's rows as numpy reads them."""
    return np.dtype([(name, f">{code}") for name, code in zip(names, row.format[1:], strict=True)])


_TOPIC_ROWS = _rows_of(_TOPIC, "inode", "changed_ns", "queues")
_QUEUE_ROWS = _rows_of(
    _QUEUE, "queue_id", "inode", "changed_ns", "end", "last_place", "last_size", "first_place", "files"
)
_FILE_ROWS = _rows_of(_FILE, "base", "inode", "size", "changed_ns")
# Topics that are compared in one step.
_COMPARED_AT_ONCE = 256
# What is compared of a directory, and of a file.
_OF_DIRECTORY = attrgetter("st_ctime_ns", "st_ino", "st_dev")
_OF_FILE = attrgetter("st_ctime_ns", "st_ino", "st_dev", "st_size")
# A time stamp moves in ticks, of 10 ms at most where it has nanoseconds, and of up to 2 s where it has not.
_TICKS_NS = 100_000_000
_COARSE_NS = 2_000_000_000
_COARSE_UNIT_NS = 10_000_000
# The first units that decide whether a queue begins with messages that the log has.
_FIRST_UNITS = 3
# A reader that has a file in memory looks again whether it is still the one to use.
_LOOK_AGAIN_S = 1.0


class SavedFile(NamedTuple):
    """One file of a queue. ``base`` is the byte of the queue that it begins with."""

    base: int
    inode: int
    size: int
    changed_ns: int


class LastUnit(NamedTuple):
    """Where a queue's last unit is: ``base`` is the byte of the queue that its last file begins with, ``end`` the next
    queue offset. The unit leads to ``size`` bytes at ``place`` of the log.
    """

    base: int
    end: int
    place: int
    size: int


class SavedEnd(NamedTuple):
    """What is known of a queue while ``holds`` is true. Places are physical offsets.

    ``end`` is the next queue offset. ``first_place`` is that of the first message; -1 if it is not sound.
    ``packed_files`` are the bytes of ``files``: most looks need no more of them than a comparison.
    """

    device: int
    inode: int
    changed_ns: int
    end: int
    last_place: int
    last_size: int
    first_place: int
    packed_files: bytes

    @property
    def files(self) -> list[SavedFile]:
        """The files, in order."""
        return [SavedFile._make(file) for file in _FILE.iter_unpack(self.packed_files)]

    @property
    def extents(self) -> list[tuple[int, int]]:
        """Of each file, the byte of the queue that it begins with, and its size."""
        return [(base, size) for base, _, size, _ in _FILE.iter_unpack(self.packed_files)]

    @property
    def last_base(self) -> int:
        """The byte of the queue that its last file begins with."""
        return int.from_bytes(self.packed_files[-_FILE.size :][:8], "big")

    @property
    def last_unit(self) -> LastUnit:
        """The queue's last unit."""
        return LastUnit(self.last_base, self.end, self.last_place, self.last_size)

    @property
    def start(self) -> int:
        """The first offset with a place in a file."""
        return int.from_bytes(self.packed_files[:8], "big") // UNIT_SIZE

    def holds(self, path: str) -> os.stat_result | None:
        """What the system says of the queue's directory if nothing in it has changed; None otherwise."""
        device, inode, changed_ns = self.device, self.inode, self.changed_ns
        found = disk.stamp(path) if changed_ns > 0 else None
        if found is None or found.st_ctime_ns != changed_ns or found.st_ino != inode or found.st_dev != device:
            return None
        for base, file_inode, size, file_changed_ns in _FILE.iter_unpack(self.packed_files):
            file = disk.stamp(f"{path}/{base:020d}")
            if file is None or file.st_ctime_ns != file_changed_ns or file.st_size != size:
                return None
            if file.st_ino != file_inode or file.st_dev != device:
                return None
        return found

    def last_unit_is_unchanged(self, path: str) -> bool:
        """Whether the queue's last unit is the one that is saved, and none follows it: what the times do not show of a
        write through a mapping.
        """
        base = self.last_base
        try:
            descriptor = disk.open_file(f"{path}/{base:020d}")
            try:
                data = disk.read_at(descriptor, 2 * UNIT_SIZE, (self.end - 1) * UNIT_SIZE - base)
            finally:
                disk.close(descriptor)
        except (OSError, CommitLogError):
            return False
        return unit_place(data[:UNIT_SIZE]) == (self.last_place, self.last_size) and not any(data[UNIT_SIZE:])


class EncodedTopics(NamedTuple):
    """The rows of topics, of their queues and of the files of these, as bytes."""

    topics: bytes
    queues: bytes
    files: bytes


class ManyEnds(NamedTuple):
    """What ``SavedEnd`` has of one queue, of many: the first offsets, the next ones, and places."""

    starts: Rows
    ends: Rows
    first_places: Rows
    last_places: Rows
    last_sizes: Rows


class SavedTopic:
    """What is known of a topic: the entries of its queues, which are all while ``holds`` is true."""

    __slots__ = ("_changed_ns", "_ends", "_inode", "_rows", "_saved")

    def __init__(self, saved: SavedEnds, row: int) -> None:
        """``row`` is the topic's in the table of topics."""
        self._saved = saved
        self._inode, self._changed_ns, _ = saved.topic_row(row)
        self._rows = saved.rows_of_queues(row)
        self._ends: dict[int, SavedEnd] | None = None

    @property
    def ends(self) -> dict[int, SavedEnd]:
        """The entries by queue id."""
        if self._ends is None:
            self._ends = dict(map(self._saved.end_at, self._rows))
        return self._ends

    @property
    def queue_ids(self) -> list[int]:
        """The ids of its queues, sorted."""
        return self._saved.queue_ids_at(self._rows) if self._ends is None else list(self._ends)

    def holds(self, path: str) -> bool:
        """Whether no queue was added to the topic's directory, or removed."""
        found = disk.stamp(path) if self._changed_ns > 0 else None
        if found is None or found.st_ctime_ns != self._changed_ns:
            return False
        return found.st_ino == self._inode and found.st_dev == self._saved.device


class Unchanged:
    """What had not changed when all entries were compared."""

    def __init__(self, saved: SavedEnds, directories: Bools, topics: Bools, queues: Bools) -> None:
        """``topics`` says of each topic whether nothing in its directories has changed, ``directories`` whether no
        queue came to it or went, and ``queues`` of each queue whether nothing in it has changed.
        """
        self._saved = saved
        self._directories = directories
        self._in_topics = np.repeat(topics, saved.topic_rows["queues"])
        self.topics = {name for name, is_same in zip(saved.topics(), topics.tolist(), strict=True) if is_same}
        self.queues = queues

    def topic(self, name: str) -> SavedTopic | None:
        """The entries of a topic in whose directories nothing has changed; None for others."""
        return self._saved.topic(name) if name in self.topics else None

    def ids(self, topics: Iterable[str]) -> dict[str, list[int]]:
        """``SavedEnds.unchanged_ids``, as of this comparison."""
        same, row_of = self._directories.tolist(), self._saved.row
        return self._saved.ids_by_topic((one, row) for one in topics if (row := row_of(one)) is not None and same[row])

    def file_sizes(self) -> dict[int, int]:
        """The number of files of each size, in the unchanged topics."""
        of_files = np.repeat(self._in_topics, self._saved.queue_rows["files"])
        sizes, counts = np.unique(self._saved.file_rows["size"][of_files], return_counts=True)
        return dict(zip(sizes.tolist(), counts.tolist(), strict=True))

    def ends(self) -> tuple[list[int], list[int]]:
        """Of each queue in the unchanged topics, the byte at which its last file ends, and its next offset."""
        last = np.array(self._saved.first_files[1:], np.int64)[self._in_topics] - 1
        files = self._saved.file_rows[last]
        # As Python's integers: the places of a queue may be as large as numpy's, and are added up.
        return (files["base"] + files["size"]).tolist(), self._saved.queue_rows["end"][self._in_topics].tolist()

    def several_files(self) -> Iterator[tuple[tuple[str, int], list[tuple[int, int]]]]:
        """The queues with several files, in the unchanged topics, and their ``SavedEnd.extents``."""
        several = self._in_topics & (self._saved.queue_rows["files"] > 1)
        for row in np.flatnonzero(several).tolist():
            queue_id, end = self._saved.end_at(row)
            yield (self._saved.topic_of(row), queue_id), end.extents


class SavedEnds:
    """The content of the file, in memory. Entries are decoded when they are asked for."""

    def __init__(self, store_path: str, data: bytes) -> None:
        """``ValueError`` for bytes that are not whole, or of another directory."""
        magic, crc, generation, boot, device, inode, topics, queues, files = _HEADER.unpack_from(data)
        if magic != _MAGIC or crc != crc32(memoryview(data)[_AFTER_CRC:]):
            raise ValueError("not a whole file of saved ends")
        self.generation: int = generation
        self.device: int = device
        self._inode: int = inode
        # Whether an entry that was used may be compared and used again: a mapped write might have no time of its own.
        self.shows_all_writes = disk.shows_mapped_writes(device)
        self._boot: bytes = boot
        self._store_path, self._root = store_path, os.path.join(store_path, CONSUME_QUEUE)
        self._data = data
        self._queues_at = _HEADER.size + topics * _TOPIC.size
        self._files_at = self._queues_at + queues * _QUEUE.size
        names_at = self._files_at + files * _FILE.size
        self.topic_rows = np.frombuffer(data, _TOPIC_ROWS, topics, _HEADER.size)
        self.queue_rows = np.frombuffer(data, _QUEUE_ROWS, queues, self._queues_at)
        self.file_rows = np.frombuffer(data, _FILE_ROWS, files, self._files_at)
        self._queue_ids = self.queue_rows["queue_id"]
        # The first queue of each topic, and the first file of each queue; then the number of all.
        self.first_queues = _firsts(self.topic_rows["queues"])
        self.first_files = _firsts(self.queue_rows["files"])
        self._queue_firsts, self._file_firsts = np.array(self.first_queues), np.array(self.first_files)
        self._row = {name: row for row, name in enumerate(data[names_at:].decode().split(_BETWEEN_NAMES))}
        if (len(self._row), self.first_queues[-1], self.first_files[-1]) != (topics, queues, files):
            raise ValueError("tables whose sizes contradict the header")
        self._names = list(self._row)
        self._begin()

    def _begin(self) -> None:
        """Begin a look at the store. ``ValueError`` if the directory of its queues is not the one of these entries."""
        directory = disk.stamp(self._root)
        if directory is None or (directory.st_dev, directory.st_ino) != (self.device, self._inode):
            raise ValueError("saved ends of another directory")
        self._last: tuple[int, SavedTopic | None] = (-1, None)
        self._compared: Unchanged | None = None
        self._looked_at_s = time.monotonic()

    def again(self) -> SavedEnds:
        """The same content for another look at the store, without what was compared. ``ValueError`` as above."""
        (found := copy(self))._begin()
        return found

    @property
    def is_of_this_boot(self) -> bool:
        """Whether the machine has not been started since."""
        return any(self._boot) and self._boot == disk.boot_id()

    def topics(self) -> Sequence[str]:
        """The topics with entries, in the order of their rows."""
        return self._names

    def topic_of(self, queue_row: int) -> str:
        """The topic of the queue in a row of the table of queues."""
        return self._names[bisect_right(self.first_queues, queue_row) - 1]

    def topic_row(self, row: int) -> tuple[int, int, int]:
        """The inode, time of change and number of queues in a row of the table of topics."""
        return _TOPIC.unpack_from(self._data, _HEADER.size + row * _TOPIC.size)

    def rows_of_queues(self, topic_row: int) -> range:
        """The rows of a topic's queues."""
        return range(self.first_queues[topic_row], self.first_queues[topic_row + 1])

    def end_at(self, row: int) -> tuple[int, SavedEnd]:
        """The queue id and the entry in a row of the table of queues."""
        queue_id, *entry, files = _QUEUE.unpack_from(self._data, self._queues_at + row * _QUEUE.size)
        at = self._files_at + self.first_files[row] * _FILE.size
        return queue_id, SavedEnd._make((self.device, *entry, self._data[at : at + files * _FILE.size]))

    def end_of(self, topic: str, queue_id: int) -> SavedEnd | None:
        """The entry of one queue, found without decoding those of its topic's other queues; None for an unknown one."""
        topic_row = self._row.get(topic)
        if topic_row is None:
            return None
        rows = self.rows_of_queues(topic_row)
        at = bisect_left(rows, queue_id, key=self._queue_id_at)  # ids of a topic ascend
        if at == len(rows):
            return None
        found, end = self.end_at(rows[at])
        return end if found == queue_id else None

    def _queue_id_at(self, row: int) -> int:
        return int(self._queue_ids[row])

    def queue_ids_at(self, rows: range) -> list[int]:
        """The queue ids in some rows of the table of queues."""
        ids: list[int] = self._queue_ids[rows.start : rows.stop].tolist()
        return ids

    def row(self, topic: str) -> int | None:
        """The topic's row in the table of topics; None for an unknown one."""
        return self._row.get(topic)

    def encoded(self, topics: range) -> EncodedTopics:
        """The rows of the topics in some rows."""
        queues = range(self.first_queues[topics.start], self.first_queues[topics.stop])
        files = range(self.first_files[queues.start], self.first_files[queues.stop])
        return EncodedTopics(
            self._bytes_of(_HEADER.size, _TOPIC, topics),
            self._bytes_of(self._queues_at, _QUEUE, queues),
            self._bytes_of(self._files_at, _FILE, files),
        )

    def _bytes_of(self, table_at: int, row: struct.Struct, rows: range) -> bytes:
        return self._data[table_at + rows.start * row.size : table_at + rows.stop * row.size]

    def topic(self, topic: str) -> SavedTopic | None:
        """The entries of a topic, which are still to be compared with its directories; None for an unknown one."""
        row = self._row.get(topic)
        if row is None:
            return None
        if self._last[0] != row:  # most are asked for queue after queue
            self._last = row, SavedTopic(self, row)
        return self._last[1]

    def queue_rows_of(self, queues: Sequence[tuple[str, int]]) -> Rows:
        """The row of each queue in the table of queues; -1 for an unknown one."""
        firsts, ids = self.first_queues, self.queue_rows["queue_id"].tolist()
        found = []
        for topic, queue_id in queues:
            row = self._row.get(topic)
            at = -1
            if row is not None:
                at = bisect_left(ids, queue_id, firsts[row], stop := firsts[row + 1])  # ids of a topic ascend
                if at == stop or ids[at] != queue_id:
                    at = -1
            found.append(at)
        return np.array(found, np.int64)

    @property
    def queue_count(self) -> int:
        """The number of entries of queues."""
        return len(self.queue_rows)

    def ends_at(self, rows: Rows) -> ManyEnds:
        """The entries in rows of the table of queues, of queues that have files."""
        queues = self.queue_rows[rows]
        bases = self.file_rows["base"][self._file_firsts[rows]]
        columns = bases // UNIT_SIZE, queues["end"], queues["first_place"], queues["last_place"], queues["last_size"]
        return ManyEnds(*(column.astype(np.int64) for column in columns))

    def last_units_at(self, rows: Rows) -> list[LastUnit]:
        """``SavedEnd.last_unit`` in rows of the table of queues, of queues that have files."""
        queues = self.queue_rows[rows]
        bases = self.file_rows["base"][self._file_firsts[rows + 1] - 1]
        columns = bases, queues["end"], queues["last_place"], queues["last_size"]
        return list(map(LastUnit._make, zip(*(column.tolist() for column in columns), strict=True)))

    def unchanged_ids(self, topics: Sequence[str]) -> dict[str, list[int]]:
        """The queue ids of those of the topics to whose directories no queue was added, and from which none went."""
        known = [(topic, row) for topic in topics if (row := self._row.get(topic)) is not None]
        unchanged: list[tuple[str, int]] = []
        root = self._root
        for first in range(0, len(known), _COMPARED_AT_ONCE):
            some = known[first : first + _COMPARED_AT_ONCE]
            rows = self.topic_rows[[row for _, row in some]]
            same = self._are_same([f"{root}/{topic}" for topic, _ in some], rows, _OF_DIRECTORY)
            unchanged += compress(some, same.tolist())
        return self.ids_by_topic(unchanged)

    def ids_by_topic(self, topics: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
        """The queue ids of topics, which are given with their rows."""
        ids, firsts = self.queue_rows["queue_id"].tolist(), self.first_queues
        return {topic: ids[firsts[row] : firsts[row + 1]] for topic, row in topics}

    def look(self) -> Unchanged:
        """Compare all entries with the directories and files, as they are now."""
        found: list[tuple[Bools, Bools, Bools]] = []
        for first in range(0, len(self._names), _COMPARED_AT_ONCE):
            stop = min(first + _COMPARED_AT_ONCE, len(self._names))
            same_queues = self._unchanged_at(np.arange(self.first_queues[first], self.first_queues[stop]))
            of_topic = np.repeat(np.arange(stop - first), self.topic_rows["queues"][first:stop])
            paths = [f"{self._root}/{name}" for name in self._names[first:stop]]
            same_directories = self._are_same(paths, self.topic_rows[first:stop], _OF_DIRECTORY)
            same_topics = same_directories.copy()
            same_topics[of_topic[~same_queues]] = False
            found.append((same_directories, same_topics, same_queues))
        self._compared = Unchanged(self, *map(np.concatenate, zip(*found, strict=True)))
        return self._compared

    def look_at(self, rows: Rows) -> Bools:
        """Compare the entries in some rows of the table of queues, as they are now, and not those of their topics:
        whether each is the same; false for -1.
        """
        same = np.zeros(len(rows), np.bool_)
        known = np.flatnonzero(rows >= 0)
        for first in range(0, len(known), _COMPARED_AT_ONCE):
            some = known[first : first + _COMPARED_AT_ONCE]
            same[some] = self._unchanged_at(rows[some])
        return same

    def compare(self) -> Unchanged:
        """The last ``look``, or the first one: several questions of one look at a store rest on it."""
        return self.look() if self._compared is None else self._compared

    def _unchanged_at(self, rows: Rows) -> Bools:
        """Of each queue in some rows, whether nothing in it has changed."""
        queues = self.queue_rows[rows]
        topics = np.searchsorted(self._queue_firsts, rows, side="right") - 1
        counts = queues["files"].astype(np.int64)
        of_queue = np.repeat(np.arange(len(rows)), counts)
        # The files of a queue are neighbours in their table.
        files = self.file_rows[
            np.arange(len(of_queue)) + (self._file_firsts[rows] - np.cumsum(counts) + counts)[of_queue]
        ]
        root, names = self._root, self._names
        ids, bases = queues["queue_id"].tolist(), files["base"].tolist()
        queue_paths = [f"{root}/{names[topic]}/{one}" for topic, one in zip(topics.tolist(), ids, strict=True)]
        file_paths = [f"{queue_paths[at]}/{base:020d}" for at, base in zip(of_queue.tolist(), bases, strict=True)]
        same_files = self._are_same(file_paths, files, _OF_FILE, files["size"].tolist())
        same_queues = self._are_same(queue_paths, queues, _OF_DIRECTORY)
        same_queues[of_queue[~same_files]] = False
        return same_queues

    def _are_same(
        self,
        paths: list[str],
        rows: npt.NDArray[np.void],
        fields_of: Callable[[os.stat_result], object],
        *more: list[int],
    ) -> Bools:
        """Of each path, whether the system shows what its row says, and ``more``."""
        wanted = zip(rows["changed_ns"].tolist(), rows["inode"].tolist(), repeat(self.device), *more)
        found = disk.stamps(paths, fields_of)
        return np.fromiter(map(eq, found, wanted), np.bool_, len(paths)) & (rows["changed_ns"] > 0)

    def may_be_used(self) -> bool:
        """Whether it is still the file to use. The store is asked once a second at most."""
        now = time.monotonic()
        if now - self._looked_at_s > _LOOK_AGAIN_S:
            if named_generation(self._store_path) != self.generation:
                return False
            self._looked_at_s = now
        return True


def _firsts(counts: npt.NDArray[np.uint32]) -> list[int]:
    """Where the rows of each begin that has so many of them; and the number of all rows."""
    return [0, *np.cumsum(counts, dtype=np.int64).tolist()]


def named_generation(store_path: str) -> int:
    """The generation that the checkpoint's mark names; 0 for none, and where a broker has taken over since."""
    mark = mark_if_readable(os.path.join(store_path, CHECKPOINT))
    if mark is None or (mark.closed and disk.exists(os.path.join(store_path, ABORT))):
        return 0
    return mark.saved_ends


def save_ends(
    store_path: str, old: SavedEnds | None, topics: Iterable[str], touched: Mapping[str, Mapping[int, int]]
) -> int:
    """Write the file, synced. The generation, for the mark; 0 without a file, when nothing may be named.

    ``topics`` are all topics, and ``touched`` those that may have changed since ``old``, each with the ends of its
    queues as far as they are known. ``OSError``.
    """
    root = os.path.join(store_path, CONSUME_QUEUE)
    device, is_same = _device_of(root), old is not None
    names: list[str] = []
    parts: list[EncodedTopics] = []
    for rows, some in _runs(old, sorted(topics), touched):
        if rows is not None and old is not None:
            names += some
            parts.append(old.encoded(rows))
            continue
        for topic in some:
            row = None if old is None else old.row(topic)
            before = None if old is None or row is None else old.encoded(range(row, row + 1))
            now = _encoded_topic(os.path.join(root, topic), topic, device, touched.get(topic, {}), old)
            is_same = is_same and now == before
            if now is not None:
                names.append(topic)
                parts.append(now)
    tables = [b"".join(table) for table in zip(*parts, strict=True)] or [b"", b"", b""]
    counts = [len(table) // row.size for table, row in zip(tables, (_TOPIC, _QUEUE, _FILE), strict=True)]
    if counts[1] < _LEAST_QUEUES:
        return 0
    if old is not None and is_same and len(names) == len(old.topics()):
        return old.generation
    generation = time.time_ns()
    if old is not None:
        generation = max(generation, old.generation + 1)
    stamp = disk.stamp(root)
    inode = 0 if stamp is None else stamp.st_ino
    header = _HEADER.pack(_MAGIC, 0, generation, disk.boot_id(), device, inode, *counts)
    rest = b"".join([header[_AFTER_CRC:], *tables, _BETWEEN_NAMES.join(names).encode()])
    path = os.path.join(store_path, SAVED_ENDS)
    # The directory is not synced: after a power cut the old file may be there, or none. A file is used only if the mark
    # names its generation.
    replace_file(path, _MAGIC + struct.pack(">I", crc32(rest)) + rest)
    return generation


def _runs(
    old: SavedEnds | None, topics: Sequence[str], touched: Collection[str]
) -> Iterator[tuple[range | None, list[str]]]:
    """Topics in order, with their rows where these are neighbours in ``old`` and nothing was touched; else None."""

    def shift(numbered: tuple[int, str]) -> int | None:
        row = None if old is None or numbered[1] in touched else old.row(numbered[1])
        return None if row is None else row - numbered[0]

    for by, group in groupby(enumerate(topics), shift):
        some = list(group)
        rows = None if by is None else range(some[0][0] + by, some[-1][0] + by + 1)
        yield rows, [topic for _, topic in some]


def _device_of(path: str) -> int:
    found = disk.stamp(path)
    return 0 if found is None else found.st_dev


def _encoded_topic(
    path: str, topic: str, device: int, ends: Mapping[int, int], old: SavedEnds | None
) -> EncodedTopics | None:
    """A topic's rows as its directories are now; None for one that has no queue."""
    now_ns = time.time_ns()
    found = disk.stamp(path)
    if found is None:
        return None
    before = None if old is None else old.topic(topic)
    known = {} if before is None else before.ends
    queues, files = [], []
    for queue_id in sorted(int(name) for name in disk.list_names(path) if is_queue_id(name)):
        directory = f"{path}/{queue_id}"
        saved = known.get(queue_id)
        if saved is None or saved.holds(directory) is None:
            saved = _entry_of_files(directory, device, ends.get(queue_id))
        _, *entry, packed = saved
        queues.append(_QUEUE.pack(queue_id, *entry, len(packed) // _FILE.size))
        files.append(packed)
    if not queues:
        return None
    row = _TOPIC.pack(found.st_ino, proving_ns(found, now_ns, device), len(queues))
    return EncodedTopics(row, b"".join(queues), b"".join(files))


def proving_ns(found: os.stat_result, now_ns: int, device: int) -> int:
    """The time of the last change, if any later change has another one; else 0. ``now_ns`` is before the look."""
    if stat.S_ISLNK(found.st_mode):
        return 0  # what the link leads to has times of its own
    changed_ns = int(found.st_ctime_ns)
    ticks = _TICKS_NS if changed_ns % _COARSE_UNIT_NS else _COARSE_NS
    return changed_ns if now_ns - changed_ns > ticks and found.st_dev == device else 0


def _entry_of_files(path: str, device: int, known_end: int | None) -> SavedEnd:
    """A queue's entry as its files are now; one that never holds where its end is not beyond doubt."""
    try:
        found = _found_end(path, device, known_end)
    except (OSError, CommitLogError):
        found = None
    return found or SavedEnd(device, 0, 0, 0, -1, 0, -1, b"")


def _found_end(path: str, device: int, known_end: int | None) -> SavedEnd | None:
    # The times first: what changes after them has others, and the entry does not hold.
    now_ns = time.time_ns()
    directory = disk.stamp(path)
    changed_ns = 0 if directory is None else proving_ns(directory, now_ns, device)
    if directory is None or not changed_ns:
        return None
    files = []
    for base in sorted(base for name in disk.list_names(path) if (base := parse_file_name(name)) is not None):
        file = disk.stamp(f"{path}/{file_name_for_offset(base)}")
        if file is None or base % UNIT_SIZE or not (file_changed_ns := proving_ns(file, now_ns, device)):
            return None
        files.append(SavedFile(base, file.st_ino, file.st_size, file_changed_ns))
    units = _units_of(path, files) if files else None
    if units is None or known_end not in (None, units[0]):
        return None
    packed = b"".join(_FILE.pack(*file) for file in files)
    return SavedEnd(device, directory.st_ino, changed_ns, *units, packed)


def _units_of(path: str, files: list[SavedFile]) -> tuple[int, int, int, int] | None:
    """End, place and size of the last unit, place of the first unit; None where units are damaged. ``OSError``."""
    last = files[-1]
    descriptor = disk.open_file(f"{path}/{file_name_for_offset(last.base)}")
    try:
        count = last_written(descriptor)
        # Both searches find the same end, unless zeros are between units.
        if not count or count != written_units(descriptor) or count * UNIT_SIZE > last.size:
            return None
        place, size = unit_place(disk.read_at(descriptor, UNIT_SIZE, (count - 1) * UNIT_SIZE)) or (-1, 0)
        if place < 0 or size <= 0 or size == FILLER_SIZE:
            return None
    finally:
        disk.close(descriptor)
    stop = last.base // UNIT_SIZE + count
    first = files[0]
    return stop, place, size, _first_place(path, first, min(_FIRST_UNITS, stop - first.base // UNIT_SIZE))


def _first_place(path: str, file: SavedFile, count: int) -> int:
    """The place of the first of some units at a queue's start, if they ascend; else -1. ``OSError``."""
    descriptor = disk.open_file(f"{path}/{file_name_for_offset(file.base)}")
    try:
        data = disk.read_at(descriptor, min(count * UNIT_SIZE, file.size), 0)
    finally:
        disk.close(descriptor)
    if len(data) < count * UNIT_SIZE:
        return -1
    before, first = -1, -1
    for at in range(0, len(data), UNIT_SIZE):
        place, size = unit_place(data[at : at + UNIT_SIZE]) or (-1, 0)
        if place <= before or size <= 0 or size == FILLER_SIZE:
            return -1
        before = place
        first = place if first < 0 else first
    return first
