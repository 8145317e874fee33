"""QueueSurvey: the files and ends of all queues of a store, as its owner saw them last, and what the last owner saved.

Opening a store looks at the names and sizes of all queue files, and compares the sum of the queues' ends with the
checkpoint's mark. Topics that are as the last owner saved them (``saved_ends``) are not looked at.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from commitlog_store.errors import CommitLogError
from commitlog_store.files import disk
from commitlog_store.format.consume_queue_unit import UNIT_SIZE
from commitlog_store.log.store_directory import has_other_kinds
from commitlog_store.paths import CONSUME_QUEUE, file_name_for_offset, parse_file_name
from commitlog_store.queue.catalog import QueueCatalog
from commitlog_store.queue.consume_queue_writer import ConsumeQueueWriter
from commitlog_store.queue.loaded_ends import load_saved_ends
from commitlog_store.queue.saved_ends import SavedEnds, save_ends
from commitlog_store.queue.written_units import written_units

Queue = tuple[str, int]
# The queues that the owner has touched since.
Writers = Mapping[Queue, ConsumeQueueWriter]


@dataclass(frozen=True)
class QueueFiles:
    """The files of all queues: their number, a queue with a fault, and their size.

    ``uneven`` is the directory of a queue whose files have several sizes, or a gap between them. ``size`` is what most
    files have, a multiple of a unit's; None without such a file.
    """

    count: int
    uneven: str | None
    size: int | None = None


class QueueSurvey:
    """What an owner knows of queues that it has not touched. One thread at a time."""

    def __init__(self, store_path: str, catalog: QueueCatalog, known: SavedEnds | None) -> None:
        """``known`` are saved ends that were loaded for the same look at the store."""
        self._store_path = store_path
        self._path = os.path.join(store_path, CONSUME_QUEUE)
        self._catalog = catalog
        # The last file (base and size) of each queue in the last survey, and the ends found in them; but for the topics
        # that were as they are saved, of which the saved ends and their sum are kept.
        self._last_files: dict[Queue, tuple[int, int]] = {}
        self._ends: dict[Queue, int] = {}
        self._unchanged: set[str] = set()
        self._unchanged_ends = 0
        self._surveyed: SavedEnds | None = None
        # What the last owner saved of them; the topics of which not all is saved; and the generation for the mark.
        self._saved: SavedEnds | None = None
        self._known = known
        self._not_saved: set[str] | None = None
        self.saved_generation = 0
        # Topics that were deleted since, and those with changed queues that were forgotten.
        self._removed: set[str] = set()
        self._forgotten: set[str] = set()

    def use_saved_ends(self) -> None:
        """Let the next look use what the last owner saved of the queues of a closed store."""
        # A topic of another kind has no queues here, whatever was saved of it.
        self._saved = None if has_other_kinds(self._store_path) else load_saved_ends(self._store_path, self._known)
        self._catalog.use(self._saved)
        self.saved_generation = 0 if self._saved is None else self._saved.generation

    def distrust_saved_ends(self) -> None:
        """Use no saved ends, and let no mark name them, until they are saved again."""
        self._saved, self._not_saved, self.saved_generation = None, None, 0
        self._catalog.use(None)

    def look(self) -> QueueFiles:
        """The names and sizes of the files of all queues. ``OSError``."""
        self._ends = {}
        self._unchanged, self._unchanged_ends = set(), 0
        sizes = defaultdict[int, int](int)
        found: dict[Queue, list[tuple[int, int]]] = {}
        self._surveyed = self._saved
        if self._saved is not None:
            # Saved ends that were given were compared for the same look.
            unchanged = self._saved.compare() if self._saved is self._known else self._saved.look()
            self._unchanged = unchanged.topics
            sizes.update(unchanged.file_sizes())
            files_ends, next_offsets = unchanged.ends()
            self._unchanged_ends = _ends_of(sum(files_ends), sum(next_offsets))
            found.update(unchanged.several_files())
        self._not_saved = set()
        self._last_files = {}
        for key in self._catalog.known_queues(self._unchanged):
            self._not_saved.add(key[0])
            path = self._path_of(key)
            with contextlib.suppress(NotADirectoryError):
                bases = sorted(base for name in disk.list_names(path) if (base := parse_file_name(name)) is not None)
                files = [(base, disk.file_size(os.path.join(path, file_name_for_offset(base)))) for base in bases]
                for _, size in files:
                    sizes[size] += 1
                found[key] = files
                if files:
                    self._last_files[key] = files[-1]
        fitting = [size for size in sizes if size and size % UNIT_SIZE == 0]
        uneven = next((self._path_of(key) for key, files in found.items() if _is_uneven(files)), None)
        return QueueFiles(
            count=sum(sizes.values()), uneven=uneven, size=max(fitting, key=sizes.__getitem__, default=None)
        )

    def _path_of(self, key: Queue) -> str:
        return f"{self._path}/{key[0]}/{key[1]}"

    def find_ends(self, touched: Writers) -> int:
        """``ends`` of all queues that the last look saw. Reads the last units of each. ``OSError``.

        To be compared with the mark: where zeros between units mislead the search, it finds another end.
        """
        for key, (base, size) in self._last_files.items():
            if key not in self._ends:
                units = _units_in(f"{self._path_of(key)}/{file_name_for_offset(base)}")
                self._ends[key] = _ends_of(base + size, base // UNIT_SIZE + units)
        return self.ends(touched)

    def ends(self, touched: Writers) -> int:
        """The sum of the bytes at which the queues' last files and last units end, without a look at the files.

        Both, since a file that lost zeros after its units is damaged too: it has another size than all others.
        """
        now = self._ends | _touched_ends(touched)
        return self._unchanged_ends + sum(now.values()) - sum(map(self._saved_ends_of, now))

    def _saved_ends_of(self, key: Queue) -> int:
        """What a queue adds to ``_unchanged_ends``."""
        topic, queue_id = key
        saved = None if self._surveyed is None or topic not in self._unchanged else self._surveyed.topic(topic)
        end = None if saved is None else saved.ends.get(queue_id)
        return 0 if end is None else _ends_of(sum(end.extents[-1]), end.end)

    def note_forgotten(self, touched: Writers) -> None:
        """These queues are on the device, and count as untouched from now on."""
        self._ends |= _touched_ends(touched)
        self._forgotten |= {topic for (topic, _), writer in touched.items() if writer.has_changed}

    def note_removed_topic(self, topic: str) -> None:
        """The queues of a topic are being removed."""
        self._removed.add(topic)

    def note_removed(self, topic: str, queue_id: int) -> None:
        """A queue has no files any more."""
        self._ends[topic, queue_id] = 0
        self._last_files.pop((topic, queue_id), None)

    def save(self, touched: Writers) -> None:
        """At a clean close, when all queues are on the device: save their ends for the next look at them.

        Without space for the file, or after any other failure, there is none.
        """
        self.saved_generation = 0
        with contextlib.suppress(OSError, CommitLogError):
            ends_of: dict[str, dict[int, int]] = {topic: {} for topic in self._forgotten.union(self._not_saved or ())}
            for (topic, queue_id), writer in touched.items():
                if not writer.has_changed:
                    continue
                ends = ends_of.setdefault(topic, {})
                if writer.next_offset is not None:
                    ends[queue_id] = writer.next_offset
            if self._saved is None or self._not_saved is None:
                topics = {topic for topic, _ in self._catalog.known_queues()}
            else:
                topics = {topic for topic in self._saved.topics() if topic not in self._removed} | ends_of.keys()
            self.saved_generation = save_ends(self._store_path, self._saved, topics, ends_of)


def _touched_ends(touched: Writers) -> dict[Queue, int]:
    return {
        key: _ends_of(one.files_end, one.next_offset or 0)
        for key, one in touched.items()
        if one.next_offset is not None or one.is_empty
    }


def _units_in(path: str) -> int:
    """The number of units of a file, where no zeros are between them. ``OSError``."""
    descriptor = disk.open_file(path)
    try:
        return written_units(descriptor)
    finally:
        disk.close(descriptor)


def _ends_of(files_end: int, next_offset: int) -> int:
    return files_end + next_offset * UNIT_SIZE


def _is_uneven(files: Sequence[tuple[int, int]]) -> bool:
    """Whether a queue's files (base and size) have several sizes, or a gap between them."""
    size = files[0][1] if files else 0
    return any(one != size for _, one in files) or any(
        base + size != following for (base, _), (following, _) in pairwise(files)
    )
