"""Queues that are derived from a log keep every message at its offset, whatever is lost or damaged between."""

from __future__ import annotations

import numpy as np
import pytest

from commitlog_store.columnar.dispatch import DispatchRequests, dispatch_requests
from commitlog_store.columnar.scan import scan_records
from commitlog_store.errors import OffsetOutOfRange, QueueNotFound, TopicNotFound
from commitlog_store.format.consume_queue_unit import FILLER_SIZE
from commitlog_store.format.properties import INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET
from commitlog_store.queue.derived_queues import DerivedCatalog, DerivedQueue, QueueBuilder
from tests.store.columnar.log_stretches import as_array, record_of, stretch

_END = 2**62
_FAR = 10**12


class Built:
    """A builder that is fed records of queue 0 of ``orders`` by their queue offsets."""

    def __init__(self) -> None:
        self.builder = QueueBuilder()
        self.at = 0

    def add(self, *offsets: int, topic: str = "orders", properties: str = "") -> None:
        records = [record_of(topic, properties, queue_id=0, queue_offset=offset) for offset in offsets]
        data = stretch(records, self.at)
        self.builder.add(self._requests(data))
        self.at += len(data)

    def _requests(self, data: bytes) -> DispatchRequests:
        return dispatch_requests(scan_records(as_array(data), self.at, check_crc=True), ())

    def lose(self, size: int) -> None:
        self.builder.add_gap(size)
        self.at += size

    def queue(self, end: int = _END) -> DerivedQueue:
        (queue,) = self.builder.finish("log", end)
        return queue


def offsets_of(queue: DerivedQueue) -> list[int]:
    """The offsets at which a message stands."""
    low, high = queue.bounds()
    return [offset for offset in range(low, high) if queue.unit(offset) is not None]


def strays_of(built: Built) -> list[tuple[int, int]]:
    return [(stray.queue_offset, stray.records) for stray in built.builder.strays]


def test_a_whole_log_gives_whole_queues() -> None:
    built = Built()
    built.add(*range(5, 60))
    built.add(*range(60, 300))
    queue = built.queue()
    assert queue.bounds() == (5, 300)
    assert offsets_of(queue) == [*range(5, 300)]
    assert not built.builder.strays
    assert queue.last_unit()[0] == 299


def test_lost_records_become_fillers_so_that_offsets_keep_their_meaning() -> None:
    built = Built()
    built.add(0, 1, 2)
    built.lose(5000)
    built.add(6, 7)
    queue = built.queue()
    assert offsets_of(queue) == [0, 1, 2, 6, 7]
    (units,) = queue.units(0, 8)
    assert [tuple(unit) for unit in units[3:6].tolist()] == [(0, FILLER_SIZE, 0)] * 3
    assert not built.builder.strays


@pytest.mark.parametrize("far", [_FAR, 2**58, 0])
@pytest.mark.parametrize("place", [0, 1, 50, 99])
def test_one_damaged_queue_offset_makes_no_large_array_and_is_reported(far: int, place: int) -> None:
    built = Built()
    offsets = [*range(100, 200)]
    offsets[place] = far
    built.add(*offsets)
    queue = built.queue()
    assert offsets_of(queue) == [offset for offset in range(100, 200) if offset != 100 + place]
    assert strays_of(built) == [(far, 1)]


def test_a_queue_of_one_message_is_believed() -> None:
    built = Built()
    built.add(_FAR)
    assert built.queue().bounds() == (_FAR, _FAR + 1)


def test_a_jump_is_believed_when_as_much_of_the_log_is_lost() -> None:
    built = Built()
    built.add(0)
    built.lose(1 << 20)
    built.add(10_000)
    assert offsets_of(built.queue()) == [0, 10_000]


def test_a_jump_over_more_than_was_lost_is_not_believed() -> None:
    built = Built()
    built.add(0, 1)
    built.lose(200)
    built.add(10_000)
    assert offsets_of(built.queue()) == [0, 1]
    assert strays_of(built) == [(10_000, 1)]


def test_of_two_records_with_one_offset_the_first_counts() -> None:
    built = Built()
    built.add(0, 1, 2, 3)
    again = built.at
    built.add(2, 3, 4, 5)
    queue = built.queue()
    assert offsets_of(queue) == [*range(6)]
    place = queue.unit(3)
    assert place is not None
    assert place[0] < again
    assert strays_of(built) == [(2, 2)]


def test_records_after_the_end_are_left_out() -> None:
    built = Built()
    built.add(0, 1, 2)
    end = built.at
    built.add(3, 4)
    assert offsets_of(built.queue(end)) == [0, 1, 2]


def test_many_gaps_cost_no_message() -> None:
    built = Built()
    for start in range(0, 3000, 10):
        built.add(*range(start, start + 9))
        built.lose(200)
    assert offsets_of(built.queue()) == [offset for offset in range(2999) if offset % 10 != 9]


def test_light_units_follow_one_another() -> None:
    built = Built()
    for number in range(3):
        names = f"{INNER_MULTI_DISPATCH}\x01%LMQ%one\x02{INNER_MULTI_QUEUE_OFFSET}\x01{7 + number}\x02"
        built.add(number, properties=names)
    queues = {queue.topic: queue for queue in built.builder.finish("log", _END)}
    assert queues["%LMQ%one"].bounds() == (7, 10)
    assert queues["orders"].bounds() == (0, 3)
    assert queues["%LMQ%one"].unit(8) == queues["orders"].unit(1)


def test_a_topic_that_no_store_has_is_a_stray() -> None:
    built = Built()
    built.add(0, 1)
    built.add(0, topic="or ders")
    built.add(2)
    assert offsets_of(built.queue()) == [0, 1, 2]
    assert [(stray.topic, stray.records) for stray in built.builder.strays] == [("or ders", 1)]


@pytest.mark.parametrize("lost", [False, True])
def test_messages_are_found_by_their_place_in_the_log(lost: bool) -> None:
    built = Built()
    built.add(*range(10))
    if lost:
        built.lose(4000)
    built.add(*range(15 if lost else 10, 30))
    queue = built.queue()
    low, high = queue.bounds()
    places = {offset: unit[0] for offset in range(low, high) if (unit := queue.unit(offset)) is not None}
    for start, stop in ((0, 30), (3, 28), (12, 13)):
        for wanted in (0, places[5], places[5] + 1, places[20], places[29] + 1):
            found = [offset for offset in range(start, stop) if places.get(offset, -1) >= wanted]
            assert queue.first_offset_from(wanted, start, stop) == (found[0] if found else stop)


def test_units_outside_the_queue_are_refused() -> None:
    built = Built()
    built.add(5, 6)
    queue = built.queue()
    assert queue.unit(4) is None
    assert queue.unit(7) is None
    with pytest.raises(OffsetOutOfRange, match=r"available are \[5, 7\)"):
        list(queue.units(4, 6))
    assert [len(units) for units in queue.units(5, 7, chunk=1)] == [1, 1]


def test_a_catalog_names_what_it_lacks() -> None:
    built = Built()
    built.add(0)
    catalog = DerivedCatalog("/store", [built.queue()])
    assert catalog.topics() == ["orders"]
    assert catalog.queue_ids("orders") == [0]
    with pytest.raises(TopicNotFound, match="audit"):
        catalog.queue_ids("audit")
    with pytest.raises(QueueNotFound, match="queue 3"):
        catalog.bounds("orders", 3)


def test_a_message_takes_about_20_bytes() -> None:
    built = Built()
    count = 1 << 16
    built.builder.add(_many(count))
    (units,) = built.queue().units(0, count)
    assert units.nbytes == 20 * count


def _many(count: int) -> DispatchRequests:
    numbers = np.arange(count, dtype=np.int64)
    return DispatchRequests(
        physical_offsets=numbers * 100,
        sizes=np.full(count, 100, np.int32),
        queue_ids=np.zeros(count, np.int32),
        queue_offsets=numbers,
        store_timestamps=numbers,
        sys_flags=np.zeros(count, np.int32),
        topic_codes=np.zeros(count, np.int32),
        tags_codes=numbers,
        topics=["orders"],
    )
