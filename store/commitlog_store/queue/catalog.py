"""Catalog of a store's topics and queues: the directories below ``consumequeue``, listed again only after a change."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from fnmatch import fnmatchcase
from operator import index
from typing import SupportsIndex, TypeVar

import numpy as np

from commitlog_store.columnar.columns import nearest_name
from commitlog_store.errors import (
    CorruptConsumeQueue,
    InvalidValue,
    QueueNotFound,
    StoreAccessDenied,
    TopicNotFound,
    UnsupportedStore,
)
from commitlog_store.files import disk
from commitlog_store.files.numbered_files import DirectoryListing
from commitlog_store.format.arrays import Int64Array
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.log.store_checkpoint import mark_if_readable
from commitlog_store.log.store_directory import check_topic_kind, has_other_kinds
from commitlog_store.paths import ABORT, CHECKPOINT, CONSUME_QUEUE, is_queue_id, is_system_topic, validate_topic
from commitlog_store.queue.consume_queue import ConsumeQueue
from commitlog_store.queue.loaded_ends import load_saved_ends
from commitlog_store.queue.saved_ends import Bools, SavedEnd, SavedEnds, Unchanged
from commitlog_store.queue.unchanged_queue import UnchangedQueue
from commitlog_store.queue.views import CatalogView, QueueView

_T = TypeVar("_T")

# So many topics and queues are looked at before saved ends are read, which takes longer than that.
_LOOKED_AT_FIRST = 64
# More queues than this, and half of those that are saved, are compared together with all others.
_FEWEST_OF_ALL = 64
# So long after a question that compared all saved ends, the next one may rest on it.
_COMPARED_FOR_S = 1.0
# Fewer queues are compared one by one.
_COMPARED_AT_ONCE = 16


class QueueCatalog:
    """Topics, queue ids, and one ``ConsumeQueue`` for each queue that was used."""

    def __init__(self, path: str, commit_log: CommitLog, *, tolerant: bool = False) -> None:
        """``tolerant``: damaged units do not fail ``bounds``, see ``ConsumeQueue``."""
        self._path = path
        self._tolerant = tolerant
        self._unflushed = self._unflushed_from  # one object for all queues
        self._commit_log = commit_log
        self._topics = DirectoryListing(os.path.join(path, CONSUME_QUEUE))
        self._queue_ids: dict[str, _QueueIds] = {}
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        # Those names of directories that topics may have, sorted, as they were listed last.
        self._names: list[str] = []
        # Topics whose directory is known not to be empty; whether all topics were plain when they were listed last.
        self._filled: set[str] = set()
        self._all_plain = False
        self._saved: SavedEnds | None = None
        self._has_asked_for_saved = False
        # Those of which all entries were compared, and the state that the question was asked in: ``take_compared``.
        self._compared: SavedEnds | None = None
        # The comparison by which a question in a state listed queue ids: it serves for the bounds that follow, once.
        self._listed_by: Unchanged | None = None
        self._noted: object | None = None
        # Whether the store is still in the state in which a question is asked; None for one without.
        self._still: Callable[[], bool] | None = None
        self._noted_at_s = 0.0
        # Queues without a ``ConsumeQueue`` that were as they are saved when they were asked for last. Where mapped
        # writes set no times, the entry of one of these has been trusted once: from then on its last unit is read.
        self._unchanged: dict[tuple[str, int], SavedEnds] = {}

    def use(self, saved: SavedEnds | None) -> None:
        """Use these saved ends, or none, instead of those that the store has when many queues are asked for."""
        self._saved, self._has_asked_for_saved = saved, True

    def _saved_now(self, asked: int = 0) -> SavedEnds | None:
        """The store's saved ends, once many queues are asked for and while they may be used."""
        known = len(self._queue_ids) + len(self._queues)
        if not self._has_asked_for_saved and known + asked >= _LOOKED_AT_FIRST:
            self.use(load_saved_ends(self._path))
        if self._saved is not None and not self._saved.may_be_used():
            self._saved = None
        return self._saved

    def saved_end(self, topic: str, queue_id: int) -> SavedEnd | None:
        """What is saved of a queue's end, still to be compared with the queue (``SavedEnd.holds``)."""
        saved = self._saved_now()
        return None if saved is None else saved.end_of(topic, queue_id)

    def topics(self, besides: Collection[str] = ()) -> list[str]:
        """All topics that have a directory, sorted, but for those ``besides``. Other names are ignored."""
        return [name for name in self._listed(besides) if name in self._filled or self._is_filled(name)]

    def topics_and_ids(self) -> tuple[list[str], dict[str, list[int]]]:
        """``CatalogView.topics_and_ids``: a topic that is as it was saved, with queues, is not empty."""
        names = self._listed()
        unchanged = self.unchanged_ids(names)
        self._filled.update(topic for topic, ids in unchanged.items() if ids)
        return [name for name in names if name in self._filled or self._is_filled(name)], unchanged

    def _listed(self, besides: Collection[str] = ()) -> list[str]:
        """The names of directories that topics may have, sorted, but for those ``besides``."""
        if self._topics.refresh():
            self._names = sorted(filter(_is_topic, self._topics.names))
            self._queue_ids = {topic: ids for topic, ids in self._queue_ids.items() if topic in self._topics.names}
            self._filled.intersection_update(self._topics.names)
        self._all_plain = not has_other_kinds(self._path)
        return [name for name in self._names if name not in besides]

    def known_queues(self, besides: Collection[str] = ()) -> Iterator[tuple[str, int]]:
        """Every queue that has a directory, but for those of some topics. Topics of other kinds are skipped."""
        for topic in self.topics(besides):
            try:
                queue_ids = self.queue_ids(topic)
            except (TopicNotFound, UnsupportedStore):
                continue
            for queue_id in queue_ids:
                yield topic, queue_id

    def _is_filled(self, topic: str) -> bool:
        """Whether a topic's directory is not empty. RocketMQ makes it a moment before the first queue's."""
        if topic not in self._filled:
            if disk.surely_has_names(f"{self._topics.path}/{topic}"):
                self._filled.add(topic)
                return True
            ids = self._ids_of(topic)
            try:
                ids.now()
            except StoreAccessDenied:
                return True  # reported when its queues are listed
            if ids.is_empty:
                return False
            self._queue_ids[topic] = ids
            self._filled.add(topic)
        return True

    def _ids_of(self, topic: str) -> _QueueIds:
        return self._queue_ids.get(topic) or _QueueIds(f"{self._topics.path}/{topic}")

    def queue_ids(self, topic: str) -> list[int]:
        """The topic's queue ids, sorted. ``TopicNotFound``, ``UnsupportedStore``, ``InvalidValue``."""
        if topic not in self._queue_ids and topic not in self._filled:
            validate_topic(topic)
        saved = None if topic in self._queue_ids else self._saved_now()
        known = None if saved is None else saved.topic(topic)
        if known is not None and self._has_only_plain() and known.holds(f"{self._topics.path}/{topic}"):
            return known.queue_ids
        ids = self._ids_of(topic)
        if not ids.kind_is_known:
            if not (self._all_plain and topic in self._filled):
                check_topic_kind(self._path, topic)
            ids.kind_is_known = True
        now = ids.now()
        if not now:
            self._queue_ids.pop(topic, None)
            raise TopicNotFound(f"Topic {topic!r} has no consume queue in {self._path}.")
        self._queue_ids[topic] = ids
        return list(now)

    def unchanged_ids(self, topics: Sequence[str]) -> dict[str, list[int]]:
        """``CatalogView.unchanged_ids``, of topics that are as they were saved."""
        self._listed_by = None
        saved = self._saved_now(len(topics)) if len(topics) > _FEWEST_OF_ALL else None
        if saved is None or not self._has_only_plain():
            return {}
        asked = [one for one in topics if type(one) is str and one not in self._queue_ids]
        if self._still is not None and len(asked) > max(len(saved.topics()) // 2, _FEWEST_OF_ALL):
            self._listed_by = saved.look()
            return self._listed_by.ids(asked)
        return saved.unchanged_ids(asked)

    def _has_only_plain(self) -> bool:
        """Whether all topics, or all that were listed last, have plain consume queues."""
        return self._all_plain or not has_other_kinds(self._path)

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """One queue. ``QueueNotFound``, and the errors of ``queue_ids``."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            if type(queue_id) is not int and not isinstance(queue_id, SupportsIndex):  # the latter takes 6 µs
                raise InvalidValue(f"queue_id is an int, not {queue_id!r}.")
            queue_id = index(queue_id)  # one of numpy's is no constant for Arrow
            seen = self._unchanged.pop((topic, queue_id), None)
            end = None if seen is None else seen.end_of(topic, queue_id)
            if end is None and queue_id not in self.queue_ids(topic):
                raise QueueNotFound(f"Topic {topic!r} has no queue {queue_id} in {self._path}.")
            queue = self._new_queue(topic, queue_id)
            if seen is None or end is None:
                queue.saved = self.saved_end(topic, queue_id)
            else:  # it was as it is saved when it was asked for last
                queue.begin_with(end, look_again=seen is self._saved and seen.shows_all_writes)
            self._queues[topic, queue_id] = queue
        return queue

    def uncached_queue(self, topic: str, queue_id: int) -> QueueView:
        """``CatalogView.uncached_queue``: one that is as it was saved is not kept."""
        seen = self._unchanged.get((topic, queue_id))
        end = None if seen is None else seen.end_of(topic, queue_id)
        if end is None:
            return self.queue(topic, queue_id)
        directory = f"{self._topics.path}/{topic}/{queue_id}"
        return UnchangedQueue(directory, topic, queue_id, end.last_unit, self.queue)

    def uncached_queues(self, queues: Sequence[tuple[str, int]]) -> list[QueueView]:
        """``CatalogView.uncached_queues``."""
        saved = self._saved
        if saved is None or not self._unchanged:
            return [self.uncached_queue(*key) for key in queues]
        same = [self._unchanged.get(key) is saved for key in queues]
        rows = saved.queue_rows_of([key for key, is_same in zip(queues, same, strict=True) if is_same])
        lasts = iter(saved.last_units_at(rows))
        return [
            UnchangedQueue(f"{self._topics.path}/{key[0]}/{key[1]}", *key, next(lasts), self.queue)
            if is_same
            else self.uncached_queue(*key)
            for key, is_same in zip(queues, same, strict=True)
        ]

    def known_places(self, positions: Sequence[tuple[str, int, int]]) -> Int64Array:
        """``CatalogView.known_places``: the first and the last message of queues that are as they were saved."""
        found = np.full(len(positions), -1, np.int64)
        saved = self._saved
        if saved is None or not self._unchanged:
            return found
        numbers = [number for number, one in enumerate(positions) if self._unchanged.get(one[:2]) is saved]
        ends = saved.ends_at(saved.queue_rows_of([positions[number][:2] for number in numbers]))
        offsets = np.array([positions[number][2] for number in numbers], np.int64)
        found[numbers] = np.where(offsets == ends.starts, ends.first_places, found[numbers])
        found[numbers] = np.where(offsets == ends.ends - 1, ends.last_places, found[numbers])
        return found

    def _new_queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        path = f"{self._topics.path}/{topic}/{queue_id}"
        return ConsumeQueue(path, topic, queue_id, self._commit_log, self._unflushed, tolerant=self._tolerant)

    def _unflushed_from(self) -> int | None:
        """From which physical offset on a crash may have left units without messages; None for a closed store.

        A broker's checkpoint has only times: 0.
        """
        if not disk.exists(os.path.join(self._path, ABORT)):
            return None
        mark = mark_if_readable(os.path.join(self._path, CHECKPOINT))
        return 0 if mark is None else mark.flushed_offset

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """``ConsumeQueue.bounds``; a queue that has been removed is not found any more."""
        queue = self.queue(topic, queue_id)
        bounds = queue.bounds()
        if queue.removed:
            del self._queues[topic, queue_id]
            self.queue(topic, queue_id)  # raises the error for the missing topic or queue
        return bounds

    def bounds_of(self, queues: Sequence[tuple[str, int]]) -> list[tuple[int, int]]:
        """``bounds`` of each queue. One that is as it was saved gets no ``ConsumeQueue``, and is compared each time."""
        saved = self._saved_now(len(queues))
        if saved is None or not self._has_only_plain():
            return [self.bounds(*key) for key in queues]
        unchanged = self._unchanged_of(saved, queues)
        found = [unchanged.get(key) or self.bounds(*key) for key in queues]
        self._unchanged.update(dict.fromkeys(unchanged, saved))
        return found

    def unchanged_bounds(self, queues: Sequence[tuple[str, int]]) -> list[tuple[int, int]] | None:
        """``CatalogView.unchanged_bounds``."""
        saved = self._saved_now(len(queues))
        if saved is None or not self._queues.keys().isdisjoint(queues) or not self._has_only_plain():
            return None
        found: list[tuple[int, int]] = []
        for key in queues:
            bounds = self._saved_bounds(saved, key)
            if bounds is None:
                return None
            found.append(bounds)
        self._unchanged.update(dict.fromkeys(queues, saved))
        return found

    def ask_in_state(self, settled_state: Callable[[], object | None], state: object, ask: Callable[[], _T]) -> _T:
        """``CatalogView.ask_in_state``."""
        self._compared, self._noted = None, None
        self._still = None if state is None else (lambda: settled_state() == state)
        try:
            found = ask()
        finally:
            self._still, self._listed_by = None, None
        self._noted, self._noted_at_s = state, time.monotonic()
        return found

    def take_compared(self, settled_state: Callable[[], object | None]) -> SavedEnds | None:
        """``CatalogView.take_compared``."""
        compared, state = self._compared, self._noted
        self._compared, self._noted = None, None
        if compared is None or state is None or time.monotonic() - self._noted_at_s > _COMPARED_FOR_S:
            return None
        return compared if state == settled_state() else None

    def last_unit(self, topic: str, queue_id: int) -> tuple[int, int]:
        """``ConsumeQueue.last_unit``, which needs none for a queue that is as it was saved."""
        seen = self._unchanged.get((topic, queue_id))
        saved = None if seen is None else seen.end_of(topic, queue_id)
        if saved is None:
            return self.queue(topic, queue_id).last_unit()
        return saved.end - 1, saved.last_place

    def _unchanged_of(
        self, saved: SavedEnds, queues: Sequence[tuple[str, int]]
    ) -> dict[tuple[str, int], tuple[int, int]]:
        """The bounds of those queues that are as they were saved, and whose messages the log has."""
        asked = [key for key in queues if key not in self._queues]
        if len(asked) > max(saved.queue_count // 2, _FEWEST_OF_ALL):
            rows = saved.queue_rows_of(asked)
            same = self._look_at_all(saved)[rows]
        elif len(asked) >= _COMPARED_AT_ONCE:
            rows = saved.queue_rows_of(asked)
            same = saved.look_at(rows)
        else:
            return {key: limits for key in asked if (limits := self._saved_bounds(saved, key)) is not None}
        places = np.flatnonzero((rows >= 0) & same)
        if not saved.shows_all_writes and self._unchanged:
            self._compared = None
            still = [self._end_is_unchanged(saved, asked[at], saved.end_at(int(rows[at]))[1]) for at in places.tolist()]
            places = places[np.array(still, np.bool_)]
        ends, log = saved.ends_at(rows[places]), self._commit_log
        held = log.holds_all(ends.last_places, ends.last_sizes) & (ends.first_places >= log.min_offset)
        bounds = zip(ends.starts[held].tolist(), ends.ends[held].tolist(), strict=True)
        return {asked[at]: limits for at, limits in zip(places[held].tolist(), bounds, strict=True)}

    def _saved_bounds(self, saved: SavedEnds, key: tuple[str, int]) -> tuple[int, int] | None:
        """The bounds of a queue that is as it was saved, and whose messages the log has; None for another one."""
        end = saved.end_of(*key)
        if end is None or end.first_place < self._commit_log.min_offset:
            return None
        # As far as the entry of its directory and its last unit show.
        path = f"{self._topics.path}/{key[0]}/{key[1]}"
        if end.holds(path) is None or not self._end_is_unchanged(saved, key, end):
            return None
        return (end.start, end.end) if self._commit_log.holds(end.last_place, end.last_size) else None

    def _look_at_all(self, saved: SavedEnds) -> Bools:
        """Of each entry of a queue, whether it holds. In a state, the next question may rest on it."""
        listed_by, self._listed_by = self._listed_by, None
        if self._still is None:
            return saved.look_at(np.arange(saved.queue_count))
        self._compared = saved
        # The answer may be kept for a state that was asked for after the list.
        return (listed_by if listed_by is not None and self._still() else saved.look()).queues

    def _end_is_unchanged(self, saved: SavedEnds, key: tuple[str, int], end: SavedEnd) -> bool:
        """Whether a queue that was compared ends as it was saved. Only where mapped writes set no times, and a writer
        may have come since the queue was asked for last, its last unit is read.
        """
        return (
            saved.shows_all_writes
            or key not in self._unchanged
            or end.last_unit_is_unchanged(f"{self._topics.path}/{key[0]}/{key[1]}")
        )


def log_end_by_queues(catalog: CatalogView, commit_log: CommitLog) -> int:
    """The end of the last message that any queue leads to; after it, the log holds only what is not dispatched yet."""
    lasts = [(catalog.last_unit(*key), key) for key in _queues_with_bounds(catalog)]
    for (offset, _), key in sorted(lasts, key=lambda one: one[0][1], reverse=True):
        unit = catalog.uncached_queue(*key).unit(offset)
        if unit is not None and commit_log.holds(*unit):
            return sum(unit)
    return commit_log.min_offset


def _queues_with_bounds(catalog: CatalogView) -> list[tuple[str, int]]:
    """All queues that can be asked for, asked for their bounds just now: together, unless one of them is damaged."""
    topics, unchanged = catalog.topics_and_ids()
    queues: list[tuple[str, int]] = []
    for topic in topics:
        with contextlib.suppress(TopicNotFound, UnsupportedStore):
            queues += [(topic, queue_id) for queue_id in unchanged.get(topic) or catalog.queue_ids(topic)]
    try:
        catalog.bounds_of(queues)
    except CorruptConsumeQueue:
        return [key for key in queues if _has_bounds(catalog, key)]  # the others lead close enough to the end
    return queues


def _has_bounds(catalog: CatalogView, queue: tuple[str, int]) -> bool:
    try:
        catalog.bounds(*queue)
    except CorruptConsumeQueue:
        return False
    return True


def matching_queues(
    catalog: CatalogView, patterns: object, store_path: str
) -> tuple[list[tuple[str, int]], list[UnsupportedStore]]:
    """The queues of topics, by name or shell pattern, and why those that match a pattern cannot be read.

    ``InvalidValue``; ``TopicNotFound`` as ``matching_topics``; ``UnsupportedStore`` for a topic that is named.
    """
    names = [patterns] if isinstance(patterns, str) else patterns
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise InvalidValue(f"topics is a name, a pattern, or a list of them, not {patterns!r}.")
    queues: list[tuple[str, int]] = []
    unreadable: list[UnsupportedStore] = []
    known, unchanged = catalog.topics_and_ids()
    for topic in matching_topics(known, names, store_path):
        try:
            queues += [(topic, queue_id) for queue_id in unchanged.get(topic) or catalog.queue_ids(topic)]
        except UnsupportedStore as error:
            if topic in names:
                raise
            unreadable.append(error)
    return queues, unreadable


def matching_topics(known: Sequence[str], patterns: Sequence[str], store_path: str) -> list[str]:
    """The topics that one of the names or shell patterns names, in the order of ``known``; without patterns, those of
    applications. A pattern matches no system topic; a name takes any topic. ``TopicNotFound`` for a name or pattern
    without a topic.
    """
    found = [topic for topic in known if topic in patterns or not is_system_topic(topic)]
    for pattern in patterns:
        if not any(fnmatchcase(topic, pattern) for topic in found):
            near = nearest_name(pattern, known)
            hint = f" Did you mean {near!r}?" if near else ""
            raise TopicNotFound(f"No topic of {store_path} matches {pattern!r}; `commitlog info` lists them.{hint}")
    return [topic for topic in found if not patterns or is_chosen(topic, patterns)]


def is_chosen(topic: str, patterns: Sequence[str]) -> bool:
    """Whether a topic has one of these names, or is an application's and matches one of these shell patterns."""
    return topic in patterns or (
        not is_system_topic(topic) and any(fnmatchcase(topic, pattern) for pattern in patterns)
    )


class _QueueIds:
    """The queue ids in a topic's directory, sorted."""

    __slots__ = ("_ids", "_listing", "kind_is_known")

    def __init__(self, path: str) -> None:
        self._listing = DirectoryListing(path)
        self._ids: list[int] = []
        # Whether the topic is known to have plain consume queues.
        self.kind_is_known = False

    @property
    def is_empty(self) -> bool:
        """Whether the directory was missing or empty when it was listed last."""
        return not self._listing.names

    def now(self) -> list[int]:
        try:
            changed = self._listing.refresh()
        except NotADirectoryError:
            return []
        if changed:
            self._ids = sorted(int(name) for name in self._listing.names if is_queue_id(name))
        return self._ids


def _is_topic(name: str) -> bool:
    try:
        validate_topic(name)
    except InvalidValue:
        return False
    return True
