"""Commands about topics: ``topics ls``, ``topics create`` and ``topics rm``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from commitlog_store.cli.completion import complete_topic, one_of
from commitlog_store.cli.confirm import DryRun, Yes, do_as_shown
from commitlog_store.cli.options import (
    TOPICS,
    AllOption,
    AsJson,
    CommitLogDir,
    LockTimeout,
    OptionalTopics,
    Output,
    StorePath,
    chosen_output,
    examples,
)
from commitlog_store.errors import InvalidValue
from commitlog_store.paths import MOST_QUEUES

__all__ = ["register", "topics_create", "topics_list", "topics_rm"]


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


def topics_list(
    path: StorePath,
    commit_log: CommitLogDir = None,
    show_all: AllOption = False,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """A row for each topic: what config/topics.json says, and the queues and messages that exist. Takes no lock."""
    from commitlog_store.cli.topics import print_topics

    print_topics(path, commit_log, chosen_output(output, as_json), show_all=show_all)


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
    """List a topic in config/topics.json, before its first message. Takes the store's lock.

    A topic that is listed keeps its number of queues, since that decides where sharding keys lie; --perm changes it.
    Its queues are made by their first messages.
    """
    from commitlog_store.cli.topics import create_topic

    try:
        print(create_topic(path, topic, queues, perm, lock_timeout))
    except InvalidValue as error:
        raise typer.BadParameter(str(error), param_hint="TOPIC") from error


def topics_rm(
    path: StorePath,
    commit_log: CommitLogDir = None,
    topics: OptionalTopics = None,
    expired: Annotated[bool, typer.Option("--expired", help="All topics whose messages are all gone.")] = False,
    unused: Annotated[
        bool, typer.Option("--unused", help="All topics that config/topics.json does not list, with their messages.")
    ] = False,
    retain: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC",
            help="With --unused: a topic that stays though not listed.",
            show_default=False,
            autocompletion=complete_topic,
        ),
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

    A topic that has messages in the log is refused without --with-messages. With it no queue leads to them any more,
    and delayed messages for the topic are not delivered; 'clean' frees their space. Deleting takes the store's lock.
    Exit code 1 without a terminal and --yes if there is anything to delete.
    """
    from commitlog_store.cli.topics import Deletion, delete_topics, show_deletion

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
