"""A connection to a master waits for a slow one, up to a time."""

from __future__ import annotations

import array
import fcntl
import socket
import ssl
import termios
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from commitlog_store.follower.link import FrameReader, MasterLink
from commitlog_store.format.ha_transfer import OFFSET_SIZE, decode_offset, encode_offset, encode_transfer_header
from commitlog_store.replication.peer import Hangup, MasterAddress
from tests.store.follower.certificates import make_certificate
from tests.support.waiting import wait_for

SMALL = 4096


@pytest.fixture
def master() -> Iterator[socket.socket]:
    """Listens, for connections that take few bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
        yield listening


def connect(master: socket.socket, timeout_s: float) -> MasterLink:
    address = MasterAddress("127.0.0.1", master.getsockname()[1])
    link = MasterLink.connect(address, 0, timeout_s=timeout_s, security=None, epoch=0)
    link._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)
    return link


def receive(peer: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        data += peer.recv(size - len(data))
    return bytes(data)


def acknowledge_all(link: MasterLink, count: int) -> None:
    for offset in range(count):
        link.acknowledge(offset)


def acknowledge_for_ever(link: MasterLink) -> None:
    while True:
        link.acknowledge(1)


def test_acknowledgements_arrive_whole_and_in_order_at_a_master_that_reads_late(master: socket.socket) -> None:
    count = 20_000
    with connect(master, 60.0) as link, ThreadPoolExecutor() as threads:
        peer, _ = master.accept()
        with peer:
            acknowledging = threads.submit(acknowledge_all, link, count)
            said = receive(peer, (count + 1) * OFFSET_SIZE)
            acknowledging.result()
            assert not link.has_more()
            peer.sendall(encode_offset(0) + b"\0" * 4)
            assert link.receive(60.0), "it does not block, and waits all the same"
    offsets = [decode_offset(said, at) for at in range(0, len(said), OFFSET_SIZE)]
    assert offsets == [1, *range(count)]


def test_a_master_that_takes_nothing_is_given_up_in_time(master: socket.socket) -> None:
    with connect(master, 0.05) as link:
        peer, _ = master.accept()
        with peer, pytest.raises(TimeoutError):
            acknowledge_for_ever(link)


class RecordsOfTls:
    """The master's end of TLS, which gives its records to the test."""

    def __init__(self, peer: socket.socket, certificate: Path, key: Path) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._received, self._made, self._peer = ssl.MemoryBIO(), ssl.MemoryBIO(), peer
        self._end = context.wrap_bio(self._received, self._made, server_side=True)

    def shake_hands(self) -> None:
        while True:
            try:
                self._end.do_handshake()
                return
            except ssl.SSLWantReadError:
                self._peer.sendall(self._made.read())
                self._received.write(self._peer.recv(1 << 16))

    def record_of(self, data: bytes) -> bytes:
        """The bytes on the network, after what TLS has to say before."""
        self._peer.sendall(self._made.read())
        self._end.write(data)
        return self._made.read()


def unread(link: MasterLink) -> int:
    """The bytes that have come, and that the link has not taken from its socket."""
    count = array.array("i", [0])
    fcntl.ioctl(link._socket.fileno(), termios.FIONREAD, count)
    return count[0]


def test_it_waits_for_the_rest_of_a_record_of_tls(master: socket.socket, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    hangup = Hangup()
    with ThreadPoolExecutor() as threads:
        connection = hangup.connect(MasterAddress("127.0.0.1", master.getsockname()[1]), 60.0)
        peer, _ = master.accept()
        records = RecordsOfTls(peer, certificate, key)
        shaking = threads.submit(records.shake_hands)
        trusting = ssl.create_default_context(cafile=str(certificate))
        secured = hangup.begin_tls(connection, trusting, "127.0.0.1")
        shaking.result()
        secured.setblocking(False)
        with peer, MasterLink(secured, hangup, 1, FrameReader(0), None, 60.0) as link:
            record = records.record_of(encode_transfer_header(0, 0))
            peer.sendall(record[:20])
            receiving = threads.submit(link.receive, 60.0)
            wait_for(lambda: not unread(link))
            peer.sendall(record[20:])
            assert receiving.result(), "not only a part of the time has passed"
            assert link.frames.heartbeat_at == 0
            peer.sendall(records.record_of(encode_transfer_header(0, 0))[:20])
            assert not link.receive(0.01)
