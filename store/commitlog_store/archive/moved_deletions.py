"""MovedDeletions: the list of deleted topics of an archive of some topics, with places in the archive's log.

A store's list says before which physical offset the messages of a topic are deleted (``queue/deleted_topics.py``).
Such a place is found in the other log while the records around it are moved. Later, the newest generation has it. The
entry stays when the store forgets it, since the archive still has the messages. What a broker has deleted is left out:
its places are found when the store is opened here, and may have been read by then.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from commitlog_store.archive.selected_topics import SelectedTopics
from commitlog_store.errors import CorruptConfig
from commitlog_store.queue.deleted_topics import DeletedTopics


class MovedDeletions:
    """What is known of the deleted topics, in both logs."""

    def __init__(self, archived: bytes | None = None) -> None:
        """``archived`` is the list as the newest generation has it."""
        self._topics: dict[str, dict[str, Any]] = {} if archived is None else json.loads(archived)["topics"]
        # Places in the store's log by topic, and those in the archive's, once these are known.
        self._found: dict[str, int] = {}
        self._places: dict[int, int] = {}

    def look(self, store_path: str, topics: SelectedTopics, position: int) -> None:
        """Read the store's list. ``position``: up to where the store's log was read; ``ReadFailed``."""
        deleted = DeletedTopics(store_path)
        with contextlib.suppress(CorruptConfig):
            for topic in deleted:
                before = deleted.before(topic)
                if topic in topics and (before >= position or before in self._places):
                    self._found[topic] = before
                    self._topics[topic] = {"before": 0, "ends": _named(deleted.ends(topic))}

    def places_before(self, physical_offset: int) -> list[int]:
        """The places in the store's log, up to that one, whose places in the archive's log are not known."""
        return [one for one in {*self._found.values()} - self._places.keys() if one <= physical_offset]

    def set_place(self, place: int, archived: int) -> None:
        """The record at or after a place in the store's log is at this place in the archive's."""
        self._places[place] = archived

    def encoded(self, end: int) -> bytes | None:
        """The list of an archive whose log ends at ``end``; None when no topic was deleted."""
        for topic, before in self._found.items():
            self._topics[topic]["before"] = self._places.get(before, end)
        return json.dumps({"topics": self._topics}).encode() if self._topics else None


def _named(ends: Mapping[int, int]) -> dict[str, int]:
    return {str(queue_id): end for queue_id, end in ends.items()}
