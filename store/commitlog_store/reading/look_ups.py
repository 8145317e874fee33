"""Look-ups of single messages: by physical offset, by message id, and by key through the index."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from commitlog_store.batch.consistent_reads import ConsistentReads
from commitlog_store.batch.log_snapshot import LogSnapshot
from commitlog_store.batch.visibility import NOTHING_HIDDEN
from commitlog_store.columnar.columns import arrow_schema
from commitlog_store.errors import InvalidValue, MessageNotFound
from commitlog_store.format import message_id
from commitlog_store.format.single_record import message_of
from commitlog_store.java_numbers import MAX_LONG
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.message import MessageExt
from commitlog_store.paths import validate_topic
from commitlog_store.queue.get_message import checked_count, checked_int
from commitlog_store.reading.key_lookup import KeyLookup, NewestPlaces, WantedKeys, could_be_key
from commitlog_store.reading.ranges import batch_limits, while_open
from commitlog_store.timestamps import GivenTime, milliseconds_of


def message_at(commit_log: CommitLog, physical_offset: int, *, verify_crc: bool) -> MessageExt:
    """``StoreReader.message_at``."""
    physical_offset = checked_int("physical_offset", physical_offset)
    commit_log.refresh()
    record = commit_log.read_record(physical_offset, check_crc=verify_crc)
    return message_of(record, commit_log.body(record))


def message_by_id(commit_log: CommitLog, message_id_text: str, *, verify_crc: bool) -> MessageExt:
    """``StoreReader.message_by_id``."""
    wanted = message_id.decode_message_id(message_id_text)
    commit_log.refresh()
    record = commit_log.read_record(wanted.physical_offset, check_crc=verify_crc)
    if (record.store_ip, record.store_port) != (wanted.host, wanted.port):
        stored_by = message_id.format_host(record.store_ip, record.store_port)
        raise MessageNotFound(
            f"No message of id {message_id_text}: the one at offset {wanted.physical_offset} was stored by "
            f"{stored_by}, the id names {message_id.format_host(wanted.host, wanted.port)}."
        )
    return message_of(record, commit_log.body(record))


def stored_bytes(commit_log: CommitLog, physical_offset: int, size: int) -> bytes:
    """The bytes of a record as they lie in the log. ``MessageNotFound`` if they are not there any more."""
    found = commit_log.find(physical_offset)
    data = b"" if found is None else bytes(found.read(physical_offset - found.base, size))
    if not data or len(data) < size:
        raise MessageNotFound(f"No message of {size} bytes at physical offset {physical_offset} any more.")
    return data


def checked_query(topic: str, key: str, limit: int, begin: GivenTime, end: GivenTime) -> tuple[int, int, int]:
    """The limit and the times of a query, in milliseconds. ``InvalidValue``."""
    validate_topic(topic)
    if not could_be_key(key):
        raise InvalidValue(f"A key is a non-empty text without spaces, not {key!r}.")
    return checked_count("limit", limit), milliseconds_of(begin, "begin"), milliseconds_of(end, "end")


class KeyQueries:
    """Messages by key, beside an owner. ``StoreReader`` has the meanings, under the same names."""

    def __init__(
        self, keys: KeyLookup, reads: ConsistentReads, snapshot: LogSnapshot | None, refuse_closed: Callable[[], None]
    ) -> None:
        self._keys = keys
        self._reads = reads
        self._snapshot = snapshot
        self._refuse_closed = refuse_closed

    def query(
        self,
        topic: str,
        key: str,
        begin: GivenTime,
        end: GivenTime,
        limit: int,
        *,
        verify_crc: bool,
        most_bytes: int = MAX_LONG,
    ) -> list[MessageExt]:
        """``most_bytes`` is that of ``KeyLookup.query``."""
        limit, begin, end = checked_query(topic, key, limit, begin, end)
        if self._snapshot is not None:
            return self._keys.query(topic, key, begin, end, limit, verify_crc=verify_crc, most_bytes=most_bytes)

        def ask(below: int | None = None) -> list[MessageExt]:
            return self._keys.query(
                topic, key, begin, end, limit, below=below, verify_crc=verify_crc, most_bytes=most_bytes
            )

        def show(found: list[MessageExt], hidden: int) -> list[MessageExt]:
            # Parts of a batch may have replaced older messages among the newest.
            return found if not found or found[-1].physical_offset < hidden else ask(hidden)

        return self._reads.read(ask, show)

    def query_keys(
        self,
        topic: str,
        keys: Sequence[str | None] | pa.Array | pa.ChunkedArray,
        columns: Sequence[str],
        max_batch_rows: int,
        max_batch_bytes: int,
        *,
        verify_crc: bool,
    ) -> Iterator[pa.RecordBatch]:
        validate_topic(topic)
        schema = arrow_schema(columns)
        limits = batch_limits(max_batch_rows, max_batch_bytes)
        wanted = WantedKeys(keys)

        def ask(below: int = NOTHING_HIDDEN) -> NewestPlaces:
            return self._keys.newest(topic, wanted.possible, below, check_crc=verify_crc)

        def show(places: NewestPlaces, hidden: int) -> tuple[NewestPlaces, int]:
            return (places if places.end < hidden else ask(hidden)), hidden

        if self._snapshot is not None:
            places, below = self._keys.newest(topic, wanted.possible, check_crc=verify_crc), NOTHING_HIDDEN
        else:
            places, below = self._reads.read(ask, show)
        names = schema.names or ["queueOffset"]  # the rows of batches without columns cannot be counted
        batches = self._keys.batches(topic, wanted, places, names, limits, below, check_crc=verify_crc)
        shown = batches if schema.names else (batch.select([]) for batch in batches)
        return while_open(shown, self._refuse_closed)
