"""ClientCalls: requests that the server sends to clients, and their answers.

Source: RocketMQ ``broker/client/net/Broker2Client.java``.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping

from commitlog_store.format.remoting_command import ONE_WAY, RemotingCommand
from commitlog_store.serve.rocketmq.processor import Connection

# RocketMQ's limit for ``callClient``.
ANSWER_TIMEOUT_S = 10.0
_MOST_CALLS = 1_000
_opaques = itertools.count(1)


def one_way(code: int, fields: Mapping[str, str], body: bytes = b"") -> RemotingCommand:
    """A request that the client does not answer."""
    return RemotingCommand(code=code, opaque=next(_opaques) % (1 << 31), flag=ONE_WAY, fields=fields, body=body)


class ClientCalls:
    """Requests whose answers are awaited. On the event loop's thread only."""

    def __init__(self) -> None:
        # By connection and opaque number.
        self._waiting: dict[tuple[Connection, int], asyncio.Future[RemotingCommand]] = {}

    async def call(
        self,
        connection: Connection,
        code: int,
        fields: Mapping[str, str],
        body: bytes = b"",
    ) -> RemotingCommand:
        """The client's answer. ``TimeoutError``; ``ConnectionError`` if it is gone, or too many calls are under way."""
        if len(self._waiting) >= _MOST_CALLS:
            raise ConnectionError(f"{_MOST_CALLS} requests to clients wait for their answers")
        request = RemotingCommand(code=code, opaque=next(_opaques) % (1 << 31), fields=fields, body=body)
        key = connection, request.opaque
        future = self._waiting[key] = asyncio.get_running_loop().create_future()
        try:
            connection.send(request)
            return await asyncio.wait_for(future, ANSWER_TIMEOUT_S)
        finally:
            self._waiting.pop(key, None)

    def answered(self, answer: RemotingCommand, connection: Connection) -> None:
        """A client has sent an answer. One that nothing waits for any more is dropped."""
        future = self._waiting.get((connection, answer.opaque))
        if future is not None and not future.done():
            future.set_result(answer)

    def connection_lost(self, connection: Connection) -> None:
        """No answer will come by this connection."""
        for (one, _), future in list(self._waiting.items()):
            if one is connection and not future.done():
                future.set_exception(ConnectionError("the client has closed its connection"))
