"""``commitlog groups``: lists consumer groups and their lag, and sets positions of a group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, cast

import typer

from commitlog_store.cli.completion import one_of
from commitlog_store.cli.confirm import Changed, DryRun, Yes, do_as_shown
from commitlog_store.cli.exit_codes import wrong_usage
from commitlog_store.cli.fitted_table import Column, print_fitted
from commitlog_store.cli.open_reader import OnDamage, OnDamageOption
from commitlog_store.cli.option_groups import takes_groups
from commitlog_store.cli.options import (
    AS_TABLE,
    GROUPS,
    AllOption,
    CommitLogDir,
    FullOption,
    Group,
    LockTimeout,
    OptionalGroup,
    OutputChoice,
    OutputFormat,
    QueueOption,
    StorePath,
    ZoneOption,
    examples,
    topic_option,
)
from commitlog_store.cli.owner_config import connect_to, is_address
from commitlog_store.cli.render import camel_members, say, says, terminal_width
from commitlog_store.cli.row_output import print_hidden, print_rows
from commitlog_store.cli.storage_options import NO_STORAGE, Storage, takes_storage
from commitlog_store.cli.times import Clock, parse_zone
from commitlog_store.columnar.columns import nearest_name
from commitlog_store.errors import InvalidValue
from commitlog_store.groups.commit import owned_config, set_positions
from commitlog_store.groups.positions import GroupPosition
from commitlog_store.paths import is_system_group, validate_group
from commitlog_store.queries.group_reset import Move, Target, group_moves, move_words
from commitlog_store.queries.group_summary import GroupSummary, group_summaries
from commitlog_store.queries.texts import duration_text, printable_text
from commitlog_store.reader import StoreReader


def register(app: typer.Typer) -> None:
    """Add the group ``groups`` and its commands."""
    groups = typer.Typer(help="Consumer groups: their positions, and how far behind they are.")
    groups.command("ls", epilog=examples("commitlog groups ls /data/store"))(groups_list)
    groups.command(
        "lag", epilog=examples("commitlog groups lag /data/store billing", "commitlog groups lag /data/store --json")
    )(groups_lag)
    groups.command(
        "reset",
        epilog=examples(
            "commitlog groups reset /data/store billing --to earliest --dry-run",
            "commitlog groups reset /data/store billing --topic orders --to 2026-11-21T08:00 --yes",
        ),
    )(groups_reset)
    app.add_typer(groups, name="groups", rich_help_panel=GROUPS)


@takes_storage
def groups_list(
    path: StorePath,
    commit_log: CommitLogDir = None,
    show_all: AllOption = False,
    tz: ZoneOption = "UTC",
    full: FullOption = False,
    output: OutputChoice = AS_TABLE,
    storage: Storage = NO_STORAGE,
) -> None:
    """A row for each consumer group: what waits for it, in all its topics. Takes no lock."""
    clock, form = Clock(parse_zone(tz)), output.form()
    with storage.open(path, store_path_commit_log=commit_log) as reader:
        rows = reader.groups()
    shown = [row for row in rows if show_all or not is_system_group(row.group)]
    print_groups(shown, clock, form, full=full)
    _print_hidden(rows, shown, form)


def _print_hidden(rows: Sequence[GroupPosition], shown: Sequence[GroupPosition], form: OutputFormat) -> None:
    if form is OutputFormat.TABLE:
        print_hidden(len({row.group for row in rows} - {row.group for row in shown}), "group")


@takes_storage
def groups_lag(
    path: StorePath,
    commit_log: CommitLogDir = None,
    group: OptionalGroup = None,
    show_all: AllOption = False,
    tz: ZoneOption = "UTC",
    full: FullOption = False,
    output: OutputChoice = AS_TABLE,
    storage: Storage = NO_STORAGE,
) -> None:
    """A row for each queue of each topic that a group consumes: its position and what waits. Takes no lock.

    lag is the number of waiting messages, behind (lagMs in JSON and CSV) how long the oldest of them has waited. lost
    is the number of messages that were deleted before the group consumed them. Exit code 1 for a group without
    positions.
    """
    clock, form = Clock(parse_zone(tz)), output.form()
    with storage.open(path, store_path_commit_log=commit_log) as reader:
        rows = reader.groups(group)
        if group is not None and not rows:
            near = nearest_name(group, {row.group for row in reader.groups()})
            hint = f" Did you mean {near!r}?" if near else ""
            say(f"The store at {path} has no positions of group {group!r}.{hint}")
            raise typer.Exit(1)
    shown = [row for row in rows if group or show_all or not is_system_group(row.group)]
    print_lag(shown, clock, form, full=full)
    _print_hidden(rows, shown, form)


@takes_groups
def groups_reset(
    path: StorePath,
    group: Group,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="WHERE",
            help="earliest, latest, a time (ISO 8601, 2h), or a queue offset.",
            autocompletion=one_of("earliest", "latest"),
        ),
    ],
    commit_log: CommitLogDir = None,
    topic: Annotated[str | None, topic_option("Only this topic; default: all but the retry topic.")] = None,
    queue: QueueOption = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    lock_timeout: LockTimeout = 0.0,
    on_damage: OnDamageOption = OnDamage.RAISE,
    tz: ZoneOption = "UTC",
    output: OutputChoice = AS_TABLE,
) -> None:
    """Move a group to another position. It shows the positions, what is skipped, and asks.

    A time moves it to the first message that was stored then or later; digits alone are a queue offset, for which
    --topic is needed. A position outside of a queue becomes its nearest end. With --topic, a group needs no position
    yet.

    Setting them takes the store's lock, so no broker may run: it would overwrite the positions. At the address of a
    server, the server sets them, for a group that has no open consumers there. The retry topic and the
    dead letters stay where they are, unless --topic names one. Exit code 1 if there is no queue to move in, and without
    a terminal and --yes.
    """
    form = output.form()
    with wrong_usage("--to"):
        target = Target.parse(to, topic, parse_zone(tz), option="--topic")
    for_program = form is not OutputFormat.TABLE
    reset = _Reset(path, group, topic, queue, target, on_damage, commit_log)

    def show() -> list[Move]:
        moves = reset.look()
        print_moves(moves, form)
        for words in [] if for_program else move_words(moves):
            print(printable_text(words))
        return moves

    def do(shown: list[Move] | None) -> None:
        moves = reset.set(lock_timeout, shown)
        if shown is None:
            print_moves(moves, form)
        else:
            say(f"Group {group!r} has these positions now.")

    with says(InvalidValue):
        do_as_shown(show, "Set these positions?", do, yes=yes, dry_run=dry_run, for_program=for_program)


_GROUP_COLUMNS = (
    "group", "isSystem", "topics", "queues", "lag", "lost", "lagMs", "oldestWaitingTimestamp", "retryMessages",
    "deadLetters",
)  # fmt: skip
_LAG_COLUMNS = (
    "group", "topic", "queueId", "committedOffset", "minOffset", "maxOffset", "lag", "lost", "lagMs",
    "oldestWaitingTimestamp", "lastConsumedTimestamp", "retryMessages", "deadLetters", "error",
)  # fmt: skip
_TIMES = ("oldestWaitingTimestamp", "lastConsumedTimestamp")
_MOVE_COLUMNS = ("group", "topic", "queueId", "from", "to", "minOffset", "maxOffset")

_Row = dict[str, object]


def print_groups(positions: Iterable[GroupPosition], clock: Clock, form: OutputFormat, *, full: bool = False) -> None:
    """Print a row for each group."""
    rows = [_row(one, clock, _GROUP_COLUMNS) for one in group_summaries(positions)]
    if form is not OutputFormat.TABLE:
        print_rows(_GROUP_COLUMNS, iter(rows), form)
        return
    columns = [
        Column(heading="group", cells=_cells(rows, "group"), right=False, is_name=True),
        Column(heading="topics", cells=_cells(rows, "topics"), rank=2),
        Column(heading="queues", cells=_cells(rows, "queues"), rank=2),
        *_what_waits(rows),
        Column(heading="retries", cells=_cells(rows, "retryMessages"), rank=1),
        Column(heading="dead", cells=_cells(rows, "deadLetters"), rank=1),
    ]
    print_fitted(columns, full=full)


def print_lag(positions: Iterable[GroupPosition], clock: Clock, form: OutputFormat, *, full: bool = False) -> None:
    """Print a row for each queue of each group, and on a terminal what is wrong with positions below it."""
    rows = [_row(one, clock, _LAG_COLUMNS) for one in positions]
    if form is not OutputFormat.TABLE:
        print_rows(_LAG_COLUMNS, iter(rows), form)
        return
    wrong = [row for row in rows if row["error"]]
    one_group = len({row["group"] for row in rows}) == 1
    columns = [
        Column(heading="group", cells=_cells(rows, "group"), right=False, is_name=True, rank=8 if one_group else 0),
        Column(heading="topic", cells=_cells(rows, "topic"), right=False, is_name=True),
        Column(heading="queue", cells=_cells(rows, "queueId")),
        Column(heading="position", cells=_cells(rows, "committedOffset"), rank=2),
        Column(heading="first", cells=_cells(rows, "minOffset"), rank=5),
        Column(heading="end", cells=_cells(rows, "maxOffset"), rank=3),
        *_what_waits(rows),
        Column(heading="last consumed", cells=_cells(rows, "lastConsumedTimestamp"), rank=7),
        Column(heading="retries", cells=_cells(rows, "retryMessages"), rank=6),
        Column(heading="dead", cells=_cells(rows, "deadLetters"), rank=6),
    ]
    on_terminal = not full and terminal_width() is not None
    if wrong and not on_terminal:
        columns.append(Column(heading="error", cells=_cells(rows, "error"), right=False))
    print_fitted(columns, full=full)
    for row in wrong if on_terminal else []:
        print(printable_text(f"{row['group']} in {row['topic']}/{row['queueId']}: {row['error']}"))


def _what_waits(rows: Sequence[_Row]) -> list[Column]:
    """How far behind groups are, in messages and time."""
    behind = [None if row["lagMs"] is None else duration_text(cast("int", row["lagMs"])) for row in rows]
    return [
        Column(heading="lag", cells=_cells(rows, "lag")),
        Column(heading="behind", cells=behind),
        Column(heading="lost", cells=_cells(rows, "lost"), rank=0 if any(row["lost"] for row in rows) else 4),
        Column(heading="waiting since", cells=_cells(rows, "oldestWaitingTimestamp"), rank=6),
    ]


def _cells(rows: Sequence[_Row], name: str) -> list[object]:
    return [row[name] for row in rows]


def print_moves(moves: Iterable[Move], form: OutputFormat) -> None:
    """Print the positions of a reset, old and new."""
    rows: list[_Row] = [camel_members(one, before="from", after="to") for one in moves]
    if form is not OutputFormat.TABLE:
        print_rows(_MOVE_COLUMNS, iter(rows), form)
        return
    columns = [
        Column(heading="group", cells=_cells(rows, "group"), right=False, is_name=True, rank=2),
        Column(heading="topic", cells=_cells(rows, "topic"), right=False, is_name=True),
        Column(heading="queue", cells=_cells(rows, "queueId")),
        Column(heading="from", cells=_cells(rows, "from")),
        Column(heading="to", cells=_cells(rows, "to")),
        Column(heading="first", cells=_cells(rows, "minOffset"), rank=1),
        Column(heading="end", cells=_cells(rows, "maxOffset"), rank=1),
    ]
    print_fitted(columns)


def _row(one: GroupPosition | GroupSummary, clock: Clock, columns: Sequence[str]) -> _Row:
    """The values of the columns; a time that no calendar has is its number."""
    found = {"isSystem": is_system_group(one.group)} | camel_members(one) | {"error": one.error or None}
    for name in _TIMES:
        at = found.get(name)
        found[name] = None if at is None else clock.iso(at) or str(at)
    return {name: found[name] for name in columns}


@dataclass(frozen=True)
class _Reset:
    """The positions that are asked for. Errors: ``InvalidValue`` if there is none, and those of ``StoreReader``."""

    path: str
    group: str
    topic: str | None
    queue_id: int | None
    target: Target
    on_damage: OnDamage
    commit_log: str | None

    def look(self) -> list[Move]:
        """What setting them would do now."""
        validate_group(self.group)
        return self._moves(self.path)

    def set(self, lock_timeout_s: float, shown: Sequence[Move] | None) -> list[Move]:
        """Set them, as an owner. ``Changed`` when they are not those of ``shown``.

        The errors of ``owned_config`` and ``ConsumerOffsets.flush``.
        """
        validate_group(self.group)
        if is_address(self.path):
            moves = self._moves(self.path, shown)
            # The server writes positions to their file every few seconds, so it may have others than were shown.
            before = {(one.topic, one.queue_id): one.before for one in moves if shown is not None}
            with connect_to(self.path, lock_timeout_s) as store:
                if not store.commit_group_offsets(self.group, _positions(moves), expected=before):
                    raise Changed
            return moves
        with owned_config(self.path, lock_timeout_s=lock_timeout_s) as owned:
            moves = self._moves(owned, shown)
            set_positions(owned, self.group, _positions(moves))
            return moves

    def _moves(self, path: str, shown: Sequence[Move] | None = None) -> list[Move]:
        with StoreReader.open(path, store_path_commit_log=self.commit_log, on_damage=self.on_damage.value) as reader:
            moves = group_moves(reader, self.group, self.topic, self.queue_id, self.target, option=" with --topic")
        if shown is not None and [one.positions for one in moves] != [one.positions for one in shown]:
            raise Changed
        return moves


def _positions(moves: Sequence[Move]) -> dict[tuple[str, int], int]:
    return {(one.topic, one.queue_id): one.after for one in moves}
