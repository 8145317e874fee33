"""Redrive as it would be done: which dead letters of a group go where, and that in words."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from commitlog_store.format.message_rules import topic_before_retries
from commitlog_store.paths import DLQ_TOPIC_PREFIX, RETRY_TOPIC_PREFIX
from commitlog_store.queries.texts import counted
from commitlog_store.reader import StoreReader


@dataclass(frozen=True, kw_only=True)
class Redrive:
    """What is redriven, and how it is read: the options of ``dlq redrive``."""

    group: str
    most: int | None
    to_topic: bool
    on_damage: Literal["raise", "skip"]
    verify_crc: bool


def redrive_ranges(reader: StoreReader, wanted: Redrive) -> list[tuple[int, int, int]]:
    """Which dead letters would be redriven: queue, first offset, and the offset after the last, in that order."""
    topic, positions = DLQ_TOPIC_PREFIX + wanted.group, reader.group_offsets(wanted.group)
    found, total = [], 0
    for info in reader.queues(topic) if topic in reader.topics() else []:
        start = max(positions.get((topic, info.queue_id), 0), info.min_offset)
        stop = info.max_offset if wanted.most is None else min(info.max_offset, start + wanted.most - total)
        if start < stop:
            found.append((info.queue_id, start, stop))
            total += stop - start
    return found


def redrive_targets(reader: StoreReader, wanted: Redrive) -> Counter[str]:
    """How many messages would go to which topic. ``InvalidValue`` for one whose topic is not known."""
    found: Counter[str] = Counter()
    topic = DLQ_TOPIC_PREFIX + wanted.group
    for queue_id, start, stop in redrive_ranges(reader, wanted):
        if not wanted.to_topic:
            found[RETRY_TOPIC_PREFIX + wanted.group] += stop - start
            continue
        for batch in reader.read(topic, queue_id, start, stop, columns=["queueOffset", "properties"]):
            for row in batch.to_pylist():
                found[topic_before_retries(dict(row["properties"]), topic, row["queueOffset"])] += 1
    return found


def redrive_words(wanted: Redrive, targets: Counter[str], *, other_way: str) -> list[str]:
    """How many messages would be redriven, and where. ``other_way`` names how this group alone gets them."""
    total = targets.total()
    if not total:
        return [f"Group {wanted.group} has no dead letters to redrive."]
    listed = ", ".join(f"{count} to {topic}" for topic, count in sorted(targets.items()))
    words = [f"It would redrive {counted(total, 'dead letter')} of group {wanted.group}: {listed}."]
    if wanted.on_damage == "skip":
        words.append("Those that cannot be read are skipped, and not redriven later.")
    if wanted.to_topic:
        words.append(f"All groups that consume these topics get the messages again; {other_way} this group alone does.")
    return words
