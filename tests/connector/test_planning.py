"""Partitions: every message in exactly one, in order, and none larger than asked for."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from pyspark_commitlog.planning import QueueRange, RangePartition, plan_partitions
from tests.connector.fake_reader import FakeStore

__all__: list[str] = []


def store_of(sizes: list[list[int]], file_units: int = 1000) -> FakeStore:
    store = FakeStore(file_units=file_units)
    for queue_id, queue in enumerate(sizes):
        store.add_queue("t", queue_id)
        store.append("t", queue_id, queue)
    return store


def plan(store: FakeStore, max_bytes: int, min_partitions: int | None = None) -> list[RangePartition]:
    whole = [
        QueueRange(topic, queue_id, queue.minimum, queue.maximum)
        for (topic, queue_id), queue in sorted(store.all_queues.items())
    ]
    return plan_partitions(store.reader, whole, max_bytes=max_bytes, min_partitions=min_partitions)


def size_of(store: FakeStore, partition: RangePartition) -> int:
    return sum(int(store.sizes(*wanted).sum()) for wanted in partition.ranges)


@given(
    st.lists(st.lists(st.integers(91, 3000), max_size=60), min_size=1, max_size=5),
    st.integers(1, 50_000),
    st.none() | st.integers(1, 9),
    st.integers(1, 40),
)
def test_every_message_once_in_order_and_no_partition_too_large(
    sizes: list[list[int]], max_bytes: int, min_partitions: int | None, file_units: int
) -> None:
    store = store_of(sizes, file_units)
    partitions = plan(store, max_bytes, min_partitions)
    seen: dict[int, int] = dict.fromkeys(range(len(sizes)), 0)
    for partition in partitions:
        for _, queue_id, start, stop in partition.ranges:
            assert start == seen[queue_id] < stop
            seen[queue_id] = stop
        messages = sum(stop - start for *_, start, stop in partition.ranges)
        assert size_of(store, partition) <= max_bytes or messages == 1
    assert list(seen.values()) == [len(queue) for queue in sizes]


def test_one_hot_queue_is_cut_evenly() -> None:
    store = store_of([[100] * 10_000], file_units=3000)
    partitions = plan(store, 300_000)
    assert [size_of(store, partition) for partition in partitions] == [250_000] * 4


def test_min_partitions_cuts_finer_than_max_bytes_asks_for() -> None:
    store = store_of([[100] * 900, [100] * 100])
    assert len(plan(store, 1 << 30)) == 2
    assert len(plan(store, 1 << 30, 10)) == 10


def test_more_partitions_than_messages_are_not_made() -> None:
    assert len(plan(store_of([[100, 100]]), 1 << 30, 50)) == 2


def test_up_to_32_queues_have_their_own_partitions() -> None:
    assert len(plan(store_of([[100]] * 32), 1 << 30)) == 32


def test_many_small_queues_share_partitions_evenly() -> None:
    store = store_of([[100 + queue_id % 7] * 3 for queue_id in range(2000)])
    partitions = plan(store, 1 << 30)
    assert 32 <= len(partitions) <= 34
    sizes = [size_of(store, partition) for partition in partitions[:-1]]
    assert max(sizes) < 1.1 * min(sizes)


def test_many_queues_with_much_data_still_keep_to_the_size() -> None:
    store = store_of([[1000] * 20 for _ in range(100)])
    partitions = plan(store, 30_000)
    assert all(size_of(store, partition) <= 30_000 for partition in partitions)
    assert len(partitions) == 100


def test_an_empty_plan_has_no_partitions() -> None:
    assert plan(store_of([[]]), 1000) == []


def test_partitions_travel_to_tasks() -> None:
    partition = plan(store_of([[100]]), 1000)[0]
    assert pickle.loads(pickle.dumps(partition)) == partition


def test_a_large_range_is_measured_once_and_only_cut_blocks_are_read_again() -> None:
    store = store_of([[100] * 1_000_000], file_units=300_000)
    assert len(plan(store, 10_000_000)) == 10
    assert store.calls["units"] == 1 + 9
