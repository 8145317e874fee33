"""ObjectPages: bytes of objects that never change, fetched in pages, several requests ahead of the reader.

An object is cut into pages of 256 KiB, and neighbouring pages are fetched together, up to 8 MiB in a request. A reader
says what it will read (``ReadAhead``), and requests are under way for as much of that as the limits allow. What it
reads without having said so is fetched when it asks. Memory is bounded: runs of pages that were used longest ago are
dropped, and no more is fetched ahead than fits beside them.

The threads end with ``close``, or with the process.
"""

from __future__ import annotations

import queue
import threading
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from commitlog_store.columnar.byte_parts import new_bytes
from commitlog_store.errors import ReaderClosed
from commitlog_store.format.arrays import ByteArray, Int64Array
from commitlog_store.format.checksum import crc32
from commitlog_store.object_storage.checked_pages import CHECKED_PAGE, WrongPage, wrong_page
from commitlog_store.object_storage.object_store import ObjectStore, WrongObject
from commitlog_store.object_storage.page_cache import PageCache
from commitlog_store.storage_stats import StorageStats

PAGE = 256 << 10
# Runs begin at a page, and end at one or with the object: so they have whole checked pages, which ``_change_of`` needs.
assert PAGE % CHECKED_PAGE == 0
_PAGES_OF_A_REQUEST = 32
# Pages between two that are wanted which are fetched with them: a request of its own takes longer.
_PAGES_BETWEEN = 2


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object that never changes. ``key`` names its content, for caches: letters and digits.

    With ``crc32``, its bytes are compared with that when one run of pages has all of them. With ``is_checked``, it has
    ``checked_pages``: each is compared when it comes.
    """

    name: str
    size: int
    key: str
    crc32: int | None = None
    is_checked: bool = False


class ObjectChanged(WrongObject):
    """The bytes of an object have changed: ``crc32`` is theirs."""

    def __init__(self, where: str, crc32: int) -> None:
        super().__init__(f"{where} has the CRC-32 {crc32:08x}")
        self.crc32 = crc32


class PageChanged(WrongObject):
    """The bytes of a checked page of an object have changed."""

    def __init__(self, where: str, page: WrongPage) -> None:
        super().__init__(f"{where} has the CRC-32 {page.computed:08x} at byte {page.offset}, not {page.stored:08x}")
        self.page = page


@dataclass(frozen=True, kw_only=True, slots=True)
class PageLimits:
    """``memory`` is for pages that were read, ``ahead`` for those that were not yet; both in bytes."""

    memory: int = 64 << 20
    ahead: int = 48 << 20
    requests: int = 12


@dataclass(slots=True, eq=False)
class _Run:
    """Neighbouring pages that are fetched together. ``data`` or ``error`` is there once it is not ``pending``."""

    source: StoredObject
    first: int
    last: int
    data: memoryview = field(default_factory=lambda: memoryview(b""))
    error: BaseException | None = None
    # Locked until then: a wait for a lock is one that Ctrl-C ends.
    pending: threading.Lock = field(default_factory=threading.Lock)
    # For whom it was fetched ahead, until it is read.
    owner: ReadAhead | None = None

    @property
    def start(self) -> int:
        return self.first * PAGE

    @property
    def stop(self) -> int:
        return min(self.last * PAGE, self.source.size)

    @property
    def size(self) -> int:
        return self.stop - self.start


class ObjectPages:
    """Reads objects for one reader: one thread asks, others fetch."""

    def __init__(self, objects: ObjectStore, cache: PageCache | None = None, limits: PageLimits | None = None) -> None:
        self._objects = objects
        self._limits = PageLimits() if limits is None else limits
        # The run of each page that is in memory or on its way, and the runs that are, the last used one last.
        self._by_page: dict[tuple[str, int], _Run] = {}
        self._runs: OrderedDict[int, _Run] = OrderedDict()
        self._kept = self._ahead = 0
        self._waiting: deque[tuple[ReadAhead, StoredObject, int, int]] = deque()
        self._jobs: queue.SimpleQueue[_Run | None] = queue.SimpleQueue()
        self._cache = cache
        self._fetcher = _Fetcher(objects, cache)
        # The page of the cache in which the last long read ended: the next one begins in it.
        self._edge: tuple[tuple[str, int], memoryview] | None = None
        self._threads = 0
        self._closed = False

    def close(self) -> None:
        """Fetch nothing more. Bytes that were handed out stay valid."""
        self._closed = True
        self._waiting.clear()
        self._objects.stop()
        self._end_threads()
        self._by_page, self._runs = {}, OrderedDict()

    def __del__(self) -> None:
        self._end_threads()  # which do not keep this object alive

    def _end_threads(self) -> None:
        while self._threads:
            self._threads -= 1
            self._jobs.put(None)

    def read(self, source: StoredObject, start: int, stop: int) -> memoryview:
        """The bytes ``[start, stop)`` of an object, which has them. ``WrongObject``, ``ArchiveFailed``."""
        if start >= stop:
            return memoryview(b"")
        if not self._is_direct(source, start, stop):
            runs = self._runs_of(source, start // PAGE, -(-stop // PAGE))
            if len(runs) == 1:
                return self._used(runs[0])[start - runs[0].start : stop - runs[0].start]
        data = new_bytes(stop - start).data
        self.read_into(source, start, data)
        return data.toreadonly()

    def read_into(self, source: StoredObject, start: int, data: memoryview) -> None:
        """Fill ``data`` with the bytes from ``start`` of an object, which has them."""
        stop = start + len(data)
        first, last = start // PAGE, -(-stop // PAGE)
        if self._is_direct(source, start, stop):
            first = self._read_kept(source, first, last, start, data)
        if first < last:
            self._copy(self._runs_of(source, first, last), start, stop, data)

    def _is_direct(self, source: StoredObject, start: int, stop: int) -> bool:
        """Whether bytes are read from the cache to where they are wanted: long pieces, of what has no checksum."""
        return self._cache is not None and source.crc32 is None and stop - start >= PAGE

    def _read_kept(self, source: StoredObject, first: int, last: int, start: int, data: memoryview) -> int:
        """Read pages ``[first, last)``, as far as the cache has them and memory does not; the first that is left."""
        stop = start + len(data)
        for number in range(first, last):
            if (source.key, number) in self._by_page:
                return number
            low, high = number * PAGE, min((number + 1) * PAGE, source.size)
            page = data[low - start : high - start] if start <= low and high <= stop else None
            if not self._kept_page(source, number, page, low, high):
                return number
            if page is None:
                assert self._edge is not None
                begin, end = max(start, low), min(stop, high)
                data[begin - start : end - start] = self._edge[1][begin - low : end - low]
        return last

    def _kept_page(self, source: StoredObject, number: int, page: memoryview | None, low: int, high: int) -> bool:
        """Have the cache fill ``page``, or where only a part is wanted, ``_edge``. Whether it has the page."""
        if self._closed:
            raise ReaderClosed(f"The reader of {self._objects} is closed; open it again to read on.")
        if page is None and self._edge is not None and self._edge[0] == (source.key, number):
            return True
        whole = new_bytes(high - low).data if page is None else page
        if self._cache is None or not self._cache.read_into(whole, source.key, number):
            return False
        self._objects.count(StorageStats(bytes_from_cache=len(whole)))
        if page is None:
            self._edge = (source.key, number), whole
        return True

    def _copy(self, runs: Iterable[_Run], start: int, stop: int, data: memoryview) -> None:
        for run in runs:
            low, high = max(start, run.start), min(stop, run.stop)
            data[low - start : high - start] = self._used(run)[low - run.start : high - run.start]

    def ahead(self) -> ReadAhead:
        """Something to say what will be read."""
        return ReadAhead(self)

    def _runs_of(self, source: StoredObject, first: int, last: int) -> list[_Run]:
        """The runs of pages ``[first, last)``, each once; what is not on its way is asked for."""
        if self._closed:
            raise ReaderClosed(f"The reader of {self._objects} is closed; open it again to read on.")
        runs: list[_Run] = []
        at = first
        while at < last:
            run = self._by_page.get((source.key, at))
            if run is None:
                end = at + 1
                while end < min(last, at + _PAGES_OF_A_REQUEST) and (source.key, end) not in self._by_page:
                    end += 1
                run = self._order(source, at, end)
            runs.append(run)
            at = run.last
        return runs

    def _order(self, source: StoredObject, first: int, last: int) -> _Run:
        run = _Run(source, first, last)
        run.pending.acquire()
        for number in range(first, last):
            self._by_page[source.key, number] = run
        self._runs[id(run)] = run
        self._kept += run.size
        if self._threads < self._limits.requests:
            self._threads += 1
            threading.Thread(target=self._fetcher.work, args=(self._jobs,), name="ObjectPages", daemon=True).start()
        self._jobs.put(run)
        return run

    def _used(self, run: _Run) -> memoryview:
        """The bytes of a run, once they have come. What is waiting comes next."""
        self._disown(run)
        if id(run) in self._runs:
            self._runs.move_to_end(id(run))
        self._drop()
        self._order_ahead()
        with run.pending:
            pass
        if run.error is not None:
            self._forget(run)
            raise run.error
        return run.data

    def _disown(self, run: _Run) -> None:
        if run.owner is not None:
            run.owner.ordered.discard(run)
            run.owner = None
            self._ahead -= run.size

    def _drop(self) -> None:
        """Drop what was used longest ago, beyond the limit: what is fetched ahead is not among it."""
        most = self._limits.memory + self._ahead
        if self._kept <= most:
            return
        for run in list(self._runs.values()):
            if self._kept <= most:
                return
            if run.owner is None and not run.pending.locked():
                self._forget(run)

    def _forget(self, run: _Run) -> None:
        if self._runs.pop(id(run), None) is None:
            return
        self._kept -= run.size
        for number in range(run.first, run.last):
            if self._by_page.get((run.source.key, number)) is run:
                del self._by_page[run.source.key, number]

    def _expect(self, owner: ReadAhead, source: StoredObject, pages: Int64Array) -> None:
        """These pages of an object, ascending, will be read. Those of the log that the cache has are not fetched."""
        if self._cache is not None and source.crc32 is None:
            pages = pages[[not self._cache.has(source.key, number) for number in pages.tolist()]]
        if not len(pages):
            return
        cuts = np.flatnonzero(np.diff(pages) > 1 + _PAGES_BETWEEN) + 1
        firsts, lasts = pages[np.append(0, cuts)].tolist(), (pages[np.append(cuts - 1, -1)] + 1).tolist()
        firsts[0], lasts[0] = self._with_waiting(owner, source, firsts[0], lasts[0])
        for first, last in zip(firsts, lasts, strict=True):
            for at in range(first, last, _PAGES_OF_A_REQUEST):
                self._waiting.append((owner, source, at, min(at + _PAGES_OF_A_REQUEST, last)))
        self._order_ahead()

    def _with_waiting(self, owner: ReadAhead, source: StoredObject, first: int, last: int) -> tuple[int, int]:
        """Pages ``[first, last)`` with those of the last request that waits, if they continue these."""
        if self._waiting:
            *of, start, stop = self._waiting[-1]
            if of == [owner, source] and start <= first <= stop + _PAGES_BETWEEN:
                self._waiting.pop()
                return start, max(stop, last)
        return first, last

    def _forgo(self, owner: ReadAhead) -> None:
        """What was expected by ``owner`` is not read any more, as far as it was not."""
        self._waiting = deque(one for one in self._waiting if one[0] is not owner)
        for run in list(owner.ordered):
            self._disown(run)
        self._drop()

    def _order_ahead(self) -> None:
        while self._waiting and self._ahead < self._limits.ahead and not self._closed:
            owner, source, first, last = self._waiting.popleft()
            while first < last:
                end = first
                while end < last and (source.key, end) not in self._by_page:
                    end += 1
                if end > first:
                    run = self._order(source, first, end)
                    run.owner = owner
                    self._ahead += run.size
                    owner.ordered.add(run)
                first = end + 1


class _Fetcher:
    """Fetches runs, for any number of threads."""

    def __init__(self, objects: ObjectStore, cache: PageCache | None) -> None:
        self._objects = objects
        self._cache = cache

    def work(self, jobs: queue.SimpleQueue[_Run | None]) -> None:
        """Fetch one run after the other, up to None."""
        while (run := jobs.get()) is not None:
            try:
                run.data = self._fetched(run)
            except BaseException as error:  # noqa: BLE001 - it is raised where the bytes are asked for
                run.error = error
            run.pending.release()
            del run

    def _fetched(self, run: _Run) -> memoryview:
        """The bytes of a run: of the cache those that it has, and the others in as few requests as they make."""
        whole, missing = self._cached(run)
        is_cached = bool(whole)
        for first, last in missing:
            data = self._asked_for(run.source, first, last)
            if whole:
                whole[first * PAGE - run.start :][: len(data)] = data
            else:
                whole = data
        if is_cached and _change_of(run, whole) is not None:
            # The cache may have what the object was while it was damaged.
            missing = [(run.first, run.last)]
            whole = self._asked_for(run.source, *missing[0])
        if (change := _change_of(run, whole)) is not None:  # and nothing of it is kept
            raise change
        for first, last in missing:
            self._keep(run.source, first, whole[first * PAGE - run.start : last * PAGE - run.start])
        return whole.toreadonly()

    def _cached(self, run: _Run) -> tuple[memoryview, list[tuple[int, int]]]:
        """Memory for a run with the pages that the cache has, and the pages ``[first, last)`` that it does not have.

        None of them: no memory.
        """
        if self._cache is None:
            return memoryview(b""), [(run.first, run.last)]
        data = memoryview(b"")
        missing: list[tuple[int, int]] = []
        buffer = new_bytes(run.size).data
        for number in range(run.first, run.last):
            start = number * PAGE - run.start
            page = buffer[start : start + PAGE]
            if self._cache.read_into(page, run.source.key, number):
                self._objects.count(StorageStats(bytes_from_cache=len(page)))
                data = buffer
            elif missing and missing[-1][1] == number:
                missing[-1] = (missing[-1][0], number + 1)
            else:
                missing.append((number, number + 1))
        return data, missing

    def _asked_for(self, source: StoredObject, first: int, last: int) -> memoryview:
        """Pages ``[first, last)``, in one request."""
        return self._objects.piece(source.name, first * PAGE, min(last * PAGE, source.size))

    def _keep(self, source: StoredObject, first: int, data: memoryview) -> None:
        if self._cache is None:
            return
        for at in range(0, len(data), PAGE):
            self._cache.put(source.key, first + at // PAGE, data[at : at + PAGE])


def _change_of(run: _Run, data: memoryview) -> WrongObject | None:
    """What shows that the bytes of a run are not those of its object: a page, or all if these are all bytes of it."""
    source = run.source
    if source.is_checked and (page := wrong_page(data)) is not None:
        return PageChanged(source.name, page._replace(offset=run.start + page.offset))
    if source.crc32 is not None and len(data) == source.size and (found := crc32(data)) != source.crc32:
        return ObjectChanged(source.name, found)
    return None


class ReadAhead:
    """What one reading will read next. Close it when that ends, at its end or before."""

    def __init__(self, pages: ObjectPages) -> None:
        self._pages = pages
        self.ordered: set[_Run] = set()

    def expect(self, source: StoredObject, starts: Int64Array, stops: Int64Array) -> None:
        """The bytes ``[start, stop)`` of an object will be read, for each start, in any order."""
        sound = stops > starts
        if not sound.all():
            starts, stops = starts[sound], stops[sound]
        if not len(starts):
            return
        firsts, lasts = starts // PAGE, (stops - 1) // PAGE
        low = int(firsts.min())
        is_wanted = np.zeros(int(lasts.max()) + 1 - low, np.bool_)
        is_wanted[firsts - low] = True
        is_wanted[lasts - low] = True
        for at in np.flatnonzero(lasts - firsts > 1).tolist():
            is_wanted[firsts[at] - low : lasts[at] - low] = True
        self._pages._expect(self, source, np.flatnonzero(is_wanted) + low)

    def close(self) -> None:
        self._pages._forgo(self)


def as_bytes(data: memoryview) -> ByteArray:
    """Bytes as an array of numpy, not copied."""
    return np.frombuffer(data, np.uint8)
