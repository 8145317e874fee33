"""``commitlog groups``: lists consumer groups and their lag, and sets positions of a group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from itertools import groupby

import typer
from rich.table import Table
from rich.text import Text

from commitlog.cli.console import print_table
from commitlog.cli.open_reader import OnDamage
from commitlog.cli.options import OutputFormat
from commitlog.cli.render import printable_text
from commitlog.cli.row_output import print_rows
from commitlog.cli.times import parse_time
from commitlog.errors import CommitLogError, InvalidValue
from commitlog.groups.commit import owned_config, set_positions
from commitlog.groups.positions import GroupPosition, committed_offsets
from commitlog.paths import RETRY_TOPIC_PREFIX, validate_group
from commitlog.reader import QueueInfo, StoreReader

__all__ = ["Target", "print_groups", "print_lag", "print_moves", "reset_group"]

_GROUP_COLUMNS = (
    "group", "topics", "queues", "lag", "lost", "lagMs", "oldestWaitingTimestamp", "retryMessages", "deadLetters",
)  # fmt: skip
_LAG_COLUMNS = (
    "group", "topic", "queueId", "committedOffset", "minOffset", "maxOffset", "lag", "lost", "lagMs",
    "oldestWaitingTimestamp", "lastConsumedTimestamp", "retryMessages", "deadLetters", "error",
)  # fmt: skip
_MOVE_COLUMNS = ("group", "topic", "queueId", "from", "to", "minOffset", "maxOffset")
_LARGEST_OFFSET_DIGITS = 18

_Row = dict[str, object]


def print_groups(positions: Iterable[GroupPosition], zone: tzinfo, form: OutputFormat) -> None:
    """Print a row for each group."""
    _print(_GROUP_COLUMNS, [_summary(name, list(rows), zone) for name, rows in _by_group(positions)], form)


def print_lag(positions: Iterable[GroupPosition], zone: tzinfo, form: OutputFormat) -> None:
    """Print a row for each queue of each group."""
    _print(_LAG_COLUMNS, [_row(one, zone) for one in positions], form)


def print_moves(moves: Iterable[Move], form: OutputFormat) -> None:
    """Print the positions of a reset, old and new."""
    rows: list[_Row] = [
        dict(
            zip(
                _MOVE_COLUMNS,
                (one.group, one.topic, one.queue_id, one.before, one.after, one.min_offset, one.max_offset),
                strict=True,
            )
        )
        for one in moves
    ]
    _print(_MOVE_COLUMNS, rows, form)


def _print(columns: Sequence[str], rows: Sequence[_Row], form: OutputFormat) -> None:
    if form is not OutputFormat.TABLE:
        print_rows(columns, iter(rows), form)
        return
    table = Table(box=None, pad_edge=False)
    shown = [name for name in columns if name != "error" or any(row[name] for row in rows)]
    for name in shown:
        numbers = any(isinstance(row[name], int) for row in rows)
        table.add_column(name, justify="right" if numbers else "left")
    for row in rows:
        table.add_row(*(Text("-" if row[name] is None else printable_text(str(row[name]))) for name in shown))
    print_table(table)


def _by_group(positions: Iterable[GroupPosition]) -> list[tuple[str, list[GroupPosition]]]:
    ordered = sorted(positions, key=lambda one: (one.group, one.topic, one.queue_id))
    return [(name, list(rows)) for name, rows in groupby(ordered, key=lambda one: one.group)]


def _summary(name: str, rows: Sequence[GroupPosition], zone: tzinfo) -> _Row:
    waiting = [one.oldest_waiting_timestamp for one in rows if one.oldest_waiting_timestamp is not None]
    values = (
        name,
        len({one.topic for one in rows}),
        len(rows),
        sum(one.lag or 0 for one in rows),
        sum(one.lost or 0 for one in rows),
        max((one.lag_ms for one in rows if one.lag_ms is not None), default=None),
        _time(min(waiting, default=None), zone),
        rows[0].retry_messages,
        rows[0].dead_letters,
    )
    return dict(zip(_GROUP_COLUMNS, values, strict=True))


def _row(one: GroupPosition, zone: tzinfo) -> _Row:
    values = (
        one.group, one.topic, one.queue_id, one.committed_offset, one.min_offset, one.max_offset, one.lag, one.lost,
        one.lag_ms, _time(one.oldest_waiting_timestamp, zone), _time(one.last_consumed_timestamp, zone),
        one.retry_messages, one.dead_letters, one.error or None,
    )  # fmt: skip
    return dict(zip(_LAG_COLUMNS, values, strict=True))


def _time(milliseconds: int | None, zone: tzinfo) -> str | None:
    if milliseconds is None:
        return None
    try:
        return datetime.fromtimestamp(milliseconds / 1000, zone).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return str(milliseconds)  # a time that no calendar has


@dataclass(frozen=True)
class Target:
    """Where a group is moved: to the first message or the end, to a time, or to a queue offset."""

    end: str = ""
    timestamp_ms: int | None = None
    offset: int = 0

    @classmethod
    def parse(cls, text: str, topic: str | None, zone: tzinfo) -> Target:
        """``earliest``, ``latest``, a queue offset (for one topic), or a time. ``BadParameter``."""
        if text in ("earliest", "latest"):
            return cls(end=text)
        if text.isascii() and text.isdigit():
            if topic is None:
                raise typer.BadParameter("A queue offset is one of a topic; give --topic.", param_hint="--to")
            if len(text) > _LARGEST_OFFSET_DIGITS:
                raise typer.BadParameter(f"{text} is beyond all queue offsets.", param_hint="--to")
            return cls(offset=int(text))
        return cls(timestamp_ms=parse_time(text, zone))

    def in_queue(self, reader: StoreReader, topic: str, queue_id: int) -> tuple[int, int, int]:
        """The queue offset, and the queue's bounds."""

        def look() -> tuple[int, QueueInfo]:
            info = reader.queue_info(topic, queue_id)
            if self.end:
                return info.min_offset if self.end == "earliest" else info.max_offset, info
            if self.timestamp_ms is None:
                return self.offset, info
            return reader.offset_by_time(topic, queue_id, self.timestamp_ms, bounds=info), info

        found, info = reader.consistently(look, one_moment=False)
        return min(max(found, info.min_offset), info.max_offset), info.min_offset, info.max_offset


@dataclass(frozen=True)
class Move:
    """One queue of a reset. ``before`` is None without a position."""

    group: str
    topic: str
    queue_id: int
    before: int | None
    after: int
    min_offset: int
    max_offset: int


def reset_group(
    path: str,
    group: str,
    topic: str | None,
    queue_id: int | None,
    target: Target,
    lock_timeout_s: float | None,
    on_damage: OnDamage = OnDamage.RAISE,
    commit_log: str | None = None,
) -> list[Move]:
    """The new positions of a group; with ``lock_timeout_s`` they are set, too, by an owner.

    ``InvalidValue`` if there is none; the errors of ``owned_config``, ``StoreReader`` and ``ConsumerOffsets.flush``.
    """
    validate_group(group)
    if lock_timeout_s is None:
        return _moves(path, group, topic, queue_id, target, on_damage, commit_log)
    with owned_config(path, lock_timeout_s=lock_timeout_s) as owned:
        moves = _moves(owned, group, topic, queue_id, target, on_damage, commit_log)
        set_positions(owned, group, {(one.topic, one.queue_id): one.after for one in moves})
        return moves


def _moves(
    path: str,
    group: str,
    topic: str | None,
    queue_id: int | None,
    target: Target,
    on_damage: OnDamage,
    commit_log: str | None,
) -> list[Move]:
    with StoreReader.open(path, store_path_commit_log=commit_log, on_damage=on_damage.value) as reader:
        offsets = committed_offsets(reader)
        known = [name for name in offsets.topics(group) if name != RETRY_TOPIC_PREFIX + group]
        moves = []
        for name in known if topic is None else [topic]:
            before = offsets.get(group, name)
            moves += [
                Move(group, name, one, before.get(one), *target.in_queue(reader, name, one))
                for one in _queue_ids(reader, name, required=topic is not None)
                if queue_id in (None, one)
            ]
    if not moves:
        raise InvalidValue(
            f"Group {group!r} has no position in a queue of {path} that exists; to set the first ones, name a topic "
            f"with --topic. It has positions in: {', '.join(map(repr, offsets.topics(group))) or 'no topic'}."
        )
    return moves


def _queue_ids(reader: StoreReader, topic: str, *, required: bool) -> list[int]:
    try:
        return reader.queue_ids(topic)
    except CommitLogError:
        if required:
            raise
        return []  # a deleted topic, in which the group still has a position
