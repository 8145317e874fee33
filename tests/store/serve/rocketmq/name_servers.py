"""A name server for tests, which keeps what brokers send to it."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any, Self

import orjson

from commitlog_store.format.remoting_command import RemotingCommand, decode
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode


class NameServerForTests:
    """Keeps the requests of brokers, and answers with ``code``."""

    def __init__(self) -> None:
        self.requests: list[RemotingCommand] = []
        self.code = ResponseCode.SUCCESS
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                self._connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as stream:
            while head := stream.read(4):
                request = decode(stream.read(int.from_bytes(head, "big")))
                self.requests.append(request)
                connection.sendall(request.answer(self.code, "refused" if self.code else None).encode())

    def drop(self) -> None:
        """End all connections."""
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self.drop()

    def topics(self) -> set[str]:
        """Those of the last registration."""
        found = [one for one in self.requests if one.code == RequestCode.REGISTER_BROKER]
        return set(registered_topics(found[-1])) if found else set()


def registered_topics(request: RemotingCommand) -> dict[str, Any]:
    """The topics of a registration, by name."""
    table: dict[str, Any] = orjson.loads(request.body)["topicConfigSerializeWrapper"]["topicConfigTable"]
    return table
