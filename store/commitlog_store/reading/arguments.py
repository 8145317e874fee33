"""Arguments of a reader, checked in the same words for a directory and for a server: kinds of values alone.

Whether a topic or a queue exists is another matter, which the store answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard, TypeVar

from commitlog_store.errors import InvalidValue
from commitlog_store.filter.message_filter import MessageFilter
from commitlog_store.paths import checked_text
from commitlog_store.queue.get_message import checked_int
from commitlog_store.queue.views import QueueInfo

_T = TypeVar("_T")
# Topic, queue id and queue offset; topic, queue id, start and stop; the same with a physical offset before start.
Place = tuple[str, int, int]
Range = tuple[str, int, int, int]
Search = tuple[str, int, int, int, int]


def checked_topic(topic: str) -> str:
    """``InvalidValue`` for what is not a text."""
    return checked_text("topic", topic)


def checked_topics(topics: Iterable[str]) -> Sequence[str]:
    """Topics as ``repeatable`` has them, each still to be checked. ``InvalidValue`` for what is not a list."""
    given = _each(("topic",), topics)
    return given if isinstance(given, Sequence) else list(given)


def checked_group(group: str | None) -> str | None:
    """``InvalidValue`` for what is neither a text nor None, which stands for all groups."""
    return None if group is None else checked_text("consumer group", group)


def checked_queue(topic: str, queue_id: int) -> tuple[str, int]:
    """``InvalidValue``."""
    return checked_topic(topic), checked_int("queue_id", queue_id)


def checked_queues(queues: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Queues as ``(topic, queue_id)``. ``InvalidValue``."""
    names = ("topic", "queue_id")
    # The kinds that are meant are looked for first, here and below: thousands of queues are asked for at once.
    return [
        one
        if type(one) is tuple and len(one) == 2 and type(one[0]) is str and type(one[1]) is int
        else checked_queue(*_tuple("queue", names, one))
        for one in _each(names, queues)
    ]


def checked_places(positions: Iterable[Place]) -> Iterator[Place]:
    """Places as ``(topic, queue_id, offset)``, each as it is asked for. ``InvalidValue``."""
    names = ("topic", "queue_id", "offset")
    for one in _each(names, positions):
        if type(one) is tuple and len(one) == 3 and type(one[0]) is str and type(one[1]) is int and type(one[2]) is int:
            yield one
        else:
            topic, queue_id, offset = _tuple("place", names, one)
            yield *checked_queue(topic, queue_id), checked_int("offset", offset)


def checked_positions(positions: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], int]:
    """Positions as ``{(topic, queue_id): offset}``. ``InvalidValue`` for another shape."""
    if not isinstance(positions, Mapping):
        raise InvalidValue(f"positions is {{(topic, queue_id): offset}}, not {positions!r}.")
    for queue in positions:
        _tuple("queue of positions", ("topic", "queue_id"), queue)
    return positions


def checked_times(wanted: Iterable[tuple[QueueInfo, _T]]) -> list[tuple[QueueInfo, _T]]:
    """Pairs of a queue's bounds and a time that is still to be checked. ``InvalidValue``."""
    names = ("queue_info", "timestamp_ms")
    pairs = [_tuple("question", names, one) for one in _each(names, wanted)]
    return [(checked_bounds(info), time) for info, time in pairs]


def checked_filter(wanted: MessageFilter | None) -> MessageFilter | None:
    """``InvalidValue`` for what is neither a filter nor None."""
    if wanted is not None and not isinstance(wanted, MessageFilter):
        raise InvalidValue(f"filter is a MessageFilter, as MessageFilter.parse makes it, not {wanted!r}.")
    return wanted


def checked_searches(wanted: Iterable[Search]) -> Iterator[Search]:
    """Ranges in which a physical offset is searched, each as it is asked for. ``InvalidValue``."""
    names = ("topic", "queue_id", "physical_offset", "start", "stop")
    for one in _each(names, wanted):
        topic, queue_id, physical_offset, start, stop = _tuple("search", names, one)
        place = checked_int("physical_offset", physical_offset)
        yield *checked_queue(topic, queue_id), place, checked_int("start", start), checked_int("stop", stop)


def checked_ranges(ranges: Iterable[Range]) -> list[Range]:
    """Ranges as ``(topic, queue_id, start, stop)``. ``InvalidValue``."""
    names = ("topic", "queue_id", "start", "stop")
    return [one if _is_range(one) else _checked_range(*_tuple("range", names, one)) for one in _each(names, ranges)]


def _is_range(one: object) -> TypeGuard[Range]:
    """Whether it is a range of the kinds that are meant."""
    return isinstance(one, tuple) and len(one) == 4 and tuple(map(type, one)) == (str, int, int, int)


def _checked_range(topic: str, queue_id: int, start: int, stop: int) -> Range:
    return (*checked_queue(topic, queue_id), checked_int("start", start), checked_int("stop", stop))


def checked_bounds(bounds: QueueInfo) -> QueueInfo:
    """``InvalidValue`` for what is not the answer of ``queue_info``."""
    if not isinstance(bounds, QueueInfo):
        raise InvalidValue(f"bounds is a QueueInfo, the answer of queue_info, not {bounds!r}.")
    return bounds


def repeatable(given: Sequence[_T]) -> Sequence[_T]:
    """Arguments that can be gone through more than once: an iterator, which an address takes as well, as a list.

    Sequences are not copied: those of a served call raise, item by item, once its client does not wait any more.
    """
    return list(given) if isinstance(given, Iterator) else given


def _each(names: tuple[str, ...], given: Any) -> Iterable[Any]:
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        one = names[0] if len(names) == 1 else f"({', '.join(names)})"
        raise InvalidValue(f"A list of {one} is expected, not {given!r}.")
    return given


def _tuple(what: str, names: tuple[str, ...], one: object) -> tuple[Any, ...]:
    if not isinstance(one, tuple | list) or len(one) != len(names):
        raise InvalidValue(f"A {what} is ({', '.join(names)}), not {one!r}.")
    return tuple(one)
