"""Every plan of a query rests on what the store held at one moment, while the owner deletes files and dispatches
batches between any two calls that the plan makes to the operating system. ``failOnDataLoss`` is true: nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from commitlog_store import StoreReader
from pyspark_commitlog.options.metadata import parse_metadata_options
from pyspark_commitlog.options.read import parse_batch_options, parse_stream_options
from pyspark_commitlog.source.batch_source import CommitLogBatchReader
from pyspark_commitlog.source.lookup import LookupTask
from pyspark_commitlog.source.metadata_source import MetadataReader, metadata_schema
from pyspark_commitlog.source.partitions import RangePartition
from pyspark_commitlog.source.schema import check_schema
from pyspark_commitlog.source.stream_planner import StreamPlanner
from tests.support.between_calls import change_before
from tests.support.growing_store import GrowingStore
from tests.support.long_runs import LONG_RUN_S, Progress

# Gets ready for a plan of the store or stores at a path, and gives the plan.
Plan = Callable[[str], Callable[[], Any]]
QUEUE_OFFSET = StructType([StructField("queueOffset", LongType())])
TOPICS = {"subscribe": "orders,payments"}
EARLIEST = {"startingOffsets": "earliest"}


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[GrowingStore]:
    with GrowingStore.open(tmp_path / "store") as growing:
        yield growing


def _ranges(partitions: Sequence[object]) -> dict[tuple[str | None, str, int], tuple[int, int]]:
    """The offsets that are read of each queue, by store: one range without a gap, and nothing twice."""
    found: dict[tuple[str | None, str, int], tuple[int, int]] = {}
    parts = [(one.store, *wanted) for one in partitions if isinstance(one, RangePartition) for wanted in one.ranges]
    for store, topic, queue_id, start, stop in sorted(parts, key=lambda part: (part[0] or "", *part[1:])):
        before = found.get((store, topic, queue_id))
        assert before is None or before[1] == start
        found[store, topic, queue_id] = (start if before is None else before[0], stop)
    return found


def _batch(**options: str) -> Plan:
    def begin(path: str) -> Callable[[], Any]:
        given = parse_batch_options({"path": path} | TOPICS | options)
        return lambda: _ranges(CommitLogBatchReader(given, check_schema(QUEUE_OFFSET)).partitions())

    return begin


def _planner(path: str, options: dict[str, str]) -> StreamPlanner:
    given = parse_stream_options({"path": path} | TOPICS | options)
    return StreamPlanner.open(given)


def _start(**options: str) -> Plan:
    def begin(path: str) -> Callable[[], Any]:
        planner = _planner(path, options)

        def plan() -> Any:
            with closing(planner):
                return _without_fences(planner.initial_offset())

        return plan

    return begin


def _first_batch(**options: str) -> Plan:
    """The first batch of a stream whose start was planned before."""

    def begin(path: str) -> Callable[[], Any]:
        planner = _planner(path, options)
        start = planner.initial_offset()

        def plan() -> Any:
            with closing(planner):
                return _without_fences(planner.latest_offset(start, limited=True))

        return plan

    return begin


def _without_fences(offset: Any) -> Any:
    if not isinstance(offset, dict):
        return offset
    return {name: _without_fences(value) for name, value in offset.items() if name != "fence"}


def _metadata(table: str) -> Plan:
    def begin(path: str) -> Callable[[], Any]:
        options = parse_metadata_options({"path": path, "metadata": table})
        assert options is not None
        schema = metadata_schema(table, of_stores=None not in options.stores)
        reader = MetadataReader(options, schema)
        parts = reader.partitions()
        return lambda: [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]

    return begin


def _lookup(path: str) -> Callable[[], Any]:
    task = LookupTask(path=path, topic="payments", columns=("queueOffset",), on_damage="raise")
    return lambda: [found.to_pylist() for found in task.run(iter([pa.array(["p", "q", None])]))]


OF_ONE_STORE: dict[str, Plan] = {
    "batch in pieces": _batch(maxBytesPerPartition="4k"),
    "batch by bytes and rows": _batch(minPartitions="7", maxRecordsPerPartition="9"),
    "lookup": _lookup,
}
PLANS: dict[str, Plan] = {
    "batch": _batch(),
    "batch by time": _batch(startingTimestamp="1", endingTimestamp="4000000000000"),
    "start of a stream": _start(**EARLIEST),
    "start at the end": _start(),
    "start by time": _start(startingTimestamp="1"),
    "first batch": _first_batch(**EARLIEST),
    "first batch by time": _first_batch(startingTimestamp="1"),
    "first batch with a limit": _first_batch(**EARLIEST, maxOffsetsPerTrigger="50"),
    "first batch with a limit of bytes": _first_batch(**EARLIEST, maxBytesPerTrigger="9k"),
    "topics": _metadata("topics"),
    "queues": _metadata("queues"),
}


def _check(growing: GrowingStore, begin: Plan, path: str, kind: str, call: int) -> int:
    return growing.check(kind, call, partial(begin, path))


@pytest.mark.parametrize("name", PLANS | OF_ONE_STORE)
def test_a_plan_is_that_of_one_moment(growing: GrowingStore, name: str) -> None:
    growing.check_some(partial(_check, growing, (PLANS | OF_ONE_STORE)[name], str(growing.path)))


@pytest.mark.parametrize("name", ["batch by time", "first batch with a limit"])
def test_a_plan_of_several_stores_is_that_of_one_moment_of_each(growing: GrowingStore, name: str) -> None:
    with GrowingStore.open(growing.path.parent / "other") as other:
        path = f"a={growing.path},b={other.path}"
        growing.check_some(partial(_check, growing, PLANS[name], path))


@pytest.mark.stress
@pytest.mark.timeout(LONG_RUN_S)
@pytest.mark.parametrize("name", PLANS | OF_ONE_STORE)
def test_a_plan_is_that_of_one_moment_whatever_comes_between_two_calls(
    growing: GrowingStore, name: str, progress: Progress
) -> None:
    begin = (PLANS | OF_ONE_STORE)[name]
    growing.check_all(partial(_check, growing, begin, str(growing.path)), progress)


@pytest.mark.stress
@pytest.mark.timeout(LONG_RUN_S)
@pytest.mark.parametrize("name", PLANS)
def test_a_plan_of_several_stores_is_that_of_one_moment_whatever_comes_between_two_calls(
    growing: GrowingStore, name: str, progress: Progress
) -> None:
    with GrowingStore.open(growing.path.parent / "other") as other:
        path = f"a={growing.path},b={other.path}"
        growing.check_all(partial(_check, growing, PLANS[name], path), progress)


class _Stream:
    """A stream that has read all messages so far, of one store or of two."""

    def __init__(self, path: str, **options: str) -> None:
        self.planner = _planner(path, EARLIEST | options)
        self._at = self.planner.initial_offset()
        self._read: dict[tuple[str | None, str, int], int] = {}
        self.read_on()

    def read_on(self) -> None:
        """Plan batch after batch until none is left; each begins where the one before has ended."""
        while (end := self.planner.latest_offset(self._at, limited=True)) != self._at:
            for queue, (start, stop) in _ranges(self.planner.partitions(self._at, end)).items():
                assert self._read.get(queue, start) == start
                self._read[queue] = stop
            self._at = end

    def check(self, growing: GrowingStore, kind: str, call: int) -> int:
        growing.grow()
        change = growing.prepare(kind)
        with change_before({call: change}) as calls:
            self.read_on()
        if not 1 <= call <= calls.made:
            change()
        self.read_on()
        ends = {
            (topic, queue_id): stop for (store, topic, queue_id), stop in self._read.items() if store in (None, "a")
        }
        with StoreReader.open(growing.path) as reader:
            for (topic, queue_id), stop in ends.items():
                assert stop == reader.queue_info(topic, queue_id).max_offset
        return calls.made


STREAMS: dict[str, dict[str, str]] = {
    "without a limit": {},
    "with a limit": {"maxOffsetsPerTrigger": "100"},
    "with a limit of bytes": {"maxBytesPerTrigger": "20k"},
}


@pytest.mark.parametrize(
    ("name", "several"),
    [
        *((name, False) for name in STREAMS),
        *(pytest.param(name, True, marks=() if name == "with a limit" else pytest.mark.stress) for name in STREAMS),
    ],
)
def test_a_stream_that_keeps_up_reads_everything_once(growing: GrowingStore, name: str, several: bool) -> None:
    with GrowingStore.open(growing.path.parent / "other") as other:
        path = f"a={growing.path},b={other.path}" if several else str(growing.path)
        stream = _Stream(path, **STREAMS[name])
        growing.check_some(partial(stream.check, growing), GrowingStore.HARMLESS)
        stream.planner.close()


@pytest.mark.stress
@pytest.mark.timeout(LONG_RUN_S)
@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_that_keeps_up_reads_everything_once_whatever_comes_between_two_calls(
    growing: GrowingStore, name: str, progress: Progress
) -> None:
    stream = _Stream(str(growing.path), **STREAMS[name])
    growing.check_all(partial(stream.check, growing), progress, GrowingStore.HARMLESS)
    stream.planner.close()
