"""The sink: commits beside plain copies, batch writes and small micro-batches beside Spark's own cost."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from commitlog_store import BatchId, FlushDiskType, MessageStore, MessageStoreConfig, StagedFile
from commitlog_store.batch.staging import StagedWriter
from commitlog_store.columnar.encode import RecordSettings, encode_messages
from commitlog_store.columnar.input import message_schema, parse_messages
from commitlog_store.columnar.unique_key import unique_keys
from tests.benchmarks.dropping_sink import DroppingSink
from tests.benchmarks.measure import GIB, machine, made_rows, memory_at_hand, scratch, show
from tests.support.local_spark import start_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_CHUNK = 16_384
_SYNC = MessageStoreConfig(flush_disk_type=FlushDiskType.SYNC_FLUSH)
_TRIGGERS = 40
_COPIED = 8 << 20
# What a commit of 1 GiB, or a batch write, touches of memory that was not in use: the log's files, the staged ones.
_TOUCHED = 3 * GIB


@contextmanager
def _directory(name: str) -> Iterator[Path]:
    path = scratch() / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _rows(body_size: int, count: int = _CHUNK) -> pa.Table:
    raw = np.random.default_rng(1).integers(32, 127, body_size * count, dtype=np.uint8)
    offsets = np.arange(0, (count + 1) * body_size, body_size, dtype=np.int32)
    return pa.table(
        {"body": pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(raw)])}
    )


def _stage(store: Path, batch: BatchId, rows: pa.Table, size: int) -> StagedFile:
    queues = (np.arange(len(rows)) % 4).astype(np.int32)
    settings, schema = RecordSettings.of(_SYNC), message_schema(rows, topic="orders")
    (chunk,) = rows.to_batches()
    with StagedWriter(str(store), batch) as writer:
        first = written = 0
        while written < size:
            columns = parse_messages(chunk, schema, born_timestamp_ms=1, limits=settings.limits)
            keys = unique_keys(b"bench", batch.version, first, len(rows))
            encoded = encode_messages(columns, queues, settings, unique_keys=keys)
            writer.append(encoded)
            first += len(rows)
            written += len(encoded.records.data)
        return writer.finish()


def _plain_copy(source: Path, target: Path) -> float:
    """Seconds of the least that brings the same bytes to the device: read, write into allocated space, sync."""

    begun = time.perf_counter()
    with source.open("rb", buffering=0) as reading, target.open("wb", buffering=0) as writing:
        os.posix_fallocate(writing.fileno(), 0, source.stat().st_size)
        buffer = bytearray(_COPIED)
        while count := reading.readinto(buffer):
            writing.write(memoryview(buffer)[:count])
        os.fdatasync(writing.fileno())
    taken = time.perf_counter() - begun
    target.unlink()
    return taken


def _commit(store: MessageStore, staged: StagedFile, batch: BatchId) -> tuple[float, float]:
    """Seconds of the commit, and of the dispatch behind it."""
    begun = time.perf_counter()
    store.commit_batch(batch, [staged])
    committed = time.perf_counter()
    store.dispatch()
    return committed - begun, time.perf_counter() - committed


def _commits() -> None:
    for body_size in (1024, 100):
        with _directory("commit") as path:
            rows = _rows(body_size)
            MessageStore.open(path, _SYNC).close()
            found, copies = [], []
            for version in range(3):
                staged = _stage(path, BatchId("bench", version), rows, GIB)
                memory_at_hand(_TOUCHED)
                copies.append(_plain_copy(path / staged.path, path / "copy"))
                with MessageStore.open(path, _SYNC) as store:
                    memory_at_hand(_TOUCHED)
                    found.append((*_commit(store, staged, BatchId("bench", version)), staged.rows))
            copied = min(copies)
            commit, dispatch, count = min(found)
            show(
                f"commit of 1 GiB, {body_size} B, beside copy and fdatasync",
                f"{commit:.2f} s",
                f"{commit / copied:.2f} times {copied:.2f} s (goal at most 1.5)",
            )
            show(f"  dispatch behind it, {count} messages", f"{dispatch:.2f} s", f"{count / dispatch / 1e6:.2f} M/s")


def _one_commit_ms(path: Path, versions: range) -> float:
    """The median of opening, committing 1,000 rows and closing, in milliseconds."""
    rows = _rows(500, 1000)
    taken = []
    for version in versions:
        staged = _stage(path, BatchId("small", version), rows, 1)
        begun = time.perf_counter()
        with MessageStore.open(path, _SYNC) as store:
            store.commit_batch(BatchId("small", version), [staged])
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken) * 1000


def _growth() -> None:
    with _directory("growing") as path:
        MessageStore.open(path, _SYNC).close()
        rows = _rows(1024)
        done = 0
        first = 0.0
        for size in (1, 16):
            while done < size:
                staged = _stage(path, BatchId("filler", done), rows, GIB)
                with MessageStore.open(path, _SYNC) as store:
                    store.commit_batch(BatchId("filler", done), [staged])
                done += 1
            taken = _one_commit_ms(path, range(size * 100, size * 100 + 30))
            first = first or taken
            show(f"open, commit of 1,000 rows, close; store of {size} GiB", f"{taken:.1f} ms", f"{taken / first:.2f}")
    with _directory("batches") as path:
        MessageStore.open(path, _SYNC).close()
        rows = _rows(100, 10)
        first = 0.0
        done = 0
        for count in (10, 10_000):
            with MessageStore.open(path, MessageStoreConfig()) as store:
                while done < count:
                    store.commit_batch(BatchId("many", done), [_stage(path, BatchId("many", done), rows, 1)])
                    done += 1
            taken = _one_commit_ms(path, range(count * 2, count * 2 + 30))
            first = first or taken
            show(f"the same, after {count} batches", f"{taken:.1f} ms", f"{taken / first:.2f}")


def _batch_writes(spark: SparkSession, work: Path) -> None:
    for body_size, count in ((1024, 1_000_000), (100, 4_000_000)):
        frame = made_rows(spark, body_size, count)

        def drop(frame: DataFrame = frame) -> None:
            frame.write.format("dropping").mode("append").save()

        taken: list[float] = []

        def write(frame: DataFrame = frame, taken: list[float] = taken) -> None:
            path = work / f"written-{len(taken)}"
            memory_at_hand(_TOUCHED)
            begun = time.perf_counter()
            frame.write.format("commitlog").option("path", str(path)).option("topic", "orders").mode("append").save()
            taken.append(time.perf_counter() - begun)
            shutil.rmtree(path)

        drop()
        write()
        ceilings = []
        for _ in range(4):
            begun = time.perf_counter()
            drop()
            ceilings.append(time.perf_counter() - begun)
            write()
        ceiling = min(ceilings)
        mine = min(taken[1:])
        show(f"batch write, {body_size} B: a sink that drops its input", f"{count / ceiling / 1e3:.0f} k rows/s")
        show(
            f"batch write, {body_size} B: new store, synchronous flush",
            f"{count / mine / 1e3:.0f} k rows/s",
            f"{ceiling / mine:.0%} (goal 35 %)",
        )


def _trigger_ms(frame: DataFrame, sink: str, options: dict[str, str]) -> float:
    """The median duration of a trigger with 1,000 rows, in milliseconds."""
    query = frame.writeStream.format(sink).options(**options).trigger(processingTime="0 seconds").start()
    try:
        while len(query.recentProgress) < _TRIGGERS + 5:
            time.sleep(0.2)
            if query.exception() is not None:
                raise query.exception()  # type: ignore[misc]
        done = [p["durationMs"]["triggerExecution"] for p in query.recentProgress[5:] if p["numInputRows"] == 1000]
    finally:
        query.stop()
    return float(statistics.median(done))


def _micro_batches(spark: SparkSession, work: Path) -> None:
    source = work / "source"
    with MessageStore.open(source) as store:
        store.put_messages(_rows(500, _TRIGGERS * 4 * 1000), topic="in")
    options = {"path": str(source), "subscribe": "in", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "1000"}
    frame = spark.readStream.format("commitlog").options(**options).load().select("body")
    dropped = _trigger_ms(frame, "dropping", {"checkpointLocation": str(work / "drop")})
    written = _trigger_ms(
        frame,
        "commitlog",
        {"checkpointLocation": str(work / "write"), "path": str(work / "out"), "topic": "out"},
    )
    show("trigger of 1,000 rows, a sink that drops its input", f"{dropped:.0f} ms")
    show("trigger of 1,000 rows, synchronous flush", f"{written:.0f} ms", f"adds {written - dropped:.0f} (goal 40)")


def main() -> None:
    """Run the benchmark and print its figures."""
    print(machine())
    _commits()
    _growth()
    with tempfile.TemporaryDirectory(dir=scratch()) as name:
        work = Path(name)
        spark = start_spark(work, spark__sql__streaming__numRecentProgressUpdates="10000")
        spark.dataSource.register(DroppingSink)
        _batch_writes(spark, work)
        _micro_batches(spark, work)
        spark.stop()
