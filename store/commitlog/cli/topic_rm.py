"""The command ``topics rm``, which deletes topics."""

from __future__ import annotations

from typing import Annotated

import typer

from commitlog.cli.options import CLEAN, LockTimeout, OptionalTopics, StorePath, examples

__all__ = ["register", "topic_rm"]


def register(app: typer.Typer) -> None:
    """Add the command to the group ``topics``, which is made if no other module has added it."""
    groups = {group.name: group.typer_instance for group in app.registered_groups}
    topics = groups.get("topics")
    if topics is None:
        topics = typer.Typer(help="The topics of a store.")
        app.add_typer(topics, name="topics", rich_help_panel=CLEAN)
    topics.command(
        "rm",
        epilog=examples(
            "commitlog topics rm /data/store --expired",
            "commitlog topics rm /data/store orders --with-messages --yes",
            "commitlog topics rm /data/store --unused --retain payments",
        ),
    )(topic_rm)
    if len(topics.registered_commands) == 1:
        topics.callback()(_group)


def _group() -> None:
    """The topics of a store."""


def topic_rm(
    path: StorePath,
    topics: OptionalTopics = None,
    expired: Annotated[bool, typer.Option("--expired", help="All topics whose messages are all gone.")] = False,
    unused: Annotated[
        bool, typer.Option("--unused", help="All topics that config/topics.json does not list, with their messages.")
    ] = False,
    retain: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC", help="With --unused: a topic that stays though not listed.", show_default=False),
    ] = None,
    with_messages: Annotated[
        bool, typer.Option("--with-messages", help="Also topics that have messages in the log.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Delete messages too. Without it, --with-messages and --unused only show.")
    ] = False,
    lock_timeout: LockTimeout = 0.0,
) -> None:
    """Delete topics: their queues, list entries, and positions of groups. Takes the store's lock.

    A topic that has messages in the log is refused without --with-messages. With it no queue leads to them any more,
    and delayed messages for the topic are not delivered; 'clean' frees their space.
    """
    from commitlog.cli.topics import delete_topics, topics_to_delete

    if bool(topics) + expired + unused != 1:
        raise typer.BadParameter("Name topics, or give one of --expired and --unused.")
    if retain and not unused:
        raise typer.BadParameter("--retain belongs to --unused.")
    named = topics or []
    if (with_messages or unused) and not expired and not yes:
        for line in topics_to_delete(path, named, retain or [], unused=unused):
            print(line)
        return
    for topic in delete_topics(
        path, named, retain or [], lock_timeout, expired=expired, unused=unused, with_messages=with_messages
    ):
        print(f"Deleted {topic}.")
