"""Records that move: rows of a scan as bytes, back to back, with the places that they get in another log."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from commitlog_store.columnar.records import move_records
from commitlog_store.columnar.scan import RecordScan
from commitlog_store.format.arrays import ByteArray, Int64Array
from commitlog_store.format.record import HOST_FLAGS, field_offset

_NUMBER = np.dtype(">i8")


def moved_records(
    scan: RecordScan,
    rows: Int64Array,
    queue_offsets: Int64Array,
    places: Int64Array,
    new_reference: Callable[[int], int],
) -> ByteArray:
    """The records of ascending ``rows``, each with its value of ``queue_offsets`` and of ``places``, its new physical
    offset; these follow each other.

    ``new_reference`` gives for a PREPAREDTRANSACTIONOFFSET, a place in the log of the scan, the one to write; 0 for
    none. All other bytes stay.
    """
    jumps = np.flatnonzero(np.diff(rows) != 1) + 1
    pieces = [
        scan.data[int(scan.positions[part[0]]) : int(scan.positions[part[-1]] + scan.sizes[part[-1]])]
        for part in np.split(rows, jumps)
    ]
    data: ByteArray = pieces[0].copy() if len(pieces) == 1 else np.concatenate(pieces)
    starts = places - places[0]
    move_records(data, starts, queue_offsets, places)
    references = scan.field("prepared_transaction_offset")[rows]
    flags = scan.field("sys_flag")[rows]
    for row in np.flatnonzero(references).tolist():
        at = int(starts[row]) + field_offset("prepared_transaction_offset", int(flags[row]) & HOST_FLAGS)
        number = np.array(new_reference(int(references[row])), _NUMBER)
        data[at : at + _NUMBER.itemsize] = np.frombuffer(number.tobytes(), np.uint8)
    return data
