"""RemoteHalfMessages: half messages of a store at a server, from prepare to commit or rollback."""

from __future__ import annotations

import logging
import threading
from typing import get_args

from commitlog_store.errors import InvalidValue
from commitlog_store.format.message_id import decode_message_id
from commitlog_store.half.transactional_message import (
    CheckCallback,
    TransactionalMessageCheckService,
    ask_outcome,
    checked_handle,
    checked_producer_group,
)
from commitlog_store.half_message import Answer, HalfMessageHandle, HalfMessagesChecked, PendingHalfMessage
from commitlog_store.message import Message
from commitlog_store.remote.message_puts import size_to_put
from commitlog_store.remote.put_wire import HalfMessagesAsked, MessageFields
from commitlog_store.remote.reader import RemoteReader
from commitlog_store.remote.session_pool import SessionPool
from commitlog_store.threads.worker import Worker

_LOG = logging.getLogger(__name__)
# What half messages of a round come to: of the counts, those that add up over two calls.
_ENDED = frozenset({"committed", "rolled_back", "put_back", "given_up", "failed"})


def _report(error: BaseException) -> None:
    _LOG.error("The checks of half messages end: %r", error)


class RemoteHalfMessages:
    """``MessageStore.half_messages`` through a server.

    Each call is done once: a lost answer is asked for again. Where none comes in time, ``PutNotConfirmed``: a prepared
    half message is among ``pending`` then, or is not, and a handle is committed or rolled back again. ::

        with connect("grpc://127.0.0.1:8815") as store:
            half = store.half_messages
            handle = half.prepare(Message(topic="orders", body=b"paid 12.50"), producer_group="payments")
            half.commit(handle)  # or half.rollback(handle)
    """

    def __init__(self, sessions: SessionPool) -> None:
        """Use ``RemoteStore.half_messages``."""
        self._sessions = sessions
        self._lock = threading.Lock()
        # The thread of ``start_checks``.
        self._checks: Worker | None = None

    def prepare(self, message: Message, producer_group: str) -> HalfMessageHandle:
        """``TransactionalMessageService.prepare``."""
        checked_producer_group(producer_group)
        fields = MessageFields.of(message)
        size = size_to_put([fields])
        handle: HalfMessageHandle = self._sessions.once("prepare_half_message", fields, producer_group, size=size)
        return handle

    def commit(self, handle: HalfMessageHandle) -> None:
        """``TransactionalMessageService.commit``."""
        self._sessions.once("commit_half_message", checked_handle(handle))

    def rollback(self, handle: HalfMessageHandle) -> None:
        """``TransactionalMessageService.rollback``."""
        self._sessions.once("roll_back_half_message", checked_handle(handle))

    def resume(self, message_id: str) -> HalfMessageHandle:
        """``TransactionalMessageService.resume``."""
        decode_message_id(message_id)
        handle: HalfMessageHandle = self._sessions.once("resume_half_message", message_id)
        return handle

    def check(self, callback: CheckCallback) -> HalfMessagesChecked:
        """``TransactionalMessageService.check``: one round. The server asks for at most 1,000 half messages."""
        asked = self._round([])
        counts = dict(vars(asked.checked))
        answers: list[tuple[int, Answer]] = []
        for message in asked.messages:
            answer, failed = ask_outcome(callback, message)
            answers.append((message.physical_offset, answer))
            counts["failed"] += len(failed)
        if not answers:
            return asked.checked
        ended = vars(self._round(answers).checked)
        counts |= {name: ended[name] for name in ("too_young", "left", "unreadable")}
        return HalfMessagesChecked(
            **{name: count + ended[name] if name in _ENDED else count for name, count in counts.items()}
        )

    def _round(self, answers: list[tuple[int, Answer]]) -> HalfMessagesAsked:
        asked: HalfMessagesAsked = self._sessions.once("check_half_messages", answers)
        return asked

    def start_checks(self, callback: CheckCallback) -> None:
        """``TransactionalMessageService.start_checks``, on a thread of this program, until the connection is closed."""
        if not callable(callback):
            raise InvalidValue(f"A callback for checks takes a message and returns one of {get_args(Answer)}.")
        with self._sessions.call(), self._lock:
            if self._checks is not None:
                raise InvalidValue("The checks were started before: one callback decides for all groups.")
            service = TransactionalMessageCheckService(self.check, callback, self._sessions.check_interval_s)
            self._checks = Worker("TransactionalMessageCheckService", service, _report)
            self._checks.start()

    def close(self) -> None:
        """End the checks; a callback under way ends first."""
        with self._lock:
            checks = self._checks
        if checks is not None:
            checks.stop()

    def pending(self) -> list[PendingHalfMessage]:
        """``TransactionalMessageService.pending``, as far as messages are dispatched."""
        with self._sessions.call(), RemoteReader(self._sessions.address) as reader:
            return reader.pending_half_messages()
