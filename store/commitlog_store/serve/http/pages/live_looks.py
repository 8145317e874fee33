"""LiveLooks: what open pages show, looked at once for all who have the same page open, in a bounded part of the time.

A look takes turns with the store's puts, since one interpreter runs both: puts lose about the processor time that looks
take. So that time is what is bounded, of all open pages together; a look that waits for the disk costs puts nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from commitlog_store.serve.http.pages.views import Values

_LEAST_PAUSE_S = 2.0
# Looks take at most one part in so many of a processor.
_PART_OF_A_PROCESSOR = 100
# A page that no stream has asked for within this time is not open any more.
_UNUSED_S = 10.0


@dataclass
class _Look:
    used_at: float
    due: float = 0.0
    values: Values | None = None
    # Why there are no values.
    error: Exception = field(default_factory=RuntimeError)
    asking: threading.Lock = field(default_factory=threading.Lock)


class LiveLooks:
    """Any number of threads."""

    def __init__(
        self,
        *,
        pause_s: float = _LEAST_PAUSE_S,
        clock: Callable[[], float] = time.monotonic,
        processor_time: Callable[[], float] = time.thread_time,
    ) -> None:
        """``processor_time`` is that of the calling thread, in seconds."""
        self._pause_s = pause_s
        self._clock = clock
        self._processor_time = processor_time
        self._lock = threading.Lock()
        self._looks: dict[Hashable, _Look] = {}

    def of(self, page: Hashable, look: Callable[[Values | None], Values]) -> Values:
        """What ``look`` gave last for the page, or gives now if that is due; it gets what it gave before.

        While another thread looks, what was given before is given again. The error of the last look is raised where
        nothing was given before it.
        """
        found = self._found(page)
        if not found.asking.acquire(blocking=found.values is None):
            assert found.values is not None
            return found.values
        try:
            if self._clock() >= found.due:
                self._again(found, look)
            if found.values is None:
                raise found.error.with_traceback(None)
            return found.values
        finally:
            found.asking.release()

    def _found(self, page: Hashable) -> _Look:
        now = self._clock()
        with self._lock:
            kept = {
                key: one
                for key, one in self._looks.items()
                if now - one.used_at < _UNUSED_S or one.asking.locked() or key == page
            }
            self._looks = kept
            found = kept.setdefault(page, _Look(now))
            found.used_at = now
            return found

    def _again(self, found: _Look, look: Callable[[Values | None], Values]) -> None:
        begun = self._processor_time()
        try:
            found.values = look(found.values)
        except Exception as error:  # noqa: BLE001 - given to all who ask until the next look is due
            found.error = error
        finally:
            spent = self._processor_time() - begun
            pages = len(self._looks)
            found.due = self._clock() + max(self._pause_s, _PART_OF_A_PROCESSOR * pages * spent)
