"""Limits: never exceeded, always progress, and no queue blocks indefinitely."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commitlog_store import FILLER_SIZE
from commitlog_store.format.consume_queue_unit import UNIT_DTYPE
from pyspark_commitlog.source.admission import SizeWalker, admit_bytes, admit_rows, message_sizes
from tests.connector.source.sized_store import MIN_SIZE, NewStore, SizedStore

QUEUES = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 10_000)), min_size=1, max_size=12)
SIZES = st.lists(st.lists(st.integers(MIN_SIZE, 4000), max_size=30), min_size=1, max_size=6)


@given(QUEUES, st.integers(1, 3000))
def test_rows_are_never_over_the_limit_and_use_it_up(queues: list[tuple[int, int]], limit: int) -> None:
    waiting = [count for count, _ in queues]
    admitted = admit_rows(waiting, [head for _, head in queues], limit)
    assert sum(admitted) == min(limit, sum(waiting))
    assert all(0 <= got <= count for got, count in zip(admitted, waiting, strict=True))
    if limit >= sum(count > 0 for count in waiting):
        assert all(got >= 1 for got, count in zip(admitted, waiting, strict=True) if count)


@given(QUEUES, st.integers(1, 11))
def test_with_fewer_rows_than_queues_the_oldest_go_first(queues: list[tuple[int, int]], limit: int) -> None:
    waiting = [count for count, _ in queues]
    heads = [head for _, head in queues]
    admitted = admit_rows(waiting, heads, limit)
    if limit < sum(count > 0 for count in waiting):
        served = [heads[i] for i, got in enumerate(admitted) if got]
        passed_over = [heads[i] for i, got in enumerate(admitted) if not got and waiting[i]]
        assert max(served) <= min(passed_over)
        assert max(admitted) == 1


def test_rows_are_shared_in_proportion() -> None:
    assert admit_rows([1000, 100, 0, 10], [3, 2, 1, 0], 111) == [98, 11, 0, 2]


def store_of(new_store: NewStore, sizes: Sequence[Sequence[int]]) -> SizedStore:
    """Queues whose messages were written in turns, as a broker with several producers would."""
    store = new_store(queue_file_units=7)
    store.append_queues("t", sizes, in_turns=True)
    return store


def heads_of(store: SizedStore, starts: Sequence[int]) -> list[int]:
    return [store.places["t", i][start] if start < len(store.places["t", i]) else 0 for i, start in enumerate(starts)]


def admit(store: SizedStore, starts: list[int], limit: int) -> list[int]:
    ends = [info.max_offset for info in store.reader.queues("t")]
    waiting = [end - start for start, end in zip(starts, ends, strict=True)]
    heads = heads_of(store, starts)
    walkers = [
        SizeWalker(store.reader, "t", i, start, end) for i, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]
    admit_bytes(walkers, waiting, heads, limit)
    return [walker.position for walker in walkers]


@given(SIZES, st.integers(1, 40_000))
def test_bytes_are_exact_and_every_batch_makes_progress(
    new_store: NewStore, sizes: list[list[int]], limit: int
) -> None:
    store = store_of(new_store, sizes)
    starts = [0] * len(sizes)
    total = sum(map(len, sizes))
    for _ in range(total):
        if sum(starts) == total:
            break
        stops = admit(store, starts, limit)
        read = [sizes[i][start:stop] for i, (start, stop) in enumerate(zip(starts, stops, strict=True))]
        messages, size = sum(map(len, read)), sum(map(sum, read))
        assert messages >= 1
        assert size <= limit or messages == 1
        starts = stops
    assert sum(starts) == total


@given(SIZES)
def test_a_limit_as_large_as_the_backlog_lets_all_of_it_through(new_store: NewStore, sizes: list[list[int]]) -> None:
    store = store_of(new_store, sizes)
    total = sum(map(sum, sizes))
    assert admit(store, [0] * len(sizes), max(1, total)) == [len(queue) for queue in sizes]


@given(SIZES, st.integers(1, 20_000))
def test_no_further_message_would_have_fitted(new_store: NewStore, sizes: list[list[int]], limit: int) -> None:
    store = store_of(new_store, sizes)
    stops = admit(store, [0] * len(sizes), limit)
    used = sum(sum(sizes[i][:stop]) for i, stop in enumerate(stops))
    for i, stop in enumerate(stops):
        if 0 < stop < len(sizes[i]) and used <= limit:
            assert used + sizes[i][stop] > limit


def test_a_message_larger_than_the_limit_goes_alone(new_store: NewStore) -> None:
    store = store_of(new_store, [[5000, 200], [200, 200]])
    assert admit(store, [0, 0], 1000) == [1, 0]
    assert admit(store, [1, 0], 1000) == [2, 2]


def test_a_large_message_waits_its_turn_and_then_gets_it(new_store: NewStore) -> None:
    """Queue 1's message never fits beside the others; once it is the oldest it has the whole limit to itself."""
    store = store_of(new_store, [[600] * 6, [900]])
    starts = [0, 0]
    for _ in range(3):
        starts = admit(store, starts, 1000)
    assert starts[1] == 1


@given(st.integers(1, 3), st.lists(st.integers(0, 4), min_size=30, max_size=60))
@settings(max_examples=settings().max_examples // 4)
def test_no_queue_starves_under_a_limit_below_the_number_of_queues(
    new_store: NewStore, limit: int, arrivals: list[int]
) -> None:
    """As many messages come as go, to any of five queues; the oldest of all is always among those that go."""
    store = store_of(new_store, [[200]] * 5)
    starts = [0] * 5
    backlog_seen = 0
    for arrival in arrivals:
        store.append("t", arrival, [200] * limit)
        waiting = [info.max_offset - start for info, start in zip(store.reader.queues("t"), starts, strict=True)]
        heads = heads_of(store, starts)
        oldest = min((heads[i], i) for i in range(5) if waiting[i])[1]
        admitted = admit_rows(waiting, heads, limit)
        assert admitted[oldest] >= 1
        starts = [start + got for start, got in zip(starts, admitted, strict=True)]
        backlog_seen = max(backlog_seen, sum(waiting))
    assert backlog_seen <= 5 + limit


def test_fillers_weigh_nothing() -> None:
    units = np.zeros(4, UNIT_DTYPE)
    units["size"] = [FILLER_SIZE, FILLER_SIZE, 200, FILLER_SIZE]
    assert message_sizes(units).tolist() == [0, 0, 200, 0]


def test_a_walk_reads_about_as_much_as_it_takes(new_store: NewStore) -> None:
    """A backlog of any length must not be read to admit a few."""
    store = new_store(queue_file_units=100_000, log_file_size=32 << 20)
    store.append("t", 0, [120] * 200_000)
    walker = SizeWalker(store.reader, "t", 0, 0, 200_000)
    assert walker.take(120 * 50) == 6000
    assert walker.position == 50
    assert store.reader.calls["units"] == 1
    assert walker.take(120 * 149_950) == 120 * 149_950
    assert walker.position == 150_000
    assert store.reader.calls["units"] < 10


@pytest.mark.parametrize("budget", [0, 199])
def test_a_budget_below_the_next_message_takes_nothing(new_store: NewStore, budget: int) -> None:
    store = store_of(new_store, [[200, 200]])
    walker = SizeWalker(store.reader, "t", 0, 0, 2)
    assert (walker.take(budget), walker.position) == (0, 0)
    assert walker.next_size() == 200


@given(st.lists(st.integers(MIN_SIZE, 200), min_size=1, max_size=600), st.lists(st.integers(0, 20_000), max_size=8))
def test_walking_equals_adding_up(new_store: NewStore, sizes: list[int], budgets: list[int]) -> None:
    store = new_store(queue_file_units=100)
    store.append("t", 0, sizes)
    walker = SizeWalker(store.reader, "t", 0, 0, len(sizes))
    at = 0
    for budget in budgets:
        fits = int(np.searchsorted(np.cumsum(sizes[at:]), budget, side="right"))
        assert walker.take(budget) == sum(sizes[at : at + fits])
        at += fits
        assert walker.position == at
