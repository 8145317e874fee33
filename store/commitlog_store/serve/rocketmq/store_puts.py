"""StorePuts: puts of clients into an open store; those that come in one turn of the event loop are put together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from commitlog_store.engine.async_puts import Outcome
from commitlog_store.engine.produced_message import ProducedMessage
from commitlog_store.engine.put_message import EncodedMessage, PutMessageResult
from commitlog_store.format.message_id import format_host, parse_host
from commitlog_store.message import MessageExtBrokerInner, PutMessageStatus
from commitlog_store.owned_store.owned_store import OwnedStore


class StorePuts:
    """For one loop. ``encode`` and ``encode_batch`` raise ``PutRefused``."""

    def __init__(
        self, owned: OwnedStore, loop: asyncio.AbstractEventLoop, is_alone: Callable[[], bool] = lambda: True
    ) -> None:
        """``is_alone``: whether only one connection has been received from in this turn of the loop."""
        self._owned = owned
        self._engine = owned.engine
        self._loop = loop
        self._is_alone = is_alone
        self._store_host = parse_host(owned.engine.config.store_host)
        self.encode = owned.engine.produced.encode
        self.encode_batch = owned.engine.produced.encode_batch
        # Those of all connections that came in this turn, to be put together at its end.
        self._of_turn: list[tuple[EncodedMessage, Callable[[Outcome], None]]] = []

    def put_at_once(self, encoded: EncodedMessage) -> PutMessageResult | None:
        """Append if that is a copy into memory, and no other connection was received from in this turn of the loop;
        None where it is not. ``StoreClosed``."""
        if self._of_turn or not self._is_alone():
            return None
        with self._engine.calls.enter():
            self._engine.state.refuse_closed()
            if not self._engine.async_puts.is_idle:
                return None
            results = self._engine.putter.put_at_once((encoded,))
            return results[0] if results else None

    def put_for(self, encoded: EncodedMessage, receive: Callable[[Outcome], None]) -> None:
        """Append at the end of this turn, together with what other clients put; ``receive`` gets the outcome, on the
        loop."""
        if not self._of_turn:
            self._loop.call_soon(self._put_together)
        self._of_turn.append((encoded, receive))

    def _put_together(self) -> None:
        """Put what came in this turn, in its order: the first ones at once, the rest in the store's thread for it."""
        of_turn, self._of_turn = self._of_turn, []
        outcomes: Sequence[Outcome] = ()
        left = deque(of_turn)  # without what is put, or in the hands of the thread that answers for it
        try:
            with self._engine.calls.enter():
                self._engine.state.refuse_closed()
                if self._engine.async_puts.is_idle:
                    outcomes = self._engine.putter.put_at_once([encoded for encoded, _ in of_turn])
                left = deque(of_turn[len(outcomes) :])
                while left:
                    self._engine.async_puts.put_for(left[0][0], self._loop, left[0][1])
                    left.popleft()
        except Exception as error:  # noqa: BLE001 - each client gets an answer in any case
            of_turn = [*of_turn[: len(outcomes)], *left]
            outcomes = [*outcomes, *[error] * len(left)]
        for (_, receive), outcome in zip(of_turn, outcomes, strict=False):
            receive(outcome)

    def prepare(self, message: ProducedMessage, producer_group: str) -> PutMessageResult:
        """Store a half message; in another thread. ``PutRefused``, ``PutNotConfirmed``, ``InvalidValue``."""
        half = MessageExtBrokerInner(
            topic=message.topic,
            queue_id=message.queue_id,
            body=message.body,
            properties=message.properties,
            flag=message.flag,
            sys_flag=message.sys_flag,
            born_timestamp=message.born_timestamp,
            born_host=format_host(*message.born_host),
            reconsume_times=message.reconsume_times,
        )
        handle = self._owned.half_messages.prepare(half, producer_group)
        return PutMessageResult(
            PutMessageStatus.PUT_OK,
            handle.physical_offset,
            handle.queue_offset,
            record_offsets=(handle.physical_offset,),
            store_hosts=(self._store_host,),
        )
