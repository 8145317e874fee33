"""GuardedSteps: steps of a delivery whose failures are logged once each, and after which the store continues."""

from __future__ import annotations

import logging
from collections.abc import Callable

from commitlog_store.delayed.waiting_records import FAILED_SECONDS, REFUSED_SECONDS
from commitlog_store.errors import CommitLogError, Refused, StoreClosed
from commitlog_store.threads.jobs import JobThreadEnded


class GuardedSteps:
    """Does steps of a service; one that fails is repeated later. For one thread."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        # The last failure of each kind of messages that the log has, so that it has each only once.
        self._failures: dict[str, str] = {}

    def do(self, what: str, step: Callable[[], float]) -> float:
        """Do a step for ``what``, such as "Timer messages". The seconds until the next one."""
        try:
            pause = step()
        except (StoreClosed, JobThreadEnded):
            return FAILED_SECONDS  # no step comes after this
        except Exception as error:
            text = str(error) or repr(error)
            if self._failures.get(what) != text:
                self._failures[what] = text
                expected = isinstance(error, CommitLogError)
                self._logger.warning("%s wait: %s", what, text, exc_info=None if expected else error)
            return REFUSED_SECONDS if isinstance(error, Refused) else FAILED_SECONDS
        self._failures.pop(what, None)
        return pause
