"""ArchiveReader: ``StoreReader`` of an archive in object storage.

What a directory's reader does with files, this one does with ranges of objects: the same code finds, checks, filters
and decodes. What a store knows besides its messages (consumer groups, delayed messages, batches) is what the newest
generation has of its config files.
"""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NoReturn, TypeVar

import numpy as np

from commitlog_store.archive.manifest import ObjectRef, Selection
from commitlog_store.archive_reader.archived_blocks import ArchivedBlocks
from commitlog_store.archive_reader.archived_index import ArchivedIndex
from commitlog_store.archive_reader.archived_log import ArchivedFiles, ArchivedLog
from commitlog_store.archive_reader.archived_queues import ArchivedCatalog, expect_units
from commitlog_store.archive_reader.opened_archive import OpenedArchive, stored
from commitlog_store.batch.frames import StoredFrames
from commitlog_store.batch.ledger import delivered_offsets
from commitlog_store.batch.visibility import NOTHING_HIDDEN
from commitlog_store.batch_id import CommittedBatch
from commitlog_store.delayed.levels import DelayLevel, delay_levels
from commitlog_store.errors import CommitLogError, InvalidValue, StoreAccessDenied, UnsupportedStore
from commitlog_store.files import disk
from commitlog_store.files.held_files import HeldFiles
from commitlog_store.files.memory import keep_freed_memory
from commitlog_store.format.checkpoint import Checkpoint
from commitlog_store.format.consume_queue_unit import Units
from commitlog_store.format.record import HEADER_SIZE, MAGIC_V1, MAGIC_V2, own_position
from commitlog_store.groups.positions import GroupPosition
from commitlog_store.index.service import IndexFileInfo
from commitlog_store.object_storage.address import StorageAddress
from commitlog_store.object_storage.object_store import ObjectStore
from commitlog_store.object_storage.page_cache import DEFAULT_LIMIT, PageCache
from commitlog_store.object_storage.pages import ObjectPages, PageLimits
from commitlog_store.paths import CONFIG
from commitlog_store.queue.get_message import checked_count
from commitlog_store.queue.log_blocks import QueueRange
from commitlog_store.queue.skipped import SkippedRange
from commitlog_store.reader import OnDamage, QueueInfo, StoreReader
from commitlog_store.reading.arrivals import checked_deadline, is_any_filled
from commitlog_store.reading.key_lookup import KeyLookup
from commitlog_store.storage_stats import StorageStats
from commitlog_store.verify.store_facts import StoreFacts

_Found = TypeVar("_Found")
_Shown = TypeVar("_Shown")

_CACHE_VARIABLE = "COMMITLOG_CACHE_DIR"
# A newer generation is looked for at most so often.
_LOOK_AGAIN_S = 1.0
# The manifest of a generation that is not the newest one stays for a day (``archive/gc.py``).
_LATE_S = 3600.0
# So many bytes before an end are searched for the last record: most often a page of an object has it.
_LAST_WINDOWS = (64 << 10, 8 << 20)
# Units that are announced together, of short ranges: 10 MB.
_UNITS_AHEAD = 500_000
# While a reader waits for messages, it looks less often: each look is a request.
_WAIT_S = 2.0


@dataclass(frozen=True, kw_only=True)
class ArchiveAccess:
    """How an archive is reached: its address, and the cache of its pages on the local disk (``cache_dir`` "": none).

    ``manifest`` is that of the generation to begin with, of another reader that has asked for the newest one.
    """

    address: StorageAddress
    cache_dir: str = ""
    cache_limit: int = DEFAULT_LIMIT
    limits: PageLimits = field(default_factory=PageLimits)
    manifest: ObjectRef | None = None

    def pages(self, objects: ObjectStore) -> ObjectPages:
        """``StoreAccessDenied``, ``OSError`` when the directory of the cache cannot be made."""
        cache = PageCache(disk.absolute_path(self.cache_dir), self.cache_limit) if self.cache_dir else None
        return ObjectPages(objects, cache, self.limits)


def open_archive(
    url: str,
    on_damage: OnDamage,
    storage_options: Mapping[str, str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_size: int | None = None,
    manifest: ObjectRef | None = None,
) -> ArchiveReader:
    """``StoreReader.open`` of an archive. ``COMMITLOG_CACHE_DIR`` is the cache's directory where none is given.

    With ``manifest``, that of another reader, it begins with that reader's generation and does not look for the newest.
    """
    directory = os.fspath(cache_dir) if cache_dir is not None else os.environ.get(_CACHE_VARIABLE, "")
    access = ArchiveAccess(
        address=StorageAddress.parse(url, options=storage_options),
        cache_dir=directory,
        cache_limit=DEFAULT_LIMIT if cache_size is None else checked_count("cache_size", cache_size),
        manifest=manifest,
    )
    try:
        return ArchiveReader(access, on_damage=on_damage)
    except (OSError, StoreAccessDenied) as error:
        raise InvalidValue(f"The cache of archives cannot be made in {directory}: {error}") from error


class _Generations:
    """Answers of one generation: a newer one is looked for before a question, and used for all of it."""

    def __init__(self, look: Callable[[bool], None], newest: Callable[[], OpenedArchive]) -> None:
        self._look = look
        self._newest = newest
        self._looked_at = time.monotonic()
        self.shows_open_batch = False

    def read(self, ask: Callable[[], _Found], show: Callable[[_Found, int], _Shown]) -> _Shown:
        """See ``ConsistentReads.read``: of the batch within which an archived log ends, nothing is shown."""
        self.look()
        return show(ask(), NOTHING_HIDDEN if self.shows_open_batch else self._newest().hidden_from)

    def repeat(self, ask: Callable[[], _Found], *, one_moment: bool = True) -> _Found:
        """See ``ConsistentReads.repeat``: a generation does not change."""
        del one_moment
        return ask()

    def look(self) -> None:
        """Look for a newer generation, unless that was done a moment ago."""
        ago = time.monotonic() - self._looked_at
        if ago >= _LOOK_AGAIN_S:
            self._look(ago >= _LATE_S)
            self._looked_at = time.monotonic()

    def settled_state(self) -> object:
        """The generation: queues change with it alone."""
        self.look()
        return self._newest().manifest.generation

    def close(self) -> None:
        """Nothing."""


class ArchiveReader(StoreReader):
    """Made by ``StoreReader.open("s3://bucket/prefix")``."""

    _reads: _Generations  # type: ignore[assignment]

    def __init__(
        self,
        access: ArchiveAccess,
        *,
        on_damage: OnDamage = "raise",
    ) -> None:
        self.access = access
        self.path = str(access.address)
        keep_freed_memory()  # pages and blocks are allocated again
        self._objects = ObjectStore.at(access.address, connects=access.manifest is None)
        self._pages = access.pages(self._objects)
        self._on_damage = on_damage
        self._counts = None
        self._skipped: list[SkippedRange] = []
        self._snapshot = None
        self._closed = False
        try:
            self._archive = OpenedArchive.open(self._objects, self._pages, access.manifest)
        except BaseException:
            self._pages.close()
            raise
        self._files = ArchivedFiles(self._archive)
        self._commit_log = ArchivedLog(self._files)
        self._archived = ArchivedCatalog(self._archive)
        self._catalog = self._archived
        self._blocks = blocks = ArchivedBlocks(self._commit_log, self._pages)
        self._config: tuple[OpenedArchive, HeldFiles] | None = None
        self._archived_index = ArchivedIndex(self._archive, self._pages)
        self._keys = KeyLookup(
            self._commit_log,
            self._archived_index,
            blocks,
            log_end=None,
            is_aborted=lambda: False,
            skipped=None if on_damage == "raise" else self._skipped,
        )
        self._frames = StoredFrames(self._commit_log, self._catalog)
        self._reads = _Generations(self._look, lambda: self._archive)

    @property
    def paths(self) -> NoReturn:  # type: ignore[override]
        """``UnsupportedStore``: an archive has no files here."""
        raise self._not_here("this needs the files of a store", f"'commitlog restore {self.for_shell} DIR' makes them")

    @property
    def manifest(self) -> ObjectRef:
        """The manifest of the generation that is shown, for ``ArchiveAccess`` of other readers."""
        return self._archive.manifest_ref

    def stats(self) -> StorageStats:
        return self._objects.stats

    def __repr__(self) -> str:
        return f"<StoreReader of {self.path!r}, {'closed' if self._closed else 'open'}>"

    def __enter__(self) -> ArchiveReader:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return (partial(ArchiveReader, on_damage=self._on_damage), (self.access,))

    def close(self) -> None:
        self._closed = True
        self._commit_log.close()
        self._config = None
        self._pages.close()

    @property
    def hidden_from(self) -> int:
        """``OpenedArchive.hidden_from``, of the generation that is shown."""
        return self._archive.hidden_from

    def show_open_batch(self) -> None:
        """Show all that is archived from now on: for a history, whose live store has the rest of the batch."""
        self._reads.shows_open_batch = True

    def look_again(self) -> None:
        """Look for a newer generation now, however short ago that was done."""
        self._refuse_closed()
        self._look(False)

    def _look(self, is_late: bool) -> None:
        """Use the newest generation from now on."""
        generation = self._archive.manifest.generation
        newer = OpenedArchive.after(generation, self._objects, self._pages, is_late=is_late)
        if newer is not None:
            self._archive = newer
            self._files.use(newer)
            self._archived.use(newer)
            self._archived_index.use(newer)

    def _not_here(self, what: str, advice: str) -> UnsupportedStore:
        return UnsupportedStore(f"{self.path} is an archive, and {what}: {advice}.", path=self.path)

    @property
    def for_shell(self) -> str:
        return shlex.quote(self.path)

    def lost_ends(self) -> list[str]:
        """Nothing: an archive ends where its manifest says."""
        self._refuse_closed()
        return []

    def facts(self, *, assessed: bool = True) -> StoreFacts:
        """Without an assessment, which is for files: ``commitlog archive --check`` compares an archive's objects."""
        del assessed
        self._refuse_closed()
        return StoreFacts(
            log_files=len(self._archive.manifest.segments),
            disk_size=sum(one.size for one in self._archive.manifest.objects()),
            delayed_left_to=None,
            timer_wheel=False,
            kept=[],
            kept_problem="",
            assessment=None,
        )

    def topics(self) -> list[str]:
        self._refuse_closed()
        self._reads.look()
        return super().topics()

    def physical_bounds(self) -> tuple[int, int]:
        """First archived byte of the log, and the end of what is archived."""
        self._refuse_closed()
        return self._archive.manifest.start, self._archive.manifest.stop

    def segment_starts(self) -> list[int]:
        """The first bytes of the archived log files, ascending."""
        self._refuse_closed()
        return list(self._archive.bases)

    def refuse_changed_ends(self, segment_start: int) -> None:
        """``ArchiveDamaged`` where a log object begins or ends with other bytes than the manifest says."""
        self._refuse_closed()
        if (segment := self._archive.segment_at(segment_start)) is not None:
            self._archive.refuse_changed_ends(segment)

    def last_record(self, segment_start: int, end: int) -> int | None:
        """The physical offset of the last record of a segment that begins before ``end``; None without it.

        Records say where they begin, so the last megabytes are searched backwards. ``ArchiveDamaged``,
        ``ArchiveFailed``.
        """
        self._refuse_closed()
        segment = self._archive.segment_at(segment_start)
        if segment is None:
            return None
        stop = min(end, segment.tail_stop) - segment.start
        for window in _LAST_WINDOWS:
            low = max(stop - window, 0)
            data = bytes(self._archive.read(segment.log, low, min(stop + HEADER_SIZE, segment.log.size)))
            for at in _record_starts(data, stop - low):
                place = segment.start + low + at
                if own_position(data[at : at + HEADER_SIZE]) == place:
                    return place
        return None

    def units_of(
        self, ranges: Sequence[tuple[str, int, int, int]], *, chunk: int = 1_000_000
    ) -> Iterator[tuple[int, Units]]:
        """As ``StoreReader.units_of``, with several requests under way: a segment is asked for all ranges at once."""
        self._refuse_closed()
        checked_count("chunk", chunk)
        parts = self._ranges.checked(ranges)
        units = self._ranges.units_of_checked(parts, chunk, strict=self._on_damage == "raise")
        return self._fetched_ahead(units, parts)

    def _fetched_ahead(
        self, units: Iterator[tuple[int, Units]], parts: Sequence[QueueRange]
    ) -> Iterator[tuple[int, Units]]:
        """The units of ranges, which are announced in groups of ranges, a group before its first one is read."""
        ahead = self._pages.ahead()
        totals = np.cumsum([stop - start for _, start, stop in parts], dtype=np.int64)
        announced = reached = 0
        try:
            while True:
                while announced < len(parts) and announced <= reached + 1:
                    before = int(totals[announced - 1]) if announced else 0
                    first, announced = announced, int(np.searchsorted(totals, before + _UNITS_AHEAD, side="right"))
                    announced = max(announced, first + 1)
                    with suppress(CommitLogError):  # the caller gets it where the range is read
                        expect_units(ahead, parts[first:announced])
                found = next(units, None)
                if found is None:
                    return
                reached = found[0]
                yield found
        finally:
            ahead.close()

    @property
    def selection(self) -> Selection | None:
        """The topics that the archive has alone; None for all of its store."""
        return self._archive.manifest.selection

    @property
    def aborted(self) -> bool:
        return False

    def checkpoint(self) -> Checkpoint | None:
        """None: an archive has none."""
        return None

    def index_files(self) -> list[IndexFileInfo]:
        """The index objects of the segments."""
        self._refuse_closed()
        return self._archived_index.files()

    def wait_for_any(self, positions: Mapping[tuple[str, int], int], timeout_s: float | None = None) -> bool:
        """As ``StoreReader.wait_for_any``, for what the next generation brings; one request every two seconds."""
        deadline = checked_deadline(positions, timeout_s)
        while True:
            self._refuse_closed()
            if is_any_filled(self, positions):
                return True
            left = _WAIT_S if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(left, _WAIT_S))

    def _time_bounds(self, info: QueueInfo, wanted_ms: int, *, after: bool) -> tuple[int, int]:
        """The segments' times leave a few of a queue's messages between which the wanted one is."""
        segments = self._archive.manifest.segments
        queue = self._archived.queue(info.topic, info.queue_id)
        # A segment without records has the time -1.
        first = next(
            (
                number
                for number, one in enumerate(segments)
                if one.last_timestamp_ms > wanted_ms or (one.last_timestamp_ms == wanted_ms and not after)
            ),
            len(segments),
        )
        last = next(
            (number for number in range(first, len(segments)) if segments[number].first_timestamp_ms > wanted_ms),
            len(segments),
        )
        low, high = queue.offset_at(first), queue.offset_at(last)
        return max(low, info.min_offset), max(min(high, info.max_offset), info.min_offset)

    @property
    def config_home(self) -> str:
        """The directory, in memory, with the files of ``config/`` as they were when the newest generation was made.

        That is a little after the end of the log that it has. ``ArchiveDamaged``, ``ArchiveFailed``.
        """
        self._refuse_closed()
        if self._config is None or self._config[0] is not self._archive:
            self._config = self._archive, self._config_files()
        return self._config[1].path

    def _config_files(self) -> HeldFiles:
        """At most seven requests a generation."""
        archive, ahead = self._archive, self._pages.ahead()
        files = HeldFiles(archive.url)
        try:
            for ref in archive.manifest.config.values():
                if ref.size:
                    ahead.expect(stored(ref), np.zeros(1, np.int64), np.array([ref.size], np.int64))
            for name, ref in archive.manifest.config.items():
                data = bytes(archive.read(ref, 0, ref.size))
                archive.compare(ref)  # a large one may have come in several runs
                files.add(CONFIG, name, data)
        finally:
            ahead.close()
        return files

    def groups(self, group: str | None = None, *, now_ms: int | None = None) -> list[GroupPosition]:
        """As ``StoreReader.groups``; positions are those of the time when the newest generation was made."""
        return [
            replace(row, error=_not_archived_yet(row)) if _is_ahead(row) else row
            for row in super().groups(group, now_ms=now_ms)
        ]

    def batches(self) -> list[CommittedBatch]:
        """As ``StoreReader.batches``, without one that is not shown yet."""
        return [batch for batch in super().batches() if batch.physical_offset < self._archive.hidden_from]

    def delay_levels(self) -> list[DelayLevel]:
        """Without timer messages: which of them were delivered is not in an archive."""
        delivered = delivered_offsets(self._waiting.ledger())
        return delay_levels(self.config_home, self._catalog, self._commit_log, delivered)

    def waiting_timers(self) -> NoReturn:
        """``UnsupportedStore``: an archive has no timer log."""
        self._refuse_closed()
        raise self._not_here("which timer messages were delivered is not in it", "ask the store that it was made of")


def _record_starts(data: bytes, stop: int) -> Iterator[int]:
    """Where in ``data`` before ``stop`` a record may begin, the last one first."""
    heads = (int.to_bytes(magic, 4, "big") for magic in (MAGIC_V1, MAGIC_V2))
    found = {
        at.start() - 4 for head in heads for at in re.finditer(re.escape(head), data) if 4 <= at.start() < stop + 4
    }
    return iter(sorted(found, reverse=True))


def _is_ahead(row: GroupPosition) -> bool:
    return row.committed_offset is not None and row.max_offset is not None and row.committed_offset > row.max_offset


def _not_archived_yet(row: GroupPosition) -> str:
    assert row.committed_offset is not None
    assert row.max_offset is not None
    return (
        f"The position is {row.committed_offset - row.max_offset} after the archive's end: what the group consumed "
        "there is not archived yet."
    )
