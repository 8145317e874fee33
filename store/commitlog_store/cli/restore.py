"""Command that makes a store of an archive: ``restore``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from commitlog_store.cli.exit_codes import wrong_usage
from commitlog_store.cli.options import ARCHIVE, AsJson, EndpointOption, Since, examples
from commitlog_store.queries.texts import counted, printable_text

if TYPE_CHECKING:
    from commitlog_store.archive.restore import RestoreReport


def register(app: typer.Typer) -> None:
    app.command(
        rich_help_panel=ARCHIVE,
        epilog=examples(
            "commitlog restore s3://bucket/orders /data/restored",
            "commitlog restore s3://bucket/orders /data/restored --since 2026-11-01",
        ),
    )(restore)


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
    _print_report(report, as_json=as_json)


def _print_report(report: RestoreReport, *, as_json: bool) -> None:
    from commitlog_store.cli.render import camel_members, json_text

    if as_json:
        print(json_text(camel_members(report)))
        return
    print(
        f"{printable_text(report.path)}: physical offsets {report.start} to {report.stop} in "
        f"{counted(report.files, 'log file')}, {report.downloaded} of them downloaded now"
    )
