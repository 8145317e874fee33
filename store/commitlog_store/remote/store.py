"""RemoteStore: a store that a server owns, as programs write to it. Made by ``connect``."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

from commitlog_store.batch_id import CommittedBatch, checked_transaction
from commitlog_store.columnar.message_rows import MessageRows, message_rows
from commitlog_store.columnar.message_table import MessageTable
from commitlog_store.engine.put_message import PutMessageResult
from commitlog_store.engine.put_table import PutTableResult
from commitlog_store.errors import InvalidValue, PutNotConfirmed, PutRefused
from commitlog_store.filter.message_filter import MessageFilter
from commitlog_store.format.message_rules import check_queue_place, shown
from commitlog_store.message import Message
from commitlog_store.paths import checked_text, validate_group
from commitlog_store.producing import Producing
from commitlog_store.queue.get_message import DEFAULT_PULL_BYTES, DEFAULT_PULL_MESSAGES, GetMessageResult, checked_int
from commitlog_store.reader import StoreReader
from commitlog_store.remote.administration import RemoteAdministration
from commitlog_store.remote.async_puts import AsyncPuts
from commitlog_store.remote.connection import Connection, RemoteAddress
from commitlog_store.remote.consumer import RemoteConsumer, close_together
from commitlog_store.remote.half_messages import RemoteHalfMessages
from commitlog_store.remote.message_puts import put_together, size_to_put
from commitlog_store.remote.put_wire import MessageFields
from commitlog_store.remote.reader import RemoteReader, filter_texts
from commitlog_store.remote.session_pool import SessionPool
from commitlog_store.remote.table_puts import put_table
from commitlog_store.remote.transaction import RemoteTransaction
from commitlog_store.timestamps import GivenTime, milliseconds_of
from commitlog_store.unpicklable import Unpicklable


def connect(
    url: str,
    *,
    token: str | None = None,
    tls_root_certificates: bytes | None = None,
    rpc_timeout_s: float = 30.0,
) -> RemoteStore:
    """A store to write to, at a server: ``commitlog serve`` without ``--read-only``, ``grpc://host:8815``.

    ``token`` is one of the role ``write``, or ``admin`` to administer the store; ``tls_root_certificates`` are those to
    trust (PEM; by default the system's). What is not given comes from the environment, ``COMMITLOG_TOKEN`` and
    ``COMMITLOG_TLS_ROOT_CERTIFICATES``.
    ``rpc_timeout_s`` is how long a call may take, with all its attempts.

    ``RemoteFailed`` if no server answers; ``RemoteAccessRefused`` without the right token; ``NotServed`` for a
    server that only shows its stores. ::

        with connect("grpc://127.0.0.1:8815") as store:
            result = store.put("orders", b"paid 12.50", tags="paid", keys=["k1"])
            print(result.queue_id, result.queue_offset)
    """
    address = RemoteAddress.given(
        url, token=token, tls_root_certificates=tls_root_certificates, rpc_timeout_s=rpc_timeout_s
    )
    return RemoteStore(address)


class RemoteStore(Producing, RemoteAdministration, Unpicklable):
    """What ``connect`` gives: the methods of ``MessageStore`` that put, commit, read and administer, with its results
    and errors.

    Any number of threads may call, each with a connection of its own. A call whose answer is lost is asked for again
    until ``rpc_timeout_s`` is over, and is done once. If the server was started again in between, or no answer comes in
    time, the status is UNKNOWN_ERROR (``PutNotConfirmed``): the message may be stored. ``RemoteFailed``: it is not.

    ``StoreForked`` in a process that was forked from one that has used a server; ``NestedCall`` in a signal handler
    that interrupted a call of its own thread; ``StoreClosed``. ::

        with connect("grpc://127.0.0.1:8815") as store:
            store.put_messages([{"topic": "orders", "body": b"a"}, {"topic": "orders", "body": b"b"}])
            store.dispatch()
            print(store.get_message("orders", 0, 0).messages)
    """

    _INSTEAD = "Pass its address, and call connect in the other process."

    def __init__(self, address: RemoteAddress) -> None:
        """Use ``connect``."""
        self.address = address
        self.path = str(address)
        self._sessions = SessionPool(address)
        self._delay_levels = self._sessions.delay_levels
        # The setting ``store_host`` of the server's store, which message ids begin with.
        self.store_host = self._sessions.store_host
        # Those that no call uses.
        self._readers: list[StoreReader] = []
        self._async_puts = AsyncPuts(address, self.put_together)
        self._half_messages = RemoteHalfMessages(self._sessions)
        self._consumers = weakref.WeakValueDictionary[int, RemoteConsumer]()

    def __enter__(self) -> RemoteStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RemoteStore at {self.path!r}, {'closed' if self._sessions.closed else 'open'}>"

    def close(self) -> None:
        """Close the consumers, and end the connections. A second call does nothing. The server's store stays open."""
        if not Connection.is_forked():
            self._async_puts.close()
            self._half_messages.close()
        silent: set[RemoteAddress] = set()
        self._sessions.close(silent)
        # After that, calls of other threads are refused by the store.
        close_together(self._consumers, silent)
        self._close_readers()

    def _close_readers(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._readers.pop().close()

    def put_message(self, message: Message) -> PutMessageResult:
        """``MessageStore.put_message``: the result's status says how it ended. ``RemoteFailed``: not stored."""
        return self._put("put_message", [message], lambda fields: fields[0])

    def put_message_batch(self, messages: Sequence[Message]) -> PutMessageResult:
        """``MessageStore.put_message_batch``: messages of one queue in one piece."""
        if not isinstance(messages, Sequence):
            raise InvalidValue(f"A batch is a list of messages, not {shown(messages)}.")
        return self._put("put_message_batch", messages, lambda fields: fields)

    def _put(
        self, call: str, messages: Sequence[Message], argument: Callable[[list[MessageFields]], object]
    ) -> PutMessageResult:
        try:
            fields = [MessageFields.of(message) for message in messages]
            size = size_to_put(fields)
            result: PutMessageResult = self._sessions.once(call, argument(fields), size=size)
            return result
        except (PutRefused, PutNotConfirmed) as error:
            return PutMessageResult(error.status, reason=error.reason)

    def put_together(self, messages: Sequence[Message]) -> list[PutMessageResult | Exception]:
        """``MessageStore.put_together``: each by itself, with one wait for the device for each 12 MiB of them."""
        with self._sessions.session() as session:
            return put_together(session, messages)

    async def _aput(self, message: Message) -> PutMessageResult:
        return await self._async_puts.put(message)

    def put_messages(
        self, table: MessageRows, *, topic: str | None = None, first_row: int = 0, stop_at_refusal: bool = False
    ) -> PutTableResult:
        """``MessageStore.put_messages``. The rows go in parts of at most 12 MiB, each part once.

        Of a call that fails in the middle, the parts before are stored; the status of each row says so. With
        ``stop_at_refusal``, the server stops at the first refused row, and a part that fails is the last one.
        """
        first_row = checked_int("first_row", first_row)
        rows = message_rows(table)
        MessageTable(rows, topic=topic)  # the errors of wrong columns, before anything is sent
        with self._sessions.session() as session:
            return put_table(session, rows, topic, first_row, stop_at_refusal=bool(stop_at_refusal))

    def transaction(self, app_id: str, version: int, fingerprint: str = "") -> RemoteTransaction:
        """``MessageStore.transaction``: a batch whose messages are in the store together, and at most once, or not at
        all, also when the server is killed or an answer lost. ::

            with connect("grpc://127.0.0.1:8815") as store, store.transaction("orders-loader", version=7) as batch:
                batch.put_messages(table, topic="orders")
        """
        with self._sessions.call():
            return RemoteTransaction(self._sessions, checked_transaction(app_id, version, fingerprint))

    @property
    def half_messages(self) -> RemoteHalfMessages:
        """``MessageStore.half_messages``: half messages, prepared now, committed or rolled back later."""
        return self._half_messages

    def create_topic(self, topic: str, queues: int, *, read_queues: int = 0, perm: int | None = None) -> None:
        """``MessageStore.create_topic``. With a ``perm``, the token has the role ``admin``."""
        count, read_count = checked_int("queues", queues), checked_int("read_queues", read_queues)
        checked_text("topic", topic)
        if perm is None:
            self._sessions.ask("create_topic", topic, count, read_count)
        else:
            self._sessions.ask("create_topic_with_perm", topic, count, read_count, checked_int("perm", perm))

    def flush(self) -> None:
        """``MessageStore.flush``: bring all messages to the server's device."""
        self._sessions.ask("flush")

    def dispatch(self) -> None:
        """``MessageStore.dispatch``: return when all messages put before are in their queues and the index."""
        self._sessions.ask("dispatch")

    def batches(self) -> list[CommittedBatch]:
        """``MessageStore.batches``."""
        with self._lent_reader() as reader:
            return reader.batches()

    def reader(self) -> StoreReader:
        """A new reader of the store, to be closed by the caller."""
        with self._sessions.call():
            return RemoteReader(self.address)

    def get_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int = DEFAULT_PULL_MESSAGES,
        *,
        max_bytes: int = DEFAULT_PULL_BYTES,
        filter: str | MessageFilter | None = None,  # noqa: A002  # the name that it has everywhere
        tags: str | None = None,
        wait_s: float = 0.0,
    ) -> GetMessageResult:
        """``MessageStore.get_message``; the server waits."""
        with self._lent_reader() as reader:
            return reader.get_message(
                topic, queue_id, offset, max_messages, max_bytes=max_bytes, filter=filter, tags=tags, wait_s=wait_s
            )

    def consumer(
        self,
        group: str,
        topics: str | Sequence[str],
        *,
        filter: str | MessageFilter | None = None,  # noqa: A002  # the name that it has everywhere
        tags: str | None = None,
        consume_from: Literal["earliest", "latest"] | GivenTime = "earliest",
    ) -> RemoteConsumer:
        """``MessageStore.consumer``: a consumer of a group, whose consumers share the queues across processes."""
        if not isinstance(topics, Iterable):
            raise InvalidValue(f"topics is a name, or a list of names, not {topics!r}.")
        if not isinstance(consume_from, str):
            try:
                consume_from = milliseconds_of(consume_from, "consume_from")
            except InvalidValue as error:
                raise InvalidValue(f"consume_from is 'earliest', 'latest' or a time: {error}") from None
        validate_group(group)
        names = [topics] if isinstance(topics, str) else [checked_text("topic", topic) for topic in topics]
        with self._sessions.call():
            made = RemoteConsumer(self._sessions, group, names, filter_texts(filter, tags), consume_from)
            self._consumers[id(made)] = made
            return made

    def wait_for_messages(self, topic: str, queue_id: int, offset: int, timeout_s: float | None = None) -> bool:
        """``MessageStore.wait_for_messages``: False after ``timeout_s`` seconds without a message at ``offset``."""
        check_queue_place(topic, queue_id, offset)
        with self._lent_reader() as reader:
            return reader.wait_for_any({(topic, queue_id): offset}, timeout_s)

    @contextlib.contextmanager
    def _lent_reader(self) -> Iterator[StoreReader]:
        with self._sessions.call():
            try:
                reader = self._readers.pop()
            except IndexError:
                reader = RemoteReader(self.address)
            try:
                yield reader
            finally:
                self._readers.append(reader)
                if self._sessions.closed:
                    self._close_readers()
