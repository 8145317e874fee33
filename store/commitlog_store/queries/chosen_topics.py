"""Topics of a store that are named, or match a shell pattern."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from commitlog_store.columnar.columns import nearest_name
from commitlog_store.errors import TopicNotFound
from commitlog_store.reader import StoreReader

# What to do about queues that are missing, in the middle of a sentence.
READ_THE_LOG = "read them from the log alone with --from-log"

_PATTERN = re.compile(r"[*?\[]")


def is_pattern(text: str) -> bool:
    """Whether it is a shell pattern, not the name of a topic."""
    return _PATTERN.search(text) is not None


def chosen_topics(reader: StoreReader, wanted: Sequence[str]) -> list[str]:
    """The topics of a store that are named, or match a shell pattern, in the order given and each once.

    ``TopicNotFound`` for a name or a pattern without a topic, with the topic that is spelled most alike.
    """
    known = reader.topics()
    chosen: dict[str, None] = {}
    for one in wanted:
        if not is_pattern(one):
            chosen[one] = None
            if one not in known:
                _explain(reader, one, known)
        elif matching := [topic for topic in known if fnmatchcase(topic, one)]:
            chosen.update(dict.fromkeys(matching))
        else:
            raise TopicNotFound(f"No topic of {reader.path} matches {one!r}. {_list_of(known)}")
    return list(chosen)


def _explain(reader: StoreReader, topic: str, known: Iterable[str]) -> None:
    try:
        reader.queue_ids(topic)
    except TopicNotFound as error:
        near = nearest_name(topic, known)
        hint = f"Did you mean {near!r}?" if near else _list_of(known)
        if lost := reader.lost_ends():
            hint += f" The store lacks messages at its end: {' '.join(lost)} Run: commitlog doctor {reader.for_shell}."
        raise TopicNotFound(f"{error} {hint}") from None


def _list_of(topics: Iterable[str], most: int = 10) -> str:
    listed = list(topics)
    if not listed:
        return f"The store has no consume queues at all; if its log holds messages, {READ_THE_LOG}."
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return f"It has {', '.join(listed[:most])}{more}."
