"""Check of whole records for header fields that no store writes: BODYCRC covers the body alone, not the header.

A record with such a value is damaged, though its lengths and its CRC are right.
"""

from __future__ import annotations

import numpy as np

from commitlog_store.columnar.scan import RecordScan
from commitlog_store.format.consume_queue_unit import UNIT_SIZE
from commitlog_store.format.record import Corrupt, field_offset
from commitlog_store.format.timestamps import MAX_TIMESTAMP_MS
from commitlog_store.java_numbers import MAX_LONG
from commitlog_store.paths import names_directory

# By the names that the errors use.
IMPOSSIBLE_FIELDS = ("QUEUEID", "QUEUEOFFSET", "STORETIMESTAMP", "TOPIC")

# A queue's files are named by the offset of their first byte.
_MAX_QUEUE_OFFSET = MAX_LONG // UNIT_SIZE


def first_impossible(scan: RecordScan) -> tuple[int, Corrupt] | None:
    """Row of the first record with a value that no store writes, and that value; None when all records are possible.

    These are a negative queue id, a queue offset or a store time out of range, and a topic that cannot name a
    directory (invariant 10).
    """
    if not len(scan):
        return None
    codes, names = scan.topics
    named = np.array([names_directory(name) for name in names], np.bool_)
    queue_ids, offsets = scan.field("queue_id"), scan.field("queue_offset")
    times = scan.field("store_timestamp")
    checks = (
        ("QUEUEID", field_offset("queue_id"), queue_ids, queue_ids >= 0),
        ("QUEUEOFFSET", field_offset("queue_offset"), offsets, (offsets >= 0) & (offsets < _MAX_QUEUE_OFFSET)),
        ("STORETIMESTAMP", field_offset("store_timestamp"), times, (times >= 0) & (times <= MAX_TIMESTAMP_MS)),
        ("TOPIC", 0, codes, named[codes]),
    )
    wrong = [(int(np.argmin(good)), name, at, values) for name, at, values, good in checks if not good.all()]
    if not wrong:
        return None
    row, name, at, values = min(wrong, key=lambda one: one[0])
    found = repr(names[int(values[row])]) if name == "TOPIC" else str(values[row])
    return row, Corrupt(name, at, "a value that a store writes", found)
