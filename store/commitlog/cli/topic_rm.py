"""The command ``topics rm``, which deletes topics whose messages are all gone."""

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
        "rm", epilog=examples("commitlog topics rm /data/store orders", "commitlog topics rm /data/store --expired")
    )(topic_rm)
    if len(topics.registered_commands) == 1:
        topics.callback()(_group)


def _group() -> None:
    """The topics of a store."""


def topic_rm(
    path: StorePath,
    topics: OptionalTopics = None,
    expired: Annotated[bool, typer.Option("--expired", help="All topics whose messages are all gone.")] = False,
    lock_timeout: LockTimeout = 0.0,
) -> None:
    """Delete topics whose messages are all gone: their queues, list entries, and positions of groups.

    A topic that has messages in the log is refused: 'clean' deletes these. Takes the store's lock.
    """
    from commitlog.cli.owner_config import owner_config
    from commitlog.store import MessageStore

    if bool(topics) == expired:
        raise typer.BadParameter("Name topics, or give --expired.")
    with MessageStore.open(path, owner_config(path), lock_timeout_s=lock_timeout) as store:
        for topic in store.expired_topics() if topics is None else topics:
            store.delete_topic(topic)
            print(f"Deleted {topic}.")
