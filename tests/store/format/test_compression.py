"""Compressed bodies: RocketMQ's own are unpacked, broken and endless ones are refused."""

from __future__ import annotations

import base64
import contextlib
import random
import zlib

import crcmod.predefined
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog_store.errors import InvalidValue
from commitlog_store.format.compression import compress, decompress
from commitlog_store.format.sys_flag import COMPRESSED_FLAG, CompressionType, compression_type
from tests.store.format.golden_files import STORES, messages
from tests.support import golden

MIB = 1 << 20
# More than one piece of output, and no repetition that would make the stream tiny.
LONG = b"".join(str(number).encode() for number in range(100_000))
# What no compression makes shorter.
RANDOM = random.Random(1).randbytes(70_000)

any_type = pytest.mark.parametrize("kind", CompressionType)


def test_bodies_that_rocketmq_stored_unpack_to_what_was_sent() -> None:
    unpacked = set()
    for message in messages(golden.ROCKETMQ_533):
        if message["topic"] == "packed":
            assert message["sysFlag"] & COMPRESSED_FLAG
            kind = compression_type(message["sysFlag"])
            body = decompress(base64.b64decode(message["body"]), kind, MIB)
            assert body == f"compressed body {message['keys'].removeprefix('z')} ".encode() * 400
            unpacked.add(kind)
    assert unpacked == set(CompressionType)


@pytest.mark.parametrize("store", STORES)
def test_body_crc_is_crc32_of_the_stored_bytes_without_its_top_bit(store: str) -> None:
    """crcmod shares no code with zlib; records are checked with zlib's."""
    by_crcmod = crcmod.predefined.mkCrcFun("crc-32")
    for message in messages(store):
        body = base64.b64decode(message["body"])
        assert zlib.crc32(body) & 0x7FFFFFFF == by_crcmod(body) & 0x7FFFFFFF == message["bodyCrc"]


@given(st.sampled_from(CompressionType), st.binary(max_size=2000))
def test_compressed_bodies_decompress_to_the_same(kind: CompressionType, data: bytes) -> None:
    assert decompress(compress(data, kind), kind, len(data)) == data


@any_type
def test_long_body_unpacks_to_the_same(kind: CompressionType) -> None:
    assert decompress(compress(LONG, kind), kind, MIB) == LONG


@pytest.mark.parametrize(
    ("kind", "magic"),
    [(CompressionType.ZLIB, "78"), (CompressionType.LZ4, "04224d18"), (CompressionType.ZSTD, "28b52ffd")],
)
def test_streams_start_with_their_magic(kind: CompressionType, magic: str) -> None:
    assert compress(b"body", kind).hex().startswith(magic)


@pytest.mark.parametrize(
    "data",
    [b"", b"body", RANDOM[:100], LONG, bytes(65_537), RANDOM, bytes(4 * MIB + 1), bytes(9 * MIB)],
    ids=["empty", "short", "random", "long", "zeros over 64 KiB", "random over 64 KiB", "two blocks", "three blocks"],
)
def test_each_block_of_an_lz4_frame_unpacks_alone(data: bytes) -> None:
    """RocketMQ's reader, lz4-java, refuses a frame of blocks that refer to others, as liblz4 makes of over 64 KiB."""
    packed = compress(data, CompressionType.LZ4)
    assert packed[4] == 0b0110_0000, "version 1, independent blocks, no sizes, no checksums"
    blocks: list[bytes] = []
    at = 7
    while size := int.from_bytes(packed[at : at + 4], "little"):
        block = packed[at + 4 : at + 4 + (size & 0x7FFF_FFFF)]
        at += 4 + len(block)
        left = min(len(data) - sum(map(len, blocks)), 4 * MIB)
        blocks.append(block if size >> 31 else pa.Codec("lz4_raw").decompress(block, left, asbytes=True))
    assert at + 4 == len(packed)
    assert b"".join(blocks) == data
    assert decompress(packed, CompressionType.LZ4, 16 * MIB) == data


@any_type
def test_body_may_be_exactly_as_long_as_allowed(kind: CompressionType) -> None:
    packed = compress(LONG, kind)
    assert decompress(packed, kind, len(LONG)) == LONG
    with pytest.raises(InvalidValue, match=f"more than the allowed {len(LONG) - 1}"):
        decompress(packed, kind, len(LONG) - 1)


@any_type
def test_empty_body_may_be_all_that_is_allowed(kind: CompressionType) -> None:
    assert decompress(compress(b"", kind), kind, 0) == b""
    with pytest.raises(InvalidValue, match="more than the allowed 0"):
        decompress(compress(b"x", kind), kind, 0)


@any_type
def test_decompression_bomb_is_refused_at_the_limit(kind: CompressionType) -> None:
    bomb = compress(bytes(64 * MIB), kind)
    assert len(bomb) < MIB
    with pytest.raises(InvalidValue, match="more than the allowed 1000"):
        decompress(bomb, kind, 1000)


@any_type
def test_negative_limit_is_refused(kind: CompressionType) -> None:
    with pytest.raises(InvalidValue, match="not -1"):
        decompress(compress(b"body", kind), kind, -1)


@any_type
def test_stream_cut_anywhere_is_refused(kind: CompressionType) -> None:
    packed = compress(b"a body that is cut " * 20, kind)
    for size in range(len(packed)):
        with pytest.raises(InvalidValue, match=f"not a whole {kind.name} stream"):
            decompress(packed[:size], kind, MIB)


@any_type
def test_long_stream_that_is_cut_is_refused(kind: CompressionType) -> None:
    packed = compress(LONG, kind)
    with pytest.raises(InvalidValue, match=f"not a whole {kind.name} stream"):
        decompress(packed[:-1], kind, MIB)


@any_type
def test_garbage_is_refused(kind: CompressionType) -> None:
    with pytest.raises(InvalidValue, match=f"not a whole {kind.name} stream"):
        decompress(b"plain text, not a stream", kind, MIB)


@given(st.sampled_from(CompressionType), st.binary())
def test_any_bytes_unpack_or_are_refused(kind: CompressionType, data: bytes) -> None:
    with contextlib.suppress(InvalidValue):
        assert len(decompress(data, kind, MIB)) <= MIB


@any_type
def test_stream_of_another_type_is_refused(kind: CompressionType) -> None:
    for other in set(CompressionType) - {kind}:
        with pytest.raises(InvalidValue, match=f"not a whole {kind.name} stream"):
            decompress(compress(b"body", other), kind, MIB)


def test_bytes_after_a_zlib_stream_are_skipped_as_rocketmq_does() -> None:
    assert decompress(compress(b"body", CompressionType.ZLIB) + b"more", CompressionType.ZLIB, MIB) == b"body"


@pytest.mark.parametrize("kind", [CompressionType.LZ4, CompressionType.ZSTD])
def test_frames_after_each_other_are_one_body(kind: CompressionType) -> None:
    assert decompress(compress(b"bo", kind) + compress(b"dy", kind), kind, MIB) == b"body"
