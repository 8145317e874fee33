"""A TCP proxy that records the commands of RocketMQ's protocol: each request with its answer, in both directions."""

from __future__ import annotations

import base64
import contextlib
import json
import shlex
import socket
import struct
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from commitlog_store.format.remoting_command import RemotingCommand, decode
from commitlog_store.serve.rocketmq.codes import RequestCode

# The language of requests that no client of RocketMQ sent.
_TESTS = "PYTHON"
_PROMPT = "$ mqadmin "
_LARGEST = 16 << 10
_SENDS = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """A request and its answer, None when it wants or got none; frames without their first 4 bytes, the length."""

    client: str
    server: str
    is_from_client: bool
    request: bytes
    answer: bytes | None

    def line(self) -> str:
        """As JSON, with the frames in base64."""
        command = decode(self.request)
        answer = None if self.answer is None else base64.b64encode(self.answer).decode()
        named = {"client": self.client, "server": self.server, "is_from_client": self.is_from_client}
        frames = {"request": base64.b64encode(self.request).decode(), "answer": answer}
        return json.dumps({**named, "code": command.code, **frames})

    def kind(self) -> tuple[object, ...]:
        """What exchanges that show the same have in common: codes, and which fields and properties there are."""
        request = decode(self.request)
        answer = None if self.answer is None else decode(self.answer)
        return (self.client, self.server, self.is_from_client, *_shape(request), *(_shape(answer) if answer else ()))


def _shape(command: RemotingCommand) -> tuple[object, ...]:
    properties = command.fields.get("i" if command.code == RequestCode.SEND_MESSAGE_V2 else "properties", "")
    names = sorted(one.split("\x01")[0] for one in properties.split("\x02")) if command.code in _SENDS else []
    return (command.code, command.is_one_way, *sorted(command.fields), *names, bool(command.body))


class RecordingProxy:
    """Listens on ``address`` and connects to ``target``. A context manager.

    ``client`` is what the connections that are made from now on are called.
    """

    def __init__(self, address: tuple[str, int], target: tuple[str, int], server: str, client: str) -> None:
        self._target = target
        self._server = server
        self._listener = socket.create_server(address)
        host, port = self._listener.getsockname()[:2]
        self.address = f"{host}:{port}"
        self.client = client
        self._lock = threading.Lock()
        self._recorded: list[Exchange] = []
        self._sockets: list[socket.socket] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def recorded(self) -> list[Exchange]:
        """What was recorded so far."""
        with self._lock:
            return list(self._recorded)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the listener is closed
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(self._target)
                except OSError:
                    client.close()
                    continue
                self._sockets += [client, server]
                connection = _Connection(self, self.client)
                for source, target, is_up in ((client, server, True), (server, client, False)):
                    threading.Thread(target=connection.carry, args=(source, target, is_up), daemon=True).start()

    def keep(self, exchange: Exchange) -> None:
        """Record it."""
        with self._lock:
            self._recorded.append(exchange)

    @property
    def server(self) -> str:
        """What is behind it."""
        return self._server

    def __enter__(self) -> RecordingProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


class Recorder:
    """The proxies of a name server and its broker; ``client`` is what new connections are called."""

    def __init__(self, client: str) -> None:
        self._client = client
        self._proxies: list[RecordingProxy] = []

    def proxy(self, address: tuple[str, int], target: tuple[str, int], server: str) -> RecordingProxy:
        """A proxy whose exchanges belong to this."""
        one = RecordingProxy(address, target, server, self._client)
        self._proxies.append(one)
        return one

    def rename(self, client: str) -> None:
        """What the connections that are made from now on are called."""
        self._client = client
        for one in self._proxies:
            one.client = client

    def recorded(self) -> list[Exchange]:
        """Of all of them."""
        return [exchange for one in self._proxies for exchange in one.recorded()]


class _Connection:
    """Frames of one connection; each side numbers its own requests."""

    def __init__(self, proxy: RecordingProxy, client: str) -> None:
        self._proxy = proxy
        self._client = client
        self._waiting: dict[tuple[bool, int], bytes] = {}

    def carry(self, source: socket.socket, target: socket.socket, is_up: bool) -> None:
        """Carry frames until an end closes."""
        with contextlib.suppress(OSError, ValueError), source.makefile("rb") as stream:
            while len(length := stream.read(4)) == 4:
                frame = stream.read(struct.unpack(">I", length)[0])
                self._note(frame, is_up)
                target.sendall(length + frame)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _note(self, frame: bytes, is_up: bool) -> None:
        command = decode(frame)
        if command.is_response:
            request = self._waiting.pop((not is_up, command.opaque), None)
            if request is not None:
                self._keep(not is_up, request, frame)
        elif command.is_one_way:
            self._keep(is_up, frame, None)
        else:
            self._waiting[is_up, command.opaque] = frame

    def _keep(self, is_up: bool, request: bytes, answer: bytes | None) -> None:
        self._proxy.keep(
            Exchange(
                client=self._client, server=self._proxy.server, is_from_client=is_up, request=request, answer=answer
            )
        )


def write_golden(exchanges: Iterable[Exchange], directory: Path) -> None:
    """A file for each client, with the smallest exchange of each kind. What the tests ask by themselves is left out."""
    smallest: dict[tuple[object, ...], Exchange] = {}
    for one in exchanges:
        if decode(one.request).language == _TESTS or _size(one) > _LARGEST:
            continue
        known = smallest.setdefault(one.kind(), one)
        if _size(one) < _size(known):
            smallest[one.kind()] = one
    directory.mkdir(parents=True, exist_ok=True)
    for client in {one.client for one in smallest.values()}:
        own = (one for one in smallest.values() if one.client == client)
        lines = sorted(own, key=lambda one: (decode(one.request).code, one.line()))
        (directory / f"{client}.jsonl").write_text("".join(f"{one.line()}\n" for one in lines))


def _size(exchange: Exchange) -> int:
    return len(exchange.request) + len(exchange.answer or b"")


def keep_output(directory: Path, command: Sequence[str], output: str) -> None:
    """Keep what a command printed in the file of its name, after a line with the command; the last time counts."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"{command[0]}.txt"
    blocks = dict(one.split("\n", 1) for one in file.read_text().split(_PROMPT)[1:]) if file.exists() else {}
    blocks[shlex.join(command)] = f"{output.rstrip()}\n\n"
    file.write_text("".join(f"{_PROMPT}{asked}\n{printed}" for asked, printed in blocks.items()))
