"""``commitlog produce``: puts messages from stdin into a store, which this process owns until the end of the input.

It stops at the first line that is not put: the lines before it are in the store, and none after it. Once that line is
corrected, the input can continue from there.
"""

from __future__ import annotations

import dataclasses
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import IO, Annotated, Any

import numpy as np
import orjson
import typer

from commitlog_store.cli.completion import complete_queue, complete_topic
from commitlog_store.cli.message_lines import BadLine, Defaults, MessageBatch, read_batches
from commitlog_store.cli.options import (
    WRITE,
    BrokerConf,
    CommitLogDir,
    CountOption,
    LineFormat,
    LockTimeout,
    SizeOption,
    StorePath,
    examples,
)
from commitlog_store.cli.owner_config import broker_settings
from commitlog_store.cli.progress import count_bar, progress_bar
from commitlog_store.cli.render import counted, drop_output, say
from commitlog_store.columnar.encode import RecordSettings, encode_messages
from commitlog_store.columnar.input import message_schema, parse_messages
from commitlog_store.columnar.message_table import message_chunks
from commitlog_store.config import BrokerProperties, FlushDiskType, MessageStoreConfig
from commitlog_store.engine.put_table import PutTableResult
from commitlog_store.errors import InvalidValue, NotAStore, StoreNotFound
from commitlog_store.files import disk
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.format.message_id import encode_message_id, parse_host
from commitlog_store.format.message_rules import no_producers_fault
from commitlog_store.format.record import FILLER_SIZE
from commitlog_store.log.store_directory import check_store_directory
from commitlog_store.message import PutMessageStatus
from commitlog_store.paths import MAX_QUEUE_ID, MOST_QUEUES, validate_new_topic
from commitlog_store.queue.queue_counts import file_size_of
from commitlog_store.queue.topic_config import TopicConfig
from commitlog_store.store import MessageStore

_Topic = Annotated[
    str | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC",
        help="For messages without a topic.",
        autocompletion=complete_topic,
    ),
]
_Queue = Annotated[
    int | None,
    typer.Option(
        "--queue",
        "-q",
        min=0,
        max=MOST_QUEUES - 1,
        metavar="QUEUE",
        help="For messages without one; default: in turn.",
        autocompletion=complete_queue,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        rich_help_panel=WRITE,
        epilog=examples(
            "commitlog produce /data/store --topic orders --create < bodies.txt",
            "commitlog cat /data/old orders --json | commitlog produce /data/store --ndjson",
        ),
    )(produce)


def produce(
    path: StorePath,
    commit_log: CommitLogDir = None,
    topic: _Topic = None,
    ndjson: Annotated[
        bool, typer.Option("--ndjson", help="A line is a JSON object; without it, the text of a body.")
    ] = False,
    tag: Annotated[str | None, typer.Option(metavar="TAG", help="For messages without tags.")] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="For messages without keys.")] = None,
    queue: _Queue = None,
    sync: Annotated[
        bool | None,
        typer.Option(
            "--sync/--async", help="Wait for the device, or flush later.", show_default="as --config, or sync"
        ),
    ] = None,
    batch_size: Annotated[
        int, typer.Option(min=1, metavar="COUNT", help="Messages that are put at once, at most.")
    ] = 1000,
    create: Annotated[bool, typer.Option("--create/--no-create", help="Create a store that does not exist.")] = False,
    lock_timeout: LockTimeout = 0.0,
    config_file: BrokerConf = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object for each message: id and offsets.")
    ] = False,
    mapped_file_size_commit_log: SizeOption = None,
    mapped_file_size_consume_queue: SizeOption = None,
    max_hash_slot_num: CountOption = None,
    max_index_num: CountOption = None,
) -> None:
    """Put messages from standard input, one per line, into a store. Takes the store's lock.

    It stops at the first line that is not a message, or that the store refuses: only the lines before it are put.

    The fields of a JSON line: body or bodyBase64, topic, tags, keys (a list, or a string with spaces between them),
    queueId, properties, flag, bornTimestamp, delayLevel, shardingKey. Lines of 'cat --json' and 'export' are taken
    back: the fields that only a store gives, such as queueOffset and msgId, are ignored.
    """
    line_format = LineFormat.NDJSON if ndjson else LineFormat.LINES
    sizes = {
        "mapped_file_size_commit_log": mapped_file_size_commit_log,
        "mapped_file_size_consume_queue": mapped_file_size_consume_queue,
        "max_hash_slot_num": max_hash_slot_num,
        "max_index_num": max_index_num,
    }
    given = {name: size for name, size in sizes.items() if size is not None}
    config = _checked_config(broker_settings(config_file, commit_log), sync, given, topic, line_format)
    fixed = [name for name in given if name.startswith("mapped_file_size")]
    if fixed and is_store(path):
        raise typer.BadParameter(f"{path} is a store already and keeps its sizes.", param_hint=_option_of(fixed[0]))
    defaults = Defaults(topic=topic, tags=tag, key=key, queue_id=queue)
    if sys.stdin is None:
        say("Standard input is closed; messages are read from there, one per line.")
        raise typer.Exit(2)
    if sys.stdin.isatty():
        say(f"Reading messages from the terminal, one per line ({line_format.value}). End with Ctrl-D.")
    batches = read_batches(sys.stdin.buffer, line_format, defaults, batch_size)
    store = open_store(path, config, create=create, lock_timeout_s=lock_timeout)
    try:
        with count_bar("putting") as advance:
            put_batches(store, batches, as_json=as_json, advance=advance)
    except (BadLine, Refused, OutputGone) as error:
        say(error)
        raise typer.Exit(1) from error


def _option_of(setting: str) -> str:
    return "--" + setting.replace("_", "-")


def _checked_config(
    broker: BrokerProperties, sync: bool | None, given: dict[str, int], topic: str | None, line_format: LineFormat
) -> MessageStoreConfig:
    """The store's configuration; wrong usage is reported before a store is opened, or created."""
    if topic is None and line_format is LineFormat.LINES:
        raise typer.BadParameter("Lines of text have no topic; give one.", param_hint="--topic")
    try:
        if topic is not None:
            validate_new_topic(topic)
            if fault := no_producers_fault(topic):
                raise typer.BadParameter(f"{fault}.", param_hint="--topic")
        settings: dict[str, Any] = dict(given)
        if sync is not None or "flush_disk_type" not in broker.given:
            settings["flush_disk_type"] = FlushDiskType.ASYNC_FLUSH if sync is False else FlushDiskType.SYNC_FLUSH
        return dataclasses.replace(broker.config, **settings)
    except InvalidValue as error:
        raise typer.BadParameter(str(error)) from error


class Refused(Exception):
    """A message that the store refused, or whose put has an unknown outcome."""


class OutputGone(Exception):
    """The reader of the results has gone. Continuing would put messages without reporting them."""


@dataclass
class _Interrupt:
    """Remembers a Ctrl-C during a put until the put has ended: a put is never left half way."""

    reading: bool = False
    wanted: bool = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.reading:
            raise KeyboardInterrupt
        self.wanted = True


@contextmanager
def _interrupts() -> Iterator[_Interrupt]:
    interrupt = _Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt  # other threads cannot set signal handlers
        return
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)


def is_store(path: str) -> bool:
    """Whether the path is a store. Errors other than its absence are raised."""
    try:
        check_store_directory(path)
    except (StoreNotFound, NotAStore):
        return False
    return True


def open_store(path: str, config: MessageStoreConfig, *, create: bool, lock_timeout_s: float) -> MessageStore:
    """Own the store. Without ``create``, the path must be one: ``StoreNotFound``, ``NotAStore``."""
    path = disk.absolute_path(path)
    try:
        check_store_directory(path)
    except (StoreNotFound, NotAStore) as error:
        if not create:
            raise type(error)(f"{error} With --create, a new store is created.", path=path) from None
    with progress_bar("recovering") as progress:
        return MessageStore.open(path, config, lock_timeout_s=lock_timeout_s, progress=progress)


def put_batches(
    store: MessageStore, batches: Iterator[MessageBatch], *, as_json: bool, advance: Callable[[int], None]
) -> int:
    """Put all batches and close the store. Returns the number of messages put, which is also printed to stderr.

    ``advance`` is called with the number of messages of each batch that was put.

    ``BadLine`` at a line that is not a message, ``Refused`` for a message that was not accepted, ``OutputGone`` if the
    results cannot be printed, ``KeyboardInterrupt``; the messages before were put.
    """
    started, put = time.perf_counter(), 0
    try:
        with _interrupts() as interrupt, store:
            pieces = _pieces(store, batches)
            while (batch := _next(pieces, interrupt)) is not None:
                result = store.put_messages(batch.table())
                offsets = result.rows.column("physicalOffset").to_numpy()
                count = int((offsets >= 0).sum())
                put += count
                advance(count)
                if as_json:
                    try:
                        _print_results(sys.stdout, store, batch, result)
                    except BrokenPipeError:
                        drop_output()
                        raise OutputGone(_gone(batch)) from None
                _raise_refused(batch, result)
                if interrupt.wanted:
                    raise KeyboardInterrupt
    finally:
        seconds = time.perf_counter() - started
        print(f"{counted(put, 'message')} put in {seconds:.1f} s", file=sys.stderr)
    return put


def _next(batches: Iterator[MessageBatch], interrupt: _Interrupt) -> MessageBatch | None:
    interrupt.reading = True
    try:
        return next(batches, None)
    finally:
        interrupt.reading = False


def _pieces(store: MessageStore, batches: Iterator[MessageBatch]) -> Iterator[MessageBatch]:
    """The batches, cut after each message that may be refused: the next one waits until that is known.

    A store skips a row that it does not accept, and puts those after it.
    """
    room = (
        file_size_of(StorePaths.of(store.path, store.config.store_path_commit_log).commit_log)
        or store.config.mapped_file_size_commit_log
    ) - FILLER_SIZE
    topics = TopicConfig(store.path, store.config.default_topic_queue_nums, lambda _: -1)
    for batch in batches:
        start = 0
        for row in _doubtful(store.config, topics, room, batch):
            yield batch.part(start, row + 1)
            start = row + 1
        if start < len(batch.rows):
            yield batch.part(start)


def _doubtful(config: MessageStoreConfig, topics: TopicConfig, room: int, batch: MessageBatch) -> list[int]:
    """Rows that the store refuses, or would with some queue: the queue that it will choose is not known yet.

    ``room`` is the size of the largest record.
    """
    table, settings = batch.table(), RecordSettings.of(config, largest_record=room)
    schema, doubtful = message_schema(table, topic=None), []
    for first, chunk in message_chunks(table):
        columns = parse_messages(
            chunk,
            schema,
            born_timestamp_ms=0,
            limits=settings.limits,
            first_row=first,
            topic_fault=topics.producers_fault,
        )
        encoded = encode_messages(columns, np.full(columns.count, MAX_QUEUE_ID, np.int32), settings)
        doubtful += [refusal.row for refusal in encoded.refusals if refusal.row is not None]
    return doubtful


def _gone(batch: MessageBatch) -> str:
    return (
        f"The reader of the results has gone, so no line after line {batch.numbers[-1]} was put. Leave out --json to "
        "put messages without results."
    )


def _print_results(out: IO[str], store: MessageStore, batch: MessageBatch, result: PutTableResult) -> None:
    host = parse_host(store.config.store_host)
    for number, row in zip(batch.numbers, result.rows.to_pylist(), strict=True):
        place = row["physicalOffset"]
        there = place >= 0
        found: dict[str, Any] = {
            "line": number,
            "status": row["status"],
            "msgId": encode_message_id(*host, place) if there else None,
            "physicalOffset": place if there else None,
            "queueId": row["queueId"] if there else None,
            "queueOffset": row["queueOffset"] if there else None,
        }
        out.write(orjson.dumps(found).decode() + "\n")
    out.flush()


def _raise_refused(batch: MessageBatch, result: PutTableResult) -> None:
    if result.ok:
        return
    statuses = result.rows.column("status").to_pylist()
    bad = [row for row, status in enumerate(statuses) if status != PutMessageStatus.PUT_OK.value]
    # The row is a number in this batch; users know the line.
    reason = re.sub(r"^Message in row \d+", "The message", result.reason)
    # A message that no store accepts is reported alone; a full disk or a late sync is reported for many lines.
    more = f" (and {len(bad) - 1} more lines)" if len(bad) > 1 else ""
    raise Refused(f"Line {batch.numbers[bad[0]]}{more}: {result.status.value}: {reason}")
