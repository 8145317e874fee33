"""``commitlog produce``: puts messages from stdin into a store that this process owns until the end of the input, or at
the server that owns it.

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
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from commitlog_store.cli.completion import complete_queue
from commitlog_store.cli.exit_codes import wrong_usage
from commitlog_store.cli.message_lines import BadLine, Defaults, MessageBatch, read_batches
from commitlog_store.cli.option_groups import takes_groups
from commitlog_store.cli.options import (
    USUAL_SIZES,
    WRITE,
    BrokerConf,
    CommitLogDir,
    CreateStore,
    FileSizes,
    LineFormat,
    LockTimeout,
    StorePath,
    examples,
    topic_option,
)
from commitlog_store.cli.owner_config import (
    DEFAULT_RPC_TIMEOUT_S,
    broker_settings,
    connect_to,
    is_address,
    refuse_at_address,
    refuse_log_of_another,
    refuse_missing,
)
from commitlog_store.cli.progress import count_bar, progress_bar
from commitlog_store.cli.render import drop_output, say, says
from commitlog_store.config import BrokerProperties, FlushDiskType, MessageStoreConfig
from commitlog_store.engine.put_table import PutTableResult
from commitlog_store.errors import RemoteFailed
from commitlog_store.files import disk
from commitlog_store.format.message_id import encode_message_id, parse_host
from commitlog_store.format.message_rules import no_producers_fault
from commitlog_store.message import PutMessageStatus
from commitlog_store.paths import MOST_QUEUES, validate_new_topic
from commitlog_store.queries.texts import counted
from commitlog_store.store import MessageStore

if TYPE_CHECKING:
    from commitlog_store import RemoteStore

_Topic = Annotated[str | None, topic_option("For messages without a topic.")]
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
    app.command(
        rich_help_panel=WRITE,
        epilog=examples(
            "commitlog produce /data/store --topic orders --create < bodies.txt",
            "commitlog cat /data/old orders --json | commitlog produce /data/store --ndjson",
            "commitlog produce grpc://10.0.0.5:8815 --topic orders < bodies.txt",
        ),
    )(produce)


@takes_groups
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
    create: CreateStore = False,
    lock_timeout: LockTimeout = 0.0,
    config_file: BrokerConf = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object for each message: id and offsets.")
    ] = False,
    sizes: FileSizes = USUAL_SIZES,
) -> None:
    """Put messages from standard input, one per line, into a store. Takes the store's lock; at an address, the server
    puts them.

    It stops at the first line that is not a message, or that the store refuses: only the lines before it are put. When
    a server gives no answer, it says which lines may be stored.

    The fields of a JSON line: body or bodyBase64, topic, tags, keys (a list, or a string with spaces between them),
    queueId, properties, flag, bornTimestamp, delayLevel, shardingKey. Lines of 'cat --json' and 'export' are taken
    back: the fields that only a store gives, such as queueOffset and msgId, are ignored.
    """
    line_format = LineFormat.NDJSON if ndjson else LineFormat.LINES
    given = sizes.given()
    _refuse_topic(topic, line_format)
    if is_address(path):
        owners = {"--sync/--async": sync is not None, "--create": create, "--commit-log": commit_log}
        refuse_at_address({**owners, "--config": config_file, **{_option_of(name): True for name in given}})
        config = MessageStoreConfig()
    else:
        found = broker_settings(config_file, commit_log)
        if commit_log is None and found.config.store_path_commit_log is not None:
            refuse_missing(path, create=create)  # a mistyped path is said first
            refuse_log_of_another(found, config_file, path)
        config = _checked_config(path, found, sync, given)
    defaults = Defaults(topic=topic, tags=tag, key=key, queue_id=queue)
    if sys.stdin is None:
        say("Standard input is closed; messages are read from there, one per line.")
        raise typer.Exit(2)
    if sys.stdin.isatty():
        say(f"Reading messages from the terminal, one per line ({line_format.value}). End with Ctrl-D.")
    batches = read_batches(sys.stdin.buffer, line_format, defaults, batch_size)
    store = open_store(path, config, create=create, lock_timeout_s=lock_timeout)
    with says(BadLine, Refused, OutputGone), count_bar("putting") as advance:
        put_batches(store, batches, as_json=as_json, advance=advance)


def _option_of(setting: str) -> str:
    return "--" + setting.replace("_", "-")


def _refuse_topic(topic: str | None, line_format: LineFormat) -> None:
    """Wrong usage is reported before a store is opened, or created."""
    if topic is None:
        if line_format is LineFormat.LINES:
            raise typer.BadParameter("Lines of text have no topic; give one.", param_hint="--topic")
        return
    with wrong_usage():
        validate_new_topic(topic)
    if fault := no_producers_fault(topic):
        raise typer.BadParameter(f"{fault}.", param_hint="--topic")


def _checked_config(
    path: str, broker: BrokerProperties, sync: bool | None, given: dict[str, int]
) -> MessageStoreConfig:
    """The configuration of a directory."""
    fixed = [name for name in given if name.startswith("mapped_file_size")]
    if fixed and not refuse_missing(path, create=True):
        raise typer.BadParameter(f"{path} is a store already and keeps its sizes.", param_hint=_option_of(fixed[0]))
    settings: dict[str, Any] = dict(given)
    if sync is not None or "flush_disk_type" not in broker.given:
        settings["flush_disk_type"] = FlushDiskType.ASYNC_FLUSH if sync is False else FlushDiskType.SYNC_FLUSH
    with wrong_usage():
        return dataclasses.replace(broker.config, **settings)


class Refused(Exception):
    """A message that the store refused, or whose put has an unknown outcome."""


class OutputGone(Exception):
    """The results cannot be printed. Continuing would put messages without reporting them."""


@dataclass
class _Interrupt:
    """Remembers a Ctrl-C during a put until the put has ended: a put is never left half way.

    With ``may_leave``, a second one ends the wait for a server.
    """

    may_leave: bool
    reading: bool = False
    wanted: bool = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.reading or (self.wanted and self.may_leave):
            raise KeyboardInterrupt
        self.wanted = True


@contextmanager
def _interrupts(*, may_leave: bool) -> Iterator[_Interrupt]:
    interrupt = _Interrupt(may_leave)
    if threading.current_thread() is not threading.main_thread():
        yield interrupt  # other threads cannot set signal handlers
        return
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)


def open_store(
    path: str, config: MessageStoreConfig, *, create: bool, lock_timeout_s: float
) -> MessageStore | RemoteStore:
    """Own the store, or connect to its server. Without ``create``, a directory must be one: ``StoreNotFound``,
    ``NotAStore``."""
    if is_address(path):
        return connect_to(path, lock_timeout_s, rpc_timeout_s=DEFAULT_RPC_TIMEOUT_S)
    path = disk.absolute_path(path)
    refuse_missing(path, create=create)
    with progress_bar("recovering") as progress:
        return MessageStore.open(path, config, lock_timeout_s=lock_timeout_s, progress=progress)


def put_batches(
    store: MessageStore | RemoteStore,
    batches: Iterator[MessageBatch],
    *,
    as_json: bool,
    advance: Callable[[int], None],
) -> int:
    """Put all batches and close the store. Returns the number of messages put, which is also printed to stderr.

    ``advance`` is called with the number of messages of each batch that was put.

    ``BadLine`` at a line that is not a message, ``Refused`` for a message that was not accepted, ``OutputGone`` if the
    results cannot be printed, ``KeyboardInterrupt``; the messages before were put.
    """
    started, put = time.perf_counter(), 0
    try:
        host = store.config.store_host if isinstance(store, MessageStore) else store.store_host
        with _interrupts(may_leave=not isinstance(store, MessageStore)) as interrupt, store:
            while (batch := _next(batches, interrupt)) is not None:
                result = _put(store, batch)
                offsets = result.rows.column("physicalOffset").to_numpy()
                count = int((offsets >= 0).sum())
                put += count
                advance(count)
                try:
                    if as_json:
                        _print_results(host, batch, result)
                finally:
                    _raise_refused(batch, result)
                if interrupt.wanted:
                    raise KeyboardInterrupt
    finally:
        seconds = time.perf_counter() - started
        print(f"{counted(put, 'message')} put in {seconds:.1f} s", file=sys.stderr)
    return put


def _put(store: MessageStore | RemoteStore, batch: MessageBatch) -> PutTableResult:
    """Put a batch up to the first refused message. ``Refused``: none of it is stored."""
    try:
        return store.put_messages(batch.table(), stop_at_refusal=True)
    except RemoteFailed as error:
        raise Refused(f"Line {batch.numbers[0]} is not put, nor is any after it: {error}") from error
    except KeyboardInterrupt:
        say(f"Lines {batch.numbers[0]} to {batch.numbers[-1]} may be stored: the server has not answered yet.")
        raise


def _next(batches: Iterator[MessageBatch], interrupt: _Interrupt) -> MessageBatch | None:
    interrupt.reading = True
    try:
        return next(batches, None)
    finally:
        interrupt.reading = False


def _print_results(store_host: str, batch: MessageBatch, result: PutTableResult) -> None:
    """Print a line a message. ``OutputGone``."""
    host, lines = parse_host(store_host), []
    # The result ends with the message that stopped the put.
    for number, row in zip(batch.numbers, result.rows.to_pylist(), strict=False):
        place = row["physicalOffset"]
        found: dict[str, Any] = {"line": number, "status": row["status"]}
        found |= dict.fromkeys(("msgId", "physicalOffset", "queueId", "queueOffset"))
        if place >= 0:
            found |= {name: row[name] for name in ("physicalOffset", "queueId", "queueOffset")}
            found["msgId"] = encode_message_id(*host, place)
        lines.append(orjson.dumps(found).decode() + "\n")
    try:
        sys.stdout.write("".join(lines))
        sys.stdout.flush()
    except OSError as error:
        drop_output()
        what = "The reader of the results has gone"
        if not isinstance(error, BrokenPipeError):
            what = f"The results cannot be printed ({error.strerror})"
        raise OutputGone(
            f"{what}, so no line after line {batch.numbers[-1]} was put. Leave out --json to put messages without "
            "results."
        ) from error


def _raise_refused(batch: MessageBatch, result: PutTableResult) -> None:
    if result.ok:
        return
    statuses = result.rows.column("status").to_pylist()
    bad = [row for row, status in enumerate(statuses) if status != PutMessageStatus.PUT_OK.value]
    # The row is a number in this batch; users know the line.
    reason = re.sub(r"^Message in row \d+", "The message", result.reason)
    # A message that no store accepts is reported alone; a full disk or a late sync is reported for many lines.
    more = f" (and {counted(len(bad) - 1, 'more line')})" if len(bad) > 1 else ""
    is_partly = len(bad) > 1 and result.status is PutMessageStatus.UNKNOWN_ERROR
    partly = " Of these lines none, the first ones or all are stored, and none after them." if is_partly else ""
    raise Refused(f"Line {batch.numbers[bad[0]]}{more}: {result.status.value}: {reason}{partly}")
