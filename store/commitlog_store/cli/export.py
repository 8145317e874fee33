"""Commands that copy messages out of a store: ``export``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from commitlog_store.cli.completion import complete_columns, one_of
from commitlog_store.cli.exit_codes import wrong_usage
from commitlog_store.cli.open_reader import NoVerifyCrcOption, OnDamage, OnDamageOption, say_lost_ends
from commitlog_store.cli.options import (
    LOOK,
    AsJson,
    CommitLogDir,
    FilterOption,
    Since,
    StorePath,
    TagOption,
    Until,
    examples,
    topic_option,
)
from commitlog_store.cli.storage_options import NO_STORAGE, Storage, takes_storage
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.queries.texts import counted, printable_text

if TYPE_CHECKING:
    from commitlog_store.export.export_store import ExportReport


_COMPRESSIONS = ("none", "snappy", "lz4", "zstd", "gzip", "brotli")


_Topics = Annotated[
    list[str] | None,
    topic_option("Name or shell pattern, repeatable; default: all but system topics, which only a name takes."),
]
_Columns = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="Columns, separated by commas. Default: what a put takes back, and the place of each message.",
        autocompletion=complete_columns,
    ),
]
_Compression = Annotated[
    str,
    typer.Option(
        metavar="CODEC",
        help=f"Of Parquet files: {', '.join(_COMPRESSIONS)}.",
        autocompletion=one_of(*_COMPRESSIONS),
    ),
]


def register(app: typer.Typer) -> None:
    app.command(
        rich_help_panel=LOOK,
        epilog=examples(
            "commitlog export /data/store --to parquet:/lake/orders --topic 'orders*'",
            "commitlog export /data/store --to parquet:/lake/orders --topic 'orders*' --resume",
            "commitlog export /data/store --to ndjson:paid.ndjson -t orders --tag 'paid || sent' --since 2h",
            "commitlog export /data/store --to csv:keys.csv -t orders --columns queueId,queueOffset,keys,tags",
        ),
    )(export)


@takes_storage
def export(
    path: StorePath,
    to: Annotated[str, typer.Option(metavar="TARGET", help="parquet:DIR, ndjson:FILE, csv:FILE; s3:// too.")],
    commit_log: CommitLogDir = None,
    topic: _Topics = None,
    since: Since = None,
    until: Until = None,
    tag: TagOption = None,
    where: FilterOption = None,
    columns: _Columns = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the export that filled this target.")] = False,
    from_log: Annotated[
        bool, typer.Option("--from-log", help="Derive the queues from the log: for missing or damaged queues.")
    ] = False,
    on_damage: OnDamageOption = OnDamage.RAISE,
    no_verify_crc: NoVerifyCrcOption = False,
    compression: _Compression = "snappy",
    as_json: AsJson = False,
    storage: Storage = NO_STORAGE,
) -> None:
    """Copy messages into Parquet, JSON lines or CSV. Changes nothing in the store.

    Parquet files are DIR/topic=NAME/part-*.parquet, which Spark, DuckDB and pyarrow read as one table with a column
    'topic'. JSON lines are those of 'cat --json', and 'produce --ndjson' takes them back.

    DIR/_export.json or FILE.export.json records how far an export has come, in object storage _export/. After an
    interruption, or when the store has grown, --resume continues there with the same options: each row is in the
    target exactly once. It is refused when the store has lost messages that were exported.

    Damage ends the export: resume it with --on-damage skip to leave out what cannot be read. The report and the state
    count it by topic, and the exit code is 1.
    """
    from commitlog_store.cli.progress import progress_bar
    from commitlog_store.cli.times import parse_time
    from commitlog_store.cli.values import parse_filter
    from commitlog_store.export.export_store import EXPORT_COLUMNS, export_store
    from commitlog_store.export.targets import parse_target

    if compression not in _COMPRESSIONS:
        raise typer.BadParameter(f"one of {', '.join(_COMPRESSIONS)}, not {compression!r}.", param_hint="--compression")
    chosen = parse_filter(tag=tag, where=where)
    with wrong_usage(), progress_bar("exporting", counts="messages") as progress:
        report = export_store(
            path,
            parse_target(to, objects=True),
            topics=topic or (),
            since=None if since is None else parse_time(since),
            until=None if until is None else parse_time(until),
            tags=None if chosen.tags is None else chosen.tags.tags,
            filter=where,
            columns=EXPORT_COLUMNS if columns is None else [name.strip() for name in columns.split(",")],
            resume=resume,
            from_log=from_log,
            on_damage=on_damage.value,
            verify_crc=not no_verify_crc,
            store_path_commit_log=commit_log,
            **storage.arguments(path),
            compression=compression,
            progress=progress,
        )
    _print_report(report, as_json=as_json)
    lost = say_lost_ends(report.lost_ends, StorePaths.of(path, commit_log).for_shell)
    _say_skipped(report)
    if lost or report.skipped:
        raise typer.Exit(1)


def _say_skipped(report: ExportReport) -> None:
    from commitlog_store.cli.render import say

    if not report.skipped:
        return
    by_topic = ", ".join(f"{printable_text(topic)} {count}" for topic, count in sorted(report.skipped.items()))
    say(f"{counted(sum(report.skipped.values()), 'message')} skipped because of damage: {by_topic}.")


def _print_report(report: ExportReport, *, as_json: bool) -> None:
    from rich.filesize import decimal

    from commitlog_store.cli.render import json_text
    from commitlog_store.export.targets import ExportFormat

    is_parquet = report.target.format is ExportFormat.PARQUET
    if as_json:
        plain = {
            "target": str(report.target),
            "topics": report.topics,
            "rows": report.rows,
            "totalRows": report.total_rows,
            "skipped": report.skipped,
            "totalSkipped": report.total_skipped,
            "lostEnds": report.lost_ends,
            "files" if is_parquet else "bytes": report.committed,
        }
        print(json_text(plain))
        return
    what = counted(report.committed, "file") if is_parquet else decimal(report.committed)
    more = "" if report.rows == report.total_rows else f", {report.rows} of them now"
    skipped = sum(report.total_skipped.values())
    without = f", {counted(skipped, 'message')} skipped" if skipped else ""
    where = printable_text(report.target.path)
    rows, topics = counted(report.total_rows, "row"), counted(len(report.topics), "topic")
    print(f"{rows} of {topics}{more}{without}: {what} in {where}")
