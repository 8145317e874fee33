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
from commitlog_store.format.ha_transfer import TRANSFER_HEADER_SIZE, decode_transfer_header, encode_offset
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
        timeout_s: float,
    ) -> None:
        """Use ``connect``. The connection does not block; ``timeout_s`` is how long a master may take nothing."""
        self._socket = connection
        self._timeout_s = timeout_s
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
            # With a timeout, each call polls before it acts, and releases the interpreter's lock twice: dispatch, which
            # a sync has just woken, takes it before an acknowledgement is sent.
            connection.setblocking(False)
            return cls(connection, hangup, request_offset, frames, master_epoch, timeout_s)
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
        until = time.monotonic() + wait_s
        while self.has_more(max(until - time.monotonic(), 0.0)):
            try:
                size = self._socket.recv_into(self._buffer)
                break
            except (BlockingIOError, ssl.SSLWantReadError):  # of TLS, a part of a record, or none of a master's data
                continue
        else:
            return False
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
        data = encode_offset(offset)
        try:
            count = self._socket.send(data)
        except (BlockingIOError, ssl.SSLWantWriteError):
            count = 0
        if count < len(data):  # the master does not read
            self._socket.settimeout(self._timeout_s)
            self._socket.sendall(data[count:])
            self._socket.setblocking(False)
        self.sent_at = time.monotonic()

    def close(self) -> None:
        self._hangup.close()

    def __enter__(self) -> MasterLink:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# A broker's frames have 32 KiB (haTransferBatchSize). A longer size is not a frame's.
_LARGEST_FRAME = 64 << 20


class FrameReader:
    """Takes what a socket gives, in any pieces. ``log`` are the bytes of the log from ``start`` on, not yet taken."""

    def __init__(self, start: int | None, log: bytes = b"") -> None:
        """``start`` None lets the master choose where to begin. ``log`` is known without being sent."""
        self.start = start
        self.log = bytearray(log)
        # The next byte that the master sends, by a frame without a body; None before the first one.
        self.heartbeat_at: int | None = None
        # The end of the master's log, when that lies before ``start``: by the offset of a first frame without a body.
        self.master_end: int | None = None
        self._has_begun = False
        self._rest = bytearray()
        # What is left to come of the body of the frame that was begun.
        self._body_left = 0
        # Why what came after ``log`` is not a frame; nothing more is taken then.
        self.fault: PeerRefused | None = None

    @property
    def end(self) -> int:
        """The physical offset after the received bytes."""
        return (self.start or 0) + len(self.log)

    def feed(self, data: memoryview) -> None:
        """Take the next bytes, up to what no master sends."""
        at = 0
        while at < len(data) and self.fault is None:
            if self._body_left:
                taken = min(self._body_left, len(data) - at)
                self.log += data[at : at + taken]
                self._body_left -= taken
                at += taken
                continue
            missing = TRANSFER_HEADER_SIZE - len(self._rest)
            self._rest += data[at : at + missing]
            at += missing
            if len(self._rest) == TRANSFER_HEADER_SIZE:
                self.fault = self._begin(*decode_transfer_header(self._rest))
                self._rest.clear()

    def take(self, size: int) -> None:
        """Forget the first ``size`` bytes of ``log``: they are stored."""
        assert self.start is not None
        del self.log[:size]
        self.start += size

    def _begin(self, offset: int, size: int) -> PeerRefused | None:
        """Begin a frame; the error for one that cannot be."""
        if not 0 <= size <= _LARGEST_FRAME:
            return PeerRefused(f"The master sent a frame of {size} bytes; expected 0 to {_LARGEST_FRAME}.")
        if self.start is None:
            if offset < 0:
                return PeerRefused(f"The master sent a frame for physical offset {offset}; expected 0 or more.")
            self.start = offset
        elif not size and 0 <= offset < self.end and not self._has_begun:
            self.master_end = offset
        elif offset != self.end:
            return PeerRefused(
                f"The master sent a frame for physical offset {offset}; expected {self.end}, the end of the frame "
                "before it."
            )
        self._has_begun = True
        if not size:
            self.heartbeat_at = offset
        self._body_left = size
        return None
