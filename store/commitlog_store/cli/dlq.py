"""``commitlog dlq``: lists the dead letters of consumer groups, and puts them back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from commitlog_store.cli.confirm import Changed
from commitlog_store.cli.options import OutputFormat
from commitlog_store.cli.owner_config import owner_config
from commitlog_store.cli.render import printable_text
from commitlog_store.cli.row_output import print_rows
from commitlog_store.cli.times import Clock
from commitlog_store.format.message_rules import topic_before_retries
from commitlog_store.groups.dead_letters import DeadLetters
from commitlog_store.groups.positions import group_offsets
from commitlog_store.paths import DLQ_TOPIC_PREFIX, RETRY_TOPIC_PREFIX
from commitlog_store.queue.skipped import SkippedRange
from commitlog_store.reader import OnDamage, StoreReader
from commitlog_store.store import MessageStore

__all__ = ["Redrive", "print_dead_letters", "redrive_dead_letters", "show_redrive"]

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


@dataclass(frozen=True, kw_only=True)
class Redrive:
    """What is put back, and how it is read: the options of ``dlq redrive``."""

    group: str
    most: int | None
    to_topic: bool
    on_damage: OnDamage
    verify_crc: bool


def show_redrive(path: str, commit_log: str | None, wanted: Redrive) -> Counter[str]:
    """Print how many messages would be put back, and where. Returns how many, by topic. Takes no lock.

    ``InvalidValue`` for one whose topic is not known.
    """
    with StoreReader.open(path, store_path_commit_log=commit_log, on_damage=wanted.on_damage) as reader:
        targets = _targets(reader, wanted)
    total = targets.total()
    if not total:
        print(printable_text(f"Group {wanted.group} has no dead letters that were not put back."))
        return targets
    listed = ", ".join(f"{count} to {topic}" for topic, count in sorted(targets.items()))
    print(printable_text(f"It would put back {_count(total)} of group {wanted.group}: {listed}."))
    if wanted.on_damage == "skip":
        print("Those that cannot be read are skipped, and not put back later.")
    if wanted.to_topic:
        print("All groups that consume these topics get the messages again; without --to topic this group alone does.")
    return targets


def _targets(reader: StoreReader, wanted: Redrive) -> Counter[str]:
    """How many messages would go to which topic."""
    found: Counter[str] = Counter()
    topic, positions = DLQ_TOPIC_PREFIX + wanted.group, group_offsets(reader, wanted.group)
    for info in reader.queues(topic) if topic in reader.topics() else []:
        start = max(positions.get((topic, info.queue_id), 0), info.min_offset)
        stop = info.max_offset if wanted.most is None else min(info.max_offset, start + wanted.most - found.total())
        if start >= stop:
            continue
        if not wanted.to_topic:
            found[RETRY_TOPIC_PREFIX + wanted.group] += stop - start
            continue
        for batch in reader.read(topic, info.queue_id, start, stop, columns=["queueOffset", "properties"]):
            for row in batch.to_pylist():
                found[topic_before_retries(dict(row["properties"]), topic, row["queueOffset"])] += 1
    return found


def redrive_dead_letters(
    path: str, commit_log: str | None, wanted: Redrive, lock_timeout_s: float, shown: Counter[str] | None
) -> tuple[str, list[SkippedRange]]:
    """Put messages back. Returns a sentence, and what was skipped. The errors of opening, and of ``redrive``.

    ``Changed`` when there are not as many as ``shown``; ``InvalidValue`` for a message whose topic is not known: no
    message was put back then.
    """
    skipped: list[SkippedRange] = []
    with MessageStore.open(path, owner_config(path, commit_log=commit_log), lock_timeout_s=lock_timeout_s) as store:
        with StoreReader.open(path, store_path_commit_log=commit_log, on_damage="skip") as reader:
            targets = _targets(reader, wanted)
        if shown is not None and targets != shown:
            raise Changed
        done = store.redrive(
            wanted.group,
            to="topic" if wanted.to_topic else "retry",
            max_messages=wanted.most,
            on_damage=wanted.on_damage,
            verify_crc=wanted.verify_crc,
            skipped=skipped,
        )
    return f"Put back {_count(done)} of group {wanted.group}.", skipped


def _count(messages: int) -> str:
    return "1 dead letter" if messages == 1 else f"{messages} dead letters"
