"""What ``commitlog info`` shows, as values."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeVar

from commitlog.errors import CommitLogError
from commitlog.format.consume_queue_unit import FILLER_SIZE
from commitlog.paths import is_system_topic
from commitlog.reader import QueueInfo, StoreReader

__all__ = ["QueueSummary", "StoreSummary", "summarize"]

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class QueueSummary:
    """One queue. Times are store times in milliseconds; ``size`` is bytes of its records in the log."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    messages: int
    size: int
    first_store_timestamp: int | None
    last_store_timestamp: int | None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class StoreSummary:
    """A store and its queues. Offsets and sizes in bytes."""

    path: str
    aborted: bool
    min_physical_offset: int
    max_physical_offset: int
    commit_log_files: int
    disk_size: int
    index_files: int
    indexed_keys: int
    checkpoint: dict[str, int] | None
    queues: list[QueueSummary]
    problems: list[str]

    def by_topic(self) -> dict[str, list[QueueSummary]]:
        grouped: dict[str, list[QueueSummary]] = defaultdict(list)
        for queue in self.queues:
            grouped[queue.topic].append(queue)
        return dict(grouped)

    def to_json(self) -> dict[str, Any]:
        """Names as the columns have them, in camel case."""
        plain = {_camel(name): value for name, value in asdict(self).items() if name != "queues"}
        plain["topics"] = [
            {
                "topic": topic,
                "system": is_system_topic(topic),
                "queues": [
                    {_camel(name): value for name, value in asdict(queue).items() if name != "topic"}
                    for queue in queues
                ],
            }
            for topic, queues in self.by_topic().items()
        ]
        return plain


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)


def summarize(reader: StoreReader) -> StoreSummary:
    """Go through the whole store once. What cannot be read is said among ``problems``; the rest is still shown."""
    problems: list[str] = []
    queues: list[QueueSummary] = []
    for topic in reader.topics():
        for queue_id in _or_problem(partial(reader.queue_ids, topic), problems) or []:
            info = _or_problem(partial(reader.queue_info, topic, queue_id), problems)
            if info is not None:
                queues.append(_queue(reader, info))
    low, high = _or_problem(reader.physical_bounds, problems) or (0, 0)
    checkpoint = _or_problem(reader.checkpoint, problems)
    index = _or_problem(reader.index_files, problems) or []
    files, size = _disk_use(reader.path)
    return StoreSummary(
        path=reader.path,
        aborted=reader.aborted,
        min_physical_offset=low,
        max_physical_offset=high,
        commit_log_files=files,
        disk_size=size,
        index_files=len(index),
        indexed_keys=sum(max(file.index_count - 1, 0) for file in index),
        checkpoint={_camel(name): value for name, value in asdict(checkpoint).items()} if checkpoint else None,
        queues=queues,
        problems=problems,
    )


def _or_problem(get: Callable[[], T], problems: list[str]) -> T | None:
    try:
        return get()
    except CommitLogError as error:
        problems.append(str(error))
        return None


def _queue(reader: StoreReader, info: QueueInfo) -> QueueSummary:
    topic, queue_id, low, high = info.topic, info.queue_id, info.min_offset, info.max_offset
    messages = size = 0
    first = last = None
    error = None
    try:
        for units in reader.units(topic, queue_id, low, high):
            real = units["size"][units["size"] != FILLER_SIZE]
            messages += len(real)
            size += int(real.sum(dtype="int64"))
        if messages:
            first = reader.store_timestamp(topic, queue_id, low)
            last = reader.store_timestamp(topic, queue_id, high - 1)
    except CommitLogError as problem:
        error = str(problem)
    return QueueSummary(
        topic=topic,
        queue_id=queue_id,
        min_offset=low,
        max_offset=high,
        messages=messages,
        size=size,
        first_store_timestamp=first,
        last_store_timestamp=last,
        error=error,
    )


def _disk_use(path: str) -> tuple[int, int]:
    """The number of CommitLog files, and the bytes all files of the store take on disk (holes not counted)."""
    files = size = 0
    for directory, _, names in os.walk(path):
        for name in names:
            try:
                size += os.lstat(os.path.join(directory, name)).st_blocks * 512
            except FileNotFoundError:
                continue
            files += os.path.basename(directory) == "commitlog" and name.isdigit()
    return files, size
