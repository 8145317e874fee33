"""The subcommands of ``commitlog`` and their options."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from commitlog.cli import render, scan, summary
from commitlog.cli.message_lines import BadLine, Defaults, LineFormat, read_batches
from commitlog.config import FlushDiskType, MessageStoreConfig
from commitlog.errors import InvalidValue, MessageNotFound, StoreOpenError
from commitlog.format.message_rules import no_producers_fault
from commitlog.paths import validate_new_topic
from commitlog.reader import StoreReader

__all__ = ["ReaderGone", "app"]


class ReaderGone(Exception):
    """The reader of our output has closed it. Not an ``OSError``: click would make that an exit code of 1."""


class _Commands(TyperGroup):
    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError as error:
            raise ReaderGone from error
        return result


txn = typer.Typer(help="Batches that applications and streaming queries have committed.", no_args_is_help=True)
app = typer.Typer(
    cls=_Commands,
    help="Inspect a RocketMQ store directory: no broker, no lock; only 'produce', 'repair' and 'txn reset' write.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.add_typer(txn, name="txn")

StorePath = Annotated[str, typer.Argument(metavar="PATH", help="The store directory (it contains 'commitlog').")]
Topic = Annotated[str, typer.Argument(metavar="TOPIC")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON for programs: one object per line.")]
QueueOption = Annotated[
    int | None, typer.Option("--queue", "-q", min=0, help="Only this queue; default: all, in log order.")
]

SizeOption = Annotated[
    int | None, typer.Option(min=1, help="Bytes of a file; for a new store only.", show_default=False)
]
CountOption = Annotated[int | None, typer.Option(min=1, help="Of index files created from now on.", show_default=False)]
LockTimeout = Annotated[float, typer.Option(min=0, help="Seconds to wait for another owner.")]

_POLL_SECONDS = 0.25
_TIME_HELP = "ISO 8601, UTC unless it says otherwise, or milliseconds"


@app.command()
def info(
    path: StorePath,
    as_json: AsJson = False,
    queues: Annotated[bool, typer.Option("--queues", help="One row per queue, not per topic.")] = False,
    sizes: Annotated[
        bool, typer.Option("--sizes", help="Also the bytes of each queue's messages. Reads all consume queues.")
    ] = False,
) -> None:
    """Topics, queues, offsets and times of a store (UTC), and with --sizes the bytes of each queue."""
    with StoreReader.open(path) as reader:
        found = summary.summarize(reader, with_sizes=sizes)
    if as_json:
        print(render.json_text(found.to_json()))
    else:
        render.print_summary(found, with_queues=queues, with_sizes=sizes)


@app.command()
def cat(
    path: StorePath,
    topic: Topic,
    queue: QueueOption = None,
    offset: Annotated[int | None, typer.Option(min=0, help="Start at this queue offset (with --queue).")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help=f"Start at this store time: {_TIME_HELP}.")] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help=f"Stop before this store time: {_TIME_HELP}.")
    ] = None,
    count: Annotated[int | None, typer.Option("-n", "--count", min=0, help="At most this many messages.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print messages from the first one on, or from an offset or a time."""
    if offset is not None and (queue is None or since is not None):
        raise typer.BadParameter("--offset needs --queue, and excludes --since.", param_hint="--offset")
    begin = scan.parse_time(since) if since is not None else None
    end = scan.parse_time(until) if until is not None else None
    with StoreReader.open(path) as reader:
        ranges = scan.ranges(reader, topic, queue, offset=offset, begin=begin, end=end)
        _emit(islice(scan.messages(reader, ranges), count), as_json)


@app.command()
def tail(
    path: StorePath,
    topic: Topic,
    queue: QueueOption = None,
    count: Annotated[int, typer.Option("-n", "--count", min=0, help="Begin with this many newest messages.")] = 10,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new messages too; stop with Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the newest messages, and with -f new ones as they come."""
    with StoreReader.open(path) as reader:
        newest, position = scan.newest(reader, topic, queue, count)
        _emit(newest, as_json)
        while follow:
            ranges, position = scan.arrived(reader, topic, queue, position)
            _emit(scan.messages(reader, ranges), as_json)
            sys.stdout.flush()
            time.sleep(_POLL_SECONDS)


@app.command()
def get(
    path: StorePath,
    message: Annotated[str, typer.Argument(metavar="ID", help="A message id (hex) or a physical offset (decimal).")],
    as_json: AsJson = False,
) -> None:
    """Print one message, by its offset message id or by its physical offset."""
    with StoreReader.open(path) as reader:
        # Ids have 32 or 56 digits; no physical offset has more than 19.
        found = (
            reader.message_at(int(message))
            if message.isascii() and message.isdigit() and len(message) < 20
            else reader.message_by_id(message)
        )
    render.print_message(scan.as_row(found), as_json=as_json)


@app.command()
def query(
    path: StorePath,
    topic: Topic,
    key: Annotated[str, typer.Argument(metavar="KEY", help="One of a message's keys, or its unique key.")],
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help=f"Stored at or after this time: {_TIME_HELP}.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help=f"Stored at or before this time: {_TIME_HELP}.")
    ] = None,
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="At most this many, the newest.")] = 64,
    as_json: AsJson = False,
) -> None:
    """Print the messages of a topic that carry a key, found through the index files."""
    begin = scan.parse_time(since) if since is not None else 0
    end = scan.parse_time(until) if until is not None else 2**63 - 1
    with StoreReader.open(path) as reader:
        found = reader.query(topic, key, begin=begin, end=end, limit=count)
    if not found:
        raise MessageNotFound(f"No message of topic {topic!r} with key {key!r} in the index of {path}.")
    _emit((scan.as_row(message) for message in found), as_json)


@app.command()
def verify(path: StorePath, as_json: AsJson = False) -> None:
    """Check every record, unit and index entry against each other. Reads everything, changes nothing.

    Exit code 1 for an error; notes (normal after a crash or beside an owner at work) are not errors.
    """
    from commitlog.cli.progress import progress_bar
    from commitlog.cli.verify import print_report
    from commitlog.verify.store import verification_report

    try:
        with progress_bar("verifying") as progress:
            report = verification_report(path, progress=progress)
    except StoreOpenError as error:
        _say(error)
        raise typer.Exit(2) from error
    print_report(report, as_json=as_json)
    if report.errors:
        raise typer.Exit(1)


@app.command()
def produce(
    path: StorePath,
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="For messages without a topic.")] = None,
    line_format: Annotated[
        LineFormat, typer.Option("--format", help="A line is the text of a body, or a JSON object.")
    ] = LineFormat.LINES,
    ndjson: Annotated[bool, typer.Option("--ndjson", help="The same as --format ndjson.")] = False,
    tags: Annotated[str | None, typer.Option(help="For messages without tags.")] = None,
    key: Annotated[str | None, typer.Option(help="For messages without keys.")] = None,
    queue_id: Annotated[int | None, typer.Option(min=0, help="For messages without one; default: in turn.")] = None,
    sync: Annotated[bool, typer.Option("--sync/--async", help="Wait for the device, or flush later.")] = True,
    batch_size: Annotated[int, typer.Option(min=1, help="Messages that are put at once, at most.")] = 1000,
    create: Annotated[bool, typer.Option("--create/--no-create", help="Create a store that does not exist.")] = False,
    lock_timeout: LockTimeout = 0.0,
    as_json: AsJson = False,
    mapped_file_size_commit_log: SizeOption = None,
    mapped_file_size_consume_queue: SizeOption = None,
    max_hash_slot_num: CountOption = None,
    max_index_num: CountOption = None,
) -> None:
    """Put messages from standard input, one per line, into a store. Takes the store's lock.

    It stops at the first line that is not a message, or that the store refuses: the lines before it are put, and none
    after it.

    The fields of a JSON line: body or bodyBase64, topic, tags, keys (a string or a list), queueId, properties, flag,
    delayLevel, shardingKey.
    """
    from commitlog.cli import produce as put

    line_format = LineFormat.NDJSON if ndjson else line_format
    sizes = {
        "mapped_file_size_commit_log": mapped_file_size_commit_log,
        "mapped_file_size_consume_queue": mapped_file_size_consume_queue,
        "max_hash_slot_num": max_hash_slot_num,
        "max_index_num": max_index_num,
    }
    given = {name: size for name, size in sizes.items() if size is not None}
    flush = FlushDiskType.SYNC_FLUSH if sync else FlushDiskType.ASYNC_FLUSH
    config = _checked_config(given | {"flush_disk_type": flush}, topic, line_format)
    fixed = [name for name in given if name.startswith("mapped_file_size")]
    if fixed and put.is_store(path):
        option = "--" + fixed[0].replace("_", "-")
        raise typer.BadParameter(f"{path} is a store already and keeps its sizes.", param_hint=option)
    defaults = Defaults(topic=topic, tags=tags, key=key, queue_id=queue_id)
    if sys.stdin is None:
        _say("Standard input is closed; messages are read from there, one per line.")
        raise typer.Exit(2)
    batches = read_batches(sys.stdin.buffer, line_format, defaults, batch_size)
    store = put.open_store(path, config, create=create, lock_timeout_s=lock_timeout)
    try:
        put.put_batches(store, batches, as_json=as_json)
    except (BadLine, put.Refused, put.OutputGone) as error:
        _say(error)
        raise typer.Exit(1) from error


@app.command()
def repair(
    path: StorePath,
    cut_at: Annotated[
        int | None, typer.Option(min=0, metavar="OFFSET", help="End the log there; keep the rest in 'repair'.")
    ] = None,
    lock_timeout: LockTimeout = 0.0,
    as_json: AsJson = False,
) -> None:
    """Report why a store cannot be opened, and which messages a cut would remove; with --cut-at, cut.

    Opens the store as an owner does, which after a crash recovers it. Exit code 1 when it does not open.
    """
    from commitlog.cli.repair import print_repair
    from commitlog.cli.repair import repair as look_or_cut

    report = look_or_cut(path, cut_at, lock_timeout)
    print_repair(report, as_json=as_json)
    if report.damage is not None and report.kept_in is None:
        raise typer.Exit(1)


@txn.command("ls")
def txn_list(path: StorePath, as_json: AsJson = False) -> None:
    """The last batch of every application or streaming query. Takes no lock."""
    from commitlog.cli.txn import print_batches

    with StoreReader.open(path) as reader:
        print_batches(reader.batches(), as_json=as_json)


@txn.command("reset")
def txn_reset(
    path: StorePath,
    application: Annotated[str, typer.Argument(metavar="QUERY", help="A query's id, or an application's.")],
    lock_timeout: LockTimeout = 0.0,
) -> None:
    """Forget what a query or application has committed: its next batch is written, whatever its number.

    Messages stay as they are. Takes the store's lock. Exit code 1 if the store does not know it.
    """
    from commitlog.cli.txn import forget

    try:
        print(forget(path, application, lock_timeout))
    except InvalidValue as error:
        _say(error)
        raise typer.Exit(1) from error


def _checked_config(settings: dict[str, Any], topic: str | None, line_format: LineFormat) -> MessageStoreConfig:
    """The store's configuration; wrong usage is reported before a store is opened, or created."""
    if topic is None and line_format is LineFormat.LINES:
        raise typer.BadParameter("Lines of text have no topic; give one.", param_hint="--topic")
    try:
        if topic is not None:
            validate_new_topic(topic)
            if fault := no_producers_fault(topic):
                raise typer.BadParameter(f"{fault}.", param_hint="--topic")
        return MessageStoreConfig.from_mapping(settings)
    except InvalidValue as error:
        raise typer.BadParameter(str(error)) from error


def _say(what: Exception | str) -> None:
    sys.stdout.flush()
    print(f"commitlog: {what}", file=sys.stderr)


def _emit(rows: Iterator[dict[str, Any]], as_json: bool) -> None:
    for row in rows:
        render.print_line(row, as_json=as_json)
