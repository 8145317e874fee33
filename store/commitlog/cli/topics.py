"""``commitlog topics``: lists topics with their settings, and lists a new one in ``config/topics.json``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from commitlog.cli.console import print_table
from commitlog.cli.options import OutputFormat
from commitlog.cli.owner_config import owner_config
from commitlog.cli.render import printable_text
from commitlog.cli.row_output import print_rows
from commitlog.config import MessageStoreConfig
from commitlog.groups.commit import owned_config
from commitlog.metadata import store_metadata
from commitlog.paths import is_system_topic
from commitlog.queue.topic_config import TopicConfig, TopicSettings, read_topic_settings, unused_topics
from commitlog.reader import StoreReader
from commitlog.store import MessageStore

__all__ = ["create_topic", "delete_topics", "print_topics", "topics_to_delete"]

_COLUMNS = ("topic", "isSystem", "perm", "writeQueueNums", "readQueueNums", "queues", "messages", "error")


def print_topics(path: str, commit_log: str | None, form: OutputFormat) -> None:
    """Print a row for each topic that is listed, or has queues. ``CorruptConfig`` and the errors of a reader."""
    present = {
        row["topic"]: row for row in store_metadata(path, "topics", store_path_commit_log=commit_log).to_pylist()
    }
    listed = read_topic_settings(path)
    rows = [_row(topic, listed.get(topic), present.get(topic, {})) for topic in sorted({*present, *listed})]
    if form is not OutputFormat.TABLE:
        print_rows(_COLUMNS, iter(rows), form)
        return
    table = Table(box=None, pad_edge=False)
    shown = [name for name in _COLUMNS if name != "isSystem" and (name != "error" or any(row[name] for row in rows))]
    for name in shown:
        table.add_column(name, justify="left" if name in ("topic", "error") else "right")
    for row in rows:
        table.add_row(*(Text("-" if row[name] is None else printable_text(str(row[name]))) for name in shown))
    print_table(table)


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
    default = MessageStoreConfig().default_topic_queue_nums
    with owned_config(path, lock_timeout_s=lock_timeout_s) as owned:
        known = read_topic_settings(owned).get(topic)
        TopicConfig(owned, default, lambda _: -1).create_topic(topic, queues, perm=perm)
        now = read_topic_settings(owned)[topic]
    state = "was listed already" if known else "is listed now"
    changed = f", perm {known.perm} is {now.perm} now" if known and known.perm != now.perm else f", perm {now.perm}"
    return f"Topic {topic!r} {state}: {now.write_queue_nums} queues{changed}."


def topics_to_delete(
    path: str, commit_log: str | None, named: Sequence[str], retain: Sequence[str], *, unused: bool
) -> Iterator[str]:
    """A line for each topic that would be deleted, and its messages. Takes no lock. ``TopicNotFound``, and so on."""
    yield "Nothing is deleted without --yes. It would delete:"
    with StoreReader.open(path, store_path_commit_log=commit_log) as reader:
        for topic in unused_topics(path, reader.topics(), retain) if unused else named:
            count = sum(one.max_offset - one.min_offset for one in reader.queues(topic))
            yield printable_text(f"{topic}: {count} messages")


def delete_topics(
    path: str,
    commit_log: str | None,
    named: Sequence[str],
    retain: Sequence[str],
    lock_timeout_s: float,
    *,
    expired: bool,
    unused: bool,
    with_messages: bool,
) -> Iterator[str]:
    """Delete topics; gives each when it is deleted. The errors of opening, and of ``delete_topic``."""
    with MessageStore.open(path, owner_config(path, commit_log=commit_log), lock_timeout_s=lock_timeout_s) as store:
        chosen = named
        if expired:
            chosen = store.expired_topics()
        elif unused:
            chosen = store.clean_unused_topics(retain, dry_run=True)
        for topic in chosen:
            store.delete_topic(topic, with_messages=with_messages or unused)
            yield topic
