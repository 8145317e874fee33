"""Verification of one index file by itself: entries, chains, slots and header.

Slots and chains follow from the entries: they are computed again from the entries, in order, and compared.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from commitlog_store.errors import CommitLogError, StoreAccessDenied
from commitlog_store.files import disk
from commitlog_store.files.mapped_file import MappedFile
from commitlog_store.format.arrays import Int64Array
from commitlog_store.format.index_file import (
    ENTRY_SIZE,
    HEADER_SIZE,
    INDEX_ENTRY_DTYPE,
    SLOT_SIZE,
    IndexHeader,
    decode_header,
    entry_offset,
)
from commitlog_store.index.file_writer import link_entries
from commitlog_store.index.service import IndexFile, is_index_file_name
from commitlog_store.java_numbers import MAX_INT
from commitlog_store.verify.findings import FINDINGS_PER_FILE, Findings, Severity

# Fields of the header in bytes from its start.
_BEGIN_OFFSET_AT, _END_OFFSET_AT, _SLOTS_AT, _COUNT_AT = 16, 24, 32, 36
_SECOND_MS = 1000


class Entries(NamedTuple):
    """Consecutive entries of one file: the number of the first, and all of them in native byte order."""

    first: int
    values: npt.NDArray[np.void]

    @property
    def places(self) -> Int64Array:
        return self.values["physical_offset"].astype(np.int64)

    @property
    def hashes(self) -> Int64Array:
        return self.values["key_hash"].astype(np.int64)


def check_index_headers(path: str, findings: Findings, *, aborted: bool) -> int:
    """Verify the headers of all index files, and nothing more of them. Returns their number."""
    listed = disk.list_names(path) if disk.is_directory(path) and disk.may_read(path) else []
    names = sorted(filter(is_index_file_name, listed))
    for file in open_index_files(path, names, findings, aborted=aborted):
        file.close()
    return len(names)


def open_index_files(path: str, names: list[str], findings: Findings, *, aborted: bool) -> Iterator[IndexFileCheck]:
    """The checks of these files of a directory; one that may not be read is reported, and left out."""
    slots_by_size: dict[int, int] = {}
    for place, name in enumerate(names):
        settled = not aborted or place < len(names) - 1
        try:
            yield IndexFileCheck(os.path.join(path, name), findings, slots_by_size, settled=settled)
        except FileNotFoundError:
            continue  # retention at work
        except StoreAccessDenied as error:
            findings.add("access.read", "error", error.path, str(error))


class IndexFileCheck:
    """An index file as it was when it was opened. ``peek`` returns the next entries, ``consume`` finishes them."""

    def __init__(self, path: str, findings: Findings, slots_by_size: dict[int, int], *, settled: bool) -> None:
        """``settled``: the file was not being written when the store was closed, or stopped.

        ``FileNotFoundError`` if retention has removed it, ``StoreAccessDenied``.
        """
        self.path = path
        self._findings = findings
        self._settled = settled
        self._next = 1
        self._count = 1
        self._slots = 0
        self._file = MappedFile.open(path, 0)
        self.header = IndexHeader(0, 0, 0, 0, 0, 1)
        try:
            self.readable = self._read_header(slots_by_size)
        except FileNotFoundError:
            self._file.close()
            raise
        self._heads = np.zeros(self._slots, np.int32)
        self._ends: tuple[int, int] | None = None

    def _read_header(self, slots_by_size: dict[int, int]) -> bool:
        try:
            if self._file.size == 0 and not self._settled:
                return True  # just made
            # On an error it closes the file.
            reader = IndexFile(MappedFile.open(self.path, 0), slots_by_size)
            try:
                self._slots = reader.slot_count() or 0
                reader.header()
            finally:
                reader.close()
        except CommitLogError as error:
            self.note("index.header", getattr(error, "offset", 0), str(error), "error")
            return False
        self.header = decode_header(self._file.read(0, HEADER_SIZE))
        self._count = max(self.header.index_count, 1) if self._slots else 1
        return True

    def note(self, check: str, at: int | None, message: str, severity: Severity | None = None) -> None:
        """Add a finding; by default an error in a settled file."""
        severity = severity or ("error" if self._settled else "note")
        self._findings.add(check, severity, self.path, message, offset=at)

    @property
    def left(self) -> int:
        """How many entries have not been consumed."""
        return self._count - self._next

    def at(self, number: int) -> int:
        """The byte at which an entry starts."""
        return entry_offset(number, self._slots)

    def peek(self, count: int) -> Entries:
        """The next entries, at most ``count``."""
        count = min(count, self.left)
        data = self._file.read(self.at(self._next), count * ENTRY_SIZE) if count else b""
        return Entries(self._next, np.frombuffer(data[: len(data) - len(data) % ENTRY_SIZE], INDEX_ENTRY_DTYPE))

    def consume(self, entries: Entries, hashes: Int64Array) -> None:
        """Chain the next entries to their slots. ``hashes`` are the right ones: those stored may be damaged."""
        if not len(entries.values):
            return
        if entries.first == 1:
            self._ends = (int(entries.places[0]), 0)
        self._ends = (self._ends[0] if self._ends else 0, int(entries.places[-1]))
        links = link_entries(self._heads, np.abs(hashes) % self._slots, entries.first)
        self._heads[links.slots] = links.newest
        wrong = np.flatnonzero(entries.values["previous"] != links.previous)
        for row in wrong[:FINDINGS_PER_FILE].tolist():
            number = entries.first + row
            found = int(entries.values["previous"][row])
            self.note(
                "index.chain",
                self.at(number) + ENTRY_SIZE - SLOT_SIZE,
                f"Chain of entry {number}: expected {int(links.previous[row])}, its slot's entry before it, "
                f"found {found}.",
            )
        self._count_more(len(wrong))
        self._next += len(entries.values)

    def check_times(self, entries: Entries, stored: Int64Array) -> None:
        """``stored`` are the store times (ms) of the entries' messages."""
        begin = self.header.begin_timestamp
        expected = np.clip((stored - begin) // _SECOND_MS, 0, MAX_INT)
        wrong = entries.values["seconds"] != expected
        if entries.first == 1 and len(wrong):
            wrong[0] = False  # RocketMQ counts the seconds of a later file's first entry from the file before it
        for row in np.flatnonzero(wrong)[:FINDINGS_PER_FILE].tolist():
            number = entries.first + row
            self.note(
                "index.entry",
                self.at(number),
                f"Time of entry {number}: expected {int(expected[row])} seconds after the file's begin, found "
                f"{int(entries.values['seconds'][row])}.",
            )

    def finish(self) -> None:
        """Verify slots and header, after every entry has been consumed."""
        if not self.readable or self._count <= 1:
            return
        stored = np.frombuffer(self._file.read(HEADER_SIZE, self._slots * SLOT_SIZE), ">i4")
        wrong = stored != self._heads[: len(stored)]
        if not self._settled:
            wrong &= stored < self._count  # slots lead to an owner's newest entries, which are not counted yet
        slots = np.flatnonzero(wrong)
        for slot in slots[:FINDINGS_PER_FILE].tolist():
            self.note(
                "index.chain",
                HEADER_SIZE + SLOT_SIZE * slot,
                f"Slot {slot}: expected {int(self._heads[slot])}, its newest entry, found {int(stored[slot])}.",
            )
        self._count_more(len(slots))
        self._check_header()

    def _count_more(self, chains: int) -> None:
        if chains > FINDINGS_PER_FILE:
            kind: Severity = "error" if self._settled else "note"
            self._findings.add_more("index.chain", kind, self.path, chains - FINDINGS_PER_FILE)

    def _check_header(self) -> None:
        used = int(np.count_nonzero(self._heads))
        found = self.header.hash_slot_count
        # Versions of RocketMQ before 4.7 counted every entry here.
        if found not in (used, self._count, self._count - 1):
            self.note("index.header", _SLOTS_AT, f"HASH SLOT COUNT: expected {used} slots in use, found {found}.")
        if self._ends is None:
            return
        for name, at, expected, value in (
            ("BEGIN PHYSICAL OFFSET", _BEGIN_OFFSET_AT, self._ends[0], self.header.begin_physical_offset),
            ("END PHYSICAL OFFSET", _END_OFFSET_AT, self._ends[1], self.header.end_physical_offset),
        ):
            if value != expected:
                self.note("index.header", at, f"{name}: expected {expected}, as the entries say, found {value}.")

    def close(self) -> None:
        self._file.close()
