"""A TCP proxy that loses what a network may lose: answers, connections, and time; and that repeats what it was given.

It knows nothing of the bytes. Each connection has a thread for each direction.
"""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from types import TracebackType

_PIECE = 16 << 10
_STEP_S = 0.02
# At most so long a piece is held back; that of a connection that has ended for the client; and so long the latter lasts
# at the server, so that a call in the piece is done.
_PAUSE_S, _LATE_S, _ANSWERED_S = 0.05, 0.3, 0.1


class TcpProxy:
    """Listens on ``port`` and connects to ``target``, both on loopback. A context manager.

    With ``lose_answers`` set, what the server sends does not arrive. ``cut`` ends all connections. ``chaos`` is the
    chance that a piece of bytes ends its connection, in part or as a whole; as often, it is held back, or all bytes of
    a client's connection come a second time, on another one; or its connection ends for the client, and the server
    gets the piece late, after what the client sends on its next connection. ``done`` counts that.
    """

    def __init__(self, target: int, seed: int = 0) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(_STEP_S)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"grpc://127.0.0.1:{self.port}"
        self.lose_answers = False
        self.chaos = 0.0
        self.done = {"cut": 0, "delay": 0, "double": 0, "late": 0}
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._stopping = False
        self._start(self._accept)

    def retarget(self, target: int) -> None:
        """Where connections go from now on."""
        self._target = target

    def cut(self) -> None:
        """End all connections."""
        with self._lock:
            for one in self._sockets:
                _end(one)

    def _start(self, run: object, *arguments: object) -> None:
        thread = threading.Thread(target=run, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._stopping:
            with contextlib.suppress(OSError):  # nobody connects, or an end is gone
                client, _ = self._listener.accept()
                client.settimeout(None)
                try:
                    server = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    client.close()
                    continue
                with self._lock:
                    self._sockets |= {client, server}
                self._start(self._carry, client, server, True)
                self._start(self._carry, server, client, False)

    def _carry(self, source: socket.socket, target: socket.socket, is_up: bool) -> None:
        """Carry bytes until an end closes, or the connection is cut."""
        sent = bytearray()
        with contextlib.suppress(OSError):
            while data := source.recv(_PIECE):
                if self.lose_answers and not is_up:
                    continue
                sent += data
                kind, place, pause_s = self._chosen(len(data), is_up)
                if kind == "double":
                    self._start(self._send_again, bytes(sent), pause_s)
                if kind == "late":
                    _end(source)
                if kind in ("delay", "late"):
                    time.sleep(pause_s)
                target.sendall(data[:place] if kind == "cut" else data)
                if kind == "late":
                    time.sleep(_ANSWERED_S)
                if kind in ("cut", "late"):
                    break
        _end(source)
        _end(target)

    def _chosen(self, size: int, is_up: bool) -> tuple[str, int, float]:
        """What is done to a piece, a place in it, and a time."""
        with self._lock:
            # What was done least often so far: each kind has its turn.
            least = min(self.done if is_up else ("cut", "delay"), key=lambda one: self.done[one])
            kind = least if self._chance.random() < self.chaos else ""
            if kind:
                self.done[kind] += 1
            most_s = _LATE_S if kind == "late" else _PAUSE_S
            return kind, self._chance.randrange(size + 1), self._chance.random() * most_s

    def _send_again(self, sent: bytes, pause: float) -> None:
        time.sleep(pause)
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._target), 5) as server:
            server.settimeout(1)
            server.sendall(sent)
            while server.recv(_PIECE):
                pass

    def __enter__(self) -> TcpProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping = True
        self.cut()
        for thread in list(self._threads):
            thread.join()
        self._listener.close()
        for one in self._sockets:
            one.close()


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
