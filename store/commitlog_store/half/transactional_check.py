"""TransactionalMessageCheckService: asks a program at an interval for the outcome of its half messages.

Source: RocketMQ ``broker/transaction/TransactionalMessageCheckService.java``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias

from commitlog_store.config import MessageStoreConfig
from commitlog_store.errors import CommitLogError, StoreClosed
from commitlog_store.half_message import Answer, HalfMessagesChecked
from commitlog_store.message import MessageExt
from commitlog_store.threads.jobs import JobThreadEnded

__all__ = ["CheckCallback", "TransactionalMessageCheckService"]

_LOG = logging.getLogger(__name__)
_MS = 1000.0

# Asked for the outcome of a half message; the message has the topic and queue that it is meant for.
CheckCallback: TypeAlias = Callable[[MessageExt], Answer]


class TransactionalMessageCheckService:
    """Rounds of checks, each of which may call the program's callback many times."""

    def __init__(
        self,
        check: Callable[[CheckCallback], HalfMessagesChecked],
        callback: CheckCallback,
        config: MessageStoreConfig,
    ) -> None:
        self._check = check
        self._callback = callback
        self._interval_s = config.transaction_check_interval / _MS

    def run_once(self) -> float:
        try:
            checked = self._check(self._callback)
        except (StoreClosed, JobThreadEnded):
            pass  # no round comes after this
        except Exception as error:  # noqa: BLE001 - whatever it is, the next round comes in its time
            expected = isinstance(error, CommitLogError)
            _LOG.error(
                "A round of checks of half messages failed; the next one begins in %.0f s: %s",
                self._interval_s,
                error,
                exc_info=None if expected else error,
            )
        else:
            if checked != HalfMessagesChecked(too_young=checked.too_young, unreadable=checked.unreadable):
                _LOG.info("A round of checks of half messages: %s", checked)
        return self._interval_s
