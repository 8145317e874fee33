"""The cost of opening, committing a batch and closing does not grow with the store: counted in calls to the disk."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import getmembers, isfunction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from commitlog_store import FlushDiskType, MessageStore, MessageStoreConfig
from commitlog_store.files import disk
from tests.store.owner.owned_store import SYNC, small

# The queues that a commit appends to: of the rows, and of the frames.
_QUEUES = 2
# Threads beside the commit flush now and then, or do not.
_SLACK = 12


def rows(count: int, body_size: int = 10) -> pa.Table:
    """Messages of one queue, all with the same key: in the index they make one chain."""
    return pa.table(
        {
            "body": pa.array([b"x" * body_size] * count, pa.binary()),
            "keys": ["customer"] * count,
            "queueId": pa.array([0] * count, pa.int32()),
        }
    )


def commit(store: MessageStore, version: int, table: pa.Table) -> None:
    with store.transaction("loader", version) as batch:
        batch.put_messages(table, topic="orders")


@contextmanager
def counted() -> Iterator[Counter[tuple[str, str]]]:
    """How often each function of ``disk`` is called in the block, in any thread; by name and, for opens, directory."""
    calls: Counter[tuple[str, str]] = Counter()

    def counting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            opens = name in ("open_file", "open_for_writing")
            calls[name, Path(arguments[0]).parent.name if opens else ""] += 1
            return function(*arguments, **named)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name, function in getmembers(disk, isfunction):
            if function.__module__ == disk.__name__ and name[0] != "_":
                patch.setattr(disk, name, counting(name, function))
        yield calls


def one_commit(path: Path, config: MessageStoreConfig, version: int) -> Counter[tuple[str, str]]:
    """The calls of opening a store that was closed, committing one row and closing: the least of three times."""
    found = []
    for again in range(3):
        with counted() as calls, MessageStore.open(path, config) as store:
            commit(store, version + again, rows(1))
        assert store.recovered is None
        found.append(calls)
    return min(found, key=Counter.total)


def test_costs_do_not_grow_with_the_number_of_batches(tmp_path: Path) -> None:
    """Where a queue begins and ends is found by bisection; all else is the same after 10 batches and after 500."""
    config = MessageStoreConfig(
        flush_disk_type=SYNC, mapped_file_size_commit_log=4 << 20, max_hash_slot_num=1000, max_index_num=100_000
    )
    filling = dataclasses.replace(config, flush_disk_type=FlushDiskType.ASYNC_FLUSH)
    done, found = 0, []
    for count in (10, 500):
        with MessageStore.open(tmp_path, filling) as store:
            while done < count:
                commit(store, done, rows(1))
                done += 1
        found.append(one_commit(tmp_path, config, done))
        done += 3
    few, many = found
    steps = math.ceil(math.log2(500 / 10))
    # A step opens a file of the queue, reads a unit and closes it.
    assert many.total() <= few.total() + _QUEUES * steps * 3 + _SLACK, many - few


def test_costs_do_not_grow_with_the_number_of_log_files(tmp_path: Path) -> None:
    """Each file of the log costs one look at its size, so that one that was cut short is missed when the store is
    opened. None but those of the log's end are opened: a process may have fewer files open than a store has."""
    config = small(
        flush_disk_type=SYNC, mapped_file_size_consume_queue=6_000_000, max_hash_slot_num=1000, max_index_num=100_000
    )
    found = []
    for files in (4, 64):
        path = tmp_path / str(files)
        with MessageStore.open(path, config) as store:
            while store.physical_bounds()[1] < files * config.mapped_file_size_commit_log:
                store.put_messages(rows(15, 900), topic="orders")
        found.append(one_commit(path, config, 1))
    few, many = found
    assert many["open_for_writing", "commitlog"] <= few["open_for_writing", "commitlog"] + 1
    assert many["open_for_writing", "commitlog"] <= 3
    assert many["identity_of", ""] - few["identity_of", ""] <= 64 - 4 + 2
    steps = math.ceil(math.log2(64 / 4))
    assert many.total() <= few.total() + (64 - 4) + _QUEUES * steps * 3 + _SLACK, many - few
