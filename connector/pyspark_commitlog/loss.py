"""Lost messages: the part of a wanted range that a queue no longer has, where to continue, and ``failOnDataLoss``.

``find_losses`` decides, from the range, the queue's bounds and the fences that do not match; it does no I/O.
``report_losses`` raises or logs a warning, after which the caller continues with the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum, auto

from commitlog_store import Fence, StoreReader
from commitlog_store.errors import CommitLogError, FileMissing, HistoryGap, QueueNotFound, TopicNotFound
from pyspark_commitlog.errors import ConnectorError, DataLossError, TailLostError
from pyspark_commitlog.options.subscription import QueueKey

_logger = logging.getLogger(__name__)

# The store that is planned or read now, as the beginning of a sentence; empty for a store without a name.
_of_store: ContextVar[str] = ContextVar("of_store", default="")

_GO_ON = "To continue with the remaining messages, set the option failOnDataLoss to false."
_RESTORE = (
    "Restore the store that this checkpoint belongs to; or start a query with a new checkpoint; or, to continue with "
    "the existing messages, set the option failOnDataLoss to false."
)


@contextmanager
def naming_store(name: str | None) -> Iterator[None]:
    """Within it, errors and warnings of losses begin with the name of the store, if it has one."""
    before = _of_store.get()
    _of_store.set("" if not name else f"Store {name!r}: ")
    try:
        yield
    finally:
        _of_store.set(before)  # not by a token: a generator may end in another context than it began in


class Loss(Enum):
    """The kinds of loss of messages of a wanted range."""

    QUEUE = auto()
    """The queue, or its whole topic, existed when it was last read and does not exist any more."""
    TAIL = auto()
    """The queue ends before the range does."""
    REPLACED = auto()
    """The queue lost its tail and grew again: a message is not the one that was recorded at its offset."""
    HEAD = auto()
    """The queue begins after the range does."""


@dataclass(frozen=True, kw_only=True)
class Losses:
    """A wanted range and the part of it that a queue still has. All ranges are half-open.

    ``left`` is the range that can be read, possibly empty; it begins where a stream continues. ``replaced`` is the
    position before which another message was found.
    """

    wanted: tuple[int, int]
    available: tuple[int, int] | None
    left: tuple[int, int]
    kinds: tuple[Loss, ...]
    replaced: int | None = None


def find_losses(wanted: tuple[int, int], available: tuple[int, int] | None, replaced: int | None = None) -> Losses:
    """Compare a range with the bounds of its queue, ``available``; None if the queue does not exist.

    ``replaced`` comes from ``replaced_positions``. It does not count if the tail is lost as well, which explains it.
    """
    start, stop = wanted
    if available is None:
        return Losses(wanted=wanted, available=None, left=(stop, stop), kinds=(Loss.QUEUE,))
    kinds: list[Loss] = []
    if available[1] < stop:
        kinds.append(Loss.TAIL)
        stop = available[1]
    elif replaced is not None:
        kinds.append(Loss.REPLACED)
    if start < available[0]:
        kinds.append(Loss.HEAD)
        start = available[0]
    left = (min(start, stop), stop)
    return Losses(wanted=wanted, available=available, left=left, kinds=tuple(kinds), replaced=replaced)


def queue_bounds(reader: StoreReader, topic: str, queue_id: int) -> tuple[int, int] | None:
    """The half-open range of offsets that a queue holds now; None if the queue does not exist."""
    try:
        info = reader.queue_info(topic, queue_id)
    except (QueueNotFound, TopicNotFound):
        return None
    return info.min_offset, info.max_offset


def bounds_of_queues(reader: StoreReader, keys: Sequence[QueueKey]) -> dict[QueueKey, tuple[int, int] | None]:
    """``queue_bounds`` of each queue, with two questions for all of them."""
    topics = list(dict.fromkeys(topic for topic, _ in keys))
    ids: dict[str, set[int]] = {}
    for topic, found in zip(topics, reader.queue_ids_of(topics), strict=True):
        if isinstance(found, CommitLogError) and not isinstance(found, TopicNotFound):
            raise found
        ids[topic] = set() if isinstance(found, CommitLogError) else set(found)
    infos = reader.queue_infos([key for key in keys if key[1] in ids[key[0]]])
    there = {(info.topic, info.queue_id): (info.min_offset, info.max_offset) for info in infos}
    return {key: there.get(key) for key in keys}


def replaced_positions(
    reader: StoreReader,
    available: Mapping[QueueKey, tuple[int, int] | None],
    recorded: Mapping[QueueKey, Sequence[tuple[int, Fence | None]]],
) -> dict[QueueKey, int]:
    """The first of each queue's ``recorded`` positions whose fence does not match the message before it.

    Queues without such a position are left out. If retention has removed the message before a position, nothing can be
    compared, and nothing is wrong.
    """
    compared = [
        (key, position, fence)
        for key, positions in recorded.items()
        for position, fence in positions
        if fence is not None and (bounds := available[key]) is not None and bounds[0] < position <= bounds[1]
    ]
    replaced: dict[QueueKey, int] = {}
    if not compared:
        return replaced
    found = reader.fences([(*key, position - 1) for key, position, _ in compared])
    for (key, position, fence), now in zip(compared, found, strict=True):
        if now is not None and now != fence:
            replaced.setdefault(key, position)
    return replaced


def report_losses(
    topic: str, queue_id: int, losses: Losses, *, fail: bool, cause: Exception | None = None, option: str = ""
) -> None:
    """With ``fail``, raise ``DataLossError`` or ``TailLostError`` for the first loss; else log a warning for each.

    ``option`` is the one that asks for what is lost, if it is not the query's own progress.
    """
    for kind in losses.kinds:
        where = f"{option and f'Option {option}: '}{_of_store.get()}Topic {topic!r}, queue {queue_id}"
        text = f"{where}: {_what_happened(kind, losses)}"
        if fail:
            raise _error(kind, text, topic, queue_id, losses) from cause
        _logger.warning("%s %s", text, _what_follows(kind, losses))


def report_lost_ends(reader: StoreReader, *, fail: bool) -> None:
    """Report that the store knows of messages after the ends of its log or queues, for a read up to these ends."""
    for warning in lost_end_warnings(reader, fail=fail):
        _logger.warning("%s", warning)


def lost_end_warnings(reader: StoreReader, *, fail: bool) -> list[str]:
    """``report_lost_ends``, but the warnings are returned. Right after the bounds of all queues it takes no time."""
    problems = [f"{_of_store.get()}{reader.path} lacks messages at its end: {one}" for one in reader.lost_ends()]
    if fail and problems:
        raise ConnectorError(f"{problems[0]} Run: commitlog doctor {reader.for_shell}. {_GO_ON}")
    return [f"{problem} Continuing with the remaining messages." for problem in problems]


def _what_happened(kind: Loss, losses: Losses) -> str:
    (start, stop), available = losses.wanted, losses.available
    if available is None:
        return (
            f"wanted offsets from {start} on, available are none. The queue was read before and is not in the store "
            "any more."
        )
    there = f"available are [{available[0]}, {available[1]})"
    if kind is Loss.HEAD:
        return (
            f"wanted offsets [{start}, {stop}), {there}. The messages before {available[0]} are no longer in the "
            "store; its retention has most likely deleted them before they were read."
        )
    if kind is Loss.TAIL:
        return (
            f"this query has planned up to offset {stop}, but the queue now ends at {available[1]} ({there}). The "
            "store has lost the end of this queue: it was restored from an older copy, or recovery cut off what a "
            "crash had left unwritten."
        )
    position = losses.replaced or 0
    return (
        f"the message at offset {position - 1} is not the one that this query has recorded there ({there}). The store "
        f"has lost the end of this queue and has grown again since, so messages before offset {position} may be there "
        "that were never read."
    )


def _what_follows(kind: Loss, losses: Losses) -> str:
    if kind is Loss.QUEUE:
        return "Continuing without it; should it come back, it is read from its start."
    return f"Continuing at offset {losses.left[1] if kind is Loss.TAIL else losses.left[0]}."


def _error(kind: Loss, text: str, topic: str, queue_id: int, losses: Losses) -> DataLossError | TailLostError:
    wanted, available = losses.wanted, losses.available
    if available is None:
        wanted = (wanted[0], wanted[0])
    if available is None or kind is Loss.HEAD:
        return DataLossError(f"{text} {_GO_ON}", topic=topic, queue_id=queue_id, wanted=wanted, available=available)
    position = wanted[1] if kind is Loss.TAIL else losses.replaced or 0
    return TailLostError(f"{text} {_RESTORE}", topic=topic, queue_id=queue_id, position=position, available=available)


def file_missing(missing: FileMissing, wanted: tuple[int, int], *, fail: bool) -> int:
    """Report that a file is missing, so that ``wanted`` has a hole; the offset after the hole."""
    begin, stop = max(missing.start, wanted[0]), wanted[1]
    resume = min(max(missing.stop, begin + 1), stop)
    reason, advice = f"{missing.path} is missing although {missing.why}.", f"{missing.advice}."
    if isinstance(missing, HistoryGap):
        reason = f"the archive {missing.archive} ends before them and {missing.store} begins after them."
        advice = "Retention deleted them before they were archived."
    text = (
        f"{_of_store.get()}Topic {missing.topic!r}, queue {missing.queue_id}: of the wanted offsets "
        f"[{wanted[0]}, {stop}), [{begin}, {resume}) cannot be read, since {reason}"
    )
    if fail:
        raise DataLossError(
            f"{text} {advice} {_GO_ON} Reading then continues at offset {resume}.",
            topic=missing.topic,
            queue_id=missing.queue_id,
            wanted=wanted,
            available=(resume, stop),
        ) from missing
    _logger.warning("%s Continuing at offset %d.", text, resume)
    return resume
