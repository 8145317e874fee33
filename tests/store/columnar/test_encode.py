"""Messages in columns encoded to records, against one message at a time."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog_store.columnar.encode import EncodedMessages
from commitlog_store.columnar.input import message_schema, parse_messages
from commitlog_store.columnar.queue_choice import choose_queues
from commitlog_store.columnar.records import (
    TopicRows,
    encode_records,
    new_headers,
    patch_late_fields,
)
from commitlog_store.errors import InvalidValue
from commitlog_store.format.java_hash import string_hash_code
from commitlog_store.format.message_rules import MessageLimits
from commitlog_store.format.properties import encode_properties
from commitlog_store.format.record import HEADER_DTYPES, HOST_FLAGS, Record, decode_record
from commitlog_store.format.single_record import encode_message, message_properties, stored_place
from commitlog_store.format.timestamps import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS
from commitlog_store.message import Message
from tests.store.columnar.encoded_rows import encode_table, one_chunk
from tests.store.format.test_record import walk
from tests.support import golden
from tests.support.encoders import encode_record

V4 = (bytes([10, 1, 2, 3]), 10911)
V6 = (bytes(range(16)), 40000)
MAP = pa.map_(pa.string(), pa.string())
QUEUES = {"orders": 4, "%RETRY%" + "g" * 130: 2}
BORN = 1_700_000_000_000

_text = st.text(st.characters(exclude_characters="\x01\x02 ", exclude_categories=["Cs"]), min_size=1, max_size=8)
_some_text = st.one_of(st.none(), st.just(""), _text)
_names = st.sampled_from(["a", "é", "UNIQ_KEY", "WAIT", "TAGS", "KEYS", "__SHARDINGKEY"])
_row = st.fixed_dictionaries(
    {
        "body": st.one_of(st.binary(max_size=30), st.just(b"x" * 3000)),
        "topic": st.sampled_from([None, *QUEUES]),
        "tags": _some_text,
        "keys": st.one_of(st.none(), st.lists(st.one_of(st.just(""), _text), max_size=3)),
        "queueId": st.one_of(st.none(), st.integers(0, 2**31 - 1)),
        "shardingKey": _some_text,
        "properties": st.one_of(st.none(), st.dictionaries(_names, st.one_of(st.none(), _text), max_size=4)),
        "flag": st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)),
        "bornTimestamp": st.one_of(st.none(), st.integers(MIN_TIMESTAMP_MS, MAX_TIMESTAMP_MS)),
        "delayLevel": st.one_of(st.none(), st.integers(0, 18)),
        "DELAY": st.one_of(st.none(), st.sampled_from(["0", "1", "+7", "007", "99"])),
    }
)
TYPES = {
    "body": pa.binary(), "topic": pa.string(), "tags": pa.string(), "keys": pa.list_(pa.string()),
    "queueId": pa.int32(), "shardingKey": pa.string(), "properties": MAP, "flag": pa.int32(),
    "bornTimestamp": pa.int64(), "delayLevel": pa.int32(),
}  # fmt: skip


def table_of(rows: list[dict[str, Any]], columns: list[str]) -> pa.Table:
    return pa.table({name: pa.array([row[name] for row in rows], TYPES[name]) for name in columns})


def rows_of(rows: list[dict[str, Any]], columns: list[str]) -> list[dict[str, Any]]:
    """The rows with the DELAY among the properties, and None where a column is left out."""
    found = []
    for row in rows:
        properties = row["properties"]
        if properties is not None and row["DELAY"] is not None:
            properties = {**properties, "DELAY": row["DELAY"]}
        whole = {**row, "properties": properties}
        found.append({name: whole[name] if name in columns else None for name in TYPES})
    return found


def one_at_a_time(
    row: dict[str, Any], queue_id: int, hosts: tuple[tuple[bytes, int], tuple[bytes, int]], last: bool
) -> bytes:
    properties = {name: value for name, value in (row["properties"] or {}).items() if value is not None}
    if row["shardingKey"]:
        properties["__SHARDINGKEY"] = row["shardingKey"]
    if row["delayLevel"] is not None:
        properties["DELAY"] = str(row["delayLevel"])
    topic = row["topic"] or "orders"
    message = Message(topic=topic, body=b"", tags=row["tags"], keys=row["keys"] or (), properties=properties)
    place = stored_place(topic, queue_id, message_properties(message), 18)
    record = encode_message(
        place.topic.encode(),
        row["body"],
        encode_properties(place.properties, trailing_separator=last),
        queue_id=place.queue_id,
        flag=row["flag"] or 0,
        sys_flag=0,
        born_timestamp=BORN if row["bornTimestamp"] is None else row["bornTimestamp"],
        born_host=hosts[0],
        store_host=hosts[1],
    )
    return bytes(record)


def queue_of(row: dict[str, Any], turn: list[int]) -> int:
    topic = row["topic"] or "orders"
    key = row["shardingKey"] or (row["properties"] or {}).get("__SHARDINGKEY")
    if row["queueId"] is not None:
        return int(row["queueId"])
    if key is not None:
        return abs(string_hash_code(key)) % QUEUES[topic]
    turn[0] += 1
    return (turn[0] - 1) % QUEUES[topic]


def pieces(encoded: EncodedMessages) -> list[bytes]:
    return [encoded.records.data[a:b].tobytes() for a, b in pairwise(encoded.records.starts.tolist())]


@given(
    st.lists(_row, max_size=8),
    st.sets(st.sampled_from([name for name in TYPES if name != "body"])),
    st.sampled_from([V4, V6]),
    st.sampled_from([V4, V6]),
    st.booleans(),
    st.integers(0, 2**40),
)
def test_a_table_gives_the_records_that_its_messages_give_one_at_a_time(
    rows: list[dict[str, Any]],
    more: set[str],
    born: tuple[bytes, int],
    store: tuple[bytes, int],
    last: bool,
    first_turn: int,
) -> None:
    columns = ["body", *sorted(more)]
    rows = rows_of(rows, columns)
    table = table_of(rows, columns)
    turn = [first_turn]
    queues = [queue_of(row, turn) for row in rows]
    columns_of_rows = parse_messages(
        one_chunk(table), message_schema(table, topic="orders"), born_timestamp_ms=BORN, limits=MessageLimits()
    )
    resolved = choose_queues(columns_of_rows, QUEUES.__getitem__, round_robin_start=first_turn)
    assert resolved.tolist() == queues
    encoded = encode_table(
        table,
        topic="orders",
        born_timestamp_ms=BORN,
        born_host=born,
        store_host=store,
        trailing_separator=last,
        queue_ids=resolved,
    )
    expected = [one_at_a_time(row, queue, (born, store), last) for row, queue in zip(rows, queues, strict=True)]
    assert pieces(encoded) == expected
    assert not encoded.refusals
    assert encoded.rows.tolist() == list(range(len(rows)))
    assert encoded.records.data.flags.writeable
    decoded = [decode_record(data) for data in expected]
    for row, record in enumerate(decoded):
        assert isinstance(record, Record)
        assert encode_record(record) == expected[row]
        assert record.sys_flag & HOST_FLAGS == encoded.host_flags
        assert encoded.topics[encoded.topic_codes[row]].encode() == record.topic
        assert encoded.queue_ids[row] == record.queue_id


def encode(table: pa.Table | pa.RecordBatch, **options: Any) -> EncodedMessages:
    return encode_table(table, **{"born_timestamp_ms": BORN, **options})


MIXED = [
    {
        "body": b"b%d" % i, "topic": "t" if i % 3 else "u", "tags": f"tag{i}" if i % 2 else "" if i % 4 else None,
        "keys": [f"k{i}", "x"], "queueId": i, "shardingKey": f"s{i}", "properties": {"a": f"é{i}"} if i % 4 else None,
        "flag": i, "bornTimestamp": BORN + i, "delayLevel": None,
    }
    for i in range(12)
]  # fmt: skip


def test_slices_and_chunks_of_columns_give_the_same_records() -> None:
    table = table_of(MIXED, list(TYPES))
    whole = pieces(encode(table))
    assert pieces(encode(table.slice(3, 5))) == whole[3:8]
    assert pieces(encode(table.slice(3, 5).to_batches()[0])) == whole[3:8]
    chunked = pa.concat_tables([table.slice(0, 5), table.slice(5, 0), table.slice(5)])
    assert chunked.column("body").num_chunks > 1
    assert pieces(encode(chunked)) == whole
    assert pieces(encode(table.slice(0, 0))) == []
    assert pieces(encode(table.schema.empty_table())) == []


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.large_binary(), pa.binary(3)])
def test_bodies_of_every_kind_of_bytes_give_the_same_records(kind: pa.DataType) -> None:
    bodies = [b"abc", b"def"]
    texts = [body.decode() for body in bodies] if kind in (pa.string(), pa.large_string()) else bodies
    expected = pieces(encode(pa.table({"body": pa.array(bodies, pa.binary())})))
    assert pieces(encode(pa.table({"value": pa.array(texts, kind)}))) == expected


@pytest.mark.parametrize("wrap", [pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_texts_of_every_kind_give_the_same_records(wrap: pa.DataType) -> None:
    plain = pa.table({"body": [b"a", b"b"], "topic": ["t", None], "tags": ["x", None], "keys": [None, "k1 k2"]})
    others = {name: plain.column(name).cast(wrap) for name in ("topic", "tags", "keys")}
    assert pieces(encode(pa.table({"body": plain.column("body"), **others}))) == pieces(encode(plain))


def test_properties_as_a_store_gives_them_pass_through() -> None:
    """From one store to another: TAGS and KEYS are columns and properties as well."""
    given = [("KEYS", "k1"), ("UNIQ_KEY", "u"), ("TAGS", "paid"), ("WAIT", "true"), ("none", None)]
    maps = pa.array([given, given], MAP)
    columns = {"body": [b"", b""], "tags": ["paid", None], "keys": ["k1", None], "properties": maps}
    [first, second] = pieces(encode(pa.table(columns)))
    assert first == second
    record = decode_record(first)
    assert isinstance(record, Record)
    assert record.properties == b"UNIQ_KEY\x01u\x02WAIT\x01true\x02KEYS\x01k1\x02TAGS\x01paid\x02"


def test_the_column_of_delay_levels_wins_over_the_property_even_with_none() -> None:
    maps = pa.array([[("DELAY", "7")]] * 3, MAP)
    table = pa.table({"body": [b""] * 3, "delayLevel": [0, 2, None], "properties": maps, "queueId": [5, 5, 5]})
    encoded = encode(table)
    assert encoded.queue_ids.tolist() == [5, 1, 6]
    found = [decode_record(data) for data in pieces(encoded)]
    assert [record.properties for record in found if isinstance(record, Record)] == [
        b"", b"DELAY\x012\x02REAL_TOPIC\x01orders\x02REAL_QID\x015\x02",
        b"DELAY\x017\x02REAL_TOPIC\x01orders\x02REAL_QID\x015\x02",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "delays", [pa.array(["0s", "5s"]), pa.array([0, 5], pa.duration("s")), pa.array([0, 5_000_000], pa.duration("us"))]
)
def test_a_delay_of_no_time_is_none(delays: pa.Array) -> None:
    encoded = encode(pa.table({"body": ["a", "b"], "delayLevel": delays, "queueId": [3, 3]}))
    assert encoded.queue_ids.tolist() == [3, 1], "the second one is in the queue of level 2"


def test_a_queue_that_is_not_chosen_is_minus_one() -> None:
    table = pa.table({"body": ["a", "b"], "queueId": pa.array([None, 7], pa.int32())})
    encoded = encode(table, born_host=V6)
    assert encoded.queue_ids.tolist() == [-1, 7]
    chosen = encode(table, born_host=V6, queue_ids=np.array([3, 7], np.int32))
    found = [decode_record(data) for data in (*pieces(encoded), *pieces(chosen))]
    assert [record.queue_id for record in found if isinstance(record, Record)] == [-1, 7, 3, 7]


def test_a_delayed_message_without_a_queue_is_an_error_of_the_caller() -> None:
    table = pa.table({"body": ["a", "b"], "delayLevel": [0, 1]})
    with pytest.raises(InvalidValue, match="row 1 is delayed and has no queue"):
        encode(table)


@pytest.mark.parametrize("options", [{"born_host": (b"123", 1)}, {"store_host": (b"1234", 65536)}])
def test_impossible_hosts_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match="host is an ip of 4 or 16 bytes"):
        encode(pa.table({"body": ["a"]}), **options)


def test_as_many_queue_ids_as_rows_are_wanted() -> None:
    with pytest.raises(InvalidValue, match="2 queue ids for 1 messages"):
        encode(pa.table({"body": ["a"]}), queue_ids=np.zeros(2, np.int32))


@pytest.mark.parametrize("name", [golden.ROCKETMQ_533, golden.ROCKETMQ_498])
def test_golden_records_of_all_topics_come_out_again_together(name: str) -> None:
    """The records of each kind of hosts in one go, with a topic for each row and both versions side by side."""
    records = [found for _, _, found in walk(golden.GOLDEN / name / "store" / "commitlog") if isinstance(found, Record)]
    for flags in {record.sys_flag & HOST_FLAGS for record in records}:
        same = [record for record in records if record.sys_flag & HOST_FLAGS == flags]
        headers = new_headers(len(same), flags)
        for field in HEADER_DTYPES[flags].names or ():
            if field not in ("total_size", "magic", "body_crc", "body_length"):
                values = [getattr(record, field) for record in same]
                headers[field] = [np.void(value) for value in values] if field.endswith("_ip") else values
        late = {f: headers[f].astype(np.int64) for f in ("queue_offset", "physical_offset", "store_timestamp")}
        for field in late:
            headers[field] = 0
        names = sorted({record.topic.decode() for record in same})
        codes = np.array([names.index(record.topic.decode()) for record in same], np.int32)
        encoded = encode_records(
            headers,
            pa.array([record.body for record in same], pa.large_binary()),
            TopicRows(names, codes),
            [pa.array([record.properties for record in same], pa.large_binary())],
        )
        patched = patch_late_fields(
            encoded,
            host_flags=flags,
            queue_offsets=late["queue_offset"],
            physical_offsets=late["physical_offset"],
            store_timestamps=late["store_timestamp"],
        )
        assert patched.data.tobytes() == b"".join(encode_record(record) for record in same)
