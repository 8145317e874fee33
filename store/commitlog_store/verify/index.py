"""Verification of the index: every key of the log's messages is compared with the entries, both in log order."""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np

from commitlog_store.columnar.dispatch import DispatchRequests, index_entries
from commitlog_store.columnar.scan import RecordScan
from commitlog_store.files import disk
from commitlog_store.files.whole_file import TEMPORARY_SUFFIX
from commitlog_store.format.arrays import BoolArray, Int64Array
from commitlog_store.index.service import is_index_file_name
from commitlog_store.verify.findings import FINDINGS_PER_FILE, NOWHERE, Findings, Severity
from commitlog_store.verify.index_file import Entries, IndexFileCheck, open_index_files
from commitlog_store.verify.log import LogCheck

_CHUNK = 1 << 16
# So many of the entries in their places may differ from the log and count as damaged, not as other entries.
_FEW = 8


class _Keys(NamedTuple):
    """Keys of the log's messages: the message's physical offset, the key's hash, the message's store time (ms)."""

    places: Int64Array
    hashes: Int64Array
    stored: Int64Array

    def where(self, rows: BoolArray) -> _Keys:
        return _Keys(self.places[rows], self.hashes[rows], self.stored[rows])


class IndexCheck:
    """Verifies all index files. Feed it the whole log with ``compare``, then call ``finish``."""

    def __init__(
        self, path: str, log: LogCheck, findings: Findings, *, aborted: bool, safe_timestamp: int, must_be_whole: bool
    ) -> None:
        """``must_be_whole``: this package closed the store. RocketMQ drops whole index files after a crash, and does
        not rebuild them."""
        self.path = path
        self._log = log
        self._findings = findings
        self._aborted = aborted
        self._safe = safe_timestamp
        # A crash within a recovery leaves an index that lacks what comes after this place.
        self._indexed_again_from = log.recovery_start(safe_timestamp) if aborted else NOWHERE
        self._must_be_whole = must_be_whole
        self._missing: tuple[int, int, int, Severity] | None = None
        # Physical offset of the message whose keys were compared last.
        self._last = _Keys(*(np.zeros(0, np.int64) for _ in _Keys._fields))
        self._unreadable = False
        names = self._names()
        self.count = len(names)
        self._files = list(open_index_files(path, names, findings, aborted=aborted))
        self._unreadable |= any(findings.has_error("access.read", os.path.join(path, name)) for name in names)
        self._current = 0
        self._advance()
        first = self._file
        self._begin = first.header.begin_physical_offset if first is not None else None

    def _names(self) -> list[str]:
        if not disk.is_directory(self.path):
            return []
        if not disk.may_read(self.path):
            self._unreadable = True
            return []  # what opening needs of it is reported there
        names = sorted(disk.list_names(self.path))
        for name in names:
            half_made = self._aborted and name.endswith(TEMPORARY_SUFFIX)
            if not is_index_file_name(name) and not half_made:
                message = "The name is not a 17-digit time; the file is ignored."
                path = os.path.join(self.path, name)
                self._findings.add("files.name", "note", path, message)
        return [name for name in names if is_index_file_name(name)]

    @property
    def _file(self) -> IndexFileCheck | None:
        return self._files[self._current] if self._current < len(self._files) else None

    def _advance(self) -> None:
        """Go to the next file with entries left; files without are finished."""
        while (file := self._file) is not None and (not file.readable or not file.left):
            self._unreadable = self._unreadable or not file.readable
            file.finish()
            self._current += 1

    def close(self) -> None:
        for file in self._files:
            file.close()

    def compare(self, scan: RecordScan, requests: DispatchRequests) -> None:
        """Compare the keys of the next part of the log with the next entries."""
        if self._begin is None:
            return
        entries = index_entries(scan)
        rows = entries.rows
        keys = _Keys(
            requests.physical_offsets[rows], entries.key_hashes.astype(np.int64), requests.store_timestamps[rows]
        )
        keys = keys.where(keys.places < self._log.judged_end)
        before = keys.places < self._begin
        if before.any():
            if not self._must_be_whole:  # else their index file has expired with the log's head
                self._lacking(keys.where(before))
            keys = keys.where(~before)
        self._skip_expired()
        keys = self._without_begun(keys)
        while len(keys.places):
            self._skip_repeated(int(keys.places[0]))
            done = self._compare_some(keys)
            if done is None:
                self._lacking(keys)
                return
            keys = done

    def _skip_expired(self) -> None:
        """Check entries of messages that retention has removed among themselves only."""
        while (file := self._file) is not None:
            entries = file.peek(_CHUNK)
            live = np.flatnonzero(entries.places >= self._log.min_offset)
            count = int(live[0]) if len(live) else len(entries.values)
            if not count:
                return
            expired = Entries(entries.first, entries.values[:count])
            file.consume(expired, expired.hashes)
            self._advance()

    def _without_begun(self, keys: _Keys) -> _Keys:
        """The keys without those that the first message may have in a file before the first, which is gone."""
        at_begin = int(np.count_nonzero(keys.places == self._begin))
        if not at_begin or keys.places[0] != self._begin:
            return keys
        there = 0
        for file in self._files[self._current :]:
            found = int(np.count_nonzero(file.peek(at_begin - there).places == self._begin))
            there += found
            if found < file.left:
                break  # else its keys fill the file, and continue in the next one
        return _Keys(*(values[at_begin - there :] for values in keys)) if there else keys

    def _skip_repeated(self, following: int) -> None:
        """Skip entries of messages that RocketMQ's recovery has indexed again, from the log file on where it begins.

        Each such entry has to be a key of its message; ``following`` is the message whose keys come next.
        """
        while (file := self._file) is not None:
            entries = file.peek(1)
            if not len(entries.values) or entries.places[0] >= following:
                return
            entries = file.peek(_CHUNK)
            back = entries.places < following
            count = len(back) if back.all() else int(np.argmin(back))
            places, hashes = entries.places[:count].tolist(), entries.hashes[:count].tolist()
            own = [hash_ in self._log.key_hashes(place) for place, hash_ in zip(places, hashes, strict=True)]
            count = count if all(own) else own.index(False)
            if not count:
                return
            file.consume(Entries(entries.first, entries.values[:count]), entries.hashes[:count])
            self._advance()

    def _compare_some(self, keys: _Keys) -> _Keys | None:
        """Compare as many keys as the current file has entries. Returns the other keys; None without any entry."""
        file = self._file
        if file is None:
            return None
        found = file.peek(len(keys.places))
        count = len(found.values)
        wanted = _Keys(*(values[:count] for values in keys))
        wrong = (found.places != wanted.places) | (found.hashes != wanted.hashes)
        bad = np.flatnonzero(wrong)
        # After a file's last entry nothing follows that could have moved up, unless a key is there a second time.
        again = found.places[-1] in (wanted.places[-2:-1] if count > 1 else self._last.places)
        in_place = not wrong[-1] or (len(bad) == 1 and count == file.left and not again)
        if len(bad) and not (in_place and len(bad) <= max(_FEW, count // 4)):
            return self._align(file, keys)
        if len(bad):
            self._damaged(file, found, wanted, bad)
        else:
            file.check_times(found, wanted.stored)
        self._end_missing()
        file.consume(found, wanted.hashes)
        self._last = wanted.where(wanted.places == wanted.places[-1])
        self._advance()
        return _Keys(*(values[count:] for values in keys))

    def _damaged(self, file: IndexFileCheck, found: Entries, wanted: _Keys, bad: Int64Array) -> None:
        for row in bad[:FINDINGS_PER_FILE].tolist():
            number = found.first + row
            file.note(
                "index.entry",
                file.at(number),
                f"Entry {number}: expected key hash {int(wanted.hashes[row])} of the message at physical offset "
                f"{int(wanted.places[row])}, found {int(found.hashes[row])} at {int(found.places[row])}.",
            )

    def _align(self, file: IndexFileCheck, keys: _Keys) -> _Keys | None:
        """Keys and entries are not in step: compare them as sets, message by message.

        RocketMQ's recovery indexes again the last message that the index holds, in the same file or a new one.
        """
        last = int(keys.places[-1])
        window = file.peek(2 * len(keys.places) + _CHUNK)
        later = np.flatnonzero(window.places > last)
        count = int(later[0]) if len(later) else len(window.values)
        found = Entries(window.first, window.values[:count])
        # Keys after a file's last entry are looked for in the next file.
        goes_on = count == file.left and bool(count) and self._current + 1 < len(self._files)
        end = int(found.places[-1]) if goes_on else last
        here = keys.where(keys.places <= end)
        base = int(min(keys.places[0], found.places.min() if count else keys.places[0]))
        wanted_codes, found_codes = _codes(here.places - base, here.hashes), _codes(found.places - base, found.hashes)
        before = _codes(self._last.places - base, self._last.hashes)
        extra = ~np.isin(found_codes, np.concatenate((before, wanted_codes)))
        lacking = ~np.isin(wanted_codes, found_codes)
        later = lacking & (here.places == end) & goes_on
        if (lacking & ~later).any():
            self._lacking(here.where(lacking & ~later))
        for row in np.flatnonzero(extra)[:FINDINGS_PER_FILE].tolist():
            self._extra(file, found, row)
        file.consume(found, found.hashes)
        if len(here.places):
            self._last = here.where(here.places == here.places[-1])
        self._advance()
        if not count and not len(here.places):
            return None
        left = keys.places > end
        left[: len(later)] |= later
        return keys.where(left)

    def _extra(self, file: IndexFileCheck, entries: Entries, row: int) -> None:
        place = int(entries.places[row])
        if self._log.lost.holds(place) or 0 <= place < self._log.min_offset:
            return
        severity: Severity | None = None
        if self._aborted and place >= self._log.judged_end:
            if place < self._log.end or self._log.holds_record(place):
                return  # an owner at work
            severity = "note"
        number = entries.first + row
        file.note(
            "index.entry",
            file.at(number),
            f"Entry {number}: expected a message with key hash {int(entries.hashes[row])} at physical offset {place}, "
            "found none there.",
            severity,
        )

    def _lacking(self, keys: _Keys) -> None:
        """Gather keys that the index does not hold; they are reported when a key that it holds follows."""
        if self._unreadable:
            return  # a file could not be read, which is reported already
        later = (keys.stored > self._safe) | (keys.places >= self._indexed_again_from)
        note = self._aborted and bool(later.all())
        # The checkpoint's time says that the last owner kept no index; the next opening with one builds it.
        note |= self._safe <= 0 and not self._files
        severity: Severity = "note" if note or not self._must_be_whole_here() else "error"
        first, last, count = int(keys.places[0]), int(keys.places[-1]), len(keys.places)
        if self._missing is not None and self._missing[3] == severity:
            first, count = self._missing[0], count + self._missing[2]
        else:
            self._end_missing()
        self._missing = (first, last, count, severity)

    def _must_be_whole_here(self) -> bool:
        """False before and between the files of a store that RocketMQ wrote."""
        file = self._file
        at_border = self._current < len(self._files) and file is not None and file.peek(1).first == 1
        return self._must_be_whole or not at_border

    def _end_missing(self) -> None:
        if self._missing is None:
            return
        first, last, count, severity = self._missing
        self._missing = None
        why = ""
        if severity == "note":
            why = (
                ": they were not indexed yet, or did not reach the device"
                if self._aborted
                else ": RocketMQ drops an index file that was not flushed when it crashed"
            )
        self._findings.add(
            "index.missing-key",
            severity,
            self.path,
            f"Expected {count} keys of the messages at the physical offsets {first} to {last} in the "
            f"index, found no entries for them{why}.",
        )

    def finish(self) -> None:
        """Report findings that show only after the whole log."""
        self._end_missing()
        self._skip_expired()
        self._skip_repeated(NOWHERE)
        while (file := self._file) is not None:
            entries = file.peek(_CHUNK)
            for row in range(min(len(entries.values), FINDINGS_PER_FILE)):
                self._extra(file, entries, row)
            if len(entries.values) < 1:
                return  # the file was cut while it was read
            file.consume(entries, entries.hashes)
            self._advance()


def _codes(places: Int64Array, hashes: Int64Array) -> Int64Array:
    """One number for offset and hash; far offsets, which only damage makes, all count as one."""
    return (np.clip(places, -1, (1 << 32) - 1) << 31) | (hashes & 0x7FFF_FFFF)
