"""Commands that save what is left of a damaged store: ``salvage``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from commitlog_store.cli.exit_codes import wrong_usage
from commitlog_store.cli.options import REPAIR, AsJson, CountOption, StorePath, examples
from commitlog_store.queries.texts import printable_text

if TYPE_CHECKING:
    from commitlog_store.salvage.report import SalvageReport


def register(app: typer.Typer) -> None:
    app.command(
        rich_help_panel=REPAIR,
        epilog=examples(
            "commitlog salvage /data/broken",
            "commitlog salvage /data/broken --to /data/salvaged",
            "commitlog salvage /data/broken/commitlog --to parquet:/lake/salvaged",
            "commitlog salvage /data/broken --to ndjson:salvaged.ndjson --json",
        ),
    )(salvage)


def salvage(
    path: StorePath,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="TARGET", help="DIR (a new store), parquet:DIR, ndjson:FILE, csv:FILE."),
    ] = None,
    uncommitted: Annotated[
        bool, typer.Option("--uncommitted", help="Also take the rows of a batch that a crash left unfinished.")
    ] = False,
    as_json: AsJson = False,
    max_hash_slot_num: CountOption = None,
    max_index_num: CountOption = None,
) -> None:
    """Bring every whole record of a damaged log into a new store, or into files; report what is lost.

    PATH is a store, of which only 'commitlog' is needed, or a directory of CommitLog files. Nothing in it changes: it
    may be on a read-only mount. A store in use is refused: salvage a copy. Without --to, the report says what a salvage
    would find.

    A new store opens in RocketMQ and here. Its files have the names of the old ones, records keep their store times,
    and those of files without damage their places and message ids. Queues have no gaps: where offsets are lost, the
    messages before them get higher offsets, or, in a log that begins at 0, those after them lower ones. The report
    lists them, and the positions of consumers in 'config' move along. Files get the messages that consumers see, with
    their old offsets.

    Exit code 1 when anything is lost or unreadable.
    """
    from commitlog_store.cli.progress import progress_bar
    from commitlog_store.config import MessageStoreConfig
    from commitlog_store.salvage.salvage_store import salvage_store

    counts = {"max_hash_slot_num": max_hash_slot_num, "max_index_num": max_index_num}
    with wrong_usage(), progress_bar("salvaging") as progress:
        config = MessageStoreConfig.from_mapping({name: count for name, count in counts.items() if count is not None})
        report = salvage_store(path, to, config=config, uncommitted=uncommitted, progress=progress)
    if as_json:
        _print_json(report)
    else:
        _print_report(report)
    if not report.is_whole:
        raise typer.Exit(1)


def _print_json(report: SalvageReport) -> None:
    from commitlog_store.cli.render import camel_members, json_text

    plain: dict[str, Any] = camel_members(report)
    plain |= {"found": report.found, "lost": report.lost, "unreadableBytes": report.unreadable_bytes}
    plain["topics"] = [
        camel_members(one) | {"lostOffsets": [camel_members(hole) for hole in one.lost_offsets]}
        for one in report.topics
    ]
    for name in ("unreadable", "batches", "moved", "misnamed"):
        plain[name] = [camel_members(one) for one in getattr(report, name)]
    print(json_text(plain))


def _print_report(report: SalvageReport) -> None:
    from rich.filesize import decimal
    from rich.table import Table
    from rich.text import Text

    from commitlog_store.cli.console import print_table, uncut_console
    from commitlog_store.cli.topic_table import topic_table

    console = uncut_console()
    console.print(Text(printable_text(report.path), style="bold"))
    numbers = ("found", "lost", "prepared", "committed", "rolled_back")
    print_table(topic_table(report.topics, numbers))
    _print_batches_and_moves(report)
    if report.unreadable:
        console.print(
            Text(f"unreadable: {len(report.unreadable)} stretches, {decimal(report.unreadable_bytes)}", "red")
        )
        stretches = Table("from", "to", "bytes", "content", box=None, pad_edge=False)
        for start, stop, what in report.unreadable:
            stretches.add_row(str(start), str(stop), str(stop - start), Text(printable_text(what)))
        print_table(stretches)
    size = decimal(report.record_bytes)
    console.print(
        Text(f"{report.records} records, {size}; {report.found} messages found, {report.lost} known to be lost")
    )
    if report.target is not None:
        console.print(Text(f"in {printable_text(report.target)}"))


def _print_batches_and_moves(report: SalvageReport) -> None:
    from rich.table import Table
    from rich.text import Text

    from commitlog_store.cli.console import print_table, uncut_console
    from commitlog_store.cli.topic_table import offset_range

    for name, belongs in report.misnamed:
        uncut_console().print(Text(f"file {name}: its records belong into {belongs}, and were taken for that"))
    for batch in report.batches:
        fate = (
            "taken as plain messages" if batch.taken else "not taken: it was not committed (--uncommitted takes them)"
        )
        found = f"{batch.rows_found} of {batch.rows} messages whole, {fate}"
        uncut_console().print(Text(f"batch {printable_text(batch.app_id)} {batch.version}: {found}"))
    if report.half_messages_settled:
        uncut_console().print(
            Text(
                "half messages: their queue has moved, and op messages name them by old offsets. None is pending in a "
                "new store; 'commitlog half ls --from-log' on this one lists those that are."
            )
        )
    if report.moved:
        table = Table("topic", "queue", "offsets", "are now", box=None, pad_edge=False)
        for topic, queue_id, start, stop, new in report.moved:
            table.add_row(
                Text(printable_text(topic)),
                str(queue_id),
                offset_range(start, stop),
                offset_range(new, new + stop - start),
            )
        print_table(table)
