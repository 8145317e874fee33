"""MasterLink: one connection to a master, from the request to its end.

One thread uses it. Each wait has a limit: a master that says nothing is noticed by its missing
heartbeats.
"""

from __future__ import annotations

import select
import socket
import ssl
import time

from commitlog_store.errors import PeerRefused
from commitlog_store.follower.frames import FrameReader
from commitlog_store.format.ha_transfer import encode_offset
from commitlog_store.replication.handshake import Security, say_hello
from commitlog_store.replication.peer import Hangup, MasterAddress

# What is received at once: many frames of 32 KiB.
_RECEIVED_SIZE = 1 << 20
_MS = 1000.0


class MasterLink:
    """A connection. ``frames`` has what was received; the first number is sent by ``request``."""

    def __init__(
        self,
        connection: socket.socket,
        hangup: Hangup,
        request_offset: int,
        frames: FrameReader,
        master_epoch: int | None,
    ) -> None:
        """Use ``connect``."""
        self._socket = connection
        self._hangup = hangup
        self.request_offset = request_offset
        # The epoch that the master's hello gave; None without a hello.
        self.master_epoch = master_epoch
        self.frames = frames
        self.has_answered = False
        # Not ``select``, which takes no descriptor of 1,024 and more.
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        self._buffer = memoryview(bytearray(_RECEIVED_SIZE))
        self.received_at = self.sent_at = time.monotonic()

    @classmethod
    def connect(
        cls,
        address: MasterAddress,
        start: int | None,
        *,
        timeout_s: float,
        security: Security | None,
        epoch: int,
        hangup: Hangup | None = None,
    ) -> MasterLink:
        """Connect and ask for the log from ``start`` on; None: from the master's last file. ``OSError``,
        ``PeerRefused``.

        ``security`` begins with a hello, which RocketMQ's masters do not know. ``hangup`` ends all of it from another
        thread.
        """
        # A request of 0 is for the last file. The first byte of the first record, of its size, is always 0.
        request_offset, frames = (1, FrameReader(0, b"\0")) if start == 0 else (start or 0, FrameReader(start))
        hangup = hangup or Hangup()
        connection = hangup.connect(address, timeout_s)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            master_epoch = None
            if security is not None:
                if security.as_slave is not None:
                    connection = hangup.begin_tls(connection, security.as_slave, address.host)
                master_epoch = say_hello(connection, token=security.token, epoch=epoch, timeout_s=timeout_s)
            connection.settimeout(timeout_s)
            connection.sendall(encode_offset(request_offset))
            return cls(connection, hangup, request_offset, frames, master_epoch)
        except ssl.SSLError as error:
            hangup.close()
            raise PeerRefused(f"TLS with the master at {address} failed: {error}.") from error
        except BaseException:
            hangup.close()
            raise

    def receive(self, wait_s: float) -> bool:
        """Take what has come, or comes within ``wait_s`` seconds. Returns whether anything did.

        ``ConnectionError`` when the master has closed the connection, ``PeerRefused``.
        """
        if not self.has_more(wait_s):
            return False
        size = self._socket.recv_into(self._buffer)
        if not size:
            raise ConnectionResetError("The master closed the connection")
        self.received_at = time.monotonic()
        self.has_answered = True
        self.frames.feed(self._buffer[:size])
        return True

    def has_more(self, wait_s: float = 0.0) -> bool:
        """Whether ``receive`` would take something at once, or within ``wait_s`` seconds."""
        pending = self._socket.pending() if isinstance(self._socket, ssl.SSLSocket) else 0
        return bool(pending or self._poll.poll(wait_s * _MS))

    def acknowledge(self, offset: int) -> None:
        """Say that everything before ``offset`` is here. ``OSError``."""
        self._socket.sendall(encode_offset(offset))
        self.sent_at = time.monotonic()

    def close(self) -> None:
        self._hangup.close()

    def __enter__(self) -> MasterLink:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
