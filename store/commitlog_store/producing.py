"""Producing: how a program gives messages to a store, be it open in this process or at a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from commitlog_store.columnar.message_rows import MessageRows
from commitlog_store.delay_level import delay_or_level
from commitlog_store.engine.put_message import PutMessageResult
from commitlog_store.engine.put_table import PutTableResult
from commitlog_store.errors import InvalidValue
from commitlog_store.format.properties import TIMER_DELAY_MS
from commitlog_store.format.timer_messages import TIMER_PROPERTIES
from commitlog_store.message import Message


class Producing:
    """``put`` and the puts for asyncio of ``MessageStore`` and of ``RemoteStore``, on the others of each."""

    # The setting ``message_delay_level`` of the store.
    _delay_levels: str

    def put(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str | None = None,
        keys: str | Sequence[str] = (),
        queue_id: int | None = None,
        sharding_key: str | None = None,
        delay: int | str | timedelta | None = None,
        deliver_at: datetime | int | None = None,
        properties: Mapping[str, str] | None = None,
        born_timestamp: int | None = None,
        flag: int = 0,
    ) -> PutMessageResult:
        """Append one message, or raise. Returns its position: ``queue_id``, ``queue_offset``, ``physical_offset``.

        The arguments are the fields of ``Message``. ``keys`` may be one key. ``delay`` is a level of
        ``message_delay_level``, or a time such as ``"90s"`` or ``timedelta(hours=36)``, up to ``timer_max_delay_sec``;
        the time of a level gives that level. (The property ``DELAY`` instead keeps RocketMQ's rule: a level above the
        last one counts as the last.)

        ``PutRefused``: the message is not in the store, and ``status`` says why. ``PutNotConfirmed``: whether it is
        will be known when the store is opened again, or the message is in the log, and not on the device or with the
        slaves in time.
        ``InvalidValue`` for a wrong type and for a number that is none of the levels'.
        """
        message = self._message(
            keys, delay, deliver_at, topic=topic, body=body, tags=tags, queue_id=queue_id, flag=flag,
            properties=properties or {}, sharding_key=sharding_key, born_timestamp=born_timestamp,
        )  # fmt: skip
        return self.put_message(message).raise_for_status()

    async def aput(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str | None = None,
        keys: str | Sequence[str] = (),
        queue_id: int | None = None,
        sharding_key: str | None = None,
        delay: int | str | timedelta | None = None,
        deliver_at: datetime | int | None = None,
        properties: Mapping[str, str] | None = None,
        born_timestamp: int | None = None,
        flag: int = 0,
    ) -> PutMessageResult:
        """``put`` for asyncio: append one message without blocking the event loop, or raise.

        Any number of tasks may put at once: their messages go into the log together, and share one sync under
        SYNC_FLUSH. A task that is cancelled leaves the store as it is: its message was appended, or was not.

        ::

            async with MessageStore.open_async("/data/store") as store:
                await asyncio.gather(*(store.aput("orders", b"%d" % number) for number in range(1000)))
        """
        message = self._message(
            keys, delay, deliver_at, topic=topic, body=body, tags=tags, queue_id=queue_id, flag=flag,
            properties=properties or {}, sharding_key=sharding_key, born_timestamp=born_timestamp,
        )  # fmt: skip
        return (await self._aput(message)).raise_for_status()

    async def aput_messages(self, table: MessageRows, *, topic: str | None = None) -> PutTableResult:
        """``put_messages`` for asyncio, in another thread, which a cancelled task does not stop."""
        import asyncio  # programs without it do not import it

        return await asyncio.to_thread(self.put_messages, table, topic=topic)

    def _message(
        self,
        keys: str | Sequence[str],
        delay: int | str | timedelta | None,
        deliver_at: datetime | int | None,
        **fields: Any,
    ) -> Message:
        keys = (keys,) if isinstance(keys, str) else keys
        if delay is None:
            return Message(keys=keys, deliver_at=deliver_at, **fields)
        if deliver_at is not None:
            raise InvalidValue("A put has a delay or a deliver_at: give one of them.")
        level, delay_ms = delay_or_level(delay, self._delay_levels)
        if delay_ms:
            others = {name: text for name, text in fields["properties"].items() if name not in TIMER_PROPERTIES}
            fields["properties"] = others | {TIMER_DELAY_MS: str(delay_ms)}
        return Message(keys=keys, delay_level=level, **fields)

    def put_message(self, message: Message) -> PutMessageResult:
        """Append one message. The result's status says how it ended."""
        raise NotImplementedError

    def put_messages(self, table: MessageRows, *, topic: str | None = None) -> PutTableResult:
        """Append the rows of a table; status and offsets for each row."""
        raise NotImplementedError

    async def _aput(self, message: Message) -> PutMessageResult:
        """``put_message`` for asyncio."""
        raise NotImplementedError
