"""Index look-up: from a key to the physical offsets of the messages that carry it, through the index files.

An index file is a hash table on disk. A slot holds the number of its newest entry, and each entry the number of the
slot's entry before it, so a look-up follows a chain from new to old. Entries hold only the hash of ``topic#key``;
the caller compares the messages themselves.

A file's slot count is not stored in it and need not be configured: it is the number with which the slots lead to the
entries. The usual number is tried first, then that of a file of the same size, then every other that fits.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from commitlog_store.errors import CommitLogError, CorruptIndex, FileChanged, UnsupportedStore
from commitlog_store.files import disk
from commitlog_store.files.mapped_file import MappedFile
from commitlog_store.files.numbered_files import DirectoryListing
from commitlog_store.format.index_file import (
    ENTRY_SIZE,
    HEADER_SIZE,
    INDEX_ENTRY_DTYPE,
    SLOT_SIZE,
    IndexHeader,
    check_header,
    decode_entry,
    decode_header,
    entry_capacity,
    entry_could_be,
    entry_offset,
    file_size,
    find_first_entries,
    fitting_slot_counts,
    infer_slot_count,
    slot_offset,
)
from commitlog_store.format.java_hash import index_key_hash
from commitlog_store.java_numbers import MAX_INT

# A file's name is the local time of its creation: yyyyMMddHHmmssSSS.
INDEX_NAME_DIGITS = 17
# The index keeps times in whole seconds, rounded down.
_SECOND_MS = 1000

_SMALLEST_FILE = file_size(1, 1)
# The number of entries that are looked up to decide whether a slot count is right, and the length to which their slots'
# chains are followed where they are spread over the file.
_SAMPLE = 32
_LONGEST_LOOK = 64
# A wrong slot count leads from a slot to one of the slot's own entries once in as many cases as the file has slots, so
# never to this many of them.
_CONVINCING = 8
# The places of entry 1 that one read covers.
_SEARCHED_ENTRIES = 1 << 18
_NOT_LOST = "The messages themselves are not affected: read them by queue offset, time or message id."


@dataclass(frozen=True, slots=True)
class IndexFileInfo:
    """The range of an index file: store times in milliseconds, physical offsets, and how full it is.

    ``slot_count`` is None while the file has no entries to infer it from.
    """

    path: str
    begin_timestamp: int
    end_timestamp: int
    begin_physical_offset: int
    end_physical_offset: int
    slot_count: int | None
    index_count: int


class IndexHit(NamedTuple):
    """The place of a message that may carry a key, and the index file and byte of the entry."""

    physical_offset: int
    path: str
    position: int


def is_index_file_name(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) == INDEX_NAME_DIGITS


def has_index_files(path: str) -> bool:
    """Whether a directory holds index files, in any state."""
    return disk.is_directory(path) and any(map(is_index_file_name, disk.list_names(path)))


def index_file_size_of(path: str) -> int:
    """The size of the files of an index directory in bytes, by the oldest one that has a size; 0 while it has none."""
    names = sorted(filter(is_index_file_name, disk.list_names(path))) if disk.is_directory(path) else []
    return next(filter(None, (disk.file_size(os.path.join(path, name)) for name in names)), 0)


class IndexFile:
    """One index file, read entry by entry. ``slots_by_size``: known slot counts of the store's files."""

    def __init__(self, file: MappedFile, slots_by_size: dict[int, int]) -> None:
        self.path = file.path
        self._file = file
        self._size = file.size
        self._slots_by_size = slots_by_size
        self._slots: int | None = None
        # RocketMQ maps a file as a whole, and a size is an int to it.
        if not _SMALLEST_FILE <= self._size <= MAX_INT or (self._size - HEADER_SIZE) % SLOT_SIZE:
            self._file.close()
            parts = f"{HEADER_SIZE} + {SLOT_SIZE} a slot + {ENTRY_SIZE} an entry"
            raise CorruptIndex(
                "Index file",
                path=self.path,
                offset=0,
                expected=f"a size of {parts}, at most {MAX_INT}",
                found=self._size,
                advice=f"Was it copied whole? {_NOT_LOST}",
            )

    @property
    def size(self) -> int:
        """The file's size in bytes when it was opened."""
        return self._size

    def header(self) -> IndexHeader:
        """The current header. ``CorruptIndex`` when its numbers are impossible."""
        header = decode_header(self._read(0, HEADER_SIZE))
        if self._slots is None:
            room = self._size - _SMALLEST_FILE
            problem = check_header(header, 1 + room // SLOT_SIZE, 1 + room // ENTRY_SIZE)
        else:
            problem = check_header(header, self._slots, self._capacity(self._slots))
        if problem is not None:
            raise self._corrupt(problem.field, problem.offset, problem.expected, problem.found)
        return header

    def _capacity(self, slots: int) -> int:
        return entry_capacity(self._size, slots) or 0

    def slot_count(self, *, spread: bool = False) -> int | None:
        """The file's number of slots; None while it has no entries.

        It is inferred once. ``spread``: from entries of all parts of the file, to meet damage anywhere in it, rather
        than from the newest alone where those agree. ``CorruptIndex`` or ``UnsupportedStore`` when the entries agree
        with no number of slots.
        """
        if self._slots is None:
            header = self.header()
            if header.index_count > 1:
                self._slots = self._slots_by_size[self._size] = self._infer_slots(header, spread=spread)
        return self._slots

    def _infer_slots(self, header: IndexHeader, *, spread: bool) -> int:
        usual = infer_slot_count(self._size)
        fitting = fitting_slot_counts(self._size, header)
        # A range answers at once whether it holds a number; for None it would compare all of its numbers.
        known = (usual, self._slots_by_size.get(self._size))
        likely = [slots for slots in known if slots is not None and slots in fitting]
        for slots in likely:
            if not spread and self._newest_agree(header, slots):
                return slots
        for slots in likely:
            agreeing, looked_at = self._agreement(header, slots)
            if agreeing == looked_at or (agreeing >= _CONVINCING and 2 * agreeing > looked_at):
                return slots
        for slots in self._search(header, fitting):
            agreeing, looked_at = self._agreement(header, slots)
            if 2 * agreeing > looked_at:
                return slots
        # The file is damaged in places, which are reported when a look-up meets them.
        for slots in likely:
            agreeing, looked_at = self._agreement(header, slots)
            if 2 * agreeing > looked_at:
                return slots
        raise self._no_slot_count(header, usual)

    def _no_slot_count(self, header: IndexHeader, usual: int | None) -> CorruptIndex | UnsupportedStore:
        if usual is None:
            return UnsupportedStore(
                f"{self.path} has {self._size} bytes, not 40 + 84 a slot as with RocketMQ's usual settings, and its "
                "entries do not show the maxHashSlotNum and maxIndexNum that it was made with, or it is damaged. Keys "
                f"cannot be looked up in it. {_NOT_LOST}",
                path=self.path,
            )
        problem = check_header(header, usual, self._capacity(usual))
        if problem is not None:
            return self._corrupt(problem.field, problem.offset, problem.expected, problem.found)
        return CorruptIndex(
            "begin_physical_offset",
            path=self.path,
            offset=16,
            expected="the physical offset of the first entry, and slots that lead to the entries",
            found=f"{header.begin_physical_offset}, which agrees with no number of slots",
            advice=f"The file is damaged. {_NOT_LOST}",
        )

    def _newest_agree(self, header: IndexHeader, slots: int) -> bool:
        """Whether the slots lead to all of the newest entries with that slot count.

        Only they themselves stand before them in their chains. So the number of reads does not grow with that of the
        entries, or of entries with one key; from an older entry's slot the way may be long.
        """
        first = max(header.index_count - _SAMPLE, 1)
        data = self._read(entry_offset(first, slots), (header.index_count - first) * ENTRY_SIZE)
        heads: dict[int, int] = {}
        for number in range(header.index_count - 1, first - 1, -1):
            at = (number - first) * ENTRY_SIZE
            entry = decode_entry(data[at : at + ENTRY_SIZE])
            if not entry_could_be(header, number, entry):
                return False
            slot = entry.key_hash % slots
            if slot not in heads:
                heads[slot] = int.from_bytes(self._read(slot_offset(slot), SLOT_SIZE), "big", signed=True)
            if heads[slot] != number:
                return False
            heads[slot] = entry.previous
        return True

    def _agreement(self, header: IndexHeader, slots: int) -> tuple[int, int]:
        """The number of entries of a sample that the slots lead to with that slot count, and the sample's size."""
        numbers = np.unique(np.linspace(1, header.index_count - 1, _SAMPLE).round().astype(int)).tolist()
        return sum(self._leads_to(header, number, slots) for number in numbers), len(numbers)

    def _leads_to(self, header: IndexHeader, number: int, slots: int) -> bool:
        """Whether the slot of an entry leads to it, as far as the chain is followed."""
        entry = decode_entry(self._read(entry_offset(number, slots), ENTRY_SIZE))
        if not entry_could_be(header, number, entry):
            return False
        slot = entry.key_hash % slots
        at = int.from_bytes(self._read(slot_offset(slot), SLOT_SIZE), "big", signed=True)
        capacity = self._capacity(slots)
        for _ in range(_LONGEST_LOOK):
            if at == number:
                return True
            if not number < at < capacity:
                return False
            later = decode_entry(self._read(entry_offset(at, slots), ENTRY_SIZE))
            if later.key_hash < 0 or later.key_hash % slots != slot or later.previous >= at:
                return False
            at = later.previous
        return True

    def _search(self, header: IndexHeader, fitting: range) -> Iterator[int]:
        """The slot counts with which entry 1 stands in its place, and its slot leads to it."""
        following = min(header.index_count - 2, 2)
        for done in range(0, len(fitting), _SEARCHED_ENTRIES):
            counts = fitting[done : done + _SEARCHED_ENTRIES]
            data = self._read(entry_offset(1, counts[0]), ENTRY_SIZE * (len(counts) + following))
            for index in find_first_entries(header, np.frombuffer(data, INDEX_ENTRY_DTYPE), len(counts)).tolist():
                if self._leads_to(header, 1, counts[index]):
                    yield counts[index]

    def _read(self, at: int, length: int) -> bytes:
        data = self._file.read(at, length)
        if len(data) < length:
            raise FileChanged(
                f"{self.path} ends at byte {at + len(data)}: it was truncated while being read. Open the store again.",
                path=self.path,
            )
        return data

    def last_indexed(self) -> int | None:
        """The physical offset of the file's last message, the greater of header and last entry; None without entries.

        Only by the header where the number of slots cannot be inferred. ``CorruptIndex`` for a negative one.
        """
        header = self.header()
        if header.index_count <= 1:
            return None
        ends = [header.end_physical_offset]
        with contextlib.suppress(UnsupportedStore):
            slots = self.slot_count() or 0
            ends.append(
                decode_entry(self._read(entry_offset(header.index_count - 1, slots), ENTRY_SIZE)).physical_offset
            )
        if min(ends) < 0:
            raise self._corrupt("end_physical_offset", 24, "the physical offset of the last entry's message", min(ends))
        return max(ends)

    def info(self) -> IndexFileInfo:
        slots = self.slot_count()
        header = self.header()
        return IndexFileInfo(
            self.path,
            header.begin_timestamp,
            header.end_timestamp,
            header.begin_physical_offset,
            header.end_physical_offset,
            slots,
            header.index_count,
        )

    def hits(self, key: str, begin: int, end: int, *, strict: bool) -> Iterator[IndexHit]:
        """The entries with the key's hash, newest first, stored within ``[begin, end]`` (roughly: the index knows
        seconds).

        ``strict`` is for files that were closed cleanly: a slot that points after the last entry is then corrupt,
        while a live owner or a crash leaves such slots.
        """
        slots = self.slot_count()
        if slots is None:
            return
        key_hash = index_key_hash(key)
        slot = key_hash % slots
        at = slot_offset(slot)
        number = int.from_bytes(self._read(at, SLOT_SIZE), "big", signed=True)
        header = self.header()
        # A live owner writes entry and slot before it counts them; a full file has no place for one more.
        highest = min(header.index_count, self._capacity(slots) - 1)
        if not 0 <= number <= highest:
            if strict:
                raise self._corrupt(f"Slot {slot}", at, f"0 to {highest}", number)
            number = self._newest_counted(number, slot, slots, highest)
        while number > 0:
            at = entry_offset(number, slots)
            entry = decode_entry(self._read(at, ENTRY_SIZE))
            if entry.key_hash % slots != slot or entry.key_hash < 0:
                raise self._corrupt(f"Key hash of entry {number}", at, f"one of slot {slot}", entry.key_hash)
            if not 0 <= entry.previous < number:
                raise self._corrupt(
                    f"Chain of entry {number}", at, f"an earlier entry (0 to {number - 1})", entry.previous
                )
            if entry.seconds < 0:
                raise self._corrupt(f"Time of entry {number}", at, "at least 0", entry.seconds)
            stored = header.begin_timestamp + entry.seconds * _SECOND_MS
            if stored + _SECOND_MS < begin:
                return
            if entry.key_hash == key_hash and stored <= end:
                yield IndexHit(entry.physical_offset, self.path, at)
            number = entry.previous

    def sizes(self) -> tuple[int, int] | None:
        """The number of slots, and that of entries with room for number 0; None while it has no entries.

        The errors of ``slot_count``.
        """
        slots = self.slot_count()
        return None if slots is None else (slots, self._capacity(slots))

    def slots_at(self, slots: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """The newest entries of many slots. ``FileChanged``, ``ReadFailed``.

        For many look-ups at once, as ``entries_at``; ``release`` gives back the pages that both bring into memory.
        """
        return self._file.pieces(slot_offset(0) + slots * SLOT_SIZE, SLOT_SIZE).view(">i4")

    def entries_at(self, numbers: npt.NDArray[np.int64], slots: int) -> npt.NDArray[np.void]:
        """Many entries of the file, which has that many slots. The errors of ``slots_at``."""
        return self._file.pieces(entry_offset(0, slots) + numbers * ENTRY_SIZE, ENTRY_SIZE).view(INDEX_ENTRY_DTYPE)

    def release(self) -> None:
        """Give back the pages of many look-ups."""
        self._file.release()

    def _newest_counted(self, number: int, slot: int, slots: int, highest: int) -> int:
        """The first entry of a slot's chain that the header counts; 0 when the chain does not lead to one.

        An owner writes a batch of entries and their slots before it counts them. Those are skipped; entries before
        them are still found.
        """
        capacity = self._capacity(slots)
        while highest < number < capacity:
            entry = decode_entry(self._read(entry_offset(number, slots), ENTRY_SIZE))
            if entry.key_hash < 0 or entry.key_hash % slots != slot or not 0 <= entry.previous < number:
                return 0
            number = entry.previous
        return number if number <= highest else 0

    def close(self) -> None:
        self._file.close()

    def _corrupt(self, what: str, at: int, expected: str, found: int) -> CorruptIndex:
        return CorruptIndex(
            what,
            path=self.path,
            offset=at,
            expected=expected,
            found=found,
            advice=_NOT_LOST,
        )


class IndexService:
    """All index files of a store, searched from the newest to the oldest."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._listing = DirectoryListing(path)
        self._files: dict[str, IndexFile] = {}
        self._slots_by_size: dict[int, int] = {}

    def _refresh(self) -> list[IndexFile]:
        """The index files, oldest first: their names are times."""
        if self._listing.refresh():
            self.close()
            try:
                self._open_all()
            except CommitLogError:
                self._listing.forget()  # the next call must report the damage too
                raise
        return list(self._files.values())

    def _open_all(self) -> None:
        for name in sorted(self._listing.names):
            if not is_index_file_name(name):
                continue
            try:
                file = MappedFile.open(os.path.join(self.path, name), 0)
            except FileNotFoundError:
                continue  # retention removed it since the listing
            if file.size:
                self._files[name] = IndexFile(file, self._slots_by_size)
            else:
                file.close()
                self._listing.forget()  # an owner has just made it, and is about to give it its size

    def files(self) -> list[IndexFileInfo]:
        return [file.info() for file in self._refresh()]

    def newest_first(self) -> Iterator[IndexFile]:
        """The files that have entries, the newest first. ``CorruptIndex``."""
        for file in reversed(self._refresh()):
            if file.header().index_count > 1:
                yield file

    def candidates(self, topic: str, key: str, begin: int, end: int, *, strict: bool) -> Iterator[IndexHit]:
        """The places of messages that may carry the key, newest first."""
        for file in reversed(self._refresh()):
            header = file.header()
            if header.index_count > 1 and header.begin_timestamp <= end:
                yield from file.hits(f"{topic}#{key}", begin, end, strict=strict)
            # RocketMQ stops here too: older files hold only older messages.
            if header.begin_timestamp < begin and header.index_count > 1:
                return

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files = {}
