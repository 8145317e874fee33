"""A scripted master: sends what a test gives it, over a real socket."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType

from commitlog_store.format.ha_transfer import decode_offset, encode_transfer_header
from tests.support.readable import readable
from tests.support.waiting import WAIT_LIMIT_S


def frame(offset: int, body: bytes) -> bytes:
    return encode_transfer_header(offset, len(body)) + body


class Slave:
    """A slave that has connected."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(WAIT_LIMIT_S)
        self._connection = connection

    def says(self) -> int:
        """Its next number; ``EOFError`` when it has left."""
        data = b""
        while len(data) < 8:
            part = self._connection.recv(8 - len(data))
            if not part:
                raise EOFError
            data += part
        return decode_offset(data)

    def says_within(self, limit_s: float) -> int | None:
        """Its next number, if that comes so soon."""
        return self.says() if readable(self._connection, limit_s) else None

    def send(self, data: bytes) -> None:
        self._connection.sendall(data)

    def send_log(self, log: bytes, offset: int, stop: int | None = None, size: int = 1000) -> None:
        """The bytes of a log that begins at 0, from ``offset`` on, in frames that align with nothing."""
        stop = len(log) if stop is None else stop
        for at in range(offset, stop, size):
            self.send(frame(at, log[at : min(at + size, stop)]))

    def heartbeat(self, offset: int) -> None:
        self.send(frame(offset, b""))

    def reset(self) -> None:
        """Close at once, as a killed process's system does."""
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._connection.close()

    def wait_until_left(self) -> None:
        try:
            while True:
                self.says()
        except (EOFError, OSError):
            pass


class ScriptedMaster:
    """Listens, on a free port unless one is given, and runs ``serve`` for each slave, one after another."""

    def __init__(self, serve: Callable[[Slave], None], port: int = 0) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        self._serve = serve
        self.connections = 0
        self.errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            with connection:
                try:
                    self._serve(Slave(connection))
                except (EOFError, OSError):
                    pass
                except BaseException as error:  # noqa: BLE001 - the test raises it
                    self.errors.append(error)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(WAIT_LIMIT_S)
        if self.errors:
            raise self.errors[0]

    def __enter__(self) -> ScriptedMaster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
