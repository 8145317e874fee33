"""Ranges of several queues that are interleaved in the log, in stores that are whole, damaged or compressed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
from hypothesis import strategies as st

from commitlog_store import ALL_COLUMNS, BatchId, MessageFilter, MessageStore, StoreReader
from commitlog_store.columnar.body_compression import BodyCompression
from commitlog_store.format.sys_flag import CompressionType
from commitlog_store.stager import BatchStager
from tests.support.store_builder import StoreBuilder

Range: TypeAlias = tuple[str, int, int, int]
Rows: TypeAlias = list[dict[str, object]]

# The queue of each message, and two offsets for each queue.
QUEUES = st.lists(st.integers(0, 4), min_size=1, max_size=60)
CUTS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=5, max_size=5)


def rows_of(batches: Sequence[pa.RecordBatch]) -> Rows:
    return [row for batch in batches for row in batch.to_pylist()]


def whole_queues(reader: StoreReader, topic: str) -> list[Range]:
    return [(topic, queue.queue_id, queue.min_offset, queue.max_offset) for queue in reader.queues(topic)]


def one_by_one(
    reader: StoreReader,
    ranges: Sequence[Range],
    columns: Sequence[str] = ALL_COLUMNS,
    chosen: MessageFilter | None = None,
) -> Rows:
    """The rows of a ``read`` for each of the ranges."""
    return rows_of([batch for one in ranges for batch in reader.read(*one, columns=columns, filter=chosen)])


def interleaved(directory: Path, queues: Sequence[int]) -> StoreBuilder:
    """Messages of the topic ``t`` for these queues, over several files of the log and of the queues."""
    store = StoreBuilder(directory / "store", log_file_size=4 << 10, queue_file_units=7)
    store.append("t", list(queues), [b"%d" % number * 50 for number in range(len(queues))])
    return store


def ranges_between(reader: StoreReader, cuts: Sequence[tuple[int, int]]) -> list[Range]:
    """The part of each queue of ``t`` between two offsets."""
    ranges = []
    for queue, pair in zip(reader.queues("t"), cuts, strict=False):
        start, stop = sorted(min(one, queue.max_offset) for one in pair)
        ranges.append(("t", queue.queue_id, start, stop))
    return ranges


def two_queues(directory: Path) -> StoreBuilder:
    """Forty messages of the topic ``t``, in the queues 0 and 1 in turns."""
    store = StoreBuilder(directory / "store", log_file_size=1 << 10)
    store.append("t", [0, 1] * 20, [b"x" * 100] * 40)
    return store


def damaged(store: StoreBuilder, damage: str) -> None:
    """Remove a file of ``two_queues``' log, or damage a record of it or a unit of queue 1."""
    logs = sorted((store.path / "commitlog").iterdir())
    if damage == "file":
        logs[2].unlink()
        return
    path, place = (logs[1], 4) if damage == "record" else (store.path / "consumequeue/t/1" / ("0" * 20), 65)
    with path.open("r+b") as file:
        file.seek(place)
        file.write(b"\xff")


def unpacked_bodies(directory: Path, count: int) -> Path:
    """A store with ``count`` messages of the topic ``t``, in two queues, whose bodies unpack to 1 MiB each."""
    path = directory / "store"
    MessageStore.open(path).close()
    batch_id = BatchId("packed", 1)
    compression = BodyCompression(CompressionType.ZLIB, 0)
    with BatchStager(path, batch_id, queue_counts={"t": 2}, compression=compression) as stager:
        queue_ids = pa.array([0, 1] * (count // 2), pa.int32())
        rows = {"topic": ["t"] * count, "body": [b"x" * (1 << 20)] * count, "queueId": queue_ids}
        stager.put(pa.record_batch(rows))
        staged = stager.finish()
        assert staged is not None
    with MessageStore.open(path) as store:
        store.commit_batch(batch_id, [staged])
    return path
