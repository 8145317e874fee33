"""Delay levels: how far each was delivered, in ``config/delayOffset.json``, and what waits, as a reader sees it.

The position of a level is the queue offset of the next message to deliver. Two places say it. The ledger of batches is
a part of the log, and right for everything that this package delivered. ``config/delayOffset.json`` is a broker's own,
and follows the ledger here. Both only ever grow, and what lies before either was delivered, so the larger counts.

The file::

    {"offsetTable":{1:12,3:7}}

A level, from 1 on, is the queue before its number of ``SCHEDULE_TOPIC_XXXX``. A broker reads the file when it starts,
and from then on writes it every 10 seconds. Brokers from 5.0 on also write ``dataVersion``, which is kept and raised
here where the file has it.

Source: RocketMQ ``schedule/ScheduleMessageService.java``, ``schedule/DelayOffsetSerializeWrapper.java``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from commitlog_store.config_files.json_file import JsonConfigFile, next_version
from commitlog_store.engine.subject import Hold
from commitlog_store.errors import CorruptRecord, MessageNotFound, TopicNotFound
from commitlog_store.format.consume_queue_unit import LAST_HASH_CODE
from commitlog_store.format.message_rules import SCHEDULE_TOPIC
from commitlog_store.java_numbers import MAX_LONG
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.paths import CONFIG, DELAY_OFFSET_CONFIG
from commitlog_store.queue.views import CatalogView

_NOTED_WITHIN_MS = 15_000
_SUBJECT = "The offsets of delay levels"
_EXPECTED = "an object with offsetTable: levels with offsets of 0 and more"
_TABLE = "offsetTable"
_VERSION = "dataVersion"


@dataclass(frozen=True, kw_only=True)
class DelayLevel:
    """A delay level whose queue exists, or level 0: timer messages, each with a time of its own. Times are ms.

    ``position`` is the queue offset of the next message to deliver, ``waiting`` the number of messages from there on.
    ``next_due`` is when the first of them is due, and ``oldest`` its store time; both are None without any. ``delay``
    is that of the queue's last message; None when the queue is empty. ``next_due`` and ``delay`` are also None where
    the unit has no time: RocketMQ 4 wrote it while it recovered, or it points into ``consumequeue_ext``. Of level 0,
    ``delay`` is None, ``next_due`` is the earliest time, and ``position`` the first message that waits, in the order of
    puts; later ones may be delivered.

    ::

        with StoreReader.open("/data/store") as reader:
            print(sum(level.waiting for level in reader.delay_levels()))
    """

    level: int
    delay: int | None
    waiting: int
    next_due: int | None
    oldest: int | None
    position: int
    min_offset: int
    max_offset: int

    def overdue_ms(self, now_ms: int) -> int:
        """How long ago the first message was due, 0 up to 15 seconds: a live broker notes deliveries every 10 s."""
        late = 0 if self.next_due is None else now_ms - self.next_due
        return late if late > _NOTED_WITHIN_MS else 0


def delay_levels(
    store_path: str, catalog: CatalogView, commit_log: CommitLog, ledger: Mapping[int, int]
) -> list[DelayLevel]:
    """The levels that messages waited at so far; ``ledger`` has their positions there. ``CorruptConfig``, and the
    errors of reading units."""
    file = DelayOffsetFile(store_path).read()
    try:
        ids = catalog.queue_ids(SCHEDULE_TOPIC)
    except TopicNotFound:
        return []
    return [_delay_level(queue_id + 1, catalog, commit_log, ledger, file) for queue_id in ids]


def _delay_level(
    level: int,
    catalog: CatalogView,
    commit_log: CommitLog,
    ledger: Mapping[int, int],
    file: Mapping[int, int],
) -> DelayLevel:
    """The level as it is now. ``ledger`` and ``file`` are the positions of ``start_position``.

    ``CorruptConsumeQueue``, and what reading units raises.
    """
    low, high = catalog.bounds(SCHEDULE_TOPIC, level - 1)
    position = start_position(level, ledger, file, low, high)
    first = _times(catalog, commit_log, level, position) if position < high else None
    last = _times(catalog, commit_log, level, high - 1) if low < high else None
    return DelayLevel(
        level=level,
        delay=None if last is None or last[0] is None or last[1] is None else last[0] - last[1],
        waiting=high - position,
        next_due=None if first is None else first[0],
        oldest=None if first is None else first[1],
        position=position,
        min_offset=low,
        max_offset=high,
    )


def _times(catalog: CatalogView, commit_log: CommitLog, level: int, offset: int) -> tuple[int | None, int | None]:
    """The time of delivery and the store time of a message; None where the unit has none, or the record is damaged."""
    (units,) = catalog.queue(SCHEDULE_TOPIC, level - 1).units(offset, offset + 1, check=False)
    try:
        stored = commit_log.read_without_body(int(units["physical_offset"][0])).store_timestamp
    except (CorruptRecord, MessageNotFound):
        stored = None
    due = int(units["tags_code"][0])
    return due if due > LAST_HASH_CODE else None, stored


def start_position(level: int, ledger: Mapping[int, int], file: Mapping[int, int], low: int, high: int) -> int:
    """Where a level continues whose queue has the offsets ``[low, high)``; 0, as in RocketMQ, for an unknown level.

    A position outside of the queue is moved to its nearer end, as in RocketMQ.
    """
    return min(max(ledger.get(level, 0), file.get(level, 0), low), high)


def delay_hold(level: int, place: int) -> Hold:
    """The hold of a delay level whose first message that waits is at a physical offset."""
    return Hold(from_offset=place, holder=f"delayed messages of level {level} that are not delivered yet")


class _Content(msgspec.Struct):
    offsetTable: dict[int, Annotated[int, msgspec.Meta(ge=0, le=MAX_LONG)]] = {}


class DelayOffsetFile:
    """The file of one store."""

    def __init__(self, store_path: str) -> None:
        path = os.path.join(store_path, CONFIG, DELAY_OFFSET_CONFIG)
        self._file = JsonConfigFile(path, _SUBJECT, _offset_table)

    @property
    def path(self) -> str:
        return self._file.path

    def read(self) -> dict[int, int]:
        """The next offset of each level; empty without a file. ``CorruptConfig``, ``ReadFailed``."""
        return _offset_table(self._file, self._file.read())

    def write(self, offsets: Mapping[int, int]) -> None:
        """Set the offsets of these levels; other levels and members stay. What ``JsonConfigFile.write`` raises."""
        root = self._file.read()
        table = {**_offset_table(self._file, root), **offsets}
        root[_TABLE] = {str(level): offset for level, offset in sorted(table.items())}
        if _VERSION in root:
            root[_VERSION] = next_version(root[_VERSION], self._file)
        self._file.write(root, integer_names=True)


def _offset_table(file: JsonConfigFile, root: dict[str, Any]) -> dict[int, int]:
    """The next offset of each level. ``CorruptConfig``."""
    try:
        # Names of JSON members are texts.
        return msgspec.convert(root, _Content, strict=True, str_keys=True).offsetTable
    except msgspec.ValidationError as error:
        raise file.corrupt(0, _EXPECTED, str(error)) from error


def replace_delay_offsets(store_path: str, root: dict[str, Any], source: str) -> bool:
    """Write a master's offsets as they are, as a slave does; False if they are there.

    ``source`` is the list in an error: ``CorruptConfig`` for an object that no broker writes.
    """
    _offset_table(JsonConfigFile(source, _SUBJECT), root)
    file = JsonConfigFile(os.path.join(store_path, CONFIG, DELAY_OFFSET_CONFIG), _SUBJECT, _offset_table)
    if file.read() == root:
        return False
    file.write(root, integer_names=True)
    return True
