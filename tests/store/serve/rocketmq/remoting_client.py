"""A small client of RocketMQ's protocol, for tests: it writes and reads frames, and knows fields of a few requests."""

from __future__ import annotations

import itertools
import socket
import ssl
import struct
import time
from collections.abc import Mapping
from typing import Any, Self

import orjson

from commitlog_store.format.record import Record, decode_record
from commitlog_store.format.remoting_command import HeaderKind, RemotingCommand, decode
from commitlog_store.serve.rocketmq.codes import RequestCode

SUSPEND, SUBSCRIPTION, COMMIT = 2, 4, 1


class RemotingClient:
    """One connection; ``ask`` sends a request and waits for its answer, whatever else is answered in between."""

    def __init__(
        self,
        address: str,
        *,
        kind: HeaderKind = HeaderKind.JSON,
        timeout_s: float = 30.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=host)
        self._kind = kind
        self._opaque = itertools.count(1)
        self._answers: dict[int, RemotingCommand] = {}
        self._file = self.socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def start(
        self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b"", *, one_way: bool = False
    ) -> int:
        """Send a request; returns the number that its answer has."""
        opaque = next(self._opaque)
        given = self.signed({name: str(value) for name, value in (fields or {}).items()}, body)
        command = RemotingCommand(
            code=code, opaque=opaque, flag=2 if one_way else 0, fields=given, body=body, kind=self._kind
        )
        self.socket.sendall(command.encode())
        return opaque

    def signed(self, fields: dict[str, str], body: bytes) -> dict[str, str]:
        """The fields of a request, with a signature where a client has an account."""
        return fields

    def receive(self) -> RemotingCommand:
        """The next frame. ``ConnectionError`` at the end of the stream."""
        head = self._file.read(4)
        if len(head) < 4:
            raise ConnectionError("The server has closed the connection.")
        (size,) = struct.unpack(">i", head)
        frame = self._file.read(size)
        if len(frame) < size:
            raise ConnectionError("The server has closed the connection within a frame.")
        return decode(frame)

    def answer(self, opaque: int) -> RemotingCommand:
        """The answer to a request that was started."""
        while opaque not in self._answers:
            found = self.receive()
            if found.is_response:  # the server's own requests have numbers of their own
                self._answers[found.opaque] = found
        return self._answers.pop(opaque)

    def ask(self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b"") -> RemotingCommand:
        return self.answer(self.start(code, fields, body))

    def route(self, topic: str) -> dict[str, Any]:
        found = self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        assert found.code == 0, found.remark
        route: dict[str, Any] = orjson.loads(found.body)
        return route

    def send(
        self,
        topic: str,
        body: bytes,
        queue_id: int = 0,
        properties: Mapping[str, str] | None = None,
        **more: object,
    ) -> RemotingCommand:
        return self.answer(self.start_send(topic, body, queue_id, properties, **more))

    def start_send(
        self,
        topic: str,
        body: bytes,
        queue_id: int = 0,
        properties: Mapping[str, str] | None = None,
        **more: object,
    ) -> int:
        return self.start(RequestCode.SEND_MESSAGE_V2, send_fields(topic, queue_id, properties, **more), body)

    def pull(
        self, topic: str, queue_id: int, offset: int, subscription: str = "*", hold_ms: int = 0, **more: object
    ) -> RemotingCommand:
        return self.answer(self.start_pull(topic, queue_id, offset, subscription, hold_ms, **more))

    def start_pull(
        self, topic: str, queue_id: int, offset: int, subscription: str = "*", hold_ms: int = 0, **more: object
    ) -> int:
        fields = pull_fields(topic, queue_id, offset, subscription, hold_ms, **more)
        return self.start(RequestCode.PULL_MESSAGE, fields)


def send_fields(
    topic: str, queue_id: int = 0, properties: Mapping[str, str] | None = None, **more: object
) -> dict[str, object]:
    """The header of a request of code 310; ``more`` are fields by their letters."""
    return {
        "a": "producers",
        "b": topic,
        "c": "TBW102",
        "d": 4,
        "e": queue_id,
        "f": 0,
        "g": int(time.time() * 1000),
        "h": 0,
        "i": properties_text(properties or {}),
        "j": 0,
        "k": "false",
        **more,
    }


def pull_fields(
    topic: str, queue_id: int, offset: int, subscription: str = "*", hold_ms: int = 0, **more: object
) -> dict[str, object]:
    """The header of a request of code 11, with a subscription of its own."""
    return {
        "consumerGroup": "consumers",
        "topic": topic,
        "queueId": queue_id,
        "queueOffset": offset,
        "maxMsgNums": 32,
        "sysFlag": SUBSCRIPTION | (SUSPEND if hold_ms else 0),
        "commitOffset": 0,
        "suspendTimeoutMillis": hold_ms,
        "subscription": subscription,
        "subVersion": 0,
        "expressionType": "TAG",
        **more,
    }


def records(answer: RemotingCommand) -> list[Record]:
    """The records in an answer to a pull."""
    found, at = [], 0
    while at < len(answer.body):
        record = decode_record(answer.body[at:])
        assert isinstance(record, Record)
        found.append(record)
        at += record.total_size
    return found


def properties_text(properties: Mapping[str, str]) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


def batch_body(messages: list[tuple[bytes, Mapping[str, str]]]) -> bytes:
    """The body of a request of code 320."""
    parts = []
    for body, properties in messages:
        text = properties_text(properties).encode()
        size = 22 + len(body) + len(text)
        parts.append(struct.pack(">iiiii", size, 0, 0, 0, len(body)) + body + struct.pack(">h", len(text)) + text)
    return b"".join(parts)
