"""GroupPositions: the positions of the consumer groups of an open store: in memory, in their file, and beside the log.

They are written at an interval, and when the store is closed.

A crash may leave positions in the log that ``consumerOffset.json`` lacks, and positions in the file that stand for
messages that the log lost. Both are corrected while no message can take the place of a lost one:

- A broker writes positions every 5 seconds and does not flush the log for that. When the machine stops, the log may
  lose messages before them. RocketMQ corrects a position when it is used: the broker answers OFFSET_OVERFLOW_BADLY with
  the end, and the client continues there. Until then the queue may have grown beyond the position, and the group skips
  the messages in between. An owner that has just recovered the log knows the ends.
- The positions of the group ``CID_RMQ_SYS_TRANS`` say that half messages before them have ended. Where op messages are
  lost, half messages that they ended are pending again. So its positions are removed, and both queues are read from
  their beginnings.

Source: RocketMQ ``broker/BrokerController.java`` (``consumerOffsetManager.persist``, ``flushConsumerOffsetInterval``),
``client/impl/consumer/DefaultMQPushConsumerImpl.java`` (``OFFSET_ILLEGAL``).
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from commitlog_store.config import BrokerRole, FlushDiskType
from commitlog_store.engine.store_engine import StoreEngine
from commitlog_store.engine.subject import Subject
from commitlog_store.errors import CommitLogError, InvalidValue, TopicNotFound, UnsupportedStore
from commitlog_store.format.half_messages import TRANSACTION_GROUP
from commitlog_store.groups.consumer_offset import ConsumerOffsets
from commitlog_store.groups.group_settings import SubscriptionGroupConfig, SubscriptionGroups
from commitlog_store.groups.positions import Queue, ReadableQueues, restore_positions
from commitlog_store.groups.pulled_offsets import PulledOffsets
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.paths import POSITIONS_GROUP, POSITIONS_TOPIC
from commitlog_store.queue.block_reader import BlockReader
from commitlog_store.queue.catalog import QueueCatalog
from commitlog_store.queue.log_blocks import BlockLimits, LogBlocks
from commitlog_store.queue.views import QueueInfo
from commitlog_store.replication.replica_mark import read_mark
from commitlog_store.threads.worker import Worker

_LOG = logging.getLogger(__name__)
_MS = 1000.0


class GroupPositions(Subject):
    """The positions of an open store. Their file is read when they are first asked for: a damaged one must not keep
    the store from being opened."""

    def __init__(self, engine: StoreEngine) -> None:
        config = engine.config
        self._engine = engine
        self._is_replica = config.broker_role is BrokerRole.SLAVE
        self._is_sync = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._interval = config.flush_consumer_offset_interval / _MS
        self._lock = threading.Lock()
        self._offsets: ConsumerOffsets | None = None
        self.pulled = PulledOffsets()
        self._subscription_groups: SubscriptionGroups | None = None
        self._restored = False
        # The failure that the log has already.
        self._waits_for = ""
        self._workers = [Worker("FlushConsumerOffsetService", self, engine.state.halt)]

    def workers(self) -> Sequence[Worker]:
        return self._workers

    @property
    def offsets(self) -> ConsumerOffsets:
        """The one object that changes positions. ``CorruptConfig``, ``ReadFailed``.

        Before they are written, the messages that they stand for are brought to the device: consumed messages, copies
        for a retry, and output of transactions. After a crash of the machine, a queue that is shorter than a position
        in it would grow again, and the group would skip its new messages. Under SYNC_FLUSH only flushed messages are
        consumed.
        """
        with self._lock:
            if self._offsets is None:
                flush_log = None if self._is_sync else self._engine.store_flush.flush_log
                self._offsets = ConsumerOffsets(self._engine.path, flush_log)
            return self._offsets

    @property
    def subscription_groups(self) -> SubscriptionGroups:
        """The settings of all groups. ``CorruptConfig``, ``ReadFailed``.

        The owner alone changes them, so the file is read once; a slave's are its master's, and read each time.
        """
        with self._lock:
            if self._subscription_groups is None or self._is_replica:
                self._subscription_groups = SubscriptionGroups(self._engine.path)
            return self._subscription_groups

    def settings(self, group: str) -> SubscriptionGroupConfig:
        """The settings of a group, with a broker's defaults. ``CorruptConfig``, ``ReadFailed``."""
        return self.subscription_groups.get(group) or SubscriptionGroupConfig(group_name=group)

    def set_settings(self, settings: SubscriptionGroupConfig) -> None:
        """``MessageStore.set_group_settings``. On the job thread."""
        if not isinstance(settings, SubscriptionGroupConfig):
            raise InvalidValue(f"The settings of a group are a SubscriptionGroupConfig, not {settings!r}.")
        self.subscription_groups.put(settings)

    def apply(self, positions: Iterable[tuple[str, Mapping[Queue, int]]], next_of_topic: int) -> None:
        """Take over all positions that are in the log with a batch, by group; ``next_of_topic`` is the offset after
        their messages."""
        for group, offsets in positions:
            self.offsets.commit(group, offsets)
        # Last: should the file be written in between, the message is read again, and says the same.
        self.offsets.commit(POSITIONS_GROUP, {(POSITIONS_TOPIC, 0): next_of_topic})

    def set_positions(
        self, group: str, offsets: Mapping[Queue, int], expected: Mapping[Queue, int | None] | None
    ) -> bool:
        """``MessageStore.commit_group_offsets``. On the job thread.

        Positions after their queue's end stay: its messages may not be dispatched yet.
        """
        self.restore()
        if expected is not None:
            now = {queue: self.offsets.get(group, queue[0]).get(queue[1]) for queue in expected}
            if now != dict(expected):
                return False
        self.offsets.commit(group, offsets)
        self.pulled.forget(group, offsets)
        self.flush()
        return True

    def forget_topic(self, topic: str) -> None:
        """Remove the positions of groups in a topic: its next messages may have offsets from 0 on. ``StoreIOError``."""
        # In memory too: what the open store knows is written over the file at the next flush.
        offsets = self.offsets
        for group in offsets.groups():
            offsets.remove(group, [topic])
        self.pulled.forget_all(topic=topic)
        self.flush()

    def run_once(self) -> float:
        try:
            self.flush()
        except CommitLogError as error:
            # The log has not failed, and the positions are written the next time; until then they are older.
            if str(error) != self._waits_for:
                self._waits_for = str(error)
                _LOG.warning("The positions of consumers are not written yet: %s", error)
        else:
            self._waits_for = ""
        return self._interval

    def flush(self) -> None:
        """Write the positions if they have changed. ``StoreIOError``, ``StoreAccessDenied``."""
        if self._offsets is not None:
            self._offsets.flush()

    def save(self) -> None:
        self.flush()

    def save_unclean(self) -> None:
        """Write the positions of a store that does not end cleanly, if the messages before them are on the device."""
        if self._is_sync:
            self.run_once()

    def restore_at_open(self) -> None:
        """``restore`` if there may be something to do. What keeps it from that does not keep the store from opening."""
        if self._is_replica:  # whose positions are its master's
            return
        try:
            if self._may_lack_messages() or self._engine.log.queues.highest_id(POSITIONS_TOPIC) >= 0:
                self.restore()
        except CommitLogError:
            _LOG.exception("Cannot restore positions of consumers; the next consumer tries it again")

    def restore(self, group: str | None = None) -> None:
        """Apply the positions in the log that consumerOffset.json lacks, and correct those after their queue's end.

        This group's, and once those of all groups if messages may be lost. On the job thread. ``CorruptConfig``, damage
        of the log.
        """
        if self._restored and group is None:
            return
        offsets, log = self.offsets, self._engine.log
        with contextlib.closing(_WrittenQueues(self._engine.path, log.files.path)) as queues:
            if not self._restored:
                may_lack_messages = self._may_lack_messages()
                restore_positions(offsets, queues, log_may_be_short=may_lack_messages)
                if may_lack_messages:
                    _correct(offsets, queues, half_messages_again=log.lost_flushed)
                self.flush()
                self._restored = True
            if group is not None:
                _correct(offsets, queues, group)

    def _may_lack_messages(self) -> bool:
        """Whether the log may end before what groups have consumed: after a recovery, and in a mirror that was
        promoted, whose positions may have come sooner than the messages before them. ``CorruptConfig``."""
        if self._engine.log.recovered is not None:
            return True
        mark = read_mark(self._engine.path)
        return mark is not None and mark.state == "promoted"


class _WrittenQueues:
    """The queues as they are written, batches that readers do not see yet among them."""

    def __init__(self, path: str, log_path: str) -> None:
        self._log = CommitLog(log_path)
        self._log.refresh()
        self._catalog = QueueCatalog(path, self._log)

    def queue_ids(self, topic: str) -> list[int]:
        return self._catalog.queue_ids(topic)

    def queue_info(self, topic: str, queue_id: int) -> QueueInfo:
        return QueueInfo(topic, queue_id, *self._catalog.bounds(topic, queue_id))

    def queue_infos(self, queues: Iterable[Queue]) -> list[QueueInfo]:
        return [self.queue_info(*queue) for queue in queues]

    def read(
        self, topic: str, queue_id: int, start: int, stop: int, *, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        queue = self._catalog.queue(topic, queue_id)
        blocks = BlockReader(LogBlocks(self._log), queue, BlockLimits(), verify_crc=True)
        yield from blocks.batches(start, stop, columns)

    def close(self) -> None:
        self._log.close()


def _correct(
    offsets: ConsumerOffsets, queues: ReadableQueues, group: str | None = None, *, half_messages_again: bool = False
) -> None:
    """Move positions of all groups, or of one, that lie after the end of their queue to the end; a warning a group.

    Those of half messages are removed, with ``half_messages_again`` in any case: what ended them may be lost.

    A queue that does not exist ends at 0: there its first message will be. For the owner, who changes positions. The
    errors of ``StoreReader.queue_infos``.
    """
    found = {key: positions for key, positions in offsets.all().items() if group in (None, key[0])}
    ends = _ends(queues, {(topic, queue_id) for (_, topic), positions in found.items() for queue_id in positions})
    moved: dict[str, list[tuple[Queue, int, int]]] = {}
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
        moved.setdefault(name, []).extend((queue, end, positions[queue[1]]) for queue, end in beyond.items())
    for name, queues_moved in moved.items():
        if queues_moved:
            _report_moved(name, queues_moved)


def _report_moved(group: str, moved: Sequence[tuple[Queue, int, int]]) -> None:
    """``moved``: of each queue its end, where the group continues, and the position that it had."""
    (topic, queue_id), end, position = max(moved, key=lambda one: one[2] - one[1])
    others = f", and at the end of {len(moved) - 1} other queues" if len(moved) > 1 else ""
    _LOG.warning(
        "Group %r continues at %d, the end of queue %d of topic %r: its position %d is %d after that%s. The store has "
        "lost messages, or positions were set too high.",
        *(group, end, queue_id, topic, position, position - end, others),
    )


def _ends(queues: ReadableQueues, wanted: set[Queue]) -> Mapping[Queue, int]:
    """The end of each queue; without those of topics that are kept another way, or cannot exist."""
    existing: set[Queue] = set()
    unknown: set[str] = set()
    for topic in sorted({topic for topic, _ in wanted}):
        try:
            existing |= {(topic, queue_id) for queue_id in queues.queue_ids(topic)}
        except TopicNotFound:
            continue
        except (UnsupportedStore, InvalidValue):
            unknown.add(topic)
    known = sorted(wanted & existing)
    ends = {queue: info.max_offset for queue, info in zip(known, queues.queue_infos(known), strict=True)}
    return {queue: ends.get(queue, 0) for queue in wanted if queue[0] not in unknown}
