"""StoreSamples: the numbers of one store at the time of a scrape, each for a metric of ``metrics_table.py``.

Everything is read first and formatted later: nothing that puts wait for is held while text is made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from commitlog_store.delayed.levels import DelayLevel
from commitlog_store.delayed.timer_listing import TIMER_LEVEL
from commitlog_store.engine.running_state import RunningFlags
from commitlog_store.engine.stats import StoreStats
from commitlog_store.errors import CommitLogError, MessageNotFound
from commitlog_store.files.limits import fullest_disk, used_bytes
from commitlog_store.format.message_rules import SCHEDULE_TOPIC
from commitlog_store.format.timer_messages import TIMER_TOPIC
from commitlog_store.groups.lag import GroupLag, group_lags
from commitlog_store.half.transactional_message import TransactionalMessageService
from commitlog_store.paths import (
    DLQ_TOPIC_PREFIX,
    RETRY_TOPIC_PREFIX,
    is_system_group,
    is_system_topic,
)
from commitlog_store.queue.topic_config import PERM_READ, PERM_WRITE, read_topic_config
from commitlog_store.reader import StoreReader, levels_and_timers
from commitlog_store.serve.connection_counts import PROTOCOL_TYPE, ConnectionCounts
from commitlog_store.serve.http.groups_now import positions_now
from commitlog_store.serve.http.samples import LOCAL_DISK, REST, BoundedNames, Samples, Value, add_bounded, summed
from commitlog_store.serve.http.timer_samples import TimerSamples, enqueue_latency
from commitlog_store.store import MessageStore, owned_by

if TYPE_CHECKING:
    from commitlog_store.serve.archive_service import ArchiveState

MOST_TOPICS = 500
# Of a group in a topic. The time of the oldest message is read for each queue of these.
MOST_LAGS = 500
# Thousands of queues take a second of the processor: their numbers are asked in a twentieth of the time.
_REST = 20
_DELAYED = (SCHEDULE_TOPIC, TIMER_TOPIC)
# The metrics of ``RequestTimes``, in its order.
_REQUEST_TIMES = (
    "rocketmq_rpc_latency_milliseconds",
    "rocketmq_topic_create_execution_time_milliseconds",
    "rocketmq_consumer_group_create_execution_time_milliseconds",
)


_Step: TypeAlias = Callable[[Samples, StoreReader], None]


class StoreSamples:
    """Reads the numbers of one store. One thread at a time; the names with series of their own stay for its life."""

    def __init__(
        self,
        owned: MessageStore | None,
        *,
        archive: Callable[[], ArchiveState] | None = None,
        connections: ConnectionCounts | None = None,
        most_topics: int = MOST_TOPICS,
        most_lags: int = MOST_LAGS,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``owned`` is the store if this process owns it, ``archive`` the state of the service that archives it.

        ``connections`` are those of the server, None if another store's samples have them.
        """
        self._connections = connections
        self._owned = owned
        self._archive = archive
        self._clock = clock
        self._monotonic = monotonic
        self._in: BoundedNames[str] = BoundedNames(most_topics)
        self._out: BoundedNames[str] = BoundedNames(most_topics)
        self._dead: BoundedNames[str] = BoundedNames(most_topics)
        self._half: BoundedNames[str] = BoundedNames(most_topics)
        self._lags: BoundedNames[tuple[str, str]] = BoundedNames(most_lags)
        self._timers = TimerSamples(most_topics)
        self._producers: BoundedNames[tuple[str, str]] = BoundedNames(most_lags)
        self._consumers: BoundedNames[tuple[str, str, str, str]] = BoundedNames(most_lags)
        # By step: until when its values are given again, and these.
        self._kept: dict[str, tuple[float, list[Value]]] = {}
        # The log's first byte, and when the message there was stored.
        self._oldest = (-1, 0)

    def read_owned(self, samples: Samples) -> None:
        """What the owner has in memory. ``StoreClosed``."""
        if self._connections is not None:
            self._of_connections(samples, self._connections)
        if self._archive is not None:
            _of_archive(samples, self._archive())
        if self._owned is None:
            samples.values.append(("commitlog_owned", (), 0))
        else:
            owned_by(self._owned).engine.state.refuse_closed()
            self._of_owner(samples, self._owned)
            samples.values.append(("commitlog_owned", (), 1))

    def read(self, samples: Samples, reader: StoreReader) -> None:
        """What is read from files. Raises the first error when everything else is read."""
        first: CommitLogError | OSError | None = None
        of_queues = [self._of_delayed, self._of_groups] + ([self._of_files] if self._owned is None else [])
        of_files = [self._of_disk, self._of_log, self._of_timer_queue]
        steps: list[_Step] = [*of_files, *(partial(self._kept_or_asked, one) for one in of_queues)]
        for step in steps:
            try:
                step(samples, reader)
            except (CommitLogError, OSError) as error:
                first = first or error
        if first is not None:
            raise first

    def _kept_or_asked(self, step: _Step, samples: Samples, reader: StoreReader) -> None:
        """The numbers of a step that asks many queues: asked again when twenty times its own time has passed."""
        until, values = self._kept.get(step.__name__, (0.0, []))
        began = self._monotonic()
        if began >= until:
            found = Samples([], [])
            step(found, reader)
            values, ended = found.values, self._monotonic()
            self._kept[step.__name__] = ended + (ended - began) * _REST, values
        samples.values.extend(values)

    def _of_disk(self, samples: Samples, reader: StoreReader) -> None:
        paths = reader.paths
        samples.values.append(("commitlog_disk_used_ratio", (), fullest_disk(paths.disks).used))
        samples.values.append(("rocketmq_storage_size_bytes", LOCAL_DISK, used_bytes(paths.root)))

    def _of_log(self, samples: Samples, reader: StoreReader) -> None:
        start = reader.log_start()
        if start < 0:
            return
        samples.values.append(("commitlog_log_min_offset_bytes", (), start))
        with suppress(MessageNotFound):  # a log without messages, or one that retention is cutting
            if self._oldest[0] != start:
                self._oldest = start, reader.message_at(start, verify_crc=False).store_timestamp
            age = max(self._now_ms() - self._oldest[1], 0)
            samples.values.append(("rocketmq_storage_message_reserve_time_milliseconds", LOCAL_DISK, age))

    def _of_delayed(self, samples: Samples, reader: StoreReader) -> None:
        if any(topic in _DELAYED for topic in reader.topics()):
            levels, timers = levels_and_timers(reader)
            self._add_delayed(samples, levels)
            if any(level.level == TIMER_LEVEL for level in levels):
                self._timers.waiting(samples, reader, timers, self._now_ms())

    def _of_timer_queue(self, samples: Samples, reader: StoreReader) -> None:
        if self._owned is not None:
            enqueue_latency(samples, reader, owned_by(self._owned).timer, self._now_ms())

    def _of_groups(self, samples: Samples, reader: StoreReader) -> None:
        offsets = positions_now(reader, self._owned)
        groups = {one.group_name for one in reader.group_settings()} | set(offsets.groups())
        samples.values.append(("rocketmq_consumer_group_number", (), len(groups)))
        pulled = None if self._owned is None else owned_by(self._owned).groups.pulled.all()
        self._add_lags(samples, reader, group_lags(reader, offsets, pulled))

    def _add_delayed(self, samples: Samples, levels: Iterable[DelayLevel]) -> None:
        for level in levels:
            labels = (str(level.level),)
            late_s = level.overdue_ms(self._now_ms()) / 1000
            samples.values.append(("commitlog_delayed_waiting_messages", labels, level.waiting))
            samples.values.append(("commitlog_delayed_overdue_seconds", labels, late_s))
            if level.level == TIMER_LEVEL:
                samples.values.append(("rocketmq_timer_dequeue_lag", LOCAL_DISK, level.waiting))
                samples.values.append(("rocketmq_timer_dequeue_latency_milliseconds", LOCAL_DISK, late_s * 1000))

    def _of_files(self, samples: Samples, reader: StoreReader) -> None:
        """What another process stored, by the ends of its queues."""
        topics = [topic for topic in reader.topics() if not _is_of_group(topic)]
        samples.values.append(("rocketmq_topic_number", (), len(read_topic_config(reader.path))))
        queues = [
            (topic, queue_id)
            for topic, ids in zip(topics, reader.queue_ids_of(topics), strict=True)
            if not isinstance(ids, CommitLogError)
            for queue_id in ids
        ]
        ends = dict.fromkeys(topics, 0)
        for info in reader.queue_infos(queues):
            ends[info.topic] += info.max_offset
        _add_topics(samples, self._in, {"rocketmq_messages_in_total": ends})

    def _of_owner(self, samples: Samples, store: MessageStore) -> None:
        add = samples.values.append
        stats = store.stats()
        self._of_stats(samples, stats)
        engine = owned_by(store).engine
        add(("rocketmq_topic_number", (), len(engine.topics.listed())))
        files, state = engine.log.files, engine.state
        end = files.max_wrote
        add(("commitlog_log_max_offset_bytes", (), end))
        add(("rocketmq_storage_flush_behind_bytes", LOCAL_DISK, max(end - files.flushed_where, 0)))
        add(("rocketmq_storage_dispatch_behind_bytes", LOCAL_DISK, stats.dispatch_behind_bytes))
        readable = RunningFlags.NOT_READABLE not in state.flags
        permission = (PERM_READ if readable else 0) + (PERM_WRITE if readable and state.writable else 0)
        add(("rocketmq_broker_permission", (), permission))
        add(("commitlog_writable", (), state.writable))
        add(("commitlog_halted", (), state.failure is not None))
        add(("commitlog_disk_full", (), RunningFlags.DISK_FULL in state.flags))
        add(("commitlog_disk_warning_ratio", (), store.config.disk_space_warning_level_ratio))
        timer = owned_by(store).timer
        if (to_take_in := timer.to_take_in()) is not None:
            add(("rocketmq_timer_enqueue_lag", LOCAL_DISK, len(to_take_in)))
        self._timers.counted(samples, timer.counts)
        self._of_half_messages(samples, owned_by(store).half_messages)
        add(("commitlog_unconfirmed", (), state.unconfirmed > 0))
        add(("commitlog_slaves", (), len(stats.slaves)))
        for slave in stats.slaves:
            add(("commitlog_slave_behind_bytes", (slave.address,), max(slave.behind, 0)))

    def _of_half_messages(self, samples: Samples, half: TransactionalMessageService) -> None:
        samples.values.append(("rocketmq_half_messages", (), half.pending_count()))
        finished = half.finish_times()  # first: every topic in it is among those that are counted then
        committed, rolled_back = half.counts()
        topics = dict.fromkeys([*committed, *rolled_back], 0)
        self._half.admit({topic: committed.get(topic, 0) + rolled_back.get(topic, 0) for topic in topics})
        for name, ended in (("commit", committed), ("rollback", rolled_back)):
            metric = f"rocketmq_{name}_messages_total"
            add_bounded(samples, metric, self._half, {**topics, **ended}, lambda topic: (topic,), (REST,))
        times = {topic: one for topic, one in finished.items() if topic in self._half}
        if others := [one for topic, one in finished.items() if topic not in times]:
            times[REST] = summed(others)
        for topic, histogram in times.items():
            samples.histograms.append(("rocketmq_finish_message_latency_milliseconds", (topic,), histogram))

    def _of_connections(self, samples: Samples, counts: ConnectionCounts) -> None:
        add = samples.values.append
        for listener, count in counts.now().items():
            add(("commitlog_connections", (listener, "beginning"), count.beginning))
            add(("commitlog_connections", (listener, "active"), count.active))
            add(("commitlog_connections", (listener, "idle"), count.idle))
            add(("commitlog_connections_refused_total", (listener,), count.refused))
        for processor, waiting in counts.waiting_requests().items():
            add(("rocketmq_processor_watermark", (processor,), waiting))
        for name, times in zip(_REQUEST_TIMES, counts.request_times(), strict=True):
            samples.histograms.extend((name, labels, histogram) for labels, histogram in times.items())
        clients = counts.clients()
        self._producers.admit(clients.producers)
        add_bounded(
            *(samples, "rocketmq_producer_connections", self._producers, clients.producers),
            lambda producer: (*producer, PROTOCOL_TYPE),
            (REST, REST, PROTOCOL_TYPE),
        )
        self._consumers.admit(clients.consumers)
        add_bounded(
            *(samples, "rocketmq_consumer_connections", self._consumers, clients.consumers),
            lambda consumer: (*consumer, PROTOCOL_TYPE, _text(is_system_group(consumer[0]))),
            (REST, REST, REST, REST, PROTOCOL_TYPE, "false"),
        )

    def _of_stats(self, samples: Samples, stats: StoreStats) -> None:
        add = samples.values.append
        stored = stats.topic_stored_times
        ins = {"rocketmq_messages_in_total": stored, "rocketmq_throughput_in_total": stats.topic_stored_sizes}
        outs = {
            "rocketmq_messages_out_total": stats.topic_get_times,
            "rocketmq_throughput_out_total": stats.topic_get_sizes,
        }
        for names, metrics in ((self._in, ins), (self._out, outs)):
            # Without topics of consumer groups, as RocketMQ.
            of_topics = {
                metric: {topic: value for topic, value in values.items() if not _is_of_group(topic)}
                for metric, values in metrics.items()
            }
            _add_topics(samples, names, of_topics)
        dead = {
            topic.removeprefix(DLQ_TOPIC_PREFIX): count
            for topic, count in stored.items()
            if topic.startswith(DLQ_TOPIC_PREFIX)
        }
        self._dead.admit(dead)
        add_bounded(
            *(samples, "rocketmq_send_to_dlq_messages_total", self._dead, dead),
            lambda group: (group, _text(is_system_group(group))),
            (REST, "false"),
        )
        add(("commitlog_put_failed_total", (), stats.put_message_failed_times))
        add(("commitlog_pulls_total", ("found",), stats.get_message_times_total_found))
        add(("commitlog_pulls_total", ("miss",), stats.get_message_times_total_miss))
        add(("commitlog_delayed_delivered_total", (), stats.delayed_delivered))
        add(("commitlog_delayed_skipped_total", (), stats.delayed_skipped))
        samples.histograms.append(("commitlog_put_seconds", (), stats.put_seconds))
        samples.histograms.append(("commitlog_pull_seconds", (), stats.get_seconds))
        samples.histograms.append(("rocketmq_message_size", (), stats.put_sizes))

    def _add_lags(self, samples: Samples, reader: StoreReader, lags: Iterable[GroupLag]) -> None:
        by_name = {(one.group, one.topic): one for one in lags}
        self._lags.admit({name: one.messages for name, one in by_name.items()})
        for name, one in by_name.items():
            if name in self._lags:
                labels = _lag_labels(one.group, one.topic)
                self._add_waiting(samples, labels, [one])
                self._add_latencies(samples, labels, reader, one)
        rest = [one for name, one in by_name.items() if name not in self._lags]
        if rest:
            self._add_waiting(samples, (REST, REST, "false", "false"), rest)

    def _add_waiting(self, samples: Samples, labels: tuple[str, ...], lags: Iterable[GroupLag]) -> None:
        """How many messages wait; the owner alone knows what consumers have pulled."""
        waiting, ready = (sum(numbers) for numbers in zip(*((one.messages, one.ready) for one in lags), strict=True))
        samples.values.append(("rocketmq_consumer_lag_messages", labels, waiting))
        if self._owned is not None:
            samples.values.append(("rocketmq_consumer_ready_messages", labels, ready))
            samples.values.append(("rocketmq_consumer_inflight_messages", labels, waiting - ready))

    def _add_latencies(self, samples: Samples, labels: tuple[str, ...], reader: StoreReader, lag: GroupLag) -> None:
        latencies = [("rocketmq_consumer_lag_latency_milliseconds", lag.first_waiting())]
        if self._owned is not None:
            latencies.append(("rocketmq_consumer_queueing_latency_milliseconds", lag.first_ready()))
        places = sorted({place for _, first in latencies for place in first})
        times = dict(zip(places, reader.store_timestamps(places), strict=True))
        now_ms = self._now_ms()
        for name, first in latencies:
            stored = [time for place in first if isinstance(time := times[place], int)]
            if stored or not first:
                samples.values.append((name, labels, max(now_ms - min(stored), 0) if stored else 0))

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)


def _of_archive(samples: Samples, state: ArchiveState) -> None:
    add = samples.values.append
    add(("commitlog_archive_stop_offset_bytes", (), state.archived))
    add(("commitlog_archive_waiting_bytes", (), state.waiting))
    add(("commitlog_archive_uploaded_bytes_total", (), state.uploaded))
    add(("commitlog_archive_failed_total", (), state.failures))
    add(("commitlog_archive_failing", (), bool(state.failure)))


def _is_of_group(topic: str) -> bool:
    return topic.startswith((RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX))


def _add_topics(samples: Samples, names: BoundedNames[str], metrics: Mapping[str, Mapping[str, int]]) -> None:
    """Metrics of the same topics, with the same topics in the rest."""
    for place, (metric, values) in enumerate(metrics.items()):
        if not place:
            names.admit(values)
        add_bounded(
            samples, metric, names, values, lambda topic: (topic, _text(is_system_topic(topic))), (REST, "false")
        )


def _lag_labels(group: str, topic: str) -> tuple[str, ...]:
    is_retry, is_system = topic.startswith(RETRY_TOPIC_PREFIX), is_system_topic(topic) or is_system_group(group)
    return group, topic, _text(is_retry), _text(is_system)


def _text(value: bool) -> str:
    return "true" if value else "false"
