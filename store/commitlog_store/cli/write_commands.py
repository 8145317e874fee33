"""Commands that write messages: ``produce``."""

from __future__ import annotations

import dataclasses
import sys
from typing import Annotated, Any

import typer

from commitlog_store.cli.completion import complete_queue, complete_topic
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
from commitlog_store.cli.progress import count_bar
from commitlog_store.cli.render import say
from commitlog_store.config import BrokerProperties, FlushDiskType, MessageStoreConfig
from commitlog_store.errors import InvalidValue
from commitlog_store.format.message_rules import no_producers_fault
from commitlog_store.paths import MOST_QUEUES, validate_new_topic

__all__ = ["produce", "register"]


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
    from commitlog_store.cli import produce as put
    from commitlog_store.cli.message_lines import BadLine, Defaults, read_batches

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
    if fixed and put.is_store(path):
        raise typer.BadParameter(f"{path} is a store already and keeps its sizes.", param_hint=_option_of(fixed[0]))
    defaults = Defaults(topic=topic, tags=tag, key=key, queue_id=queue)
    if sys.stdin is None:
        say("Standard input is closed; messages are read from there, one per line.")
        raise typer.Exit(2)
    if sys.stdin.isatty():
        say(f"Reading messages from the terminal, one per line ({line_format.value}). End with Ctrl-D.")
    batches = read_batches(sys.stdin.buffer, line_format, defaults, batch_size)
    store = put.open_store(path, config, create=create, lock_timeout_s=lock_timeout)
    try:
        with count_bar("putting") as advance:
            put.put_batches(store, batches, as_json=as_json, advance=advance)
    except (BadLine, put.Refused, put.OutputGone) as error:
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
