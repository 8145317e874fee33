"""Dispatch requests of a few records, decoded one by one.

One message takes 0.3 ms of the processor with all of its dispatch, a quarter of what reading it as columns takes, so a
store whose messages come one at a time dispatches them in this way. The requests and index entries are those of
``dispatch_requests`` and ``index_entries``; a record for which these do more than hash tags and keys (it is delayed,
begins a batch or names light queues) is left to them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from commitlog_store.columnar.dispatch import DispatchRequests
from commitlog_store.columnar.dispatch_keys import IndexEntries
from commitlog_store.format import sys_flag
from commitlog_store.format.java_hash import index_key_hash, string_hash_code
from commitlog_store.format.message_rules import SCHEDULE_TOPIC
from commitlog_store.format.properties import (
    INNER_MULTI_DISPATCH,
    KEY_SEPARATOR,
    KEYS,
    TAGS,
    UNIQ_KEY,
    decode_properties,
    decode_utf8,
)
from commitlog_store.format.record import Record, decode_record
from commitlog_store.paths import BATCH_TOPIC

# More records, and longer ones, take less time as columns.
MOST_RECORDS = 16
MOST_BYTES = 16 << 10

_TOTAL_SIZE = 4
_LEFT_TO_COLUMNS = frozenset({SCHEDULE_TOPIC.encode(), BATCH_TOPIC.encode()})


class FewRecords(NamedTuple):
    """The requests and index entries of records that end at a physical offset."""

    end: int
    requests: DispatchRequests
    entries: IndexEntries


def few_records(data: bytes | memoryview, physical_offset: int) -> FewRecords | None:
    """The records of which ``data`` consists; None if they are too many, or are to be read as columns.

    ``physical_offset`` is where ``data`` begins. CRCs are not checked: a record that is not whole gives None too.
    """
    records = _decode(memoryview(data), physical_offset)
    if not records:
        return None
    topics: dict[str, int] = {}
    topic_codes: list[int] = []
    tags_codes: list[int] = []
    hashes: list[int] = []
    rows: list[int] = []
    for row, record in enumerate(records):
        topic = decode_utf8(record.topic)
        properties = decode_properties(record.properties)
        if INNER_MULTI_DISPATCH in properties:
            return None
        topic_codes.append(topics.setdefault(topic, len(topics)))
        tags_codes.append(string_hash_code(properties.get(TAGS, "")))
        if sys_flag.transaction_type(record.sys_flag) != sys_flag.TRANSACTION_ROLLBACK_TYPE:
            keys = [properties.get(UNIQ_KEY, ""), *properties.get(KEYS, "").split(KEY_SEPARATOR)]
            found = [index_key_hash(f"{topic}#{key}") for key in keys if key]
            hashes += found
            rows += [row] * len(found)
    requests = DispatchRequests(
        physical_offsets=np.array([record.physical_offset for record in records], np.int64),
        sizes=np.array([record.total_size for record in records], np.int32),
        queue_ids=np.array([record.queue_id for record in records], np.int32),
        queue_offsets=np.array([record.queue_offset for record in records], np.int64),
        store_timestamps=np.array([record.store_timestamp for record in records], np.int64),
        sys_flags=np.array([record.sys_flag for record in records], np.int32),
        topic_codes=np.array(topic_codes, np.int32),
        tags_codes=np.array(tags_codes, np.int64),
        topics=list(topics),
    )
    entries = IndexEntries(np.array(hashes, np.int32), np.array(rows, np.int64))
    return FewRecords(physical_offset + len(data), requests, entries)


def _decode(data: memoryview, physical_offset: int) -> list[Record]:
    """The records; none if there are too many, or one is not whole or left to the columns."""
    places = [0]
    while (place := places[-1]) < len(data):
        size = int.from_bytes(data[place : place + _TOTAL_SIZE], "big", signed=True)
        if len(places) > MOST_RECORDS or size < _TOTAL_SIZE:
            return []
        places.append(place + size)
    records = []
    for place in places[:-1]:
        record = decode_record(data[place:], physical_offset=physical_offset + place, check_crc=False)
        if not isinstance(record, Record) or record.topic in _LEFT_TO_COLUMNS:
            return []
        records.append(record)
    return records
