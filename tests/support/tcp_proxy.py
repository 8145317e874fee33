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


class TcpProxy:
    """Listens on ``port`` and connects to ``target``, both on loopback. A context manager.

    With ``lose_answers`` set, what the server sends does not arrive. ``cut`` ends all connections. ``chaos`` is the
    chance that a piece of bytes ends its connection, in part or as a whole; as often, it is held back, or all bytes of
    a client's connection come a second time, on another one. ``done`` counts that.
    """

    def __init__(self, target: int, seed: int = 0) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(_STEP_S)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"grpc://127.0.0.1:{self.port}"
        self.lose_answers = False
        self.chaos = 0.0
        self.done = {"cut": 0, "delay": 0, "double": 0}
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
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

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
                data, goes_on = self._treat(data, bytes(sent) if is_up else b"")
                target.sendall(data)
                if not goes_on:
                    break
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _treat(self, data: bytes, sent: bytes) -> tuple[bytes, bool]:
        with self._lock:
            # What was done least often so far: each kind has its turn.
            least = min(self.done if sent else ("cut", "delay"), key=lambda one: self.done[one])
            kind = least if self._chance.random() < self.chaos else ""
            place, pause = self._chance.randrange(len(data) + 1), self._chance.random() * 0.05
            if kind:
                self.done[kind] += 1
        if kind == "cut":
            return data[:place], False
        if kind == "delay":
            time.sleep(pause)
        elif kind == "double":
            self._start(self._send_again, sent, pause)
        return data, True

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
