"""Large bodies packed as producers pack them: readers get them back, and the record says that they are packed."""

from __future__ import annotations

import random
import zlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog_store.columnar import bodies, body_compression
from commitlog_store.columnar.body_compression import BodyCompression
from commitlog_store.columnar.unique_key import unique_keys
from commitlog_store.errors import InvalidValue
from commitlog_store.format.compression import compress, decompress
from commitlog_store.format.message_rules import MessageLimits
from commitlog_store.format.record import body_crc
from commitlog_store.format.sys_flag import BORNHOST_V6_FLAG, COMPRESSED_FLAG, CompressionType, compression_type
from tests.store.columnar.encoded_rows import decoded, encode, read_rows

any_type = pytest.mark.parametrize("kind", CompressionType)
MIXED = [b"short", b"long " * 2000, b"", b"x" * 4096, b"x" * 4097, b"end"]


@any_type
def test_bodies_over_the_size_are_compressed_and_read_back(kind: CompressionType) -> None:
    encoded = encode(pa.table({"body": MIXED}), compression=BodyCompression(kind, 4096))
    records = decoded(encoded)
    packed = [1, 4]
    assert [row for row, record in enumerate(records) if record.sys_flag & COMPRESSED_FLAG] == packed
    for row, record in enumerate(records):
        expected = compress(MIXED[row], kind) if row in packed else MIXED[row]
        assert (record.body, record.body_crc) == (expected, body_crc(expected))
        assert record.sys_flag == (COMPRESSED_FLAG | kind.value if row in packed else 0)
    assert all(compression_type(records[row].sys_flag) is kind for row in packed)
    assert [row["body"] for row in read_rows(encoded)] == MIXED


@given(
    st.lists(st.one_of(st.none(), st.binary(max_size=8), st.integers(9, 400).map(lambda n: b"ab" * n)), max_size=12),
    st.sampled_from([0, 1, 8, 60, 1000]),
    st.sampled_from(CompressionType),
    st.integers(0, 3),
)
def test_any_mixture_of_bodies_is_read_back(
    bodies: list[bytes | None], over: int, kind: CompressionType, skip: int
) -> None:
    """Also from a slice, and beside rows that are refused."""
    table = pa.table({"body": pa.array(bodies, pa.binary())}).slice(skip)
    encoded = encode(table, compression=BodyCompression(kind, over))
    kept = [body for body in bodies[skip:] if body is not None]
    assert [row["body"] for row in read_rows(encoded)] == kept
    assert [bool(record.sys_flag & COMPRESSED_FLAG) for record in decoded(encoded)] == [
        len(body) > over for body in kept
    ]


def test_a_body_that_grows_by_compression_stays_compressed_as_with_producers() -> None:
    body = random.Random(3).randbytes(5000)
    [record] = decoded(encode(pa.table({"body": [body]}), compression=BodyCompression(CompressionType.ZLIB, 4096)))
    assert len(record.body) > len(body)
    assert decompress(record.body, CompressionType.ZLIB, 5000) == body


@any_type
def test_a_body_that_readers_would_not_unpack_is_stored_as_it_is(
    kind: CompressionType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sink takes bodies of 2 GiB, and a reader unpacks 256 MiB at most."""
    for module in (bodies, body_compression):
        monkeypatch.setattr(module, "MAX_DECOMPRESSED_SIZE", 5000)
    given_bodies = [bytes(5000), bytes(5001)]
    encoded = encode(pa.table({"body": given_bodies}), compression=BodyCompression(kind, 100))
    assert [bool(record.sys_flag & COMPRESSED_FLAG) for record in decoded(encoded)] == [True, False]
    assert [row["body"] for row in read_rows(encoded)] == given_bodies


def test_zlib_has_the_level_of_producers() -> None:
    [record] = decoded(encode(pa.table({"body": [MIXED[1]]}), compression=BodyCompression(CompressionType.ZLIB, 0)))
    assert record.body == zlib.compress(MIXED[1], 5)


def test_the_limit_is_that_of_the_body_as_given() -> None:
    table = pa.table({"body": [b"x" * 5000, b"x" * 5001]})
    packing = BodyCompression(CompressionType.ZSTD, 100)
    encoded = encode(table, compression=packing, limits=MessageLimits(max_message_size=5000))
    assert encoded.rows.tolist() == [0]
    assert "5001 bytes, the limit (maxMessageSize) is 5000" in encoded.refusals[0].reason


def test_the_other_bits_of_the_flag_stay() -> None:
    packing = BodyCompression(CompressionType.LZ4, 4)
    encoded = encode(pa.table({"body": ["short", "tiny"]}), compression=packing, born_host=(bytes(16), 1))
    flags = [record.sys_flag for record in decoded(encoded)]
    assert flags == [BORNHOST_V6_FLAG | COMPRESSED_FLAG | 1 << 8, BORNHOST_V6_FLAG]
    assert encoded.host_flags == BORNHOST_V6_FLAG


def test_with_nothing_to_compress_the_records_are_the_same() -> None:
    table = pa.table({"body": MIXED, "tags": ["a"] * 6})
    plain, packed = encode(table), encode(table, compression=BodyCompression(CompressionType.ZSTD, 10_000))
    assert packed.records.data.tobytes() == plain.records.data.tobytes()


def test_keys_and_compressed_bodies_are_stored_together() -> None:
    keys = unique_keys(b"q", 0, 0, 6)
    table = pa.table({"body": MIXED})
    rows = read_rows(encode(table, unique_keys=keys, compression=BodyCompression(CompressionType.LZ4, 4096)))
    assert [row["body"] for row in rows] == MIXED
    assert [row["uniqKey"].encode() for row in rows] == keys.to_pylist()


def test_a_size_is_not_negative() -> None:
    with pytest.raises(InvalidValue, match="from 0 on"):
        BodyCompression(CompressionType.LZ4, -1)
