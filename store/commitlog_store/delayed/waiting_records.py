"""What both kinds of delayed messages have in common: which topics take them, where delivery stops on a full disk, how
their records are read from the log, which thread is woken when one has come, and when the services deliver.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from commitlog_store.columnar.delivery import Undeliverable, WaitingRecords
from commitlog_store.columnar.dispatch import DispatchRequests
from commitlog_store.columnar.dispatch_keys import IndexEntries
from commitlog_store.config import BrokerRole
from commitlog_store.delayed.broker_marks import broker_mark
from commitlog_store.engine.reput import Step
from commitlog_store.engine.running_state import RunningState
from commitlog_store.engine.store_engine import StoreEngine
from commitlog_store.engine.subject import Subject
from commitlog_store.errors import CommitLogError, InvalidValue, Refused, StoreClosed
from commitlog_store.files.mapped_file_queue_writer import MappedFileQueueWriter
from commitlog_store.files.mapped_file_writer import MappedFileWriter
from commitlog_store.format.arrays import BoolArray, Int64Array
from commitlog_store.format.consume_queue_unit import FILLER_SIZE
from commitlog_store.format.half_messages import HALF_TOPIC
from commitlog_store.format.message_rules import SCHEDULE_TOPIC
from commitlog_store.format.record import field_offset
from commitlog_store.format.timer_messages import TIMER_TOPIC
from commitlog_store.paths import refuse_batch_topic, validate_topic
from commitlog_store.queue.deleted_topics import DeletedTopics
from commitlog_store.queue.topic_config import TopicConfig
from commitlog_store.threads.jobs import JobThreadEnded
from commitlog_store.threads.wakeup import Wakeup
from commitlog_store.threads.worker import Worker

_LOG = logging.getLogger(__name__)

# A message that waits is looked at again after this time at the latest: the clock may have been set.
LONGEST_SECONDS = 1.0
# While the store accepts no messages, or has no space for them.
REFUSED_SECONDS = 0.2
# After a failure that is not expected, as in RocketMQ.
FAILED_SECONDS = 10.0
# One frame: a put waits while it is written.
MOST_FRAME_BYTES = 64 << 20
MOST_FRAME_UNITS = 1 << 18
# Records that are encoded at once: they stay in the processor's caches.
PIECE_BYTES = 8 << 20

_NO_END = 2**63
# Records are read together if at least this share of the bytes between them is theirs.
_DENSE = 4
# And scattered ones if so few bytes lie between them.
_NEAR = 4_096
_REMOVED = "its record was removed from the log"
_QUEUE_OFFSET_AT = field_offset("queue_offset")


class WakeScheduleService:
    """A dispatcher that wakes a service when a message has come into the topic in which its messages wait."""

    def __init__(self, wakeup: Wakeup, topic: str = SCHEDULE_TOPIC) -> None:
        self._wakeup = wakeup
        self._topic = topic

    def prepare(self, requests: DispatchRequests, entries: Callable[[], IndexEntries]) -> Step:
        del entries
        return self._wakeup.set if self._topic in requests.topics else _nothing


def _nothing() -> None:
    pass


class DeliveryTopics:
    """Which topics get delayed messages. ``TopicRules``."""

    def __init__(self, topics: TopicConfig, deleted: DeletedTopics) -> None:
        self._topics = topics
        self.deleted_before = deleted.before

    def fault(self, topic: str) -> str | None:
        if topic in (HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC):
            return f"its topic is {topic}, from which nothing would read it"
        try:
            validate_topic(topic)
            refuse_batch_topic(topic)
        except InvalidValue as error:
            return f"its topic is none ({error})"
        return self._topics.kind_fault(topic)


def end_to_deliver(state: RunningState, files: MappedFileQueueWriter) -> int:
    """The physical offset before which messages are delivered now.

    On a nearly full disk, only those of the log's first file: the others continue to wait, and retention can delete
    the file when it holds none any more. So deliveries never take more of such a disk than that file gives back.
    """
    if state.refusal is None:
        return _NO_END
    end = files.min_offset + files.file_size
    return end if end <= files.max_wrote else 0  # the file that is being written stays


def waiting_records(
    files: MappedFileQueueWriter,
    physical: Int64Array,
    sizes: Int64Array,
    queue_offsets: Int64Array,
    is_gone: BoolArray,
    piece_bytes: int,
    skipped: list[Undeliverable],
) -> Iterator[WaitingRecords]:
    """The records of a queue's units, in pieces of ``piece_bytes``; units without a record are added to ``skipped``.

    ``is_gone``: before the log's first byte, and not damaged.
    """
    first, end = files.min_offset, files.max_wrote
    is_filler = sizes == FILLER_SIZE
    is_wrong = (sizes <= 0) | (physical < 0) | (physical + sizes > end) | ((physical < first) & ~is_gone)
    is_gone = is_gone & ~is_wrong
    for which, reason in ((is_wrong, "its unit is damaged"), (is_gone, _REMOVED)):
        skipped += [
            Undeliverable(int(queue_offsets[row]), int(physical[row]), reason)
            for row in np.flatnonzero(which & ~is_filler).tolist()
        ]
    rows = np.flatnonzero(~(is_filler | is_wrong | is_gone))
    at = 0
    while at < len(rows):
        file = files.find(int(physical[rows[at]]))
        stop = at + 1 if file is None else at + _piece_stop(file, physical[rows[at:]], sizes[rows[at:]], piece_bytes)
        piece = rows[at:stop]
        at = stop
        if file is None:  # retention has removed it since
            skipped.append(Undeliverable(int(queue_offsets[piece[0]]), int(physical[piece[0]]), _REMOVED))
            continue
        yield _read(file, physical[piece], sizes[piece], queue_offsets[piece])


def _piece_stop(file: MappedFileWriter, physical: Int64Array, sizes: Int64Array, most_bytes: int) -> int:
    """The number of records, from the first one on, that are read at once: they lie in one file, close together."""
    ends = physical + sizes
    start = int(physical[0])
    fits = (physical >= start) & (ends <= file.base + file.capacity) & (np.cumsum(sizes) <= most_bytes)
    return max(len(fits) if fits.all() else int(np.argmin(fits)), 1)


def _read(file: MappedFileWriter, physical: Int64Array, sizes: Int64Array, queue_offsets: Int64Array) -> WaitingRecords:
    start, stop = int(physical.min()), int((physical + sizes).max())
    if stop - start <= _DENSE * int(sizes.sum()):
        data, positions = np.frombuffer(file.read(start - file.base, stop - start), np.uint8), physical - start
    else:
        pairs = zip((physical - file.base).tolist(), sizes.tolist(), strict=True)
        data = np.frombuffer(b"".join([file.read(at, size) for at, size in pairs]), np.uint8)
        positions = np.cumsum(sizes) - sizes
    return WaitingRecords(data, positions, sizes, physical, queue_offsets)


def scattered_records(
    files: MappedFileQueueWriter,
    physical: Int64Array,
    sizes: Int64Array,
    piece_bytes: int,
    skipped: list[Undeliverable],
) -> Iterator[WaitingRecords]:
    """Records in this order, wherever they lie in the log, in pieces of ``piece_bytes``, each read in the log's order.

    Their queue offsets are those that they hold. Records that were removed are added to ``skipped``.
    """
    ends, at = np.cumsum(sizes), 0
    while at < len(sizes):
        before = int(ends[at - 1]) if at else 0
        stop = max(int(np.searchsorted(ends, before + piece_bytes, side="right")), at + 1)
        yield from _scattered(files, physical[at:stop], sizes[at:stop], skipped)
        at = stop


def _scattered(
    files: MappedFileQueueWriter, physical: Int64Array, sizes: Int64Array, skipped: list[Undeliverable]
) -> Iterator[WaitingRecords]:
    order = np.argsort(physical, kind="stable")
    starts, stops = physical[order], (physical + sizes)[order]
    # Neighbours are read together, with what is between them; never across two files.
    new = np.ones(len(order), np.bool_)
    new[1:] = (starts[1:] - stops[:-1] > _NEAR) | (starts[1:] // files.file_size != starts[:-1] // files.file_size)
    firsts = np.flatnonzero(new)
    lasts = np.append(firsts[1:], len(order)) - 1
    parts: list[bytes] = []
    positions = np.full(len(order), -1, np.int64)
    length = 0
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        start, stop = int(starts[first]), int(stops[first : last + 1].max())
        file = files.find(start) if start >= files.min_offset else None
        if file is None:
            continue
        parts.append(file.read(start - file.base, stop - start))
        positions[order[first : last + 1]] = starts[first : last + 1] - start + length
        length += stop - start
    skipped += [Undeliverable(-1, int(physical[row]), _REMOVED) for row in np.flatnonzero(positions < 0).tolist()]
    there = positions >= 0
    if there.any():
        data, positions = np.frombuffer(b"".join(parts), np.uint8), positions[there]
        offsets = data[positions[:, None] + np.arange(_QUEUE_OFFSET_AT, _QUEUE_OFFSET_AT + 8)]
        queue_offsets = np.ascontiguousarray(offsets).view(">i8").reshape(-1).astype(np.int64)
        yield WaitingRecords(data, positions, sizes[there], physical[there], queue_offsets)


def report_undeliverable(store_path: str, what: str, topic: str, skipped: Sequence[Undeliverable]) -> None:
    """Log the first of messages that are skipped, and how many there are. ``what``: "delayed message of level 3"."""
    first = skipped[0]
    others = f", and {len(skipped) - 1} more after it" if len(skipped) > 1 else ""
    _LOG.warning(
        "%s: a %s is not delivered, since %s: offset %d of its queue, physical offset %d%s. It stays in %s.",
        *(store_path, what, first.reason, first.queue_offset, first.physical_offset, others, topic),
    )


class DeliveryService(Subject):
    """Delivers the messages that wait in one topic. For one thread, and the job thread."""

    def __init__(
        self,
        engine: StoreEngine,
        wakeup: Wakeup,
        topic: str,
        kind: str,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        """``wakeup`` is set when a message has come into ``topic``; ``kind`` is what waits there: "Timer messages"."""
        config = engine.config
        self._store_path = engine.path
        self._topic = topic
        self._kind = kind
        # None delivers unless the store is a broker's.
        self._enabled = config.schedule_enable
        self._log = engine.log
        self._batches = engine.batches
        self._state = engine.state
        self._store_flush = engine.store_flush
        self._run_job = engine.run
        self._is_replica = config.broker_role is BrokerRole.SLAVE
        self._clock = clock
        self._monotonic = monotonic
        self._saved_at = monotonic()
        # The last failure of each kind of messages that the log has, so that it has each only once.
        self._failures: dict[str, str] = {}
        self._workers = [] if self._enabled is False or self._is_replica else [engine.worker(self, wakeup)]

    def workers(self) -> Sequence[Worker]:
        return self._workers

    def run_once(self) -> float:
        if self._enabled is False:
            return FAILED_SECONDS
        if not self._state.takes_what_frees_space:
            return REFUSED_SECONDS
        if self._log.queues.highest_id(self._topic) < 0:
            return LONGEST_SECONDS  # most stores never have such a message: no file is looked at for them
        return self._guarded(self._kind, self._step_if_ours)

    def _step_if_ours(self) -> float:
        if self._enabled is None:
            mark = broker_mark(self._store_path)
            if mark is not None:
                _LOG.info("%s is a broker's, by %s: %s are left to it.", self._store_path, mark, self._kind.lower())
            self._enabled = mark is None
        return self._step() if self._enabled else FAILED_SECONDS

    def _step(self) -> float:
        """Deliver what is due. The seconds until there may be more to do."""
        raise NotImplementedError

    def _guarded(self, what: str, step: Callable[[], float]) -> float:
        """Do a step for ``what``; one that fails is repeated later. The seconds until the next one."""
        try:
            pause = step()
        except (StoreClosed, JobThreadEnded):
            return FAILED_SECONDS  # no step comes after this
        except Exception as error:  # noqa: BLE001 - whatever it is, later steps repeat it
            text = str(error) or repr(error)
            if self._failures.get(what) != text:
                self._failures[what] = text
                expected = isinstance(error, CommitLogError)
                _LOG.warning("%s wait: %s", what, text, exc_info=None if expected else error)
            return REFUSED_SECONDS if isinstance(error, Refused) else FAILED_SECONDS
        self._failures.pop(what, None)
        return pause
