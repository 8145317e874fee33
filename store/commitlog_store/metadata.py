"""Tables about a store: its topics, queues, files, batches, and what ``verify_store`` finds, as Arrow tables.

============  ===============================================================================================
table         a row
============  ===============================================================================================
``topics``    a topic: how many queues and messages
``queues``    a queue: its offsets, and the store times of its first and last message
``groups``    a consumer group in a queue: its position, and how far behind it is, as ``StoreReader.groups``
``files``     a file of the store: its size, and for files of the log and of queues what its name says
``batches``   the last batch of each query and application, as ``commitlog txn ls``
``findings``  a deviation of the store from its invariants; reads the whole store, as ``commitlog verify``
============  ===============================================================================================

All columns are nullable. Times are timestamps in UTC; one that no calendar has is null.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from commitlog_store.columnar.columns import nearest_name
from commitlog_store.config import MessageStoreConfig
from commitlog_store.errors import CommitLogError, InvalidValue
from commitlog_store.files import disk
from commitlog_store.format.consume_queue_unit import UNIT_SIZE
from commitlog_store.format.timestamps import is_timestamp
from commitlog_store.paths import (
    COMMIT_LOG,
    CONSUME_QUEUE,
    REMOTE_SCHEMES,
    is_queue_id,
    is_system_topic,
    parse_file_name,
)
from commitlog_store.reader import QueueInfo, StoreReader

if TYPE_CHECKING:
    from commitlog_store.verify.findings import Finding

_TIME = pa.timestamp("us", tz="UTC")
_COLUMNS: Mapping[str, Mapping[str, pa.DataType]] = {
    "topics": {
        "topic": pa.string(),
        "isSystem": pa.bool_(),
        "queues": pa.int32(),
        "messages": pa.int64(),
        "error": pa.string(),
    },
    "queues": {
        "topic": pa.string(),
        "queueId": pa.int32(),
        "minOffset": pa.int64(),
        "maxOffset": pa.int64(),
        "messages": pa.int64(),
        "firstStoreTimestamp": _TIME,
        "lastStoreTimestamp": _TIME,
        "error": pa.string(),
    },
    "groups": {
        "group": pa.string(),
        "topic": pa.string(),
        "queueId": pa.int32(),
        "committedOffset": pa.int64(),
        "minOffset": pa.int64(),
        "maxOffset": pa.int64(),
        "lag": pa.int64(),
        "lost": pa.int64(),
        "lagMs": pa.int64(),
        "oldestWaitingTimestamp": _TIME,
        "lastConsumedTimestamp": _TIME,
        "retryMessages": pa.int64(),
        "deadLetters": pa.int64(),
        "error": pa.string(),
    },
    "files": {
        "path": pa.string(),
        "kind": pa.string(),
        "size": pa.int64(),
        "diskSize": pa.int64(),
        "modified": _TIME,
        "topic": pa.string(),
        "queueId": pa.int32(),
        "firstOffset": pa.int64(),
    },
    "batches": {
        "application": pa.string(),
        "version": pa.int64(),
        "rows": pa.int64(),
        "physicalOffset": pa.int64(),
        "endOffset": pa.int64(),
        "storeTimestamp": _TIME,
    },
    "findings": {
        "severity": pa.string(),
        "check": pa.string(),
        "path": pa.string(),
        "byteOffset": pa.int64(),
        "topic": pa.string(),
        "queueId": pa.int32(),
        "queueOffset": pa.int64(),
        "message": pa.string(),
    },
}
METADATA_SCHEMAS: Mapping[str, pa.Schema] = {table: pa.schema(columns) for table, columns in _COLUMNS.items()}

Row = dict[str, Any]


def store_metadata(
    path: str | os.PathLike[str] | StoreReader,
    table: str,
    *,
    store_path_commit_log: str | os.PathLike[str] | None = None,
) -> pa.Table:
    """The table ``topics``, ``queues``, ``groups``, ``files``, ``batches`` or ``findings`` of the store at ``path``.

    ``path`` may be the address of a ``commitlog serve``, or an open reader. For the findings the whole store is read,
    of a served store by its server (``StoreReader.assess``). ``store_path_commit_log`` is that of ``StoreReader.open``.

    ``InvalidValue`` for another table; the errors of ``StoreReader.open``, and ``CorruptConfig`` for a damaged ledger
    of batches or list of positions. A topic or a queue that cannot be read has the reason in the column ``error``. All
    rows are of one moment (``StoreReader.consistently``), but for those of ``files`` and ``findings``.

    ::

        queues = store_metadata("/data/store", "queues")
        print(queues.sort_by([("messages", "descending")]).slice(0, 10))
    """
    _check_table(table)
    if isinstance(path, StoreReader):
        return _table_of_any(path, table)
    if table == "findings" and not str(path).startswith(REMOTE_SCHEMES):
        found = map(_finding, _findings(path, store_path_commit_log))
        return pa.Table.from_pylist(list(found), schema=METADATA_SCHEMAS[table])
    with StoreReader.open(path, store_path_commit_log=store_path_commit_log) as reader:
        return _table_of_any(reader, table)


def _check_table(table: str) -> None:
    if table not in METADATA_SCHEMAS:
        near = nearest_name(table, METADATA_SCHEMAS)
        hint = f" Did you mean {near!r}?" if near else ""
        raise InvalidValue(f"Unknown table {table!r}.{hint} The tables are: {', '.join(METADATA_SCHEMAS)}.")


def _table_of_any(reader: StoreReader, table: str) -> pa.Table:
    if table == "findings":
        return pa.Table.from_pylist([*map(_finding, reader.assess(deep=True).findings)], schema=METADATA_SCHEMAS[table])
    # A reader of a server's store asks for the table as a whole.
    served: Callable[[str], pa.Table] | None = getattr(reader, "metadata", None)
    return table_of(reader, table) if served is None else served(table)


def table_of(reader: StoreReader, table: str) -> pa.Table:
    """``store_metadata``, but for ``findings``. ``InvalidValue``."""
    _check_table(table)
    if table == "findings":
        raise InvalidValue(
            f"The table findings is made by reading the whole store {reader.path}: run `commitlog verify`, or ask for "
            "the table, where its directory is."
        )
    rows = list(_ROWS[table](reader)) if table == "files" else _rows_of_one_moment(reader, table)
    return pa.Table.from_pylist(rows, schema=METADATA_SCHEMAS[table])


def _rows_of_one_moment(reader: StoreReader, table: str) -> list[Row]:
    return reader.consistently(lambda: list(_ROWS[table](reader)))


@dataclass(frozen=True)
class AllBounds:
    """The queues of all topics with their bounds; and what is wrong with a topic, or with one of its queues.

    ``queues`` has the ids of each topic that can be read, ``infos`` the bounds of each queue.
    """

    queues: dict[str, list[int]] = field(default_factory=dict)
    infos: dict[tuple[str, int], QueueInfo] = field(default_factory=dict)
    topic_errors: dict[str, CommitLogError] = field(default_factory=dict)
    queue_errors: dict[tuple[str, int], CommitLogError] = field(default_factory=dict)


def all_bounds(reader: StoreReader) -> AllBounds:
    """The bounds of all queues, of one moment, unless one cannot be read: then those of each by itself."""
    found = AllBounds()

    def keys() -> list[tuple[str, int]]:
        found.queues.clear()
        found.topic_errors.clear()
        topics = reader.topics()
        for topic, answer in zip(topics, reader.queue_ids_of(topics), strict=True):
            if isinstance(answer, CommitLogError):
                found.topic_errors[topic] = answer
            else:
                found.queues[topic] = answer
        return [(topic, queue_id) for topic, ids in found.queues.items() for queue_id in ids]

    def note(infos: Iterable[QueueInfo]) -> None:
        found.infos.update({(info.topic, info.queue_id): info for info in infos})

    try:
        note(reader.queue_infos(keys))
    except CommitLogError:
        for key in keys():
            try:
                note([reader.queue_info(*key)])
            except CommitLogError as error:
                found.queue_errors[key] = error
    return found


def _topics(reader: StoreReader) -> Iterator[Row]:
    found = all_bounds(reader)
    for topic in sorted([*found.queues, *found.topic_errors]):
        keys = [(topic, queue_id) for queue_id in found.queues.get(topic, [])]
        errors = [found.topic_errors.get(topic), *(found.queue_errors.get(key) for key in keys)]
        row: Row = {"topic": topic, "isSystem": is_system_topic(topic)}
        wrong = next((error for error in errors if error is not None), None)
        if wrong is not None:
            yield row | {"error": str(wrong)}
        else:
            messages = sum(found.infos[key].max_offset - found.infos[key].min_offset for key in keys)
            yield row | {"queues": len(keys), "messages": messages}


def _queues(reader: StoreReader) -> Iterator[Row]:
    found = all_bounds(reader)
    for topic in sorted([*found.queues, *found.topic_errors]):
        if topic in found.topic_errors:
            yield {"topic": topic, "error": str(found.topic_errors[topic])}
        for queue_id in found.queues.get(topic, []):
            row: Row = {"topic": topic, "queueId": queue_id}
            info = found.infos.get((topic, queue_id))
            if info is None:
                yield row | {"error": str(found.queue_errors[topic, queue_id])}
                continue
            row |= {"minOffset": info.min_offset, "maxOffset": info.max_offset}
            row["messages"] = info.max_offset - info.min_offset
            try:
                row |= _times(reader, info)
            except CommitLogError as error:
                row["error"] = str(error)
            yield row


def _times(reader: StoreReader, info: QueueInfo) -> Row:
    if info.min_offset == info.max_offset:
        return {}
    first, last = info.min_offset, info.max_offset - 1
    return {
        "firstStoreTimestamp": _time(reader.store_timestamp(info.topic, info.queue_id, first)),
        "lastStoreTimestamp": _time(reader.store_timestamp(info.topic, info.queue_id, last)),
    }


def _groups(reader: StoreReader) -> Iterator[Row]:
    for one in reader.groups():
        yield {
            "group": one.group,
            "topic": one.topic,
            "queueId": one.queue_id,
            "committedOffset": one.committed_offset,
            "minOffset": one.min_offset,
            "maxOffset": one.max_offset,
            "lag": one.lag,
            "lost": one.lost,
            "lagMs": one.lag_ms,
            "oldestWaitingTimestamp": _time_or_none(one.oldest_waiting_timestamp),
            "lastConsumedTimestamp": _time_or_none(one.last_consumed_timestamp),
            "retryMessages": one.retry_messages,
            "deadLetters": one.dead_letters,
            "error": one.error or None,
        }


def _files(reader: StoreReader) -> Iterator[Row]:
    for path, allocated in sorted(one for directory in reader.paths.directories for one in disk.tree_files(directory)):
        try:
            size, modified = disk.file_size(path), disk.modified_at(path)
        except FileNotFoundError:
            continue  # the owner has removed it since
        parts = path.removeprefix(reader.path).strip(os.sep).split(os.sep)
        if os.path.dirname(path) == reader.paths.commit_log:
            parts = [COMMIT_LOG, os.path.basename(path)]
        row: Row = {"path": "/".join(parts), "kind": parts[0], "size": size, "diskSize": allocated}
        row["modified"] = int(modified * 1_000_000)
        number = parse_file_name(parts[-1])
        if parts[0] == COMMIT_LOG and len(parts) == 2:
            row["firstOffset"] = number
        elif parts[0] == CONSUME_QUEUE and len(parts) == 4 and is_queue_id(parts[2]):
            offset = None if number is None else number // UNIT_SIZE
            row |= {"topic": parts[1], "queueId": int(parts[2]), "firstOffset": offset}
        yield row


def _batches(reader: StoreReader) -> Iterator[Row]:
    for one in reader.batches():
        yield {
            "application": one.batch.app_id,
            "version": one.batch.version,
            "rows": one.rows,
            "physicalOffset": one.physical_offset if one.physical_offset >= 0 else None,
            "endOffset": one.end if one.end >= 0 else None,
            "storeTimestamp": _time(one.store_timestamp) if one.store_timestamp >= 0 else None,
        }


def _findings(path: str | os.PathLike[str], log: str | os.PathLike[str] | None) -> list[Finding]:
    from commitlog_store.verify.store import verify_store  # the other tables do not wait for its import

    config = MessageStoreConfig(store_path_commit_log=None if log is None else os.fspath(log))
    return verify_store(path, config=config)


def _finding(one: Finding) -> Row:
    return {
        "severity": one.severity,
        "check": one.check,
        "path": one.path,
        "byteOffset": one.offset,
        "topic": one.topic,
        "queueId": one.queue_id,
        "queueOffset": one.queue_offset,
        "message": one.message,
    }


def _time_or_none(milliseconds: int | None) -> int | None:
    return None if milliseconds is None else _time(milliseconds)


def _time(milliseconds: int) -> int | None:
    return milliseconds * 1000 if is_timestamp(milliseconds) else None


_ROWS: Mapping[str, Callable[[StoreReader], Iterator[Row]]] = {
    "topics": _topics,
    "queues": _queues,
    "groups": _groups,
    "files": _files,
    "batches": _batches,
}
