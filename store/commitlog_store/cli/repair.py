"""``commitlog repair``: reports what opening a store would lose, and cuts, rebuilds or accepts it."""

from __future__ import annotations

import shlex
from typing import Annotated, Any

import typer
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from commitlog_store.cli.confirm import Changed, Yes, do_as_shown
from commitlog_store.cli.console import print_table, uncut_console
from commitlog_store.cli.kept_output import kept_to_json
from commitlog_store.cli.option_groups import takes_groups
from commitlog_store.cli.options import (
    AS_TABLE,
    REPAIR,
    BrokerConf,
    CommitLogDir,
    LockTimeout,
    OutputChoice,
    OutputFormat,
    StorePath,
    examples,
)
from commitlog_store.cli.owner_config import owner_config
from commitlog_store.cli.progress import progress_bar
from commitlog_store.cli.render import camel_members, ends_wrong, json_text
from commitlog_store.cli.row_output import print_rows
from commitlog_store.cli.topic_table import topic_table
from commitlog_store.config import MessageStoreConfig
from commitlog_store.errors import CorruptStoreError, DamagedLog, LogLost, LogNotFound, LogShort
from commitlog_store.queries.texts import counted, printable_text
from commitlog_store.repair import KeptPiece, LostMessages, RepairReport, drop_kept, kept_pieces, repair_store
from commitlog_store.verify.assessment import Assessment, Verdict

_GO_ON = "Continue without the lost part of the log? Its files cannot be put back after that."
_DROP = "Remove them? They cannot be put back after that."


def register(app: typer.Typer) -> None:
    app.command(
        rich_help_panel=REPAIR,
        epilog=examples("commitlog repair /data/store", "commitlog repair /data/store --cut-at 96593"),
    )(repair)


@takes_groups
def repair(
    path: StorePath,
    commit_log: CommitLogDir = None,
    cut_at: Annotated[
        int | None, typer.Option(min=0, metavar="OFFSET", help="End the log there; keep the rest in 'repair'.")
    ] = None,
    accept_lost_log: Annotated[
        bool, typer.Option("--accept-lost-log", help="Continue with a log whose end, or all of it, is gone.")
    ] = False,
    rebuild: Annotated[
        bool,
        typer.Option("--rebuild", help="Build all queues, and an index that is in use, again from the log."),
    ] = False,
    drop_kept: Annotated[
        bool, typer.Option("--drop-kept", help="Remove what earlier cuts have kept in 'repair'.")
    ] = False,
    yes: Yes = False,
    lock_timeout: LockTimeout = 0.0,
    config_file: BrokerConf = None,
    output: OutputChoice = AS_TABLE,
) -> None:
    """Report what opening a store would lose, and how to save it.

    --cut-at, --accept-lost-log, --rebuild and --drop-kept change the store; without them, not one byte of it changes.
    --accept-lost-log shows what is lost, --drop-kept what it removes, and both ask. Exit code 1 without a terminal and
    --yes: nothing is changed then.

    -o csv has a line for each queue that loses messages; with --drop-kept, one for each removed piece.
    It reads what opening reads, and says which messages are known to be lost; 'doctor --deep' reads all. Exit code 1
    while the store does not open, its log is damaged, or opening it would cut messages off, and also if it is open now.
    """
    form = output.form()
    if drop_kept:
        if cut_at is not None or accept_lost_log or rebuild:
            raise typer.BadParameter("It excludes all other changes.", param_hint="--drop-kept")
        drop_as_shown(path, form, yes=yes)
        return
    config = owner_config(path, config_file, commit_log)

    def show() -> RepairReport | None:
        report = _look_or_change(path, config)
        print_repair(report, form, asks=loses_log(report))
        return report if loses_log(report) else None

    def do(shown: RepairReport | None) -> None:
        if shown is not None and str(_look_or_change(path, config).damage) != str(shown.damage):
            raise Changed
        report = _look_or_change(
            path,
            config,
            cut_at=cut_at,
            accept_lost_log=accept_lost_log,
            rebuild=rebuild,
            lock_timeout_s=lock_timeout,
        )
        with ends_wrong(report.loses):
            print_repair(report, form)

    is_asked = accept_lost_log and not yes and loses_log(_look_or_change(path, config))
    for_program = form is not OutputFormat.TABLE
    do_as_shown(show, _GO_ON, do, yes=not is_asked, for_program=for_program)


_LOST_COLUMNS = ("topic", "queueId", "start", "stop", "messages")
_PIECE_COLUMNS = ("path", "cutAt", "bytes", "messages", "reason", "uncommitted")


def _look_or_change(
    path: str,
    config: MessageStoreConfig,
    *,
    cut_at: int | None = None,
    accept_lost_log: bool = False,
    rebuild: bool = False,
    lock_timeout_s: float = 0.0,
) -> RepairReport:
    """``repair_store``, with its progress."""
    with progress_bar("looking" if cut_at is None else "recovering") as progress:
        return repair_store(
            path,
            cut_at=cut_at,
            accept_lost_log=accept_lost_log,
            rebuild=rebuild,
            config=config,
            lock_timeout_s=lock_timeout_s,
            progress=progress,
        )


def loses_log(report: RepairReport) -> bool:
    """Whether the end of the log, or all of it, is gone: opening continues without it only when that is accepted."""
    return isinstance(report.damage, LogShort | LogLost)


def print_repair(report: RepairReport, form: OutputFormat, *, asks: bool = False) -> None:
    """Print the damage, and the messages that a cut removes: text for people, one object or a row each for programs.

    ``asks``: a question follows, whether to go on without the lost part of the log.
    """
    if form is OutputFormat.JSON:
        print(json_text(_to_json(report)))
        return
    if form is OutputFormat.CSV:
        print_rows(_LOST_COLUMNS, map(camel_members, report.lost), form)
        return
    path = report.path
    if report.kept is not None:
        _say(f"The log ends at physical offset {report.cut_at} now, and the store opens.")
        _say(f"{_count(report)} removed, kept in {report.kept.path}:")
        _print_lost(report.lost)
        return
    if report.opened:
        _say(f"{path} opens now.")
        if report.rebuilt:
            _say(f"Its queues{' and index' if report.index_rebuilt else ''} were built again from the log.")
            if not report.index_rebuilt:
                _say("Its index was not: it has none, or the settings say messageIndexEnable=false.")
        if report.damage is not None:
            _say(f"It continues with what is left of its log. What opening said before: {report.damage}")
        return
    if report.damage is not None:
        _say(f"{path} does not open:", style="bold")
        _say(str(report.damage))
    elif report.lost:
        _say(f"{path} opens, and opening it cuts its log at physical offset {report.cut_at}:", style="bold")
        _say(f"{report.reason} At that place: {report.fault}.")
    else:
        _print_that_it_opens(report)
        return
    if report.lost:
        _print_what_a_cut_takes(report)
    _print_known_loss(report)
    _print_commands(report, asks=asks)


def _print_that_it_opens(report: RepairReport) -> None:
    """Say that opening cuts nothing off; and that nothing is lost only if every record was read."""
    path, found = report.path, report.assessment
    reason = report.reason[0].lower() + report.reason[1:]
    if found.verdict is Verdict.DAMAGED:
        _say(f"{path} opens, and {'messages are lost' if found.lost else 'its log is damaged'}: {reason}", style="bold")
        _print_known_loss(report)
        _print_commands(report)
    elif report.loses_nothing:
        _say(f"{path} opens, and nothing is lost: {reason}")
    else:
        _say(f"{path} opens: {reason}")
        errors = [one for one in found.findings if one.severity == "error"]
        for finding in errors:
            _say(finding.message, style="red")
        _say("No loss is known. Opening does not read all records; this does:")
        _say(f"  commitlog doctor --deep {report.assessment.paths.for_shell}")
    if found.opening.unwritable is not None:
        _say(f"This user cannot open it, without permission to write {found.opening.unwritable}.")


def _print_known_loss(report: RepairReport) -> None:
    """The lost messages that are known without reading all records: the same number as of every command."""
    found = report.assessment
    if found.lost:
        _print_lost_topics(found)
    for finding in found.findings:
        if finding.severity == "error" and finding.check.startswith(("files.", "access.", "log.")):
            _say(finding.message)
    if not found.lost and found.verdict is Verdict.DAMAGED:
        _say("How many messages are lost is not known; this counts them:")
        _say(f"  commitlog doctor --deep {report.assessment.paths.for_shell}")


def _print_lost_topics(found: Assessment) -> None:
    unreadable = f", {found.unreadable} of them unreadable" if found.unreadable else ""
    _say(f"At least {counted(found.lost, 'message')} lost{unreadable}:")
    print_table(topic_table(found.topics, ("lost", "unreadable") if found.unreadable else ("lost",)))


def _print_what_a_cut_takes(report: RepairReport) -> None:
    if report.uncommitted:
        _say(f"It takes a part of {report.uncommitted}, which was never committed: its writer writes it again.")
    else:
        _say(f"Besides the record there, a cut removes {_count(report)} that begin there or after it and are whole:")
    _print_lost(report.lost)


def _print_commands(report: RepairReport, *, asks: bool = False) -> None:
    paths = report.assessment.paths
    store = paths.for_shell
    if isinstance(report.damage, LogLost | LogNotFound):
        _say("Mount its disk, or restore the files from a copy. For a log in another directory, name that:")
        _say(f"  commitlog repair {shlex.quote(paths.root)} --commit-log DIR")
    if loses_log(report):
        _say("Restore the files if a copy of them exists.")
        if not asks:
            _say("To continue with what is left:")
            _say(f"  commitlog repair {store} --accept-lost-log")
        return
    is_damaged = isinstance(report.damage, CorruptStoreError) or report.assessment.verdict is Verdict.DAMAGED
    if report.cut_at is None and not is_damaged:
        return
    _say("Restore the file if a copy of it exists. To save every whole message into another store:")
    _say(f"  commitlog salvage {shlex.quote(paths.elsewhere or paths.root)} --to DIRECTORY")
    if report.cut_at is None:
        return
    _say("To end the log there (what is cut off is kept):")
    _say(f"  commitlog repair {store} --cut-at {report.cut_at}")


def drop_as_shown(path: str, form: OutputFormat, *, yes: bool) -> None:
    """Show the kept pieces of a store, ask, and remove them."""

    def show() -> list[KeptPiece]:
        found = kept_pieces(path)
        print_dropped(path, found, form, removed=not found)
        return found

    def do(shown: list[KeptPiece] | None) -> None:
        if shown is not None and kept_pieces(path) != shown:
            raise Changed
        print_dropped(path, drop_kept(path), form, removed=True)

    do_as_shown(show, _DROP, do, yes=yes, for_program=form is not OutputFormat.TABLE)


def print_dropped(path: str, pieces: list[KeptPiece], form: OutputFormat, *, removed: bool) -> None:
    """Print the kept pieces of a store that were removed, or would be."""
    if form is OutputFormat.JSON:
        print(json_text({"path": path, "dryRun": not removed, "dropped": [kept_to_json(piece) for piece in pieces]}))
        return
    if form is OutputFormat.CSV:
        print_rows(_PIECE_COLUMNS, map(kept_to_json, pieces), form)
        return
    if not pieces:
        _say(f"{path} has no kept pieces.")
    for piece in pieces:
        does = "removed" if removed else "would be removed"
        _say(f"{piece.path} {does}: {piece.messages} messages, {decimal(piece.size)}")


def _say(text: str, style: str = "") -> None:
    uncut_console().print(Text(printable_text(text), style=style))


def _count(report: RepairReport) -> str:
    return f"{counted(report.messages, 'message')} ({decimal(report.size)})"


def _print_lost(lost: list[LostMessages]) -> None:
    table = Table("topic", "queue", "from offset", "to offset", "messages", box=None, pad_edge=False)
    for one in lost:
        first, last = (str(one.start), str(one.stop - 1)) if one.start < one.stop else ("-", "-")
        table.add_row(Text(printable_text(one.topic)), str(one.queue_id), first, last, str(one.messages))
    print_table(table)


def _to_json(report: RepairReport) -> dict[str, Any]:
    return {
        "path": report.path,
        "verdict": report.assessment.verdict.value,
        "lostMessages": report.assessment.lost,
        "unreadableMessages": report.assessment.unreadable,
        "opens": report.damage is None or report.opened,
        "reason": report.reason,
        "fault": report.fault or None,
        "damage": None if report.damage is None else str(report.damage),
        "cutAt": report.cut_at,
        "cutBy": None if report.cut_at is None else "repair" if isinstance(report.damage, DamagedLog) else "opening",
        "bytes": report.size,
        "messages": report.messages,
        "uncommitted": report.uncommitted or None,
        "keptIn": None if report.kept is None else report.kept.path,
        "lost": [camel_members(one) for one in report.lost],
    }
