"""Tables of messages: a status and offsets for each row, whatever the other rows are like."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from commitlog_store import MessageStore, PutMessageStatus, PutTableResult
from commitlog_store.columnar.message_table import message_chunks
from commitlog_store.errors import InvalidValue, PutRefused
from commitlog_store.format.java_hash import string_hash_code
from tests.store.owner.owned_store import SYNC, open_store, put_ok, rows
from tests.support.stored_bodies import bodies

_BORN = dt.datetime(2024, 5, 6, 7, 8, 9, 123_000, tzinfo=dt.timezone.utc)


def _column(result: PutTableResult, name: str) -> list[Any]:
    values: list[Any] = result.rows[name].to_pylist()
    return values


def _everything(store: MessageStore, topic: str = "orders") -> list[bytes]:
    store.dispatch()
    with store.reader() as reader:
        queues = [queue.queue_id for queue in reader.queues(topic)]
    return sorted(body for queue_id in queues for body in bodies(store, topic, queue_id))


def test_every_column_comes_back_as_it_was_put(tmp_path: Path) -> None:
    table = pa.table(
        {
            "body": pa.array([b"one", b"\x00"], pa.binary()),
            "topic": ["orders", "bills"],
            "tags": ["paid", None],
            "keys": [["k1", "k2"], []],
            "queueId": pa.array([2, 0], pa.int32()),
            "shardingKey": [None, "customer"],
            "properties": pa.array([[("a", "b")], None], pa.map_(pa.string(), pa.string())),
            "flag": [5, -1],
            "bornTimestamp": pa.array([_BORN, _BORN], pa.timestamp("us", "UTC")),
            "delayLevel": [0, None],
        }
    )
    with open_store(tmp_path) as store:
        result = store.put_messages(table)
        (one,), (other,) = rows(store, "orders", 2), rows(store, "bills", 0)
    assert (result.status, result.ok, result.reason) == (PutMessageStatus.PUT_OK, True, "")
    assert _column(result, "status") == ["PUT_OK", "PUT_OK"]
    assert _column(result, "physicalOffset") == [one["physicalOffset"], other["physicalOffset"]]
    assert (_column(result, "queueId"), _column(result, "queueOffset")) == ([2, 0], [0, 0])
    assert (one["body"], one["tags"], one["keys"], one["flag"]) == (b"one", "paid", "k1 k2", 5)
    assert one["properties"] == {"a": "b", "KEYS": "k1 k2", "TAGS": "paid"}
    assert (other["body"], other["tags"], other["keys"], other["flag"]) == (b"\x00", None, None, -1)
    assert other["properties"] == {"__SHARDINGKEY": "customer"}
    assert one["bornTimestamp"] == other["bornTimestamp"] == _BORN


@pytest.mark.parametrize("names", [("value", "key"), ("body", "keys")])
def test_columns_may_have_the_names_of_spark_and_kafka(tmp_path: Path, names: tuple[str, str]) -> None:
    with open_store(tmp_path) as store:
        store.put_messages(pa.table({names[0]: ["text"], names[1]: ["k"], "queueId": [0]}), topic="orders")
        (row,) = rows(store)
    assert (row["body"], row["keys"]) == (b"text", "k")


def test_refused_rows_leave_the_others_without_a_gap(tmp_path: Path) -> None:
    """Illegal ones at the front, in the middle and at the end; each says why, none takes an offset."""
    long = "x" * 40_000
    table = pa.table(
        {
            "body": [None, b"a", bytes(101), b"b", b"c", b"d", b"e", b"f", b"g"],
            "topic": ["orders", "orders", "orders", "../orders", "orders", None, "orders", "orders", "orders"],
            "queueId": [0, 0, 0, 0, 0, 0, -5, 0, 0],
            "tags": [None, None, None, None, None, None, None, long, None],
        }
    )
    with open_store(tmp_path, max_message_size=100) as store:
        result = store.put_messages(table)
        illegal = PutMessageStatus.MESSAGE_ILLEGAL.value
        assert _column(result, "status") == [
            illegal, "PUT_OK", illegal, illegal, "PUT_OK", illegal, illegal, "PROPERTIES_SIZE_EXCEEDED", "PUT_OK",
        ]  # fmt: skip
        assert _column(result, "queueOffset") == [-1, 0, -1, -1, 1, -1, -1, -1, 2]
        assert [offset < 0 for offset in _column(result, "physicalOffset")] == [
            status != "PUT_OK" for status in _column(result, "status")
        ]
        assert result.status is PutMessageStatus.MESSAGE_ILLEGAL
        assert "body is null" in result.reason, "the reason is that of the first row that was refused"
        with pytest.raises(PutRefused):
            result.raise_for_status()
        assert bodies(store) == [b"a", b"c", b"g"]
        assert put_ok(store).queue_offset == 3


def test_an_impossible_topic_refuses_only_its_own_rows(tmp_path: Path) -> None:
    """Also where the rows leave the choice of the queue to the store, which asks how many queues the topic has."""
    with open_store(tmp_path) as store:
        result = store.put_messages(pa.table({"body": [b"a", b"b", b"c"], "topic": ["orders", "../../etc", "t" * 300]}))
        assert _column(result, "status") == ["PUT_OK", "MESSAGE_ILLEGAL", "MESSAGE_ILLEGAL"]
        assert _everything(store) == [b"a"]


def test_rows_without_a_queue_take_the_queues_in_turn(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        first = store.put_messages(pa.table({"body": [b"%d" % n for n in range(6)]}), topic="orders")
        again = store.put_messages(pa.table({"body": [b"x"]}), topic="orders")
        ids = [*_column(first, "queueId"), *_column(again, "queueId")]
        assert ids == [0, 1, 2, 3, 0, 1, 2], "over the default four, and on from there"


def test_rows_are_spread_over_the_queues_that_a_store_has_already(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_ok(store, queue_id=6)
        store.dispatch()
        more = store.put_messages(pa.table({"body": [b"y"] * 14}), topic="orders")
        assert set(_column(more, "queueId")) == set(range(7))


def test_rows_with_a_sharding_key_go_to_its_queue(tmp_path: Path) -> None:
    keys = [f"customer {number}" for number in range(40)]
    with open_store(tmp_path) as store:
        result = store.put_messages(pa.table({"body": [b""] * 40, "shardingKey": keys}), topic="orders")
    assert _column(result, "queueId") == [abs(string_hash_code(key)) % 4 for key in keys]


def test_several_topics_and_queues_in_one_table_count_on_their_own(tmp_path: Path) -> None:
    count = 3_000
    topics = [("orders", "bills", "clicks")[n % 3] for n in range(count)]
    queue_ids = [n % 2 for n in range(count)]
    table = pa.table({"body": [b"%d" % n for n in range(count)], "topic": topics, "queueId": queue_ids})
    with open_store(tmp_path) as store:
        put_ok(store, topic="bills", queue_id=1, body=b"first")
        result = store.put_messages(table).raise_for_status()
        offsets: dict[tuple[str, int], int] = {("bills", 1): 1}
        for topic, queue_id, offset in zip(topics, queue_ids, _column(result, "queueOffset"), strict=True):
            assert offset == offsets.setdefault((topic, queue_id), 0)
            offsets[topic, queue_id] += 1
        for topic in ("orders", "bills", "clicks"):
            for queue_id in (0, 1):
                wanted = [b"%d" % n for n in range(count) if (topics[n], queue_ids[n]) == (topic, queue_id)]
                assert bodies(store, topic, queue_id)[-len(wanted) :] == wanted


def test_rows_run_over_the_ends_of_files(tmp_path: Path) -> None:
    wanted = [b"%05d" % number * (1 + number % 60) for number in range(2_000)]
    table = pa.table({"body": wanted, "queueId": [0] * len(wanted), "keys": [f"k{n}" for n in range(len(wanted))]})
    with open_store(tmp_path) as store:
        result = store.put_messages(table, topic="orders").raise_for_status()
        assert bodies(store) == wanted
        found = rows(store)
        assert [row["physicalOffset"] for row in found] == _column(result, "physicalOffset")
        assert len({row["physicalOffset"] >> 14 for row in found}) > 20, "many files"
        with store.reader() as reader:
            for number in range(0, 2_000, 97):
                (hit,) = reader.query("orders", f"k{number}")
                assert hit.body == wanted[number]


def test_more_rows_than_a_chunk_keep_their_order(tmp_path: Path) -> None:
    count = 40_000
    table = pa.concat_tables(
        [pa.table({"body": pa.array([b"%d" % n for n in range(low, low + 10_000)])}) for low in range(0, count, 10_000)]
    ).append_column("queueId", pa.array([0] * count))
    sizes = {"mapped_file_size_commit_log": 1 << 20, "mapped_file_size_consume_queue": 20_000}
    with open_store(tmp_path, **sizes) as store:
        result = store.put_messages(table, topic="orders").raise_for_status()
        assert _column(result, "queueOffset") == list(range(count))
        assert bodies(store) == [b"%d" % n for n in range(count)]


def test_a_row_larger_than_a_file_is_refused_and_the_others_are_not(tmp_path: Path) -> None:
    table = pa.table({"body": [b"a", bytes(20_000), b"b", bytes(17_000)], "queueId": [1] * 4})
    with open_store(tmp_path) as store:
        result = store.put_messages(table, topic="orders")
        assert _column(result, "status") == ["PUT_OK", "MESSAGE_ILLEGAL", "PUT_OK", "MESSAGE_ILLEGAL"]
        assert "row 1" in result.reason
        assert bodies(store, queue_id=1) == [b"a", b"b"]


def test_a_row_larger_than_a_file_is_refused_after_another_refused_one(tmp_path: Path) -> None:
    """The rows keep their own numbers although two kinds of refusal took some of them away."""
    table = pa.table({"body": [None, b"a", bytes(20_000), None, b"b"], "queueId": [1] * 5})
    with open_store(tmp_path) as store:
        result = store.put_messages(table, topic="orders")
        assert [status == "PUT_OK" for status in _column(result, "status")] == [False, True, False, False, True]
        assert _column(result, "queueOffset") == [-1, 0, -1, -1, 1]
        assert bodies(store, queue_id=1) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("columns", "topic", "reason"),
    [
        ({"bodies": [b"a"]}, "orders", "Did you mean 'body'"),
        ({"tags": ["a"]}, "orders", "column 'body' .* is missing"),
        ({"body": [1]}, "orders", "type int64"),
        ({"body": [b"a"], "queueId": ["1"]}, "orders", "queueId"),
        ({"body": [b"a"], "value": [b"a"]}, "orders", "twice"),
        ({"body": [b"a"]}, None, "no topic"),
        ({"body": [b"a"]}, "../orders", "topic"),
    ],
)
def test_impossible_columns_are_refused_before_the_first_row(
    tmp_path: Path, columns: dict[str, Any], topic: str | None, reason: str
) -> None:
    with open_store(tmp_path) as store:
        with pytest.raises(InvalidValue, match=reason):
            store.put_messages(pa.table(columns), topic=topic)
        assert store.physical_bounds() == (0, 0)


@pytest.mark.parametrize("empty", [[], [b"a"]])
def test_record_batches_without_rows_and_of_one_row_are_accepted(tmp_path: Path, empty: list[bytes]) -> None:
    with open_store(tmp_path) as store:
        result = store.put_messages(pa.record_batch({"body": pa.array(empty, pa.binary())}), topic="orders")
        assert (result.ok, result.rows.num_rows) == (True, len(empty))


def test_rows_are_on_the_device_when_a_synchronous_put_answers(tmp_path: Path) -> None:
    with open_store(tmp_path, flush_disk_type=SYNC) as store:
        store.put_messages(pa.table({"body": [b"x" * 100] * 1_000}), topic="orders").raise_for_status()
        assert store.flushed_where() == store.physical_bounds()[1]


def _text(value: bytes, kind: pa.DataType | None = None) -> pa.Array:
    """A text column of three rows, the middle one with bytes that Arrow has not looked at."""
    values = pa.array([b"a", value, b"c"], pa.binary())
    return pa.Array.from_buffers(kind or pa.string(), 3, values.buffers())


BAD = b"\xffb"
ONE_EACH = pa.array([0, 1, 2, 3], pa.int32())


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("topic", _text(BAD)),
        ("tags", _text(BAD)),
        ("keys", _text(BAD)),
        ("keys", pa.ListArray.from_arrays(ONE_EACH, _text(BAD))),
        ("shardingKey", _text(BAD)),
        ("shardingKey", pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), _text(BAD))),
        ("properties", pa.MapArray.from_arrays(ONE_EACH, _text(BAD), _text(b"b"))),
        ("properties", pa.MapArray.from_arrays(ONE_EACH, _text(b"b"), _text(BAD))),
        ("properties", pa.MapArray.from_arrays(ONE_EACH, pa.array(["__SHARDINGKEY"] * 3), _text(BAD))),
        ("properties", pa.MapArray.from_arrays(ONE_EACH, pa.array(["DELAY", "DELAY", "x"]), _text(BAD))),
    ],
)
def test_a_text_that_is_not_utf8_refuses_its_row(tmp_path: Path, name: str, column: pa.Array) -> None:
    with open_store(tmp_path) as store:
        result = store.put_messages(pa.table({"body": [b"1", b"2", b"3"], name: column}), topic="orders")
        assert _column(result, "status")[1:] == ["MESSAGE_ILLEGAL", "PUT_OK"]
        assert [offset >= 0 for offset in _column(result, "physicalOffset")][1:] == [False, True]
        store.dispatch()


def test_a_refused_queue_id_is_reported_as_it_was_given(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        result = store.put_messages(pa.table({"body": [b"a", b"b"], "queueId": [0, -1]}), topic="orders")
        assert "queue -1)" in result.reason
        assert "its queueId is -1" in result.reason


def test_a_table_of_a_few_large_bodies_among_many_small_ones_loses_no_row(tmp_path: Path) -> None:
    """Together they have more than the 2 GiB that a column of Arrow's holds in one piece."""
    large = pa.array([bytes(64 << 20)])
    table = pa.table({"body": pa.chunked_array([*[large] * 40, pa.array([b"small"] * 10_000)])})
    with open_store(tmp_path, mapped_file_size_commit_log=1 << 20) as store:
        statuses = _column(store.put_messages(table, topic="orders"), "status")
        assert (statuses[:40], set(statuses[40:])) == (["MESSAGE_ILLEGAL"] * 40, {"PUT_OK"})


@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.large_binary(), pa.dictionary(pa.int8(), pa.string())])
def test_chunks_are_cut_by_the_bytes_of_the_bodies(kind: pa.DataType) -> None:
    values = pa.array(["", "12345", "6789", "x" * 50, None, "1234567890", "1", "2", "3", "4"])
    column = values.dictionary_encode() if pa.types.is_dictionary(kind) else values.cast(kind)
    table = pa.table({"value": column})
    for rows_of in (table, table.to_batches()[0], pa.concat_tables([table.slice(0, 2), table.slice(2)])):
        found = [(first, chunk.num_rows) for first, chunk in message_chunks(rows_of, max_rows=3, max_size=10)]
        assert found == [(0, 3), (3, 1), (4, 2), (6, 3), (9, 1)]


_MAPS = [{"a": "123456789"}, {"a": "1234"}, None, {"b": "12", "c": ""}, {"a": "12345"}]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("keys", pa.array(["1234567890", "12345", None, "12345", "123456"])),
        ("keys", pa.array([["12345", "67890"], ["12345"], None, ["", "12345"], ["123456"]])),
        ("properties", pa.array([one and list(one.items()) for one in _MAPS], pa.map_(pa.string(), pa.string()))),
    ],
    ids=["text", "lists", "maps"],
)
def test_chunks_are_cut_by_the_bytes_of_keys_and_properties(name: str, values: pa.Array) -> None:
    table = pa.table({"body": [b""] * 6, name: pa.concat_arrays([values.slice(0, 1), values])})
    for rows_of in (table, pa.concat_tables([table.slice(0, 2), table.slice(2)])):
        found = [(first, chunk.num_rows) for first, chunk in message_chunks(rows_of.slice(1), max_size=10)]
        assert found == [(0, 1), (1, 3), (4, 1)]


def test_lists_of_nulls_take_no_bytes() -> None:
    table = pa.table({"body": [b"x"] * 2, "keys": pa.array([[None], [None]])})
    assert [chunk.num_rows for _, chunk in message_chunks(table)] == [2]
