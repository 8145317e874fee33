"""Partitions: every message in exactly one, in order, and none larger than asked for."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_commitlog.source import partitions as partitions_module
from pyspark_commitlog.source.partitions import RangePartition, plan_partitions
from pyspark_commitlog.source.units_of_ranges import QueueRange
from tests.connector.source.sized_store import MIN_SIZE, NewStore, SizedStore

QUEUES = st.lists(st.lists(st.integers(MIN_SIZE, 3000), max_size=60), min_size=1, max_size=5)


def store_of(
    new_store: NewStore, sizes: Sequence[Sequence[int]], *, in_turns: bool = False, **settings: int
) -> SizedStore:
    store = new_store(**settings)
    store.append_queues("t", sizes, in_turns=in_turns)
    return store


def plan(
    store: SizedStore, max_bytes: int, min_partitions: int | None = None, ranges: Sequence[QueueRange] | None = None
) -> list[RangePartition]:
    return plan_partitions(
        store.reader, store.whole() if ranges is None else ranges, max_bytes=max_bytes, min_partitions=min_partitions
    )


def assert_complete(partitions: Sequence[RangePartition], wanted: Sequence[QueueRange]) -> None:
    """Every offset of every range once, and in order from one partition to the next."""
    reached = {(topic, queue_id): start for topic, queue_id, start, _ in wanted}
    for partition in partitions:
        assert partition.ranges
        assert len({(topic, queue_id) for topic, queue_id, _, _ in partition.ranges}) == len(partition.ranges)
        for topic, queue_id, start, stop in partition.ranges:
            assert start == reached[topic, queue_id] < stop
            reached[topic, queue_id] = stop
    assert reached == {(topic, queue_id): stop for topic, queue_id, _, stop in wanted}


def assert_within(store: SizedStore, partitions: Sequence[RangePartition], max_bytes: int) -> None:
    for partition in partitions:
        messages = sum(stop - start for *_, start, stop in partition.ranges)
        assert store.size_of(partition.ranges) <= max_bytes or messages == 1


@given(QUEUES, st.integers(1, 50_000), st.none() | st.integers(1, 9), st.integers(1, 40), st.booleans())
def test_partitions_hold_every_message_once_in_order_and_none_is_too_large(
    new_store: NewStore,
    sizes: list[list[int]],
    max_bytes: int,
    min_partitions: int | None,
    queue_file_units: int,
    in_turns: bool,
) -> None:
    store = store_of(new_store, sizes, in_turns=in_turns, queue_file_units=queue_file_units)
    partitions = plan(store, max_bytes, min_partitions)
    assert_complete(partitions, store.whole())
    assert_within(store, partitions, max_bytes)


def test_one_hot_queue_is_cut_evenly(new_store: NewStore) -> None:
    store = store_of(new_store, [[200] * 10_000], queue_file_units=3000)
    assert [store.size_of(partition.ranges) for partition in plan(store, 600_000)] == [500_000] * 4


def test_min_partitions_cuts_finer_than_max_bytes_asks_for(new_store: NewStore) -> None:
    store = store_of(new_store, [[200] * 900, [200] * 100])
    assert len(plan(store, 1 << 30)) == 1
    assert len(plan(store, 1 << 30, 10)) == 10


def test_more_partitions_than_messages_are_not_made(new_store: NewStore) -> None:
    assert len(plan(store_of(new_store, [[200, 200]]), 1 << 30, 50)) == 2


def test_up_to_32_queues_have_their_own_partitions(new_store: NewStore) -> None:
    # Just worth 32 tasks: 0.25 s for their bytes and 1.04 s for their rows.
    store = store_of(new_store, [[120] * 65_000] * 32, queue_file_units=100_000, log_file_size=256 << 20)
    assert len(plan(store, 1 << 30)) == 32


@pytest.mark.parametrize("queues", [1, 4, 32, 64])
def test_a_small_batch_is_one_partition_that_is_read_at_once(new_store: NewStore, queues: int) -> None:
    (partition,) = plan(store_of(new_store, [[200] * (1000 // queues)] * queues, in_turns=True), 1 << 30)
    assert len(partition.ranges) == queues
    assert partition.short == (queues > 1)


def test_partitions_of_a_small_batch_keep_to_their_number_and_size(new_store: NewStore) -> None:
    store = store_of(new_store, [[200] * 10] * 4)
    assert len(plan(store, 1 << 30, 4)) == 4
    assert_within(store, plan(store, 2000), 2000)


def test_a_batch_that_is_worth_two_tasks_has_two(new_store: NewStore) -> None:
    """Four queues, and as many messages as two tasks read while Spark starts them."""
    store = store_of(new_store, [[120] * 40_000] * 4, in_turns=True, queue_file_units=100_000, log_file_size=64 << 20)
    partitions = plan(store, 1 << 30)
    assert_complete(partitions, store.whole())
    assert [(len(one.ranges), one.side_by_side, one.short) for one in partitions] == [(4, True, False)] * 2


@pytest.mark.parametrize(("size", "count"), [(120, 9_000), (1 << 20, 9)], ids=["messages", "bytes"])
def test_ranges_of_many_messages_or_bytes_are_not_read_at_once(new_store: NewStore, size: int, count: int) -> None:
    store = store_of(new_store, [[size] * count] * 2, queue_file_units=100_000, log_file_size=64 << 20)
    (partition,) = plan(store, 1 << 30)
    assert len(partition.ranges) == 2
    assert not partition.short


def test_many_small_queues_share_partitions_evenly(new_store: NewStore) -> None:
    store = store_of(new_store, [[200 + queue_id % 7] * 3 for queue_id in range(2000)], queue_file_units=10)
    partitions = plan(store, 1 << 30)
    assert 9 <= len(partitions) <= 12
    sizes = [store.size_of(partition.ranges) for partition in partitions[:-1]]
    assert max(sizes) < 1.1 * min(sizes)


def test_partitions_of_many_large_queues_keep_to_the_size(new_store: NewStore) -> None:
    store = store_of(new_store, [[1000] * 20 for _ in range(100)])
    partitions = plan(store, 30_000)
    assert_within(store, partitions, 30_000)
    assert len(partitions) == 100


def test_an_empty_plan_has_no_partitions(new_store: NewStore) -> None:
    assert plan(store_of(new_store, [[]]), 1000) == []


@pytest.mark.parametrize("max_bytes", [1000, 300])
def test_partitions_can_be_pickled(new_store: NewStore, max_bytes: int) -> None:
    for partition in plan(store_of(new_store, [[200], [200]]), max_bytes):
        assert pickle.loads(pickle.dumps(partition)) == partition


def test_a_large_range_is_measured_once_and_only_cut_blocks_are_read_again(new_store: NewStore) -> None:
    store = store_of(new_store, [[120] * 300_000], queue_file_units=100_000, log_file_size=64 << 20)
    assert len(plan(store, 3_600_000)) == 10
    assert store.reader.calls["units"] == 1 + 9


# -- queues that lie among each other in the log ---------------------------------------------------------------------


def test_queues_of_one_stretch_of_the_log_are_cut_into_stretches_and_read_side_by_side(new_store: NewStore) -> None:
    store = store_of(new_store, [[500] * 400] * 4, in_turns=True)
    partitions = plan(store, 250_000)
    assert_complete(partitions, store.whole())
    assert [len(partition.ranges) for partition in partitions] == [4] * len(partitions)
    assert all(partition.side_by_side for partition in partitions)
    sizes = [store.size_of(partition.ranges) for partition in partitions]
    assert max(sizes) <= 250_000
    assert min(sizes) > 0.9 * max(sizes)


def test_stretches_do_not_overlap(new_store: NewStore) -> None:
    """What one task has to read of the log, no other task reads."""
    store = store_of(new_store, [[300 + 70 * queue_id] * 300 for queue_id in range(5)], in_turns=True)
    reached = 0
    for partition in plan(store, 100_000):
        first = min(store.places[topic, queue_id][start] for topic, queue_id, start, _ in partition.ranges)
        assert first >= reached
        reached = max(store.places[topic, queue_id][stop - 1] for topic, queue_id, _, stop in partition.ranges)


def test_queues_that_fit_one_partition_each_are_not_cut(new_store: NewStore) -> None:
    store = store_of(new_store, [[120] * 80_000] * 4, in_turns=True, queue_file_units=100_000, log_file_size=64 << 20)
    assert plan(store, 1 << 30) == [RangePartition((whole,)) for whole in store.whole()]


def test_queues_whose_log_is_fetched_are_cut_into_stretches(new_store: NewStore) -> None:
    """Also when each of them would fit one partition, and when they are less than half of the log."""
    store = store_of(new_store, [[120] * 80_000] * 4, in_turns=True, queue_file_units=100_000, log_file_size=64 << 20)
    for queues in (4, 2, 1):
        wanted = store.whole()[:queues]
        partitions = plan_partitions(store.reader, wanted, max_bytes=1 << 30, min_partitions=None, fetched=True)
        assert_complete(partitions, wanted)
        assert [len(one.ranges) for one in partitions] == [queues] * len(partitions)
        assert len(partitions) == {4: 4, 2: 2, 1: 1}[queues]


def test_queues_that_have_ended_are_not_asked_for_in_later_stretches(
    new_store: NewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(new_store, [[1000] * 100] * 10)  # one queue after the other in the log
    searches = 0
    search = store.reader.first_offsets_from

    def counted(wanted: Sequence[tuple[str, int, int, int, int]]) -> list[int]:
        nonlocal searches
        searches += len(wanted)
        return search(wanted)

    monkeypatch.setattr(store.reader, "first_offsets_from", counted)
    partitions = plan_partitions(store.reader, store.whole(), max_bytes=50_000, min_partitions=None, fetched=True)
    assert_complete(partitions, store.whole())
    assert len(partitions) == 20
    assert searches == 2 * sum(range(1, 11))


def test_stretches_of_several_topics_that_are_fetched_fit_the_memory_of_a_reader(
    new_store: NewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topics are read one after the other: what one has brought must still be there for the next one."""
    monkeypatch.setattr(partitions_module, "_MOST_OF_SEVERAL_TOPICS", 50_000)
    store = new_store()
    for _ in range(100):
        store.append("orders", 0, [1000])
        store.append("audit", 0, [1000])
    partitions = plan_partitions(store.reader, store.whole(), max_bytes=1 << 30, min_partitions=None, fetched=True)
    assert_complete(partitions, store.whole())
    assert [store.size_of(one.ranges) for one in partitions] == [50_000] * 4


def test_stretches_are_as_many_as_tasks_are_worthwhile(new_store: NewStore) -> None:
    """The stretches end before the message across their border: what that leaves is not one more task."""
    sizes = [[1000] * 60_000, [1000] * 60_000 + [1500]]
    store = store_of(new_store, sizes, in_turns=True, queue_file_units=100_000, log_file_size=128 << 20)
    assert len(plan(store, 100_000_000)) == 2


def test_a_single_queue_is_not_read_side_by_side(new_store: NewStore) -> None:
    store = store_of(new_store, [[500] * 100])
    partitions = plan(store, 10_000)
    assert len(partitions) == 5
    assert not any(partition.side_by_side for partition in partitions)


@pytest.mark.parametrize(("other_size", "side_by_side"), [(950, True), (1050, False)])
def test_queues_that_are_less_than_half_of_their_stretch_are_read_one_by_one(
    new_store: NewStore, other_size: int, side_by_side: bool
) -> None:
    """Queues 0 and 1 are read; with every two of their messages lies one of queue 2."""
    store = store_of(new_store, [[500] * 300, [500] * 300, [other_size] * 300], in_turns=True)
    wanted = [one for one in store.whole() if one.queue_id < 2]
    partitions = plan(store, 60_000, ranges=wanted)
    assert_complete(sorted(partitions, key=lambda one: one.ranges), wanted)
    assert_within(store, partitions, 60_000)
    assert {partition.side_by_side for partition in partitions} == {side_by_side}


def test_min_partitions_counts_for_stretches_too(new_store: NewStore) -> None:
    store = store_of(new_store, [[500] * 300] * 3, in_turns=True)
    for wanted in (4, 10, 50):
        partitions = plan(store, 1 << 30, wanted)
        assert wanted <= len(partitions) <= wanted + 2
        assert_complete(partitions, store.whole())


def test_one_queue_with_nearly_all_messages_is_spread_over_the_stretches(new_store: NewStore) -> None:
    """As much work for each task although 95 of 100 messages are in queue 0."""
    store = new_store()
    store.append("t", ([0] * 19 + [1] + [0] * 19 + [2] + [0] * 19 + [3] + [0] * 38 + [1, 2]) * 20, [300] * 2000)
    partitions = plan(store, 51_000)
    assert_complete(partitions, store.whole())
    assert len(partitions) == 12
    sizes = [store.size_of(partition.ranges) for partition in partitions]
    assert max(sizes) <= 51_000
    assert min(sizes) > 0.9 * max(sizes)


def test_a_queue_that_pauses_does_not_let_a_partition_grow(new_store: NewStore) -> None:
    """The queue with the most bytes has no message for a long stretch, which must be cut all the same."""
    store = new_store()
    store.append("t", 0, [1000] * 100)
    store.append("t", 1, [1000] * 90)
    store.append("t", 0, [1000])
    partitions = plan(store, 10_000)
    assert_complete(partitions, store.whole())
    assert_within(store, partitions, 10_000)


def test_a_large_message_does_not_cost_a_cut_for_each_part_of_it(new_store: NewStore) -> None:
    store = new_store()
    store.append("t", [0, 1, 0, 1], [400, 200_000, 400, 400])
    assert len(plan(store, 400)) == 4
    assert store.reader.calls["first_offsets_from"] < 20


def test_a_message_larger_than_a_partition_goes_alone(new_store: NewStore) -> None:
    store = new_store()
    store.append("t", [0, 1, 0, 1, 0, 1], [400, 400, 400, 9000, 400, 400])
    partitions = plan(store, 1000)
    assert_complete(partitions, store.whole())
    assert_within(store, partitions, 1000)
    assert RangePartition((QueueRange("t", 1, 1, 2),)) in partitions


@given(
    st.lists(
        st.tuples(st.sampled_from([0, 0, 0, 0, 0, 1, 2, 3]), st.integers(MIN_SIZE, 3000)), min_size=1, max_size=250
    ),
    st.integers(100, 60_000),
    st.none() | st.integers(1, 12),
    st.sampled_from([4 << 10, 16 << 10, 1 << 20]),
    st.data(),
)
def test_any_interleaving_of_queues_is_cut_completely_and_within_the_size(
    new_store: NewStore,
    messages: list[tuple[int, int]],
    max_bytes: int,
    min_partitions: int | None,
    log_file_size: int,
    data: st.DataObject,
) -> None:
    """Also for ranges that do not begin and end together, and over the blank ends of log files."""
    store = new_store(log_file_size=log_file_size, queue_file_units=17)
    store.append("t", [queue_id for queue_id, _ in messages], [size for _, size in messages])
    wanted = []
    for topic, queue_id, _, end in store.whole():
        start = data.draw(st.integers(0, min(3, end)))
        wanted.append(QueueRange(topic, queue_id, start, data.draw(st.integers(max(start, end - 3), end))))
    partitions = plan(store, max_bytes, min_partitions, wanted)
    assert_complete(partitions, wanted)
    assert_within(store, partitions, max_bytes)
    if min_partitions is not None and any(partition.side_by_side for partition in partitions):
        size, largest = store.size_of(wanted), max(size for _, size in messages)
        assert len(partitions) >= min(min_partitions, size // largest)
