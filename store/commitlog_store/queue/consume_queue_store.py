"""Owner of all consume queues of a store: appends, flushes, counts and deletes their files."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from commitlog_store.columnar.dispatch import GroupedUnits, QueueUnits
from commitlog_store.errors import (
    CorruptConsumeQueue,
    NotAStore,
    StoreIOError,
    TooManyOpenFiles,
    TopicNotFound,
    UnsupportedStore,
)
from commitlog_store.files import disk
from commitlog_store.files.error_paths import failed_reads
from commitlog_store.format.consume_queue_unit import UNIT_DTYPE, UNIT_SIZE, Units
from commitlog_store.paths import (
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    names_directory,
    parse_file_name,
)
from commitlog_store.queue.catalog import QueueCatalog
from commitlog_store.queue.consume_queue_ext import remove_ext_files
from commitlog_store.queue.consume_queue_writer import ConsumeQueueWriter, OpenFiles
from commitlog_store.queue.deleted_topics import DeletedTopics
from commitlog_store.queue.expired_units import sound_units
from commitlog_store.queue.light_queues import append_light, rewrite_light
from commitlog_store.queue.new_names import NewNames
from commitlog_store.queue.queue_survey import QueueFiles, QueueSurvey
from commitlog_store.queue.saved_ends import SavedEnds
from commitlog_store.queue.settled_queues import SettledFile
from commitlog_store.threads.fair_lock import FairLock
from commitlog_store.threads.parallel import for_each

_LOG = logging.getLogger(__name__)
_MOST_SYNCS = 8
# How many queues are looked at while dispatch waits for them: a few milliseconds.
_QUEUES_AT_ONCE = 64
# How many queues are written while puts wait for the lock; files of some of them have to be opened.
_APPENDED_AT_ONCE = 16

_NO_UNITS: Units = np.empty(0, UNIT_DTYPE)


class QueueLook(NamedTuple):
    """A queue's first offset with a place in a file, its next one, and units as far as files hold them."""

    first_offset: int
    next_offset: int
    units: Units


class ConsumeQueueStore:
    """One ``ConsumeQueueWriter`` for each touched queue. Dispatch writes from one thread, another one flushes."""

    def __init__(
        self,
        store_path: str,
        file_size: int,
        catalog: QueueCatalog,
        *,
        read_only: bool = False,
        known: SavedEnds | None = None,
    ) -> None:
        """``read_only``: the queues are only looked at, and no file is opened for writing. ``known`` are saved ends
        that were loaded for the same look at the store.
        """
        self.path = os.path.join(store_path, CONSUME_QUEUE)
        self._ext_path = os.path.join(store_path, CONSUME_QUEUE_EXT)
        self._file_size = file_size
        self._catalog = catalog
        # Topics that were deleted, whose messages in the log get no units.
        self.deleted = DeletedTopics(store_path)
        self._open_files = OpenFiles(read_only=read_only)
        self._names = NewNames()
        # By which readers see that nothing has changed; None until the store's owner announces changes.
        self._settled: SettledFile | None = None
        self._store_path = store_path
        self._writers: dict[tuple[str, int], ConsumeQueueWriter] = {}
        # A sync that failed has lost its pages: the next one would succeed all the same (invariant 7).
        self._failure: StoreIOError | None = None
        self._sized = False
        # Queue files that were on disk when they were counted.
        self._counted = 0
        self._survey = QueueSurvey(store_path, catalog, known)
        # Dispatch takes it for one queue at a time: making its files must not hold up puts into others.
        self._lock = FairLock()
        # Held by the syncing thread: no other may take its files for synced before that ends. Taken before ``_lock``.
        self._flushing = threading.Lock()

    def announce_changes(self) -> None:
        """Before the first change of a store that is opened for writing. ``StoreIOError``."""
        self._settled = SettledFile(self._store_path)

    def _unsettle(self) -> None:
        if self._settled is not None:
            self._settled.unsettle()

    def settle(self, dispatched_to: int) -> None:
        """Show readers that all records before a physical offset are in their queues."""
        with self._lock:
            if self._settled is not None:
                self._settled.settle(dispatched_to)

    def known_queues(self, besides: Collection[str] = ()) -> Iterator[tuple[str, int]]:
        """``QueueCatalog.known_queues``."""
        return self._catalog.known_queues(besides)

    def survey(self) -> QueueFiles:
        """Look at the names and sizes of all queue files; ``file_count`` continues from their number. ``OSError``."""
        files = self._survey.look()
        if files.size is not None:
            self._file_size, self._sized = files.size, True
        self._counted = files.count - self._names.files
        return files

    def use_saved_ends(self) -> None:
        """Let the next survey use the ends that the last owner saved, if they may be used; needs a closed store.

        Saved ends that cannot be read count as none.
        """
        self._survey.use_saved_ends()

    def distrust_saved_ends(self) -> None:
        """Use no saved ends, and let no mark name them, until they are saved again."""
        self._survey.distrust_saved_ends()

    @property
    def saved_generation(self) -> int:
        """The generation of the saved ends that the mark names; 0 for none."""
        return self._survey.saved_generation

    def save_ends(self) -> None:
        """Save the ends of all queues for the next owner, at a clean close: all queues are on the device.

        Without space for the file, or after any other failure, the mark names none.
        """
        with self._lock:
            self._survey.save(self._writers)

    def find_ends(self) -> int:
        """``ends`` of all queues that the last survey saw. Reads the last units of each. ``OSError``."""
        return self._survey.find_ends(self._writers)

    @property
    def ends(self) -> int:
        """The sum of the bytes at which the queues' last files and last units end, for the mark. Looks at no file."""
        return self._survey.ends(self._writers)

    def count_units(self, start: int, stop: int) -> int:
        """The number of units, of all queues, of messages at the physical offsets ``[start, stop)``."""
        writers = [self.writer(topic, queue_id) for topic, queue_id in self.known_queues()]
        return sum(writer.end_before(stop) - writer.end_before(start) for writer in writers)

    @property
    def file_count(self) -> int:
        """The number of queue files whose names are on the device, without a look at the directories."""
        return self._counted + self._names.files

    def place_from(self, topic: str, queue_id: int, offset: int) -> int | None:
        """The physical offset of the queue's message at ``offset``; None while it has none there or after it.

        A damaged unit has that of the last message before it. ``ReadFailed``.
        """
        with self._lock, failed_reads(self.path):
            writer = self._existing(topic, queue_id)
            return None if writer is None else writer.place_from(max(offset, writer.first_offset))

    def look(self, topic: str, queue_id: int, offset: int, count: int) -> QueueLook | None:
        """The bounds of a queue as it is written, and up to ``count`` units from an offset on; None for no such queue.

        The units are those of one file, as in RocketMQ's ``getMessage``. ``ReadFailed``.
        """
        with self._lock, failed_reads(self.path):
            writer = self._existing(topic, queue_id)
            if writer is None:
                return None
            first, stop = writer.first_offset, self._next_offset(writer)
            units = _NO_UNITS
            if first <= offset < stop:
                units = writer.read(offset, min(offset + count, stop, writer.file_end(offset)))
            return QueueLook(first, stop, units)

    def first_left(self, topic: str, queue_id: int, log_start: int) -> int:
        """The offset of the first message of an existing queue that the log still has. ``ReadFailed``."""
        with self._lock, failed_reads(self.path):
            writer = self._positioned(topic, queue_id)
            return max(writer.first_offset, writer.end_before(log_start))

    def place_left(self, topic: str, queue_id: int, offset: int, log_start: int) -> int | None:
        """``place_from`` of the messages that the log still has: units of those before ``log_start`` are skipped, and
        the fillers with which a queue may begin. ``ReadFailed``.
        """
        with self._lock, failed_reads(self.path):
            writer = self._existing(topic, queue_id)
            return None if writer is None else writer.place_from(max(offset, writer.end_before(log_start)))

    def highest_id(self, topic: str) -> int:
        """The highest id among a topic's queues; -1 when it has none."""
        return self.highest_ids([topic])[0]

    def highest_ids(self, topics: Sequence[str]) -> list[int]:
        """``highest_id`` of many topics: a turn of the lock for each of them would wait for dispatch as often."""
        found: list[int] = []
        while len(found) < len(topics):
            with self._lock:
                found += map(self._highest_id, topics[len(found) : len(found) + _QUEUES_AT_ONCE])
        return found

    def _highest_id(self, topic: str) -> int:
        if not disk.exists(os.path.join(self.path, topic)):
            return -1  # most topics that are asked for are new ones
        try:
            ids = self._catalog.queue_ids(topic)
        except (TopicNotFound, UnsupportedStore):
            ids = []
        return max(ids, default=-1)

    def _existing(self, topic: str, queue_id: int) -> ConsumeQueueWriter | None:
        """The writer of a queue, if that exists: the store remembers each queue that it makes one for."""
        writer = self._writers.get((topic, queue_id))
        if writer is None or writer.is_empty or writer.next_offset is None:
            return None if queue_id > self._highest_id(topic) else self._positioned(topic, queue_id)
        return writer

    def place(self, topic: str, queue_id: int, offset: int) -> int | None:
        """The physical offset of the queue's message at ``offset``; None where nothing was written. ``ReadFailed``."""
        with self._lock, failed_reads(self.path):
            unit = self.writer(topic, queue_id).unit(offset)
            return None if unit is None else unit[0]

    def writer(self, topic: str, queue_id: int) -> ConsumeQueueWriter:
        found = self._writers.get((topic, queue_id))
        if found is None:
            if not names_directory(topic) or queue_id < 0:
                # The log of a foreign store may name anything (invariant 10).
                raise NotAStore(
                    f"A message in the log names topic {topic!r}, queue {queue_id}, which cannot be a directory of "
                    f"{self.path}.",
                    path=self.path,
                )
            if not self._sized:
                self._take_size()
            path = os.path.join(self.path, topic, str(queue_id))
            found = ConsumeQueueWriter(path, topic, queue_id, self._file_size, self._open_files, self._names)
            self._writers[topic, queue_id] = found
        return found

    def next_offset(self, topic: str, queue_id: int) -> int:
        """The offset of the queue's next message; 0 for a new queue, unless its topic was deleted."""
        return self.next_offsets([(topic, queue_id)])[0]

    def next_offsets(self, queues: Sequence[tuple[str, int]]) -> list[int]:
        """``next_offset`` of many queues."""
        found: list[int] = []
        while len(found) < len(queues):
            with self._lock:
                part = queues[len(found) : len(found) + _QUEUES_AT_ONCE]
                found += [self._next_offset_of(*queue) for queue in part]
        return found

    def _next_offset_of(self, topic: str, queue_id: int) -> int:
        """The next offset of a queue that no put has touched. Of most, the topic has no directory yet."""
        if names_directory(topic) and queue_id >= 0 and not disk.exists(os.path.join(self.path, topic)):
            return self.deleted.ends(topic).get(queue_id, 0)
        return self._next_offset(self._positioned(topic, queue_id))

    def _next_offset(self, writer: ConsumeQueueWriter) -> int:
        if writer.is_empty:
            return self.deleted.ends(writer.topic).get(writer.queue_id, 0)
        return writer.next_offset or 0

    def written_bounds(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """The first offset with a place in a file, and the next one to be written; None without such a queue."""
        with self._lock:
            writer = self._existing(topic, queue_id)
            return None if writer is None else (writer.first_offset, writer.next_offset or 0)

    def read_units(self, topic: str, queue_id: int, first: int, stop: int) -> Units:
        """The units ``[first, stop)`` of a queue that exists, as far as files hold them; fillers included.

        ``ReadFailed``.
        """
        with self._lock, failed_reads(self.path):
            return self._positioned(topic, queue_id).read(first, stop)

    def _positioned(self, topic: str, queue_id: int) -> ConsumeQueueWriter:
        writer = self.writer(topic, queue_id)
        if writer.next_offset is None:
            writer.continue_at(0 if writer.is_empty else self._catalog.bounds(topic, queue_id)[1])
        return writer

    def _take_size(self) -> None:
        """New queues get files of the same size as those of the others: RocketMQ requires one size for all."""
        self._sized = True
        for topic, queue_id in self.known_queues():
            directory = os.path.join(self.path, topic, str(queue_id))
            for name in disk.list_names(directory):
                size = disk.file_size(os.path.join(directory, name)) if parse_file_name(name) is not None else 0
                if size and size % UNIT_SIZE == 0:
                    self._file_size = size
                    return

    def append(self, groups: GroupedUnits) -> None:
        """Dispatch: add the units of each queue. ``CorruptConsumeQueue``, ``StoreIOError``."""
        for given in self._append_next(groups):
            group = self.deleted.left(given)
            if group is None:
                continue
            with self._lock:
                self._unsettle()
                if group.light:
                    append_light(self.writer(group.topic, group.queue_id), group.queue_offsets, group.units)
                    continue
                writer = self._positioned(group.topic, group.queue_id)
                writer.append(group.queue_offsets, group.units)

    def _append_next(self, groups: GroupedUnits) -> list[QueueUnits]:
        """``ConsumeQueueWriter.append_next`` of many queues; the groups that are left. ``StoreIOError``."""
        others: list[QueueUnits] = []
        bounds, data = groups.bounds, groups.units.tobytes()
        starts, follow_one_another = groups.starts()
        for first in range(0, len(groups), _APPENDED_AT_ONCE):
            with self._lock:
                self._unsettle()
                has_deleted = not self.deleted.is_empty
                for number in range(first, min(first + _APPENDED_AT_ONCE, len(groups))):
                    is_plain = follow_one_another[number] and not groups.light[number]
                    writer = self._writers.get(groups.queues[number]) if is_plain else None
                    if (
                        writer is None
                        or (has_deleted and self.deleted.left(group := groups[number]) is not group)
                        or not writer.append_next(
                            starts[number], data[bounds[number] * UNIT_SIZE : bounds[number + 1] * UNIT_SIZE]
                        )
                    ):
                        others.append(groups[number])
        return others

    def rewrite(self, group: QueueUnits, *, from_start: bool, write_back: bool) -> bool:
        """Recovery: ``ConsumeQueueWriter.rewrite`` of the group's queue. Nothing else writes during that."""
        left = self.deleted.left(group)
        if left is None:
            return True
        group, writer = left, self.writer(group.topic, group.queue_id)
        if self.begins_after_deletion(group):
            # The messages before these are deleted: no unit of theirs is missing, and none of an older queue stays.
            from_start = True
            writer.forget_before(int(group.queue_offsets[0]))
        if group.light:
            return rewrite_light(writer, group.queue_offsets, group.units, from_start=from_start, write_back=write_back)
        return writer.rewrite(group.queue_offsets, group.units, from_start=from_start, write_back=write_back)

    def begins_after_deletion(self, group: QueueUnits) -> bool:
        """Whether the first of these messages is the first one since the deletion of their topic."""
        return self.deleted.ends(group.topic).get(group.queue_id) == int(group.queue_offsets[0])

    def holds(self, group: QueueUnits) -> bool:
        """Whether the last of a group's units, and so all of them, is in its queue already; or they are deleted."""
        if self.deleted.left(group) is None:
            return True
        unit = self.writer(group.topic, group.queue_id).unit(int(group.queue_offsets[-1]))
        return unit is not None and unit[0] == int(group.units["physical_offset"][-1])

    def forget(self) -> None:
        """Forget all queues; each is read from disk again. ``StoreIOError``."""
        self.flush_all()
        with self._lock:
            self._survey.note_forgotten(self._writers)
            self._writers = {}

    def flush(self, least_pages: int = 0) -> None:
        """Sync every queue that has at least that many dirty pages. ``StoreIOError``."""
        self._flush(max(least_pages, 1))

    def flush_all(self) -> None:
        """Sync every queue that was written, zeroed ends included, and all new names. ``StoreIOError``."""
        self._flush(0, names=True)

    def _flush(self, least_pages: int, *, names: bool = False) -> None:
        """Sync the dirty files of queues with that many dirty pages, while puts and dispatch continue.

        With ``names``, the directories with new names too.
        """
        with self._flushing:
            with self._lock:
                self._refuse_failed()
                dirty = [writer for writer in self._writers.values() if writer.dirty_pages >= least_pages]
                paths = sorted(path for writer in dirty for path in writer.begin_sync())
                directories = self._names.begin_sync() if names else []
            unopened: list[TooManyOpenFiles] = []

            def sync(step: tuple[Callable[[str], None], str]) -> None:
                try:
                    step[0](step[1])
                except TooManyOpenFiles as error:  # no sync has failed: the next one has all these files again
                    unopened.append(error)

            try:
                steps = [(_sync_file, path) for path in paths] + [(_sync_directory, path) for path in directories]
                for_each(sync, steps, most_threads=_MOST_SYNCS)
            except Exception as error:
                # Whatever it was: other files may lack their syncs, and the next sync would say that all is well.
                cause = OSError(errno.EIO, str(error))
                failure = (
                    error if isinstance(error, StoreIOError) else StoreIOError("sync", path=self.path, cause=cause)
                )
                self._failure = failure
                raise
            if unopened:
                raise unopened[0]
            with self._lock:
                for writer in dirty:
                    writer.end_sync()
                if names:
                    self._names.end_sync()

    def _refuse_failed(self) -> None:
        if self._failure is not None:
            raise self._failure.again() from self._failure

    def sync_directories(self) -> None:
        """Sync the names of topics, queues and files: their maker may have been killed before that.

        ``StoreIOError``.
        """
        with self._lock:
            topics = {topic for topic, _ in self._writers}
            queues = [writer.path for writer in self._writers.values() if not writer.is_empty]
            paths = [*queues, *(os.path.join(self.path, topic) for topic in sorted(topics)), self.path]
        for_each(_sync_directory, [*paths, os.path.dirname(self.path)], most_threads=_MOST_SYNCS)

    def reset(self, log_start: int) -> None:
        """Delete every queue file, for rebuilding from scratch; only the log's own messages can be rebuilt.

        A queue keeps the last units before ``log_start``, or fillers in their place: they hold the queue's end when all
        messages have expired, and without them the same offsets would be given again. ``StoreIOError``.
        """
        with self._lock:
            for topic, queue_id in list(self.known_queues()):
                self.writer(topic, queue_id).keep_expired(log_start)
        self.forget()

    def discount_expired(self, log_start: int) -> list[tuple[str, int, int]]:
        """Topic, queue id and number of the oldest files that hold only messages before ``log_start``.

        Every queue keeps its last file, which holds its end, and its files from a damaged one on, with a warning. From
        now on the files are not counted: the checkpoint must claim fewer before they go, or a crash in between would
        look like a loss. ``OSError``.
        """
        found = []
        with self._lock:
            for topic, queue_id in list(self.known_queues()):
                count, damage = self.writer(topic, queue_id).expired_files(log_start)
                if damage is not None:
                    _LOG.warning("Cleaning keeps the files of a damaged queue: %s", damage)
                if count:
                    found.append((topic, queue_id, count))
            self._names.discount(sum(count for _, _, count in found))
            return found

    def remove_expired(self, topic: str, queue_id: int, count: int) -> None:
        """Delete so many of a queue's oldest files, discounted before. ``StoreIOError``."""
        with self._lock:
            self._unsettle()
            self.writer(topic, queue_id).remove_oldest(count)

    def remove_expired_ext(self, log_start: int) -> int:
        """Delete the files of brokers' ``consumequeue_ext`` that only expired units lead to. Their number.

        By the first unit that is left in each queue, as in RocketMQ. ``StoreIOError``.
        """
        if not disk.is_directory(self._ext_path):
            return 0
        count = 0
        with self._lock:
            for topic, queue_id in list(self.known_queues()):
                writer = self.writer(topic, queue_id)
                first = writer.end_before(log_start)
                left = writer.read(first, first + 3)
                # A damaged unit has no address that can be trusted.
                if len(left) and sound_units(left)[0]:
                    count += remove_ext_files(self._ext_directory(topic, queue_id), int(left["tags_code"][0]))
        return count

    def _ext_directory(self, topic: str, queue_id: int) -> str:
        return os.path.join(self._ext_path, topic, str(queue_id))

    def last_place(self, topic: str) -> int:
        """The physical offset of the last message that the units of a topic's queues lead to; -1 without any.

        ``CorruptConsumeQueue`` for a queue whose last unit is damaged.
        """
        with self._lock:
            return max((writer.last_place() for writer in self._writers_of(topic)), default=-1)

    def ends_of(self, topic: str) -> dict[int, int]:
        """The next offset of each queue of a topic, by queue id; also of those that were deleted."""
        with self._lock:
            ends = {writer.queue_id: self._next_offset(writer) for writer in self._writers_of(topic)}
            return self.deleted.ends(topic) | ends

    def half_deleted(self) -> list[str]:
        """Topics that were deleted, and have queues with no other messages: a crash came before all were removed."""
        found = []
        for topic in self.deleted:
            with contextlib.suppress(CorruptConsumeQueue):  # opening does not judge queues
                if self.highest_id(topic) >= 0 and self.last_place(topic) < self.deleted.before(topic):
                    found.append(topic)
        return found

    def discount_topic(self, topic: str) -> None:
        """Count the files of a topic's queues no more, before they are removed (see ``discount_expired``)."""
        with self._lock:
            self._names.discount(sum(writer.file_count for writer in self._writers_of(topic)))

    def remove_topic(self, topic: str) -> None:
        """Delete the queues of a topic, whose files are discounted; their next offset is 0. ``StoreIOError``."""
        with self._lock:
            self._unsettle()
            self._survey.note_removed_topic(topic)
            for writer in self._writers_of(topic):
                key = topic, writer.queue_id
                writer.remove_oldest(writer.file_count)
                self._remove_directory(writer.path)
                remove_ext_files(self._ext_directory(*key), None)
                del self._writers[key]
                self._survey.note_removed(*key)
            self._remove_directory(os.path.join(self.path, topic))

    def _writers_of(self, topic: str) -> list[ConsumeQueueWriter]:
        try:
            ids = self._catalog.queue_ids(topic)
        except (TopicNotFound, UnsupportedStore):
            ids = []
        return [self._positioned(topic, queue_id) for queue_id in ids]

    def _remove_directory(self, path: str) -> None:
        try:
            disk.remove_directory(path)
            disk.sync_directory(os.path.dirname(path))
        except FileNotFoundError:
            pass
        except OSError as error:
            raise StoreIOError("delete", path=path, cause=error) from error

    def close(self) -> None:
        with self._lock:
            self._open_files.close()
            self._writers = {}
            if self._settled is not None:
                self._settled.close()


def _sync_file(path: str) -> None:
    """Sync a file through a descriptor of its own: dispatch concurrently opens and closes its own. ``StoreIOError``."""
    try:
        descriptor = disk.open_for_writing(path)
        try:
            disk.sync(descriptor)
        finally:
            disk.close(descriptor)
    except FileNotFoundError:
        pass  # deleted since: it need not be kept
    except OSError as error:
        raise StoreIOError("sync", path=path, cause=error) from error


def _sync_directory(path: str) -> None:
    """Sync the names in a directory. ``StoreIOError``."""
    try:
        disk.sync_directory(path)
    except (FileNotFoundError, NotADirectoryError):
        pass  # deleted since
    except OSError as error:
        raise StoreIOError("sync", path=path, cause=error) from error
