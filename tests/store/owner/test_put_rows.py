"""Bulk puts of what is not a pyarrow table: streams of Arrow data, lists of dicts, lists of messages."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from commitlog_store import BatchId, BatchStager, Message, MessageExtBrokerInner, MessageStore
from commitlog_store.errors import InvalidValue, PutRefused
from tests.store.owner.owned_store import open_store, rows

_TABLE = pa.table(
    {"body": [b"a", b"b"], "topic": ["orders"] * 2, "tags": ["x", None], "queueId": pa.array([0, 0], pa.int32())}
)


class _Frame:
    """A data frame of another library: all that is known of it is that it gives Arrow batches."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def _with_views() -> _Frame:
    """As polars gives it: texts and bytes as views, lists as large lists."""
    views = {"body": pa.binary_view(), "topic": pa.string_view(), "tags": pa.string_view(), "queueId": pa.int32()}
    keys = pa.array([["k1", "k2"], None], pa.large_list(pa.string_view()))
    return _Frame(_TABLE.cast(pa.schema(views.items())).append_column("keys", keys))


def _categorical() -> _Frame:
    """As polars gives categories, and numbers that it counts with."""
    codes = pa.array([0, None], pa.uint32())
    tags = pa.DictionaryArray.from_arrays(codes, pa.array(["x"], pa.string_view()))
    numbers = pa.array([0, 0], pa.uint32())
    return _Frame(pa.table({"body": [b"a", b"b"], "topic": ["orders"] * 2, "tags": tags, "queueId": numbers}))


def _with_an_index() -> _Frame:
    """As pandas gives a frame whose index is not the row's number."""
    return _Frame(_TABLE.append_column("__index_level_0__", pa.array([7, 8])))


_DICTS = [{"body": b"a", "topic": "orders", "tags": "x", "queueId": 0}, {"value": "b", "topic": "orders", "queueId": 0}]
_MESSAGES = [
    Message(topic="orders", body=b"a", tags="x", queue_id=0),
    Message(topic="orders", body=b"b", queue_id=0),
]
_WAYS: dict[str, Callable[[], Any]] = {
    "reader": _TABLE.to_reader,
    "frame": lambda: _Frame(_TABLE),
    "views": _with_views,
    "categories": _categorical,
    "table of views": lambda: _with_views()._table,
    "index": _with_an_index,
    "dicts": lambda: _DICTS,
    "messages": lambda: _MESSAGES,
    "tuple": lambda: tuple(_MESSAGES),
}


@pytest.mark.parametrize("made", _WAYS.values(), ids=_WAYS)
def test_what_is_given_is_stored(tmp_path: Path, made: Callable[[], Any]) -> None:
    with open_store(tmp_path) as store:
        result = store.put_messages(made()).raise_for_status()
        assert result.message_num == 2
        with store.transaction("app", 1) as batch:
            batch.put_messages(made())
        batch_id = BatchId("stager", 1)
        with BatchStager(tmp_path, batch_id, queue_counts={}) as stager:
            stager.put(made())
            staged = stager.finish()
        assert staged is not None
        store.commit_batch(batch_id, [staged])
        assert [(row["body"], row["tags"]) for row in rows(store)] == [(b"a", "x"), (b"b", None)] * 3


def test_all_fields_of_messages_and_dicts_are_stored(tmp_path: Path) -> None:
    born = datetime(2024, 1, 2, 3, 4, 5, 6000, tzinfo=timezone.utc)
    messages = [
        Message(
            topic="orders", body=b"a", keys=["k1", "k2"], queue_id=0, flag=7, properties={"a": "b"}, sharding_key="s",
            born_timestamp=int(born.timestamp() * 1000),
        )
    ]  # fmt: skip
    dicts = [
        {"body": "a", "keys": ["k1", "k2"], "queueId": 0, "flag": 7, "properties": {"a": "b"}, "shardingKey": "s",
         "bornTimestamp": born},
        {"body": "a", "key": "k1 k2", "queueId": 0, "flag": 7, "properties": [("a", "b")], "shardingKey": "s",
         "bornTimestamp": born.replace(tzinfo=None)},
    ]  # fmt: skip
    with open_store(tmp_path) as store:
        store.put_messages(messages).raise_for_status()
        store.put_messages(dicts, topic="orders").raise_for_status()
        found = rows(store)
    assert {(row["body"], row["keys"], row["flag"], row["bornTimestamp"]) for row in found} == {
        (b"a", "k1 k2", 7, born)
    }
    assert len(found) == 3
    assert all(row["properties"]["a"] == "b" and row["properties"]["__SHARDINGKEY"] == "s" for row in found)


def test_rows_that_were_read_are_put_back(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.put_messages(_TABLE)
        store.dispatch()
        with store.reader() as reader:
            read = [row for batch in reader.read("orders", 0, 0) for row in batch.to_pylist()]
        store.put_messages(read).raise_for_status()
        assert [row["body"] for row in rows(store)] == [b"a", b"b"] * 2


@pytest.mark.parametrize("large", [False, True], ids=["list", "large list"])
def test_lists_of_pairs_are_properties_since_polars_has_no_maps(tmp_path: Path, large: bool) -> None:
    """It reads a map column as these, so what ``scan`` gave comes back as it was."""
    pair = pa.struct([("key", pa.string_view()), ("value", pa.string_view())])
    values = [[{"key": "a", "value": "b"}], [], None, [{"key": "c", "value": "d"}, {"key": "e", "value": None}]]
    pairs = pa.array(values * 2, pa.large_list(pair) if large else pa.list_(pair))
    table = pa.table({"body": [b"x"] * 8, "queueId": [0] * 8, "properties": pairs})
    with open_store(tmp_path) as store:
        store.put_messages(_Frame(table.slice(1)), topic="orders").raise_for_status()
        store.put_messages(table.slice(0, 3).to_batches()[0], topic="orders").raise_for_status()
        own = [{name: row["properties"][name] for name in "ace" if name in row["properties"]} for row in rows(store)]
        assert own == [{}, {}, {"c": "d"}, {"a": "b"}, {}, {}, {"c": "d"}, {"a": "b"}, {}, {}]
        null = pa.array([[{"key": None, "value": "b"}]], pa.list_(pair))
        with pytest.raises(InvalidValue, match="a 'key' in it is null"):
            store.put_messages(pa.table({"body": [b"x"], "properties": null}), topic="orders")


def test_an_empty_list_is_an_empty_table(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        assert store.put_messages([]).message_num == 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (5, r"not 5 \(int\)"),
        ("text", "a list of dicts"),
        ({"body": [b"x"]}, "a list of dicts"),
        ([5], r"row 0 is 5 \(int\)"),
        ([{"body": b"x"}, None], "row 1 is None"),
        ([{"body": b"x", "boddy": 1}], "Unknown column 'boddy'. Did you mean 'body'"),
        ([{"body": b"x", "value": b"y"}], "Row 0 has 'body' twice"),
        ([{1: b"x"}], r"row 0 has 1 \(int\)"),
        ([{"body": b"x"}, {"body": 5}], "The 'body' of row 1 is bytes or a text, not 5"),
        ([{"body": b"x", "tags": 5}], "The 'tags' of row 0 is a text, not 5"),
        ([{"body": b"x", "queueId": True}], "The 'queueId' of row 0 is an int, not True"),
        ([{"body": b"x", "properties": {"a": 1}}], "The 'properties' of row 0 is a dict of texts to texts"),
        ([Message(topic="t", body=b"x", keys=[1])], "The 'keys' of row 0"),  # type: ignore[list-item]
        ([*_MESSAGES, Message(topic="t", body="x")], "Row 2: The field body is bytes"),  # type: ignore[arg-type]
        ([Message(topic="t", body=b"x", keys="k")], "Row 0: The field keys is a list of texts, not the text 'k'"),
        (pa.array(["a"]), r"not <pyarrow.lib\S+> \[ \"a\" \] \(StringArray\)"),
        ([MessageExtBrokerInner(topic="t", body=b"x")], "a MessageExtBrokerInner, which put_message takes"),
        ([{"topic": "t"}], "its body is null"),
    ],
    ids=str,
)
def test_anything_else_is_refused_by_name(tmp_path: Path, given: Any, words: str) -> None:
    with open_store(tmp_path) as store:
        with pytest.raises((InvalidValue, PutRefused), match=words):
            store.put_messages(given, topic="orders").raise_for_status()
        assert store.physical_bounds() == (0, 0)


def test_a_stream_that_fails_is_an_error_by_name(tmp_path: Path) -> None:
    class Broken:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return 5

    with MessageStore.open(tmp_path) as store, pytest.raises(InvalidValue, match="The Broken cannot be read"):
        store.put_messages(Broken(), topic="orders")
