"""The replication protocol's bytes, against captured and hand-written ones."""

from __future__ import annotations

import pytest

from commitlog_store.format.ha_transfer import (
    OFFSET_SIZE,
    TRANSFER_HEADER_SIZE,
    TransferHeader,
    decode_offset,
    decode_transfer_header,
    encode_offset,
    encode_transfer_header,
)


def test_sizes_are_those_of_the_protocol() -> None:
    assert (OFFSET_SIZE, TRANSFER_HEADER_SIZE) == (8, 12)


@pytest.mark.parametrize(("offset", "data"), [(0, "0000000000000000"), (1 << 40, "0000010000000000"), (-1, "ff" * 8)])
def test_an_offset_is_eight_big_endian_bytes(offset: int, data: str) -> None:
    assert encode_offset(offset).hex() == data
    assert decode_offset(b"x" + bytes.fromhex(data), 1) == offset


def test_a_frames_header_is_the_offset_and_the_size_of_the_body() -> None:
    data = encode_transfer_header(0x0102030405, 32_768)
    assert data.hex() == "000000010203040500008000"
    assert decode_transfer_header(b"--" + data, 2) == TransferHeader(0x0102030405, 32_768)


def test_a_frame_without_body_is_a_heartbeat() -> None:
    assert decode_transfer_header(encode_transfer_header(7, 0)).is_heartbeat
    assert not decode_transfer_header(encode_transfer_header(7, 1)).is_heartbeat
