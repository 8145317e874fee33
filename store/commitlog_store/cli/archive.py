"""Commands of archives: ``archive`` writes one, checks it, and deletes what it does not need; ``restore`` reads it."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from commitlog_store.cli.confirm import DryRun
from commitlog_store.cli.exit_codes import wrong_usage
from commitlog_store.cli.options import (
    ARCHIVE,
    AsJson,
    CommitLogDir,
    EndpointOption,
    Since,
    Until,
    examples,
    topic_option,
)
from commitlog_store.cli.values import parse_seconds, size_option
from commitlog_store.queries.texts import counted, printable_text

if TYPE_CHECKING:
    from commitlog_store.archive.archiver import Archiver, ArchiveReport, ArchiveSettings
    from commitlog_store.archive.check import ArchiveCheckReport
    from commitlog_store.archive.restore import RestoreReport

_MOST_SHOWN = 20


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        rich_help_panel=ARCHIVE,
        epilog=examples(
            "commitlog archive /data/store s3://bucket/orders",
            "commitlog archive /data/store s3://bucket/orders --follow --max-rate 20M",
            "commitlog archive /data/store file:///backup/orders --with-last",
            "commitlog archive /data/store s3://bucket/orders --topic 'orders*' --topic refunds",
            "commitlog archive --check s3://bucket/orders --deep",
            "commitlog archive --gc s3://bucket/orders",
        ),
    )(archive)
    app.command(
        rich_help_panel=ARCHIVE,
        epilog=examples(
            "commitlog restore s3://bucket/orders /data/restored",
            "commitlog restore s3://bucket/orders /data/restored --since 2026-11-01",
        ),
    )(restore)


_Places = Annotated[
    list[str],
    typer.Argument(
        metavar="[PATH] URL",
        help="The store directory, and s3://, gs://, az://, hdfs:// or file:///; with --check or --gc the URL alone.",
    ),
]
_MaxRate = Annotated[
    int | None,
    typer.Option(
        parser=size_option, metavar="SIZE", help="Upload at most so many bytes a second: 20M.", show_default=False
    ),
]
_Topics = Annotated[
    list[str] | None,
    topic_option(
        "Only messages of these topics, in a log of their own: a name or shell pattern, repeatable.",
        "--topics",
        show_default=False,
    ),
]
_WorkDir = Annotated[
    str | None,
    typer.Option(
        metavar="DIR",
        help="With --topic: where that log is made, with room for one file of it; default: a temporary directory.",
        show_default=False,
    ),
]
_OlderThan = Annotated[
    str, typer.Option(metavar="DURATION", help="With --gc: less than a day only while no archiver and reader runs.")
]


def archive(
    places: _Places,
    commit_log: CommitLogDir = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Archive new files too; stop with Ctrl-C.")] = False,
    until: Until = None,
    with_last: Annotated[
        bool, typer.Option("--with-last", help="Also the written part of the last file, which the whole one replaces.")
    ] = False,
    allow_gap: Annotated[
        bool, typer.Option("--allow-gap", help="Continue after files that retention has deleted.")
    ] = False,
    max_rate: _MaxRate = None,
    every: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="With --follow: how often to look for more.")
    ] = 60.0,
    endpoint: EndpointOption = None,
    check: Annotated[bool, typer.Option("--check", help="Compare an archive with its manifest.")] = False,
    deep: Annotated[bool, typer.Option("--deep", help="With --check: all bytes with their checksums.")] = False,
    gc: Annotated[bool, typer.Option("--gc", help="Delete objects that the archive does not need any more.")] = False,
    older_than: _OlderThan = "1d",
    dry_run: DryRun = False,
    as_json: AsJson = False,
    topic: _Topics = None,
    work_dir: _WorkDir = None,
) -> None:
    """Copy closed log files into object storage, byte for byte, with their queues' units and a manifest.

    The store is only read, beside a live broker too. Kill it anywhere and run it again: it continues where the
    manifest ends, nothing twice. Files that retention has deleted before end it with exit code 1. Credentials come from
    the environment: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS,
    AZURE_STORAGE_ACCOUNT_NAME, roles of the machine. 'restore' makes a store of an archive.
    """
    options = {} if endpoint is None else {"endpoint": endpoint}
    if check and gc:
        raise typer.BadParameter("Give one of them.", param_hint="--check, --gc")
    if len(places) != (1 if check or gc else 2):
        wanted = "the URL of an archive alone" if check or gc else "a store directory and the URL of an archive"
        more = ", and --topic before each pattern" if topic else ""
        raise typer.BadParameter(f"Give {wanted}{more}.", param_hint="[PATH] URL")
    if (check or gc) and topic:
        raise typer.BadParameter("It is for archiving; an archive knows its topics.", param_hint="--topic")
    if work_dir is not None and not topic:
        raise typer.BadParameter("It is for --topic.", param_hint="--work-dir")
    if not (check or gc) and (dry_run or deep):
        raise typer.BadParameter("They are for --gc and --check.", param_hint="--dry-run, --deep")
    every_s = every if follow else None
    with wrong_usage():
        if check:
            _check(places[0], options, deep=deep, as_json=as_json)
        elif gc:
            _collect(places[0], options, parse_seconds(older_than), dry_run=dry_run, as_json=as_json)
        else:
            settings = _settings(
                until, max_rate, topic, work_dir, with_last=with_last, allow_gap=allow_gap, every_s=every_s
            )
            _archive(places[0], places[1], settings, commit_log, options, follow_every_s=every_s, as_json=as_json)


def _settings(
    until: str | None,
    max_rate: int | None,
    topics: list[str] | None,
    work_dir: str | None,
    *,
    with_last: bool,
    allow_gap: bool,
    every_s: float | None,
) -> ArchiveSettings:
    from commitlog_store.archive.archiver import ArchiveSettings
    from commitlog_store.archive.selected_topics import SelectedTopics
    from commitlog_store.cli.times import parse_time
    from commitlog_store.files import disk

    return ArchiveSettings(
        until_ms=None if until is None else parse_time(until),
        with_last=with_last,
        last_every_s=math.inf if every_s is None else every_s,
        allow_gap=allow_gap,
        max_rate=max_rate or 0,
        topics=SelectedTopics(topics) if topics else None,
        work_dir=None if work_dir is None else disk.absolute_path(work_dir),
    )


def _archive(
    path: str,
    url: str,
    settings: ArchiveSettings,
    commit_log: str | None,
    options: dict[str, str],
    *,
    follow_every_s: float | None,
    as_json: bool,
) -> None:
    """Archive what there is, or until a signal."""
    from commitlog_store.archive.archiver import open_archiver
    from commitlog_store.cli.progress import progress_bar

    with progress_bar("archiving") as progress:
        archiver = open_archiver(
            *(path, url, settings),
            store_path_commit_log=commit_log,
            options=options,
            progress=progress,
            idle_s=follow_every_s or 1.0,
        )
        try:
            if follow_every_s is not None:
                _follow(archiver, as_json=as_json, of_topics=settings.topics is not None)
            else:
                while not archiver.run_once():
                    pass
        finally:
            archiver.close()
    if follow_every_s is None:
        of_topics, report = settings.topics is not None, archiver.report()
        _print_report(report, as_json=as_json, with_last=settings.with_last, of_topics=of_topics)
        _say_unmatched(report, archiver.topics)


class _Stopped(Exception):
    """A signal came."""


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Ctrl-C and SIGTERM end the block, wherever it is: an archiver may be killed anywhere."""

    def stop(_number: int, _frame: object) -> None:
        raise _Stopped

    before = {one: signal.signal(one, stop) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except _Stopped:
        pass
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _follow(archiver: Archiver, *, as_json: bool, of_topics: bool) -> None:
    """Archive until a signal; an object store that does not answer is asked again."""
    from commitlog_store.cli.render import say
    from commitlog_store.errors import ArchiveFailed

    generation, failure = -1, ""
    with _stopped_by_signals():
        while True:
            try:
                pause = archiver.run_once()
                failure = ""
            except ArchiveFailed as error:
                if str(error) != failure:
                    say(printable_text(str(error)))
                failure, pause = str(error), 1.0
            report = archiver.report()
            if generation < 0:
                _say_unmatched(report, archiver.topics)
            if report.generation != generation:
                generation = report.generation
                _print_report(report, as_json=as_json, of_topics=of_topics)
            time.sleep(pause)


def _print_report(report: ArchiveReport, *, as_json: bool, with_last: bool = True, of_topics: bool) -> None:
    from rich.filesize import decimal

    from commitlog_store.cli.render import camel_members, json_text, say

    if as_json:
        print(json_text(camel_members(report, uploaded="uploadedBytes")), flush=True)
    elif not report.generation:
        advice = "" if with_last else "; --with-last archives the written part of the last one, too"
        why = "no log file with a message of the topics is closed" if of_topics else "no log file is closed"
        print(f"{printable_text(report.url)}: nothing to archive yet: {why}{advice}.", flush=True)
    else:
        print(
            f"{printable_text(report.url)}: physical offsets {report.start} to {report.stop} in "
            f"{counted(report.segments, 'segment')}, {report.added} of them now ({decimal(report.uploaded)})"
            + (f"; the store's log was read up to {report.source_stop}" if of_topics else ""),
            flush=True,
        )
    if report.strays:
        say(f"{counted(report.strays, 'record')} have no place in a queue: damaged, or of a topic that was made again.")


def _say_unmatched(report: ArchiveReport, topics: Callable[[], list[str]]) -> None:
    """Say which names and patterns match no topic; a later one may."""
    from commitlog_store.cli.render import say
    from commitlog_store.columnar.columns import nearest_name

    for one in report.unmatched:
        near = nearest_name(one, topics())
        hint = "" if near is None else f" Did you mean {printable_text(near)!r}?"
        say(f"No topic of the store matches {printable_text(one)!r}.{hint}")


def _check(url: str, options: dict[str, str], *, deep: bool, as_json: bool) -> None:
    from commitlog_store.archive.check import check_archive
    from commitlog_store.cli.progress import progress_bar

    with progress_bar("comparing") as progress:
        report = check_archive(url, deep=deep, options=options, progress=progress)
    _print_check(report, as_json=as_json)
    if report.problems:
        raise typer.Exit(1)


def _print_check(report: ArchiveCheckReport, *, as_json: bool) -> None:
    from rich.filesize import decimal

    from commitlog_store.cli.render import camel_members, json_text

    if as_json:
        print(json_text(camel_members(report, size="bytes", unnamed_size="unnamedBytes")))
        return
    print(
        f"{printable_text(report.url)}: generation {report.generation}, physical offsets {report.start} to "
        f"{report.stop}\n{counted(report.segments, 'segment')}, {counted(report.queues, 'queue')}, "
        f"{counted(report.objects, 'object')}, {decimal(report.size)}"
    )
    if report.topics is not None:
        print(f"topics: {', '.join(map(printable_text, report.topics))}")
    for start, stop in report.gaps:
        print(f"missing from the log: physical offsets {start} to {stop}")
    if report.strays:
        print(f"{counted(report.strays, 'record')} without a place in a queue")
    if report.unnamed:
        print(f"{counted(report.unnamed, 'object')} ({decimal(report.unnamed_size)}) not needed any more: --gc")
    for problem in report.problems[:_MOST_SHOWN]:
        print(f"wrong: {printable_text(problem)}")
    if len(report.problems) > _MOST_SHOWN:
        print(f"and {len(report.problems) - _MOST_SHOWN} more; --json has all")
    if not report.problems:
        print("nothing is wrong")


def _collect(url: str, options: dict[str, str], older_than_s: int, *, dry_run: bool, as_json: bool) -> None:
    from rich.filesize import decimal

    from commitlog_store.archive.gc import gc_archive
    from commitlog_store.cli.render import camel_members, json_text

    report = gc_archive(url, older_than_s=older_than_s, dry_run=dry_run, options=options)
    if as_json:
        members = {"url": report.url, "generation": report.generation, "dryRun": dry_run}
        print(json_text(members | camel_members(report, size="deletedBytes")))
        return
    done = "would be deleted" if dry_run else "deleted"
    young = f"; {report.young} are too young" if report.young else ""
    print(f"{printable_text(report.url)}: {counted(report.deleted, 'object')} {done} ({decimal(report.size)}){young}")


def restore(
    url: Annotated[str, typer.Argument(metavar="URL", help="The archive: s3://, gs://, az://, hdfs:// or file:///.")],
    directory: Annotated[str, typer.Argument(metavar="DIR", help="The new store directory.")],
    since: Since = None,
    endpoint: EndpointOption = None,
    as_json: AsJson = False,
) -> None:
    """Make a store directory of an archive: it opens here and in RocketMQ.

    Log files are downloaded into DIR.restoring and compared with their checksums; an interrupted restore continues
    there when it is repeated. Then queues and index are built from the log. --since leaves out the files before that
    time.
    """
    from commitlog_store.archive.restore import restore_store
    from commitlog_store.cli.progress import progress_bar
    from commitlog_store.cli.times import parse_time

    with wrong_usage(), progress_bar("restoring") as progress:
        report = restore_store(
            url,
            directory,
            since_ms=None if since is None else parse_time(since),
            options={} if endpoint is None else {"endpoint": endpoint},
            progress=progress,
        )
    _print_restored(report, as_json=as_json)


def _print_restored(report: RestoreReport, *, as_json: bool) -> None:
    from commitlog_store.cli.render import camel_members, json_text

    if as_json:
        print(json_text(camel_members(report)))
        return
    print(
        f"{printable_text(report.path)}: physical offsets {report.start} to {report.stop} in "
        f"{counted(report.files, 'log file')}, {report.downloaded} of them downloaded now"
    )
