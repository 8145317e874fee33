"""Commands that print the raw contents of a store's files: ``dump-log``, ``dump-queue`` and ``dump-index``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated, Any

import typer

from commitlog_store.cli.completion import complete_queue, complete_topic
from commitlog_store.cli.dump import (
    ENTRY_COLUMNS,
    RECORD_COLUMNS,
    UNIT_COLUMNS,
    index_entries,
    index_files,
    log_records,
)
from commitlog_store.cli.dump import queue_units as units_of
from commitlog_store.cli.options import (
    DUMP,
    AsJson,
    Output,
    OutputFormat,
    ZoneOption,
    chosen_output,
    examples,
)
from commitlog_store.cli.row_output import print_lines
from commitlog_store.cli.times import Clock, parse_zone

__all__ = ["dump_index", "dump_log", "dump_queue", "register"]

Place = Annotated[str, typer.Argument(metavar="PATH", help="A file, its directory, or a store.")]
Count = Annotated[int | None, typer.Option("--count", "-n", min=0, metavar="COUNT", help="At most this many rows.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        "dump-log",
        rich_help_panel=DUMP,
        epilog=examples(
            "commitlog dump-log /data/store/commitlog/00000000000000000000 -n 10",
            "commitlog dump-log /data/store --offset 96593 --deep --json",
        ),
    )(dump_log)
    app.command(
        "dump-queue",
        rich_help_panel=DUMP,
        epilog=examples(
            "commitlog dump-queue /data/store orders -q 2 --offset 100 -n 10",
            "commitlog dump-queue /data/store/consumequeue/orders/2/00000000000000000000",
        ),
    )(dump_queue)
    app.command(
        "dump-index",
        rich_help_panel=DUMP,
        epilog=examples(
            "commitlog dump-index /data/store --header", "commitlog dump-index /data/store/index/20261121083655123"
        ),
    )(dump_index)


def dump_log(
    path: Place,
    offset: Annotated[int, typer.Option(min=0, metavar="OFFSET", help="Begin at this physical offset.")] = 0,
    count: Count = None,
    deep: Annotated[bool, typer.Option("--deep", help="Also properties and bodies, with their CRC checked.")] = False,
    tz: ZoneOption = "UTC",
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Print the records of a log as they lie, those after damage too.

    A stretch without a whole record is a row with a fault, and the exit code is 1 then. No queue or index is used.
    """
    rows = islice(log_records(path, offset, Clock(parse_zone(tz)), deep=deep), count)
    faults: list[Any] = []

    def watched() -> Iterator[dict[str, Any]]:
        for row in rows:
            faults.extend([row["fault"]] if row["fault"] is not None and not faults else [])
            yield row

    columns = (*RECORD_COLUMNS, "properties", "body") if deep else RECORD_COLUMNS
    print_lines(columns, watched(), chosen_output(output, as_json))
    if faults:
        raise typer.Exit(1)


def dump_queue(
    path: Place,
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="For a store.", autocompletion=complete_topic)
    ] = None,
    queue: Annotated[
        int,
        typer.Option("--queue", "-q", min=0, metavar="QUEUE", help="For a store.", autocompletion=complete_queue),
    ] = 0,
    offset: Annotated[int, typer.Option(min=0, metavar="OFFSET", help="Begin at this queue offset.")] = 0,
    count: Count = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Print the written units of a consume queue as they are: nothing is checked, and the log is not read."""
    rows = islice(units_of(path, topic, queue, offset), count)
    print_lines(UNIT_COLUMNS, rows, chosen_output(output, as_json))


def dump_index(
    path: Place,
    header: Annotated[bool, typer.Option("--header", help="Only the headers.")] = False,
    count: Count = None,
    tz: ZoneOption = "UTC",
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Print the header of each index file, and its entries. CSV has one of them: entries, or with --header headers."""
    clock, form = Clock(parse_zone(tz)), chosen_output(output, as_json)
    dumps = [index_entries(file, clock) for file in index_files(path)]
    if header:
        heads = [head for head, _ in dumps]
        print_lines(tuple(heads[0]), heads, form)
        return
    if form is OutputFormat.CSV:
        print_lines(ENTRY_COLUMNS, islice((row for _, rows in dumps for row in rows), count), form)
        return
    for head, rows in dumps:
        print_lines(tuple(head), [head], form)
        entries: Iterable[dict[str, Any]] = islice(rows, count)
        print_lines(ENTRY_COLUMNS, entries, form)
