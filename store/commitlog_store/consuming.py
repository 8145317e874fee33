"""Consuming: iteration and the ``with`` block that ``Consumer`` and ``RemoteConsumer`` share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import ClassVar, TypeVar

from commitlog_store.errors import ConsumerClosed, InvalidValue
from commitlog_store.message import MessageExt
from commitlog_store.unpicklable import Unpicklable

_Self = TypeVar("_Self", bound="Consuming")


class Consuming(Unpicklable):
    """Iteration and the ``with`` block of ``Consumer`` and of ``RemoteConsumer``, on the ``poll`` of each."""

    _INSTEAD = "Open another consumer of the group in the other process, by an address or where the store is owned."

    group: str
    topics: tuple[str, ...]
    _closed: bool
    # How long one poll of an iteration waits.
    _WAIT_S: ClassVar[float]

    def __repr__(self) -> str:
        topics = ", ".join(self.topics)
        is_open = "closed" if self._closed else "open"
        return f"<{type(self).__name__} of {topics} for group {self.group!r}, {is_open}>"

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[MessageExt]:
        """The messages, one by one, and new ones as they come; ends when the consumer is closed."""
        while True:
            try:
                messages = self.poll(1, self._WAIT_S)
            except ConsumerClosed:
                return
            yield from messages

    async def __aiter__(self) -> AsyncIterator[MessageExt]:
        """``async for message in consumer``: as iteration, without blocking the event loop."""
        while True:
            try:
                messages = await self.apoll(1, self._WAIT_S)
            except ConsumerClosed:
                return
            for message in messages:
                yield message

    def poll(self, max_messages: int, timeout_s: float) -> list[MessageExt]:
        """Up to ``max_messages`` messages; waits for the first one. ``ConsumerClosed``."""
        raise NotImplementedError

    async def apoll(self, max_messages: int, timeout_s: float) -> list[MessageExt]:
        """``poll`` for asyncio."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave the group."""
        raise NotImplementedError


def check_one_message(method: str, message: object) -> None:
    """``InvalidValue`` for an argument of ``method`` that is not a message."""
    if not isinstance(message, MessageExt):
        raise InvalidValue(
            f"{method} takes one message of poll, not a value of type {type(message).__name__}. Call it for each: "
            f"'for message in messages: consumer.{method}(message)'."
        )
