"""Topics that a broker deleted, whose messages in the log get no units: as when RocketMQ opens the store.

A broker that deletes a topic removes its queues and its entry in topics.json, and notes nothing; the messages stay in
the log. When it starts again, it dispatches only what lies after the last message of all its queues, and after a crash
what lies after the place up to which the queues were flushed, by the times in the checkpoint. Recovery scans more, to
find what is missing in a queue. So before that place it leaves out the messages of a topic that has no queue and is not
listed. A topic that is listed has lost its queues, and gets them again.

A queue that begins at offset 0 has no messages before its first one. Earlier ones are those of a queue of the same name
whose topic was deleted and made again. Where the queue or its first unit is lost, and where a mirror has built it, the
log shows it: the offsets of the queue begin at 0 again. Recovery reads the log once before it builds queues from it.

What was found is noted in deletedTopics.json, since the first opening here removes these traces. decisions/0026 has the
reasons.

Source: RocketMQ ``store/DefaultMessageStore.java`` (``deleteTopics``, ``cleanUnusedTopic``, ``recover``, ``start``),
``store/CommitLog.java`` (``recoverNormally``, ``recoverAbnormally``, ``isMappedFileMatchedRecover``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

import numpy as np

from commitlog_store.columnar.dispatch import QueueUnits
from commitlog_store.errors import (
    CorruptConfig,
    CorruptConsumeQueue,
    InvalidValue,
    QueueNotFound,
    ReadFailed,
    TopicNotFound,
    UnsupportedStore,
)
from commitlog_store.format.checkpoint import TRUST_MARGIN_MS, Checkpoint
from commitlog_store.java_numbers import MAX_LONG
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.log.record_search import good_record
from commitlog_store.log.scan import LogFileList, find_by_time
from commitlog_store.queue.catalog import QueueCatalog
from commitlog_store.queue.deleted_topics import DeletedTopics
from commitlog_store.queue.topic_config import read_topic_config


class BrokerDeletions:
    """The traces that deletions by a broker have left in one store, as its queues are before recovery changes them."""

    def __init__(
        self, path: str, files: LogFileList, deleted: DeletedTopics, broker_times: Checkpoint | None, *, aborted: bool
    ) -> None:
        """``broker_times``: the checkpoint's, if a broker was the last owner; this package notes its own deletions.

        ``aborted``: the last owner did not close the store. ``StoreAccessDenied``, ``ReadFailed``.
        """
        self._path = path
        self._files = files
        self.deleted = deleted
        # Topics whose queues were looked at: all of them after a broker, else each at its first message.
        self._looked_at: set[str] = set()
        # The place from which each topic with queues has all of its messages; 0 when its first ones have expired.
        self._firsts: dict[str, int] = {}
        # The place of the first message of each queue that begins at offset 0.
        self._begins: dict[tuple[str, int], int] = {}
        # The place of the last message of each queue that was noted in this reading of the log; those of them that have
        # offset 0 again.
        self._noted: dict[tuple[str, int], int] = {}
        self._zeros: set[tuple[str, int]] = set()
        self._last_place = 0
        if broker_times is not None and broker_times.logics_msg_timestamp > 0:
            self._look_at_queues()
            flushed_to = self._flushed_to(broker_times, aborted=aborted)
            topics = self._left_topics()
            if flushed_to and topics is not None:
                deleted.take_over(flushed_to, topics)

    def _look_at_queues(self, only: Iterable[str] | None = None) -> None:
        with contextlib.closing(CommitLog(self._files.path)) as log:
            log.refresh()
            catalog = QueueCatalog(self._path, log, tolerant=True)
            for topic in catalog.topics() if only is None else only:
                self._looked_at.add(topic)
                with contextlib.suppress(InvalidValue, TopicNotFound, UnsupportedStore):
                    for queue_id in catalog.queue_ids(topic):
                        self._firsts.setdefault(topic, MAX_LONG)
                        with contextlib.suppress(CorruptConsumeQueue, QueueNotFound):  # opening does not judge queues
                            self._look_at(catalog, topic, queue_id)

    def _look_at(self, catalog: QueueCatalog, topic: str, queue_id: int) -> None:
        low, high = catalog.bounds(topic, queue_id)
        queue = catalog.queue(topic, queue_id)
        last = queue.unit(high - 1)
        if last is not None:
            self._last_place = max(self._last_place, last[0])
        first = queue.unit(0) if low == 0 else None
        if first is not None:
            self._begins[topic, queue_id] = first[0]
        if low < high:
            self._firsts[topic] = min(self._firsts[topic], 0 if first is None else first[0])

    def _flushed_to(self, times: Checkpoint, *, aborted: bool) -> int:
        """The place before which all messages were dispatched, and their units are on the device; 0 if unknown."""
        if not aborted:
            return self._last_place
        safe = min(times.physic_msg_timestamp, times.logics_msg_timestamp) - TRUST_MARGIN_MS
        file = find_by_time(self._files, safe)
        return 0 if file is None else min(self._last_place, file.base)

    def _left_topics(self) -> set[str] | None:
        """The topics with queues, and those that are listed; None without a list, which alone names those with none."""
        try:
            listed = read_topic_config(self._path)
        except (CorruptConfig, ReadFailed):
            return None
        return {*self._firsts, *listed} if listed else None

    def begins_within(self, topic: str, start: int) -> bool:
        """Whether the messages of a topic before ``start`` are all deleted, so that its queues lack none of them."""
        before = self.deleted.gone_before(topic)
        return before > 0 and start <= before

    def note(self, groups: Sequence[QueueUnits]) -> None:
        """Note messages before the first one of their queue, if that has offset 0, before any unit is written."""
        unseen = {group.topic for group in groups if not group.light} - self._looked_at
        if unseen:  # together: each look lists the log's files
            self._look_at_queues(unseen)
        for given in groups:
            group = self.deleted.left(given)
            if group is None or group.light or not len(group.units):
                continue
            begin = self._begins.get((group.topic, group.queue_id), 0)
            if _place(group) < begin and self._begins_queue(group.topic, group.queue_id, begin):
                self.deleted.made_again(group.topic, self._firsts[group.topic], group.queue_id, begin)
            else:
                self._note_restart(group)

    def _note_restart(self, group: QueueUnits) -> None:
        """Note where the offsets of a queue begin at 0 again. A 1 follows: a lone 0 may be a damaged header."""
        key, offsets, places = (group.topic, group.queue_id), group.queue_offsets, group.units["physical_offset"]
        before = self._noted.get(key, -1)
        if before >= places[0]:  # the log is read another time
            before = -1
        restarts = [before] if before >= 0 and key in self._zeros and offsets[0] == 1 else []
        self._zeros.discard(key)
        if not offsets.all():
            again = np.flatnonzero(offsets == 0)
            again = again[again > 0] if before < 0 else again
            restarts += [int(places[row]) for row in again.tolist() if (offsets[row + 1 : row + 2] == 1).any()]
            if len(again) and again[-1] == len(offsets) - 1:
                self._zeros.add(key)
        self._noted[key] = int(places[-1])
        if restarts:
            self.deleted.made_again(group.topic, 0, group.queue_id, restarts[-1])

    def _begins_queue(self, topic: str, queue_id: int, place: int) -> bool:
        """Whether the record at a place is the first message of a queue, as its unit says."""
        file = self._files.find(place)
        record = None if file is None else good_record(file, place, file.base + file.capacity)
        found = None if record is None else (record.topic, record.queue_id, record.queue_offset)
        return found == (topic.encode(), queue_id, 0)


def _place(group: QueueUnits) -> int:
    """The physical offset of the first message."""
    return int(group.units["physical_offset"][0])
