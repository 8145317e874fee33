"""Positions after the end of their queue, which a crash leaves: they are moved to the end before the queue grows again.

A broker writes positions every 5 seconds and does not flush the log for that. When the machine stops, the log may lose
messages that the positions stand after. RocketMQ corrects a position when it is used: the broker answers
OFFSET_OVERFLOW_BADLY with the end, and the client continues there. Until then the queue may have grown beyond the
position, and the group passes over the messages in between. An owner that has just recovered the log knows the ends.

The group ``CID_RMQ_SYS_TRANS`` is another case: its positions say that half messages before them have ended. Where op
messages are lost, half messages that they ended are pending again. So its positions are removed, and both queues are
read from their beginnings.

Source: RocketMQ ``client/impl/consumer/DefaultMQPushConsumerImpl.java`` (``OFFSET_ILLEGAL``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from commitlog_store.config_files.consumer_offset import ConsumerOffsets
from commitlog_store.errors import InvalidValue, TopicNotFound, UnsupportedStore
from commitlog_store.format.half_messages import TRANSACTION_GROUP

__all__ = ["correct_positions"]

_LOG = logging.getLogger(__name__)

_Queue = tuple[str, int]


class _Bounds(Protocol):
    @property
    def max_offset(self) -> int: ...


class _Reader(Protocol):
    """What is needed of a StoreReader."""

    def queue_ids(self, topic: str) -> list[int]: ...
    def queue_infos(self, queues: Iterable[_Queue]) -> Sequence[_Bounds]: ...


def correct_positions(
    offsets: ConsumerOffsets, reader: _Reader, group: str | None = None, *, half_messages_again: bool = False
) -> None:
    """Move positions of all groups, or of one, that lie after the end of their queue to the end, with a warning each.

    Those of half messages are removed, with ``half_messages_again`` in any case: what ended them may be lost.

    A queue that does not exist ends at 0: there its first message will be. For the owner, who changes positions. The
    errors of ``StoreReader.queue_infos``.
    """
    found = {key: positions for key, positions in offsets.all().items() if group in (None, key[0])}
    ends = _ends(reader, {(topic, queue_id) for (_, topic), positions in found.items() for queue_id in positions})
    for (name, topic), positions in found.items():
        beyond = {
            (topic, queue_id): ends[topic, queue_id]
            for queue_id, position in positions.items()
            if position > ends.get((topic, queue_id), position)
        }
        if name == TRANSACTION_GROUP:
            if (beyond or half_messages_again) and offsets.remove(name):
                _LOG.warning(
                    "The log has lost half messages, or what ended them. All that it has are read again; those whose "
                    "end is lost are pending."
                )
            continue
        try:
            offsets.commit(name, beyond)
        except InvalidValue:
            continue  # a name that no program consumes by
        for (_, queue_id), end in beyond.items():
            _LOG.warning(
                "Group %r continues at %d, the end of queue %d of topic %r: its position %d is %d after that. The "
                "store has lost messages, or the position was set too high.",
                *(name, end, queue_id, topic, positions[queue_id], positions[queue_id] - end),
            )


def _ends(reader: _Reader, queues: set[_Queue]) -> Mapping[_Queue, int]:
    """The end of each queue; without those of topics that are kept another way, or cannot exist."""
    existing: set[_Queue] = set()
    unknown: set[str] = set()
    for topic in sorted({topic for topic, _ in queues}):
        try:
            existing |= {(topic, queue_id) for queue_id in reader.queue_ids(topic)}
        except TopicNotFound:
            continue
        except (UnsupportedStore, InvalidValue):
            unknown.add(topic)
    wanted = sorted(queues & existing)
    ends = {queue: info.max_offset for queue, info in zip(wanted, reader.queue_infos(wanted), strict=True)}
    return {queue: ends.get(queue, 0) for queue in queues if queue[0] not in unknown}
