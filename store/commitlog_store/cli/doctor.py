"""``commitlog doctor``: a page for people, JSON, and one line for Nagios; and the verdict in one line."""

from __future__ import annotations

import contextlib
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Annotated, Any, cast

import typer
from rich.filesize import decimal
from rich.text import Text
from typer.core import TyperCommand

from commitlog_store.cli.console import uncut_console
from commitlog_store.cli.doctor_limits import (
    Limits,
    Measured,
    StoreToMeasure,
    complete_limit,
    measure,
    parse_limits,
)
from commitlog_store.cli.exit_codes import wrong_usage
from commitlog_store.cli.option_groups import takes_groups
from commitlog_store.cli.options import (
    AS_TABLE,
    LOOK,
    BrokerConf,
    CommitLogDir,
    OutputChoice,
    OutputFormat,
    StorePath,
    examples,
    option,
)
from commitlog_store.cli.owner_config import is_address, owner_config, refuse_at_address
from commitlog_store.cli.progress import progress_bar
from commitlog_store.cli.render import camel_members, ends_wrong, json_text
from commitlog_store.cli.row_output import print_rows
from commitlog_store.cli.times import Clock, parse_zone
from commitlog_store.cli.topic_table import offset_range
from commitlog_store.errors import CommitLogError
from commitlog_store.paths import REMOTE_SCHEMES
from commitlog_store.queries.texts import counted, duration_text, printable_text
from commitlog_store.retention.archive_status import ArchiveHoldStatus, read_status
from commitlog_store.verify.assessment import Assessment, Verdict, assess_store
from commitlog_store.verify.findings import Finding

_Limits = Annotated[
    list[str] | None,
    option("LIMITS", "Warn above these: lag=100000,disk=0.85,overdue=60s.", "--warn", autocompletion=complete_limit),
]
_Critical = Annotated[
    list[str] | None,
    option(
        "LIMITS",
        "The same names as --warn: above these, --nagios says CRITICAL.",
        "--critical",
        autocompletion=complete_limit,
    ),
]


# Wrong usage of any kind: typer has no public name for it.
_UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__base__)


class _Doctor(TyperCommand):
    """The command. Wrong usage is UNKNOWN to Nagios, and not exit code 2, which it takes for CRITICAL."""

    def make_context(self, info_name: Any, args: Any, *others: Any, **extra: Any) -> Any:
        with _usage_errors(nagios="--nagios" in args):
            return super().make_context(info_name, args, *others, **extra)

    def invoke(self, ctx: Any) -> Any:
        with _usage_errors(nagios=bool(ctx.params.get("nagios"))):
            return super().invoke(ctx)


@contextlib.contextmanager
def _usage_errors(*, nagios: bool) -> Iterator[None]:
    try:
        yield
    except _UsageError as error:
        if not nagios:
            raise
        print(nagios_unknown(error.format_message()))
        raise typer.Exit(NAGIOS_UNKNOWN) from error


def register(app: typer.Typer) -> None:
    app.command(
        cls=_Doctor,
        rich_help_panel=LOOK,
        epilog=examples(
            "commitlog doctor /data/store",
            "commitlog doctor --deep /data/store",
            "commitlog doctor --deep grpc://127.0.0.1:8815",
            "commitlog doctor /data/store --warn lag=100000,disk=0.85,overdue=60s",
            "commitlog doctor /data/store --nagios --warn disk=85% --critical disk=95%",
        ),
    )(doctor)


@takes_groups
def doctor(
    path: StorePath,
    commit_log: CommitLogDir = None,
    deep: Annotated[bool, typer.Option("--deep", help="Read every record, unit and index entry, as verify.")] = False,
    warn: _Limits = None,
    critical: _Critical = None,
    nagios: Annotated[
        bool, typer.Option("--nagios", help="One line, and Nagios' exit codes: 0, 1, 2, 3 (UNKNOWN).")
    ] = False,
    config_file: BrokerConf = None,
    output: OutputChoice = AS_TABLE,
) -> None:
    """What is wrong with a store, what is lost, what opening it would do, and what to do next. Changes nothing.

    Quick: no records are read, so it takes a second on any store; --deep reads everything. It works beside a running
    broker, on a read-only mount, and on a copy; at the address of a server, the server looks, and Ctrl-C ends that. -o
    csv has a line for each finding.

    Verdicts: OK; WARNING, no message is known to be lost; DAMAGED; DOES NOT OPEN. Exit code 0 for OK, else 1.
    """
    assessed = partial(_assessed, path, warn, critical, config_file, commit_log, deep=deep)
    if not nagios:
        _print(assessed, output.form())
        return
    if output.is_given:
        raise typer.BadParameter("It prints one line; leave -o and --json out.", param_hint="--nagios")
    try:
        found, limits = assessed()
    except (CommitLogError, OSError) as error:
        print(nagios_unknown(error))
        raise typer.Exit(NAGIOS_UNKNOWN) from error
    print(nagios_line(found, limits))
    raise typer.Exit(nagios_level(found, limits))


def _assessed(
    path: str,
    warn: list[str] | None,
    critical: list[str] | None,
    config_file: str | None,
    commit_log: str | None,
    *,
    deep: bool,
) -> tuple[Assessment, list[Measured]]:
    limits = parse_limits(warn or ()), parse_limits(critical or ())
    if is_address(path):
        return _served_assessment(path, limits, config_file, commit_log, deep=deep)
    with progress_bar("reading") as progress:
        config = owner_config(path, config_file, commit_log)
        found = assess_store(path, deep=deep, config=config, progress=progress)
    return found, measure(StoreToMeasure.of_directory(found.paths), *limits)


def _served_assessment(
    path: str, limits: tuple[Limits, Limits], config_file: str | None, commit_log: str | None, *, deep: bool
) -> tuple[Assessment, list[Measured]]:
    """The assessment by the server of a store. ``BadParameter``."""
    refuse_at_address({"--config": config_file, "--commit-log": commit_log})
    from commitlog_store.reader import StoreReader  # slow to import, and not for a directory

    with progress_bar("reading") as progress, StoreReader.open(path) as reader:
        found = reader.assess(deep=deep, progress=progress)
        return found, measure(StoreToMeasure.of_reader(reader), *limits)


def _print(assessed: Callable[[], tuple[Assessment, list[Measured]]], form: OutputFormat) -> None:
    with wrong_usage():
        found, limits = assessed()
    with ends_wrong(with_limits(found, limits) is not Verdict.OK):
        if form is OutputFormat.JSON:
            print_json(found, limits)
        elif form is OutputFormat.CSV:
            print_rows(FINDING_COLUMNS, map(camel_members, found.findings), form)
        else:
            print_page(found, limits)


_WIDTH = 80
FINDING_COLUMNS = ("severity", "check", "path", "offset", "topic", "queueId", "queueOffset", "message")
_STYLES = {Verdict.OK: "bold green", Verdict.WARNING: "bold yellow"}
# Of very many stretches of lost offsets, and of findings of one kind, so many are on the page; JSON has all.
_MOST, _MOST_ALIKE = 10, 3

NAGIOS_UNKNOWN = 3
_NAGIOS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")


def known_loss(found: Assessment, noun: str = "") -> str:
    """How many messages are found and lost, as far as that is known. ``noun`` follows the first number."""
    unreadable = f", {found.unreadable} of them unreadable" if found.unreadable else ""
    if found.deep:
        return f"{found.found}{noun} found, {found.lost or 'none'} lost{unreadable}"
    if found.lost:
        return f"at least {found.lost}{noun} lost{unreadable}"
    if found.verdict is Verdict.DAMAGED:
        return "how many are lost is not known; --deep counts them"
    return "no loss is known; records were not read"


def headline(found: Assessment, limits: Sequence[Measured] = ()) -> str:
    """The verdict and its reasons, one line without the store's path."""
    verdict = with_limits(found, limits)
    reasons = [known_loss(found, " messages")] if found.lost or verdict is Verdict.OK else []
    reasons += [one.message for one in _in_order(found.findings) if one.severity == "error"][:1]
    reasons += [one.what for one in limits if one.is_exceeded]
    # Of a store without a worse verdict, a limit may be critical: one line says one level.
    is_critical = verdict is Verdict.WARNING and any(one.is_critical for one in limits)
    return printable_text(f"{_NAGIOS[2] if is_critical else verdict.value}: {'; '.join(reasons)}")


def with_limits(found: Assessment, limits: Sequence[Measured]) -> Verdict:
    """The verdict, and at least a warning where a limit is exceeded."""
    exceeded = any(one.is_exceeded for one in limits)
    return Verdict.WARNING if exceeded and found.verdict is Verdict.OK else found.verdict


# Causes come before what follows from them.
_ORDER = ("files.", "access.", "opening.", "log.", "batch.", "checkpoint.", "config.", "queue.", "index.")


def _in_order(findings: Sequence[Finding]) -> list[Finding]:
    """Errors first, and causes before what follows from them."""

    def rank(finding: Finding) -> tuple[bool, int]:
        group = next((at for at, start in enumerate(_ORDER) if finding.check.startswith(start)), len(_ORDER))
        return finding.severity != "error", group

    return sorted(findings, key=rank)


def opening_text(assessment: Assessment) -> str:
    """What opening would do, in a sentence or two."""
    found = assessment.opening
    reason = found.reason[0].lower() + found.reason[1:]
    if found.kind in ("inUse", "keptPiece"):
        return found.reason
    if found.kind == "refused":
        return f"refused: {found.reason}"
    what = {"clean": "opens at once", "scan": "scans the log for its end", "rebuild": "builds queues and index again"}
    text = f"{what[found.kind]}: {reason}"
    cut = None if found.forecast is None else found.forecast.cut
    if found.unscanned is not None:
        text += f" It reads {found.unscanned:,} bytes of the log or more;"
        text += " --deep says what it finds, and whether the store opens."
    elif cut is not None:
        text += f" It cuts off {counted(cut.messages, 'whole message')} at physical offset {cut.start}, and keeps them."
    elif found.kind != "clean":
        text += " It cuts no whole message off" + ("; what is lost stays lost." if assessment.lost else ".")
    if found.unwritable is not None:
        text += f" This user cannot open it, without permission to write {found.unwritable}."
    return text


def print_page(found: Assessment, limits: Sequence[Measured]) -> None:
    """Print the page: the verdict, the parts of the store, what is lost, the findings, the next commands."""
    verdict = with_limits(found, limits)
    line = Text(f"{verdict.value}  ", style=_STYLES.get(verdict, "bold red")) + Text(printable_text(found.path))
    uncut_console().print(line)
    for name, text in _parts(found):
        print(_wrapped(f"{name:9}", text))
    for one in limits:
        print(_wrapped(f"{one.name:9}", one.what + _limit_text(one)))
    for topic in found.topics:
        if topic.lost:
            print(_wrapped("  ", _topic_text(topic.topic, topic.lost, topic.unreadable, topic.lost_offsets)))
    shown: Counter[str] = Counter()
    for finding in _in_order(found.findings):
        if finding.check.startswith("opening."):
            continue  # shown above
        shown[finding.check] += 1
        if shown[finding.check] <= _MOST_ALIKE:
            print(_wrapped(f"{finding.severity:9}", finding.message))
    more = sum(max(count - _MOST_ALIKE, 0) for count in shown.values())
    if more:
        print(f"{'':9}{more} more like these, which -o json has.")
    for number, command in enumerate(found.next_steps):
        print(f"{'next' if not number else '':9}{printable_text(command)}")


def _limit_text(limit: Measured) -> str:
    if limit.value is None:
        return " (not known)"
    return " (too much)" if limit.is_above else ""


def _parts(found: Assessment) -> Iterator[tuple[str, str]]:
    files = counted(found.log_files, "file")
    place = "" if found.paths.elsewhere is None else f" of {found.paths.commit_log}"
    yield "log", f"[{found.log_start}, {found.log_end}) in {files}{place}" + ("" if found.deep else ", ends not read")
    yield "queues", f"{counted(found.queues, 'queue')}, {counted(found.index_files, 'index file')}"
    if found.opening.kind != "keptPiece":
        yield "mark", _mark_text(found)
    if hold := _archive_hold(found):
        yield "archive", hold
    yield "opening", opening_text(found)
    yield "messages", known_loss(found)


def _archive_hold(found: Assessment) -> str:
    """What retention waits for; empty without an archive."""
    try:
        hold = _hold_of(found)
    except CommitLogError as error:
        return str(error)
    return "" if hold is None else archive_hold_text(hold, found.log_end, Clock(parse_zone("UTC")))


def _hold_of(found: Assessment) -> ArchiveHoldStatus | None:
    """The archive that retention waits for. ``CorruptConfig``, ``ReadFailed``."""
    return None if found.path.startswith(REMOTE_SCHEMES) else read_status(found.path)


def _hold_members(found: Assessment) -> dict[str, Any] | None:
    try:
        hold = _hold_of(found)
    except CommitLogError as error:
        return {"failure": str(error)}
    return None if hold is None else camel_members(hold)


def archive_hold_text(hold: ArchiveHoldStatus, log_end: int, clock: Clock) -> str:
    """The archive that retention waits for, what it lacks of a log that ends there, and whether it answers."""
    limit = "" if hold.at_most_ms is None else f", for {duration_text(hold.at_most_ms)} at most"
    behind = decimal(max(log_end - hold.archived, 0))
    text = f"retention waits for the archive {hold.url}, which lacks {behind} from {hold.archived} on{limit}"
    if not hold.failure:
        return text
    since = f"since {clock.short(hold.asked_ms)} {clock.name}" if hold.asked_ms else "yet"
    return f"{text}; it has not answered {since}: {hold.failure}"


def _mark_text(found: Assessment) -> str:
    mark = found.mark
    if mark is None:
        text = "none: the store is new, or a broker was its last owner"
    elif mark.closed:
        text = f"closed at physical offset {mark.end_offset}"
    else:
        text = f"open; flushed up to physical offset {mark.flushed_offset} at least"
    batches = "" if found.batches is None else f"; ledger: {counted(found.batches, 'application')}"
    return f"{text}{'; the file abort exists' if found.aborted else ''}{batches}"


def _topic_text(topic: str, lost: int, unreadable: int, offsets: Sequence[tuple[int, int, int]]) -> str:
    shown = "; ".join(f"queue {queue}: {offset_range(start, stop)}" for queue, start, stop in offsets[:_MOST])
    more = f" and {len(offsets) - _MOST} more stretches" if len(offsets) > _MOST else ""
    return f"{topic}: {lost} lost{f', {unreadable} of them unreadable' if unreadable else ''}. {shown}{more}"


def _wrapped(head: str, text: str) -> str:
    return textwrap.fill(
        printable_text(text),
        _WIDTH,
        initial_indent=head,
        subsequent_indent=" " * len(head) + ("" if head.strip() else "  "),
        break_long_words=False,
        break_on_hyphens=False,
    )


def print_json(found: Assessment, limits: Sequence[Measured]) -> None:
    """Print the assessment as one object."""
    cut = None if found.opening.forecast is None else found.opening.forecast.cut
    opening = {
        "kind": found.opening.kind,
        "reason": found.opening.reason,
        "refusal": None if found.opening.refusal is None else str(found.opening.refusal),
        "unscannedBytes": found.opening.unscanned,
        "cutAt": None if cut is None else cut.start,
        "cutMessages": None if cut is None else cut.messages,
        "unwritable": found.opening.unwritable,
    }
    plain = {
        "path": found.path,
        "verdict": with_limits(found, limits).value,
        "deep": found.deep,
        "aborted": found.aborted,
        "log": {"files": found.log_files, "start": found.log_start, "end": found.log_end},
        "queues": found.queues,
        "indexFiles": found.index_files,
        "checkpoint": camel_members(found.checkpoint),
        "mark": None if found.mark is None else camel_members(found.mark),
        "batches": found.batches,
        "archiveHold": _hold_members(found),
        "opening": opening,
        "found": found.found,
        "lost": found.lost,
        "unreadable": found.unreadable,
        "topics": [
            topic_members(topic) | ({} if found.deep else {"found": None, "prepared": None, "rolledBack": None})
            for topic in found.topics
        ],
        "findings": [camel_members(one) for one in found.findings],
        "limits": [camel_members(one) | {"exceeded": one.is_exceeded} for one in limits],
        "nextSteps": found.next_steps,
        "seconds": round(found.seconds, 3),
    }
    print(json_text(plain))


_OFFSET_FIELDS = ("queueId", "start", "stop")


def topic_members(topic: Any) -> dict[str, Any]:
    """A topic's counts under their JSON names; lost offsets are the ranges ``[start, stop)`` of each queue."""
    return camel_members(topic) | {
        "lostOffsets": [dict(zip(_OFFSET_FIELDS, lost, strict=True)) for lost in topic.lost_offsets],
        "unreadableOffsets": [dict(zip(_OFFSET_FIELDS, lost, strict=True)) for lost in topic.unreadable_offsets],
    }


def nagios_level(found: Assessment, limits: Sequence[Measured]) -> int:
    """The exit code that Nagios expects: 0 OK, 1 WARNING, 2 CRITICAL."""
    if found.verdict in (Verdict.DAMAGED, Verdict.DOES_NOT_OPEN) or any(one.is_critical for one in limits):
        return 2
    return int(with_limits(found, limits) is Verdict.WARNING)


def nagios_line(found: Assessment, limits: Sequence[Measured]) -> str:
    """One line for Nagios: state, text, and performance data."""
    data = [f"lost={found.lost};;0", f"unreadable={found.unreadable};;0"]
    for one in limits:
        if one.value is not None:
            bounds = ";".join("" if bound is None else f"{bound:g}" for bound in (one.warn, one.critical))
            data.append(f"{one.name}={one.value:g}{'s' if one.name == 'overdue' else ''};{bounds}")
    text = f"{found.path} {headline(found, limits)}"
    if hold := _archive_hold(found):
        text += f"; {hold}"
    return f"{_nagios_text(nagios_level(found, limits), text)} | {' '.join(data)}"


def nagios_unknown(error: Exception | str) -> str:
    """The line for Nagios where no store was assessed."""
    return _nagios_text(NAGIOS_UNKNOWN, str(error))


def _nagios_text(level: int, text: str) -> str:
    """State and text: one line, without the bar that begins performance data."""
    return printable_text(f"COMMITLOG {_NAGIOS[level]} - {' '.join(text.split())}").replace("|", "/")
