"""Committed half messages: the messages in their topics, found in the index by unique key.

A broker that stops between a commit and its op message leaves a committed message and a half message that looks
pending; RocketMQ 5 leaves them also at an orderly stop, since it gathers op messages for up to three seconds. The
committed message says of which half message it is: by its PREPAREDTRANSACTIONOFFSET. A check in between has put the
half message back at another place; such a copy has the birth and the body of the committed message.
"""

from __future__ import annotations

from commitlog_store.errors import CommitLogError
from commitlog_store.format.half_messages import check_times, prepared_queue_offset
from commitlog_store.format.properties import REAL_TOPIC, UNIQ_KEY, decode_properties
from commitlog_store.format.record import Record
from commitlog_store.format.sys_flag import TRANSACTION_COMMIT_TYPE, transaction_type
from commitlog_store.index.service import IndexService
from commitlog_store.log.commit_log import CommitLog

__all__ = ["committed_messages", "is_commit_of"]

_AFTER_ALL = 2**63 - 1


def committed_messages(index: IndexService, log: CommitLog, half: Record) -> list[Record] | None:
    """The committed messages of a half message, or of a copy: with its topic, unique key and birth, from the index.

    None where that cannot be said: the half message has no unique key, or index or log are damaged.
    """
    properties = decode_properties(half.properties)
    topic, key = properties.get(REAL_TOPIC, ""), properties.get(UNIQ_KEY, "")
    if not key:
        return None
    try:
        hits = index.candidates(topic, key, half.store_timestamp, _AFTER_ALL, strict=False)
        records = [log.read_record(hit.physical_offset) for hit in hits]
    except CommitLogError:
        return None
    return [record for record in records if _is_committed(record, half, topic, key)]


def is_commit_of(committed: Record, half: Record) -> bool:
    """Whether one of the ``committed_messages`` of a half message is that one's, or that of its original."""
    if committed.prepared_transaction_offset == half.physical_offset:
        return True
    properties = decode_properties(half.properties)
    is_copy = check_times(properties) != 0 or prepared_queue_offset(properties) >= 0
    same = committed.born_timestamp == half.born_timestamp and committed.body_crc == half.body_crc
    return is_copy and same and committed.prepared_transaction_offset < half.physical_offset


def _is_committed(record: Record, half: Record, topic: str, key: str) -> bool:
    """Whether it is committed, with that topic and key, and names the half message or has its birth."""
    return (
        transaction_type(record.sys_flag) == TRANSACTION_COMMIT_TYPE
        and record.topic == topic.encode()
        and decode_properties(record.properties).get(UNIQ_KEY) == key
        and (record.prepared_transaction_offset == half.physical_offset or record.born_timestamp == half.born_timestamp)
    )
