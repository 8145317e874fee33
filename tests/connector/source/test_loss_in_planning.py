"""Files that are missing, and retention at work, while a batch or a stream is planned."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from commitlog_store import StoreReader
from commitlog_store.errors import FileMissing, StoreBusy, UnsupportedStore
from pyspark_commitlog.errors import DataLossError
from pyspark_commitlog.options.read import parse_batch_options, parse_stream_options
from pyspark_commitlog.source.batch_source import CommitLogBatchReader
from pyspark_commitlog.source.offset_rules import resolve_rule
from pyspark_commitlog.source.partitions import plan_partitions
from pyspark_commitlog.source.schema import check_schema
from pyspark_commitlog.source.stream_planner import StreamPlanner
from tests.connector.source.sized_store import NewStore
from tests.support.store_builder import FIRST_STORE_TIME, StoreBuilder

PLACE = StructType([StructField("queueOffset", LongType())])


@pytest.fixture
def store(tmp_path: Path) -> StoreBuilder:
    """100 messages in one queue, 20 to a file of the queue and 14 to a file of the log, stored a millisecond apart."""
    builder = StoreBuilder(tmp_path / "store", log_file_size=16 << 10, queue_file_units=20)
    builder.append("orders", 0, [b"x" * 1000] * 100)
    return builder


def remove_queue_file(store: StoreBuilder, index: int) -> Path:
    path = sorted((store.path / "consumequeue" / "orders" / "0").iterdir())[index]
    path.unlink()
    return path


def remove_log_file(store: StoreBuilder, index: int) -> Path:
    path = sorted((store.path / "commitlog").iterdir())[index]
    path.unlink()
    return path


def batch(store: StoreBuilder, **options: str) -> CommitLogBatchReader:
    given = {"path": str(store.path), "subscribe": "orders", "failOnDataLoss": "false"} | options
    return CommitLogBatchReader(parse_batch_options(given), check_schema(PLACE))


def rows(reader: CommitLogBatchReader) -> list[int]:
    return [
        offset
        for partition in reader.partitions()
        for found in reader.read(partition)
        for offset in found.column(0).to_pylist()
    ]


def stream_offsets(store: StoreBuilder, **options: str) -> list[list[int]]:
    """The offsets of queue 0 that each batch of a stream reads until nothing is left."""
    given = {"path": str(store.path), "subscribe": "orders", "startingOffsets": "earliest", "failOnDataLoss": "false"}
    planner = StreamPlanner.open(parse_stream_options(given | options))
    at = planner.initial_offset()
    batches = []
    while (end := planner.latest_offset(at, limited=True)) != at:
        ranges = [one for partition in planner.partitions(at, end) for one in partition.ranges]
        batches.append([offset for _, _, start, stop in ranges for offset in range(start, stop)])
        at = end
    planner.close()
    return batches


# A file of the queue that is missing


def test_a_batch_names_the_missing_file_and_the_hole(store: StoreBuilder) -> None:
    path = remove_queue_file(store, 2)
    with pytest.raises(DataLossError) as caught:
        batch(store, failOnDataLoss="true").partitions()
    text = str(caught.value)
    assert "of the wanted offsets [0, 100), [40, 60) cannot be read" in text
    assert str(path) in text
    assert "continues at offset 60" in text
    assert "retention" not in text
    assert (caught.value.wanted, caught.value.available) == ((0, 100), (60, 100))
    assert isinstance(caught.value.__cause__, FileMissing)


def test_a_batch_warns_and_continues_around_the_hole(store: StoreBuilder, caplog: pytest.LogCaptureFixture) -> None:
    remove_queue_file(store, 2)
    assert rows(batch(store)) == [*range(40), *range(60, 100)]
    assert caplog.text.count("[40, 60) cannot be read") == 1
    assert "Continuing at offset 60" in caplog.text


@pytest.mark.parametrize("max_bytes", ["1500", "9k", "1g"])
@pytest.mark.parametrize("index", [1, 2, 3])
def test_holes_are_cut_out_whatever_the_partitions(store: StoreBuilder, max_bytes: str, index: int) -> None:
    remove_queue_file(store, index)
    hole = range(20 * index, 20 * index + 20)
    expected = [offset for offset in range(100) if offset not in hole]
    assert rows(batch(store, maxBytesPerPartition=max_bytes)) == expected


def test_two_holes_are_cut_out(store: StoreBuilder) -> None:
    remove_queue_file(store, 3)
    remove_queue_file(store, 1)
    assert rows(batch(store)) == [*range(20), *range(40, 60), *range(80, 100)]


def test_a_range_that_lies_within_the_hole_is_empty(store: StoreBuilder) -> None:
    remove_queue_file(store, 2)
    limits = {"startingOffsets": '{"orders":{"0":45}}', "endingOffsets": '{"orders":{"0":55}}'}
    assert rows(batch(store, **limits)) == []


def test_a_queue_with_a_hole_is_never_read_side_by_side_with_itself(new_store: NewStore) -> None:
    """The parts before and after the hole would come in turns, and the queue's messages out of order."""
    sized = new_store(queue_file_units=20)
    sized.append_queues("orders", [[300] * 100, [300] * 100], in_turns=True)
    whole = plan_partitions(sized.reader, sized.whole(), max_bytes=20_000, min_partitions=None)
    assert any(partition.side_by_side for partition in whole)
    remove_queue_file(sized.builder, 2)
    around = plan_partitions(
        sized.reopen(), sized.whole(), max_bytes=20_000, min_partitions=None, fail_on_data_loss=False
    )
    for partition in around:
        assert not partition.side_by_side or len({one[:2] for one in partition.ranges}) == len(partition.ranges)


@pytest.mark.parametrize("limit", [{}, {"maxOffsetsPerTrigger": "7"}, {"maxBytesPerTrigger": "9k"}])
def test_a_stream_continues_around_the_hole_and_ends(store: StoreBuilder, limit: dict[str, str]) -> None:
    remove_queue_file(store, 2)
    batches = stream_offsets(store, **limit)
    assert [offset for one in batches for offset in one] == [*range(40), *range(60, 100)]
    assert all(batches)


@pytest.mark.parametrize("limit", [{}, {"maxOffsetsPerTrigger": "7"}, {"maxBytesPerTrigger": "9k"}])
def test_a_stream_that_meets_a_hole_fails_with_its_offsets(store: StoreBuilder, limit: dict[str, str]) -> None:
    remove_queue_file(store, 2)
    with pytest.raises(DataLossError, match=r"\[4[0-9], [0-9]+\) cannot be read"):
        stream_offsets(store, failOnDataLoss="true", **limit)


def test_a_stream_whose_wait_ends_in_the_hole_passes_it_once(
    store: StoreBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    """With a limit below the hole's length, the stream does not make one empty batch after the other."""
    remove_queue_file(store, 2)
    stream_offsets(store, maxOffsetsPerTrigger="3")
    assert 1 <= caplog.text.count("cannot be read") <= 2


# A file of the log that is missing


def test_a_missing_log_file_is_left_to_the_task(store: StoreBuilder, caplog: pytest.LogCaptureFixture) -> None:
    path = remove_log_file(store, 3)
    assert rows(batch(store)) == [*range(42), *range(56, 100)]
    assert f"[42, 56) cannot be read, since {path} is missing" in caplog.text


@pytest.mark.parametrize("remove", [remove_log_file, remove_queue_file])
@pytest.mark.parametrize("at", range(0, 100, 9))
def test_a_start_by_time_is_found_beside_a_hole(
    store: StoreBuilder, remove: Callable[[StoreBuilder, int], Path], at: int
) -> None:
    expected = [offset for offset in rows(batch(store)) if offset >= at]
    remove(store, 2)
    hole = range(28, 42) if remove is remove_log_file else range(40, 60)
    found = rows(batch(store, startingTimestamp=str(FIRST_STORE_TIME + at)))
    assert found == [offset for offset in expected if offset not in hole]


def test_a_start_by_time_that_meets_a_hole_fails_by_name(store: StoreBuilder) -> None:
    remove_queue_file(store, 2)
    with pytest.raises(DataLossError, match="cannot be read"):
        batch(store, startingTimestamp=str(FIRST_STORE_TIME + 50), failOnDataLoss="true").partitions()


@pytest.mark.parametrize("option", ["startingTimestamp", "startingOffsetsByTimestamp", "endingTimestamp"])
@pytest.mark.parametrize("remove", [remove_log_file, remove_queue_file])
def test_a_time_beside_a_hole_fails_only_where_the_hole_may_hold_its_message(
    store: StoreBuilder, remove: Callable[[StoreBuilder, int], Path], option: str
) -> None:
    path = remove(store, 2)
    hole = range(28, 42) if remove is remove_log_file else range(40, 60)
    for at in (0, 20, hole.start, hole.start + 1, hole.stop - 1, hole.stop, hole.stop + 1, 90):
        time = str(FIRST_STORE_TIME + at)
        given = {option: f'{{"orders":{{"0":{time}}}}}' if "Offsets" in option else time}
        rule = parse_batch_options({"path": str(store.path), "subscribe": "orders"} | given)
        which = "ending" if option == "endingTimestamp" else "starting"
        with StoreReader.open(store.path) as reader:
            chosen = rule.ending if which == "ending" else rule.starting
            if hole.start <= at <= hole.stop:
                with pytest.raises(DataLossError, match=path.name):
                    resolve_rule(reader, reader.queues("orders"), chosen, rule, which=which)  # type: ignore[arg-type]
            else:
                found = resolve_rule(reader, reader.queues("orders"), chosen, rule, which=which)  # type: ignore[arg-type]
                assert found == {("orders", 0): at}


# Retention while a batch is planned


def retention_before(
    monkeypatch: pytest.MonkeyPatch, method: str, happens: Callable[[], None], times: int
) -> list[str]:
    """Let ``happens`` come before each of the first calls of a reader's method; gives the calls made so far."""
    plain = getattr(StoreReader, method)
    calls: list[str] = []

    def late(reader: StoreReader, *arguments: Any, **settings: Any) -> Any:
        calls.append(method)
        if len(calls) <= times:
            happens()
        return plain(reader, *arguments, **settings)

    monkeypatch.setattr(StoreReader, method, late)
    return calls


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_batch_looks_again_when_retention_comes_in_between(
    store: StoreBuilder, monkeypatch: pytest.MonkeyPatch, fail: str
) -> None:
    """The earliest offset is decided when Spark plans: messages that expire concurrently are not lost."""
    retention_before(monkeypatch, "units_of", lambda: store.delete_log_files(1), 2)
    assert rows(batch(store, failOnDataLoss=fail)) == list(range(28, 100))


def test_a_batch_looks_again_when_retention_comes_while_it_finds_an_offset_by_time(
    store: StoreBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    retention_before(monkeypatch, "offset_by_time", lambda: store.delete_log_files(5), 1)
    assert rows(batch(store, startingTimestamp=str(FIRST_STORE_TIME), failOnDataLoss="true")) == list(range(70, 100))


@pytest.mark.parametrize("fail", ["true", "false"])
def test_retention_that_is_always_faster_is_no_loss_but_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fail: str
) -> None:
    """Nothing that the query was promised is gone: it asked for the earliest messages, whichever these are."""
    store = StoreBuilder(tmp_path / "many", log_file_size=4 << 10, queue_file_units=20)
    store.append("orders", 0, [b"x" * 1000] * 100)
    retention_before(monkeypatch, "units_of", lambda: store.delete_log_files(1), 1000)
    with pytest.raises(StoreBusy, match="changed during each of 10 looks"):
        batch(store, failOnDataLoss=fail).partitions()


def test_a_named_start_that_retention_takes_concurrently_is_lost_data(
    store: StoreBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    retention_before(monkeypatch, "units_of", lambda: store.delete_log_files(1), 1)
    with pytest.raises(DataLossError, match=r"wanted offsets \[3, 100\), available are \[14, 100\)"):
        batch(store, startingOffsets='{"orders":{"0":3}}', failOnDataLoss="true").partitions()


# Topics that cannot be read


@pytest.fixture
def with_compaction_topic(store: StoreBuilder) -> StoreBuilder:
    store.append("orders_state", 0, [b"latest value by key"])
    (store.path / "compaction" / "compactionCq" / "orders_state" / "0").mkdir(parents=True)
    return store


@pytest.fixture
def with_batch_topic(store: StoreBuilder) -> StoreBuilder:
    store.append("orders_state", 0, [b"a batch"])
    (store.path / "batchconsumequeue" / "orders_state" / "0").mkdir(parents=True)
    return store


@pytest.mark.parametrize("kind", ["with_compaction_topic", "with_batch_topic"])
def test_a_pattern_skips_topics_that_cannot_be_read(
    request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    store: StoreBuilder = request.getfixturevalue(kind)
    given = {"path": str(store.path), "subscribePattern": "orders.*", "startingOffsets": "earliest"}
    planner = StreamPlanner.open(parse_stream_options(given))
    with caplog.at_level(logging.WARNING):
        end = planner.initial_offset()
        for _ in range(3):
            end = planner.latest_offset(end, limited=True)
    planner.close()
    assert end["offsets"] == {"orders": {"0": 100}}
    assert [record.getMessage().count("'orders_state'") for record in caplog.records] == [1]


@pytest.mark.parametrize("named", [{"subscribe": "orders,orders_state"}, {"assign": '{"orders_state":[0]}'}])
def test_naming_a_topic_that_cannot_be_read_is_refused(
    with_compaction_topic: StoreBuilder, named: dict[str, str]
) -> None:
    given = {"path": str(with_compaction_topic.path)} | named
    planner = StreamPlanner.open(parse_stream_options(given))
    with pytest.raises(UnsupportedStore, match="orders_state"):
        planner.initial_offset()
    planner.close()
    with pytest.raises(UnsupportedStore, match="orders_state"):
        CommitLogBatchReader(parse_batch_options(given), check_schema(PLACE)).partitions()
