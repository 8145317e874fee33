"""Streams through a real Spark: nothing twice, nothing skipped, and loss is never silent."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chispa import assert_df_equality

from commitlog_store import ALL_COLUMNS, StoreReader, commit_group_offsets
from commitlog_store.packed_json import unpack_json
from pyspark_commitlog.options.subscription import QueueKey
from tests.connector.source.spark_helpers import ORDER, Batches, expected_frame, stream, struct
from tests.support.spark_versions import with_read_limits
from tests.support.store_builder import StoreBuilder
from tests.support.waiting import WAIT_LIMIT_S, wait_for

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


PLACE = "topic string, queueId int, queueOffset bigint, storeSize int"
FROM_START = {"subscribe": "orders", "startingOffsets": "earliest"}


@pytest.fixture
def batches(tmp_path: Path) -> Batches:
    return Batches(tmp_path / "checkpoint")


@pytest.fixture
def store(tmp_path: Path) -> StoreBuilder:
    """Two queues with fifty messages each."""
    builder = StoreBuilder(tmp_path / "store", log_file_size=16 << 10)
    builder.append("orders", [0, 1], [b"x" * 200] * 100)
    return builder


def places(rows: list[Row]) -> list[tuple[str, int, int]]:
    return sorted((row.topic, row.queueId, row.queueOffset) for row in rows)


def all_places(store: StoreBuilder) -> list[tuple[str, int, int]]:
    return sorted((*key, offset) for key, end in store.next_offsets.items() for offset in range(end))


def failure_of(action: Callable[[], object]) -> str:
    from pyspark.errors import StreamingQueryException

    with pytest.raises(StreamingQueryException) as caught:
        action()
    return str(caught.value)


def test_a_stream_with_limits_reads_every_message_of_a_real_store(
    spark: SparkSession, golden_533: Path, expected_533: dict[str, list[dict[str, Any]]], batches: Batches
) -> None:
    messages = [one for one in expected_533["message"] if one["topic"] != "SCHEDULE_TOPIC_XXXX"]
    frame = stream(
        spark,
        golden_533,
        struct(ALL_COLUMNS),
        subscribePattern=".*",
        startingOffsets="earliest",
        maxOffsetsPerTrigger="300",
    )
    batches.run(frame)
    sizes = [len(rows) for _, rows in sorted(batches.by_id.items())]
    assert all(size == 300 for size in sizes[:-1])
    read = spark.createDataFrame(batches.rows, struct(ALL_COLUMNS))
    assert_df_equality(read.sort(*ORDER), expected_frame(spark, messages, ALL_COLUMNS))
    assert batches.run(frame) == []


def test_a_restart_neither_repeats_nor_skips(spark: SparkSession, store: StoreBuilder, batches: Batches) -> None:
    frame = stream(spark, store.path, PLACE, **FROM_START, maxOffsetsPerTrigger="30")
    batches.run(frame)
    store.append("orders", [0, 1, 2], [b"y"] * 30)
    batches.run(frame)
    assert places(batches.rows) == all_places(store)


@with_read_limits
def test_a_query_starts_at_a_groups_positions_and_another_group_follows_it(
    spark: SparkSession, store: StoreBuilder, batches: Batches
) -> None:
    commit_group_offsets(store.path, "billing", {("orders", 0): 40, ("orders", 1): 45})
    options = {"subscribe": "orders", "startingGroup": "billing", "commitGroup": "spark"}
    frame = stream(spark, store.path, PLACE, **options, maxOffsetsPerTrigger="10")
    batches.run(frame)
    assert places(batches.rows) == [place for place in all_places(store) if place[2] >= (40 if place[1] == 0 else 45)]
    with StoreReader.open(store.path) as reader:
        assert reader.group_offsets("spark") == {("orders", 0): 50, ("orders", 1): 50}
        assert reader.group_offsets("billing") == {("orders", 0): 40, ("orders", 1): 45}


def test_damaged_records_are_skipped_when_asked_to(spark: SparkSession, store: StoreBuilder, batches: Batches) -> None:
    """Also the last message of a batch, whose record is to identify the position."""
    end = store.position
    damaged = store.append("orders", [0, 1], [b"y" * 200] * 2)
    with open(store.path / "commitlog" / f"{end // (16 << 10) * (16 << 10):020d}", "r+b") as file:
        file.seek(int(damaged[0]) % (16 << 10))
        file.write(b"junk")
    frame = stream(spark, store.path, PLACE, **FROM_START, corruptRecordMode="skip")
    batches.run(frame)
    store.append("orders", [0, 1], [b"z"] * 10)
    batches.run(frame)
    assert places(batches.rows) == [place for place in all_places(store) if place != ("orders", 0, 50)]


def test_limits_in_bytes_are_exact(spark: SparkSession, store: StoreBuilder, batches: Batches) -> None:
    frame = stream(spark, store.path, PLACE, **FROM_START, maxBytesPerTrigger="8k")
    batches.run(frame)
    sizes = [sum(row.storeSize for row in rows) for _, rows in sorted(batches.by_id.items())]
    largest = max(row.storeSize for row in batches.rows)
    assert all(8192 - largest < size <= 8192 for size in sizes[:-1])
    assert places(batches.rows) == all_places(store)


def test_trigger_once_reads_everything_whatever_the_limits(
    spark: SparkSession, store: StoreBuilder, batches: Batches
) -> None:
    batches.run(stream(spark, store.path, PLACE, **FROM_START, maxOffsetsPerTrigger="3"), once=True)
    assert places(batches.by_id[0]) == all_places(store)


@with_read_limits
def test_a_first_batch_that_failed_is_run_again_as_it_was(
    spark: SparkSession, store: StoreBuilder, batches: Batches
) -> None:
    """Spark keeps the end of batch 0 and asks again where the query starts; by then the answer is another one."""
    batches.fail_on = 0
    with pytest.raises(Exception, match="the sink fails"):
        batches.run(stream(spark, store.path, PLACE, **FROM_START, maxOffsetsPerTrigger="30"))
    store.append("orders", [0, 1], [b"y"] * 10)
    batches.fail_on = None
    batches.run(stream(spark, store.path, PLACE, subscribe="orders", startingOffsets="latest"))
    assert len(batches.by_id[0]) == 30
    assert places(batches.rows) == all_places(store)


def test_new_queues_and_topics_are_read_from_their_start_while_the_query_runs(
    spark: SparkSession, store: StoreBuilder, batches: Batches
) -> None:
    frame = stream(spark, store.path, PLACE, subscribePattern="orders.*")
    query = batches.start(frame, processingTime="50 milliseconds")
    try:
        wait_for(lambda: 0 in batches.by_id)
        store.append("orders", 5, [b"a"] * 3)
        store.append("orders_eu", 0, [b"b"] * 2)
        store.append("other", 0, [b"b"] * 2)
        wait_for(lambda: len(batches.rows) >= 5)
        store.append("orders", 0, [b"c"])
        wait_for(lambda: len(batches.rows) >= 6)
    finally:
        query.stop()
    assert places(batches.rows) == [
        ("orders", 0, 50),
        *[("orders", 5, offset) for offset in range(3)],
        ("orders_eu", 0, 0),
        ("orders_eu", 0, 1),
    ]


def test_available_now_ends_though_more_keeps_coming(
    spark: SparkSession, store: StoreBuilder, batches: Batches
) -> None:
    """With every batch that is read, more comes than a batch takes."""
    wanted = all_places(store)
    batches.before = lambda _: store.append("orders", [0, 1, 2], [b"z"] * 60)
    batches.run(stream(spark, store.path, PLACE, **FROM_START, maxOffsetsPerTrigger="40"))
    batches.before = None
    read = places(batches.rows)
    assert set(wanted) <= set(read) <= set(all_places(store))
    batches.run(stream(spark, store.path, PLACE, **FROM_START))
    assert places(batches.rows) == all_places(store)


# -- loss --------------------------------------------------------------------------------------------------------------


@with_read_limits
@pytest.mark.parametrize("fail", [True, False])
@pytest.mark.parametrize("planned", [True, False])
def test_retention_ahead_of_a_running_query_is_lost_data(
    spark: SparkSession, store: StoreBuilder, batches: Batches, planned: bool, fail: bool
) -> None:
    """More is written, and deleted before the query has read it: after that batch was planned, or before."""

    def overtake(batch_id: int) -> None:
        if batch_id == 1:
            store.append("orders", 0, [b"y" * 1000] * 60)
            store.delete_log_files(4)

    store.append("orders", 1, [b"first"])
    if planned:
        batches.before = overtake
    else:
        batches.after = overtake
    frame = stream(spark, store.path, PLACE, **FROM_START, maxOffsetsPerTrigger="50", failOnDataLoss=str(fail))
    query = batches.start(frame, processingTime="50 milliseconds")
    if fail:
        message = failure_of(lambda: query.awaitTermination(WAIT_LIMIT_S))
        assert "DataLossError" in message
        wanted = "[25, 50)" if planned else "[50, 110)"
        assert f"wanted offsets {wanted}, available are [" in message
        return
    try:
        wait_for(lambda: ("orders", 0, 109) in places(batches.rows))
    finally:
        query.stop()
    offsets = [row.queueOffset for row in batches.rows if row.queueId == 0]
    missing = set(range(110)) - set(offsets)
    assert offsets == sorted(set(offsets))
    assert missing == set(range(25 if planned else 50, max(missing) + 1))


@pytest.mark.parametrize("fail", [True, False])
def test_a_store_restored_from_an_older_copy_that_grew_again_is_lost_data(
    spark: SparkSession, tmp_path: Path, batches: Batches, fail: bool
) -> None:
    path = tmp_path / "store"
    first = StoreBuilder(path)
    first.append("orders", [0, 1], [b"x" * 200] * 100)
    older = Path(shutil.copytree(path, tmp_path / "older"))
    position, ends = first.position, dict(first.next_offsets)
    first.append("orders", [0, 1], [b"read and lost"] * 20)
    batches.run(stream(spark, path, PLACE, **FROM_START))
    shutil.rmtree(path)
    older.rename(path)

    restored = StoreBuilder(path, next_offsets=ends)
    restored.position = position
    frame = stream(spark, path, PLACE, **FROM_START, failOnDataLoss=str(fail))
    if fail:
        message = failure_of(lambda: batches.run(frame))
        assert "TailLostError" in message
        assert "ends at 50" in message
        restored.append("orders", [0, 1], [b"another text"] * 40)
        message = failure_of(lambda: batches.run(frame))
        assert "TailLostError" in message
        assert "the message at offset 59 is not the one" in message
        return
    assert batches.run(frame) == []
    restored.append("orders", [0, 1], [b"another text"] * 40)
    assert places(batches.run(frame)) == [
        ("orders", queue_id, offset) for queue_id in (0, 1) for offset in range(50, 70)
    ]


# -- progress ----------------------------------------------------------------------------------------------------------


@with_read_limits
def test_progress_and_the_listener_report_the_lag_of_the_query(
    spark: SparkSession, store: StoreBuilder, batches: Batches
) -> None:
    from pyspark_commitlog.listener import CommitLogLagListener

    heard: list[tuple[int, dict[QueueKey, int]]] = []

    class Listener(CommitLogLagListener):
        def on_lag(self, query: str, batch_id: int, lag: Mapping[QueueKey, int]) -> None:
            super().on_lag(query, batch_id, lag)
            heard.append((batch_id, dict(lag)))

    listener = Listener()
    spark.streams.addListener(listener)
    try:
        query = batches.start(stream(spark, store.path, PLACE, **FROM_START, maxOffsetsPerTrigger="60"))
        assert query.awaitTermination(WAIT_LIMIT_S)
        wait_for(lambda: len(heard) >= 2)
    finally:
        spark.streams.removeListener(listener)
    assert heard[:2] == [
        (0, {("orders", 0): 20, ("orders", 1): 20}),
        (1, {("orders", 0): 0, ("orders", 1): 0}),
    ]
    source = json.loads(query.recentProgress[0].json)["sources"][0]
    assert source["latestOffset"]["offsets"] == {"orders": {"0": 50, "1": 50}}
    assert source["endOffset"]["offsets"] == {"orders": {"0": 30, "1": 30}}


def test_the_checkpoint_holds_the_documented_offset(spark: SparkSession, store: StoreBuilder, batches: Batches) -> None:
    batches.run(stream(spark, store.path, PLACE, **FROM_START))
    offset = json.loads((batches.checkpoint / "offsets" / "0").read_text().splitlines()[2])
    assert offset["version"] == 1
    assert offset["offsets"] == {"orders": {"0": 50, "1": 50}}
    assert offset["from"] == {"orders": {"0": 0, "1": 0}}
    assert [len(fence) for fence in offset["fence"]["orders"].values()] == [2, 2]


def test_an_offset_of_many_queues_is_packed_and_one_of_an_older_version_is_read_on(
    spark: SparkSession, store: StoreBuilder, batches: Batches
) -> None:
    store.append("audit", range(260), [b"x"] * 520)
    frame = stream(spark, store.path, PLACE, subscribe="orders,audit", startingOffsets="earliest")
    batches.run(frame)
    file = batches.checkpoint / "offsets" / "0"
    *lines, packed = file.read_text().splitlines()
    value = json.loads(packed)
    assert value.keys() == {"version", "packed"}
    older = unpack_json(value["packed"])
    assert isinstance(older, dict)
    assert older["offsets"]["orders"] == {"0": 50, "1": 50}
    for checksum in file.parent.glob(".*.crc"):  # of what Spark wrote
        checksum.unlink()
    file.write_text("\n".join([*lines, json.dumps(older)]))
    for _ in range(2):
        store.append("orders", [0, 1, 2], [b"y"] * 30)
        batches.run(frame)
    assert places(batches.rows) == all_places(store)
    assert json.loads((batches.checkpoint / "offsets" / "1").read_text().splitlines()[2])["version"] == 3


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"subscribe": "orders", "endingOffsets": "latest"}, "a stream has no end"),
        ({"subscribe": "orders", "maxOffsetsPerTriger": "5"}, "Did you mean maxOffsetsPerTrigger?"),
        ({"subscribe": "orders", "startingOffsets": '{"orders":{"9":0}}'}, "names queue 9 of topic 'orders'"),
    ],
)
def test_an_impossible_stream_is_refused(
    spark: SparkSession, store: StoreBuilder, batches: Batches, options: dict[str, str], part: str
) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        batches.run(stream(spark, store.path, **options))
    assert part in str(caught.value)


def test_rows_of_a_queue_come_in_order(spark: SparkSession, store: StoreBuilder, batches: Batches) -> None:
    batches.run(stream(spark, store.path, PLACE, **FROM_START, maxBytesPerPartition="2k"))
    for queue_id, count in Counter(row.queueId for row in batches.rows).items():
        assert [row.queueOffset for row in batches.rows if row.queueId == queue_id] == list(range(count))
