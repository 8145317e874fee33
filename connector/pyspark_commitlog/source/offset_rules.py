"""Offset rules: resolves ``startingOffsets``, ``endingOffsets`` and timestamps to queue offsets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from commitlog_store import QueueInfo, StoreReader
from commitlog_store.errors import CommitLogError, CorruptConsumeQueue, CorruptRecord, FileMissing
from pyspark_commitlog import loss
from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.options.read import SourceOptions, rule_option
from pyspark_commitlog.options.subscription import QueueKey
from pyspark_commitlog.options.values import EARLIEST, LATEST, OffsetRule

_logger = logging.getLogger(__name__)


def resolve_rule(
    reader: StoreReader,
    queues: Iterable[QueueInfo],
    rule: OffsetRule,
    options: SourceOptions,
    *,
    which: Literal["starting", "ending"],
    warn: Callable[[str], None] = _logger.warning,
) -> dict[QueueKey, int]:
    """The offset of each queue that ``rule`` means, given the queues' bounds as they are now.

    ``OptionError`` for a named queue that does not exist, an offset after its end, or, if the options say so, a start
    by time after its last message, and for a group without a position; ``DataLossError`` for an offset before its
    start. With failOnDataLoss=false the wrong offsets are moved to the nearest existing offset, with a warning.
    ``warn`` gets the warning of queues without a position of the group.
    """
    option = rule_option(which, rule)
    bounds = {(info.topic, info.queue_id): info for info in queues}
    for topic, queue_id in (*rule.named, *rule.times):
        if (topic, queue_id) not in bounds:
            raise OptionError(
                f"Option {option} names queue {queue_id} of topic {topic!r}, which is not in the store {options.path}.",
                option=option,
            )
    if rule.group:
        return _of_group(reader, bounds, rule.group, options, warn)
    times = {key: time_ms for key in bounds if (time_ms := rule.time_of(key)) is not None}
    by_time = dict(zip(times, reader.offsets_by_time([(bounds[key], at) for key, at in times.items()]), strict=True))
    found: dict[QueueKey, int] = {}
    for key, info in bounds.items():
        if key not in times:
            found[key] = _resolve(info, rule.named.get(key, rule.default), options, option)
            continue
        time_ms = times[key]
        found[key] = _offset_by_time(reader, info, time_ms, by_time[key], fail=options.fail_on_data_loss)
        if which == "starting" and options.fails_without_match and found[key] >= info.max_offset:
            raise OptionError(
                f"Option {option}: topic {info.topic!r}, queue {info.queue_id} has no message stored at {time_ms} ms "
                "or later. To start at the queue's end, set the option startingOffsetsByTimestampStrategy to latest.",
                option=option,
                value=str(time_ms),
            )
    return found


def _of_group(
    reader: StoreReader,
    bounds: Mapping[QueueKey, QueueInfo],
    group: str,
    options: SourceOptions,
    warn: Callable[[str], None],
) -> dict[QueueKey, int]:
    """The positions of a consumer group; queues without one start as startingGroupStrategy says."""
    committed = reader.group_offsets(group)
    if not bounds and options.store is not None:
        return {}  # one of several stores, without the topics that are read: the group never had to do with it
    if not committed:
        raise OptionError(
            f"Option startingGroup names group {group!r}, which has no positions in the store {options.path}. "
            "'commitlog groups ls' lists the groups that have some.",
            option="startingGroup",
            value=group,
        )
    if without := [key for key in bounds if key not in committed]:
        of_store = f"Store {options.store!r}: " if options.store else ""
        which = "first" if options.start_without_position == EARLIEST else "next"
        warn(
            f"{of_store}Group {group!r} has no position in {len(without)} of the {len(bounds)} queues that are read; "
            f"they start at their {which} message."
        )
    return {
        key: _resolve(info, committed.get(key, options.start_without_position), options, "startingGroup")
        for key, info in bounds.items()
    }


def _offset_by_time(
    reader: StoreReader, info: QueueInfo, timestamp_ms: int, found: int | CommitLogError, *, fail: bool
) -> int:
    """The first message stored at or after the time; if it may be in a missing file, the first one that exists."""
    if isinstance(found, FileMissing):
        loss.file_missing(found, (info.min_offset, info.max_offset), fail=fail)
        return reader.offset_by_time(info.topic, info.queue_id, timestamp_ms, bounds=info, on_damage="skip")
    if isinstance(found, CorruptRecord | CorruptConsumeQueue):
        raise found.advised("Spark takes it with the option corruptRecordMode=skip.") from found.__cause__
    if isinstance(found, CommitLogError):
        raise found
    return found


def _resolve(info: QueueInfo, wanted: int, options: SourceOptions, option: str) -> int:
    if wanted == EARLIEST:
        return info.min_offset
    if wanted == LATEST:
        return info.max_offset
    if wanted < info.min_offset:
        losses = loss.find_losses((wanted, info.max_offset), (info.min_offset, info.max_offset))
        loss.report_losses(info.topic, info.queue_id, losses, fail=options.fail_on_data_loss, option=option)
        return losses.left[0]
    if wanted > info.max_offset:
        text = (
            f"Option {option} asks for offset {wanted} of topic {info.topic!r}, queue {info.queue_id}; available are "
            f"[{info.min_offset}, {info.max_offset})."
        )
        if options.fail_on_data_loss:
            raise OptionError(text, option=option, value=str(wanted))
        _logger.warning("%s Taking %d.", text, info.max_offset)
        return info.max_offset
    return wanted
