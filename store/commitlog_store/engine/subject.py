"""Subject: what a part of an open store offers to ``OwnedStore``: its threads, its files, and what it still needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from commitlog_store.threads.worker import ServiceThread


@dataclass(frozen=True, kw_only=True)
class Hold:
    """Everything from a physical offset on is still needed by ``holder``.

    ``at_most_ms``: it holds no file that is older than that; None holds for as long as it is needed.
    ``yields_to_disk``: it holds nothing while the disk is so full that files go whatever their age.
    """

    from_offset: int
    holder: str
    at_most_ms: int | None = None
    yields_to_disk: bool = False


class Subject:
    """A part of an open store, complete when constructed. By itself it has no threads, no files, and needs nothing."""

    def workers(self) -> Sequence[ServiceThread]:
        """The threads, in the order in which they start and stop; asked again when the store is closed."""
        return ()

    def save(self) -> None:
        """Write the files that follow the log. On the job thread, when all of the log is on the device.

        What it raises leaves no clean end: the next opening recovers.
        """

    def close(self) -> None:
        """Close what is open for reading or listening, when the threads have ended. It may be called again."""

    def look_again(self) -> None:
        """Something outside of the store that the subject asks for has changed."""

    def holds(self) -> Sequence[Hold]:
        """What the subject still needs of the log, so that retention keeps it. On the job thread."""
        return ()
