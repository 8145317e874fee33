"""Messages that reading skipped because of damage (``on_damage="skip"``): what is reported of each stretch."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from commitlog_store.errors import InvalidValue

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SkippedRange:
    """Queue offsets ``[start, stop)`` whose messages could not be read.

    ``physical_start`` and ``physical_stop`` bound the bytes of the log in which they lie, or lay; both are -1 where
    that is not known, as for a damaged unit. ``reason`` is the text of the first error.
    """

    topic: str
    queue_id: int
    start: int
    stop: int
    physical_start: int
    physical_stop: int
    reason: str

    @property
    def messages(self) -> int:
        """The number of queue offsets."""
        return self.stop - self.start

    @property
    def size(self) -> int:
        """Bytes of the log; 0 where they are not known."""
        return self.physical_stop - self.physical_start

    def __str__(self) -> str:
        where = "at an unknown place of the log"
        if self.physical_start >= 0:
            where = f"{self.size} bytes at physical offsets [{self.physical_start}, {self.physical_stop})"
        return (
            f"Topic {self.topic!r}, queue {self.queue_id}: skipped the offsets [{self.start}, {self.stop}), "
            f"{self.messages} messages, {where}: {self.reason}"
        )

    def joined(self, following: SkippedRange) -> SkippedRange:
        """This range and the one that follows it at once, as one range with the reason of the first."""
        known = [part for part in (self, following) if part.physical_start >= 0]
        return replace(
            self,
            stop=following.stop,
            physical_start=min((part.physical_start for part in known), default=-1),
            physical_stop=max((part.physical_stop for part in known), default=-1),
        )


class Skips:
    """What one reading of a queue skips: neighbouring ranges become one, which is logged and added to ``reported``.

    ``missing_files``: whether the messages of a missing file, and those that the disk fails to read, are skipped too.
    """

    def __init__(self, reported: list[SkippedRange], *, missing_files: bool = True) -> None:
        self.missing_files = missing_files
        self._reported = reported
        self._open: SkippedRange | None = None

    def add(self, skipped: SkippedRange) -> None:
        """Add the next range that was skipped."""
        if self._open is not None and self._open.stop == skipped.start:
            self._open = self._open.joined(skipped)
            return
        self.flush()
        self._open = skipped

    def flush(self) -> None:
        """Report what was added: a message was read after it, or the reading ends."""
        if self._open is not None:
            if self._open not in self._reported:
                self._reported.append(self._open)
            _logger.warning("%s", self._open)
            self._open = None


def check_skipped(skipped: object) -> None:
    """``InvalidValue`` for what is not a list to which skipped ranges can be added, or None."""
    if skipped is not None and not isinstance(skipped, list):
        raise InvalidValue(f"skipped is a list, to which what was left out is added, not {skipped!r}.")
