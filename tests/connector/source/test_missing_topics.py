"""Named topics and queues that do not exist: a batch fails, a stream warns once; both with the nearest names."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlog import StoreReader
from commitlog.errors import TopicNotFound
from pyspark_commitlog.options.read import parse_batch_options, parse_stream_options
from pyspark_commitlog.source.stream_planner import StreamPlanner
from tests.support.store_builder import StoreBuilder

__all__: list[str] = []


@pytest.fixture
def store(tmp_path: Path) -> StoreBuilder:
    builder = StoreBuilder(tmp_path / "store")
    for topic in ("orders", "orders_eu", "audit"):
        builder.append(topic, [0, 1], [b"x"] * 2)
    return builder


def warnings_of(store: StoreBuilder, caplog: pytest.LogCaptureFixture, **options: str) -> list[str]:
    """What a stream logs when it starts and plans two triggers."""
    caplog.clear()
    planner = StreamPlanner.open(parse_stream_options({"path": str(store.path)} | options))
    start = planner.initial_offset()
    for _ in range(2):
        start = planner.latest_offset(start, limited=True)
    planner.close()
    return [record.getMessage() for record in caplog.records]


def test_a_stream_warns_once_with_the_nearest_names(store: StoreBuilder, caplog: pytest.LogCaptureFixture) -> None:
    (said,) = warnings_of(store, caplog, subscribe="ordres,audit,zzz")
    assert f"Topic 'ordres' is not in the store {store.path} yet. Did you mean 'orders' or 'orders_eu'?" in said
    assert f"Topic 'zzz' is not in the store {store.path} yet. The query reads what comes there" in said
    assert "Topic 'audit'" not in said


def test_a_stream_warns_of_assigned_queues(store: StoreBuilder, caplog: pytest.LogCaptureFixture) -> None:
    (said,) = warnings_of(store, caplog, assign='{"orders":[0,7]}')
    assert f"Topic 'orders' has no queue 7 in the store {store.path} yet." in said


def test_a_stream_warns_of_a_pattern_without_a_topic(store: StoreBuilder, caplog: pytest.LogCaptureFixture) -> None:
    (said,) = warnings_of(store, caplog, subscribePattern="ordres.*")
    assert "matches subscribePattern" in said


@pytest.mark.parametrize("options", [{"subscribe": "orders,audit"}, {"assign": '{"orders":[0]}'}])
def test_no_warning_when_all_are_there(
    store: StoreBuilder, caplog: pytest.LogCaptureFixture, options: dict[str, str]
) -> None:
    assert warnings_of(store, caplog, **options) == []


def test_a_batch_fails_with_the_nearest_names(store: StoreBuilder) -> None:
    options = parse_batch_options({"path": str(store.path), "subscribe": "ordres"})
    with StoreReader.open(store.path) as reader, pytest.raises(TopicNotFound, match="Did you mean 'orders' or"):
        options.subscription.require_all(reader)
