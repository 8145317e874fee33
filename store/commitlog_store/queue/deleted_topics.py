"""``config/deletedTopics.json``: topics that were deleted while the log still has messages of them.

The queues are derived from the log (invariant 1), so a list says which of its messages have no queue any more::

    {"topics":{"orders":{"before":73728,"ends":{"0":100,"1":7}}}}

Messages of the topic before the physical offset ``before`` are deleted: recovery gives them no units, and those that
wait for their delivery are not delivered. Should the topic get messages again, the offsets in each of its queues
continue at ``ends``. So no offset is given twice: without this file the old messages come back, and hide none.

A broker deletes a topic without a note. When its store is opened here, ``recovery/broker_deletions.py`` finds out what
has no units in a broker either, and adds it::

    {"topics":{"orders":{"before":0,"ends":{},"unitsFrom":73728,"queuesFrom":{"1":80000}}},
     "takenOver":[{"before":90112,"topics":["orders","payments"]}]}

``takenOver``, for each broker from which the store was taken over: of other topics than these, messages before that
place were deleted. ``unitsFrom``: the topic was deleted
and made again, and its messages before that place are those of the deleted one; ``queuesFrom``: likewise in one queue.
Offsets then begin at 0, and delayed messages are delivered, as by the broker.

An entry goes when the log begins at its places or after them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any

import msgspec
import numpy as np

from commitlog_store.columnar.dispatch import QueueUnits
from commitlog_store.config_files.json_file import JsonConfigFile
from commitlog_store.java_numbers import MAX_LONG
from commitlog_store.paths import CONFIG, DELETED_TOPICS, LIGHT_QUEUE_PREFIX, is_system_topic

_Offset = Annotated[int, msgspec.Meta(ge=0, le=MAX_LONG)]
_QueueId = Annotated[int, msgspec.Meta(ge=0)]
_EXPECTED = "an object with topics: each with before, a physical offset, and ends, offsets by queue id"


class _Topic(msgspec.Struct, frozen=True, omit_defaults=True):
    before: _Offset
    ends: dict[_QueueId, _Offset] = {}
    unitsFrom: _Offset = 0
    queuesFrom: dict[_QueueId, _Offset] = {}

    def units_from(self, queue_id: int) -> int:
        return max(self.before, self.unitsFrom, self.queuesFrom.get(queue_id, 0))

    @property
    def last_place(self) -> int:
        return max(self.before, self.unitsFrom, *self.queuesFrom.values())

    def within(self, log_end: int) -> _Topic:
        return _Topic(
            min(self.before, log_end),
            self.ends if self.before <= log_end else {},
            min(self.unitsFrom, log_end),
            {queue_id: min(place, log_end) for queue_id, place in self.queuesFrom.items()},
        )


class _TakenOver(msgspec.Struct, frozen=True):
    before: _Offset
    topics: frozenset[str]

    def says_no_more_than(self, later: _TakenOver) -> bool:
        return self.before <= later.before and self.topics >= later.topics


class _Content(msgspec.Struct, frozen=True, omit_defaults=True):
    topics: dict[str, _Topic] = {}
    takenOver: tuple[_TakenOver, ...] = ()


class DeletedTopics:
    """The deleted topics of one store. Read at the first use, which raises ``CorruptConfig`` and ``ReadFailed``."""

    def __init__(self, store_path: str) -> None:
        path = os.path.join(store_path, CONFIG, DELETED_TOPICS)
        self._file = JsonConfigFile(path, "The list of deleted topics", _parse)
        # Changes with the list.
        self.version = 0
        self._is_saved = True

    @cached_property
    def _content(self) -> _Content:
        """Never changed, but replaced: other threads look into the one that they have."""
        return _parse(self._file, self._file.read())

    def __iter__(self) -> Iterator[str]:
        """The names of the topics that were deleted here."""
        return iter([topic for topic, one in self._content.topics.items() if one.before])

    @property
    def is_empty(self) -> bool:
        """Whether no topic was ever deleted, so that all queues have all their units."""
        return not self._content.topics and not self._content.takenOver

    def before(self, topic: str) -> int:
        """The physical offset before which the topic's messages were deleted here; 0 for all other topics."""
        found = self._content.topics.get(topic)
        return 0 if found is None else found.before

    def units_from(self, topic: str, queue_id: int) -> int:
        """The physical offset before which a queue's messages have no units, by any deletion; 0 for most."""
        found = self._content.topics.get(topic)
        place = 0 if found is None else found.units_from(queue_id)
        return max(place, self.gone_before(topic))

    def gone_before(self, topic: str) -> int:
        """The physical offset before which a topic's messages were deleted by a broker; 0 for most.

        A broker had deleted it, and not made it again, when the store was taken over from it.
        """
        taken = self._content.takenOver
        if not taken or is_system_topic(topic) or topic.startswith(LIGHT_QUEUE_PREFIX):
            return 0
        return max((one.before for one in taken if topic not in one.topics), default=0)

    def ends(self, topic: str) -> dict[int, int]:
        """The next offset of each queue that the topic had."""
        found = self._content.topics.get(topic)
        return {} if found is None else dict(found.ends)

    def left(self, group: QueueUnits) -> QueueUnits | None:
        """The units of messages that are not deleted; None when all are."""
        before = self.units_from(group.topic, group.queue_id)
        places = group.units["physical_offset"]
        if not before or not len(places) or places[0] >= before:
            return group
        first = int(np.searchsorted(places, before))
        if first == len(places):
            return None
        return group._replace(queue_offsets=group.queue_offsets[first:], units=group.units[first:])

    def add(self, topic: str, before: int, ends: Mapping[int, int]) -> None:
        """Note a deletion, on the device too. ``StoreIOError``: it may be noted or not, so it is to be repeated."""
        known = self.ends(topic)
        merged = {queue: max(known.get(queue, 0), ends.get(queue, 0)) for queue in {*known, *ends}}
        topics = {**self._content.topics, topic: _Topic(before, merged)}
        self._write(msgspec.structs.replace(self._content, topics=topics))

    def take_over(self, before: int, topics: Iterable[str]) -> None:
        """Note in memory, until ``save``, the topics that a broker has left: others have no messages before a place."""
        new = _TakenOver(before, frozenset(topics))
        taken = tuple(one for one in self._content.takenOver if not one.says_no_more_than(new))
        if not any(new.says_no_more_than(one) for one in taken):
            taken += (new,)
        self._note(msgspec.structs.replace(self._content, takenOver=taken))

    def made_again(self, topic: str, units_from: int, queue_id: int, queue_from: int) -> None:
        """Note in memory, until ``save``, where a topic and one of its queues begin that a broker has made again."""
        known = self._content.topics.get(topic, _Topic(0))
        noted = msgspec.structs.replace(
            known,
            unitsFrom=max(known.unitsFrom, units_from),
            queuesFrom={**known.queuesFrom, queue_id: queue_from},
        )
        self._note(msgspec.structs.replace(self._content, topics={**self._content.topics, topic: noted}))

    def _note(self, content: _Content) -> None:
        if content != self._content:
            self._content = content
            self._is_saved = False

    def save(self) -> None:
        """Write down what was noted in memory. ``StoreIOError``."""
        if not self._is_saved:
            self._write(self._content)

    def forget_expired(self, log_start: int) -> None:
        """Drop topics whose deleted messages are all gone from the log. ``StoreIOError``."""
        content = self._content
        left = {topic: one for topic, one in content.topics.items() if one.last_place > log_start}
        taken = tuple(one for one in content.takenOver if one.before > log_start)
        if len(left) < len(content.topics) or taken != content.takenOver:
            self._write(_Content(left, taken))

    def keep_within(self, log_end: int) -> None:
        """After recovery: let no entry reach beyond the log's end, where new messages come. ``StoreIOError``.

        The log may be an older copy, or was cut by a repair. The topic's next offsets are unknown then.
        """
        content = self._content
        taken = tuple(_TakenOver(min(one.before, log_end), one.topics) for one in content.takenOver)
        if taken != content.takenOver or any(one.last_place > log_end for one in content.topics.values()):
            topics = {topic: one.within(log_end) for topic, one in content.topics.items()}
            self._write(_Content(topics, taken))

    def _write(self, content: _Content) -> None:
        written: dict[str, Any] = {
            "topics": {
                topic: {"before": one.before, "ends": {}} | msgspec.to_builtins(one, str_keys=True)
                for topic, one in content.topics.items()
            }
        }
        if content.takenOver:
            taken = [{"before": one.before, "topics": sorted(one.topics)} for one in content.takenOver]
            written["takenOver"] = taken
        self._file.write(written)
        self._content = content
        self._is_saved = True
        self.version += 1


def _parse(file: JsonConfigFile, root: dict[str, Any]) -> _Content:
    try:
        return msgspec.convert(root, _Content, strict=True, str_keys=True)
    except msgspec.ValidationError as error:
        raise file.corrupt(0, _EXPECTED, str(error)) from error
