"""Worker: the thread that runs a service step by step. Services have no threads: tests call ``run_once`` themselves."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from commitlog_store.errors import TooManyOpenFiles
from commitlog_store.threads.wakeup import Wakeup

# Until a step that found no descriptor is repeated.
_NO_DESCRIPTORS_SECONDS = 0.2

_LOG = logging.getLogger(__name__)


class Service(Protocol):
    """A service: ``run_once`` does one step and returns the seconds to wait before the next (0: more to do)."""

    def run_once(self) -> float: ...


class ServiceThread(Protocol):
    """The thread of a service, or several of them, as ``Worker``."""

    @property
    def is_current(self) -> bool: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...


class Worker:
    """Owns the thread of one service; ``wakeup`` starts the next step at once.

    An exception stops the service and is given to ``on_error``. Without descriptors, a step is repeated a little later:
    nothing has failed then. Started and stopped by the store's job thread, which no
    signal handler interrupts.
    """

    def __init__(
        self,
        name: str,
        service: Service,
        on_error: Callable[[BaseException], None],
        wakeup: Wakeup | None = None,
        *,
        patience_s: float | None = None,
    ) -> None:
        """``patience_s``: how long ``stop`` waits at most, for a service that may be left in the middle of a step."""
        self._patience_s = patience_s
        self._service = service
        self._on_error = on_error
        self._wakeup = wakeup or Wakeup()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether the calling thread is the service's."""
        return self._thread.ident == threading.get_ident()

    def stop(self) -> None:
        """End the thread after its current step, and return when it has ended. It may be called again.

        A service that may be left in its step is waited for no longer than ``patience_s``.
        """
        self.end_within(self._patience_s)

    def end_within(self, seconds: float | None) -> bool:
        """As ``stop``; whether the thread has ended within that time, or with None whenever it does."""
        self._stopping = True
        self._wakeup.set()
        if self._thread.ident not in (None, threading.get_ident()):
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        waits = False
        while not self._stopping:
            try:
                pause = self._service.run_once()
                if waits:
                    _LOG.warning("%s continues", self._thread.name)
                waits = False
            except TooManyOpenFiles as error:
                if not waits:
                    _LOG.warning("%s waits: %s", self._thread.name, error)
                waits, pause = True, _NO_DESCRIPTORS_SECONDS
            except Exception as error:  # noqa: BLE001 - whatever it is, the store must learn that its service is gone
                _LOG.exception("%s stopped", self._thread.name)
                self._on_error(error)
                return
            if pause > 0 and not self._stopping:
                self._wakeup.wait(pause)
