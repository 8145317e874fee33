"""Starts and ends by store time, queue by queue: which messages a batch and a stream read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from commitlog_store import StoreReader
from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.options.read import parse_batch_options, parse_stream_options
from pyspark_commitlog.source.batch_source import CommitLogBatchReader
from pyspark_commitlog.source.offset_rules import resolve_rule
from pyspark_commitlog.source.partitions import RangePartition
from pyspark_commitlog.source.schema import check_schema
from pyspark_commitlog.source.stream_planner import StreamPlanner
from tests.connector.source.spark_helpers import read
from tests.support.store_builder import FIRST_STORE_TIME, StoreBuilder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def store(tmp_path: Path) -> StoreBuilder:
    """100 messages a millisecond apart, taken in turn by the queues 0 and 1, and then one more in queue 1."""
    builder = StoreBuilder(tmp_path / "store")
    builder.append("orders", [0, 1], [b"x"] * 100)
    builder.append("orders", 1, [b"x"])
    return builder


def by_queue(*times: object) -> str:
    return json.dumps({"orders": {str(queue_id): time for queue_id, time in enumerate(times)}})


def bounds(store: StoreBuilder, **options: str) -> list[tuple[int, int]]:
    """The range that a batch reads, of each queue."""
    given = parse_batch_options({"path": str(store.path), "subscribe": "orders"} | options)
    with StoreReader.open(store.path) as reader:
        queues = given.subscription.bounds(reader).values()
        starts = resolve_rule(reader, queues, given.start_rule, given, which="starting")
        ends = resolve_rule(reader, queues, given.end_rule, given, which="ending")
    return [(starts[key], ends[key]) for key in sorted(starts)]


def test_each_queue_starts_and_ends_at_its_time(store: StoreBuilder) -> None:
    start = by_queue(FIRST_STORE_TIME + 20, FIRST_STORE_TIME + 41)
    end = by_queue(FIRST_STORE_TIME + 30, FIRST_STORE_TIME + 42)
    assert bounds(store, startingOffsetsByTimestamp=start) == [(10, 50), (20, 51)]
    assert bounds(store, startingOffsetsByTimestamp=start, endingOffsetsByTimestamp=end) == [(10, 15), (20, 21)]


def test_a_queue_that_the_json_leaves_out_is_read_whole(store: StoreBuilder) -> None:
    assert bounds(store, startingOffsetsByTimestamp=by_queue(FIRST_STORE_TIME + 20)) == [(10, 50), (0, 51)]
    assert bounds(store, endingOffsetsByTimestamp=by_queue(FIRST_STORE_TIME + 20)) == [(0, 10), (0, 51)]


def test_an_end_after_all_messages_is_the_end_of_the_queue(store: StoreBuilder) -> None:
    late = str(FIRST_STORE_TIME + 1000)
    assert bounds(store, endingTimestamp=late, startingOffsetsByTimestampStrategy="error") == [(0, 50), (0, 51)]


@pytest.mark.parametrize("option", ["startingTimestamp", "startingOffsetsByTimestamp"])
def test_a_start_after_all_messages_is_the_queues_end_or_an_error(store: StoreBuilder, option: str) -> None:
    late = FIRST_STORE_TIME + 100
    given = {option: by_queue(late, late) if option.endswith("ByTimestamp") else str(late)}
    assert bounds(store, **given) == [(50, 50), (50, 51)]
    with pytest.raises(OptionError, match=rf"{option}: topic 'orders', queue 0 has no message .*Strategy to latest"):
        bounds(store, **given, startingOffsetsByTimestampStrategy="error")


@pytest.mark.parametrize(
    ("given", "goes"),
    [
        (
            {"startingOffsets": '{"orders":{"0":10,"1":5}}', "endingTimestamp": str(FIRST_STORE_TIME + 12)},
            "from 10 to 6",
        ),
        (
            {"startingTimestamp": str(FIRST_STORE_TIME + 10), "endingOffsets": '{"orders":{"0":1,"1":6}}'},
            "from 5 to 1",
        ),
    ],
)
def test_of_a_queue_that_starts_after_its_end_nothing_is_read_and_a_warning_names_the_options(
    store: StoreBuilder, given: dict[str, str], goes: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = parse_batch_options({"path": str(store.path), "subscribe": "orders"} | given)
    schema = StructType([StructField("queueOffset", LongType())])
    (partition,) = CommitLogBatchReader(options, check_schema(schema)).partitions()
    assert cast("RangePartition", partition).ranges == (("orders", 1, 5, 6),)
    options_and_queues = f"Options {' and '.join(given)}: 1 of 2 queues start after their end, and nothing is read of"
    assert caplog.messages == [f"{options_and_queues} them; queue 0 of topic 'orders' would go {goes}."]


def test_several_stores_warn_once_each_of_queues_that_start_after_their_end(
    store: StoreBuilder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where planning looks at each store twice, to share out the partitions."""
    copy = shutil.copytree(store.path, tmp_path / "copy")
    options = parse_batch_options(
        {
            "path": f"a={store.path},b={copy}",
            "subscribe": "orders",
            "startingTimestamp": str(FIRST_STORE_TIME + 10),
            "endingOffsets": json.dumps({name: {"orders": {"0": 1, "1": 6}} for name in "ab"}),
            "minPartitions": "2",
        }
    )
    CommitLogBatchReader(options, check_schema(StructType([StructField("queueOffset", LongType())]))).partitions()
    assert [message.partition(" Options ")[0] for message in caplog.messages] == ["Store 'a':", "Store 'b':"]


def test_a_queue_that_does_not_exist_is_refused_by_name(store: StoreBuilder) -> None:
    with pytest.raises(OptionError, match="startingOffsetsByTimestamp names queue 2 of topic 'orders'"):
        bounds(store, startingOffsetsByTimestamp=by_queue(5, 5, 5))


def test_a_stream_starts_at_its_times_and_fails_without_a_match_if_it_is_to(store: StoreBuilder) -> None:
    given = {"path": str(store.path), "subscribe": "orders", "startingOffsetsByTimestamp": by_queue(FIRST_STORE_TIME)}
    planner = StreamPlanner.open(parse_stream_options(given))
    assert planner.initial_offset()["offsets"] == {"orders": {"0": 0, "1": 0}}
    planner.close()
    given["startingOffsetsByTimestamp"] = by_queue(FIRST_STORE_TIME + 100)
    planner = StreamPlanner.open(parse_stream_options(given))
    assert planner.initial_offset()["offsets"] == {"orders": {"0": 50, "1": 0}}
    planner.close()
    planner = StreamPlanner.open(parse_stream_options(given | {"startingOffsetsByTimestampStrategy": "error"}))
    with pytest.raises(OptionError, match="queue 0 has no message"):
        planner.initial_offset()
    planner.close()


def test_spark_reads_between_two_times(spark: SparkSession, store: StoreBuilder) -> None:
    # 2023-11-14T22:13:20Z is FIRST_STORE_TIME.
    frame = read(
        spark,
        store.path,
        "queueId int, queueOffset bigint",
        subscribe="orders",
        startingOffsetsByTimestamp=by_queue("2023-11-14T22:13:20.094Z", "2023-11-14T22:13:20.099Z"),
        endingTimestamp="2023-11-14 23:13:20.100+01:00",
    )
    assert sorted(map(tuple, frame.collect())) == [(0, 47), (0, 48), (0, 49), (1, 49)]


def test_a_strategy_without_a_time_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    given = {"path": "/store", "subscribe": "orders", "startingOffsetsByTimestampStrategy": "error"}
    for parse in (parse_batch_options, parse_stream_options):
        caplog.clear()
        parse(given | {"startingTimestamp": "1700000000000"})
        assert not caplog.text
        parse(given | {"startingOffsets": "earliest"})
        assert "Option startingOffsetsByTimestampStrategy has no effect without startingTimestamp" in caplog.text
