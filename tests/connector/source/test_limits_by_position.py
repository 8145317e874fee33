"""``PositionStreamReader``, called as PySpark 4.0 and 4.1 call it: right after every restart, limited where it can."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Callable
from typing import Any

import pytest

from pyspark_commitlog.errors import SparkVersionError
from pyspark_commitlog.options.read import parse_stream_options
from pyspark_commitlog.source.limits_by_position import PositionStreamReader
from pyspark_commitlog.source.partitions import RangePartition
from pyspark_commitlog.source.schema import check_schema, default_schema
from tests.connector.source.planned_query import all_rows, filled
from tests.connector.source.sized_store import NewStore, SizedStore

Json = dict[str, Any]


class Spark40:
    """The calls of ``MicroBatchExecution`` 4.0, in its order; ``offsets`` and ``committed`` are the checkpoint."""

    def __init__(self, store: SizedStore, **options: str) -> None:
        self.options = {"path": str(store.path), "subscribe": "orders,audit", "startingOffsets": "earliest"} | options
        self.offsets: list[Json] = []
        self.committed = 0
        self.batches: list[list[tuple[str, int, int]]] = []
        self.reader: PositionStreamReader | None = None

    def start(self) -> None:
        """A new run, in a new process, of a query that was stopped or killed; a planned batch is repeated."""
        self.reader = self._new_reader()
        if self.offsets:
            self.reader.partitions(self._copy(self.offsets[-1]), self._copy(self.offsets[-1]))
        if self.committed < len(self.offsets):
            self.run_planned()

    def plan(self) -> bool:
        """Write the next batch to the log of offsets; False without one."""
        assert self.reader is not None
        end = self._copy(self.reader.latestOffset())
        if self.offsets and json.dumps(end) == json.dumps(self.offsets[-1]):
            return False
        self.offsets.append(end)
        return True

    def run_planned(self) -> None:
        self.batches[self.committed :] = [self.read()]
        self.committed += 1

    def read(self) -> list[tuple[str, int, int]]:
        assert self.reader is not None
        start = self.offsets[self.committed - 1] if self.committed else self.reader.initialOffset()
        partitions = self.reader.partitions(self._copy(start), self._copy(self.offsets[self.committed]))
        return [
            (topic, queue_id, offset)
            for partition in partitions
            if isinstance(partition, RangePartition)
            for topic, queue_id, begin, stop in partition.ranges
            for offset in range(begin, stop)
        ]

    def trigger(self) -> bool:
        if not self.plan():
            return False
        self.run_planned()
        return True

    @property
    def sizes(self) -> list[int]:
        return [len(batch) for batch in self.batches]

    @property
    def rows(self) -> list[tuple[str, int, int]]:
        return [row for batch in self.batches for row in batch]

    def _new_reader(self) -> PositionStreamReader:
        options = parse_stream_options(self.options)
        return PositionStreamReader(options, check_schema(default_schema(options)))

    def _copy(self, offset: Json) -> Json:
        """Spark keeps text only."""
        return json.loads(json.dumps(offset))  # type: ignore[no-any-return]


def append(store: SizedStore, count: int) -> None:
    for topic in ("orders", "audit"):
        store.append(topic, 0, [200] * count)


def test_the_first_batch_of_a_run_has_all_that_waits_and_the_others_are_limited(new_store: NewStore) -> None:
    store = filled(new_store)
    query = Spark40(store, maxOffsetsPerTrigger="6")
    query.start()
    query.trigger()
    append(store, 10)
    while query.trigger():
        pass
    assert query.sizes == [40, 6, 6, 6, 2]
    assert sorted(query.rows) == sorted(all_rows(store))


def test_once_and_available_now_read_everything_in_their_one_batch(new_store: NewStore) -> None:
    store = filled(new_store)
    query = Spark40(store, maxOffsetsPerTrigger="6", maxBytesPerTrigger="1k")
    for _ in range(3):
        query.start()
        query.trigger()
        append(store, 5)
    assert query.sizes == [40, 10, 10]


def test_after_a_clean_end_the_first_batch_starts_where_the_last_one_ended(new_store: NewStore) -> None:
    store = filled(new_store)
    query = Spark40(store)
    query.start()
    query.trigger()
    query.start()
    assert not query.trigger()
    append(store, 3)
    assert query.trigger()
    assert sorted(query.rows) == sorted(all_rows(store))


def test_a_trigger_without_messages_lets_the_limits_count(new_store: NewStore) -> None:
    """Once and availableNow ask a single time."""
    store = filled(new_store)
    query = Spark40(store, maxOffsetsPerTrigger="6")
    query.start()
    query.trigger()
    query.start()
    assert not query.trigger()
    append(store, 10)
    query.trigger()
    assert query.sizes == [40, 6]


def test_a_planned_batch_is_repeated_as_it_was_and_the_limits_hold_after_it(new_store: NewStore) -> None:
    store = filled(new_store)
    query = Spark40(store, maxOffsetsPerTrigger="6")
    query.start()
    query.trigger()
    append(store, 10)
    query.plan()
    planned = query.read()
    append(store, 10)
    query.start()
    assert query.batches[1] == planned
    query.trigger()
    assert query.sizes == [40, 6, 6]


def test_a_first_batch_that_was_planned_is_repeated_from_where_the_query_began(new_store: NewStore) -> None:
    """Spark asks again where the query starts, and by then ``latest`` is another offset."""
    store = filled(new_store)
    query = Spark40(store, startingOffsets="latest")
    query.start()
    query.plan()
    append(store, 5)
    query.start()
    assert query.sizes == [0]
    query.trigger()
    assert query.sizes == [0, 10]


def test_the_minimum_of_a_batch_delays_all_but_the_first(new_store: NewStore) -> None:
    store = filled(new_store)
    query = Spark40(store, minOffsetsPerTrigger="15")
    query.start()
    query.trigger()
    append(store, 5)
    assert not query.trigger()
    append(store, 5)
    assert query.trigger()
    assert query.sizes == [40, 20]


@pytest.mark.parametrize("seed", range(10))
def test_each_message_is_read_once_whatever_ends_the_runs(new_store: NewStore, seed: int) -> None:
    """A run ends before a batch is planned, after that, when it was run, or with a new queue in between."""
    chance = random.Random(seed)
    store = filled(new_store, count=3)
    query = Spark40(store, maxOffsetsPerTrigger="7")
    query.start()
    steps: list[Callable[[], object]] = [query.start, query.trigger, query.trigger, lambda: append(store, 4)]
    for step in range(40):
        if chance.random() < 0.1:
            store.append("orders", 2 + step, [200] * 2)
        if chance.random() < 0.2:
            # It dies with a planned batch, which may have been read.
            if query.plan() and chance.random() < 0.5:
                query.read()
            query.start()
        chance.choice(steps)()
    while query.trigger():
        pass
    assert sorted(query.rows) == sorted(all_rows(store))


def test_several_stores_are_read_as_one_is(new_store: NewStore) -> None:
    first, second = filled(new_store), filled(new_store)
    query = Spark40(first, path=f"a={first.path},b={second.path}", maxOffsetsPerTrigger="10")
    query.start()
    query.trigger()
    append(first, 5)
    append(second, 5)
    query.plan()
    query.start()
    while query.trigger():
        pass
    assert query.sizes == [80, 10, 10]


def test_a_group_gets_the_ends_of_batches_that_have_run(new_store: NewStore) -> None:
    from commitlog_store import StoreReader

    store = filled(new_store)
    query = Spark40(store, commitGroup="spark")

    def committed() -> int:
        with StoreReader.open(store.path) as reader:
            return reader.group_offsets("spark").get(("orders", 0), 0)

    query.start()
    query.plan()
    assert committed() == 0
    query.run_planned()
    append(store, 5)
    query.plan()
    assert committed() == 10
    query.run_planned()
    query.start()
    query.plan()
    assert committed() == 15


def test_a_batch_beyond_the_limits_is_logged(new_store: NewStore, caplog: pytest.LogCaptureFixture) -> None:
    query = Spark40(filled(new_store), maxOffsetsPerTrigger="6")
    with caplog.at_level(logging.WARNING):
        query.start()
        query.trigger()
    assert "reads all messages that wait; maxOffsetsPerTrigger applies from the second on" in caplog.text


def test_a_query_that_continues_refuses_the_wrapper_of_available_now(new_store: NewStore) -> None:
    """It asks for the end of its batch before Spark says where the query is."""
    query = Spark40(filled(new_store))
    query.start()
    query.trigger()
    reader = query._new_reader()
    reader.latestOffset()
    with pytest.raises(SparkVersionError, match=r"triggerAvailableNowWrapper\.enabled=true"):
        reader.partitions(query.offsets[-1], query.offsets[-1])
