"""``commitlog dlq``: lists the dead letters of consumer groups, and puts them back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from commitlog.cli.options import OutputFormat
from commitlog.cli.owner_config import owner_config
from commitlog.cli.render import printable_text
from commitlog.cli.row_output import print_rows
from commitlog.cli.times import Clock
from commitlog.format.properties import RETRY_TOPIC
from commitlog.groups.dead_letters import DeadLetters
from commitlog.groups.positions import group_offsets
from commitlog.paths import DLQ_TOPIC_PREFIX, RETRY_TOPIC_PREFIX
from commitlog.reader import StoreReader
from commitlog.store import MessageStore

__all__ = ["print_dead_letters", "redrive_dead_letters", "show_redrive"]

_COLUMNS = ("group", "deadLetters", "waiting", "redriven", "oldest", "newest", "error")


def print_dead_letters(rows: Iterable[DeadLetters], clock: Clock, form: OutputFormat) -> None:
    """Print a row for each group."""
    listed = [_row(one, clock, form) for one in rows]
    is_table = form is OutputFormat.TABLE
    columns = [name for name in _COLUMNS if name != "error" or not is_table or any(row["error"] for row in listed)]
    print_rows(columns, listed, form)


def _row(one: DeadLetters, clock: Clock, form: OutputFormat) -> dict[str, Any]:
    known = one.messages is not None and one.waiting is not None
    shown = clock.short if form is OutputFormat.TABLE else clock.iso
    times = {"oldest": one.oldest_timestamp, "newest": one.newest_timestamp}
    return {
        "group": one.group,
        "deadLetters": one.messages,
        "waiting": one.waiting,
        "redriven": one.messages - one.waiting if known else None,  # type: ignore[operator]
        **{name: None if at is None else shown(at) for name, at in times.items()},
        "error": one.error or None,
    }


def show_redrive(path: str, group: str, most: int | None, *, to_topic: bool) -> int:
    """Print how many messages would be put back, and where. Returns how many. Takes no lock."""
    with StoreReader.open(path) as reader:
        targets = _targets(reader, group, most, to_topic=to_topic)
    total = targets.total()
    if not total:
        print(printable_text(f"Group {group} has no dead letters that were not put back."))
        return 0
    listed = ", ".join(f"{count} to {topic}" for topic, count in sorted(targets.items()))
    print(printable_text(f"It would put back {_count(total)} of group {group}: {listed}."))
    if to_topic:
        print("All groups that consume these topics get the messages again; without --to topic this group alone does.")
    return total


def _targets(reader: StoreReader, group: str, most: int | None, *, to_topic: bool) -> Counter[str]:
    """How many messages would go to which topic."""
    found: Counter[str] = Counter()
    topic, positions = DLQ_TOPIC_PREFIX + group, group_offsets(reader, group)
    for info in reader.queues(topic) if topic in reader.topics() else []:
        start = max(positions.get((topic, info.queue_id), 0), info.min_offset)
        stop = info.max_offset if most is None else min(info.max_offset, start + most - found.total())
        if start >= stop:
            continue
        if not to_topic:
            found[RETRY_TOPIC_PREFIX + group] += stop - start
            continue
        for batch in reader.read(topic, info.queue_id, start, stop, columns=["properties"]):
            rows = batch.column("properties").to_pylist()
            found.update(dict(row).get(RETRY_TOPIC, "no known topic") for row in rows)
    return found


def redrive_dead_letters(path: str, group: str, most: int | None, lock_timeout_s: float, *, to_topic: bool) -> str:
    """Put messages back. Returns a sentence. The errors of opening, and of ``MessageStore.redrive``."""
    with MessageStore.open(path, owner_config(path), lock_timeout_s=lock_timeout_s) as store:
        done = store.redrive(group, to="topic" if to_topic else "retry", max_messages=most)
    return f"Put back {_count(done)} of group {group}."


def _count(messages: int) -> str:
    return "1 dead letter" if messages == 1 else f"{messages} dead letters"
