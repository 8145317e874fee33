"""The handshake of two stores of this package: both prove that they have the token, and learn the other's epoch.

The bytes are in ``format/ha_hello``. Nothing of it reaches the store before both proofs were right. Sockets are
blocking; each exchange has one deadline for all of its bytes, so a peer that sends them one by one gains no time.
"""

from __future__ import annotations

import secrets
import socket
import time

from commitlog_store.errors import InvalidValue, PeerRefused
from commitlog_store.format.ha_hello import (
    ANSWER_SIZE,
    HELLO_SIZE,
    NONCE_SIZE,
    PROOF_SIZE,
    Hello,
    Purpose,
    Side,
    decode_hello,
    encode_hello,
    proof_of,
    proves,
)

__all__ = ["answer_hello", "receive_exactly", "say_hello"]


def say_hello(
    connection: socket.socket, *, token: str, epoch: int, timeout_s: float, purpose: Purpose = Purpose.FOLLOW
) -> int:
    """The slave's side; the master's epoch. ``PeerRefused``, ``OSError``."""
    deadline = time.monotonic() + timeout_s
    hello = encode_hello(Hello(epoch, secrets.token_bytes(NONCE_SIZE), purpose))
    _send(connection, hello, deadline)
    found = receive_exactly(connection, ANSWER_SIZE, deadline)
    answer, proof = found[:HELLO_SIZE], found[HELLO_SIZE:]
    try:
        master = decode_hello(answer)
    except InvalidValue as error:
        raise PeerRefused(f"{error} Follow a RocketMQ broker without a token and TLS.") from error
    if not proves(proof, Side.MASTER, token, hello, answer):
        raise PeerRefused("The master has another token than this side. Give both the same one.")
    _send(connection, proof_of(Side.SLAVE, token, hello, answer), deadline)
    return master.epoch


def answer_hello(connection: socket.socket, first: bytes, *, token: str, epoch: int, timeout_s: float) -> Hello:
    """The master's side, after the hello's bytes ``first``; the slave's hello. ``PeerRefused``, ``OSError``."""
    deadline = time.monotonic() + timeout_s
    hello = first + receive_exactly(connection, HELLO_SIZE - len(first), deadline)
    try:
        slave = decode_hello(hello)
    except InvalidValue as error:
        raise PeerRefused(str(error)) from error
    answer = encode_hello(Hello(epoch, secrets.token_bytes(NONCE_SIZE)))
    _send(connection, answer + proof_of(Side.MASTER, token, hello, answer), deadline)
    proof = receive_exactly(connection, PROOF_SIZE, deadline)
    if not proves(proof, Side.SLAVE, token, hello, answer):
        raise PeerRefused("The slave has another token than this side. Give both the same one.")
    return slave


def receive_exactly(connection: socket.socket, size: int, deadline: float) -> bytes:
    """The next ``size`` bytes, until ``deadline`` (``time.monotonic``). ``TimeoutError``, ``ConnectionError``."""
    data = bytearray()
    while len(data) < size:
        connection.settimeout(_left(deadline))
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionResetError(f"The peer closed the connection after {len(data)} of {size} bytes.")
        data += part
    return bytes(data)


def _send(connection: socket.socket, data: bytes, deadline: float) -> None:
    connection.settimeout(_left(deadline))
    connection.sendall(data)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("The peer did not answer in time.")
    return left
