"""A connection to a master waits for a slow one, up to a time."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from commitlog_store.follower.link import MasterLink
from commitlog_store.format.ha_transfer import OFFSET_SIZE, decode_offset, encode_offset
from commitlog_store.replication.peer import MasterAddress

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
