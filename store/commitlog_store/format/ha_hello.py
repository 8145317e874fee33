"""The hello: what two stores of this package say before the replication protocol begins (``ha_transfer``).

Big-endian and signed. The slave begins; then the master answers, and the slave proves that it has the token, too::

    0                  8          12         16                 24                                     56
    +------------------+----------+----------+------------------+-- - - - - - - - - - - - - - - - - - -+
    | MAGIC            | VERSION  | PURPOSE  | EPOCH            | NONCE                                |  slave
    +------------------+----------+----------+------------------+-- - - - - - - - - - - - - - - - - - -+
    0                  8          12         16                 24                                     56      88
    +------------------+----------+----------+------------------+-- - - - - - - - - - - - - - - - - - -+-------+
    | MAGIC            | VERSION  | 0        | EPOCH            | NONCE                                | PROOF |  master
    +------------------+----------+----------+------------------+-- - - - - - - - - - - - - - - - - - -+-------+
    0       32
    +-------+
    | PROOF |                                                                                             slave
    +-------+

MAGIC is negative as an offset, so a master distinguishes a hello from the first offset of RocketMQ's slaves, and a
RocketMQ master never sends it. PURPOSE is 0 to follow the master's log, 1 only to report a higher epoch. A master that
has taken in a higher epoch, on its device too, answers with the epoch in 8 bytes, and closes the connection. NONCE is
random. PROOF is the HMAC-SHA-256, with the shared token as key, of the side's name, the hello and the answer without
its proof: who listens learns neither the token nor a proof that could be used again.

This package's own.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import struct
from dataclasses import dataclass

from commitlog_store.errors import InvalidValue

MAGIC = int.from_bytes(b"\xc7PYCLOG\x01", "big", signed=True)
_VERSION = 1
_FIELDS = struct.Struct(">qiiq32s")

NONCE_SIZE = 32
PROOF_SIZE = hashlib.sha256().digest_size
HELLO_SIZE = _FIELDS.size
ANSWER_SIZE = HELLO_SIZE + PROOF_SIZE
assert (HELLO_SIZE, ANSWER_SIZE) == (56, 88)
assert MAGIC < 0


class Purpose(enum.IntEnum):
    """Why a slave connects."""

    FOLLOW = 0
    REPORT_EPOCH = 1


class Side(enum.Enum):
    """Which side a proof is of: one side's proof is not the other's."""

    MASTER = b"master"
    SLAVE = b"slave"


@dataclass(frozen=True)
class Hello:
    """What either side says of itself: its epoch, and a random number; the purpose is the slave's."""

    epoch: int
    nonce: bytes
    purpose: Purpose = Purpose.FOLLOW


def encode_hello(hello: Hello) -> bytes:
    return _FIELDS.pack(MAGIC, _VERSION, hello.purpose, hello.epoch, hello.nonce)


def decode_hello(data: bytes) -> Hello:
    """The hello in exactly 56 bytes. ``InvalidValue`` says what is wrong with it."""
    magic, version, purpose, epoch, nonce = _FIELDS.unpack(data)
    if magic != MAGIC:
        raise InvalidValue(f"A hello begins with {MAGIC:#x}, not with {magic:#x}: the peer is another program.")
    if version != _VERSION:
        raise InvalidValue(f"The peer's hello has version {version}, known is {_VERSION}: the other end is newer.")
    if purpose not in list(Purpose) or epoch < 0:
        raise InvalidValue(f"A hello with purpose {purpose} and epoch {epoch}: expected 0 or 1, and no negative epoch.")
    return Hello(epoch, nonce, Purpose(purpose))


def proof_of(side: Side, token: str, hello: bytes, answer: bytes) -> bytes:
    """The proof that ``side`` has the token; ``answer`` is the master's without its proof."""
    return hmac.digest(token.encode(), side.value + hello + answer, "sha256")


def proves(proof: bytes, side: Side, token: str, hello: bytes, answer: bytes) -> bool:
    """Whether it is that proof, compared in constant time."""
    return hmac.compare_digest(proof, proof_of(side, token, hello, answer))
