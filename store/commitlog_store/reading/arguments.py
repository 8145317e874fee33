"""Arguments of a reader, checked in the same words for a directory and for a server: kinds of values alone.

Whether a topic or a queue exists is another matter, which the store answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from commitlog_store.errors import InvalidValue
from commitlog_store.paths import checked_text
from commitlog_store.queue.get_message import checked_int
from commitlog_store.queue.views import QueueInfo

# Topic, queue id and queue offset; topic, queue id, start and stop; the same with a physical offset before start.
Place = tuple[str, int, int]
Range = tuple[str, int, int, int]
Search = tuple[str, int, int, int, int]


def checked_topic(topic: str) -> str:
    """``InvalidValue`` for what is not a text."""
    return checked_text("topic", topic)


def checked_group(group: str | None) -> str | None:
    """``InvalidValue`` for what is neither a text nor None, which stands for all groups."""
    return None if group is None else checked_text("consumer group", group)


def checked_queue(topic: str, queue_id: int) -> tuple[str, int]:
    """``InvalidValue``."""
    return checked_topic(topic), checked_int("queue_id", queue_id)


def checked_queues(queues: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Queues as ``(topic, queue_id)``. ``InvalidValue``."""
    return [checked_queue(*one) for one in _tuples("queue", ("topic", "queue_id"), queues)]


def checked_places(positions: Iterable[Place]) -> Iterator[Place]:
    """Places as ``(topic, queue_id, offset)``, each as it is asked for. ``InvalidValue``."""
    for topic, queue_id, offset in _tuples("place", ("topic", "queue_id", "offset"), positions):
        yield *checked_queue(topic, queue_id), checked_int("offset", offset)


def checked_searches(wanted: Iterable[Search]) -> Iterator[Search]:
    """Ranges in which a physical offset is searched, each as it is asked for. ``InvalidValue``."""
    names = ("topic", "queue_id", "physical_offset", "start", "stop")
    for topic, queue_id, physical_offset, start, stop in _tuples("search", names, wanted):
        place = checked_int("physical_offset", physical_offset)
        yield *checked_queue(topic, queue_id), place, checked_int("start", start), checked_int("stop", stop)


def checked_ranges(ranges: Iterable[Range]) -> list[Range]:
    """Ranges as ``(topic, queue_id, start, stop)``. ``InvalidValue``."""
    return [
        (*checked_queue(topic, queue_id), checked_int("start", start), checked_int("stop", stop))
        for topic, queue_id, start, stop in _tuples("range", ("topic", "queue_id", "start", "stop"), ranges)
    ]


def checked_bounds(bounds: QueueInfo) -> QueueInfo:
    """``InvalidValue`` for what is not the answer of ``queue_info``."""
    if not isinstance(bounds, QueueInfo):
        raise InvalidValue(f"bounds is a QueueInfo, the answer of queue_info, not {bounds!r}.")
    return bounds


def _tuples(what: str, names: tuple[str, ...], given: object) -> Iterator[tuple[Any, ...]]:
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        raise InvalidValue(f"A list of ({', '.join(names)}) is expected, not {given!r}.")
    for one in given:
        if not isinstance(one, tuple | list) or len(one) != len(names):
            raise InvalidValue(f"A {what} is ({', '.join(names)}), not {one!r}.")
        yield tuple(one)
