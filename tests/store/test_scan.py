"""``StoreReader.scan``: all queues of topics or patterns as one stream of Arrow batches."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from commitlog_store import DEFAULT_COLUMNS, MessageBatches, MessageStore, StoreReader
from commitlog_store.errors import FilterError, InvalidValue, ReaderClosed, TopicNotFound, UnsupportedStore
from commitlog_store.paths import COMPACTION_CONSUME_QUEUE
from tests.store.owner.owned_store import open_store


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[StoreReader]:
    with open_store(tmp_path) as store:
        _fill(store)
        with store.reader() as reader:
            yield reader


def _fill(store: MessageStore) -> None:
    for topic in ("orders-eu", "orders-us", "bills"):
        for number in range(40):
            store.put(topic, f"{topic} {number}".encode(), tags="ab"[number % 2], properties={"n": str(number)})
    store.dispatch()


def _bodies(batches: pa.RecordBatchReader) -> list[bytes]:
    return sorted(batches.read_all()["body"].to_pylist())


def test_all_queues_of_a_topic_are_read(reader: StoreReader) -> None:
    batches = reader.scan("bills")
    assert batches.schema.names == list(DEFAULT_COLUMNS), "known before the first batch"
    table = batches.read_all()
    assert table.num_rows == 40
    assert sorted(set(table["queueId"].to_pylist())) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("topics", "count"), [("orders*", 80), (["orders-eu", "bil*"], 80), ("*", 120), ([], 120), (("bills", "b*"), 40)]
)
def test_topics_are_names_or_patterns(reader: StoreReader, topics: Any, count: int) -> None:
    assert len(_bodies(reader.scan(topics))) == count


def test_a_pattern_matches_no_system_topic(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        _fill(store)
        with store.transaction("loader", 1) as batch:
            batch.put_messages([{"body": b"x", "topic": "bills"}])
        store.put("bills", b"later", delay=18)
        store.dispatch()
        with store.reader() as reader:
            assert {"rmq_sys_commitlog_batch", "SCHEDULE_TOPIC_XXXX"} <= set(reader.topics())
            assert set(reader.scan("*").read_all()["topic"].to_pylist()) == {"bills", "orders-eu", "orders-us"}
            assert len(_bodies(reader.scan(["bill*", "SCHEDULE_TOPIC_XXXX"]))) == 42
            with pytest.raises(TopicNotFound):
                reader.scan("rmq_sys_*")


def test_a_pattern_skips_a_topic_that_cannot_be_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open_store(tmp_path) as store:
        _fill(store)
    (tmp_path / COMPACTION_CONSUME_QUEUE / "bills").mkdir(parents=True)
    with StoreReader.open(tmp_path) as reader:
        assert len(_bodies(reader.scan("*"))) == 80
        assert "'bills'" in caplog.text
        with pytest.raises(UnsupportedStore):
            reader.scan(["bills", "orders*"])


def test_without_columns_every_message_is_a_row(reader: StoreReader) -> None:
    assert reader.scan("*", columns=[]).read_all().num_rows == 120
    assert (
        sum(batch.num_rows for batch in reader.read("bills", 0, 0, columns=[])) == reader.queues("bills")[0].max_offset
    )
    ranges = [("bills", one.queue_id, 0, one.max_offset) for one in reader.queues("bills")]
    together = reader.read_together(ranges, columns=[])
    assert together is not None
    assert sum(batch.num_rows for batch in together) == 40
    assert [batch.num_rows for batch in reader.query_keys("bills", ["none", None], columns=[])] == [2]


def test_columns_and_filters_are_those_of_read(reader: StoreReader) -> None:
    table = reader.scan("orders*", columns=["topic", "tags"], tags="a", filter="n >= 20").read_all()
    assert table.schema.names == ["topic", "tags"]
    assert table.to_pylist() == [
        {"topic": topic, "tags": "a"} for topic in ("orders-eu", "orders-us") for _ in range(10)
    ]


def test_times_bound_what_is_read(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        _fill(store)
        with store.reader() as reader:
            times = sorted(set(reader.scan("*", columns=["storeTimestamp"]).read_all()["storeTimestamp"].to_pylist()))
            first, last = times[0], times[-1]
            millisecond = timedelta(milliseconds=1)
            assert reader.scan("*", since=first).read_all().num_rows == 120
            assert reader.scan("*", since=last + millisecond).read_all().num_rows == 0
            assert reader.scan("*", until=first).read_all().num_rows == 0
            assert (
                reader.scan("*", since=int(first.timestamp() * 1000), until=last + millisecond).read_all().num_rows
                == 120
            )
            early = reader.scan("*", until=last).read_all().num_rows
            assert early + reader.scan("*", since=last).read_all().num_rows == 120


def test_messages_put_after_the_call_are_not_read(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        _fill(store)
        with store.reader() as reader:
            batches = reader.scan("bills")
            _fill(store)
            assert batches.read_all().num_rows == 40


def test_a_stream_that_is_dropped_early_leaves_nothing_behind(reader: StoreReader) -> None:
    batches = reader.scan("*", columns=["body"])
    assert batches.read_next_batch().num_rows > 0
    del batches
    gc.collect()
    assert not [one for one in gc.get_objects() if isinstance(one, MessageBatches)]
    assert reader.scan("bills").read_all().num_rows == 40, "the reader reads on"


def test_the_stream_ends_with_its_reader(reader: StoreReader) -> None:
    batches = reader.scan("*")
    batches.read_next_batch()
    reader.close()
    with pytest.raises(ReaderClosed):
        batches.read_all()


@pytest.mark.parametrize(
    ("topics", "arguments", "error"),
    [
        ("nothing", {}, TopicNotFound),
        (["bills", "x*"], {}, TopicNotFound),
        (None, {}, InvalidValue),
        (["bills", 5], {}, InvalidValue),
        ("bills", {"columns": ["bodi"]}, InvalidValue),
        ("bills", {"columns": "body"}, InvalidValue),
        ("bills", {"since": datetime(2024, 1, 1)}, InvalidValue),  # noqa: DTZ001
        ("bills", {"until": "tomorrow"}, InvalidValue),
        ("bills", {"since": 1_700_000_000}, InvalidValue),
        ("bills", {"filter": "a >"}, FilterError),
    ],
    ids=str,
)
def test_a_wrong_argument_is_refused_before_anything_is_read(
    reader: StoreReader, topics: Any, arguments: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        reader.scan(topics, **arguments)


def test_a_datetime_of_any_zone_is_that_moment(reader: StoreReader) -> None:
    zone = timezone(timedelta(hours=9))
    assert reader.scan("bills", since=datetime(1999, 1, 1, tzinfo=zone)).read_all().num_rows == 40
    assert reader.scan("bills", since=datetime(2999, 1, 1, tzinfo=zone)).read_all().num_rows == 0
