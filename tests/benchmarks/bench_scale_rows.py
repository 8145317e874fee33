"""How cost grows with messages and bytes in four queues, and with consumer groups: each operation at three sizes.

100,000 and 400,000 messages of 100 B, and 100,000 of 1,124 B, with tags and a key, so that a figure's difference is
that of 300,000 messages or of 100 MiB of bodies. Each step runs in a process of its own. Processor time says most.
``SCALE_ROWS`` names another number than 100,000.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from commitlog_store import Message, MessageStore, MessageStoreConfig, StoreReader, archive_store
from pyspark_commitlog.options.read import parse_batch_options, parse_stream_options
from pyspark_commitlog.source.batch_source import CommitLogBatchReader
from pyspark_commitlog.source.schema import check_schema, default_schema
from pyspark_commitlog.source.stream_planner import StreamPlanner
from tests.benchmarks.measure import machine, scratch
from tests.benchmarks.steps import Figures, clocked, command, in_process, note_memory, show_all

_TOPIC, _QUEUES = "orders", 4
_ROWS = int(os.environ.get("SCALE_ROWS", "100000"))
_ROWS_A_CALL = 10_000
_LOOK_UPS = 1_000
_SINGLE_PUTS = 10_000
_BATCHES = 20
_GROUPS = (10, 100, 1_000)
_COMMITS = 10
_CONFIG = MessageStoreConfig(mapped_file_size_commit_log=256 << 20, mapped_file_size_consume_queue=6_000_000)


class Size(NamedTuple):
    """So many messages, with bodies of so many bytes."""

    rows: int
    body_size: int

    def __str__(self) -> str:
        return f"{self.rows:,} rows of {self.body_size:,} B"


_SIZES = (Size(_ROWS, 100), Size(4 * _ROWS, 100), Size(_ROWS, 100 + 1024))


def _table(first: int, count: int, body_size: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "body": [b"x" * body_size] * count,
            "tags": ["paid"] * count,
            "keys": [f"order-{number}" for number in numbers],
            "queueId": pa.array([number % _QUEUES for number in numbers], pa.int32()),
        }
    )


def _write(path: Path, size: Size, figures: Figures) -> None:
    with MessageStore.open(path, _CONFIG) as store:
        tables = [_table(first, _ROWS_A_CALL, size.body_size) for first in range(0, size.rows, _ROWS_A_CALL)]
        with clocked(figures, "put_messages, with dispatch"):
            for table in tables:
                store.put_messages(table, topic=_TOPIC).raise_for_status()
            store.dispatch()
        with clocked(figures, "close"):
            store.close()


def _owner(path: Path, size: Size, figures: Figures) -> None:
    with clocked(figures, "open as owner"):
        store = MessageStore.open(path, _CONFIG)
    with store:
        message = Message(topic=_TOPIC, body=b"x" * size.body_size, tags="paid", keys=("single",), queue_id=0)
        with clocked(figures, f"put_message, {_SINGLE_PUTS:,} times, with dispatch"):
            for _ in range(_SINGLE_PUTS):
                store.put_message(message)
            store.dispatch()
        for rows in (100, 10_000):
            table = _table(0, rows, size.body_size)
            with clocked(figures, f"commit of a batch of {rows:,} rows, {_BATCHES} times"):
                for version in range(_BATCHES):
                    with store.transaction(f"app-{rows}", version) as batch:
                        batch.put_messages(table, topic=_TOPIC)
        with clocked(figures, "retention's look"):
            store.clean(dry_run=True, older_than_hours=1)


def _reader(path: Path, size: Size, figures: Figures) -> None:
    with clocked(figures, "open as reader"):
        reader = StoreReader.open(path)
    numbers = np.random.default_rng(1).integers(0, size.rows, _LOOK_UPS).tolist()
    with reader:
        with clocked(figures, "bounds of the queues"):
            queues = reader.queues(_TOPIC)
        with clocked(figures, "read of one queue"):
            sum(batch.num_rows for batch in reader.read(_TOPIC, 0, 0))
        with clocked(figures, "read of all, side by side"):
            ranges = [(one.topic, one.queue_id, one.min_offset, one.max_offset) for one in queues]
            sum(batch.num_rows for batch in reader.read_side_by_side(ranges))
        first, last = (reader.query(_TOPIC, f"order-{number}")[0].store_timestamp for number in (0, size.rows - 1))
        with clocked(figures, f"offset_by_time(), {_LOOK_UPS:,} times"):
            for number in numbers:
                reader.offset_by_time(_TOPIC, number % _QUEUES, first + (last - first) * number // size.rows)
        with clocked(figures, f"query() by key, {_LOOK_UPS:,} times"):
            for number in numbers:
                reader.query(_TOPIC, f"order-{number}")
    note_memory(figures, "memory of the reader")


def _plans(path: Path, size: Size, figures: Figures) -> None:
    """What Spark's driver does, without Spark."""
    del size
    options = {"path": str(path), "subscribe": _TOPIC}
    planner = StreamPlanner.open(parse_stream_options({**options, "startingOffsets": "earliest"}))
    with clocked(figures, "planner: first trigger, with all rows"):
        start = planner.initial_offset()
        end = planner.latest_offset(start, limited=True)
        planner.partitions(start, end)
    planner.latest_offset(end, limited=True)
    with clocked(figures, "planner: idle trigger"):
        planner.latest_offset(end, limited=True)
    planner.close()
    batch = parse_batch_options(options)
    with clocked(figures, "batch: partitions"):
        CommitLogBatchReader(batch, check_schema(default_schema(batch))).partitions()


def _commands(path: Path, size: Size, figures: Figures) -> None:
    del size
    for name in ("--version", "info", "doctor", "verify"):
        command(figures, f"commitlog {name}", name, *([] if name.startswith("-") else [str(path)]))


def _end_without_close(path: Path) -> None:
    store = MessageStore.open(path, _CONFIG)
    store.put_message(Message(topic=_TOPIC, body=b"x", queue_id=0)).raise_for_status()
    os._exit(0)


def _recover(path: Path, size: Size, figures: Figures) -> None:
    """The whole log is scanned, since it is in one file."""
    del size
    killed = multiprocessing.get_context("spawn").Process(target=_end_without_close, args=(path,))
    killed.start()
    killed.join()
    for name, rebuild in (("open after a kill", False), ("queues and index built again", True)):
        with clocked(figures, name):
            store = MessageStore.open(path, _CONFIG, rebuild=rebuild)
        store.close()


def _archive(path: Path, size: Size, figures: Figures) -> None:
    del size
    archive = path.with_name(f"{path.name}-archive")
    shutil.rmtree(archive, ignore_errors=True)
    try:
        with clocked(figures, "archive of all"):
            archive_store(path, f"archive+file://{archive}", with_last=True)
        opened = clocked(figures, "open of the archive, and bounds of its queues")
        with opened, StoreReader.open(f"archive+file://{archive}") as reader:
            reader.queues(_TOPIC)
    finally:
        shutil.rmtree(archive, ignore_errors=True)


def _groups(path: Path, size: Size, figures: Figures) -> None:
    """Groups with a position in each queue. They do not depend on messages, so the first size has them alone."""
    if size != _SIZES[0]:
        return
    with MessageStore.open(path, _CONFIG) as store:
        done = 0
        for count in _GROUPS:
            for number in range(done, count):
                store.commit_group_offsets(f"group-{number}", {(_TOPIC, queue_id): 1 for queue_id in range(_QUEUES)})
            done = count
            with clocked(figures, f"{count:,} groups: {_COMMITS} commits of positions"):
                for number in range(_COMMITS):
                    store.commit_group_offsets("group-0", {(_TOPIC, 0): 2 + number})
            command(figures, f"{count:,} groups: commitlog groups lag", "groups", "lag", str(path))


_STEPS = {
    "write": _write,
    "reader": _reader,
    "plans": _plans,
    "commands": _commands,
    "archive": _archive,
    "recover": _recover,
    "groups": _groups,
    "owner": _owner,  # last: it adds messages
}


def _step(name: str, path: Path, size: Size) -> Figures:
    figures: Figures = {}
    _STEPS[name](path, size, figures)
    return figures


def main() -> None:
    """Run the benchmark and print its figures."""
    print(machine())
    path = scratch() / "scale-rows"
    for size in _SIZES:
        print(f" {size}")
        shutil.rmtree(path, ignore_errors=True)
        try:
            for name in _STEPS:
                show_all(in_process(_step, name, path, size), {}, f"{size}: ")
        finally:
            shutil.rmtree(path, ignore_errors=True)
