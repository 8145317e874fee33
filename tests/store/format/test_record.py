"""One CommitLog record: what RocketMQ wrote comes back byte for byte, and what contradicts the format is named."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import crcmod.predefined
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog_store.errors import InvalidValue
from commitlog_store.format import sys_flag
from commitlog_store.format.record import (
    BLANK_MAGIC,
    FILLER_SIZE,
    HEADER_DTYPES,
    HEADER_SIZE,
    HOST_FLAGS,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
    Corrupt,
    Decoded,
    Filler,
    Record,
    Torn,
    Unwritten,
    body_crc,
    decode_record,
    decode_without_body,
    encode_filler,
    header_size,
)
from tests.support import golden
from tests.support.encoders import encode_record

# An implementation that shares nothing with zlib's.
independent_crc32 = crcmod.predefined.mkCrcFun("crc-32")

V4, PORT = bytes([10, 1, 2, 3]), 10911
V6 = bytes.fromhex("20010db8000000000000000000000085")


def a_record(
    *,
    body: bytes = b"hello",
    topic: bytes = b"orders",
    properties: bytes = b"TAGS\x01paid\x02",
    flags: int = 0,
    magic: int = MAGIC_V1,
) -> Record:
    hosts = {
        "born_ip": V6 if flags & sys_flag.BORNHOST_V6_FLAG else V4,
        "store_ip": V6 if flags & sys_flag.STOREHOSTADDRESS_V6_FLAG else V4,
    }
    prefix = 1 if magic == MAGIC_V1 else 2
    return Record(
        total_size=header_size(flags) + len(body) + prefix + len(topic) + 2 + len(properties),
        magic=magic,
        body_crc=body_crc(body),
        queue_id=3,
        flag=-7,
        queue_offset=11,
        physical_offset=4096,
        sys_flag=flags,
        born_timestamp=1_700_000_000_001,
        born_port=PORT,
        store_timestamp=1_700_000_000_002,
        store_port=PORT + 1,
        reconsume_times=2,
        prepared_transaction_offset=77,
        body=body,
        topic=topic,
        properties=properties,
        **hosts,
    )


# -- golden ------------------------------------------------------------------------------------------------------------


def walk(log: Path) -> Iterator[tuple[int, bytes, Record | Filler]]:
    """Everything that stands in a CommitLog directory, from the first byte to the first that was not written."""
    ended = False
    for path in sorted(log.iterdir()):
        data, base, at = path.read_bytes(), int(path.name), 0
        while at < len(data):
            found = decode_record(data[at:], physical_offset=base + at)
            if isinstance(found, Unwritten):
                assert not any(data[at:]), "only zeros follow the end"
                ended, at = True, len(data)  # RocketMQ allocates one file ahead
                continue
            assert not ended
            assert isinstance(found, Record | Filler), found
            size = found.size if isinstance(found, Filler) else found.total_size
            yield base + at, data[at : at + size], found
            at += size
        assert at == len(data), "records and fillers fill a file exactly"


@pytest.mark.parametrize("name", [golden.ROCKETMQ_533, golden.ROCKETMQ_498])
def test_every_golden_record_encoded_again_gives_the_same_bytes(name: str) -> None:
    records, fillers, end = 0, 0, 0
    for place, data, found in walk(golden.GOLDEN / name / "store" / "commitlog"):
        if isinstance(found, Filler):
            assert data.startswith(encode_filler(found.size))
            fillers += 1
        else:
            assert encode_record(found) == data
            assert found.physical_offset == place
            records += 1
            end = place + len(data)
    answers = golden.expected(name)
    assert end == answers["store"][0]["maxPhysicOffset"]
    assert records >= len({message["physicalOffset"] for message in answers["message"]})
    assert fillers == end // (256 * 1024), "one at the end of every full file"


def test_golden_log_holds_both_versions_all_hosts_and_every_kind_of_flag() -> None:
    """If a kind were missing, the round trip above would say nothing about it."""
    found = [
        record
        for _, _, record in walk(golden.GOLDEN / golden.ROCKETMQ_533 / "store" / "commitlog")
        if isinstance(record, Record)
    ]
    assert {record.magic for record in found} == {MAGIC_V1, MAGIC_V2}
    assert {record.sys_flag & sys_flag.BORNHOST_V6_FLAG for record in found} == {0, sys_flag.BORNHOST_V6_FLAG}
    assert {record.sys_flag & sys_flag.TRANSACTION_MASK for record in found} == {0, 4, 8, 12}
    packed = [record.sys_flag for record in found if record.sys_flag & sys_flag.COMPRESSED_FLAG]
    assert {flags & sys_flag.COMPRESSION_TYPE_MASK for flags in packed} >= {0x100, 0x200}


@pytest.mark.parametrize("name", [golden.ROCKETMQ_533, golden.ROCKETMQ_498])
def test_body_crc_is_that_of_rocketmq_and_of_an_independent_implementation(name: str) -> None:
    for message in golden.expected(name)["message"]:
        stored = base64.b64decode(message["body"])
        assert body_crc(stored) == message["bodyCrc"] == independent_crc32(stored) & 0x7FFFFFFF


@given(st.binary(max_size=300))
def test_body_crc_is_crc32_without_its_top_bit(body: bytes) -> None:
    assert body_crc(body) == independent_crc32(body) & 0x7FFFFFFF == body_crc(memoryview(body))


# -- round trip --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [0, 16, 32, 48, 16 | 1 | 0x300])
@pytest.mark.parametrize(
    ("magic", "topic"),
    [(MAGIC_V1, b"t"), (MAGIC_V1, b"t" * 127), (MAGIC_V2, b"t"), (MAGIC_V2, b"t" * 161), (MAGIC_V2, b"t" * 32767)],
)
@pytest.mark.parametrize(("body", "properties"), [(b"", b""), (b"x" * 5000, b"A\x01b"), (b"\0", b"p" * 32767)])
def test_records_of_both_versions_and_all_hosts_come_back(
    flags: int, magic: int, topic: bytes, body: bytes, properties: bytes
) -> None:
    record = a_record(flags=flags, magic=magic, topic=topic, body=body, properties=properties)
    data = encode_record(record)
    assert len(data) == record.total_size
    assert decode_record(data, physical_offset=4096) == record
    assert decode_record(data + b"what follows") == record, "it reads no further than the record's end"


def test_layout_is_the_one_on_the_format_page() -> None:
    """Offsets by hand, not from the table that the codec uses."""
    data = encode_record(a_record())
    assert struct.unpack_from(">iIiii", data, 0) == (len(data), 0xDAA320A7, body_crc(b"hello"), 3, -7)
    assert struct.unpack_from(">qqi", data, 20) == (11, 4096, 0)
    assert struct.unpack_from(">q4siq4siiqi", data, 40) == (
        1_700_000_000_001, V4, 10911, 1_700_000_000_002, V4, 10912, 2, 77, 5,
    )  # fmt: skip
    assert data[88:] == b"hello" + b"\x06orders" + b"\x00\x0a" + b"TAGS\x01paid\x02"


def test_ipv6_hosts_move_what_follows_them() -> None:
    data = encode_record(a_record(flags=48, magic=MAGIC_V2))
    assert data[48:64] == V6
    assert struct.unpack_from(">iq16si", data, 64) == (10911, 1_700_000_000_002, V6, 10912)
    assert data[112:] == b"hello" + b"\x00\x06orders" + b"\x00\x0a" + b"TAGS\x01paid\x02"


def test_header_sizes_follow_the_host_bits_only() -> None:
    assert [header_size(flags) for flags in (0, 16, 32, 48, 0x3CF)] == [88, 100, 100, 112, 88]
    assert {flags: dtype.itemsize for flags, dtype in HEADER_DTYPES.items()} == {0: 88, 16: 100, 32: 100, 48: 112}
    assert (HEADER_SIZE, MIN_RECORD_SIZE, HOST_FLAGS) == (88, 91, 48)


# -- bytes that are not a record ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [8, 9, 100, 262_144, 0x7FFFFFFF])
def test_filler_says_how_much_of_the_file_it_takes(size: int) -> None:
    data = encode_filler(size)
    assert data == struct.pack(">iI", size, BLANK_MAGIC)
    assert decode_record(data) == Filler(size)
    assert decode_record(data + b"\xff" * 100) == Filler(size), "what follows is undefined"


@pytest.mark.parametrize("size", [-1, 0, 7, 2**31])
def test_filler_of_another_size_cannot_be_written(size: int) -> None:
    with pytest.raises(InvalidValue):
        encode_filler(size)


def test_eight_zero_bytes_are_unwritten_space() -> None:
    assert decode_record(bytes(8)) == Unwritten()
    assert decode_record(bytes(4096), physical_offset=100) == Unwritten()
    assert decode_record(bytes(8) + b"stale bytes of an older life of the file") == Unwritten()


@pytest.mark.parametrize("length", range(FILLER_SIZE))
def test_too_few_bytes_to_tell_are_torn(length: int) -> None:
    assert decode_record(bytes(length)) == Torn(FILLER_SIZE, length)


def test_a_record_cut_anywhere_is_torn_and_says_how_long_it_is() -> None:
    data = encode_record(a_record())
    for length in range(FILLER_SIZE, len(data)):
        assert decode_record(data[:length]) == Torn(len(data), length)


def _patched(offset: int, code: str, value: int) -> bytes:
    data = bytearray(encode_record(a_record()))
    struct.pack_into(">" + code, data, offset, value)
    return bytes(data)


# The record is 5 + 6 + 10 + 91 = 112 bytes long: body at 88, topic length at 93, properties length at 100.
CORRUPT = [
    # field, offset, struct code, value, what is expected
    ("MAGICCODE", 4, "I", 0, "0xdaa320a7"),
    ("MAGICCODE", 4, "I", 0xDAA320A6, "0xdaa320a7"),
    ("MAGICCODE", 4, "I", 0xFFFFFFFF, "0xdaa320a7"),
    ("TOTALSIZE", 0, "i", 0, "at least 91"),
    ("TOTALSIZE", 0, "i", -1, "at least 91"),
    ("TOTALSIZE", 0, "i", -(2**31), "at least 91"),
    ("TOTALSIZE", 0, "i", 8, "at least 91"),
    ("TOTALSIZE", 0, "i", 90, "at least 91"),
    ("BODYLENGTH", 84, "i", -1, "0 to 21"),
    ("BODYLENGTH", 84, "i", -(2**31), "0 to 21"),
    ("BODYLENGTH", 84, "i", 22, "0 to 21"),
    ("BODYLENGTH", 84, "i", 0x7FFFFFFF, "0 to 21"),
    ("TOPICLENGTH", 93, "B", 17, "0 to 16"),
    ("TOPICLENGTH", 93, "B", 127, "0 to 16"),
    ("TOPICLENGTH", 93, "B", 255, "0 to 16"),
    ("PROPERTIESLENGTH", 100, "h", -1, "10"),
    ("PROPERTIESLENGTH", 100, "h", -32768, "10"),
    ("PROPERTIESLENGTH", 100, "h", 0, "10"),
    ("PROPERTIESLENGTH", 100, "h", 9, "10"),
    ("PROPERTIESLENGTH", 100, "h", 11, "10"),
    ("PROPERTIESLENGTH", 100, "h", 32767, "10"),
    ("PHYSICALOFFSET", 28, "q", -1, "4096"),
    ("PHYSICALOFFSET", 28, "q", 0, "4096"),
    ("PHYSICALOFFSET", 28, "q", 2**63 - 1, "4096"),
    ("BODYCRC", 8, "i", -1, "907060870"),
    ("BODYCRC", 8, "i", 0, "907060870"),
]


@pytest.mark.parametrize(("field", "offset", "code", "value", "expected"), CORRUPT)
def test_bad_value_of_a_field_is_named_with_its_place(
    field: str, offset: int, code: str, value: int, expected: str
) -> None:
    found = decode_record(_patched(offset, code, value), physical_offset=4096)
    assert isinstance(found, Corrupt)
    assert (found.field, found.offset) == (field, offset)
    assert expected in found.expected
    assert found.found == (f"{value:#x}" if field == "MAGICCODE" else str(value))


@pytest.mark.parametrize("size", [113, 4096, 0x7FFFFFFF])
def test_total_size_beyond_what_is_there_is_torn(size: int) -> None:
    assert decode_record(_patched(0, "i", size), physical_offset=4096) == Torn(size, 112)


@pytest.mark.parametrize("size", range(91, 112))
def test_total_size_too_small_for_what_it_holds_is_corrupt(size: int) -> None:
    found = decode_record(_patched(0, "i", size), physical_offset=4096)
    assert isinstance(found, Corrupt)
    assert found.field in {"BODYLENGTH", "TOPICLENGTH", "PROPERTIESLENGTH"}


@pytest.mark.parametrize(("flags", "least"), [(16, 103), (32, 103), (48, 115)])
def test_total_size_must_leave_room_for_ipv6_hosts(flags: int, least: int) -> None:
    data = bytearray(encode_record(a_record(flags=flags)))
    for size in (91, least - 1):
        struct.pack_into(">i", data, 0, size)
        found = decode_record(bytes(data))
        assert isinstance(found, Corrupt)
        assert (found.field, found.expected) == ("TOTALSIZE", f"at least {least} with these hosts")


def test_ipv6_bit_set_on_a_record_with_ipv4_hosts_is_never_read_as_a_record() -> None:
    for flags in (16, 32, 48):
        assert isinstance(decode_record(_patched(36, "i", flags), physical_offset=4096), Corrupt)


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 1, 7])
def test_filler_smaller_than_its_own_header_is_corrupt(size: int) -> None:
    found = decode_record(struct.pack(">iI", size, BLANK_MAGIC))
    assert found == Corrupt("TOTALSIZE", 0, "a filler of at least 8 bytes", str(size))


def test_topic_of_a_v1_record_has_at_most_127_bytes() -> None:
    """Its length is a signed byte in RocketMQ: 128 and more would be negative there."""
    data = bytearray(encode_record(a_record(topic=b"t" * 127, properties=b"")))
    data[93] = 128
    found = decode_record(bytes(data))
    assert found == Corrupt("TOPICLENGTH", 93, "0 to 127", "128")


def test_place_and_crc_are_checked_only_when_asked() -> None:
    data = _patched(28, "q", 5)
    assert isinstance(decode_record(data), Record)
    data = _patched(8, "i", 5)
    assert isinstance(decode_record(data, physical_offset=4096, check_crc=False), Record)


def test_no_flipped_bit_of_the_body_goes_unseen() -> None:
    data = encode_record(a_record())
    for bit in range(8 * 88, 8 * 93):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        found = decode_record(bytes(flipped))
        assert isinstance(found, Corrupt)
        assert found.field == "BODYCRC"


@given(st.binary(max_size=400), st.integers(0, 2**40), st.sampled_from([MAGIC_V1, MAGIC_V2, BLANK_MAGIC, None]))
def test_any_bytes_decode_to_one_of_the_outcomes(data: bytes, place: int, magic: int | None) -> None:
    """Decoding never fails: it says what it found."""
    if magic is not None and len(data) >= 8:
        data = struct.pack(">iI", len(data), magic) + data[8:]
    assert isinstance(decode_record(data, physical_offset=place), Record | Filler | Unwritten | Torn | Corrupt)


@given(st.data())
def test_a_damaged_record_never_gives_another_body(data: st.DataObject) -> None:
    """Any bytes of a record replaced by any others: if a record is found, its body is the one that was written."""
    whole = encode_record(a_record(body=b"a body that is long enough to be worth it", flags=16))
    start = data.draw(st.integers(0, len(whole) - 1))
    patch = data.draw(st.binary(min_size=1, max_size=6))
    damaged = (whole[:start] + patch + whole[start + len(patch) :])[: len(whole)]
    found = decode_record(damaged, physical_offset=4096)
    if isinstance(found, Record):
        assert found.body == b"a body that is long enough to be worth it"
        assert encode_record(found) == damaged


# -- without the body --------------------------------------------------------------------------------------------------


def bodyless(data: bytes, head: int, place: int | None = 4096) -> Decoded:
    return decode_without_body(
        data[:head], len(data), lambda start, size: data[start : start + size], physical_offset=place
    )


@pytest.mark.parametrize("head", [112, 113, 200, 4096])
@pytest.mark.parametrize(("magic", "flags"), [(MAGIC_V1, 0), (MAGIC_V2, 0), (MAGIC_V1, 16), (MAGIC_V2, 48)])
def test_record_without_its_body_has_all_other_fields(magic: int, flags: int, head: int) -> None:
    record = a_record(body=b"b" * 1000, magic=magic, flags=flags)
    assert bodyless(encode_record(record), head) == replace(record, body=b"")


def test_no_byte_of_a_long_body_is_read() -> None:
    record = a_record(body=b"b" * 1000)
    data, asked = encode_record(record), []

    def read(start: int, size: int) -> bytes:
        asked.append((start, size))
        return data[start : start + size]

    assert isinstance(decode_without_body(data[:112], len(data), read), Record)
    assert asked == [(1088, len(data) - 1088)]


@pytest.mark.parametrize("head", [112, 4096])
@given(st.data())
def test_damage_beside_the_body_is_the_same_without_it(head: int, draws: st.DataObject) -> None:
    whole = encode_record(a_record(body=b"b" * 200, flags=draws.draw(st.sampled_from([0, 16, 48]))))
    start = draws.draw(st.integers(0, len(whole) - 1))
    patch = draws.draw(st.binary(min_size=1, max_size=6))
    damaged = (whole[:start] + patch + whole[start + len(patch) :])[: draws.draw(st.integers(0, len(whole)))]
    expected = decode_record(damaged, physical_offset=4096, check_crc=False)
    if isinstance(expected, Record):
        expected = replace(expected, body=b"")
    assert bodyless(damaged, head) == expected


def test_file_that_ends_within_what_follows_the_body_is_torn() -> None:
    data = encode_record(a_record(body=b"b" * 1000))
    found = decode_without_body(data[:112], len(data), lambda start, size: data[start : start + size - 1])
    assert found == Torn(len(data), len(data) - 1)
