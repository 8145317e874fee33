"""What Spark calls, with few files: ``python -m tests.connector.few_descriptors DIR PART,PART COUNT...``.

Each call is made in a child that has imported no more than Spark has when it calls a source for the first time, so that
the imports of a first use meet the limit too; and in one in which the same call has succeeded before. It succeeds, or
raises a named error that says which limit it met. It prints one line, ``fine``, or what is not.
"""

from __future__ import annotations

import os
import pickle
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_commitlog import DefaultSource

if TYPE_CHECKING:
    import pyarrow as pa


# How many files may be opened. With none at all, Python cannot even import the errors.
COUNTS = (1, 2, 4, 6, 9, 13, 20)
_COLUMNS = StructType([StructField("body", BinaryType())])
_SMALL = {"topic": "orders", "mappedFileSizeCommitLog": "256k", "maxHashSlotNum": "100", "maxIndexNum": "1000"}


def _build(base: Path) -> None:
    from tests.support.store_builder import StoreBuilder

    for name in ("store", "other"):
        builder = StoreBuilder(base / name, log_file_size=16 << 10, queue_file_units=20)
        builder.append("orders", [0, 1], [bytes(1000)] * 100, keys=["k"] * 100)
        builder.write_index("20240101000000000", [("orders#k", 0, 0)])
    (base / "checkpoint" / "offsets").mkdir(parents=True)
    (base / "checkpoint" / "metadata").write_text('{"id":"query"}')


def _batch(base: Path) -> None:
    for path in (f"{base}/store", f"a={base}/store,b={base}/other"):
        given = {"path": path, "subscribe": "orders"}
        reader = DefaultSource(given).reader(DefaultSource(given).schema())
        for partition in reader.partitions():
            list(reader.read(partition))


def _stream(base: Path) -> None:
    given = {"path": f"{base}/store", "subscribe": "orders", "startingOffsets": "earliest", "commitGroup": "g"}
    reader: Any = DefaultSource(given | {"maxOffsetsPerTrigger": "50"}).streamReader(_COLUMNS)
    start = reader.initialOffset()
    for _ in range(2):
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        for partition in reader.partitions(start, end):
            list(reader.read(partition))
        reader.reportLatestOffset()
        start = end
    reader.stop()


def _metadata(base: Path) -> None:
    for table in ("topics", "queues", "files", "batches", "groups", "findings"):
        given = {"path": f"{base}/store", "metadata": table}
        reader = DefaultSource(given).reader(DefaultSource(given).schema())
        for partition in reader.partitions():
            list(reader.read(partition))


def _sink(base: Path) -> None:
    path = f"{base}/new-{os.getpid()}-{time.monotonic_ns()}"
    writer: Any = DefaultSource(_SMALL | {"path": path}).writer(_COLUMNS, overwrite=False)
    _commit(writer, writer._staged_as)


def _stream_sink(base: Path) -> None:
    from commitlog_store import BatchId

    batch = BatchId("query", time.time_ns())
    given = _SMALL | {"path": f"{base}/store", "checkpointLocation": f"{base}/checkpoint"}
    _commit(DefaultSource(given).streamWriter(_COLUMNS, overwrite=False), batch, batch.version)


def _commit(writer: Any, batch: Any, *version: int) -> None:
    """What a task does, without Spark's own context of it; and the commit, with the writer as Spark passes it on."""
    from pyspark_commitlog.sink.task import StagedRows

    staged = writer._task.stage(_rows(), batch, 0, 0)
    messages = [StagedRows(partition=0, batch=batch, staged=staged)]
    writer = pickle.loads(pickle.dumps(writer))
    try:
        writer.commit(messages, *version)
    except BaseException:
        writer.abort(messages, *version)
        raise


def _rows() -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    yield pa.RecordBatch.from_pydict({"body": [b"x"] * 10})


def _lookup(base: Path) -> None:
    import pyarrow as pa

    from pyspark_commitlog.source.lookup import LookupTask

    task = LookupTask(path=f"{base}/store", topic="orders", columns=("body",), on_damage="raise")
    list(task.run(iter([pa.array(["k", "none"])])))


CALLS: dict[str, Callable[[Path], None]] = {
    "batch": _batch,
    "stream": _stream,
    "metadata": _metadata,
    "sink": _sink,
    "stream sink": _stream_sink,
    "lookup": _lookup,
}


def _fault(call: Callable[[Path], None], base: Path, count: int, *, before: bool) -> str | None:
    """What is wrong with a call, after another one if ``before``, while so many files may be opened."""
    from commitlog_store.errors import CommitLogError

    if before:
        call(base)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    probe = os.open("/", os.O_RDONLY)
    os.close(probe)
    resource.setrlimit(resource.RLIMIT_NOFILE, (probe + count, hard))
    try:
        call(base)
    except CommitLogError as error:
        said = str(error)
    except BaseException:  # noqa: BLE001 - that no such error comes is what this program is for
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return traceback.format_exc()
    else:
        return None
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return None if "Too many open files" in said else said


def _in_child(action: Callable[[], str | None]) -> str:
    """What an action returns, made in a child; empty for None."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = "the child died"
        try:
            said = action() or ""
        finally:
            os.write(writing, said.encode()[-4000:])
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as answer:
        said = answer.read().decode()
    os.waitpid(child, 0)
    return said


def main(base: Path, parts: str, *counts: int) -> None:
    """The parts, each with stores of its own, at each of these counts."""
    faults = [fault for part in parts.split(",") for fault in _faults(base / part, part, counts)]
    print("\n".join(faults) or "fine")


def _faults(base: Path, part: str, counts: Sequence[int]) -> list[str]:
    base.mkdir()
    _in_child(lambda: _build(base))
    faults = []
    for count in counts:
        for before in (False, True):
            said = _in_child(lambda count=count, before=before: _fault(CALLS[part], base, count, before=before))  # type: ignore[misc]
            faults += [f"{part} with {count} files, {before=}: {said}"] if said else []
    return faults


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:]))
