"""A stream reads a store whose owner deletes old files beside it: an error, or a warning and what is left.

It is the same whether the stream reads the directory or asks a server of the owner.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from commitlog_store import MessageStore
from pyspark_commitlog.errors import DataLossError
from pyspark_commitlog.options.read import parse_stream_options
from pyspark_commitlog.source.schema import check_schema
from pyspark_commitlog.source.stream_planner import StreamPlanner
from pyspark_commitlog.source.task import ReadTask
from tests.store.retention.small_stores import SMALL, fill
from tests.store.serve.servers import served

SCHEMA = StructType([StructField("queueOffset", LongType())])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        fill(store, 100)
        yield store


@pytest.fixture(params=["directory", "address"])
def path(store: MessageStore, request: pytest.FixtureRequest) -> Iterator[str]:
    """Where the stream reads."""
    if request.param == "directory":
        yield store.path
        return
    with served(owned=store) as url:
        yield url


class _Stream:
    """A query that plans and reads one batch after the other."""

    def __init__(self, path: str, *, fail: bool) -> None:
        options = {"path": path, "subscribe": "orders", "startingOffsets": "earliest"}
        given = parse_stream_options(options | {"failOnDataLoss": str(fail).lower()})
        self._planner = StreamPlanner(given, clock=lambda: 0.0)
        self._start = self._planner.initial_offset()
        self._task = ReadTask(given, check_schema(SCHEMA))
        self._end = self._start

    def plan(self) -> None:
        self._end = self._planner.latest_offset(self._start, limited=False)

    def read(self) -> list[int]:
        partitions = self._planner.partitions(self._start, self._end)
        rows = [row for one in partitions for batch in self._task.read(one) for row in batch.column(0).to_pylist()]
        self._start = self._end
        return rows


def test_what_retention_took_between_planning_and_reading_is_lost_data(store: MessageStore, path: str) -> None:
    stream = _Stream(path, fail=True)
    stream.plan()
    store.clean(max_bytes=40_000)
    with pytest.raises(DataLossError, match=r"wanted offsets \[0, 100\)"):
        stream.read()


def test_without_fail_on_data_loss_the_rest_is_read_and_the_stream_goes_on(store: MessageStore, path: str) -> None:
    stream = _Stream(path, fail=False)
    stream.plan()
    store.clean(max_bytes=40_000)
    first = store.reader().queues("orders")[0].min_offset
    assert first > 0
    assert stream.read() == list(range(first, 100))
    fill(store, 20)
    store.clean(max_bytes=40_000)
    stream.plan()
    assert stream.read() == list(range(100, 120))


@pytest.mark.parametrize("fail", [True, False])
def test_what_retention_took_before_planning_is_lost_data_unless_that_is_allowed(
    store: MessageStore, path: str, fail: bool
) -> None:
    stream = _Stream(path, fail=fail)
    stream.plan()
    assert stream.read() == list(range(100))
    fill(store, 200)
    store.clean(max_bytes=40_000)
    first = store.reader().queues("orders")[0].min_offset
    assert first > 100
    if fail:
        with pytest.raises(DataLossError, match=rf"100.*{first}"):
            stream.plan()
    else:
        stream.plan()
        assert stream.read() == list(range(first, 300))


def test_a_stream_that_keeps_up_loses_nothing(store: MessageStore, path: str) -> None:
    stream = _Stream(path, fail=True)
    rows = []
    for _ in range(5):
        stream.plan()
        rows += stream.read()
        store.clean(max_bytes=20_000)
        fill(store, 30)
    assert rows == list(range(100 + 4 * 30))
