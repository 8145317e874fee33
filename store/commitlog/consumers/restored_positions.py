"""Positions that were committed with a batch, and that consumerOffset.json lacks after a crash."""

from __future__ import annotations

from commitlog.config_files.consumer_offset import ConsumerOffsets
from commitlog.errors import InvalidValue, QueueNotFound, TopicNotFound
from commitlog.paths import POSITIONS_GROUP, POSITIONS_TOPIC
from commitlog.reader import StoreReader
from commitlog.services.positions_message import decode_positions

__all__ = ["restore_positions"]


def restore_positions(offsets: ConsumerOffsets, reader: StoreReader) -> None:
    """Apply, in their order, the positions in the log that are not in ``offsets`` yet. Damage as ``read`` raises it."""
    try:
        queue = reader.queue_info(POSITIONS_TOPIC, 0)
    except (TopicNotFound, QueueNotFound):
        return
    applied = offsets.get(POSITIONS_GROUP, POSITIONS_TOPIC).get(0, 0)
    start = min(max(applied, queue.min_offset), queue.max_offset)
    for batch in reader.read(POSITIONS_TOPIC, 0, start, queue.max_offset, columns=["body"]):
        for body in batch.column("body").to_pylist():
            found = decode_positions(body)
            if found is not None:
                _commit(offsets, *found)
    if applied != queue.max_offset:
        offsets.commit(POSITIONS_GROUP, {(POSITIONS_TOPIC, 0): queue.max_offset})


def _commit(offsets: ConsumerOffsets, group: str, positions: dict[tuple[str, int], int]) -> None:
    try:
        offsets.commit(group, positions)
    except InvalidValue:
        return  # names that this store never writes
