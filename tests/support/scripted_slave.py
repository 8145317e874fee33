"""A scripted slave: what RocketMQ's does on the wire, a step at a time, or by itself on a thread."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from types import TracebackType

from commitlog_store.format.ha_transfer import (
    TRANSFER_HEADER_SIZE,
    TransferHeader,
    decode_transfer_header,
    encode_offset,
)
from tests.support.waiting import WAIT_LIMIT_S


class ScriptedSlave:
    """A connection to a master, as a context manager. ``log`` is what it has received, which begins at ``start``."""

    def __init__(self, address: str | None, request: int | None = None) -> None:
        assert address is not None
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host.strip("[]"), int(port)), timeout=WAIT_LIMIT_S)
        self.start = -1
        self.log = bytearray()
        self._following: threading.Thread | None = None
        if request is not None:
            self.say(request)

    @property
    def end(self) -> int:
        return self.start + len(self.log)

    def say(self, offset: int) -> None:
        """Send an offset: the first one is the request, later ones acknowledge."""
        self.say_bytes(encode_offset(offset))

    def say_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> TransferHeader | None:
        """The next frame, whose body goes into ``log``; None when the master has closed the connection."""
        try:
            header = decode_transfer_header(self._exactly(TRANSFER_HEADER_SIZE))
            body = self._exactly(header.size)
        except (EOFError, ConnectionError):
            return None
        if self.start < 0:
            self.start = header.physical_offset
        assert header.physical_offset == self.end, "frames follow each other"
        self.log += body
        return header

    def receive_up_to(self, end: int) -> list[TransferHeader]:
        """The frames up to a physical offset, without heartbeats."""
        frames = []
        while self.end < end or self.start < 0:
            header = self.receive()
            assert header is not None, f"the connection was closed at {self.end}"
            if header.size:
                frames.append(header)
        return frames

    def follow(self) -> ScriptedSlave:
        """From now on, on a thread: receive, and acknowledge what was received."""
        self._following = threading.Thread(target=self._follow, daemon=True)
        self._following.start()
        return self

    def _follow(self) -> None:
        with contextlib.suppress(ConnectionError):  # either end may close it before an acknowledgement
            while (header := self.receive()) is not None:
                if header.size:
                    self.say(self.end)

    def wait_until_closed(self) -> None:
        """Return when the thread of ``follow`` has ended."""
        assert self._following is not None
        self._following.join()

    def was_closed(self) -> bool:
        """Receive until the master closes the connection; then True."""
        while self.receive() is not None:
            pass
        return True

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self._socket.recv(count - len(data))
            if not piece:
                raise EOFError
            data += piece
        return bytes(data)

    def reset(self) -> None:
        """End the connection as the system ends that of a killed process with unread data."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # ends a receive of the thread
        if self._following is not None:
            self._following.join()
        self._socket.close()

    def __enter__(self) -> ScriptedSlave:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
