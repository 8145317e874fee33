"""Command about delayed messages: ``schedule ls``."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

import typer

from commitlog_store.cli.options import (
    AS_TABLE,
    LOOK,
    CommitLogDir,
    OutputChoice,
    OutputFormat,
    StorePath,
    ZoneOption,
    examples,
)
from commitlog_store.cli.row_output import print_rows
from commitlog_store.cli.storage_options import NO_STORAGE, Storage, takes_storage
from commitlog_store.cli.times import Clock, parse_zone
from commitlog_store.delayed.levels import DelayLevel
from commitlog_store.queries.texts import duration_text

_COLUMNS = ("level", "delaySeconds", "waiting", "nextDue", "overdueMs", "oldest", "position", "minOffset", "maxOffset")


def register(app: typer.Typer) -> None:
    """Add the group ``schedule`` and its command."""
    schedule = typer.Typer(help="Delayed messages.")
    schedule.callback()(_schedule)
    schedule.command("ls", epilog=examples("commitlog schedule ls /data/store", "commitlog schedule ls . --json"))(
        schedule_list
    )
    app.add_typer(schedule, name="schedule", rich_help_panel=LOOK)


def _schedule() -> None:
    """Delayed messages, which wait for their time of delivery."""


@takes_storage
def schedule_list(
    path: StorePath,
    commit_log: CommitLogDir = None,
    tz: ZoneOption = "UTC",
    output: OutputChoice = AS_TABLE,
    storage: Storage = NO_STORAGE,
) -> None:
    """The delay levels of a store: the messages that wait, the next time of delivery, and the position. Takes no lock.

    The row of the level timer (0 in JSON and CSV) has the messages with any time of delivery: nextDue is their earliest
    one, and position the first message that waits, in rmq_sys_wheel_timer; later ones may be delivered.

    nextDue is the first message's time of delivery, and oldest its store time. A line below the table names each level
    whose first message was due more than 15 seconds ago (overdueMs): it is not being delivered. position is the queue
    offset, in SCHEDULE_TOPIC_XXXX, of the next message to deliver. A live broker notes positions every 10 seconds.
    """
    clock, form = Clock(parse_zone(tz)), output.form()
    with storage.open(path, store_path_commit_log=commit_log) as reader:
        levels = reader.delay_levels()
    now_ms = time.time_ns() // 1_000_000
    is_table = form is OutputFormat.TABLE
    columns = [name for name in _COLUMNS if not (is_table and name == "overdueMs")]
    print_rows(columns, _rows(levels, now_ms, clock, form), form)
    for level in levels if is_table else []:
        if late := level.overdue_ms(now_ms):
            what = f"Level {level.level} is" if level.level else "Timer messages are"
            print(f"{what} overdue by {duration_text(late)}.")


def _rows(levels: Iterable[DelayLevel], now_ms: int, clock: Clock, form: OutputFormat) -> Iterator[dict[str, Any]]:
    shown = clock.short if form is OutputFormat.TABLE else clock.iso
    for level in levels:
        yield {
            "level": level.level or ("timer" if form is OutputFormat.TABLE else 0),
            "delaySeconds": None if level.delay is None else level.delay // 1000,
            "waiting": level.waiting,
            "nextDue": shown(level.next_due),
            "oldest": shown(level.oldest),
            "overdueMs": None if level.waiting and level.next_due is None else level.overdue_ms(now_ms),
            "position": level.position,
            "minOffset": level.min_offset,
            "maxOffset": level.max_offset,
        }
