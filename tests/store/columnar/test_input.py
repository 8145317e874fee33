"""Input tables: the columns that messages may have, and the rows that are refused."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from commitlog_store.columnar.columns import MESSAGE_COLUMNS
from commitlog_store.columnar.encode import EncodedMessages
from commitlog_store.columnar.input import message_schema, parse_messages
from commitlog_store.columnar.queue_choice import choose_queues
from commitlog_store.errors import InvalidValue
from commitlog_store.format.java_hash import string_hash_code
from commitlog_store.format.message_rules import STORE_PROPERTIES, MessageLimits
from commitlog_store.format.record import Record, decode_record
from commitlog_store.put_status import PutMessageStatus
from tests.store.columnar.encoded_rows import encode_table, one_chunk

TEXT = pa.string()
MAP = pa.map_(TEXT, TEXT)


def encode(columns: dict[str, Any] | pa.Table, **options: Any) -> EncodedMessages:
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    return encode_table(table, **{"born_timestamp_ms": 5, **options})


def queues_of(table: pa.Table, topic: str, counts: dict[str, int], first: int = 0) -> list[int]:
    schema = message_schema(table, topic=topic)
    columns = parse_messages(one_chunk(table), schema, born_timestamp_ms=5, limits=MessageLimits())
    queues = choose_queues(columns, counts.__getitem__, round_robin_start=first)
    assert queues.dtype == np.int32
    found: list[int] = queues.tolist()
    return found


def records_of(encoded: EncodedMessages) -> list[Record]:
    starts = encoded.records.starts.tolist()
    found = [decode_record(encoded.records.data[a:b].tobytes()) for a, b in pairwise(starts)]
    records = [record for record in found if isinstance(record, Record)]
    assert len(records) == len(found)
    return records


@pytest.mark.parametrize(
    ("columns", "topic", "names"),
    [
        ({"value": TEXT, "tagz": TEXT}, "t", r"'tagz'\. Did you mean 'tags'\?"),
        ({"value": TEXT, "queueid": pa.int32()}, "t", "Did you mean 'queueId'"),
        ({"value": TEXT, "body": TEXT}, "t", "both 'value' and 'body'"),
        ({"value": TEXT, "key": TEXT, "keys": TEXT}, "t", "both 'key' and 'keys'"),
        ({"tags": TEXT}, "t", "column 'body' .* is missing"),
        ({"body": TEXT}, None, "no topic"),
        ({"body": TEXT}, "no topic", "'no topic'"),
        ({"body": TEXT}, "t" * 128, "127"),
        ({"body": pa.int32()}, "t", "int32; it is BINARY or STRING"),
        ({"body": pa.null()}, "t", "null; it is BINARY or STRING"),
        ({"body": TEXT, "topic": pa.binary()}, "t", "binary; it is STRING"),
        ({"body": TEXT, "keys": pa.list_(pa.int32())}, "t", "it is STRING or LIST<STRING>"),
        ({"body": TEXT, "properties": pa.map_(TEXT, pa.int32())}, "t", "it is MAP<STRING,STRING>"),
        ({"body": TEXT, "queueId": TEXT}, "t", "it is a signed integer"),
        ({"body": TEXT, "flag": pa.float64()}, "t", "it is a signed integer"),
        ({"body": TEXT, "bornTimestamp": pa.int32()}, "t", "it is TIMESTAMP"),
    ],
)
def test_columns_that_messages_cannot_be_made_of_are_refused(
    columns: dict[str, pa.DataType], topic: str | None, names: str
) -> None:
    with pytest.raises(InvalidValue, match=names):
        message_schema(pa.schema(list(columns.items())).empty_table(), topic=topic)


@pytest.mark.parametrize("rows", [None, "body", [{"body": b"x"}], {"body": [b"x"]}])
def test_an_input_that_is_not_a_table_is_refused(rows: Any) -> None:
    with pytest.raises(InvalidValue, match=f"pyarrow Table or RecordBatch, not of a {type(rows).__name__}"):
        message_schema(rows, topic="t")


def test_every_column_may_be_given_or_be_all_null() -> None:
    every = pa.schema([(name, pa.null() if name != "body" else TEXT) for name in MESSAGE_COLUMNS])
    message_schema(every.empty_table(), topic="t")
    only_nulls = {name: pa.nulls(2) for name in MESSAGE_COLUMNS if name != "body"}
    assert encode({"body": ["a", "b"], **only_nulls}).records.data.tobytes() == (
        encode({"value": [b"a", b"b"]}).records.data.tobytes()
    )


@pytest.mark.parametrize("name", ["%RETRY%" + "g" * 248, "%DLQ%g", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_x"])
def test_topics_of_groups_and_of_the_system_are_taken(name: str) -> None:
    assert [record.topic.decode() for record in records_of(encode({"body": [b""], "topic": [name]}))] == [name]


def row_refused(columns: dict[str, Any], **options: Any) -> tuple[PutMessageStatus, str]:
    """The refusal of the middle one of three rows, whose neighbours are taken."""
    encoded = encode(columns, **options)
    assert encoded.rows.tolist() == [0, 2]
    assert len(records_of(encoded)) == 2
    [refusal] = encoded.refusals
    assert refusal.row == 1
    return refusal.status, refusal.reason


BODIES = [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        ({"body": [b"a", None, b"c"]}, "body is null"),
        ({"body": [b"a", b"b" * 11, b"c"]}, "body has 11 bytes, the limit (maxMessageSize) is 10"),
        ({"body": BODIES, "topic": ["t", "a/b", "t"]}, "'a/b'"),
        ({"body": BODIES, "topic": ["t", "", "t"]}, "topic ''"),
        ({"body": BODIES, "topic": ["t", "t" * 128, "t"]}, "127"),
        ({"body": BODIES, "queueId": [0, -1, 1]}, "queueId is -1"),
        ({"body": BODIES, "queueId": [0, 2**31, 1]}, "queueId is 2147483648"),
        ({"body": BODIES, "flag": [0, -(2**31) - 1, 1]}, "flag is -2147483649"),
        ({"body": BODIES, "delayLevel": [0, -1, None]}, "delayLevel is -1"),
        ({"body": BODIES, "tags": ["a", "a\x01b", None]}, "its column tags holds"),
        ({"body": BODIES, "keys": ["a", "a\x02", "\0"]}, "its column keys holds"),
        ({"body": BODIES, "key": ["a", "a\x02", "\0"]}, "its column key holds"),
        ({"body": BODIES, "keys": [["a"], ["a", "b c"], []]}, "holds a space"),
        ({"body": BODIES, "keys": [["a"], ["a", "b\x02"], []]}, "its column keys holds"),
        ({"body": BODIES, "shardingKey": ["a", "\x01", "c"]}, "its column shardingKey holds"),
        ({"body": BODIES, "properties": [[], [("a", "")], None]}, "'a' is empty"),
        ({"body": BODIES, "properties": [[], [("", "a")], None]}, "without a name"),
        ({"body": BODIES, "properties": [[], [("a\x02", "a")], None]}, "separates properties"),
        ({"body": BODIES, "properties": [[], [("x", "1"), ("a", "\x02")], [("x", "1")]]}, "'a' holds"),
        ({"body": BODIES, "properties": [[], [("DELAY", "soon")], None]}, "DELAY is 'soon'"),
        ({"body": BODIES, "bornTimestamp": pa.array([0, 2**62, 1], pa.timestamp("s"))}, f"is {2**62} (timestamp[s])"),
    ],
)  # fmt: skip
def test_a_row_that_no_store_accepts_is_left_out_and_named(columns: dict[str, Any], names: str) -> None:
    if isinstance(columns.get("properties"), list):
        columns = {**columns, "properties": pa.array(columns["properties"], MAP)}
    status, reason = row_refused(columns, limits=MessageLimits(max_message_size=10))
    assert status is PutMessageStatus.MESSAGE_ILLEGAL
    assert names in reason
    assert reason.startswith("Message in row 1 (")


def test_a_reason_names_topic_and_queue() -> None:
    _, reason = row_refused({"body": [b"", None, b""], "topic": ["a", "b", "c"], "queueId": [1, 2, 3]})
    assert reason.startswith("Message in row 1 (topic 'b', queue 2): its body is null, as that of a tombstone in Kafka")
    assert reason.endswith("leave such rows out, or give them an empty body.")
    _, reason = row_refused({"body": BODIES, "topic": ["a", None, "c"]}, topic=None)
    assert reason.startswith("Message in row 1 (no topic, no queue given): its topic is null")


@pytest.mark.parametrize("name", sorted(STORE_PROPERTIES))
def test_properties_that_only_the_store_gives_are_refused(name: str) -> None:
    status, reason = row_refused({"body": BODIES, "properties": pa.array([[], [(name, "1")], []], MAP)})
    assert status is PutMessageStatus.MESSAGE_ILLEGAL
    assert repr(name) in reason


def test_properties_at_the_limit_are_taken_and_beyond_it_are_refused() -> None:
    fitting = "p" * (32767 - len("TAGS\x01\x02"))
    status, reason = row_refused({"body": BODIES, "tags": [fitting, fitting + "p", None]})
    assert status is PutMessageStatus.PROPERTIES_SIZE_EXCEEDED
    assert "32768 bytes, the limit is 32767" in reason


def test_several_refusals_come_in_the_order_of_their_rows_one_each() -> None:
    columns = {"body": [b"a", None, b"c", None], "queueId": [-1, -1, 0, 0], "topic": ["?", "t", "t", "t"]}
    encoded = encode(columns)
    assert [refusal.row for refusal in encoded.refusals] == [0, 1, 3]
    assert encoded.topics == ["t"], "the topics of refused rows are none of the records'"


def test_values_under_a_null_row_are_ignored() -> None:
    names, values = pa.array(["REAL_TOPIC", "a"]), pa.array(["x", "1"])
    entries = pa.StructArray.from_arrays(
        [names, values], fields=[pa.field("key", TEXT, nullable=False), pa.field("value", TEXT)]
    )
    only_the_second = pa.py_buffer(bytes([0b10]))
    bounds = pa.array([0, 1, 2], pa.int32()).buffers()[1]
    hidden = pa.Array.from_buffers(MAP, 2, [only_the_second, bounds], children=[entries])
    encoded = encode({"body": [b"", b""], "properties": hidden})
    assert [record.properties for record in records_of(encoded)] == [b"", b"a\x011\x02"]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_born_timestamps_of_every_unit_become_milliseconds(unit: str, zone: str | None) -> None:
    moment = datetime(2024, 5, 6, 7, 8, 9, tzinfo=timezone.utc)
    times = pa.array([moment, None], pa.timestamp("us", "UTC")).cast(pa.timestamp(unit, "UTC")).cast(pa.int64())
    column = times.cast(pa.timestamp(unit, zone))
    found = [record.born_timestamp for record in records_of(encode({"body": [b"", b""], "bornTimestamp": column}))]
    assert found == [1_714_979_289_000, 5]


def test_born_timestamps_before_the_epoch_round_down_and_numbers_are_milliseconds() -> None:
    early = pa.array([-1, 999], pa.timestamp("us"))
    assert [r.born_timestamp for r in records_of(encode({"body": ["", ""], "bornTimestamp": early}))] == [-1, 0]
    numbers = pa.array([-7, None], pa.int64())
    assert [r.born_timestamp for r in records_of(encode({"body": ["", ""], "bornTimestamp": numbers}))] == [-7, 5]


def test_queues_are_those_given_then_by_sharding_key_then_in_turn() -> None:
    table = pa.table(
        {
            "body": [b""] * 9,
            "topic": ["t", "t", "t", "t", None, "no topic", "d", "t", "t"],
            "queueId": [7, None, None, None, None, None, 5, None, -3],
            "shardingKey": ["k", "k", "", "é😀", None, "k", None, None, "k"],
            "properties": pa.array([None] * 7 + [[("__SHARDINGKEY", "k")], None], MAP),
        }
    )
    found = queues_of(table, "d", {"t": 4, "d": 3}, 2**40)
    k, wide = abs(string_hash_code("k")) % 4, abs(string_hash_code("é😀")) % 4
    # Rows 2 and 4 take turns; an illegal queue id is refused when the message is encoded.
    assert found == [7, k, 2**40 % 4, wide, (2**40 + 1) % 3, -1, 5, k, k]


def test_the_smallest_hash_code_falls_on_the_queue_that_rocketmq_gives_it() -> None:
    """Java's Math.abs leaves it negative; RocketMQ takes the remainder first."""
    smallest = "polygenelubricants"
    assert string_hash_code(smallest) == -(2**31)
    assert queues_of(pa.table({"body": [b""], "shardingKey": [smallest]}), "t", {"t": 7}) == [2**31 % 7]


def test_a_topic_without_queues_is_refused() -> None:
    with pytest.raises(InvalidValue, match="at least one queue, not 0"):
        queues_of(pa.table({"body": [b""]}), "t", {"t": 0})


@pytest.mark.parametrize("limits", [{"max_message_size": 0}, {"max_message_size": 2**31}, {"message_delay_level": ""}])
def test_impossible_limits_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match=re.escape(next(iter(limits)))):
        MessageLimits(**limits)
