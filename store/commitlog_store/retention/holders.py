"""Readers that still need old messages: delayed messages before their delivery, consumer groups, Spark checkpoints.

Each names queue positions; the first message after them is where it holds the log. A queue of a named topic that has no
position was not read yet, and holds from its first message on.

==================  ===============================================  ===============================================
holder              where its positions are                          the form
==================  ===============================================  ===============================================
delayed messages    ``config/delayOffset.json``, the ledger of       ``{"offsetTable":{level:offset}}``
                    batches; for the owner, the service that
                    delivers them
a consumer group    ``config/consumerOffset.json``                   ``{"offsetTable":{"topic@group":{queue:offset}}}``
a Spark checkpoint  ``offsets/<n>`` of the last file in ``commits``  a line for each source; ours is
                                                                     ``{"version":1,"offsets":{topic:{queue:offset}}}``,
                                                                     or packed ``{"version":3,"packed":...}``
==================  ===============================================  ===============================================
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from commitlog_store.batch.frames import StoredFrames
from commitlog_store.batch.ledger import delivered_offsets, last_batch, load_ledger
from commitlog_store.batch_id import TIMER_APPLICATION
from commitlog_store.config_files.json_file import LARGEST_CONFIG, JsonConfigFile
from commitlog_store.delayed.levels import DelayOffsetFile, delay_hold, start_position
from commitlog_store.delayed.timer_listing import read_check, timer_bounds, waiting_timers
from commitlog_store.delayed.timer_waiting import TIMER_HOLDER
from commitlog_store.engine.subject import Hold
from commitlog_store.errors import FileMissing, InvalidValue, OffsetOutOfRange, QueueNotFound, TopicNotFound
from commitlog_store.files import disk
from commitlog_store.files.error_paths import failed_reads
from commitlog_store.format.consume_queue_unit import UNIT_DTYPE
from commitlog_store.format.message_rules import SCHEDULE_TOPIC
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.packed_json import unpack_json
from commitlog_store.paths import CONFIG, CONSUMER_OFFSET_CONFIG, POSITIONS_GROUP, POSITIONS_TOPIC, is_system_group
from commitlog_store.queue.expired_units import sound_at_or_before
from commitlog_store.queue.fence import Fence, fence_at
from commitlog_store.queue.views import CatalogView, QueueView

_COMMITS, _OFFSETS = "commits", "offsets"
_PACKED_VERSION = 3
_NUMBER = re.compile(r"[0-9]{1,19}")


@dataclass(frozen=True, kw_only=True)
class ReadPositions:
    """The next queue offsets that ``holder`` reads, by topic and queue id, and all topics that it reads.

    ``fences``: the messages before these, for a reader that stops where the store has lost its end; None for one that
    continues at the end, as consumers do.
    """

    holder: str
    offsets: Mapping[tuple[str, int], int]
    topics: frozenset[str]
    fences: Mapping[tuple[str, int], Fence] | None = None


def hold_of(
    positions: ReadPositions, catalog: CatalogView, commit_log: CommitLog, *, at_most_ms: int | None
) -> Hold | None:
    """Where a reader holds the log; None when it has read all its queues.

    A queue that has lost messages that were read is held from its first message on: what is in their places was not.
    """
    places = []
    for topic in sorted(positions.topics):
        for queue_id in _queue_ids(catalog, topic):
            offset = positions.offsets.get((topic, queue_id), 0)
            if positions.fences is not None:
                fence = positions.fences.get((topic, queue_id))
                offset = 0 if _has_lost_tail(catalog, commit_log, topic, queue_id, offset, fence) else offset
            place = _first_unread(catalog, topic, queue_id, offset)
            if place is not None:
                places.append(place)
    if not places:
        return None
    return Hold(from_offset=min(places), holder=positions.holder, at_most_ms=at_most_ms)


def _has_lost_tail(
    catalog: CatalogView, commit_log: CommitLog, topic: str, queue_id: int, position: int, fence: Fence | None
) -> bool:
    """Whether a queue ends before a position, or has another message before it than the one that was read."""
    try:
        start, stop = catalog.bounds(topic, queue_id)
        if position > stop or fence is None or position <= start:
            return position > stop
        unit = catalog.queue(topic, queue_id).unit(position - 1)
    except (QueueNotFound, TopicNotFound):
        return False
    found = None if unit is None else fence_at(commit_log, unit[0])
    return found is not None and found != fence


def _queue_ids(catalog: CatalogView, topic: str) -> list[int]:
    try:
        return catalog.queue_ids(topic)
    except TopicNotFound:
        return []


def _first_unread(catalog: CatalogView, topic: str, queue_id: int, offset: int) -> int | None:
    try:
        start, stop = catalog.bounds(topic, queue_id)
        if max(offset, start) >= stop:
            return None
        read = partial(_units, catalog.queue(topic, queue_id))
        # A damaged unit would hold less than it should.
        found = sound_at_or_before(read, max(offset, start), start, stop)
        return 0 if found is None else found[1]
    except (QueueNotFound, TopicNotFound):
        return None


def _units(queue: QueueView, start: int, stop: int) -> npt.NDArray[Any]:
    """Units as far as files hold them."""
    parts = [np.zeros(0, UNIT_DTYPE)]
    with contextlib.suppress(FileMissing, OffsetOutOfRange):
        parts.extend(queue.units(start, stop, check=False))
    return np.concatenate(parts)


def delayed_messages(store_path: str, catalog: CatalogView, log: CommitLog) -> Iterator[Hold]:
    """Holds of the delayed messages of each level that are not delivered yet, as they show from outside.

    By the larger one of ledger and file, as ``StoreReader.delay_levels``. The owner knows better: a position after the
    queue's end covers no message that came later. ``CorruptConfig``, ``ReadFailed``.
    """
    queue_ids = _queue_ids(catalog, SCHEDULE_TOPIC)
    check = read_check(store_path, catalog)
    has_timers = timer_bounds(catalog) is not None
    if not queue_ids and not has_timers:
        return
    frames = load_ledger(store_path, StoredFrames(log, catalog))
    if has_timers:
        last = last_batch(frames, TIMER_APPLICATION)
        waiting = waiting_timers(store_path, catalog, log, check, last).physical_offsets
        if len(waiting):
            yield Hold(from_offset=int(waiting[0]), holder=TIMER_HOLDER)
    ledger = delivered_offsets(frames)
    file = DelayOffsetFile(store_path).read()
    for queue_id in queue_ids:
        try:
            position = start_position(queue_id + 1, ledger, file, *catalog.bounds(SCHEDULE_TOPIC, queue_id))
        except (QueueNotFound, TopicNotFound):
            continue
        place = _first_unread(catalog, SCHEDULE_TOPIC, queue_id, position)
        if place is not None:
            yield delay_hold(queue_id + 1, place)


def unapplied_positions(store_path: str, catalog: CatalogView) -> Hold | None:
    """The hold of positions that were committed with batches, until ``config/consumerOffset.json`` has them.

    ``CorruptConfig``, ``ReadFailed``.
    """
    if not _queue_ids(catalog, POSITIONS_TOPIC):
        return None
    file = JsonConfigFile(os.path.join(store_path, CONFIG, CONSUMER_OFFSET_CONFIG), "The positions of consumer groups")
    table = _object(file.read().get("offsetTable", {}), file)
    queues = _object(table.get(f"{POSITIONS_TOPIC}@{POSITIONS_GROUP}", {}), file)
    place = _first_unread(catalog, POSITIONS_TOPIC, 0, max(_offset(queues.get("0", 0), file), 0))
    if place is None:
        return None
    return Hold(from_offset=place, holder=f"positions of groups that are not in {CONSUMER_OFFSET_CONFIG} yet")


def positions_of(store_path: str, holder: str) -> ReadPositions:
    """The positions of a Spark checkpoint (a directory), or of a consumer group of the store.

    ``InvalidValue`` for an unknown group, or a directory that is not a checkpoint of this package's source;
    ``CorruptConfig``, ``ReadFailed``.
    """
    directory = holder.removeprefix("file://") if holder.startswith("file:///") else holder
    if os.sep in directory or disk.is_directory(directory):
        return _of_checkpoint(directory)
    return _of_group(store_path, holder)


def _of_group(store_path: str, group: str) -> ReadPositions:
    file = JsonConfigFile(os.path.join(store_path, CONFIG, CONSUMER_OFFSET_CONFIG), "The positions of consumer groups")
    offsets: dict[tuple[str, int], int] = {}
    topics, known = set(), set()
    for key, queues in _object(file.read().get("offsetTable", {}), file).items():
        topic, _, name = key.partition("@")
        known.add(name)
        if name == group:
            topics.add(topic)
            for queue, offset in _object(queues, file).items():
                offsets[topic, _offset(queue, file)] = _offset(offset, file)
    if not topics:
        raise InvalidValue(
            f"{group!r} is neither a Spark checkpoint directory nor a consumer group of {file.path}, which has "
            f"{', '.join(sorted(one for one in known if not is_system_group(one))[:10]) or 'none'}."
        )
    return ReadPositions(holder=f"consumer group {group}", offsets=offsets, topics=frozenset(topics))


def _of_checkpoint(directory: str) -> ReadPositions:
    committed = max(_batches(os.path.join(directory, _COMMITS)), default=None)
    planned = _batches(os.path.join(directory, _OFFSETS))
    batch = committed if committed is not None else min(planned, default=None)
    if batch is None:
        raise InvalidValue(f"{directory} is not the checkpoint of a streaming query that has begun: it has no offsets.")
    path = os.path.join(directory, _OFFSETS, str(batch))
    offsets: dict[tuple[str, int], int] = {}
    fences: dict[tuple[str, int], Fence] = {}
    topics: set[str] = set()
    for value in _our_offsets(_lines(path)):
        # Before the first commit, the batch is read again from where it began.
        read = value["offsets"] if committed is not None else value.get("from", {})
        topics.update(value["offsets"])
        offsets.update({(topic, int(queue)): at for topic, queues in read.items() for queue, at in queues.items()})
        if committed is not None:
            fences.update(_fences(value))
    if not topics:
        raise InvalidValue(f"{path} holds no offset of the source 'commitlog': this checkpoint reads no store of ours.")
    return ReadPositions(holder=f"checkpoint {directory}", offsets=offsets, topics=frozenset(topics), fences=fences)


def _batches(directory: str) -> list[int]:
    try:
        return [int(name) for name in disk.list_names(directory) if _NUMBER.fullmatch(name)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _lines(path: str) -> list[str]:
    with failed_reads(path):
        return disk.read_file(path, LARGEST_CONFIG).decode("utf-8", "replace").splitlines()


def _our_offsets(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The offsets among a file's lines that this package's source wrote."""
    for line in lines:
        try:
            value = json.loads(line)
            if isinstance(value, dict) and value.get("version") == _PACKED_VERSION:
                value = unpack_json(value.get("packed"))
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and value.get("version") == 1 and _is_table(value.get("offsets")):
            if "from" in value and not _is_table(value["from"]):
                continue
            yield value


def _fences(value: dict[str, Any]) -> dict[tuple[str, int], Fence]:
    """The fences in an offset of this package's source."""
    table = value.get("fence")
    return {
        (topic, int(queue)): Fence(*fence)
        for topic, queues in (table.items() if isinstance(table, dict) else ())
        if isinstance(queues, dict)
        for queue, fence in queues.items()
        if _NUMBER.fullmatch(queue) and isinstance(fence, list) and len(fence) == len(Fence._fields)
    }


def _is_table(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(queues, dict)
        and all(_NUMBER.fullmatch(queue) and isinstance(at, int) for queue, at in queues.items())
        for queues in value.values()
    )


def _object(value: object, file: JsonConfigFile) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise file.corrupt(0, "an object of positions", repr(value)[:80])
    return value


def _offset(value: object, file: JsonConfigFile) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return int(value)
    raise file.corrupt(0, "a queue id or an offset", repr(value)[:80])
