"""A store whose log is not mounted is refused when a query is planned, by name, and not read as an empty one."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from commitlog_store.errors import LogNotFound
from pyspark_commitlog.options.read import parse_batch_options, parse_stream_options
from pyspark_commitlog.options.write import parse_batch_write_options
from pyspark_commitlog.sink.commit import prepare_store
from pyspark_commitlog.source.batch_source import CommitLogBatchReader
from pyspark_commitlog.source.schema import check_schema, default_schema
from pyspark_commitlog.source.stream_planner import StreamPlanner
from tests.support.store_builder import StoreBuilder


def store_at(path: Path) -> Path:
    StoreBuilder(path).append("orders", 0, [b"x"] * 10)
    return path


def unmount(store: Path) -> None:
    shutil.move(store / "commitlog", store.with_name(f"{store.name}-log"))
    (store / "commitlog").mkdir()


def batch(path: str, **options: str) -> CommitLogBatchReader:
    parsed = parse_batch_options({"path": path, "subscribe": "orders"} | options)
    return CommitLogBatchReader(parsed, check_schema(default_schema(parsed)))


def test_a_batch_is_refused_at_planning(tmp_path: Path) -> None:
    store = store_at(tmp_path / "store")
    unmount(store)
    with pytest.raises(LogNotFound, match=f"not at {store}/commitlog"):
        batch(str(store)).partitions()


def test_a_stream_is_refused_when_it_starts_and_while_it_runs(tmp_path: Path) -> None:
    store = store_at(tmp_path / "store")
    options = parse_stream_options({"path": str(store), "subscribe": "orders", "startingOffsets": "earliest"})
    planner = StreamPlanner.open(options)
    start = planner.initial_offset()
    unmount(store)
    with pytest.raises(LogNotFound, match="its files were there before"):
        planner.latest_offset(start, limited=True)
    planner.close()
    with pytest.raises(LogNotFound, match="Is its disk mounted"):
        StreamPlanner.open(options)


def test_one_of_several_stores_without_its_log_is_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one, other = store_at(tmp_path / "one"), store_at(tmp_path / "other")
    unmount(other)
    path = f"a={one},b={other}"
    with pytest.raises(LogNotFound, match="Store 'b' of the option path: The log of the store is not at"):
        batch(path).partitions()
    with caplog.at_level(logging.WARNING):
        assert batch(path, onMissingStore="skip").partitions()
    assert "Store 'b' is unavailable and is skipped" in caplog.text


def test_a_write_is_refused_before_its_tasks(tmp_path: Path) -> None:
    store = store_at(tmp_path / "store")
    unmount(store)
    with pytest.raises(LogNotFound):
        prepare_store(parse_batch_write_options({"path": str(store), "topic": "orders"}))
