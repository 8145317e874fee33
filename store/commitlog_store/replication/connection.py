"""HAConnection: one connected slave: what it asked for, what it has acknowledged, and what is sent to it next.

The first number of a slave is the offset to send from (0: the beginning of the last file); each later one says that
everything before it is received. Frames come straight from a mapping of the log's file: a slave that takes nothing
costs no memory, and one call of the system sends many frames. What is sent is what the page cache has.

A slave whose numbers make no sense is dropped with a warning; nothing that it said counts any more.

Source: RocketMQ ``store/ha/HAConnection.java``, ``store/ha/DefaultHAConnection.java``.
"""

from __future__ import annotations

import logging
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from commitlog_store.config import MessageStoreConfig
from commitlog_store.engine.stats import SlaveState
from commitlog_store.errors import CommitLogError, PeerRefused
from commitlog_store.files import disk
from commitlog_store.files.mapped_file import MappedFile
from commitlog_store.files.mapped_file_queue_writer import MappedFileQueueWriter
from commitlog_store.format.ha_hello import HELLO_SIZE, MAGIC, Purpose
from commitlog_store.format.ha_transfer import OFFSET_SIZE, decode_offset, encode_offset, encode_transfer_header
from commitlog_store.replication.handshake import Security, answer_hello
from commitlog_store.replication.peer import Hangup

_LOG = logging.getLogger(__name__)
# At most so many bytes and frames are given to the socket at once, but at least one frame.
_MOST_BYTES = 1 << 20
_MOST_FRAMES = 128
# What is received at once: a slave sends 8 bytes now and then.
_RECEIVED_SIZE = 4096
# In place of an offset: the thread does not wait for an append.
_BUSY = 1 << 63
# The thread may wait for an append, or not.
_UNKNOWN = -1
# A connection that has ended waits for its thread to be ended.
_ENDED_S = 3_600.0
# How long TLS and the hello may take.
_HELLO_S = 5.0
_MS = 1000.0


class MasterIdentity(NamedTuple):
    """What a master says of itself in a hello, and does when it meets a higher epoch (with the slave's address)."""

    security: Security
    epoch: int
    on_superseded: Callable[[int, str], None]

    @property
    def asks_for_hello(self) -> bool:
        """Whether slaves without one are not served."""
        return bool(self.security.token) or self.security.as_master is not None


class _Dropped(Exception):
    """The reason for which this end closes the connection."""


class _Left(Exception):
    """The slave has closed the connection."""


class HAConnection:
    """Serves one slave, on a thread of its own: ``run_once`` waits for the slave, for an append, or for a time."""

    def __init__(
        self,
        peer: socket.socket,
        address: str,
        log: MappedFileQueueWriter,
        config: MessageStoreConfig,
        identity: MasterIdentity,
        on_acknowledged: Callable[[], None],
        on_ended: Callable[[HAConnection], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Takes over the socket. ``on_ended`` is called once, by the connection's thread."""
        self.address = address
        # Where the log ended when the thread began to wait for an append; _BUSY while it does not wait.
        self.idle_at = _BUSY
        self._peer = peer
        self._hangup = Hangup()
        self._hangup.watch(peer)
        self._log = log
        self._batch_size = config.ha_transfer_batch_size
        self._heartbeat_s = config.ha_send_heartbeat_interval / _MS
        self._housekeeping_s = config.ha_housekeeping_interval / _MS
        self._identity = identity
        # Whether it has no TLS.
        self._is_plain = self._is_secured = identity.security.as_master is None
        # Whether its first number may be a request: RocketMQ's slaves have no hello.
        self._may_ask = not identity.asks_for_hello
        self._on_acknowledged = on_acknowledged
        self._on_ended = on_ended
        self._clock = clock
        self._received = bytearray()
        self._has_said_hello = False
        self._request_offset = self._ack_offset = -1
        # The next byte to be sent. A slave that asked for bytes that retention has removed is sent none.
        self._position = -1
        self._lacks_files = False
        # Taken to send, and to close what sending uses: by this connection's thread, or by that of a put.
        self._sending = threading.Lock()
        # Whether a put sends, or was interrupted while it did: then it is not known how much the socket has taken.
        self._unsettled = False
        # Frames that the socket has not taken yet, and the file that they are from.
        self._frames: list[bytes | memoryview] = []
        self._file: MappedFile | None = None
        self._wrote_at = self._read_at = clock()
        self._stopping = self._ended = False
        peer.setblocking(False)
        with disk.taking_descriptor("a pair of sockets"):
            self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        # A socket is not closed while another thread wakes this one through it.
        self._waking = threading.Lock()
        self._poll = select.poll()
        self._poll.register(peer, select.POLLIN)
        self._poll.register(self._wake_reader, select.POLLIN)

    @property
    def ack_offset(self) -> int:
        """The slave has everything before it; of what it says, only what was sent to it counts."""
        return min(self._ack_offset, self._position)

    @property
    def follows(self) -> bool:
        """Whether it has asked for the log, and can be sent what it lacks."""
        return self._position >= 0 and not self._lacks_files

    @property
    def state(self) -> SlaveState:
        behind = self._log.committed_where - self.ack_offset if self._position >= 0 else -1
        return SlaveState(self.address, self._request_offset, self.ack_offset, self._position, behind)

    def offer(self, *, at_once: bool) -> None:
        """The log has grown: have the slave sent that, if the connection's thread waits for it.

        ``at_once``: by the calling thread, if it is little and the socket takes all of it.
        """
        if self.idle_at >= self._log.committed_where:
            return
        is_sent = False
        try:
            is_sent = at_once and self._send_at_once()
        finally:
            if not is_sent:
                self.wake()

    def _send_at_once(self) -> bool:
        """Send the last bytes of the log on a thread of the program, which a signal handler may interrupt; whether all
        of them are sent.

        A frame that may have been sent, and of which nothing is known, ends the connection; the slave connects again.
        """
        if self._sending.locked():
            return False
        with self._sending:
            file, start, end = self._file, self._position, self._log.committed_where
            if self._unsettled or self._frames or file is None or not self._is_plain:
                return False
            if start >= end:
                return True  # the connection's thread was quicker
            if end - start > self._batch_size or not file.base <= start < end <= file.base + file.capacity:
                return False
            self._unsettled = True
            try:
                self._send_frames()
            except (OSError, CommitLogError, _Dropped) as error:
                if isinstance(error, OSError) and error.errno is None:
                    raise  # a signal handler's
                self._unsettled = False
                return False  # the connection's thread meets it, too
            self.idle_at = self._position
            self._unsettled = False
            return not self._frames

    def wake(self) -> None:
        """The log has grown, or the connection is to end."""
        self.idle_at = _BUSY
        try:
            with self._waking:
                self._wake_writer.send(b"\0")
        except OSError:  # closed, or full of wakes that it has not seen yet
            pass
        except BaseException:  # a signal handler's, in a put: the next one wakes again
            self.idle_at = _UNKNOWN
            raise

    def stop(self) -> None:
        """Do nothing after the current step, which ends at once; then the caller ends the thread, and closes."""
        self._stopping = True
        self._hangup.hang_up()
        self.wake()

    def run_once(self) -> float:
        """Send what the slave takes, then wait for the next event. When the connection has ended, a long pause."""
        if self._ended or self._stopping:
            return _ENDED_S
        try:
            if not self._is_secured:
                self._secure()
            self._step()
        except (_Left, ConnectionError):
            self._end(logging.INFO, "has left")
        except _Dropped as reason:
            self._end(logging.WARNING, f"is dropped: {reason}")
        except (CommitLogError, OSError) as error:
            self._end(logging.WARNING, f"is dropped: {error}")
        return 0.0

    def _step(self) -> None:
        is_blocked = not self._send()
        wants_write = is_blocked and bool(self._frames)
        self._poll.modify(self._peer, select.POLLIN | select.POLLOUT if wants_write else select.POLLIN)
        events = dict(self._poll.poll(self._wait_s() * _MS if is_blocked else 0))
        self.idle_at = _BUSY
        if self._wake_reader.fileno() in events:
            self._wake_reader.recv(_RECEIVED_SIZE)
        if events.get(self._peer.fileno(), 0) & ~select.POLLOUT:
            self._receive()
        silent_s = self._clock() - self._read_at
        if silent_s >= self._housekeeping_s:
            half = f", but for {len(self._received)} bytes of a number" if self._received else ""
            raise _Dropped(f"nothing was received from it for {silent_s:.1f} s{half} (ha_housekeeping_interval)")

    def _wait_s(self) -> float:
        """How long to wait for an event at most; 0 when the log has grown by now."""
        until = self._read_at + self._housekeeping_s
        if self._position >= 0 and not self._frames:
            until = min(until, self._wrote_at + self._heartbeat_s)
            # In this order: an append that is not seen here sees that this thread waits.
            if not self._lacks_files:
                self.idle_at = self._position
                if self._log.committed_where > self._position:
                    return 0.0
        return max(until - self._clock(), 0.0)

    def _send(self) -> bool:
        """Give the socket frames; whether it may take more at once."""
        with self._sending:
            if self._unsettled:
                raise _Dropped("a signal handler interrupted a put that sent to it")
            return self._send_frames()

    def _send_frames(self) -> bool:
        """``_send`` with the lock taken."""
        if not self._frames:
            self._make_frames()
        if not self._frames:
            return False
        try:
            # TLS takes one piece at a time.
            count = self._peer.sendmsg(self._frames) if self._is_plain else self._peer.send(self._frames[0])
        except (BlockingIOError, ssl.SSLWantWriteError):
            return False
        self._wrote_at = self._clock()
        self._frames = _after(self._frames, count)
        return bool(self._frames) or self._position < self._log.committed_where

    def _make_frames(self) -> None:
        """Frames of the bytes after ``_position``, of one file; a heartbeat if nothing was sent for long."""
        start, end = self._position, self._log.committed_where
        if start < 0:
            return
        if start >= end or self._lacks_files:
            if self._clock() - self._wrote_at >= self._heartbeat_s:
                self._frames = [encode_transfer_header(start, 0)]
            return
        file = self._file_at(start)
        most = min(max(_MOST_BYTES, self._batch_size), _MOST_FRAMES * self._batch_size)
        stop = min(end, file.base + file.capacity, start + most)
        if stop <= start:
            raise _Dropped(f"{file.path} holds {file.capacity} bytes: another program has cut it")
        if self._is_plain and stop - start > self._batch_size:
            body = file.span(start - file.base, stop - file.base).data
        else:  # a copy: cheaper for few bytes; TLS reads them in this process, where a truncated file would be SIGBUS
            copy = np.empty(stop - start, np.uint8)
            file.read_into(copy, start - file.base)
            body = copy.data
        frames: list[bytes | memoryview] = []
        for at in range(0, stop - start, self._batch_size):
            piece = body[at : at + self._batch_size]
            frames += (encode_transfer_header(start + at, len(piece)), piece)
        self._frames, self._position = frames, stop

    def _file_at(self, offset: int) -> MappedFile:
        """The file with the byte at ``offset``, opened for this connection alone."""
        found = self._log.find(offset)
        if found is None:
            path = self._file.path if self._file is not None else f"the file with physical offset {offset}"
            raise _Dropped(f"retention has removed {path} before all of it was sent: the slave was too slow")
        if self._file is None or self._file.base != found.base:
            self._close_file()
            try:
                self._file = MappedFile.open(found.path, found.base)
            except FileNotFoundError:
                raise _Dropped(f"retention has removed {found.path} before it was sent") from None
        return self._file

    def _receive(self) -> None:
        try:
            data = self._peer.recv(_RECEIVED_SIZE)
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        if not data:
            raise _Left
        self._received += data
        if self._position < 0 and len(self._received) >= OFFSET_SIZE:
            if decode_offset(self._received) == MAGIC and not self._has_said_hello:
                self._greet()
                return
            self._take_request(decode_offset(self._received))
            del self._received[:OFFSET_SIZE]
        whole = len(self._received) // OFFSET_SIZE * OFFSET_SIZE
        if self._position >= 0 and whole:
            self._take_acknowledgement(decode_offset(self._received, whole - OFFSET_SIZE))
            del self._received[:whole]

    def _secure(self) -> None:
        """Begin TLS, which blocks this thread alone."""
        context = self._identity.security.as_master
        assert context is not None
        self._poll.unregister(self._peer)
        self._peer.settimeout(_HELLO_S)
        try:
            self._peer = self._hangup.begin_tls(self._peer, context)
        except OSError as error:  # ssl.SSLError is one
            raise _Dropped(f"it does not begin TLS: {error}") from error
        self._peer.setblocking(False)
        self._poll.register(self._peer, select.POLLIN)
        self._is_secured = True

    def _greet(self) -> None:
        """Answer a hello. Its epoch counts when the slave has proved that it has the token."""
        first = bytes(self._received)
        self._received.clear()
        if len(first) > HELLO_SIZE:
            raise _Dropped("it continues before its hello is answered")
        identity = self._identity
        try:
            hello = answer_hello(
                self._peer, first, token=identity.security.token, epoch=identity.epoch, timeout_s=_HELLO_S
            )
        except PeerRefused as error:
            raise _Dropped(str(error)) from error
        self._peer.setblocking(False)
        self._read_at = self._clock()
        self._has_said_hello = self._may_ask = True
        if hello.epoch > identity.epoch:
            identity.on_superseded(hello.epoch, self.address)
            self._peer.send(encode_offset(hello.epoch))  # taken in, on the device too
            raise _Dropped(f"it has epoch {hello.epoch}, and this store {identity.epoch}, which is superseded")
        if hello.purpose is Purpose.REPORT_EPOCH:
            raise _Left  # it has been superseded itself, or is this store, at the address of its old master

    def _take_request(self, offset: int) -> None:
        end = self._log.committed_where
        if not self._may_ask:
            raise _Dropped("it asks for the log without a hello: ha_token_file or ha_tls_certificate demand one")
        if offset < 0:
            raise _Dropped(f"it asks for physical offset {offset}, which is negative")
        # A mirror that wants everything asks for 1, since 0 is the last file; of a new log, that is past the end.
        if offset > max(end, 1):
            # It learns where the log ends; a slave of RocketMQ logs both ends, closes, and tries again.
            self._peer.send(encode_transfer_header(end, 0))
            raise _Dropped(f"it asks for physical offset {offset}, and the log ends at {end}: is it of another log?")
        self._read_at = self._clock()
        self._request_offset = self._ack_offset = offset
        start = offset or end - end % self._log.file_size
        if start < self._log.min_offset:
            # As RocketMQ does: the slave learns from heartbeats without data that its place is gone.
            self._lacks_files = True
            _LOG.warning(
                "Slave %s asks for physical offset %d, and the log begins at %d: it is sent heartbeats only. Make the "
                "slave again from a copy, or from the log's beginning.",
                self.address, offset, self._log.min_offset,
            )  # fmt: skip
        self._position = start
        self._wrote_at = self._clock()
        _LOG.info("Slave %s is sent the log from physical offset %d on", self.address, start)
        self._on_acknowledged()

    def _take_acknowledgement(self, offset: int) -> None:
        end = self._log.committed_where
        if offset > end:
            raise _Dropped(f"it acknowledges physical offset {offset}, and the log ends at {end}")
        if offset < self._ack_offset:
            raise _Dropped(f"it acknowledges physical offset {offset}, after {self._ack_offset} before")
        self._read_at = self._clock()
        if offset > self._ack_offset:
            self._ack_offset = offset
            self._on_acknowledged()

    def _end(self, level: int, how: str) -> None:
        if self._stopping:
            level, how = logging.DEBUG, "is closed with the store"
        _LOG.log(level, "Slave %s %s", self.address, how)
        self._on_ended(self)
        self.close()

    def close(self) -> None:
        """Close the sockets and the file; for the connection's own thread, or when that has ended."""
        self._ended = True
        with self._sending:
            self._frames = []
            self._close_file()
            self._hangup.close()
        with self._waking:
            self._wake_reader.close()
            self._wake_writer.close()

    def forget(self) -> None:
        """In a forked child: close this process's descriptors. That of the connection is closed by ``Hangup``."""
        for one in (self._wake_reader, self._wake_writer):
            one.close()

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _after(frames: list[bytes | memoryview], count: int) -> list[bytes | memoryview]:
    """What is left of frames when their first ``count`` bytes were sent."""
    for place, piece in enumerate(frames):
        if count < len(piece):
            return [memoryview(piece)[count:], *frames[place + 1 :]]
        count -= len(piece)
    return []
