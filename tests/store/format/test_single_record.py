"""One message encoded to one record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog_store.errors import InvalidValue
from commitlog_store.format.properties import decode_properties, encode_properties
from commitlog_store.format.record import MAGIC_V1, MAGIC_V2, Record, body_crc, decode_record, header_size
from commitlog_store.format.single_record import (
    PlainRecords,
    encode_message,
    message_properties,
    patch_late,
    stored_place,
)
from commitlog_store.message import Message
from tests.store.format.test_record import walk
from tests.support import golden
from tests.support.encoders import encode_record

V4 = (bytes([10, 1, 2, 3]), 10911)
V6 = (bytes(range(16)), 40000)

_int32 = st.integers(-(2**31), 2**31 - 1)
_int64 = st.integers(-(2**63), 2**63 - 1)


def encoded_again(record: Record) -> bytes:
    data = encode_message(
        record.topic,
        record.body,
        record.properties,
        queue_id=record.queue_id,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_timestamp=record.born_timestamp,
        born_host=(record.born_ip, record.born_port),
        store_host=(record.store_ip, record.store_port),
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
    )
    patch_late(data, record.sys_flag, record.queue_offset, record.physical_offset, record.store_timestamp)
    return bytes(data)


@given(
    st.binary(max_size=60),
    st.sampled_from([b"t", b"t" * 127, b"t" * 128, b"t" * 255]),
    st.sampled_from([V4, V6]),
    st.sampled_from([V4, V6]),
    st.binary(max_size=60),
    st.tuples(_int32, _int32, _int32),
    st.tuples(_int64, _int64, _int64, _int64, _int64),
)
def test_a_message_and_its_late_fields_make_the_record_that_the_plain_encoder_makes(
    body: bytes,
    topic: bytes,
    born: tuple[bytes, int],
    store: tuple[bytes, int],
    properties: bytes,
    small: tuple[int, int, int],
    large: tuple[int, int, int, int, int],
) -> None:
    magic = MAGIC_V1 if len(topic) <= 127 else MAGIC_V2
    sys_flag = 8 | (16 if born is V6 else 0) | (32 if store is V6 else 0)
    tail = len(body) + (1 if magic == MAGIC_V1 else 2) + len(topic) + 2 + len(properties)
    record = Record(
        total_size=header_size(sys_flag) + tail,
        magic=magic,
        body_crc=body_crc(body),
        queue_id=small[0],
        flag=small[1],
        queue_offset=large[0],
        physical_offset=large[1],
        sys_flag=sys_flag,
        born_timestamp=large[2],
        born_ip=born[0],
        born_port=born[1],
        store_timestamp=large[3],
        store_ip=store[0],
        store_port=store[1],
        reconsume_times=small[2],
        prepared_transaction_offset=large[4],
        body=body,
        topic=topic,
        properties=properties,
    )  # fmt: skip
    assert encoded_again(record) == encode_record(record)


@pytest.mark.parametrize(("name", "trailing"), [(golden.ROCKETMQ_533, True), (golden.ROCKETMQ_498, False)])
def test_every_golden_record_comes_out_again(name: str, trailing: bool) -> None:
    """4.9.8 leaves the last separator out, 5.3.3 writes it."""
    seen = 0
    for _, data, found in walk(golden.GOLDEN / name / "store" / "commitlog"):
        if isinstance(found, Record):
            assert encoded_again(found) == data
            texts = decode_properties(found.properties)
            assert encode_properties(texts, trailing_separator=trailing) == found.properties
            seen += 1
    assert seen


def test_the_late_fields_are_zero_until_they_are_patched() -> None:
    data = encode_message(b"t", b"", b"", queue_id=1, flag=2, sys_flag=0, born_timestamp=3, born_host=V4, store_host=V6)
    found = decode_record(bytes(data), physical_offset=0)
    assert isinstance(found, Record)
    assert (found.queue_offset, found.physical_offset, found.store_timestamp) == (0, 0, 0)
    assert found.sys_flag == 32, "the host says that it is IPv6"


@pytest.mark.parametrize(
    "changed",
    [
        {"topic": b""},
        {"topic": b"t" * 32768},
        {"properties": b"p" * 32768},
        {"born_host": (b"123", 1)},
        {"store_host": (b"12345", 1)},
        {"queue_id": 2**31},
        {"born_timestamp": 2**63},
    ],
)
def test_a_value_that_no_record_can_hold_is_refused(changed: dict[str, object]) -> None:
    values: dict[str, object] = {
        "topic": b"t", "body": b"", "properties": b"", "queue_id": 0, "flag": 0, "sys_flag": 0, "born_timestamp": 0,
        "born_host": V4, "store_host": V4,
    }  # fmt: skip
    with pytest.raises(InvalidValue):
        encode_message(**{**values, **changed})  # type: ignore[arg-type]


def _general(message: Message, born: int, *, trailing: bool) -> bytearray:
    return encode_message(
        message.topic.encode(),
        message.body,
        encode_properties(message_properties(message), trailing),
        queue_id=5 if message.queue_id is None else message.queue_id,
        flag=message.flag,
        sys_flag=0,
        born_timestamp=born,
        born_host=V4,
        store_host=V4,
    )


# Texts that an application may give, and those with what separates names, values and keys.
_ODD_TEXTS = ["paid", "a b", " ", "a\x01b", "\x02", "\ud800", "\xe9" * 20_000]
_ODD_NAMES = ["KEYS", "TAGS", "DELAY", "WAIT", "REAL_TOPIC", "UNIQ_KEY", "__SHARDINGKEY"]
_texts = st.text(max_size=8) | st.sampled_from(_ODD_TEXTS)
_names = _texts | st.sampled_from(_ODD_NAMES)


@given(
    st.builds(
        Message,
        topic=st.sampled_from(["orders", "t" * 127]),
        body=st.binary(max_size=60),
        tags=st.none() | _texts,
        keys=st.lists(_texts, max_size=3) | st.lists(_texts, max_size=2).map(tuple),
        queue_id=st.none() | st.integers(0, 2**16),
        flag=_int32,
        properties=st.dictionaries(_names, _texts, max_size=3),
    ),
    st.integers(0, 2**62),
    st.booleans(),
)
def test_a_plain_message_gets_the_record_that_the_general_encoder_makes(
    message: Message, born: int, trailing: bool
) -> None:
    """What the general encoder refuses is not encoded at all."""
    plain = PlainRecords(V4, largest_body=50, trailing_separator=trailing)
    plain.learn_topic(message.topic)
    try:
        properties = plain.properties(message)
    except (TypeError, ValueError):
        properties = None
    if properties is not None:
        record = plain.encode(message, properties, 5 if message.queue_id is None else message.queue_id, born)
        assert len(message.body) <= 50
        assert not message.properties.keys() & {"WAIT", "DELAY"}, "these ask for more than a record"
        assert record == _general(message, born, trailing=trailing)


@pytest.mark.parametrize(
    "message",
    [
        Message(topic="t", body=b""),
        Message(topic="t", body=b"x" * 50, tags="paid", keys=["a", "b"], queue_id=7, flag=-1, properties={"a": "1"}),
        Message(topic="t", body=b"x", tags="", keys=()),
    ],
)
@pytest.mark.parametrize("trailing", [True, False])
def test_usual_messages_take_the_plain_encoder(message: Message, trailing: bool) -> None:
    plain = PlainRecords(V4, largest_body=50, trailing_separator=trailing)
    plain.learn_topic("t")
    properties = plain.properties(message)
    assert properties is not None
    assert plain.encode(message, properties, message.queue_id or 5, 9) == _general(message, 9, trailing=trailing)


@pytest.mark.parametrize(
    ("topic", "host"), [("unknown", V4), ("t" * 128, V4), ("orders", V6)], ids=["unknown", "long topic", "ipv6"]
)
def test_a_message_with_further_fields_is_not_plain(topic: str, host: tuple[bytes, int]) -> None:
    plain = PlainRecords(host, largest_body=50, trailing_separator=True)
    if topic != "unknown":
        plain.learn_topic(topic)
    assert plain.properties(Message(topic=topic, body=b"")) is None


def test_properties_are_stored_in_one_order_and_fields_win() -> None:
    message = Message(
        topic="t",
        body=b"",
        tags="paid",
        keys=["k1", "", "k2"],
        properties={"TAGS": "other", "b": "2", "DELAY": "3", "__SHARDINGKEY": "s", "UNIQ_KEY": "u", "a": "1"},
    )
    assert list(message_properties(message).items()) == [
        ("b", "2"), ("UNIQ_KEY", "u"), ("a", "1"), ("KEYS", "k1 k2"), ("__SHARDINGKEY", "s"), ("TAGS", "paid"),
        ("DELAY", "3"),
    ]  # fmt: skip
    assert message_properties(Message(topic="t", body=b"")) == {}


@pytest.mark.parametrize(
    ("message", "names"),
    [
        (Message(topic="t", body=b"", properties={"REAL_TOPIC": "x"}), "REAL_TOPIC"),
        (Message(topic="t", body=b"", properties={"a": ""}), "'a'"),
        (Message(topic="t", body=b"", properties={"": "a"}), "without a name"),
        (Message(topic="t", body=b"", properties={"a\x01": "a"}), "separates"),
        (Message(topic="t", body=b"", keys=["a b"]), "'a b'"),
    ],
)
def test_properties_that_may_not_be_are_refused_by_name(message: Message, names: str) -> None:
    with pytest.raises(InvalidValue, match=names):
        message_properties(message)


def test_a_delayed_message_is_stored_with_those_of_its_level() -> None:
    assert stored_place("t", 3, {"a": "1"}, 18) == ("t", 3, {"a": "1"})
    assert stored_place("t", 3, {"DELAY": "0", "a": "1"}, 18) == ("t", 3, {"a": "1"})
    topic, queue_id, properties = stored_place("t", 3, {"DELAY": "99", "a": "1"}, 18)
    assert (topic, queue_id) == ("SCHEDULE_TOPIC_XXXX", 17)
    assert list(properties.items()) == [("a", "1"), ("DELAY", "18"), ("REAL_TOPIC", "t"), ("REAL_QID", "3")]
    for bad in ("-1", "x", "2147483648", "9" * 5000, "١"):
        with pytest.raises(InvalidValue, match="DELAY"):
            stored_place("t", 3, {"DELAY": bad}, 18)
