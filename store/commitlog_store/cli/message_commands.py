"""Commands that print messages: ``cat``, ``tail``, ``get`` and ``query``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import pyarrow as pa
import typer

from commitlog_store.cli.message_options import (
    ALL_MESSAGES,
    AS_STORED,
    LINES,
    ONE_MESSAGE,
    LineStyle,
    MessageStyle,
    Reading,
    Selection,
)
from commitlog_store.cli.message_output import MessageOutput
from commitlog_store.cli.open_reader import say_lost_ends
from commitlog_store.cli.options import (
    AS_TABLE,
    LOOK,
    CommitLogDir,
    OutputChoice,
    OutputFormat,
    QueueOption,
    Since,
    StorePath,
    Topics,
    Until,
    count_option,
    examples,
    topic_option,
)
from commitlog_store.cli.progress import count_bar
from commitlog_store.cli.render import say, stop_without_reader
from commitlog_store.cli.storage_options import NO_STORAGE, Storage, takes_storage
from commitlog_store.cli.times import parse_time
from commitlog_store.columnar.columns import arrow_schema
from commitlog_store.filter.message_filter import MessageFilter
from commitlog_store.java_numbers import MAX_LONG
from commitlog_store.message import MessageExt
from commitlog_store.queries import scan
from commitlog_store.queries.body_pattern import BodyPattern
from commitlog_store.queries.chosen_topics import chosen_topics
from commitlog_store.queries.find_message import find_by_key, find_message
from commitlog_store.queries.scan_back import MOST_LOOKED_AT, newest_matching
from commitlog_store.reader import StoreReader

# How often to look for new queues, and for new topics that match a pattern.
_LOOK_SECONDS = 0.25
_ANY_BODY = BodyPattern()

BodyOption = Annotated[bool, typer.Option("--body", help="Only the bodies: their bytes, nothing between them.")]


def register(app: typer.Typer) -> None:
    app.command(
        rich_help_panel=LOOK,
        epilog=examples(
            "commitlog cat /data/store orders -n 10",
            "commitlog cat /data/store orders 'pay*' --since 2h --tag 'paid || sent' --json",
            "commitlog cat /data/store orders --filter \"amount > 100 AND region IN ('eu', 'us')\"",
            "commitlog cat /data/store orders -q 0 --offset 4711 -n 1 --body > message.bin",
            r"commitlog cat /data/store orders --format '%t/%q@%o %k %s\n'",
            "commitlog cat /data/store orders --decode 'orders=avro:/data/schemas' --json",
        ),
    )(cat)
    app.command(
        rich_help_panel=LOOK,
        epilog=examples(
            "commitlog tail /data/store orders",
            "commitlog tail /data/store 'order*' -f --json",
            "commitlog tail /data/store orders -n 3 --tag paid",
        ),
    )(tail)
    app.command(
        rich_help_panel=LOOK,
        epilog=examples(
            "commitlog get /data/store 965700",
            "commitlog get /data/store 0A01020300002A9F00000000000EBC44",
            "commitlog get /data/store C0A80109000018B4AAC2 --topic orders --body",
        ),
    )(get)
    app.command(
        rich_help_panel=LOOK,
        context_settings={"allow_extra_args": True},
        epilog=examples(
            "commitlog query /data/store k75",
            "commitlog query /data/store k75 --topic orders --topic 'pay*' --since 1d",
        ),
    )(query)


@takes_storage
def cat(
    path: StorePath,
    topics: Topics,
    commit_log: CommitLogDir = None,
    queue: QueueOption = None,
    offset: Annotated[
        int | None, typer.Option(min=0, metavar="OFFSET", help="Begin at this queue offset (with --queue).")
    ] = None,
    since: Since = None,
    until: Until = None,
    count: Annotated[int | None, count_option("At most this many messages.")] = None,
    selection: Selection = ALL_MESSAGES,
    body: BodyOption = False,
    style: LineStyle = LINES,
    reading: Reading = AS_STORED,
    output: OutputChoice = AS_TABLE,
    storage: Storage = NO_STORAGE,
) -> None:
    """Print messages from the first one on, or from an offset or a time."""
    if offset is not None and (queue is None or since is not None or len(topics) > 1):
        raise typer.BadParameter("--offset needs one topic and --queue, and excludes --since.", param_hint="--offset")
    zone = style.clock().zone
    begin, end = (None if text is None else parse_time(text, zone) for text in (since, until))
    output_of = style.output(output.form(), body=body)
    pattern, chosen = selection.pattern(), selection.filter()
    with style.decoding() as decoders, reading.open(path, commit_log, storage) as reader:
        out = output_of(decoders)
        found = scan.ranges(reader, chosen_topics(reader, topics), queue, offset=offset, begin=begin, end=end)
        is_whole = _print(reader, found, out, chosen, pattern, count, verify_crc=reading.verify_crc) and end is None
        lost = is_whole and say_lost_ends(reader.lost_ends(), reader.for_shell)
    if lost:
        raise typer.Exit(1)


@takes_storage
def tail(
    path: StorePath,
    topics: Topics,
    commit_log: CommitLogDir = None,
    queue: QueueOption = None,
    count: Annotated[int, count_option("Begin with this many newest messages.")] = 10,
    since: Since = None,
    selection: Selection = ALL_MESSAGES,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new messages too; stop with Ctrl-C.")] = False,
    style: LineStyle = LINES,
    reading: Reading = AS_STORED,
    output: OutputChoice = AS_TABLE,
    storage: Storage = NO_STORAGE,
) -> None:
    """Print the newest messages, and with -f new ones as they come.

    With a filter these are the newest that match. It looks back over a million messages for them; with --since, back
    to that time.
    """
    begin = None if since is None else parse_time(since, style.clock().zone)
    output_of = style.output(output.form())
    pattern, chosen, verify_crc = selection.pattern(), selection.filter(), reading.verify_crc
    with style.decoding() as decoders, reading.open(path, commit_log, storage) as reader:
        out = output_of(decoders)
        whole = scan.ranges(reader, chosen_topics(reader, topics), queue, begin=begin)
        position = scan.after(whole)
        if chosen.is_all and pattern.pattern is None:
            _print(reader, scan.newest(reader, whole, count), out, verify_crc=verify_crc)
        else:
            most = None if since else MOST_LOOKED_AT
            _print_newest_matching(reader, whole, out, chosen, pattern, count, most=most, verify_crc=verify_crc)
        while follow:
            # Topics that match a pattern may appear at any time.
            found, position = scan.arrived(reader, chosen_topics(reader, topics), queue, position)
            _print(reader, found, out, chosen, pattern, verify_crc=verify_crc)
            sys.stdout.flush()
            reader.wait_for_any(position, _LOOK_SECONDS)
            stop_without_reader()
        lost = say_lost_ends(reader.lost_ends(), reader.for_shell)
    if lost:
        raise typer.Exit(1)


@takes_storage
def get(
    path: StorePath,
    message: Annotated[str, typer.Argument(metavar="ID", help="A physical offset, a message id, or a unique key.")],
    commit_log: CommitLogDir = None,
    topic: Annotated[str | None, topic_option("Where to look for a unique key; default: all topics.")] = None,
    body: BodyOption = False,
    style: MessageStyle = ONE_MESSAGE,
    reading: Reading = AS_STORED,
    output: OutputChoice = AS_TABLE,
    storage: Storage = NO_STORAGE,
) -> None:
    """Print one message, by its physical offset (decimal), its offset message id (hex), or its unique key.

    Unique keys are looked up in the index files, topic by topic. In an archive that costs a request for each of its
    log files and topics: name the --topic.
    """
    form = output.form()
    output_of = style.output(form, body=body)
    with style.decoding() as decoders, reading.open(path, commit_log, storage) as reader:
        found = find_message(reader, message, topic, verify_crc=reading.verify_crc)
        if form is OutputFormat.TABLE and not body and style.line_format is None:
            from commitlog_store.cli.console import print_message

            row = scan.as_row(found)
            decoded = decoders.decode(found.topic, found.body)
            if decoded is not None and decoded.json is not None:
                row["body"] = decoded.json.encode(errors="replace")
            print_message({name: row[name] for name in style.names() or scan.ROW_COLUMNS}, style.clock())
        else:
            _write(output_of(decoders), [found])


@takes_storage
def query(
    ctx: typer.Context,
    path: StorePath,
    key: Annotated[str, typer.Argument(metavar="KEY", help="One of a message's keys, or its unique key.")],
    commit_log: CommitLogDir = None,
    topic: Annotated[list[str] | None, topic_option("Name or shell pattern, repeatable; default: all topics.")] = None,
    since: Since = None,
    until: Until = None,
    count: Annotated[int, count_option("At most this many, the newest.", least=1)] = 64,
    style: LineStyle = LINES,
    reading: Reading = AS_STORED,
    output: OutputChoice = AS_TABLE,
    storage: Storage = NO_STORAGE,
) -> None:
    """Print the messages that carry a key, found through the index files, in the order of the log.

    In an archive that costs a request for each of its log files of that time.
    """
    if ctx.args:
        form = f"commitlog query {path} {ctx.args[0]} --topic {key}"
        say(f"The key comes first, and topics are options: {form}")
        raise typer.Exit(2)
    zone = style.clock().zone
    begin = parse_time(since, zone) if since is not None else 0
    end = parse_time(until, zone) if until is not None else MAX_LONG
    output_of = style.output(output.form())
    with style.decoding() as decoders, reading.open(path, commit_log, storage) as reader:
        out = output_of(decoders)
        found = find_by_key(reader, key, topic or [], begin=begin, end=end, limit=count, verify_crc=reading.verify_crc)
        _write(out, found)


def _print(
    reader: StoreReader,
    wanted: Sequence[scan.Range],
    out: MessageOutput,
    chosen: MessageFilter = scan.ALL,
    pattern: BodyPattern = _ANY_BODY,
    count: int | None = None,
    *,
    verify_crc: bool,
) -> bool:
    """Print the messages of ranges that the filter and the pattern choose, at most ``count``. Whether these are all."""
    out.write(arrow_schema(out.columns).empty_table())
    names = [*out.columns, *pattern.columns]
    with count_bar("reading", scan.count_of(wanted)) as advance:
        for table in () if count == 0 else scan.merged(reader, wanted, names, chosen, advance, verify_crc):
            kept = pattern.apply(table).slice(0, count)
            out.write(kept)
            if count is not None:
                count -= kept.num_rows
                if not count:
                    return False
    return count != 0


def _print_newest_matching(
    reader: StoreReader,
    wanted: Sequence[scan.Range],
    out: MessageOutput,
    chosen: MessageFilter,
    pattern: BodyPattern,
    count: int,
    *,
    most: int | None,
    verify_crc: bool,
) -> None:
    """Print the newest messages of ranges that match; say so where older ones were not looked at."""
    out.write(arrow_schema(out.columns).empty_table())
    with count_bar("looking back", min(scan.count_of(wanted), most or scan.count_of(wanted))) as advance:
        found = newest_matching(
            reader, wanted, count, out.columns, chosen, pattern, most=most, advance=advance, verify_crc=verify_crc
        )
    for table in found.tables:
        out.write(table)
    rows = sum(table.num_rows for table in found.tables)
    if rows < count and found.left:
        say(
            f"{rows} of the newest {found.looked_at} messages match; {found.left} older ones were not looked at. "
            "--since TIME looks further back."
        )


def _write(out: MessageOutput, messages: Sequence[MessageExt]) -> None:
    out.write(pa.Table.from_pylist([scan.arrow_row(message) for message in messages], arrow_schema(out.columns)))
