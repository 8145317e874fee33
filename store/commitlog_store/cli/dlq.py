"""``commitlog dlq``: lists the dead letters of consumer groups, redrives them, and exports them."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from commitlog_store.cli.confirm import Changed, DryRun, Yes, do_as_shown
from commitlog_store.cli.exit_codes import wrong_usage
from commitlog_store.cli.export import export
from commitlog_store.cli.open_reader import NoVerifyCrcOption, OnDamage, OnDamageOption, exit_for_skipped
from commitlog_store.cli.options import (
    AS_TABLE,
    GROUPS,
    AllOption,
    AsJson,
    CommitLogDir,
    Group,
    LockTimeout,
    OptionalGroup,
    OutputChoice,
    OutputFormat,
    Since,
    StorePath,
    Until,
    ZoneOption,
    examples,
    option,
)
from commitlog_store.cli.owner_config import open_owner
from commitlog_store.cli.render import say, says
from commitlog_store.cli.row_output import print_rows
from commitlog_store.cli.storage_options import NO_STORAGE, Storage, takes_storage
from commitlog_store.cli.times import Clock, parse_zone
from commitlog_store.errors import InvalidValue
from commitlog_store.groups.positions import DeadLetters
from commitlog_store.paths import DLQ_TOPIC_PREFIX, is_system_group, validate_group
from commitlog_store.queries.redrive_plan import Redrive, redrive_targets, redrive_words
from commitlog_store.queries.texts import counted, printable_text
from commitlog_store.queue.skipped import SkippedRange
from commitlog_store.reader import StoreReader


class _To(str, enum.Enum):
    RETRY = "retry"
    TOPIC = "topic"


def register(app: typer.Typer) -> None:
    """Add the group ``dlq`` and its commands."""
    dlq = typer.Typer(help="Dead letters: messages that consumer groups have given up.")
    dlq.command("ls", epilog=examples("commitlog dlq ls /data/store", "commitlog dlq ls . billing --json"))(dlq_list)
    dlq.command(
        "redrive",
        epilog=examples(
            "commitlog dlq redrive /data/store billing --dry-run",
            "commitlog dlq redrive /data/store billing --yes",
            "commitlog dlq redrive /data/store billing --to topic -n 1 --yes",
        ),
    )(dlq_redrive)
    dlq.command(
        "export",
        epilog=examples("commitlog dlq export /data/store billing --to ndjson:dead.ndjson"),
    )(dlq_export)
    app.add_typer(dlq, name="dlq", rich_help_panel=GROUPS)


@takes_storage
def dlq_list(
    path: StorePath,
    group: OptionalGroup = None,
    commit_log: CommitLogDir = None,
    show_all: AllOption = False,
    tz: ZoneOption = "UTC",
    output: OutputChoice = AS_TABLE,
    storage: Storage = NO_STORAGE,
) -> None:
    """A row for each consumer group with dead letters: how many, and how many were not redriven. Takes no lock.

    oldest is the store time of the first one that was not redriven, newest that of the last one. 'cat' prints the
    messages of the topic %DLQ%GROUP. Exit code 1 for a group without dead letters.
    """
    form, clock = output.form(), Clock(parse_zone(tz))
    with storage.open(path, store_path_commit_log=commit_log) as reader:
        rows = reader.dead_letters(group)
    if group is not None and not rows:
        say(f"The store at {path} has no dead letters of group {group!r}.")
        raise typer.Exit(1)
    print_dead_letters((one for one in rows if show_all or group or not is_system_group(one.group)), clock, form)


def dlq_redrive(
    path: StorePath,
    group: Group,
    commit_log: CommitLogDir = None,
    to: Annotated[
        _To,
        typer.Option(
            "--to",
            metavar="retry|topic",
            help="'retry' or 'topic': the group's retry topic, or the topic that each message was sent to.",
        ),
    ] = _To.RETRY,
    count: Annotated[int | None, option("COUNT", "At most this many, the oldest.", "--count", "-n", min=1)] = None,
    on_damage: OnDamageOption = OnDamage.RAISE,
    no_verify_crc: NoVerifyCrcOption = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    lock_timeout: LockTimeout = 0.0,
) -> None:
    """Give a consumer group its dead letters again, each exactly once. It shows how many, and asks.

    They go to %RETRY%GROUP, which this group alone reads; with --to topic to the topic that each was sent to first,
    where other groups get it again too. They count as never consumed. The dead letters stay in %DLQ%GROUP, and the
    position of the group there says which were redriven. Takes the store's lock, so no broker may run, or asks the
    server that owns it. Exit code 1 for a group that never had dead letters, and without a terminal and --yes if there
    is anything to redrive.

    Damage ends it after those before. --on-damage skip redrives those after it too, says how many were skipped, and
    never redrives these later; the exit code is 1 then. --no-verify-crc takes damaged bodies as they are.
    """
    wanted = Redrive(
        group=group,
        most=count,
        to_topic=to is _To.TOPIC,
        on_damage=on_damage.value,
        verify_crc=not no_verify_crc,
    )

    def do(shown: Counter[str] | None) -> None:
        done, skipped = redrive_dead_letters(path, commit_log, wanted, lock_timeout, shown)
        print(done)
        exit_for_skipped(skipped)

    with says(InvalidValue):
        validate_group(group)
        _refuse_unknown(path, commit_log, group)
        do_as_shown(lambda: show_redrive(path, commit_log, wanted), "Redrive them?", do, yes=yes, dry_run=dry_run)


def _refuse_unknown(path: str, commit_log: str | None, group: str) -> None:
    """Exit with 1 for a group without a dead-letter topic: its name may be misspelt."""
    with StoreReader.open(path, store_path_commit_log=commit_log) as reader:
        known = [one.group for one in reader.dead_letters()]
    if group not in known:
        have = f"; groups that have some: {', '.join(known[:10])}" if known else ""
        say(f"The store at {path} has no dead letters of group {group!r}{have}.")
        raise typer.Exit(1)


def dlq_export(
    path: StorePath,
    group: Group,
    to: Annotated[str, typer.Option("--to", metavar="TARGET", help="parquet:DIR, ndjson:FILE or csv:FILE.")],
    commit_log: CommitLogDir = None,
    since: Since = None,
    until: Until = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the export that filled this target.")] = False,
    on_damage: OnDamageOption = OnDamage.RAISE,
    no_verify_crc: NoVerifyCrcOption = False,
    as_json: AsJson = False,
) -> None:
    """Copy the dead letters of a consumer group into Parquet, JSON lines or CSV: 'export' of the topic %DLQ%GROUP."""
    with wrong_usage("GROUP"):
        validate_group(group)
    export(
        path,
        to,
        commit_log,
        topic=[DLQ_TOPIC_PREFIX + group],
        since=since,
        until=until,
        resume=resume,
        on_damage=on_damage,
        no_verify_crc=no_verify_crc,
        as_json=as_json,
    )


_COLUMNS = ("group", "deadLetters", "waiting", "redriven", "oldest", "newest", "error")


def print_dead_letters(rows: Iterable[DeadLetters], clock: Clock, form: OutputFormat) -> None:
    """Print a row for each group."""
    listed = [_row(one, clock, form) for one in rows]
    is_table = form is OutputFormat.TABLE
    columns = [name for name in _COLUMNS if name != "error" or not is_table or any(row["error"] for row in listed)]
    print_rows(columns, listed, form)


def _row(one: DeadLetters, clock: Clock, form: OutputFormat) -> dict[str, Any]:
    known = one.messages is not None and one.waiting is not None
    shown = clock.short if form is OutputFormat.TABLE else clock.iso
    return {
        "group": one.group,
        "deadLetters": one.messages,
        "waiting": one.waiting,
        "redriven": one.messages - one.waiting if known else None,  # type: ignore[operator]
        "oldest": shown(one.oldest_timestamp),
        "newest": shown(one.newest_timestamp),
        "error": one.error or None,
    }


def show_redrive(path: str, commit_log: str | None, wanted: Redrive) -> Counter[str]:
    """Print how many messages would be redriven, and where. Returns how many, by topic. Takes no lock.

    ``InvalidValue`` for one whose topic is not known.
    """
    with StoreReader.open(path, store_path_commit_log=commit_log, on_damage=wanted.on_damage) as reader:
        targets = redrive_targets(reader, wanted)
    for one in redrive_words(wanted, targets, other_way="without --to topic"):
        print(printable_text(one))
    return targets


def redrive_dead_letters(
    path: str, commit_log: str | None, wanted: Redrive, lock_timeout_s: float, shown: Counter[str] | None
) -> tuple[str, list[SkippedRange]]:
    """Redrive messages. Returns a sentence, and what was skipped. The errors of opening, and of ``redrive``.

    ``Changed`` when there are not as many as ``shown``; ``InvalidValue`` for a message whose topic is not known: no
    message was redriven then.
    """
    skipped: list[SkippedRange] = []
    with open_owner(path, commit_log, lock_timeout_s) as store:
        with StoreReader.open(path, store_path_commit_log=commit_log, on_damage="skip") as reader:
            targets = redrive_targets(reader, wanted)
        if shown is not None and targets != shown:
            raise Changed
        done = store.redrive(
            wanted.group,
            to="topic" if wanted.to_topic else "retry",
            max_messages=wanted.most,
            on_damage=wanted.on_damage,
            verify_crc=wanted.verify_crc,
            skipped=skipped,
        )
    return f"Redriven: {counted(done, 'dead letter')} of group {wanted.group}.", skipped
