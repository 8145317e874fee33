"""Streams of HTTP/2 that are begun with their headers and never say more: gRPC calls without a request."""

from __future__ import annotations

import socket
import struct

from commitlog_store.remote.wire import WIRE_HEADER, WIRE_VERSION

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEADERS, _SETTINGS = 1, 4
_END_HEADERS = 4


def connect_with_streams(url: str, method: str, count: int) -> socket.socket:
    """A connection with ``count`` begun calls of a method of Arrow Flight, such as ``DoAction``."""
    host, _, port = url.removeprefix("grpc://").rpartition(":")
    connection = socket.create_connection((host, int(port)))
    connection.sendall(_PREFACE + _frame(_SETTINGS, 0, 0, b""))
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": f"/arrow.flight.protocol.FlightService/{method}",
        ":authority": host,
        "content-type": "application/grpc",
        "te": "trailers",
        WIRE_HEADER: str(WIRE_VERSION),
    }
    # Those of the first stream go into the table of the connection; the others name their places in it.
    first = b"".join(b"\x40" + _text(name) + _text(value) for name, value in headers.items())
    again = bytes(0x80 | (62 + place) for place in range(len(headers)))
    for number in range(count):
        block = again if number else first
        connection.sendall(_frame(_HEADERS, _END_HEADERS, 2 * number + 1, block))
    return connection


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def _text(text: str) -> bytes:
    data = text.encode()
    return bytes((len(data),)) + data
