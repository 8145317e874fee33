"""Commands that look at a whole store: ``info``, ``offset-at``, ``stats`` and ``verify``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from commitlog_store.cli import render, summary
from commitlog_store.cli.open_reader import FromLogOption, OnDamage, OnDamageOption, open_reader
from commitlog_store.cli.option_groups import takes_groups
from commitlog_store.cli.options import (
    AS_TABLE,
    LOOK,
    AllOption,
    CommitLogDir,
    FullOption,
    OptionalTopics,
    OutputChoice,
    OutputFormat,
    StorePath,
    ZoneOption,
    examples,
)
from commitlog_store.cli.render import camel_members, say
from commitlog_store.cli.row_output import print_hidden, print_rows
from commitlog_store.cli.storage_options import NO_STORAGE, Storage, takes_storage
from commitlog_store.cli.times import TIME_HELP, Clock, parse_time, parse_zone
from commitlog_store.errors import LogNotFound, StoreOpenError, UnsupportedStore
from commitlog_store.paths import is_system_topic
from commitlog_store.queries.chosen_topics import chosen_topics
from commitlog_store.reader import QueueInfo, StoreReader
from commitlog_store.timestamps import is_relative_time


class _TimeArgument(TyperCommand):
    """A command with a time among its arguments: ``-2h`` is one, and not an option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [one.removeprefix("-") if is_relative_time(one) else one for one in args])


def register(app: typer.Typer) -> None:
    app.command(
        rich_help_panel=LOOK,
        epilog=examples(
            "commitlog info /data/store", "commitlog info /data/store --queues --tz local", "commitlog info . -o csv"
        ),
    )(info)
    app.command(
        "offset-at",
        cls=_TimeArgument,
        rich_help_panel=LOOK,
        epilog=examples(
            "commitlog offset-at /data/store 2h", "commitlog offset-at /data/store 2026-11-21T09:30:00 orders --json"
        ),
    )(offset_at)
    app.command(
        rich_help_panel=LOOK, epilog=examples("commitlog stats /data/store", "commitlog stats . 'orders*' --json")
    )(stats)
    app.command(
        rich_help_panel=LOOK,
        epilog=examples(
            "commitlog verify /data/store",
            "commitlog verify /data/store --topics",
            "commitlog verify grpc://127.0.0.1:8815",
            "commitlog verify /data/store --json > report.json",
        ),
    )(verify)


@takes_storage
def info(
    path: StorePath,
    commit_log: CommitLogDir = None,
    queues: Annotated[bool, typer.Option("--queues", help="One row per queue, not per topic.")] = False,
    show_all: AllOption = False,
    sizes: Annotated[
        bool, typer.Option("--sizes", help="Also the bytes of each queue's messages. Reads all consume queues.")
    ] = False,
    tz: ZoneOption = "UTC",
    from_log: FromLogOption = False,
    on_damage: OnDamageOption = OnDamage.RAISE,
    output: OutputChoice = AS_TABLE,
    storage: Storage = NO_STORAGE,
) -> None:
    """Topics, queues, offsets and times of a store, and with --sizes the bytes of each queue.

    The verdict is that of 'doctor', which says more. -o csv has a line for each queue. Exit code 1 for another verdict
    than OK, and when a part of the store cannot be read.
    """
    from commitlog_store.cli.doctor import headline
    from commitlog_store.cli.info_output import QUEUE_COLUMNS, print_summary
    from commitlog_store.verify.assessment import Verdict

    clock, form = Clock(parse_zone(tz)), output.form()

    def show(found: summary.StoreSummary) -> bool:
        """Print it. Whether something is wrong."""
        shown = found if show_all else found.without_system_topics()
        is_wrong = bool(found.all_problems) or found.verdict not in (None, Verdict.OK)
        with render.verdict_output(is_wrong):
            if form is OutputFormat.JSON:
                print(render.json_text(shown.to_json()))
            elif form is OutputFormat.CSV:
                print_rows(QUEUE_COLUMNS, map(camel_members, shown.queues), form)
            else:
                print_summary(shown, clock, with_queues=queues, with_sizes=sizes)
                print_hidden(len(found.by_topic()) - len(shown.by_topic()), "topic")
            for problem in found.all_problems:
                say(problem)
            if found.assessment is not None and found.assessment.verdict is not Verdict.OK:
                say(f"{headline(found.assessment)} More: commitlog doctor {found.assessment.paths.for_shell}")
        return is_wrong

    try:
        with open_reader(path, from_log, on_damage, commit_log, storage) as reader:
            is_wrong = show(summary.summarize(reader, with_sizes=sizes, assessed=not from_log))
    except LogNotFound as error:
        is_wrong = show(summary.summarize_lost_log(path, commit_log, error))
    if is_wrong:
        raise typer.Exit(1)


@takes_storage
def offset_at(
    path: StorePath,
    when: Annotated[str, typer.Argument(metavar="TIME", help=f"{TIME_HELP}.")],
    commit_log: CommitLogDir = None,
    topics: OptionalTopics = None,
    tz: ZoneOption = "UTC",
    from_log: FromLogOption = False,
    on_damage: OnDamageOption = OnDamage.RAISE,
    output: OutputChoice = AS_TABLE,
    storage: Storage = NO_STORAGE,
) -> None:
    """Print for each queue the offset of the first message stored at or after a time, and when that was.

    A queue whose messages are all older has its end. Found by bisection: few messages are read.
    """
    clock, form = Clock(parse_zone(tz)), output.form()
    timestamp = parse_time(when, clock.zone)
    with open_reader(path, from_log, on_damage, commit_log, storage) as reader:
        names, unreadable = _readable_topics(reader, topics)
        print_rows(OFFSET_COLUMNS, offsets_at(reader, names, timestamp, clock), form)
        for problem in unreadable:
            say(problem)
    if unreadable:
        raise typer.Exit(1)


@takes_storage
def stats(
    path: StorePath,
    commit_log: CommitLogDir = None,
    topics: OptionalTopics = None,
    show_all: AllOption = False,
    tz: ZoneOption = "UTC",
    full: FullOption = False,
    output: OutputChoice = AS_TABLE,
    storage: Storage = NO_STORAGE,
) -> None:
    """Messages stored a second within the last 10, 60 and 600 seconds, for each topic, by store times.

    last put (idleMs in JSON and CSV) is how long ago the newest message was stored. Works beside a running broker or
    owner. How long puts take is known to the owner alone (MessageStore.stats).
    """
    from commitlog_store.cli.stats import print_stats
    from commitlog_store.queries.topic_rates import topic_rates

    clock, form = Clock(parse_zone(tz)), output.form()
    with open_reader(path, False, OnDamage.RAISE, commit_log, storage) as reader:
        readable, unreadable = _readable_topics(reader, topics)
        names = readable if topics or show_all else [topic for topic in readable if not is_system_topic(topic)]
        print_stats(topic_rates(reader, names), clock, form, full=full)
        if form is OutputFormat.TABLE:
            print_hidden(len(readable) - len(names), "topic")
        for problem in unreadable:
            say(problem)
    if unreadable:
        raise typer.Exit(1)


@takes_groups
def verify(
    path: StorePath,
    commit_log: CommitLogDir = None,
    topics: Annotated[
        bool, typer.Option("--topics", help="Also what was found of each topic; with -o csv this in place of findings.")
    ] = False,
    output: OutputChoice = AS_TABLE,
) -> None:
    """Check every record, unit and index entry against each other. Reads everything, changes nothing.

    When messages are lost, or opening the store would cut some off, a table says how many of each topic, and which
    queue offsets. Exit code 1 for an error; notes (normal after a crash or beside an owner at work) are not errors. At
    the address of a server, the server verifies; one verification of a store runs at a time.
    """
    from commitlog_store.cli.doctor import FINDING_COLUMNS, topic_members
    from commitlog_store.cli.owner_config import is_address, owner_config, refuse_at_address
    from commitlog_store.cli.progress import progress_bar
    from commitlog_store.cli.verify import TOPIC_COLUMNS, print_report
    from commitlog_store.verify.assessment import Verdict, assess_store

    form = output.form()
    if is_address(path):
        refuse_at_address({"--commit-log": commit_log})
    try:
        with progress_bar("verifying") as progress:
            config = None if is_address(path) else owner_config(path, None, commit_log)
            found = assess_store(path, deep=True, config=config, progress=progress)
    except StoreOpenError as error:
        say(error)
        raise typer.Exit(2) from error
    with render.ends_wrong(found.verdict is not Verdict.OK):
        if form is not OutputFormat.CSV:
            print_report(found, as_json=form is OutputFormat.JSON, with_topics=topics)
        elif topics:
            print_rows(TOPIC_COLUMNS, map(topic_members, found.topics), form)
        else:
            print_rows(FINDING_COLUMNS, map(camel_members, found.findings), form)


def _readable_topics(reader: StoreReader, wanted: list[str] | None) -> tuple[list[str], list[UnsupportedStore]]:
    """The topics that are named, or all that can be read, and why the others cannot."""
    if wanted:
        return chosen_topics(reader, wanted), []
    found, unreadable = [], []
    for topic in reader.topics():
        try:
            reader.queue_ids(topic)
        except UnsupportedStore as error:
            unreadable.append(error)
        else:
            found.append(topic)
    return found, unreadable


OFFSET_COLUMNS = ("topic", "queueId", "offset", "minOffset", "maxOffset", "storeTimestamp")


def offsets_at(reader: StoreReader, topics: Sequence[str], timestamp_ms: int, clock: Clock) -> list[dict[str, Any]]:
    """A row for each queue. ``storeTimestamp`` is None where ``offset`` is the queue's end."""

    def look() -> list[dict[str, Any]]:
        infos = reader.queue_infos(lambda: [(topic, one) for topic in topics for one in reader.queue_ids(topic)])
        return [_in_queue(reader, info, timestamp_ms, clock) for info in infos]

    return reader.consistently(look, one_moment=False)


def _in_queue(reader: StoreReader, info: QueueInfo, timestamp_ms: int, clock: Clock) -> dict[str, Any]:
    topic, queue_id = info.topic, info.queue_id
    offset = reader.offset_by_time(topic, queue_id, timestamp_ms, bounds=info)
    stored = clock.iso(reader.store_timestamp(topic, queue_id, offset)) if offset < info.max_offset else None
    found = (topic, queue_id, offset, info.min_offset, info.max_offset, stored)
    return dict(zip(OFFSET_COLUMNS, found, strict=True))
