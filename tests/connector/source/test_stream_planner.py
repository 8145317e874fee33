"""Planning a stream against a store that grows: everything once, in order, within the limits, whatever crashes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commitlog_store import QueueInfo
from pyspark_commitlog.errors import DataLossError, OffsetFormatError, OptionError
from pyspark_commitlog.options.read import parse_stream_options
from pyspark_commitlog.source import stream_planner
from tests.connector.source.planned_query import FROM_START, Query, all_rows, filled
from tests.connector.source.sized_store import NewStore


def test_every_message_is_planned_once_and_then_none(new_store: NewStore) -> None:
    query = Query(filled(new_store))
    query.run()
    assert query.rows == all_rows(query.store)
    assert not query.plan()


def test_messages_written_later_are_read_next(new_store: NewStore) -> None:
    query = Query(filled(new_store))
    query.run()
    query.store.append("orders", 1, [200, 200])
    query.run()
    assert query.rows[-2:] == [("orders", 1, 10), ("orders", 1, 11)]


def test_latest_starts_at_the_end_and_new_queues_at_their_start(new_store: NewStore) -> None:
    query = Query(filled(new_store), subscribe="orders")
    query.run()
    assert query.rows == []
    query.store.append("orders", 2, [200])
    query.store.append("orders", 0, [200])
    query.run()
    assert query.rows == [("orders", 0, 10), ("orders", 2, 0)]


def test_a_stream_waits_for_a_topic_that_does_not_exist_yet(new_store: NewStore) -> None:
    query = Query(new_store(), subscribe="orders")
    query.run()
    query.store.append("orders", 0, [200])
    query.run()
    assert query.rows == [("orders", 0, 0)]


def test_a_stream_waits_for_an_assigned_queue_that_does_not_exist_yet(new_store: NewStore) -> None:
    store = filled(new_store, 1)
    query = Query(store, assign='{"orders":[0,5]}', startingOffsets="earliest")
    query.run()
    store.append("orders", 5, [200])
    store.append("orders", 6, [200])
    query.run()
    assert query.rows == [("orders", 0, 0), ("orders", 5, 0)]


def test_a_pattern_picks_up_topics_as_they_come(new_store: NewStore) -> None:
    store = filled(new_store, 1)
    query = Query(store, subscribePattern="ord.*", startingOffsets="earliest")
    query.run()
    store.append("orders_eu", 0, [200])
    store.append("SCHEDULE_TOPIC_XXXX", 0, [200])
    query.run()
    assert query.rows == [("orders", 0, 0), ("orders", 1, 0), ("orders_eu", 0, 0)]


def test_starting_offsets_may_be_given_by_queue(new_store: NewStore) -> None:
    query = Query(filled(new_store), subscribe="orders", startingOffsets='{"orders":{"0":8}}')
    query.run()
    assert query.rows == [("orders", 0, 8), ("orders", 0, 9), *[("orders", 1, offset) for offset in range(10)]]


@pytest.mark.parametrize("named", ['{"orders":{"7":0}}', '{"orders":{"0":11}}'])
def test_starting_offsets_that_do_not_exist_are_refused(new_store: NewStore, named: str) -> None:
    with pytest.raises(OptionError, match="startingOffsets"):
        Query(filled(new_store), subscribe="orders", startingOffsets=named).plan()


def test_starting_offsets_before_the_head_are_lost_data(new_store: NewStore) -> None:
    store = filled(new_store)
    store.expire("orders", 0, 5)
    query = Query(store, subscribe="orders", startingOffsets='{"orders":{"0":2}}')
    with pytest.raises(DataLossError, match=r"wanted offsets \[2, 10\), available are \[5, 10\)"):
        query.plan()


def test_the_first_batch_is_the_same_after_a_crash_although_latest_has_moved(new_store: NewStore) -> None:
    """Spark keeps the end of batch 0 only, and asks for the initial offset again."""
    store = filled(new_store)
    query = Query(store, subscribe="orders")
    start = query.start()
    store.append("orders", 0, [200] * 3)
    query.log.append(query.planner.latest_offset(start, limited=True))
    store.append("orders", 0, [200] * 4)
    query.restart()
    query.commit()
    query.run()
    assert query.rows == [("orders", 0, offset) for offset in range(10, 17)]


def test_a_new_queue_starts_at_the_same_offset_after_a_crash(new_store: NewStore) -> None:
    query = Query(filled(new_store, 1), subscribe="orders", startingOffsets="earliest")
    query.run()
    query.store.append("orders", 9, [200] * 5)
    assert query.plan()
    planned = query.read()
    query.store.expire("orders", 9, 1)
    query.restart()
    assert planned == [("orders", 9, offset) for offset in range(5)]
    with pytest.raises(DataLossError, match=r"wanted offsets \[0, 5\)"):
        query.read()


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.sampled_from(["orders", "audit"]), st.integers(0, 3), st.integers(1, 9)),
            st.sampled_from(["plan", "run", "crash", "crash after planning"]),
        ),
        max_size=40,
    ),
    st.sampled_from([{}, {"maxOffsetsPerTrigger": "3"}, {"maxBytesPerTrigger": "700"}]),
    st.sampled_from(["earliest", "latest"]),
)
def test_whatever_crashes_every_message_is_read_once_in_order(
    new_store: NewStore, story: list[Any], limits: dict[str, str], starting: str
) -> None:
    store = filled(new_store, 3)
    query = Query(store, subscribe="orders,audit", startingOffsets=starting, **limits)
    query.plan()
    query.commit()
    skipped = 0 if starting == "earliest" else 3
    for step in story:
        if isinstance(step, tuple):
            store.append(step[1], step[2], [200] * step[3])
        elif step == "run":
            query.run()
        elif step == "crash":
            query.restart()
        elif query.plan():
            before = query.read()
            if step == "crash after planning":
                query.restart()
                assert query.read() == before
            query.commit()
    query.run()
    for topic, queue_id, _, end in store.whole():
        read = [offset for name, number, offset in query.rows if (name, number) == (topic, queue_id)]
        first = skipped if queue_id < 2 else 0
        assert read == list(range(first, end))


@given(st.integers(1, 50), st.integers(1, 10_000))
@settings(max_examples=settings().max_examples // 4)
def test_both_limits_hold_together(new_store: NewStore, rows: int, size: int) -> None:
    store = filled(new_store, 20)
    query = Query(store, **FROM_START, maxOffsetsPerTrigger=str(rows), maxBytesPerTrigger=str(size))
    batches = 0
    while query.plan():
        read = query.read()
        assert len(read) <= rows
        assert len(read) * 200 <= size or len(read) == 1
        query.commit()
        batches += 1
    assert sorted(query.rows) == all_rows(store)
    assert batches >= 80 // rows


def test_trigger_once_reads_all_whatever_the_limits(new_store: NewStore) -> None:
    query = Query(filled(new_store), **FROM_START, maxOffsetsPerTrigger="3")
    query.run(limited=False, batches=1)
    assert query.rows == all_rows(query.store)


def test_available_now_reads_the_messages_stored_when_it_began_and_ends(new_store: NewStore) -> None:
    store = filled(new_store)
    query = Query(store, **FROM_START, maxOffsetsPerTrigger="7")
    query.planner.prepare_for_available_now()
    expected = all_rows(store)
    for _ in range(3):
        query.run(batches=2)
        store.append("orders", 0, [200])
        store.append("audit", 7, [200])
    query.run()
    assert sorted(query.rows) == expected
    assert not query.plan()
    query.restart()
    query.run()
    assert sorted(query.rows) == all_rows(store)


def test_a_topic_left_out_of_the_subscription_is_kept_in_mind(new_store: NewStore) -> None:
    query = Query(filled(new_store))
    query.run()
    query.store.append("audit", 0, [200])
    query.store.append("orders", 0, [200])
    query.restart(subscribe="orders")
    query.run()
    assert query.rows[-1] == ("orders", 0, 10)
    query.restart(subscribe="orders,audit")
    query.run()
    assert query.rows[-1] == ("audit", 0, 10)
    assert len(query.rows) == len(set(query.rows)) == 42


def test_an_empty_new_queue_makes_no_batch(new_store: NewStore) -> None:
    query = Query(filled(new_store))
    query.run()
    query.store.add_queue("orders", 8)
    assert not query.plan()


def test_progress_knows_the_ends_without_looking_again(new_store: NewStore) -> None:
    query = Query(filled(new_store), **FROM_START, maxOffsetsPerTrigger="4")
    query.plan()
    calls = dict(query.store.reader.calls)
    report = query.planner.report_latest_offset()
    assert report is not None
    assert report["version"] == 1
    assert report["offsets"] == {"audit": {"0": 10, "1": 10}, "orders": {"0": 10, "1": 10}}
    assert query.store.reader.calls == calls


def test_an_idle_trigger_asks_for_bounds_only_and_not_each_time(
    new_store: NewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_planner, "_FEWEST_QUEUES", 4)
    query = Query(filled(new_store))
    query.run()
    query.store.reader.calls.clear()
    query.plan()
    assert query.store.reader.calls == {}
    monkeypatch.setattr(stream_planner, "_LEAST_REST_S", 0.0)  # the next look comes at once
    monkeypatch.setattr(stream_planner, "_REST", 0)
    query = Query(query.store)
    query.run()
    query.store.reader.calls.clear()
    query.plan()
    assert query.store.reader.calls == {"queue_infos": 1}


def test_a_queue_that_is_deleted_during_the_look_is_left_out(
    new_store: NewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(new_store)
    subscription = parse_stream_options({"path": str(store.path), "subscribe": "orders"}).subscription
    ask_for_all = store.reader.queue_infos

    def delete_first(queues: Iterable[tuple[str, int]]) -> list[QueueInfo]:
        monkeypatch.undo()
        store.delete_queue("orders", 1)
        return ask_for_all(queues)

    monkeypatch.setattr(store.reader, "queue_infos", delete_first)
    assert subscription.bounds(store.reader) == {("orders", 0): QueueInfo("orders", 0, 0, 10)}


def test_another_sources_checkpoint_is_refused(new_store: NewStore) -> None:
    query = Query(filled(new_store))
    with pytest.raises(OffsetFormatError):
        query.planner.latest_offset({"orders": {"0": 5}}, limited=True)


def test_the_same_offset_twice_is_not_a_batch(new_store: NewStore) -> None:
    """Spark asks for it at every restart."""
    query = Query(filled(new_store))
    query.run()
    assert query.planner.partitions(query.log[-1], query.log[-1]) == []
