"""FairLock: a lock that one thread takes again and again, while others get it in between."""

from __future__ import annotations

import threading
from types import TracebackType


class FairLock:
    """A lock whose waiting threads come before the one that has just released it.

    With ``threading.Lock``, a thread that takes the lock again at once wins against those that have to wake up first.
    Use it as a context manager. Not reentrant.
    """

    def __init__(self) -> None:
        # Held by the thread that is next, while it waits for ``_lock``.
        self._turn = threading.Lock()
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._turn:
            self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._lock.release()
