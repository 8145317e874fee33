"""What answers requests: processors, each with its request codes, and what they see of a connection.

Source: RocketMQ ``remoting/netty/NettyRequestProcessor.java``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeAlias

from commitlog_store.serve.rocketmq.remoting_command import RemotingCommand


class Connection(Protocol):
    """The connection of one client. Everything is called by the event loop's thread."""

    @property
    def address(self) -> tuple[str, int]:
        """The client's host and port."""

    def send(self, command: RemotingCommand) -> None:
        """Send a request to the client that needs no answer; nothing happens when it is gone."""


# Answers at once, or when the awaited is there. It does not block: see decision 0036.
Handler: TypeAlias = Callable[[RemotingCommand, Connection], "RemotingCommand | Awaitable[RemotingCommand]"]


class Processor(Protocol):
    """Requests of one kind."""

    def handlers(self) -> Mapping[int, Handler]:
        """By request code."""

    def connection_lost(self, connection: Connection) -> None:
        """A client's connection is closed."""
