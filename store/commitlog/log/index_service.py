"""The index files: from a key to the physical offsets of the messages that carry it.

An index file is a hash table on disk. A slot holds the number of its newest entry, and each entry the number of the
slot's entry before it, so a look-up follows a chain from new to old. Entries hold only the hash of ``topic#key``;
whoever asks compares the messages themselves.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from commitlog.errors import CommitLogError, CorruptIndex, FileChanged
from commitlog.files.mapped_file import MappedFile
from commitlog.files.numbered_files import DirectoryListing
from commitlog.format.index_file import (
    ENTRIES_PER_SLOT,
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT_SIZE,
    IndexHeader,
    check_header,
    decode_entry,
    decode_header,
    entry_offset,
    infer_slot_count,
    slot_offset,
)
from commitlog.format.java_hash import index_key_hash

__all__ = ["IndexFile", "IndexFileInfo", "IndexHit", "IndexService"]

_NAME_DIGITS = 17
# The index keeps times in whole seconds, rounded down.
_SECOND_MS = 1000


@dataclass(frozen=True, slots=True)
class IndexFileInfo:
    """What an index file covers: store times in milliseconds, physical offsets, and how full it is."""

    path: str
    begin_timestamp: int
    end_timestamp: int
    begin_physical_offset: int
    end_physical_offset: int
    slot_count: int
    index_count: int


class IndexHit(NamedTuple):
    """Where a message may lie that carries a key, and the byte of which index file says so."""

    physical_offset: int
    path: str
    position: int


class IndexFile:
    """One index file, read entry by entry. The number of its slots follows from its size."""

    def __init__(self, file: MappedFile) -> None:
        self.path = file.path
        self._file = file
        slots = infer_slot_count(self._file.size)
        if slots is None:
            size = self._file.size
            self._file.close()
            raise CorruptIndex(
                "Index file",
                path=self.path,
                offset=0,
                expected=f"a size of {HEADER_SIZE} + 84 bytes a slot (four entries a slot)",
                found=size,
                advice="An index file can be deleted; RocketMQ then finds its messages by offset only.",
            )
        self.slots = slots
        self.capacity = slots * ENTRIES_PER_SLOT

    def header(self) -> IndexHeader:
        """The header as it is now. ``CorruptIndex`` when its numbers cannot be."""
        header = decode_header(self._read(0, HEADER_SIZE))
        problem = check_header(header, self.slots, self.capacity)
        if problem is not None:
            raise self._corrupt(problem.field, problem.offset, problem.expected, problem.found)
        return header

    def _read(self, at: int, length: int) -> bytes:
        data = self._file.read(at, length)
        if len(data) < length:
            raise FileChanged(
                f"{self.path} ends at byte {at + len(data)}: it was truncated while being read. Open the store again.",
                path=self.path,
            )
        return data

    def info(self) -> IndexFileInfo:
        header = self.header()
        return IndexFileInfo(
            self.path,
            header.begin_timestamp,
            header.end_timestamp,
            header.begin_physical_offset,
            header.end_physical_offset,
            self.slots,
            header.index_count,
        )

    def hits(self, key: str, begin: int, end: int, *, strict: bool) -> Iterator[IndexHit]:
        """The entries with the key's hash, newest first, stored within ``[begin, end]`` (roughly: the index knows
        seconds).

        ``strict`` is for files that were closed cleanly: a slot that points behind the last entry is then corrupt,
        while a crash leaves such slots behind, and RocketMQ passes them over.
        """
        key_hash = index_key_hash(key)
        slot = key_hash % self.slots
        at = slot_offset(slot)
        number = int.from_bytes(self._read(at, SLOT_SIZE), "big", signed=True)
        header = self.header()
        # An owner at work writes entry and slot before it counts them; a full file has no place for one more.
        highest = min(header.index_count, self.capacity - 1)
        if not 0 <= number <= highest:
            if strict:
                raise self._corrupt(f"Slot {slot}", at, f"0 to {highest}", number)
            return
        while number > 0:
            at = entry_offset(number, self.slots)
            entry = decode_entry(self._read(at, ENTRY_SIZE))
            if entry.key_hash % self.slots != slot or entry.key_hash < 0:
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

    def close(self) -> None:
        self._file.close()

    def _corrupt(self, what: str, at: int, expected: str, found: int) -> CorruptIndex:
        return CorruptIndex(
            what,
            path=self.path,
            offset=at,
            expected=expected,
            found=found,
            advice="The index can be rebuilt from the CommitLog; the messages themselves are not affected.",
        )


class IndexService:
    """All index files of a store, searched from the newest to the oldest."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._listing = DirectoryListing(path)
        self._files: dict[str, IndexFile] = {}

    def _refresh(self) -> list[IndexFile]:
        """The index files, oldest first: their names are times."""
        if self._listing.refresh():
            self.close()
            try:
                self._open_all()
            except CommitLogError:
                self._listing.forget()  # what is wrong now is wrong at the next call too
                raise
        return list(self._files.values())

    def _open_all(self) -> None:
        for name in sorted(self._listing.names):
            if not (name.isascii() and name.isdigit() and len(name) == _NAME_DIGITS):
                continue
            try:
                file = MappedFile.open(os.path.join(self.path, name), 0)
            except FileNotFoundError:
                continue  # retention removed it since the listing
            if file.size:
                self._files[name] = IndexFile(file)
            else:
                file.close()
                self._listing.forget()  # an owner has just made it; its size comes in a moment

    def files(self) -> list[IndexFileInfo]:
        return [file.info() for file in self._refresh()]

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
