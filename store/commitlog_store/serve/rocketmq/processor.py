"""What answers requests: processors, each with its request codes, and what they see of a connection.

Source: RocketMQ ``remoting/netty/NettyRequestProcessor.java``.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, Protocol, TypeAlias

from commitlog_store.format.remoting_command import RemotingCommand


class Connection(Protocol):
    """The connection of one client. Everything is called by the event loop's thread."""

    @property
    def address(self) -> tuple[str, int]:
        """The client's host and port. In any thread."""

    def send(self, command: RemotingCommand) -> None:
        """Send a request to the client that needs no answer; nothing happens when it is gone."""


Take: TypeAlias = Callable[["RemotingCommand | Exception"], None]


class Deferred:
    """An answer that comes later. A task that awaits it is not needed: ``start`` gets what takes it, on the loop."""

    __slots__ = ("start",)

    def __init__(self, start: Callable[[Take], None]) -> None:
        self.start = start

    def __await__(self) -> Generator[Any, None, RemotingCommand]:
        future: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()

        def take(answer: RemotingCommand | Exception) -> None:
            if future.done():
                return  # cancelled
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)

        self.start(take)
        return (yield from future)


# At once, or later.
Answered: TypeAlias = RemotingCommand | Awaitable[RemotingCommand]
# It does not block: see decision 0036.
Handler: TypeAlias = Callable[[RemotingCommand, Connection], Answered]


class Processor(ABC):
    """Requests of one kind."""

    @abstractmethod
    def handlers(self) -> Mapping[int, Handler]:
        """By request code."""

    def connection_lost(self, connection: Connection) -> None:  # noqa: B027  # most keep nothing of a connection
        """A client's connection is closed."""
