"""A proxy before a server, which loses answers, breaks requests off in the middle, and sends them once more later."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType


class CuttingProxy:
    """Forwards connections to ``port``. Its own port is ``port`` of the object.

    ``lose_answers(mark, count, then)``: of the next ``count`` connections whose answers hold ``mark``, that piece is
    lost, ``then`` is called, and the connection is cut. ``retarget(port)`` says where new connections go.
    ``break_requests(size, count)``: the next connections are cut after so many bytes of the
    client. ``replay()`` sends what clients have sent to the server again, connection by connection, the last one first.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._lock = threading.Lock()
        self._mark, self.answers_to_lose = b"", 0
        self._then: Callable[[], None] = lambda: None
        self._size, self.requests_to_break = 0, 0
        self._sent: list[list[bytes]] = []
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._accept, name="CuttingProxy", daemon=True)

    @property
    def url(self) -> str:
        return f"grpc://127.0.0.1:{self.port}"

    def lose_answers(self, mark: bytes, count: int, then: Callable[[], None] = lambda: None) -> None:
        self._mark, self.answers_to_lose, self._then = mark, count, then

    def retarget(self, port: int) -> None:
        self._target = port

    def break_requests(self, size: int, count: int) -> None:
        self._size, self.requests_to_break = size, count

    def replay(self) -> int:
        """How many connections were sent again."""
        with self._lock:
            sent = list(self._sent)
        for pieces in reversed(sent):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._target)) as server:
                server.sendall(b"".join(pieces))
                server.shutdown(socket.SHUT_WR)
                while server.recv(1 << 16):
                    pass
        return len(sent)

    def __enter__(self) -> CuttingProxy:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for one in self._open:
                _cut(one)
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:  # it is being started again
                client.close()
                continue
            with self._lock:
                self._open += [client, server]
                self._sent.append([])
                pieces = self._sent[-1]
                left = None
                if self.requests_to_break:
                    self.requests_to_break -= 1
                    left = self._size
            threading.Thread(target=self._forward, args=(client, server, pieces, left), daemon=True).start()
            threading.Thread(target=self._answer, args=(client, server), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket, pieces: list[bytes], left: int | None) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                pieces.append(data)
                server.sendall(data[:left])
                if left is not None:
                    left -= len(data)
                    if left <= 0:
                        break
        _cut(client)
        _cut(server)

    def _answer(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                if self._mark and self._mark in data:
                    with self._lock:
                        loses = self.answers_to_lose > 0
                        self.answers_to_lose -= loses
                    if loses:
                        self._then()
                        break
                client.sendall(data)
        _cut(client)
        _cut(server)


def _cut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
