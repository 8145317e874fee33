"""Summary of a store for ``commitlog info``: figures of the store and of each queue."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from commitlog_store.cli.kept_output import kept_to_json
from commitlog_store.cli.owner_config import owner_config
from commitlog_store.cli.render import camel_members
from commitlog_store.delayed.broker_marks import broker_mark, has_timer_wheel
from commitlog_store.errors import CommitLogError, CorruptConfig, LogNotFound, OffsetOutOfRange
from commitlog_store.format.consume_queue_unit import FILLER_SIZE
from commitlog_store.metadata import all_bounds
from commitlog_store.paths import is_system_topic
from commitlog_store.queries.chosen_topics import READ_THE_LOG
from commitlog_store.reader import QueueInfo, StoreReader
from commitlog_store.recovery.kept import KeptPiece, kept_pieces
from commitlog_store.retention.archive_status import ArchiveHoldStatus
from commitlog_store.verify.assessment import Assessment, Verdict, assess_store
from commitlog_store.verify.store_facts import disk_use

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class QueueSummary:
    """One queue. Times are store times in milliseconds.

    ``messages`` counts queue offsets. ``size`` is the bytes of its records in the log, None if they were not summed.
    """

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    messages: int
    size: int | None
    first_store_timestamp: int | None
    last_store_timestamp: int | None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class StoreSummary:
    """A store and its queues. Offsets and sizes in bytes.

    ``delayed_waiting`` is how many delayed messages wait, ``delayed_overdue_ms`` how long ago the first one was due.
    ``delayed_left_to`` is what shows that a broker delivers them; None where ``MessageStore`` does. ``timer_wheel``: a
    broker keeps messages of its timer there. ``assessment`` is the quick one; None for queues that were derived from
    the log.
    """

    path: str
    aborted: bool
    min_physical_offset: int = 0
    max_physical_offset: int = 0
    commit_log_files: int = 0
    disk_size: int = 0
    index_files: int
    indexed_keys: int = 0
    checkpoint: dict[str, int] | None
    queues: list[QueueSummary] = field(default_factory=list)
    delayed_waiting: int = 0
    delayed_overdue_ms: int = 0
    delayed_left_to: str | None = None
    timer_wheel: bool = False
    kept: list[KeptPiece] = field(default_factory=list)
    problems: list[str]
    assessment: Assessment | None = None
    archive_hold: ArchiveHoldStatus | None = None

    @property
    def all_problems(self) -> list[str]:
        """The errors of the store and of single queues, each once."""
        return list(dict.fromkeys([*self.problems, *(queue.error for queue in self.queues if queue.error)]))

    @property
    def verdict(self) -> Verdict | None:
        """The assessment's verdict, and at least a warning where a part cannot be read; None without an assessment."""
        if self.assessment is None:
            return None
        verdict = self.assessment.verdict
        return Verdict.WARNING if verdict is Verdict.OK and self.all_problems else verdict

    def by_topic(self) -> dict[str, list[QueueSummary]]:
        grouped: dict[str, list[QueueSummary]] = defaultdict(list)
        for queue in self.queues:
            grouped[queue.topic].append(queue)
        return dict(grouped)

    def without_system_topics(self) -> StoreSummary:
        """The same without the queues of topics that are RocketMQ's or the store's own."""
        return replace(self, queues=[queue for queue in self.queues if not is_system_topic(queue.topic)])

    def to_json(self) -> dict[str, Any]:
        """The fields with names in camel case, as those of the columns."""
        plain = camel_members(self, without="queues")
        found = plain.pop("assessment")
        plain["verdict"] = None if self.verdict is None else self.verdict.value
        plain["lost"] = None if found is None else found.lost
        plain["unreadable"] = None if found is None else found.unreadable
        plain["archiveHold"] = None if self.archive_hold is None else camel_members(self.archive_hold)
        plain["kept"] = [kept_to_json(piece) for piece in self.kept]
        plain["topics"] = [
            {
                "topic": topic,
                "system": is_system_topic(topic),
                "queues": [camel_members(queue, without="topic") for queue in queues],
            }
            for topic, queues in self.by_topic().items()
        ]
        return plain


def summarize(reader: StoreReader, *, with_sizes: bool, assessed: bool = False) -> StoreSummary:
    """Look at the bounds of every queue, all at one moment. Read errors are listed in ``problems``; the rest is still
    shown.

    ``with_sizes`` reads every unit of every queue, 20 bytes a message; without it, the time does not depend on the
    number of messages. ``assessed``: with the store's assessment.
    """

    def look() -> StoreSummary:
        found = reader.consistently(lambda: _summarize(reader))
        return replace(found, queues=[_with_size(reader, one) for one in found.queues]) if with_sizes else found

    summary = reader.consistently(look, one_moment=False)
    facts = reader.facts(assessed=assessed)
    alike = ("disk_size", "delayed_left_to", "timer_wheel", "kept", "assessment", "archive_hold")
    return replace(
        summary,
        commit_log_files=facts.log_files,
        problems=summary.problems + ([facts.kept_problem] if facts.kept_problem else []),
        **{name: getattr(facts, name) for name in alike},
    )


def summarize_lost_log(path: str, commit_log: str | None, error: LogNotFound) -> StoreSummary:
    """A store whose queues lead to a log that is not there: its assessment, and no queue."""
    found = assess_store(path, config=owner_config(path, commit_log=commit_log))
    files, size = disk_use(found.paths)
    return StoreSummary(
        path=found.path,
        aborted=found.aborted,
        commit_log_files=files,
        disk_size=size,
        index_files=found.index_files,
        checkpoint=camel_members(found.checkpoint),
        delayed_left_to=broker_mark(found.path),
        timer_wheel=has_timer_wheel(found.path),
        kept=kept_pieces(found.path),
        problems=[str(error)],
        assessment=found,
    )


def _summarize(reader: StoreReader) -> StoreSummary:
    bounds = all_bounds(reader)
    problems = [str(error) for error in (*bounds.topic_errors.values(), *bounds.queue_errors.values())]
    queues = _queues(reader, list(bounds.infos.values()))
    low, high = _or_problem(reader.physical_bounds, problems) or (0, 0)
    checkpoint = _or_problem(reader.checkpoint, problems)
    index = _or_problem(reader.index_files, problems) or []
    if low < high and not queues and not problems:
        problems.append(f"{reader.path} has a log of {high - low} bytes and no consume queues: {READ_THE_LOG}.")
    waiting, overdue = _delayed(reader, problems)
    return StoreSummary(
        path=reader.path,
        aborted=reader.aborted,
        min_physical_offset=low,
        max_physical_offset=high,
        index_files=len(index),
        indexed_keys=sum(max(file.index_count - 1, 0) for file in index),
        checkpoint=camel_members(checkpoint) if checkpoint else None,
        queues=queues,
        delayed_waiting=waiting,
        delayed_overdue_ms=overdue,
        problems=problems,
    )


def _delayed(reader: StoreReader, problems: list[str]) -> tuple[int, int]:
    """How many delayed messages wait, and for how long the first of them is overdue (ms)."""
    now_ms = time.time_ns() // 1_000_000
    try:
        levels = reader.delay_levels()
        return sum(level.waiting for level in levels), max((one.overdue_ms(now_ms) for one in levels), default=0)
    except CorruptConfig as error:
        problems.append(str(error))
    except CommitLogError:
        pass  # reported with the queue itself
    return 0, 0


def _or_problem(get: Callable[[], T], problems: list[str]) -> T | None:
    try:
        return get()
    except CommitLogError as error:
        problems.append(str(error))
        return None


def _queues(reader: StoreReader, infos: Sequence[QueueInfo]) -> list[QueueSummary]:
    filled = [info for info in infos if info.min_offset < info.max_offset]
    firsts = reader.store_timestamps([(info.topic, info.queue_id, info.min_offset) for info in filled])
    lasts = reader.store_timestamps([(info.topic, info.queue_id, info.max_offset - 1) for info in filled])
    times = {(info.topic, info.queue_id): both for info, *both in zip(filled, firsts, lasts, strict=True)}
    return [_queue(info, times.get((info.topic, info.queue_id), [])) for info in infos]


def _queue(info: QueueInfo, times: Sequence[int | CommitLogError]) -> QueueSummary:
    """``times``: the store times of its first and last message, or why they cannot be read; none of an empty queue."""
    error = next((str(one) for one in times if isinstance(one, CommitLogError)), None)
    first, last = [None if isinstance(one, CommitLogError) else one for one in times] or (None, None)
    return QueueSummary(
        topic=info.topic,
        queue_id=info.queue_id,
        min_offset=info.min_offset,
        max_offset=info.max_offset,
        messages=info.max_offset - info.min_offset,
        size=None,
        first_store_timestamp=first,
        last_store_timestamp=last,
        error=error,
    )


def _with_size(reader: StoreReader, queue: QueueSummary) -> QueueSummary:
    """The queue with the bytes of its records. ``OffsetOutOfRange`` when retention has removed some of them."""
    if queue.error is not None:
        return queue
    size = 0
    try:
        for units in reader.units(queue.topic, queue.queue_id, queue.min_offset, queue.max_offset):
            size += int(units["size"][units["size"] != FILLER_SIZE].sum(dtype="int64"))
    except OffsetOutOfRange:
        raise
    except CommitLogError as problem:
        return replace(queue, error=str(problem))
    return replace(queue, size=size)
