"""``config/deletedTopics.json``: topics that were deleted while the log still has messages of them.

The queues are derived from the log (invariant 1), so a list says which of its messages have no queue any more::

    {"topics":{"orders":{"before":73728,"ends":{"0":100,"1":7}}}}

Messages of the topic before the physical offset ``before`` are deleted: recovery gives them no units, and those that
wait for their delivery are not delivered. Should the topic get messages again, the offsets in each of its queues
continue at ``ends``. So no offset is given twice: without this file the old messages come back, and hide none.

An entry goes when the log begins at ``before`` or after it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any

import msgspec
import numpy as np

from commitlog.columnar.dispatch import QueueUnits
from commitlog.config_files.json_file import JsonConfigFile
from commitlog.paths import CONFIG, DELETED_TOPICS

__all__ = ["DeletedTopics"]

_Offset = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_EXPECTED = "an object with topics: each with before, a physical offset, and ends, offsets by queue id"


class _Topic(msgspec.Struct):
    before: _Offset
    ends: dict[Annotated[int, msgspec.Meta(ge=0)], _Offset] = {}


class _Content(msgspec.Struct):
    topics: dict[str, _Topic] = {}


class DeletedTopics:
    """The deleted topics of one store. Read at the first use, which raises ``CorruptConfig`` and ``ReadFailed``."""

    def __init__(self, store_path: str) -> None:
        path = os.path.join(store_path, CONFIG, DELETED_TOPICS)
        self._file = JsonConfigFile(path, "The list of deleted topics", _parse)
        # Changes with the list.
        self.version = 0

    @cached_property
    def _topics(self) -> dict[str, _Topic]:
        """Never changed, but replaced: other threads look into the one that they have."""
        return _parse(self._file, self._file.read())

    def __iter__(self) -> Iterator[str]:
        """The names of the topics."""
        return iter(self._topics)

    def before(self, topic: str) -> int:
        """The physical offset before which the topic's messages are deleted; 0 for all other topics."""
        found = self._topics.get(topic)
        return 0 if found is None else found.before

    def ends(self, topic: str) -> dict[int, int]:
        """The next offset of each queue that the topic had."""
        found = self._topics.get(topic)
        return {} if found is None else dict(found.ends)

    def left(self, group: QueueUnits) -> QueueUnits | None:
        """The units of messages that are not deleted; None when all are."""
        before = self.before(group.topic)
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
        self._write({**self._topics, topic: _Topic(before, merged)})

    def forget_expired(self, log_start: int) -> None:
        """Drop topics whose deleted messages are all gone from the log. ``StoreIOError``."""
        left = {topic: one for topic, one in self._topics.items() if one.before > log_start}
        if len(left) < len(self._topics):
            self._write(left)

    def keep_within(self, log_end: int) -> None:
        """After recovery: let no entry reach beyond the log's end, where new messages come. ``StoreIOError``.

        The log may be an older copy, or was cut by a repair. The topic's next offsets are unknown then.
        """
        if any(one.before > log_end for one in self._topics.values()):
            self._write(
                {topic: _Topic(log_end) if one.before > log_end else one for topic, one in self._topics.items()}
            )

    def _write(self, topics: dict[str, _Topic]) -> None:
        self._file.write({"topics": {name: msgspec.to_builtins(one, str_keys=True) for name, one in topics.items()}})
        self._topics = topics
        self.version += 1


def _parse(file: JsonConfigFile, root: dict[str, Any]) -> dict[str, _Topic]:
    try:
        return msgspec.convert(root, _Content, strict=True, str_keys=True).topics
    except msgspec.ValidationError as error:
        raise file.corrupt(0, _EXPECTED, str(error)) from error
