"""``commitlog topics``: lists topics and their settings, creates one in ``config/topics.json``, and deletes them."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import typer
from rich.table import Table
from rich.text import Text

from commitlog_store.cli.completion import complete_topic, one_of
from commitlog_store.cli.confirm import Changed, DryRun, Yes, do_as_shown, print_unread, unread_in
from commitlog_store.cli.console import print_table
from commitlog_store.cli.exit_codes import wrong_usage
from commitlog_store.cli.options import (
    AS_TABLE,
    TOPICS,
    AllOption,
    CommitLogDir,
    LockTimeout,
    OutputChoice,
    OutputFormat,
    StorePath,
    examples,
    option,
)
from commitlog_store.cli.owner_config import connect_to, is_address, open_owner, owner_config
from commitlog_store.cli.render import terminal_width
from commitlog_store.cli.row_output import print_hidden, print_rows
from commitlog_store.cli.storage_options import NO_STORAGE, Storage, takes_storage
from commitlog_store.cli.text_columns import TextColumn, print_columns, width_of
from commitlog_store.config import MessageStoreConfig
from commitlog_store.delayed.timer_listing import TIMER_LEVEL
from commitlog_store.errors import (
    CorruptRecord,
    MessageNotFound,
    StoreAccessDenied,
    StoreLocked,
    TopicInUse,
    TopicNotFound,
    UnsupportedStore,
)
from commitlog_store.format.message_rules import SCHEDULE_TOPIC
from commitlog_store.format.properties import REAL_TOPIC
from commitlog_store.groups.commit import owned_config
from commitlog_store.metadata import store_metadata
from commitlog_store.paths import MOST_QUEUES, is_system_topic
from commitlog_store.queries.texts import printable_text
from commitlog_store.queue.topic_config import TopicConfig, TopicSettings, read_topic_settings, unused_topics
from commitlog_store.reader import StoreReader
from commitlog_store.recovery.forecast import forecast_open
from commitlog_store.recovery.start import StartKind


def register(app: typer.Typer) -> None:
    """Add the group ``topics`` and its commands."""
    topics = typer.Typer(help="Topics: how many queues they have, and who may write and read.")
    topics.command("ls", epilog=examples("commitlog topics ls /data/store"))(topics_list)
    topics.command(
        "create",
        epilog=examples(
            "commitlog topics create /data/store orders --queues 8",
            "commitlog topics create /data/store orders --queues 8 --perm 4",
        ),
    )(topics_create)
    topics.command(
        "rm",
        epilog=examples(
            "commitlog topics rm /data/store --expired --yes",
            "commitlog topics rm /data/store orders --with-messages --yes",
            "commitlog topics rm /data/store --unused --retain payments --dry-run",
        ),
    )(topics_rm)
    app.add_typer(topics, name="topics", rich_help_panel=TOPICS)


@takes_storage
def topics_list(
    path: StorePath,
    commit_log: CommitLogDir = None,
    show_all: AllOption = False,
    output: OutputChoice = AS_TABLE,
    storage: Storage = NO_STORAGE,
) -> None:
    """A row for each topic: what config/topics.json says, and the queues and messages that exist. Takes no lock."""
    form = output.form()
    with storage.open(path, store_path_commit_log=commit_log) as reader:
        print_topics(reader, form, show_all=show_all)


def topics_create(
    path: StorePath,
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="The name of the topic.", autocompletion=complete_topic)
    ],
    queues: Annotated[
        int,
        typer.Option(min=1, max=MOST_QUEUES, metavar="COUNT", help="Queues to spread messages over, and to read."),
    ],
    perm: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=7,
            metavar="PERM",
            help="6: write and read; 4: rejects puts; 2: rejects consumers.",
            show_default="6",
            autocompletion=one_of("6", "4", "2"),
        ),
    ] = None,
    lock_timeout: LockTimeout = 0.0,
) -> None:
    """List a topic in config/topics.json, before its first message. Takes the store's lock; at an address, the server
    does it.

    A topic that is listed keeps its number of queues, since that decides where sharding keys lie; --perm changes it.
    Its queues are made by their first messages.
    """
    with wrong_usage("TOPIC"):
        print(create_topic(path, topic, queues, perm, lock_timeout))


def topics_rm(
    path: StorePath,
    commit_log: CommitLogDir = None,
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC", help="The topics to delete.", autocompletion=complete_topic, show_default=False
        ),
    ] = None,
    expired: Annotated[bool, typer.Option("--expired", help="All topics whose messages are all gone.")] = False,
    unused: Annotated[
        bool, typer.Option("--unused", help="All topics that config/topics.json does not list, with their messages.")
    ] = False,
    retain: Annotated[
        list[str] | None,
        option("TOPIC", "With --unused: a topic that stays though not listed.", autocompletion=complete_topic),
    ] = None,
    with_messages: Annotated[
        bool, typer.Option("--with-messages", help="Also topics that have messages in the log.")
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    lock_timeout: LockTimeout = 0.0,
) -> None:
    """Delete topics: queues, list entries, and positions of groups. It shows which, and asks.

    It names the consumer groups that have not read their messages.

    A topic that has messages in the log is refused without --with-messages. With it no queue leads to these messages
    any more, and delayed messages for the topic are not delivered; 'clean' frees their space. Deleting takes the
    store's lock, or the server that owns it does it. Exit code 1 without a terminal and --yes if there is anything to
    delete.
    """
    if bool(topics) + expired + unused != 1:
        raise typer.BadParameter("Name topics, or give one of --expired and --unused.")
    if retain and not unused:
        raise typer.BadParameter("--retain belongs to --unused.")
    wanted = Deletion(
        named=topics or [], retain=retain or [], expired=expired, unused=unused, with_messages=with_messages
    )

    def do(shown: dict[str, Any] | None) -> None:
        for topic in delete_topics(path, commit_log, wanted, lock_timeout, shown):
            print(f"Deleted {topic}.")

    do_as_shown(lambda: show_deletion(path, commit_log, wanted), "Delete them?", do, yes=yes, dry_run=dry_run)


_COLUMNS = ("topic", "isSystem", "perm", "writeQueueNums", "readQueueNums", "queues", "messages", "error")


def print_topics(reader: StoreReader, form: OutputFormat, *, show_all: bool) -> None:
    """Print a row for each topic that is listed, or has queues; ``show_all``: also of RocketMQ's and the store's own.

    ``CorruptConfig`` and the errors of a reader.
    """
    present = {row["topic"]: row for row in store_metadata(reader, "topics").to_pylist()}
    listed = reader.topic_settings()
    known = sorted({*present, *listed})
    topics = [topic for topic in known if show_all or not is_system_topic(topic)]
    rows = [_row(topic, listed.get(topic), present.get(topic, {})) for topic in topics]
    if form is not OutputFormat.TABLE:
        print_rows(_COLUMNS, iter(rows), form)
        return
    shown = [name for name in _COLUMNS if name != "isSystem" and (name != "error" or any(row[name] for row in rows))]
    columns = [
        TextColumn(
            heading=name,
            cells=["-" if row[name] is None else printable_text(str(row[name])) for row in rows],
            right=name not in ("topic", "error"),
        )
        for name in shown
    ]
    width = terminal_width()
    if width is None or width_of(columns) <= width:
        print_columns(columns)
    else:
        print_table(_folded(columns))
    print_hidden(len(known) - len(topics), "topic")


def _folded(columns: Sequence[TextColumn]) -> Table:
    """The table whose names and errors are folded to fit the terminal."""
    table = Table(box=None, pad_edge=False)
    for one in columns:
        table.add_column(one.heading, justify="right" if one.right else "left")
    for row in zip(*(one.cells for one in columns), strict=True):
        table.add_row(*map(Text, row))
    return table


def _row(topic: str, listed: TopicSettings | None, present: dict[str, object]) -> dict[str, object]:
    return {
        "topic": topic,
        "isSystem": is_system_topic(topic),
        "perm": listed.perm if listed else None,
        "writeQueueNums": listed.write_queue_nums if listed else None,
        "readQueueNums": listed.read_queue_nums if listed else None,
        "queues": present.get("queues"),
        "messages": present.get("messages"),
        "error": present.get("error"),
    }


def create_topic(path: str, topic: str, queues: int, perm: int | None, lock_timeout_s: float) -> str:
    """List the topic. Returns a sentence about it. ``InvalidValue``, ``CorruptConfig``, ``StoreIOError``."""
    if is_address(path):
        with connect_to(path, lock_timeout_s) as store, store.reader() as reader:
            known = reader.topic_settings().get(topic)
            store.create_topic(topic, queues, perm=perm)
            return _created(topic, known, reader.topic_settings()[topic])
    default = MessageStoreConfig().default_topic_queue_nums
    with owned_config(path, lock_timeout_s=lock_timeout_s) as owned:
        known = read_topic_settings(owned).get(topic)
        TopicConfig(owned, default).create_by_name(topic, queues, perm=perm)
        now = read_topic_settings(owned)[topic]
    return _created(topic, known, now)


def _created(topic: str, known: TopicSettings | None, now: TopicSettings) -> str:
    state = "was listed already" if known else "is listed now"
    changed = f", perm {known.perm} is {now.perm} now" if known and known.perm != now.perm else f", perm {now.perm}"
    return f"Topic {topic!r} {state}: {now.write_queue_nums} queues{changed}."


@dataclass(frozen=True, kw_only=True)
class Deletion:
    """The topics that ``topics rm`` deletes: those that are named, and its options."""

    named: Sequence[str]
    retain: Sequence[str]
    expired: bool
    unused: bool
    with_messages: bool


class _Doomed(NamedTuple):
    """How many messages a topic has that would be deleted (-1: they cannot be read), and how many delayed ones wait."""

    messages: int
    delayed: int


def show_deletion(path: str, commit_log: str | None, wanted: Deletion) -> dict[str, _Doomed]:
    """Print a line for each topic that would be deleted, with its messages and the consumer groups that have not
    read them.

    Returns these topics. Takes no lock. ``TopicNotFound``; ``TopicInUse`` for a topic that is only deleted with its
    messages.
    """
    rebuilds = _is_rebuilt(path, commit_log)
    with StoreReader.open(path, store_path_commit_log=commit_log, from_log=rebuilds, on_damage="skip") as reader:
        found = _doomed(reader, wanted)
        in_use = [topic for topic, one in found.items() if any(one)]
        if in_use and not (wanted.with_messages or wanted.unused):
            raise TopicInUse(
                f"Topic {in_use[0]!r} is not deleted, since it has messages in the log, or delayed ones wait for their "
                "delivery to it: give --with-messages to delete these too."
            )
        print("It would delete:" if found else "No topic to delete.")
        for topic, one in found.items():
            waiting = f", {one.delayed} delayed ones that wait" if one.delayed else ""
            messages = f"{one.messages} messages" if one.messages >= 0 else "messages that cannot be read"
            print(printable_text(f"{topic}: {messages}{waiting}"))
        if in_use:
            print_unread(unread_in(reader, in_use))
        if unreadable := sum(one.messages for one in reader.skipped):
            print(f"{unreadable} delayed messages that wait cannot be read: they may go to one of these topics.")
    return found


def _doomed(reader: StoreReader, wanted: Deletion) -> dict[str, _Doomed]:
    delayed = _delayed_to(reader)
    topics = wanted.named or reader.topics()
    if wanted.unused:
        topics = unused_topics(reader.topic_settings(), reader.topics(), wanted.retain)
    found = {topic: _Doomed(_messages_in(reader, topic, delayed), delayed[topic]) for topic in topics}
    if wanted.expired:
        found = {topic: one for topic, one in found.items() if not any(one) and not is_system_topic(topic)}
    return found


def _is_rebuilt(path: str, commit_log: str | None) -> bool:
    """Whether opening builds the queues from the log: only the log says what would be deleted then."""
    if is_address(path):
        return False
    try:
        forecast = forecast_open(path, owner_config(path, commit_log=commit_log), scan=False)
    except (StoreAccessDenied, StoreLocked):
        return False
    return forecast.start.kind is StartKind.REBUILD


def _messages_in(reader: StoreReader, topic: str, delayed: Container[str]) -> int:
    """The messages of a topic; 0 for one that has no queue, and is listed or has delayed messages. -1: unreadable."""
    try:
        return sum(one.max_offset - one.min_offset for one in reader.queues(topic))
    except UnsupportedStore:
        return -1
    except TopicNotFound:
        if topic in delayed or topic in reader.topic_settings():
            return 0
        raise


def _delayed_to(reader: StoreReader) -> Counter[str]:
    """How many delayed messages wait, by the topic that they go to."""
    found: Counter[str] = Counter()
    for level in reader.delay_levels():
        if level.waiting and level.level == TIMER_LEVEL:
            for place in reader.waiting_timers()["physicalOffset"].to_pylist():
                with contextlib.suppress(CorruptRecord, MessageNotFound):  # it goes to no topic
                    found[reader.message_at(place).properties.get(REAL_TOPIC, "")] += 1
        elif level.waiting:
            start, stop = max(level.position, level.min_offset), level.max_offset
            for batch in reader.read(SCHEDULE_TOPIC, level.level - 1, start, stop, columns=["properties"]):
                found.update(dict(row).get(REAL_TOPIC, "") for row in batch.column("properties").to_pylist())
    return found


def delete_topics(
    path: str, commit_log: str | None, wanted: Deletion, lock_timeout_s: float, shown: dict[str, _Doomed] | None
) -> Iterator[str]:
    """Delete topics: those of ``shown``, or without it those that are wanted now. Gives each when it is deleted.

    ``Changed`` when they, or the numbers of their messages, are not as shown; the errors of opening, and of
    ``delete_topic``.
    """
    with open_owner(path, commit_log, lock_timeout_s) as store:
        if shown is not None:
            with StoreReader.open(path, store_path_commit_log=commit_log, on_damage="skip") as reader:
                if _doomed(reader, wanted) != shown:
                    raise Changed
            chosen: Iterable[str] = shown
        elif wanted.expired:
            chosen = store.expired_topics()
        elif wanted.unused:
            chosen = store.clean_unused_topics(wanted.retain, dry_run=True)
        else:
            chosen = wanted.named
        for topic in chosen:
            store.delete_topic(topic, with_messages=wanted.with_messages or wanted.unused)
            yield topic
