"""Redrive: gives a consumer group its dead letters again, each exactly once.

What is redriven, and the position of the group in its dead-letter topic ``%DLQ%<group>``, are in the log together or
not at all, as one batch. The version of the batch counts the redrives of the group: of two that run at once, one finds
its version taken and looks again.

RocketMQ has no such thing in its store: its console lets a running client of the group consume a dead letter directly
(``dashboard/service/impl/DlqMessageServiceImpl.java``, ``consumeMessageDirectly``), which concerns this group alone. So
does ``%RETRY%<group>``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import pyarrow as pa

from commitlog_store.batch_id import BatchId, redrive_application
from commitlog_store.consumers.pull import PullService
from commitlog_store.consumers.read_ahead import before_damage
from commitlog_store.consumers.retry import DEAD_LETTER_ONLY, dead_letter_topic, retry_topic
from commitlog_store.errors import TopicNotFound
from commitlog_store.format.message_rules import topic_before_retries
from commitlog_store.format.properties import RETRY_TOPIC
from commitlog_store.format.timestamps import is_timestamp
from commitlog_store.groups.group_settings import SubscriptionGroupConfig
from commitlog_store.owned_store.owned_store import OwnedStore
from commitlog_store.paths import checked_choice, validate_group
from commitlog_store.queue.get_message import checked_count
from commitlog_store.queue.skipped import SkippedRange, check_skipped
from commitlog_store.reader import MessageBatches, OnDamage, StoreReader
from commitlog_store.transaction import Transaction

RedriveTo = Literal["retry", "topic"]

# Of a topic, a queue id, the first offset and the one after the last.
_Read = Callable[[str, int, int, int], MessageBatches]

# Messages of one batch.
_MOST_ROWS = 1_000
_COLUMNS = ("queueOffset", "tags", "keys", "bornTimestamp", "flag", "properties", "body")


class _Piece(NamedTuple):
    """Dead letters of one queue that are redriven together, and the position after them."""

    rows: list[dict[str, Any]]
    queue: tuple[str, int]
    position: int


def redrive(
    user: object,
    owned: OwnedStore,
    pulls: PullService,
    group: str,
    *,
    to: RedriveTo,
    max_messages: int | None,
    on_damage: OnDamage,
    verify_crc: bool,
    skipped: list[SkippedRange] | None,
) -> int:
    """``MessageStore.redrive``."""
    validate_group(group)
    checked_choice("to", to, get_args(RedriveTo))
    most = None if max_messages is None else checked_count("max_messages", max_messages)
    check_skipped(skipped)
    engine = owned.engine
    engine.state.refuse_on_replica()
    settings = engine.run(lambda: owned.groups.settings(group))
    engine.run(lambda: owned.groups.restore(group))
    engine.run(engine.store_flush.dispatch)
    with pulls.reader() as reader:
        try:
            return _redrive_all(
                user, owned, reader, settings, to=to, max_messages=most, on_damage=on_damage, verify_crc=verify_crc
            )
        finally:
            if skipped is not None:
                skipped += reader.skipped


def _redrive_all(
    user: object,
    owned: OwnedStore,
    reader: StoreReader,
    settings: SubscriptionGroupConfig,
    *,
    to: RedriveTo,
    max_messages: int | None,
    on_damage: OnDamage,
    verify_crc: bool,
) -> int:
    """Redrive what the group's dead-letter topic holds after the group's position in it. Returns how many.

    With ``on_damage="skip"`` the position moves past what cannot be read, and ``reader.skipped`` lists it.
    """
    group, engine, done = settings.group_name, owned.engine, 0
    read = partial(reader.read, columns=_COLUMNS, verify_crc=verify_crc, on_damage=on_damage)
    while max_messages is None or done < max_messages:
        most = _MOST_ROWS if max_messages is None else min(max_messages - done, _MOST_ROWS)
        # The version first: a redrive that has taken it before the commit has moved the position too.
        batch = _next_batch(owned, group)
        piece = _next_piece(owned, reader, read, group, to, most)
        if piece is None:
            break
        transaction = Transaction(user, batch, owned, engine.run(lambda: engine.batches.check(batch)))  # noqa: B023
        if transaction.already_there:
            continue
        if to == "retry" and not done:
            queues = max(settings.retry_queue_nums, 1)
            engine.run(lambda: engine.topics.create_topic(retry_topic(group), queues))  # noqa: B023
        with transaction:
            if piece.rows:
                transaction.put_messages(piece.rows)
            transaction.add_positions(group, {piece.queue: piece.position}, lambda: True, lambda _: None)
        result = transaction.result
        if result is not None and not result.already_there:
            done += len(piece.rows)
    return done


def _next_batch(owned: OwnedStore, group: str) -> BatchId:
    app_id = redrive_application(group)
    last = owned.engine.run(lambda: owned.engine.batches.last_version(app_id))
    return BatchId(app_id, 0 if last is None else last + 1)


def _next_piece(
    owned: OwnedStore, reader: StoreReader, read: _Read, group: str, to: RedriveTo, most: int
) -> _Piece | None:
    """The next dead letters; None when all were redriven."""
    topic = dead_letter_topic(group)
    positions = owned.groups.offsets.get(group, topic)

    def look() -> _Piece | None:
        try:
            infos = reader.queues(topic)
        except TopicNotFound:
            return None
        for info in infos:
            start = max(positions.get(info.queue_id, 0), info.min_offset)
            if start >= info.max_offset:
                continue
            return before_damage(
                min(most, info.max_offset - start),
                lambda count: _piece(read, (topic, info.queue_id), start, count, group, to),  # noqa: B023
            )
        return None

    return reader.consistently(look, one_moment=False)


def _piece(read: _Read, queue: tuple[str, int], start: int, count: int, group: str, to: RedriveTo) -> _Piece:
    # One batch is bounded in bytes; what follows it is the next piece.
    for batch in read(*queue, start, start + count):
        rows = _rows(batch, group, queue[0], to)
        return _Piece(rows, queue, rows[-1]["queueOffset"] + 1)
    return _Piece([], queue, start + count)


def _rows(batch: pa.RecordBatch, group: str, topic: str, to: RedriveTo) -> list[dict[str, Any]]:
    """The rows to put: without what makes a message a dead letter, and with 0 as the times that it was consumed."""
    born = batch.column("bornTimestamp").cast(pa.int64()).to_pylist()
    rows: list[dict[str, Any]] = batch.drop_columns(["bornTimestamp"]).to_pylist()
    for row, microseconds in zip(rows, born, strict=True):
        properties = dict(row["properties"])
        row["topic"] = retry_topic(group)
        if to == "topic":
            row["topic"] = topic_before_retries(properties, topic, row["queueOffset"])
            del properties[RETRY_TOPIC]
        row["properties"] = {name: value for name, value in properties.items() if name not in DEAD_LETTER_ONLY}
        born_ms = None if microseconds is None else microseconds // 1000
        row["bornTimestamp"] = born_ms if born_ms is not None and is_timestamp(born_ms) else None
    return rows
