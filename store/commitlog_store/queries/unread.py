"""Unread messages: what consumer groups have not read of what is to be skipped or deleted, in words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from commitlog_store.queries.texts import counted

_OTHERS = "Spark checkpoints, exports and programs that keep positions of their own are not known to the store"


class Unread(NamedTuple):
    """Messages of a topic that a consumer group has not read; how many is None where its lag is not known."""

    group: str
    topic: str
    messages: int | None


def unread_words(found: Iterable[Unread], *, hint: str = "") -> list[str]:
    """A sentence for each group that has not read everything, and what is not known; ``hint`` says what to do."""
    by_group: dict[str, list[Unread]] = defaultdict(list)
    for one in found:
        by_group[one.group].append(one)
    words = []
    for group, topics in by_group.items():
        listed = ", ".join(f"{one.topic} {one.messages}" for one in topics if one.messages is not None)
        total = sum(one.messages or 0 for one in topics)
        messages = counted(total, "message")
        if listed:
            words.append(f"Group {group} has not read {messages} of them: {listed}.")
        unknown = ", ".join(one.topic for one in topics if one.messages is None)
        if unknown:
            words.append(f"How many of them are unread is not known for group {group}: {unknown}.")
    if not by_group:
        words.append("No consumer group has unread messages among them.")
    words.append(f"{_OTHERS}{hint}.")
    return words
