"""LiveLooks: what open pages show, looked at once for all who have the same page open, in a bounded part of the time.

A look takes turns with the store's puts, since one interpreter runs both: puts lose about the processor time that looks
take. So that time is what is bounded, of all open pages together; a look that waits for the disk costs puts nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from commitlog_store.errors import CommitLogError
from commitlog_store.serve.call_limits import is_wanted_still
from commitlog_store.serve.http.pages.views import Values

_LOG = logging.getLogger(__name__)
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
    # Why the last look gave no values. Without either, no look has ended yet.
    error: CommitLogError | None = None
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

        While another thread looks, what was given before is given again, and so it is when a look fails with an error
        of the package, which is logged once. Where nothing was given before, all who ask get the error until the next
        look is due. Other exceptions are raised in the thread that looked.
        """
        found = self._found(page)
        if not found.asking.acquire(blocking=found.values is None):
            assert found.values is not None
            return found.values
        try:
            is_first = found.values is None and found.error is None
            if is_first or self._clock() >= found.due:
                self._again(page, found, look)
            if found.values is None:
                assert found.error is not None
                raise found.error.again()
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

    def _again(self, page: Hashable, found: _Look, look: Callable[[Values | None], Values]) -> None:
        begun = self._processor_time()
        try:
            found.values, found.error = look(found.values), None
        except CommitLogError as error:
            if not is_wanted_still():  # its visitor left, say, which is nothing of the page's
                raise
            if found.values is not None and str(error) != str(found.error):
                _LOG.warning("An open page stays as it was, %r: %s", page, error)
            found.error = error
        finally:
            spent = self._processor_time() - begun
            pages = len(self._looks)
            found.due = self._clock() + max(self._pause_s, _PART_OF_A_PROCESSOR * pages * spent)
