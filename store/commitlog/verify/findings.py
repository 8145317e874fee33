"""What ``verify_store`` finds, and the list in which findings gather."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

__all__ = ["FINDINGS_PER_FILE", "NOWHERE", "Finding", "Findings", "Lost", "Severity"]

Severity = Literal["error", "note"]

# Of one check, so many findings of a file are told one by one; a damaged region must not fill the memory with them.
FINDINGS_PER_FILE = 20
# Behind everything a log can hold.
NOWHERE = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing in a store that is not as it should be.

    ``check`` is its short, stable name. ``offset`` is a byte of the file at ``path``; None when no byte shows it.
    ``message`` says what, what was expected and what was found. A ``note`` is what a crash leaves, or an owner at work,
    or RocketMQ by design; an ``error`` is none of these.
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
    """The findings of one verification, in the order in which they were met."""

    def __init__(self) -> None:
        self._found: list[Finding] = []
        self._counts: Counter[tuple[str, Severity, str]] = Counter()

    def add(self, finding: Finding) -> None:
        """Keep a finding; of many alike in one file the first ones, and how many there were."""
        key = (finding.check, finding.severity, finding.path)
        self._counts[key] += 1
        if self._counts[key] <= FINDINGS_PER_FILE:
            self._found.append(finding)

    def add_more(self, check: str, severity: Severity, path: str, count: int) -> None:
        """Count findings that nobody will look at one by one."""
        self._counts[check, severity, path] += count

    def withdraw(self, topic: str, queue_id: int) -> None:
        """Forget what was found in a queue: something met later explains it."""
        gone = [one for one in self._found if (one.topic, one.queue_id) == (topic, queue_id)]
        self._found = [one for one in self._found if (one.topic, one.queue_id) != (topic, queue_id)]
        for one in gone:
            self._counts.pop((one.check, one.severity, one.path), None)

    def all(self) -> list[Finding]:
        """Every finding; where there were too many alike, the last one says how many more."""
        more = [
            Finding(
                check=check, severity=severity, path=path, message=f"{count - FINDINGS_PER_FILE} more like these here."
            )
            for (check, severity, path), count in self._counts.items()
            if count > FINDINGS_PER_FILE
        ]
        return self._found + more


class Lost:
    """Stretches of the log that are damaged or missing: what leads there needs no finding of its own."""

    def __init__(self) -> None:
        self.stretches: list[tuple[int, int]] = []

    def add(self, start: int, stop: int) -> None:
        self.stretches.append((start, stop))

    def holds(self, physical_offset: int) -> bool:
        return any(start <= physical_offset < stop for start, stop in self.stretches)

    def between(self, start: int, stop: int) -> bool:
        """Whether a part of ``[start, stop)`` is lost."""
        return any(first < stop and start < last for first, last in self.stretches)
