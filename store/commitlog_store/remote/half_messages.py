"""RemoteHalfMessages: half messages of a store at a server, from prepare to commit or rollback."""

from __future__ import annotations

from commitlog_store.half_message import HalfMessageHandle, PendingHalfMessage
from commitlog_store.message import Message
from commitlog_store.remote.put_wire import MessageFields
from commitlog_store.remote.reader import RemoteReader
from commitlog_store.remote.session_pool import SessionPool


class RemoteHalfMessages:
    """``MessageStore.half_messages`` through a server, without its rounds of checks.

    Each call is done once: a lost answer is asked for again. Where none comes in time, ``PutNotConfirmed``: a prepared
    half message is among ``pending`` then, or is not, and a handle is committed or rolled back again. What a program
    left undecided it finds in ``pending``. ::

        with connect("grpc://127.0.0.1:8815") as store:
            half = store.half_messages
            handle = half.prepare(Message(topic="orders", body=b"paid 12.50"), producer_group="payments")
            half.commit(handle)  # or half.rollback(handle)
    """

    def __init__(self, sessions: SessionPool) -> None:
        """Use ``RemoteStore.half_messages``."""
        self._sessions = sessions

    def prepare(self, message: Message, producer_group: str) -> HalfMessageHandle:
        """``TransactionalMessageService.prepare``."""
        fields = MessageFields.of(message)
        with self._sessions.session() as session:
            handle: HalfMessageHandle = session.once(
                "prepare_half_message", fields, producer_group, size=len(fields.body)
            )
            return handle

    def commit(self, handle: HalfMessageHandle) -> None:
        """``TransactionalMessageService.commit``."""
        with self._sessions.session() as session:
            session.once("commit_half_message", handle)

    def rollback(self, handle: HalfMessageHandle) -> None:
        """``TransactionalMessageService.rollback``."""
        with self._sessions.session() as session:
            session.once("roll_back_half_message", handle)

    def resume(self, message_id: str) -> HalfMessageHandle:
        """``TransactionalMessageService.resume``."""
        with self._sessions.session() as session:
            handle: HalfMessageHandle = session.once("resume_half_message", message_id)
            return handle

    def pending(self) -> list[PendingHalfMessage]:
        """``TransactionalMessageService.pending``, as far as messages are dispatched."""
        with self._sessions.call(), RemoteReader(self._sessions.address) as reader:
            return reader.pending_half_messages()
