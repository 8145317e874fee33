"""What the listener counts of queries that Spark runs: read, filtered and lost messages, and lag, by source."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pyspark_commitlog.listener import BatchNumbers, CommitLogLagListener, Lag
from tests.connector.source.planned_query import filled
from tests.connector.source.sized_store import NewStore, SizedStore
from tests.connector.source.spark_helpers import Batches, stream
from tests.support.store_builder import StoreBuilder
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# The newest message of a store of SizedStore is some milliseconds after 1,700,000,000 s.
NOW_S = 1_700_000_060.0


class Recorder(CommitLogLagListener):
    """Keeps what the listener is given, by query."""

    def __init__(self, **options: Any) -> None:
        super().__init__(clock=lambda: NOW_S, **options)
        self.batches: dict[str, list[BatchNumbers]] = {}
        self.lags: dict[str, list[Lag]] = {}
        self.progress_events = 0
        self.ended: list[str] = []

    def on_lag(self, query: str, batch_id: int, lag: Any) -> None:
        self.lags.setdefault(query, []).append(lag)

    def on_batch(self, query: str, batch_id: int, numbers: BatchNumbers) -> None:
        self.batches.setdefault(query, []).append(numbers)

    def onQueryProgress(self, event: Any) -> None:
        super().onQueryProgress(event)
        self.progress_events += 1

    def onQueryTerminated(self, event: Any) -> None:
        super().onQueryTerminated(event)
        self.ended.append(str(event.id))


@contextmanager
def listening(spark: SparkSession, listener: Recorder) -> Iterator[Recorder]:
    spark.streams.addListener(listener)
    try:
        yield listener
    finally:
        spark.streams.removeListener(listener)


def orders(spark: SparkSession, path: Path | str, **options: str) -> DataFrame:
    given = {"subscribe": "orders", "startingOffsets": "earliest", "failOnDataLoss": "false"}
    return stream(spark, Path(path), "queueOffset bigint", **(given | options))


def run(batches: Batches, frame: DataFrame, name: str, recorder: Recorder) -> list[Any]:
    """Run a query to its end; returns once the listener has heard of it."""
    ended = len(recorder.ended)
    writer = frame.writeStream.queryName(name).foreachBatch(batches._take)
    query = writer.option("checkpointLocation", str(batches.checkpoint)).trigger(availableNow=True).start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
        wait_for(lambda: len(recorder.ended) > ended)
    return batches.rows


def mixed(path: Path) -> StoreBuilder:
    """20 messages of 200 bytes, five in a file of the log: every other one is open, the others are paid."""
    builder = StoreBuilder(path, log_file_size=1024)
    properties = len("TAGS\x01paid\x02region\x01eu\x02")
    bodies = [b"x" * (200 - 91 - len("orders") - properties)] * 20
    regions = ["region\x01eu\x02", "region\x01us\x02"] * 10
    builder.append("orders", 0, bodies, tags=["paid", "open"] * 10, more=regions)
    return builder


@pytest.mark.parametrize("option", [{"tags": "paid"}, {"filter": "region = 'eu'"}, {"keys": "k"}, {}])
def test_delivered_filtered_and_lost_messages_are_numbers_of_their_own(
    spark: SparkSession, tmp_path: Path, option: dict[str, str]
) -> None:
    """Retention takes the first five messages after the batch was planned, and before its tasks read them."""
    builder = mixed(tmp_path / "store")
    batches = Batches(tmp_path / "checkpoint")
    batches.before = lambda _: builder.delete_log_files(1)
    with listening(spark, Recorder()) as recorder:
        rows = run(batches, orders(spark, builder.path, **option), "shop", recorder)
    (numbers,) = recorder.batches["shop"]
    matching = 15 if not option else 0 if "keys" in option else len(range(6, 20, 2))
    assert len(rows) == matching
    assert sum(numbers.read.values()) == matching
    assert (numbers.filtered, numbers.lost) == (
        {"orders": 15 - matching} if matching < 15 else {},
        {("orders", 0): 5},
    )
    assert (numbers.unaccounted, numbers.skipped) == (0, {})


def test_each_source_of_a_query_has_its_own_numbers(spark: SparkSession, new_store: NewStore, tmp_path: Path) -> None:
    """Both stores have the same topic, and both queries over the first one read the same offsets."""
    prometheus = pytest.importorskip("prometheus_client")
    registry = prometheus.CollectorRegistry()
    first, second = filled(new_store), filled(new_store, count=5)
    limited = orders(spark, first.path, maxOffsetsPerTrigger="8")
    both = limited.union(orders(spark, second.path)).union(orders(spark, first.path, tags="open"))
    batches = Batches(tmp_path / "checkpoint")
    with listening(spark, Recorder(registry=registry)) as recorder:
        lag: dict[tuple[int, str, str], Any] = {}
        sources = (str(first.path), str(second.path), f"{first.path} #2")

        def remember(batch_id: int) -> None:
            """The gauges that the batch before has left."""
            wait_for(lambda: recorder.progress_events >= batch_id)
            for source in sources:
                for name in ("messages", "seconds"):
                    labels = {"query": "shop", "source": source, "topic": "orders", "queue": "0"}
                    lag[batch_id, source, name] = registry.get_sample_value(f"commitlog_lag_{name}", labels)

        batches.before = remember
        rows = run(batches, both, "shop", recorder)
        remember(3)
    assert len(rows) == 20 + 10
    read = {
        source: sum(sum(one.read.values()) for one in recorder.batches["shop"] if one.source == source)
        for source in sources
    }
    filtered = [(one.source, one.filtered) for one in recorder.batches["shop"] if one.filtered]
    assert read == {sources[0]: 20, sources[1]: 10, sources[2]: 0}
    assert filtered == [(sources[2], {"orders": 20})]
    assert [lag[1, source, "messages"] for source in sources] == [6, 0, 0]
    assert lag[1, sources[0], "seconds"] == pytest.approx(60, abs=1)
    assert [lag[1, source, "seconds"] for source in sources[1:]] == [0, 0]
    assert {value for (batch, _, _), value in lag.items() if batch == 3} == {None}, "a query that ended has no lag"


def test_queries_of_one_session_do_not_mix_their_numbers(
    spark: SparkSession, new_store: NewStore, tmp_path: Path
) -> None:
    first, second = filled(new_store), filled(new_store, count=5)
    with listening(spark, Recorder()) as recorder:
        queries = []
        for name, store in (("one", first), ("two", second)):
            writer = orders(spark, store.path).writeStream.queryName(name).format("noop")
            queries.append(writer.option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True).start())
        for query in queries:
            query.processAllAvailable()
            query.stop()
        wait_for(lambda: len(recorder.ended) == 2)
    assert recorder.batches == {
        "one": [BatchNumbers({"orders": 20}, {}, filtered={}, lost={}, damaged={}, source=str(first.path))],
        "two": [BatchNumbers({"orders": 10}, {}, filtered={}, lost={}, damaged={}, source=str(second.path))],
    }


def test_losses_in_one_of_several_stores_are_its_own(spark: SparkSession, new_store: NewStore, tmp_path: Path) -> None:
    first, second = filled(new_store), filled(new_store, count=5)
    path = f"a={first.path},b={second.path}"
    batches = Batches(tmp_path / "checkpoint")
    batches.before = lambda _: first.expire("orders", 0, 5)
    options = {"subscribe": "orders", "startingOffsets": "earliest", "failOnDataLoss": "false"}
    frame = spark.readStream.format("commitlog").options(**options).load(path)
    with listening(spark, Recorder()) as recorder:
        rows = run(batches, frame, "shop", recorder)
    (numbers,) = recorder.batches["shop"]
    assert len(rows) == 25
    assert (numbers.read, numbers.lost) == ({"a/orders": 15, "b/orders": 10}, {("a/orders", 0): 5})
    assert numbers.source == path


def test_a_batch_that_is_read_in_parts_or_twice_counts_once(
    spark: SparkSession, new_store: NewStore, tmp_path: Path
) -> None:
    """Spark itself counts rows again each time a function of foreachBatch reads them."""
    store = filled(new_store)

    def look_first(frame: DataFrame, _: int) -> None:
        assert not frame.isEmpty()
        assert frame.count() == len(frame.collect()) == 20

    with listening(spark, Recorder()) as recorder:
        writer = orders(spark, store.path).writeStream.queryName("shop").foreachBatch(look_first)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.processAllAvailable()
        query.stop()
        wait_for(lambda: recorder.ended)
    (numbers,) = recorder.batches["shop"]
    assert (numbers.read, numbers.unaccounted) == ({"orders": 20}, 0)


def test_a_query_that_takes_some_rows_does_not_count_the_others_as_lost(
    spark: SparkSession, new_store: NewStore, tmp_path: Path
) -> None:
    store = filled(new_store, count=40)

    def look(frame: DataFrame, _: int) -> None:
        frame.take(1)

    with listening(spark, Recorder()) as recorder:
        frame = orders(spark, store.path, minPartitions="8")
        writer = frame.writeStream.queryName("shop").foreachBatch(look)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.processAllAvailable()
        query.stop()
        wait_for(lambda: recorder.ended)
    (numbers,) = recorder.batches["shop"]
    assert (sum(numbers.read.values()) + numbers.unaccounted, numbers.lost) == (80, {})


def test_a_query_that_is_started_again_goes_on_counting(
    spark: SparkSession, new_store: NewStore, tmp_path: Path
) -> None:
    """The second batch fails once: Spark runs it again, and reports neither the first attempt nor the queues' ends."""
    prometheus = pytest.importorskip("prometheus_client")
    registry = prometheus.CollectorRegistry()
    store = filled(new_store)
    batches = Batches(tmp_path / "checkpoint")
    labels = {"query": "shop", "source": str(store.path), "topic": "orders"}

    def read() -> Any:
        return registry.get_sample_value("commitlog_read_messages_total", labels)

    frame = orders(spark, store.path, maxOffsetsPerTrigger="8")
    batches.fail_on = 1
    with listening(spark, Recorder(registry=registry)) as recorder:
        with pytest.raises(Exception, match="the sink fails"):
            run(batches, frame, "shop", recorder)
        assert read() == 8
        lag = registry.get_sample_value("commitlog_lag_messages", labels | {"queue": "0"})
        assert lag is None
    batches.fail_on = None
    with listening(spark, Recorder()) as recorder:  # of a driver that has not seen the query before
        recorder._metrics = None
        run(batches, frame, "shop", recorder)
    assert [(one.read, one.source) for one in recorder.batches["shop"]] == [
        ({"orders": 8}, str(store.path)),
        ({"orders": 4}, str(store.path)),
    ]


def test_damaged_messages_that_are_skipped_count_as_such(
    spark: SparkSession, new_store: NewStore, tmp_path: Path
) -> None:
    store: SizedStore = filled(new_store)
    place = store.places["orders", 1][3]
    file = sorted((store.path / "commitlog").iterdir())[place // 1024]
    with file.open("r+b") as log:
        log.seek(place % 1024 + 4)
        log.write(b"\xff\xff\xff\xff")  # the magic code
    batches = Batches(tmp_path / "checkpoint")
    with listening(spark, Recorder()) as recorder:
        rows = run(batches, orders(spark, store.path, corruptRecordMode="skip"), "shop", recorder)
    (numbers,) = recorder.batches["shop"]
    assert len(rows) == 19
    assert (numbers.read, numbers.damaged, numbers.filtered) == ({"orders": 19}, {"orders": 1}, {})
