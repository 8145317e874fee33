"""Saved ends of queues: the file ``<store>/savedends``, by which a queue need not be opened to know its end.

Its owner writes it when it closes a store with many queues. Big-endian::

    0        4        8            16          32         40         48
    +--------+--------+------------+-----------+----------+----------+---- - - ----+
    | MAGIC  | CRC-32 | GENERATION | BOOT ID   | DEVICE   | INODE    | topics      |
    | "PYSE" | of the | named by   | of the    | of the directory    |             |
    |        | rest   | the mark   | machine   | consumequeue        |             |
    +--------+--------+------------+-----------+----------+----------+---- - - ----+

    topic:  LENGTH 4 (of all of it), NAME LENGTH 2, INODE 8, CHANGED 8, QUEUES 4, name, queues
    queue:  QUEUE ID 4, INODE 8, CHANGED 8, END 8, LAST PLACE 8, LAST SIZE 4, FIRST PLACE 8, FILES 4, files
    file:   FIRST BYTE 8, INODE 8, SIZE 8, CHANGED 8

An entry is a claim: while the directory and the files have these inodes, sizes and times of change, the queue ends at
END, and its last unit leads to the record of LAST SIZE bytes at LAST PLACE. It is compared with the directory and the
files each time, so it proves itself, whatever program has written the queue since. CHANGED is 0 where the time cannot
prove anything: of what had changed just before it was looked at, a later change may have the same time.

Which file may be used at all, and why, is in docs/decisions/0038-saved-ends.md.
"""

from __future__ import annotations

import os
import stat
import struct
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

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

# With fewer queues no file is written: looking at them takes a few milliseconds.
_LEAST_QUEUES = 256
_LARGEST = 1 << 30
_MAGIC = b"PYSE"
_HEADER = struct.Struct(">4sIQ16sQQ")
_TOPIC = struct.Struct(">IHQqI")
_QUEUE = struct.Struct(">IQqqqiqI")
_FILE = struct.Struct(">qQqq")
_AFTER_CRC = 8
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


class SavedTopic:
    """What is known of a topic: the entries of its queues, which are all while ``holds`` is true."""

    __slots__ = ("_at", "_changed_ns", "_count", "_data", "_device", "_ends", "_inode")

    def __init__(self, data: bytes, at: int, device: int) -> None:
        """``at``: where the topic begins in the file's bytes."""
        _, name_length, self._inode, self._changed_ns, self._count = _TOPIC.unpack_from(data, at)
        self._data, self._at, self._device = data, at + _TOPIC.size + name_length, device
        self._ends: dict[int, SavedEnd] | None = None

    @property
    def ends(self) -> dict[int, SavedEnd]:
        """The entries by queue id."""
        if self._ends is None:
            self._ends = {}
            data, at = self._data, self._at
            for _ in range(self._count):
                queue_id, inode, changed_ns, end, place, size, first, files = _QUEUE.unpack_from(data, at)
                at += _QUEUE.size
                stop = at + files * _FILE.size
                self._ends[queue_id] = SavedEnd(self._device, inode, changed_ns, end, place, size, first, data[at:stop])
                at = stop
        return self._ends

    @property
    def queue_ids(self) -> list[int]:
        """The ids of its queues, sorted."""
        if self._count == 1:
            return [int(_QUEUE.unpack_from(self._data, self._at)[0])]
        return list(self.ends)

    def holds(self, path: str) -> bool:
        """Whether no queue was added to the topic's directory, or removed."""
        found = disk.stamp(path) if self._changed_ns > 0 else None
        if found is None or found.st_ctime_ns != self._changed_ns:
            return False
        return found.st_ino == self._inode and found.st_dev == self._device


class SavedEnds:
    """The content of the file, in memory. Topics are decoded when they are asked for."""

    def __init__(self, store_path: str, data: bytes) -> None:
        """``ValueError`` for bytes that are not whole, or of another directory."""
        magic, crc, generation, boot, device, inode = _HEADER.unpack_from(data)
        if magic != _MAGIC or crc != crc32(memoryview(data)[_AFTER_CRC:]):
            raise ValueError("not a whole file of saved ends")
        directory = disk.stamp(os.path.join(store_path, CONSUME_QUEUE))
        if directory is None or (directory.st_dev, directory.st_ino) != (device, inode):
            raise ValueError("saved ends of another directory")
        self.generation: int = generation
        self.device: int = device
        # Whether an entry that was used may be compared and used again: a mapped write might have no time of its own.
        self.shows_all_writes = disk.shows_mapped_writes(device)
        self._boot: bytes = boot
        self._store_path = store_path
        self._data = data
        self._at = _topics_in(data)
        self._last: tuple[int, SavedTopic | None] = (-1, None)
        self._compared: dict[str, SavedTopic] | None = None
        self._looked_at_s = time.monotonic()

    @property
    def is_of_this_boot(self) -> bool:
        """Whether the machine has not been started since."""
        return any(self._boot) and self._boot == disk.boot_id()

    def topics(self) -> Collection[str]:
        """The topics with entries."""
        return self._at.keys()

    def encoded(self, topic: str) -> bytes | None:
        """The bytes of a topic."""
        at = self._at.get(topic)
        return None if at is None else self._data[at : at + int(_TOPIC.unpack_from(self._data, at)[0])]

    def topic(self, topic: str) -> SavedTopic | None:
        """The entries of a topic, which are still to be compared with its directories; None for an unknown one."""
        at = self._at.get(topic)
        if at is None:
            return None
        if self._last[0] != at:  # most are asked for queue after queue
            self._last = at, SavedTopic(self._data, at, self.device)
        return self._last[1]

    def unchanged_topics(self) -> Iterator[tuple[str, SavedTopic]]:
        """The topics in whose directories nothing has changed, with all their queues; now, or as ``compare`` saw it."""
        if self._compared is not None:
            yield from self._compared.items()
            return
        root = os.path.join(self._store_path, CONSUME_QUEUE)
        for topic, at in self._at.items():
            path, saved = f"{root}/{topic}", SavedTopic(self._data, at, self.device)
            if not saved.holds(path):
                continue
            for queue_id, end in saved.ends.items():
                if end.holds(f"{path}/{queue_id}") is None:
                    break
            else:
                yield topic, saved

    def compare(self) -> Mapping[str, SavedTopic]:
        """``unchanged_topics``, once: several questions of one look at a store rest on it."""
        if self._compared is None:
            self._compared = dict(self.unchanged_topics())
        return self._compared

    def may_be_used(self) -> bool:
        """Whether it is still the file to use. The store is asked once a second at most."""
        now = time.monotonic()
        if now - self._looked_at_s > _LOOK_AGAIN_S:
            if _named(self._store_path) != self.generation:
                return False
            self._looked_at_s = now
        return True


def _topics_in(data: bytes) -> dict[str, int]:
    """Where each topic begins. ``ValueError``."""
    found = {}
    at = _HEADER.size
    try:
        while at < len(data):
            length, name_length, *_ = _TOPIC.unpack_from(data, at)
            if length < _TOPIC.size:
                raise ValueError("a topic without a length")
            name_at = at + _TOPIC.size
            found[data[name_at : name_at + name_length].decode()] = at
            at += length
    except struct.error as error:
        raise ValueError(str(error)) from error
    return found


def _named(store_path: str) -> int:
    """The generation that the checkpoint's mark names; 0 for none, and where a broker has taken over since."""
    mark = mark_if_readable(os.path.join(store_path, CHECKPOINT))
    if mark is None or (mark.closed and disk.exists(os.path.join(store_path, ABORT))):
        return 0
    return mark.saved_ends


def load_saved_ends(store_path: str, known: SavedEnds | None = None) -> SavedEnds | None:
    """The saved ends of a store, if they may be used now: see the decision. None otherwise, whatever the reason.

    ``known`` is returned if it is of the same generation: no owner has changed a queue since it was loaded.
    """
    if os.name != "posix":
        return None  # what the other system calls st_ctime is the time at which a file was made
    try:
        generation = _named(store_path)
        if not generation:
            return None
        found = known
        if found is None or found.generation != generation:
            found = SavedEnds(store_path, disk.read_file(os.path.join(store_path, SAVED_ENDS), _LARGEST))
        mark = mark_if_readable(os.path.join(store_path, CHECKPOINT))
    except (OSError, CommitLogError, ValueError, struct.error):
        return None
    if mark is None or found.generation != generation or mark.saved_ends != generation:
        return None
    # After a power cut a file may have newer bytes than its times say: its owner has not closed the store.
    return found if mark.closed or found.is_of_this_boot else None


def save_ends(
    store_path: str, old: SavedEnds | None, topics: Iterable[str], touched: Mapping[str, Mapping[int, int]]
) -> int:
    """Write the file, synced. The generation, for the mark; 0 without a file, when nothing may be named.

    ``topics`` are all topics, and ``touched`` those that may have changed since ``old``, each with the ends of its
    queues as far as they are known. ``OSError``.
    """
    root = os.path.join(store_path, CONSUME_QUEUE)
    device, parts, queues, is_same = _device_of(root), [], 0, old is not None
    names = sorted(topics)
    for topic in names:
        before = old.encoded(topic) if old is not None else None
        ends = touched.get(topic)
        if before is None or ends is not None:
            now = _encoded_topic(os.path.join(root, topic), topic, device, ends or {}, old)
            is_same = is_same and now == before
        else:
            now = before
        parts.append(now)
        queues += int(_TOPIC.unpack_from(now)[4]) if now else 0
    if queues < _LEAST_QUEUES:
        return 0
    if old is not None and is_same and len(names) == len(old.topics()):
        return old.generation
    generation = time.time_ns()
    if old is not None:
        generation = max(generation, old.generation + 1)
    stamp = disk.stamp(root)
    inode = 0 if stamp is None else stamp.st_ino
    rest = b"".join([_HEADER.pack(_MAGIC, 0, generation, disk.boot_id(), device, inode)[_AFTER_CRC:], *parts])
    path = os.path.join(store_path, SAVED_ENDS)
    # The directory is not synced: after a power cut the old file may be there, or none. A file is used only if the mark
    # names its generation.
    replace_file(path, _MAGIC + struct.pack(">I", crc32(rest)) + rest)
    return generation


def _device_of(path: str) -> int:
    found = disk.stamp(path)
    return 0 if found is None else found.st_dev


def _encoded_topic(path: str, topic: str, device: int, ends: Mapping[int, int], old: SavedEnds | None) -> bytes:
    """A topic's bytes as its directories are now; none for one that has no queue."""
    now_ns = time.time_ns()
    found = disk.stamp(path)
    if found is None:
        return b""
    before = None if old is None else old.topic(topic)
    known = {} if before is None else before.ends
    queues = []
    for queue_id in sorted(int(name) for name in disk.list_names(path) if is_queue_id(name)):
        directory = f"{path}/{queue_id}"
        saved = known.get(queue_id)
        if saved is None or saved.holds(directory) is None:
            saved = _look_at(directory, device, ends.get(queue_id))
        queues.append(_encoded_queue(queue_id, saved))
    if not queues:
        return b""
    name, body = topic.encode(), b"".join(queues)
    changed_ns = _proving(found, now_ns, device)
    length = _TOPIC.size + len(name) + len(body)
    return _TOPIC.pack(length, len(name), found.st_ino, changed_ns, len(queues)) + name + body


def _encoded_queue(queue_id: int, saved: SavedEnd) -> bytes:
    packed = saved.packed_files
    head = _QUEUE.pack(
        queue_id,
        saved.inode,
        saved.changed_ns,
        saved.end,
        saved.last_place,
        saved.last_size,
        saved.first_place,
        len(packed) // _FILE.size,
    )
    return head + packed


def _proving(found: os.stat_result, now_ns: int, device: int) -> int:
    """The time of the last change, if any later change has another one; else 0. ``now_ns`` is before the look."""
    if stat.S_ISLNK(found.st_mode):
        return 0  # what the link leads to has times of its own
    changed_ns = int(found.st_ctime_ns)
    ticks = _TICKS_NS if changed_ns % _COARSE_UNIT_NS else _COARSE_NS
    return changed_ns if now_ns - changed_ns > ticks and found.st_dev == device else 0


def _look_at(path: str, device: int, known_end: int | None) -> SavedEnd:
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
    changed_ns = 0 if directory is None else _proving(directory, now_ns, device)
    if directory is None or not changed_ns:
        return None
    files = []
    for base in sorted(base for name in disk.list_names(path) if (base := parse_file_name(name)) is not None):
        file = disk.stamp(f"{path}/{file_name_for_offset(base)}")
        if file is None or base % UNIT_SIZE or not (file_changed_ns := _proving(file, now_ns, device)):
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
