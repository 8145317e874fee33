"""Every answer of a reader is that of one moment, while the owner deletes files and dispatches batches between any two
of the reader's calls to the operating system.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from commitlog_store import GetMessageResult, GetMessageStatus, StoreReader, store_metadata
from commitlog_store.cli.look_commands import offsets_at
from commitlog_store.cli.summary import summarize
from commitlog_store.cli.times import Clock
from commitlog_store.errors import OffsetOutOfRange
from commitlog_store.queries.scan import ranges
from commitlog_store.queries.topic_rates import topic_rates
from tests.support.growing_store import GrowingStore
from tests.support.long_runs import LONG_RUN_S, Progress

Ask = Callable[[StoreReader], Any]
TOPICS = ["orders", "payments"]
QUEUES = [("orders", 0), ("orders", 1), ("orders", 2), ("payments", 0)]
OFFSETS = ["queueOffset"]


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[GrowingStore]:
    with GrowingStore.open(tmp_path / "store") as growing:
        yield growing


def _bounds_and_times(reader: StoreReader) -> Any:
    """Of several questions, all of one moment."""
    infos = [one for one in reader.queue_infos(QUEUES) if one.min_offset < one.max_offset]
    times = [reader.store_timestamp(one.topic, one.queue_id, one.min_offset) for one in infos]
    found = [reader.offset_by_time(one.topic, one.queue_id, times[0], bounds=one) for one in infos]
    return infos, times, found


def _rows_read(reader: StoreReader) -> list[int]:
    start = reader.queue_info("orders", 1).min_offset
    batches = reader.read("orders", 1, start, columns=OFFSETS)
    return [offset for batch in batches for offset in batch.column(0).to_pylist()]


def _pulled(reader: StoreReader) -> GetMessageResult:
    """The first messages that are found from a position on that retention may have removed by then."""
    found = reader.get_message("orders", 2, reader.queue_info("orders", 2).min_offset, 20)
    while found.status is not GetMessageStatus.FOUND:
        assert found.status in (GetMessageStatus.OFFSET_TOO_SMALL, GetMessageStatus.MESSAGE_WAS_REMOVING)
        found = reader.get_message("orders", 2, found.next_begin_offset, 20)
    assert [one.queue_offset for one in found.messages] == list(range(found.min_offset, found.next_begin_offset))
    return found


def _table(name: str) -> Ask:
    return lambda reader: store_metadata(reader.path, name).to_pylist()


def _info(reader: StoreReader) -> dict[str, Any]:
    found = summarize(reader, with_sizes=True, assessed=False).to_json()
    return {name: found[name] for name in ("topics", "minPhysicalOffset", "problems")}


ASKS: dict[str, Ask] = {
    "queues": lambda reader: reader.queues("orders"),
    "queue_infos": lambda reader: reader.queue_infos(QUEUES),
    "offset_by_time": lambda reader: reader.offset_by_time("orders", 0, 0),
    "offset_by_time, upper": lambda reader: reader.offset_by_time("orders", 0, 0, boundary="upper"),
    "several": lambda reader: reader.consistently(lambda: _bounds_and_times(reader)),
    "physical_bounds": lambda reader: reader.physical_bounds(),
    "query": lambda reader: [one.physical_offset for one in reader.query("payments", "p", limit=1000)],
    "query_keys": lambda reader: [
        row for batch in reader.query_keys("payments", ["p", "q"], columns=OFFSETS) for row in batch.to_pylist()
    ],
    "groups": lambda reader: reader.groups(now_ms=0),
    "batches": lambda reader: reader.batches(),
    "delay_levels": lambda reader: reader.delay_levels(),
    "pending_half_messages": lambda reader: reader.pending_half_messages(),
    "get_message": _pulled,
    "read": _rows_read,
    "scan": lambda reader: reader.scan("orders", since=0, columns=OFFSETS).read_all().column(0).to_pylist(),
    "info": _info,
    "stats": lambda reader: topic_rates(reader, TOPICS, now_ms=2**41),
    "offset-at": lambda reader: list(offsets_at(reader, TOPICS, 0, Clock())),
    "ranges of scan": lambda reader: ranges(reader, TOPICS, begin=0, end=2**41),
    "topics table": _table("topics"),
    "queues table": _table("queues"),
    "groups table": _table("groups"),
    "batches table": _table("batches"),
}
# What reads messages after their bounds were found may say that they are gone by then.
READS = {"read": OffsetOutOfRange, "scan": OffsetOutOfRange}


def _check(growing: GrowingStore, name: str, kind: str, call: int) -> int:
    """Of a reader that has looked at the store before; the number of calls that it made."""
    ask = ASKS[name]

    def truth() -> Any:
        with StoreReader.open(growing.path) as fresh:
            return ask(fresh)

    with StoreReader.open(growing.path) as reader:
        ask(reader)
        return growing.check(kind, call, lambda: partial(ask, reader), truth, READS.get(name, ()))


@pytest.mark.parametrize("name", ASKS)
def test_an_answer_is_that_of_one_moment(growing: GrowingStore, name: str) -> None:
    growing.check_some(partial(_check, growing, name))


@pytest.mark.stress
@pytest.mark.timeout(LONG_RUN_S)
@pytest.mark.parametrize("name", ASKS)
def test_an_answer_is_that_of_one_moment_whatever_comes_between_two_calls(
    growing: GrowingStore, name: str, progress: Progress
) -> None:
    growing.check_all(partial(_check, growing, name), progress)
