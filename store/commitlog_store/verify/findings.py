"""Findings of a verification: the errors and notes that ``verify_store`` returns, and their list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from commitlog_store.files import disk
from commitlog_store.java_numbers import MAX_LONG

Severity = Literal["error", "note"]

# So many findings of one check in one file are reported one by one; a damaged region must not fill the memory.
FINDINGS_PER_FILE = 20
# After everything a log can hold.
NOWHERE = MAX_LONG


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One deviation of a store from its invariants.

    ``check`` is its short, stable name. ``offset`` is a byte of the file at ``path``; None when no byte shows it.
    ``message`` names the place, the expected and the found value. A ``note`` is normal after a crash, beside an owner
    at work, or for RocketMQ; an ``error`` is none of these.
    """

    check: str
    severity: Severity
    path: str
    offset: int | None = None
    message: str
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None


class Findings:
    """The findings of one verification, in the order in which they were found."""

    def __init__(self) -> None:
        self._found: list[Finding] = []
        self._counts: Counter[tuple[str, Severity, str]] = Counter()

    def add(self, check: str, severity: Severity, path: str, message: str, **place: Any) -> None:
        """Keep a finding, with its other fields; of many alike in one file the first ones and their number."""
        key = (check, severity, path)
        self._counts[key] += 1
        if self._counts[key] <= FINDINGS_PER_FILE:
            self._found.append(Finding(check=check, severity=severity, path=path, message=message, **place))

    def clear(self) -> None:
        """Forget all of them: the look begins again."""
        self._found = []
        self._counts = Counter()

    def has_error(self, check: str, path: str) -> bool:
        """Whether a file has an error of this check."""
        return (check, "error", path) in self._counts

    def add_more(self, check: str, severity: Severity, path: str, count: int) -> None:
        """Count findings without keeping each one."""
        self._counts[check, severity, path] += count

    def withdraw(self, topic: str, queue_id: int) -> None:
        """Remove the findings of a queue: something found later explains them."""
        gone = [one for one in self._found if (one.topic, one.queue_id) == (topic, queue_id)]
        self._found = [one for one in self._found if (one.topic, one.queue_id) != (topic, queue_id)]
        for one in gone:
            self._counts.pop((one.check, one.severity, one.path), None)

    def withdraw_removed(self, files: Iterable[str]) -> None:
        """Remove the findings of those files that are gone, beside an owner: it removed them during the look."""
        listed = set(files)
        gone = {one.path for one in self._found if one.path in listed and not disk.exists(one.path)}
        self._found = [one for one in self._found if one.path not in gone]
        self._counts = Counter({key: count for key, count in self._counts.items() if key[2] not in gone})

    def counts(self) -> list[tuple[str, Severity, int]]:
        """How many findings each check has, by name. Another thread may ask while findings are added."""
        found: Counter[tuple[str, Severity]] = Counter()
        for (check, severity, _), count in list(self._counts.items()):
            found[check, severity] += count
        return [(*key, count) for key, count in sorted(found.items())]

    def all(self) -> list[Finding]:
        """Every finding; of too many alike, the last one says how many more."""
        more = [
            Finding(
                check=check, severity=severity, path=path, message=f"{count - FINDINGS_PER_FILE} more like these here."
            )
            for (check, severity, path), count in self._counts.items()
            if count > FINDINGS_PER_FILE
        ]
        return self._found + more


class Lost:
    """Damaged or missing ranges of the log: units and entries that lead there need no finding of their own."""

    def __init__(self) -> None:
        self.stretches: list[tuple[int, int]] = []

    def add(self, start: int, stop: int) -> None:
        self.stretches.append((start, stop))

    def holds(self, physical_offset: int) -> bool:
        return any(start <= physical_offset < stop for start, stop in self.stretches)

    def between(self, start: int, stop: int) -> bool:
        """Whether a part of ``[start, stop)`` is lost."""
        return any(first < stop and start < last for first, last in self.stretches)
