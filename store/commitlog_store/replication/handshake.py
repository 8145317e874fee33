"""The handshake of two stores of this package: both prove that they have the token, and learn the other's epoch.

The bytes are in ``format/ha_hello``. Nothing of it reaches the store before both proofs were right. Sockets are
blocking; each exchange has one deadline for all of its bytes, so a peer that sends them one by one gains no time.

``Security`` is the token and TLS of a connection, from their files.
"""

from __future__ import annotations

import secrets
import socket
import ssl
import time
from dataclasses import dataclass

from commitlog_store.config import MessageStoreConfig
from commitlog_store.errors import InvalidValue, PeerRefused
from commitlog_store.files import disk
from commitlog_store.files.error_paths import failed_reads
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

# Bytes of a token; far more than one needs.
_LONGEST_TOKEN = 4096


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


@dataclass(frozen=True)
class Security:
    """``token`` is empty without one; the contexts are None without TLS."""

    token: str = ""
    as_master: ssl.SSLContext | None = None
    as_slave: ssl.SSLContext | None = None

    def __repr__(self) -> str:
        return "<Security>"  # a token is not for logs


def security_of(config: MessageStoreConfig) -> Security:
    """What the settings ask for. ``InvalidValue`` for files that do not serve, ``ReadFailed``."""
    certificate, key, trusted = config.ha_tls_certificate, config.ha_tls_key, config.ha_tls_ca
    if bool(certificate) != bool(key):
        raise InvalidValue(
            "ha_tls_certificate and ha_tls_key belong together: give both or none.",
            settings=("ha_tls_certificate", "ha_tls_key"),
        )
    as_master = as_slave = None
    if certificate:
        as_master = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            as_master.load_cert_chain(certificate, key)
        except OSError as error:  # ssl.SSLError is one
            raise _bad_file(
                f"{certificate} and {key}", "ha_tls_certificate", "a certificate and its key", error
            ) from error
    if trusted:
        as_slave = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            as_slave.load_verify_locations(trusted)
        except OSError as error:
            raise _bad_file(trusted, "ha_tls_ca", "certificates", error) from error
    for context in (as_master, as_slave):
        if context is not None:
            context.minimum_version = ssl.TLSVersion.TLSv1_2
    return Security(_token(config.ha_token_file), as_master, as_slave)


def _token(path: str) -> str:
    if not path:
        return ""
    try:
        with failed_reads(path):
            token = disk.read_file(path, _LONGEST_TOKEN).decode().strip()
    except UnicodeDecodeError as error:
        raise InvalidValue(f"The token in {path} (ha_token_file) is not UTF-8 text.") from error
    if not token:
        raise InvalidValue(f"The file {path} (ha_token_file) is empty; it holds the token, a text.")
    return token


def _bad_file(path: str, setting: str, expected: str, error: OSError) -> InvalidValue:
    return InvalidValue(f"{path} ({setting}): expected {expected} in PEM, found: {error}.", settings=(setting,))
