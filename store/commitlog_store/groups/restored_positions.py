"""Positions that were committed with a batch, and that consumerOffset.json lacks after a crash."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from commitlog_store.config_files.consumer_offset import ConsumerOffsets
from commitlog_store.errors import InvalidValue, QueueNotFound, TopicNotFound
from commitlog_store.format.positions_message import decode_positions
from commitlog_store.paths import POSITIONS_GROUP, POSITIONS_TOPIC

__all__ = ["restore_positions"]

_LOG = logging.getLogger(__name__)


class _Bounds(Protocol):
    @property
    def min_offset(self) -> int: ...
    @property
    def max_offset(self) -> int: ...


class _Reader(Protocol):
    """What is needed of a StoreReader."""

    def queue_info(self, topic: str, queue_id: int) -> _Bounds: ...
    def read(
        self, topic: str, queue_id: int, start: int, stop: int, *, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]: ...


def restore_positions(offsets: ConsumerOffsets, reader: _Reader, *, log_may_be_short: bool = False) -> None:
    """Apply, in their order, the positions in the log that are not in ``offsets`` yet. Damage as ``read`` raises it.

    Those that were set while the store was not open are newer than all of them, and stay. ``log_may_be_short``: the log
    may have lost positions that are in ``offsets``. The batches of these are lost too, so that the messages that they
    were made of are to be consumed again: all positions in the log are applied, and replace later ones.
    """
    try:
        queue = reader.queue_info(POSITIONS_TOPIC, 0)
    except (TopicNotFound, QueueNotFound):
        offsets.note_log_applied()
        return
    applied = offsets.get(POSITIONS_GROUP, POSITIONS_TOPIC).get(0, 0)
    start = min(max(applied, queue.min_offset), queue.max_offset)
    if log_may_be_short and applied > queue.max_offset:
        _LOG.warning(
            "The log has lost %d positions that were committed with batches. Their groups continue at the last ones in "
            "the log.",
            applied - queue.max_offset,
        )
        start = queue.min_offset
    for batch in reader.read(POSITIONS_TOPIC, 0, start, queue.max_offset, columns=["body"]):
        for body in batch.column("body").to_pylist():
            found = decode_positions(body)
            if found is not None:
                _commit(offsets, *found)
    if applied != queue.max_offset:
        offsets.commit(POSITIONS_GROUP, {(POSITIONS_TOPIC, 0): queue.max_offset})
    offsets.note_log_applied()


def _commit(offsets: ConsumerOffsets, group: str, positions: dict[tuple[str, int], int]) -> None:
    try:
        offsets.commit(
            group, {queue: offset for queue, offset in positions.items() if not offsets.is_set_over_log(group, *queue)}
        )
    except InvalidValue:
        return  # names that this store never writes
