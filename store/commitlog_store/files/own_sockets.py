"""The connections that peers have to a port of this process, found among its descriptors: counted, and cut.

Arrow Flight neither limits connections nor ends a call whose client has stopped reading; a closed connection ends all
of its calls. Linux only: elsewhere no connection is found. Sources: proc(5), tcp(7), ``tcp_info`` of linux/tcp.h.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from commitlog_store.addresses import address_text

_DESCRIPTORS = "/proc/self/fd"
# ``tcpi_bytes_received``, since Linux 4.1.
_BYTES_RECEIVED = struct.Struct("=128xQ")


class PeerConnection(NamedTuple):
    """The peer's address, as ``HOST:PORT``, and the bytes that it has sent."""

    peer: str
    received: int


def peer_connections(port: int) -> list[PeerConnection]:
    """The connections to this port of this process."""
    found = []
    for peer, connection in _connections(port):
        with suppress(OSError, struct.error):
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_RECEIVED.size)
            found.append(PeerConnection(peer, *_BYTES_RECEIVED.unpack(info)))
    return found


def cut_connections(port: int, unwanted: Callable[[str], bool]) -> int:
    """End the connections of unwanted peers, in both directions. The number of them."""
    count = 0
    for peer, connection in _connections(port):
        if unwanted(peer):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
                count += 1
    return count


def _connections(port: int) -> Iterator[tuple[str, socket.socket]]:
    if not sys.platform.startswith("linux"):
        return
    for name in os.listdir(_DESCRIPTORS):
        with _borrowed(int(name)) as connection:
            if connection is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            try:
                if connection.getsockname()[1] == port:
                    host, number, *_ = connection.getpeername()
                    yield _text(host, number), connection
            except OSError:  # it listens, or has ended
                continue


@contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket | None]:
    """Its owner may close the descriptor at any moment. It is not duplicated: the process may have no other left."""
    try:
        connection = socket.socket(fileno=descriptor)
    except OSError:  # not a socket
        yield None
        return
    try:
        yield connection
    finally:
        connection.detach()


def _text(host: str, port: int) -> str:
    return address_text(host.removeprefix("::ffff:"), port)
