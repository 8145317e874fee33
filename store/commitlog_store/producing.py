"""Producing: how a program gives single messages to a store, be it open in this process or at a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from commitlog_store.config import delay_level
from commitlog_store.engine.put_message import PutMessageResult
from commitlog_store.message import Message


class Producing:
    """``put`` and ``aput`` of ``MessageStore`` and of ``RemoteStore``, on the ``put_message`` of each."""

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
        properties: Mapping[str, str] | None = None,
        born_timestamp: int | None = None,
        flag: int = 0,
    ) -> PutMessageResult:
        """Append one message, or raise. Returns its position: ``queue_id``, ``queue_offset``, ``physical_offset``.

        The arguments are the fields of ``Message``. ``keys`` may be one key. ``delay`` is a level of
        ``message_delay_level``, or the time of one of them, such as ``"10s"`` or ``timedelta(seconds=10)``. (The
        property ``DELAY`` instead keeps RocketMQ's rule: a level above the last one counts as the last.)

        ``PutRefused``: the message is not in the store, and ``status`` says why. ``PutNotConfirmed``: whether it is
        will be known when the store is opened again, or the message is in the log, and not on the device or with the
        slaves in time.
        ``InvalidValue`` for a wrong type and for a delay that is none of the levels'.
        """
        message = self._message(
            keys, delay, topic=topic, body=body, tags=tags, queue_id=queue_id, flag=flag, properties=properties or {},
            sharding_key=sharding_key, born_timestamp=born_timestamp,
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
            keys, delay, topic=topic, body=body, tags=tags, queue_id=queue_id, flag=flag, properties=properties or {},
            sharding_key=sharding_key, born_timestamp=born_timestamp,
        )  # fmt: skip
        return (await self._aput(message)).raise_for_status()

    def _message(self, keys: str | Sequence[str], delay: int | str | timedelta | None, **fields: Any) -> Message:
        level = delay_level(delay, self._delay_levels)
        return Message(keys=(keys,) if isinstance(keys, str) else keys, delay_level=level, **fields)

    def put_message(self, message: Message) -> PutMessageResult:
        """Append one message. The result's status says how it ended."""
        raise NotImplementedError

    async def _aput(self, message: Message) -> PutMessageResult:
        """``put_message`` for asyncio."""
        raise NotImplementedError
