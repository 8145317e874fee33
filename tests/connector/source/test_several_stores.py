"""Planning over several stores: each row once, exact limits, and stores that join, are away, or are removed."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commitlog_store import commit_group_offsets
from commitlog_store.errors import NotAStore, StoreNotFound, TopicNotFound
from pyspark_commitlog.errors import DataLossError, OffsetFormatError, OptionError, TailLostError
from pyspark_commitlog.listener import batch_numbers, lag_by_queue
from pyspark_commitlog.options.read import parse_batch_options, parse_stream_options
from pyspark_commitlog.source.batch_source import CommitLogBatchReader
from pyspark_commitlog.source.partitions import RangePartition
from pyspark_commitlog.source.schema import check_schema, default_schema
from pyspark_commitlog.source.store_planner import StorePlanner
from pyspark_commitlog.source.stream_planner import StreamPlanner
from tests.connector.source.several_stores_query import SeveralStores, SeveralStoresQuery, path_of
from tests.connector.source.sized_store import NewStore

NewQuery = Callable[..., SeveralStoresQuery]


@pytest.fixture
def new_query(tmp_path: Path) -> Iterator[NewQuery]:
    """Makes queries over new, empty stores; the readers of the one before are closed."""
    made: list[SeveralStoresQuery] = []
    number = count()

    def make(names: str = "ab", **options: str) -> SeveralStoresQuery:
        for query in made:
            query.close()
        made[:] = [SeveralStoresQuery(SeveralStores(tmp_path / f"stores-{next(number)}", names), **options)]
        return made[0]

    yield make
    for query in made:
        query.close()


def fill(query: SeveralStoresQuery, messages: int = 10) -> SeveralStores:
    """Two queues of each topic in each store."""
    for store in query.stores.stores.values():
        for topic in ("orders", "audit"):
            for queue_id in (0, 1):
                store.append(topic, queue_id, [200] * messages)
    return query.stores


def test_a_stream_reads_the_messages_of_all_stores_once(new_query: NewQuery) -> None:
    query = new_query("abc")
    stores = fill(query)
    query.run()
    assert sorted(query.rows) == stores.rows()
    stores["b"].append("orders", 1, [200] * 2)
    assert query.plan()
    assert query.commit() == [("b", "orders", 1, 10), ("b", "orders", 1, 11)]
    assert not query.plan()


STORIES = st.lists(
    st.one_of(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["orders", "audit"]), st.integers(0, 2), st.integers(1, 9)),
        st.sampled_from(["batch", "batch", "crash", "crash after planning", "a", "b", "join"]),
    ),
    max_size=30,
)
LIMITS = st.fixed_dictionaries(
    {}, optional={"maxOffsetsPerTrigger": st.integers(1, 12), "maxBytesPerTrigger": st.integers(150, 3000)}
)


@given(STORIES, LIMITS, st.integers(1, 5))
@settings(max_examples=settings().max_examples // 2)
def test_whatever_happens_every_message_is_read_once_in_order_within_the_limits(
    new_query: NewQuery, story: list[Any], limits: dict[str, int], least: int
) -> None:
    """A store that is away, or joins, or a crash changes neither rows nor order, and limits hold over all stores."""
    texts = {name: str(limit) for name, limit in limits.items()}
    query = new_query("ab", onMissingStore="skip", minPartitions=str(least), **texts)
    stores = query.stores
    away: set[str] = set()
    query.plan()
    query.commit()

    def one_batch(*, crash: bool = False) -> bool:
        here = {row for row in stores.rows() if row[0] not in away and f"{row[0]}=" in query.options["path"]}
        waiting = len(here - set(query.rows))
        if not query.plan():
            assert not waiting
            return False
        if crash:
            before = query.read()
            query.restart()
            assert query.read() == before
        rows = query.commit()
        assert {row[0] for row in rows}.isdisjoint(away)
        max_bytes = limits.get("maxBytesPerTrigger", 1 << 40)
        assert len(rows) * 200 <= max_bytes or len(rows) == 1
        room = min(limits.get("maxOffsetsPerTrigger", 1 << 40), max(1, max_bytes // 200))
        assert len(rows) == min(waiting, room)
        return True

    for step in story:
        if isinstance(step, tuple):
            if step[0] in stores.stores and step[0] not in away:
                stores[step[0]].append(step[1], step[2], [200] * step[3])
        elif step == "crash":
            query.restart()
        elif step == "join":
            if "c" not in stores.stores:
                stores.add("c").append("orders", 0, [200] * 3)
                query.restart(path=path_of({name: stores[name].path for name in "abc"}))
        elif step in away:
            stores.bring_back(step)
            away.remove(step)
        elif step in ("a", "b"):
            stores.take_away(step)
            away.add(step)
        else:
            one_batch(crash=step == "crash after planning")
    for name in sorted(away):
        stores.bring_back(name)
    away.clear()
    while one_batch():
        pass
    assert sorted(query.rows) == stores.rows()
    for name, store in stores.stores.items():
        for topic, queue_id, _, end in store.whole():
            read = [offset for *where, offset in query.rows if where == [name, topic, queue_id]]
            assert read == list(range(end))


@given(st.lists(st.lists(st.integers(130, 900), max_size=12), min_size=4, max_size=4), st.integers(130, 2500))
@settings(max_examples=settings().max_examples // 4)
def test_bytes_of_any_sizes_stay_within_the_limit(new_query: NewQuery, sizes: list[list[int]], limit: int) -> None:
    query = new_query("ab", maxBytesPerTrigger=str(limit))
    for number, queue in enumerate(sizes):
        query.stores["ab"[number // 2]].append("orders", number % 2, queue)
    while query.plan():
        rows = query.commit()
        total = sum(query.stores[name].sizes[topic, queue_id][offset] for name, topic, queue_id, offset in rows)
        assert total <= limit or len(rows) == 1
    assert sorted(query.rows) == query.stores.rows()


def test_no_store_waits_for_ever_while_others_are_written_to(new_query: NewQuery) -> None:
    """With one message a batch, the stores take turns, although the other ones always have more."""
    query = new_query("abc", maxOffsetsPerTrigger="1")
    stores = fill(query, messages=2)
    for _ in range(24):
        stores["a"].append("orders", 0, [200] * 5)
        assert query.plan()
        query.commit()
        query.restart()
    assert [name for name, *_ in query.rows] == ["a", "b", "c"] * 8


def test_limits_are_shared_by_what_waits(new_query: NewQuery) -> None:
    query = new_query("ab", maxOffsetsPerTrigger="20")
    query.stores["a"].append("orders", 0, [200] * 90)
    query.stores["b"].append("orders", 0, [200] * 10)
    assert query.plan()
    names = [name for name, *_ in query.commit()]
    assert (names.count("a"), names.count("b")) == (18, 2)


def test_the_minimum_counts_messages_of_all_stores(new_query: NewQuery) -> None:
    query = new_query("ab", minOffsetsPerTrigger="10", maxTriggerDelay="1m")
    stores = fill(query, messages=1)
    query.run()
    stores["a"].append("orders", 0, [200] * 5)
    assert not query.plan()
    stores["b"].append("orders", 0, [200] * 5)
    assert query.plan()
    query.commit()
    stores["b"].append("orders", 0, [200])
    assert not query.plan()
    query.now_s += 60
    assert query.plan()


def test_available_now_reads_what_the_stores_had_when_it_began(new_query: NewQuery) -> None:
    query = new_query("ab", maxOffsetsPerTrigger="7", onMissingStore="skip")
    stores = fill(query)
    stores.take_away("b")
    query.running.prepare_for_available_now()
    expected = [row for row in stores.rows() if row[0] == "a"]
    query.run(batches=2)
    stores["a"].append("orders", 0, [200])
    stores.bring_back("b")
    query.run()
    assert sorted(query.rows) == expected
    query.restart()
    query.run()
    assert sorted(query.rows) == stores.rows()


def test_min_partitions_is_shared_among_the_stores(new_query: NewQuery) -> None:
    query = new_query("ab", minPartitions="8")
    query.stores["a"].append("orders", 0, [200] * 60)
    query.stores["b"].append("orders", 0, [200] * 20)
    assert query.plan()
    names = [one.store for one in query.running.partitions(query.start(), query.log[0])]
    assert names == ["a"] * 6 + ["b"] * 2


def test_a_store_that_joins_is_read_from_its_first_message(new_query: NewQuery) -> None:
    query = new_query("ab", startingOffsets="latest")
    stores = fill(query)
    query.run()
    stores.add("c").append("orders", 0, [200] * 3)
    query.restart(path=stores.path)
    query.run()
    assert query.rows == [("c", "orders", 0, offset) for offset in range(3)]


def test_a_store_that_is_away_fails_the_query_by_default(new_query: NewQuery) -> None:
    query = new_query("ab")
    stores = fill(query)
    query.run()
    stores.take_away("b")
    with pytest.raises(StoreNotFound, match=r"Store 'b' of the option path: .*onMissingStore to skip"):
        query.plan()
    stores.bring_back("b")
    stores["b"].append("orders", 0, [200])
    query.run()
    assert sorted(query.rows) == stores.rows()


def test_an_empty_mount_point_is_a_store_that_is_away(new_query: NewQuery) -> None:
    query = new_query("ab", onMissingStore="skip")
    stores = fill(query)
    query.run()
    stores.take_away("b")
    stores["b"].path.mkdir()
    assert not query.plan()
    query.restart(onMissingStore="fail")
    with pytest.raises(NotAStore, match="Store 'b'"):
        query.plan()


def test_a_store_that_is_skipped_is_named_again_and_again_but_less_and_less_often(
    new_query: NewQuery, caplog: pytest.LogCaptureFixture
) -> None:
    query = new_query("ab", onMissingStore="skip")
    stores = fill(query)
    query.run()
    stores.take_away("b")
    with caplog.at_level(logging.WARNING, "pyspark_commitlog"):
        said = []
        for minute in range(10):
            query.now_s = 60.0 * minute
            query.plan()
            said.append("Store 'b' is unavailable" in caplog.text)
            caplog.clear()
        stores.bring_back("b")
        query.plan()
    assert [minute for minute, told in enumerate(said) if told] == [0, 1, 3, 7]
    assert "Store 'b' is available again" in caplog.text


def test_a_store_that_goes_away_during_a_look_has_not_lost_its_messages(
    new_query: NewQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without failOnDataLoss its positions would be given up."""
    query = new_query("ab", onMissingStore="skip", failOnDataLoss="false")
    stores = fill(query)
    query.run()
    stores["a"].append("orders", 0, [200])
    stores["b"].append("orders", 0, [200])
    look = StorePlanner.backlog

    def take_away_first(planner: StorePlanner, *arguments: Any) -> Any:
        monkeypatch.undo()
        stores.take_away("b")
        return look(planner, *arguments)

    monkeypatch.setattr(StorePlanner, "backlog", take_away_first)
    assert query.plan()
    assert query.commit() == [("a", "orders", 0, 10)]
    stores.bring_back("b")
    query.run()
    assert query.rows[-1] == ("b", "orders", 0, 10)
    assert sorted(query.rows) == stores.rows()


def test_a_batch_that_was_planned_waits_for_its_store(new_query: NewQuery) -> None:
    query = new_query("ab", onMissingStore="skip")
    stores = fill(query)
    assert query.plan()
    before = query.read()
    stores.take_away("b")
    query.restart()
    with pytest.raises(StoreNotFound, match="planned before reads from it"):
        query.read()
    stores.bring_back("b")
    assert query.read() == before


def test_a_new_query_without_one_of_its_stores_reads_it_when_it_is_there(new_query: NewQuery) -> None:
    query = new_query("ab", onMissingStore="skip", startingOffsets="latest")
    stores = fill(query)
    stores.take_away("b")
    query.run()
    stores.bring_back("b")
    query.run()
    assert sorted(query.rows) == [row for row in stores.rows() if row[0] == "b"]


def test_a_store_whose_start_is_named_must_be_there(new_query: NewQuery) -> None:
    query = new_query("ab", onMissingStore="skip", startingOffsets='{"b":{"orders":{"0":5}}}')
    fill(query).take_away("b")
    with pytest.raises(StoreNotFound, match="startingOffsets names it"):
        query.plan()


def test_a_store_that_is_removed_from_path_is_an_error_or_a_warning(
    new_query: NewQuery, caplog: pytest.LogCaptureFixture
) -> None:
    query = new_query("ab")
    stores = fill(query)
    query.run()
    stores["a"].append("orders", 0, [200])
    stores["b"].append("orders", 0, [200])
    only_a = path_of({"a": stores["a"].path})
    query.restart(path=only_a)
    with pytest.raises(OptionError, match="does not name the store 'b' any more"):
        query.plan()
    query.restart(failOnDataLoss="false")
    query.run()
    assert query.rows[-1] == ("a", "orders", 0, 10)
    assert caplog.text.count("does not name the store 'b' any more") == 1
    query.restart(path=stores.path)
    query.run()
    assert sorted(query.rows) == stores.rows()


def test_a_name_that_leads_to_another_store_is_noticed(new_query: NewQuery) -> None:
    query = new_query("ab")
    stores = fill(query)
    stores["b"].append("orders", 0, [300])
    query.run()
    query.restart(path=path_of({"a": stores["b"].path, "b": stores["a"].path}))
    with pytest.raises((TailLostError, DataLossError), match=r"Store '[ab]': "):
        query.plan()


def test_the_checkpoints_of_one_store_and_of_named_stores_are_told_apart(
    new_query: NewQuery, new_store: NewStore
) -> None:
    query = new_query("ab")
    fill(query)
    query.run()
    single = new_store()
    plain = StreamPlanner(parse_stream_options({"path": str(single.path), "subscribe": "orders"}))
    with pytest.raises(OffsetFormatError, match=r"path=a=\.\.\.,b=\.\.\."):
        plain.latest_offset(query.log[-1], limited=True)
    with pytest.raises(OffsetFormatError, match="one store without a name"):
        query.running.latest_offset(plain.initial_offset(), limited=True)
    malformed: list[dict[str, Any]] = [{"version": 2}, {"version": 2, "stores": {}, "turn": 5}, {"orders": {}}, {}]
    for wrong in ({"version": 3}, *malformed):
        with pytest.raises(OffsetFormatError):
            query.running.latest_offset(wrong, limited=True)


def test_a_query_of_a_plain_path_goes_on_under_a_name_and_others_join(new_query: NewQuery) -> None:
    query = new_query("a")
    stores = fill(query)
    path = {"path": str(stores["a"].path), "subscribe": "orders,audit", "startingOffsets": "earliest"}
    plain = StreamPlanner.open(parse_stream_options(path))
    first = plain.latest_offset(plain.initial_offset(), limited=True)
    plain.close()
    query.log, query.committed = [first], 1
    assert query.plan(), "an empty batch writes the name down"
    assert query.commit() == []
    assert query.log[-1]["stores"]["a"]["offsets"] == first["offsets"]
    assert not query.plan()
    stores.add("b").append("orders", 0, [200])
    stores["a"].append("orders", 1, [200])
    query.restart(path=stores.path)
    query.run()
    assert query.rows == [("a", "orders", 1, 10), ("b", "orders", 0, 0)]


def test_an_absent_store_is_not_lost_data_even_if_losses_are_accepted(new_query: NewQuery) -> None:
    query = new_query("ab", failOnDataLoss="false")
    stores = fill(query)
    query.run()
    stores.take_away("b")
    with pytest.raises(StoreNotFound):
        query.plan()
    stores.bring_back("b")
    assert not query.plan()


def test_a_task_reads_the_store_of_its_partition_and_names_it_when_messages_are_lost(new_query: NewQuery) -> None:
    stores = fill(new_query("ab"))
    stores["b"].append("orders", 0, [200])
    given = parse_batch_options({"path": stores.path, "subscribe": "orders"})
    reader = CommitLogBatchReader(given, check_schema(default_schema(given)))
    of_a, of_b = reader.partitions()
    (batch,) = reader.read(of_b)
    assert set(batch.column("store").to_pylist()) == {"b"}
    assert batch.num_rows == 21
    stores["a"].expire("orders", 0, 5)
    with pytest.raises(DataLossError, match=r"^Store 'a': Topic 'orders', queue 0: wanted offsets"):
        list(reader.read(of_a))


def test_starting_offsets_are_given_by_store(new_query: NewQuery) -> None:
    query = new_query("ab", subscribe="orders", startingOffsets='{"b":{"orders":{"0":8,"1":-1}}}')
    fill(query)
    query.run()
    of_a = [("a", "orders", queue_id, offset) for queue_id in (0, 1) for offset in range(10)]
    assert query.rows == [*of_a, ("b", "orders", 0, 8), ("b", "orders", 0, 9)]


def test_a_topic_need_not_be_in_every_store(new_query: NewQuery, caplog: pytest.LogCaptureFixture) -> None:
    query = new_query("ab")
    query.stores["a"].append("orders", 0, [200])
    query.stores["b"].append("audit", 0, [200])
    StreamPlanner.open(parse_stream_options(query.options)).close()
    assert "not in the store" not in caplog.text
    StreamPlanner.open(parse_stream_options(query.options | {"subscribe": "ordres"})).close()
    assert "Topic 'ordres' is not in the store" in caplog.text


def test_the_numbers_of_the_listener_name_the_store(new_query: NewQuery) -> None:
    query = new_query("ab", maxOffsetsPerTrigger="8", subscribe="orders")
    query.stores["a"].append("orders", 0, [200] * 9)
    query.stores["b"].append("orders", 0, [200] * 3)
    start = query.start()
    query.plan()
    report = query.running.report_latest_offset()
    end = json.dumps(query.log[0])
    assert lag_by_queue(end, json.dumps(report)) == {("a/orders", 0): 3, ("b/orders", 0): 1}
    assert query.running.oldest_waiting(query.log[0]).keys() == {("a/orders", 0), ("b/orders", 0)}
    numbers = batch_numbers(json.dumps(start), end)
    assert numbers is not None
    assert numbers.read == {"a/orders": 6, "b/orders": 2}


def batch_partitions(stores: SeveralStores, **options: str) -> list[RangePartition]:
    given = parse_batch_options({"path": stores.path, "subscribe": "orders"} | options)
    found = CommitLogBatchReader(given, check_schema(default_schema(given))).partitions()
    return [one for one in found if isinstance(one, RangePartition)]


def test_a_batch_read_plans_each_store(new_query: NewQuery) -> None:
    stores = fill(new_query("ab"))
    found = batch_partitions(stores, endingOffsets='{"a":{"orders":{"0":4}}}')
    assert [(one.store, sum(part.stop - part.start for part in one.ranges)) for one in found] == [("a", 14), ("b", 20)]
    assert len(batch_partitions(stores, minPartitions="6")) >= 6


def test_a_batch_read_skips_a_store_that_is_away_when_asked_to(
    new_query: NewQuery, caplog: pytest.LogCaptureFixture
) -> None:
    stores = fill(new_query("ab"))
    stores.take_away("a")
    with pytest.raises(StoreNotFound, match="Store 'a'"):
        batch_partitions(stores)
    assert {one.store for one in batch_partitions(stores, onMissingStore="skip")} == {"b"}
    assert "Store 'a' is unavailable" in caplog.text
    shutil.rmtree(stores["b"].path)
    with pytest.raises(StoreNotFound, match="None of the stores"):
        batch_partitions(stores, onMissingStore="skip")


def test_a_topic_that_no_store_has_fails_a_batch_read(new_query: NewQuery) -> None:
    stores = fill(new_query("ab"))
    with pytest.raises(TopicNotFound, match="None of the stores a, b has it"):
        batch_partitions(stores, subscribe="orders,ordres")


def test_a_group_needs_no_positions_in_a_store_without_the_topics(new_query: NewQuery) -> None:
    stores = new_query("ab").stores
    stores["a"].append("orders", 0, [200] * 5)
    stores["b"].append("audit", 0, [200])
    commit_group_offsets(stores["a"].path, "billing", {("orders", 0): 3})

    def start(subscribe: str) -> Any:
        given = {"path": stores.path, "subscribe": subscribe, "startingGroup": "billing"}
        planner = StreamPlanner(parse_stream_options(given))
        try:
            return {name: one["offsets"] for name, one in planner.initial_offset()["stores"].items()}
        finally:
            planner.close()

    assert start("orders") == {"a": {"orders": {"0": 3}}, "b": {}}
    with pytest.raises(OptionError, match="has no positions in the store"):
        start("orders,audit")
