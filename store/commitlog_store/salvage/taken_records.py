"""Taken records of a damaged log: the second walk of a salvage, over the stretches that the survey found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from commitlog_store.columnar.scan import RecordScan
from commitlog_store.errors import FileChanged
from commitlog_store.format.arrays import Int64Array
from commitlog_store.log.scan import LogWalk
from commitlog_store.salvage.log_source import LogSource
from commitlog_store.salvage.survey import Survey, queue_rows

_BLOCK_SIZE = 16 << 20


@dataclass(frozen=True)
class TakenBlock:
    """Records of one file of the damaged log, without those that are not taken.

    ``rows`` are the taken rows of ``scan``, None for all. ``queue_offsets`` are the offsets of all its rows in a
    salvaged store, None where they are as before.
    """

    file_base: int
    scan: RecordScan
    rows: Int64Array | None
    queue_offsets: Int64Array | None


def taken_blocks(files: LogSource, survey: Survey) -> Iterator[TakenBlock]:
    """All taken records, in the order of the log. ``FileChanged`` when they are not as they were surveyed."""
    left_out = np.array(survey.left_out, np.int64)
    moves = any(chain.is_moved for chain in survey.chains.queues.values())
    for start, stop in survey.stretches:
        walk = LogWalk(files, start, stop, check_crc=False, block_size=_BLOCK_SIZE)
        for scan in walk:
            base = files.base_at(scan.physical_offset)
            assert base is not None  # the scan is of that file
            yield TakenBlock(base, scan, _taken_rows(scan, left_out), _moved(survey, scan) if moves else None)
        if walk.offset < stop:
            file = files.find(walk.offset)
            raise _changed(files.path if file is None else file.path, walk.offset)


def _changed(path: str, at: int) -> FileChanged:
    return FileChanged(
        f"The record at physical offset {at} of {path} was whole a moment ago: another program writes to the log, or "
        "its disk fails. Salvage a copy of it.",
        path=path,
    )


def _taken_rows(scan: RecordScan, left_out: Int64Array) -> Int64Array | None:
    first = scan.physical_offset
    low, high = np.searchsorted(left_out, [first, first + scan.end]).tolist()
    if low == high:
        return None
    return np.flatnonzero(~np.isin(scan.positions + first, left_out[low:high]))


def _moved(survey: Survey, scan: RecordScan) -> Int64Array | None:
    """The new queue offsets of a scan's records; None when all stay."""
    offsets = scan.field("queue_offset").astype(np.int64)
    places = scan.positions + scan.physical_offset
    changed = False
    for topic, queue_id, rows in queue_rows(scan):
        chain = survey.chains.queues.get((topic, queue_id))
        if chain is not None and chain.is_moved:
            offsets[rows] = chain.new_offsets(places[rows], offsets[rows])
            changed = True
    return offsets if changed else None
