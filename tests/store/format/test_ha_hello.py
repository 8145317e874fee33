"""The hello of two stores of this package: its bytes, its proofs, and what is refused."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog_store.errors import InvalidValue
from commitlog_store.format.ha_hello import (
    HELLO_SIZE,
    MAGIC,
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

_NONCE = bytes(range(NONCE_SIZE))


def test_a_hello_has_the_documented_bytes() -> None:
    data = encode_hello(Hello(5, _NONCE, Purpose.REPORT_EPOCH))
    assert data == b"\xc7PYCLOG\x01" + struct.pack(">iiq", 1, 1, 5) + _NONCE
    assert decode_hello(data) == Hello(5, _NONCE, Purpose.REPORT_EPOCH)


def test_the_magic_cannot_be_an_offset() -> None:
    assert MAGIC < 0


@pytest.mark.parametrize(
    ("at", "bytes_there", "message"),
    [
        (0, b"\x00", "another program"),
        (8, struct.pack(">i", 2), "version 2, known is 1"),
        (12, struct.pack(">i", 7), "purpose 7"),
        (16, struct.pack(">q", -1), "epoch -1"),
    ],
)
def test_other_bytes_are_refused_by_what_is_wrong(at: int, bytes_there: bytes, message: str) -> None:
    data = bytearray(encode_hello(Hello(5, _NONCE)))
    data[at : at + len(bytes_there)] = bytes_there
    with pytest.raises(InvalidValue, match=message):
        decode_hello(bytes(data))


@given(st.binary(min_size=HELLO_SIZE, max_size=HELLO_SIZE))
def test_arbitrary_bytes_are_a_hello_or_an_error(data: bytes) -> None:
    with contextlib.suppress(InvalidValue):
        assert encode_hello(decode_hello(data)) == data


def test_a_proof_is_of_one_side_one_token_and_one_connection() -> None:
    hello, answer = encode_hello(Hello(1, _NONCE)), encode_hello(Hello(2, _NONCE[::-1]))
    proof = proof_of(Side.SLAVE, "secret", hello, answer)
    assert len(proof) == PROOF_SIZE
    assert proves(proof, Side.SLAVE, "secret", hello, answer)
    assert not proves(proof, Side.MASTER, "secret", hello, answer)
    assert not proves(proof, Side.SLAVE, "Secret", hello, answer)
    assert not proves(proof, Side.SLAVE, "secret", encode_hello(Hello(1, bytes(NONCE_SIZE))), answer)
    assert not proves(proof, Side.SLAVE, "secret", hello, encode_hello(Hello(3, _NONCE[::-1])))
