"""Target files of a salvage: the messages that consumers would see, as Parquet, JSON lines or CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from commitlog_store.columnar.bodies import BodiesTooLarge
from commitlog_store.columnar.decode import record_batch
from commitlog_store.columnar.locate import QueuePlace, RecordBlock, RecordProblem
from commitlog_store.columnar.scan import RecordScan
from commitlog_store.export.export_store import EXPORT_COLUMNS
from commitlog_store.export.targets import ExportTarget, make_directory_of
from commitlog_store.export.writers import DEFAULT_FILE_SIZE, new_writer
from commitlog_store.format.arrays import Int64Array
from commitlog_store.salvage.log_source import LogSource
from commitlog_store.salvage.survey import Survey, Unreadable, queue_rows
from commitlog_store.salvage.taken_records import taken_blocks

# Bytes of bodies, unpacked, in one batch.
_BODY_LIMIT = 64 << 20


def write_files(files: LogSource, survey: Survey, target: ExportTarget, progress: Callable[[int], None]) -> None:
    """Write all taken messages with their old queue offsets. ``OSError``.

    Those whose values no column can hold, such as a body that cannot be unpacked, are added to ``survey.unreadable``.
    """
    make_directory_of(target)
    writer = new_writer(target, EXPORT_COLUMNS, 0, file_size=DEFAULT_FILE_SIZE, compression="snappy")
    try:
        for block in taken_blocks(files, survey):
            taken = None if block.rows is None else np.isin(np.arange(len(block.scan)), block.rows)
            for topic, queue_id, rows in queue_rows(block.scan):
                if taken is not None:
                    rows = rows[taken[rows]]  # noqa: PLW2901
                for batch in _batches(block.scan, topic, queue_id, rows, survey.unreadable):
                    writer.write(topic, batch)
            if writer.is_due:
                writer.commit()
            progress(block.scan.physical_offset + block.scan.end - survey.log_start)
        writer.commit()
    finally:
        writer.close()


def _batches(
    scan: RecordScan, topic: str, queue_id: int, rows: Int64Array, unreadable: list[Unreadable]
) -> Iterator[pa.RecordBatch]:
    """The rows as batches, without those that cannot be decoded, which are noted."""
    while len(rows):
        try:
            yield record_batch(_block(scan, topic, queue_id, rows), EXPORT_COLUMNS)
            return
        except BodiesTooLarge as full:
            yield from _batches(scan, topic, queue_id, rows[: full.rows], unreadable)
            rows = rows[full.rows :]
        except RecordProblem as problem:
            yield from _batches(scan, topic, queue_id, rows[: problem.index], unreadable)
            place = scan.physical_offset + int(scan.positions[rows[problem.index]])
            unreadable.append(Unreadable(place, place + int(scan.sizes[rows[problem.index]]), str(problem)))
            rows = rows[problem.index + 1 :]


def _block(scan: RecordScan, topic: str, queue_id: int, rows: Int64Array) -> RecordBlock:
    offsets = scan.field("queue_offset")[rows].astype(np.int64)
    return RecordBlock(
        data=scan.data,
        headers=scan.headers[rows],
        sizes=scan.sizes[rows],
        parts=scan.parts.take(rows),
        place=QueuePlace(topic=topic, queue_id=queue_id, queue_offsets=offsets),
        body_limit=_BODY_LIMIT,
    )
