"""Offset message ids, and hosts as text.

An offset message id is the upper-case hex of these bytes, big-endian::

    0          4          8                  16              IPv4: 16 bytes, 32 characters
    +----------+----------+------------------+
    | IP       | PORT     | PHYSICAL OFFSET  |
    +----------+----------+------------------+

    0                     16         20                 28   IPv6: 28 bytes, 56 characters
    +---------- - - ------+----------+------------------+
    | IP                  | PORT     | PHYSICAL OFFSET  |
    +---------- - - ------+----------+------------------+

The host is the one that stored the message. The port is the record's 4-byte field; whether a machine can have such a
port is not checked here, since ids are made of any record's fields.

Source: RocketMQ ``common/message/MessageDecoder.java`` (``createMessageId``, ``decodeMessageId``); text of a host:
Java's ``InetAddress.getHostAddress``.
"""

from __future__ import annotations

import ipaddress
import re
import struct
from collections.abc import Iterable
from typing import NamedTuple

from commitlog_store.errors import InvalidValue

# The fields after the ip.
_PORT_AND_OFFSET = struct.Struct(">iq")
_OFFSET_SIZE = 8
_IP_SIZES = (4, 16)
# Number of characters -> bytes of the ip.
_IP_SIZE_OF_LENGTH = {2 * (size + _PORT_AND_OFFSET.size): size for size in _IP_SIZES}

assert _IP_SIZE_OF_LENGTH == {32: 4, 56: 16}

_HEX = re.compile(r"[0-9A-Fa-f]+")
_IPV6_GROUPS = struct.Struct(">8H")
# Java holds an IPv4 address that is mapped into IPv6 for the IPv4 address itself.
_MAPPED_IPV4 = bytes(10) + b"\xff\xff"
_HOST = re.compile(r"(?P<ip>[0-9A-Fa-f.:]+):(?P<port>[0-9]{1,5})")
MAX_PORT = 65_535


class MessageId(NamedTuple):
    """The host that stored a message, and the physical offset of its record in that store's log."""

    host: bytes
    port: int
    physical_offset: int


def encode_message_id(host: bytes, port: int, physical_offset: int) -> str:
    """The offset message id: 32 characters for a host of 4 bytes, 56 for one of 16. ``InvalidValue``."""
    _check_ip(host)
    try:
        tail = _PORT_AND_OFFSET.pack(port, physical_offset)
    except struct.error as error:
        raise InvalidValue(
            f"A message id holds a port of 4 and a physical offset of 8 bytes, both signed: not {port} "
            f"and {physical_offset}."
        ) from error
    return (host + tail).hex().upper()


def encode_message_ids(host: bytes, port: int, physical_offsets: Iterable[int]) -> list[str]:
    """The offset message ids of several messages of one host. ``InvalidValue`` for a host or port that has none."""
    head = encode_message_id(host, port, 0)[: -2 * _OFFSET_SIZE]
    return [f"{head}{offset:016X}" for offset in physical_offsets]


def decode_message_id(text: str) -> MessageId:
    """The parts of an offset message id, in either case of letters. ``InvalidValue`` for any other text."""
    if not isinstance(text, str):
        raise InvalidValue(f"A message id is a text, not {text!r}.")
    ip_size = _IP_SIZE_OF_LENGTH.get(len(text))
    if ip_size is None:
        raise InvalidValue(
            f"An offset message id has 32 characters (56 with an IPv6 host), {text!r} has {len(text)}. "
            "The id that a client makes (UNIQ_KEY) is found by querying for it as a key."
        )
    if not _HEX.fullmatch(text):
        raise InvalidValue(f"An offset message id consists of hexadecimal digits, unlike {text!r}.")
    data = bytes.fromhex(text)
    port, physical_offset = _PORT_AND_OFFSET.unpack_from(data, ip_size)
    if physical_offset < 0:
        raise InvalidValue(f"Message id {text!r} names the physical offset {physical_offset}; offsets start at 0.")
    return MessageId(data[:ip_size], port, physical_offset)


def format_host(host: bytes, port: int) -> str:
    """``ip:port`` as Java prints it: ``192.168.1.9:4000``, ``2001:db8:0:0:0:0:0:85:40420``.

    IPv6 groups are lower-case hex without leading zeros, none left out, without brackets: the port
    follows the last colon. ``InvalidValue`` for a host that has neither 4 nor 16 bytes.
    """
    _check_ip(host)
    if host.startswith(_MAPPED_IPV4) and len(host) == 16:
        host = host[len(_MAPPED_IPV4) :]
    if len(host) == 4:
        return f"{host[0]}.{host[1]}.{host[2]}.{host[3]}:{port}"
    groups = ":".join(format(group, "x") for group in _IPV6_GROUPS.unpack(host))
    return f"{groups}:{port}"


def parse_host(text: str) -> tuple[bytes, int]:
    """The ip's bytes (4 or 16) and the port of ``ip:port``; ``InvalidValue`` for anything else, names included.

    IPv6 may also be written short (``::1:10911``): the port follows the last colon. Ports are 0 to 65535.
    """
    match = _HOST.fullmatch(text)
    try:
        if match is None:
            raise ValueError(text)
        host = ipaddress.ip_address(match["ip"]).packed
    except ValueError as error:
        raise InvalidValue(f"A host is 'ip:port', such as '192.168.1.9:10911', not {text!r}.") from error
    port = int(match["port"])
    if port > MAX_PORT:
        raise InvalidValue(f"A port is 0 to {MAX_PORT}, not {port} as in {text!r}.")
    return host, port


def _check_ip(host: bytes) -> None:
    if len(host) not in _IP_SIZES:
        raise InvalidValue(f"A host's ip has 4 bytes or 16, not {len(host)}.")
