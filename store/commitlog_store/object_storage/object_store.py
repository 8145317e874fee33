"""ObjectStore: every call on an object store, through ``obstore``: repeated where that helps, counted, without secrets.

Archivers, readers and exports ask here. ``obstore`` repeats a request that was refused for a while (500, 503, a
connection that was not made) by itself. An answer that breaks off in its middle, or is shorter than what was asked for,
is repeated here; what is written is not, since its callers know what a lost answer means.

What is assumed of an object store (docs/decisions/0042-archives.md): an object appears whole or not at all, a listing
shows each object that was put before it began, and ``put_new`` succeeds for one caller alone. S3, GCS, Azure and a
directory of a local disk have all of these.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

from commitlog_store.errors import ArchiveAccessRefused, ArchiveFailed, ArchiveNotFound, CommitLogError
from commitlog_store.files import disk
from commitlog_store.files.whole_file import make_file_once
from commitlog_store.object_storage.address import StorageAddress, load_obstore, said
from commitlog_store.object_storage.counted import StorageCounter
from commitlog_store.storage_stats import StorageStats

if TYPE_CHECKING:
    import obstore.store

_T = TypeVar("_T")

# Parts of an upload, and how many of them are under way: memory is a few times their product.
PART_SIZE = 8 << 20
PARTS_AT_ONCE = 4
_LISTED_AT_ONCE = 1000
_MS = 1000
# So often an answer that broke off is asked for, unless that has taken too long when it breaks off.
_ATTEMPTS = 5
_LONGEST_PAUSE_S = 2.0
# What needs the object to exist. For the rest, it is the bucket that does not.
_OF_OBJECTS = frozenset({"read", "look at", "delete"})
# How a refusal of access reads where ``obstore`` has no error of its own for it: of listings and uploads in parts.
_NO_ACCESS = re.compile(r"\bstatus code: 40[13]\b")
# What a directory says to a user who may not.
_NO_PERMISSION = re.compile(r"\bPermission denied\b")
# What object stores say of a range that an object does not have.
_NO_RANGE = re.compile(r"\b416\b|\brange\b", re.IGNORECASE)


class WrongObject(Exception):
    """An object is not what it should be. Callers know what that means."""


class ObjectMissing(WrongObject):
    """No object of that name."""


class ObjectCut(WrongObject):
    """An object has fewer bytes than were asked for: ``size``."""

    def __init__(self, where: str, size: int) -> None:
        super().__init__(f"{where} has {size} bytes")
        self.size = size


class Listed(NamedTuple):
    """An object of a listing: its name below the prefix, its bytes, and when it was put (ms)."""

    name: str
    size: int
    modified_ms: int


class ObjectStore:
    """The objects below one prefix. Any number of threads may use it.

    Errors are ``ArchiveFailed``, also ``ArchiveAccessRefused``, without secrets. ``stats`` counts what was asked.
    """

    def __init__(self, address: StorageAddress) -> None:
        """Use ``open`` or ``at``. Made in another way, it connects with the first request."""
        self._address = address
        self.url = address.url
        # Of an archive on a local disk.
        self.directory = address.directory
        self.lists_in_order = address.lists_in_order
        self._timeout_s = address.timeout_s
        self._client: obstore.store.ObjectStore | None = None
        self._connecting = threading.Lock()
        self._counter = StorageCounter()
        self._stopped = False

    @classmethod
    def open(
        cls,
        url: str,
        *,
        options: Mapping[str, str] | None = None,
        writes: bool = False,
        retry_timeout_s: float = 180.0,
    ) -> ObjectStore:
        """The objects below a URL such as ``s3://bucket/prefix``. Nothing is asked yet.

        With ``writes``, the directory of a ``file://`` URL is made.

        Credentials come from the environment, as ``obstore`` takes them (``AWS_ACCESS_KEY_ID``, instance roles,
        ``GOOGLE_APPLICATION_CREDENTIALS``, ``AZURE_STORAGE_ACCOUNT_NAME``, ...). ``options`` go before it:
        ``endpoint``, ``region``, and the other names that ``obstore`` has for that store. A request that fails is
        repeated with back-off: see ``StorageAddress.timeout_s``. The errors of ``at``, and ``InvalidValue``.
        """
        return cls.at(StorageAddress.parse(url, options=options, timeout_s=retry_timeout_s), writes=writes)

    @classmethod
    def at(cls, address: StorageAddress, *, writes: bool = False, connects: bool = True) -> ObjectStore:
        """The objects below an address. ``InvalidValue``, ``StoreForked``; ``ArchiveNotFound`` without the directory,
        ``ArchiveFailed`` for one that cannot be made.

        Unless it ``connects``, the first request does, with these errors: for a reader that may find all in its cache.
        """
        url = address.url
        if address.is_local and not writes and not disk.is_directory(address.directory):
            raise ArchiveNotFound(f"No archive at {url}: {address.directory} is not a directory.", path=url)
        objects = cls(address)
        if connects:
            objects._client = address.connect(makes_directory=writes)
        return objects

    @property
    def _store(self) -> obstore.store.ObjectStore:
        """The client. The errors of ``StorageAddress.connect``."""
        with self._connecting:
            if self._client is None:
                self._client = self._address.connect()
            return self._client

    @property
    def _obstore(self) -> ModuleType:
        return load_obstore()

    def __str__(self) -> str:
        return self.url

    @property
    def stats(self) -> StorageStats:
        """What was asked so far."""
        return self._counter.stats

    def count(self, some: StorageStats) -> None:
        """Add to what was asked."""
        self._counter.add(some)

    def stop(self) -> None:
        """Repeat nothing any more."""
        self._stopped = True

    def get(self, name: str) -> bytes | None:
        """All bytes of an object; None without it."""
        with contextlib.suppress(ObjectMissing):
            return self._asked("read", name, lambda: bytes(self._obstore.get(self._store, name).bytes()), _fetched)
        return None

    def piece(self, name: str, start: int, stop: int) -> memoryview:
        """The bytes ``[start, stop)`` of an object. ``ObjectMissing``, ``ObjectCut``."""

        def ask() -> memoryview:
            data = memoryview(self._obstore.get_range(self._store, name, start=start, end=stop))
            if len(data) != stop - start:
                raise _Short(f"{len(data)} bytes came where {stop - start} were asked for")
            return data

        return self._asked("read", name, ask, _fetched, stop=stop)

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes] | None:
        """Some ranges ``[start, stop)`` of an object, asked for at once; None without it. ``ObjectCut``."""
        starts, stops = [start for start, _ in ranges], [stop for _, stop in ranges]

        def ask() -> list[bytes]:
            found = [bytes(one) for one in self._obstore.get_ranges(self._store, name, starts=starts, ends=stops)]
            if [len(one) for one in found] != [stop - start for start, stop in ranges]:
                raise _Short(f"{sum(map(len, found))} bytes came where {sum(stops) - sum(starts)} were asked for")
            return found

        with contextlib.suppress(ObjectMissing):
            return self._asked("read", name, ask, lambda found: _fetched(*found), stop=max(stops, default=0))
        return None

    def head(self, name: str) -> Listed | None:
        """Size and time of an object; None without it."""
        with contextlib.suppress(ObjectMissing):
            return _listed(self._asked("look at", name, lambda: self._obstore.head(self._store, name)))
        return None

    def list(self, folder: str = "", *, first_only: bool = False) -> Iterator[Listed]:
        """The objects below a folder, or all; with ``first_only``, those that one request gives.

        Most object stores list in the order of names, so one request shows the first ones; others show all.
        """
        pages: Iterator[Any] = iter(())

        def first() -> Any:
            nonlocal pages
            pages = iter(self._obstore.list(self._store, folder or None, chunk_size=_LISTED_AT_ONCE))
            return next(pages, None)

        page = self._asked("list", folder, first)
        while page is not None:
            yield from map(_listed, page)
            if first_only and self.lists_in_order and page:
                return
            # One attempt, unlike other reads: obstore's iterator cannot be asked again after an error, and another
            # one would give the first pages twice. The last page is known to be the last one.
            page = self._asked(
                *("list", folder, lambda: next(pages, None)),
                lambda page: StorageStats(requests=int(page is not None)),
                attempts=1,
            )

    def put(self, name: str, parts: Iterable[bytes | memoryview], size: int) -> None:
        """Put an object of ``size`` bytes, in parts if it is large. What ``parts`` raises ends it: nothing is put then.

        Memory does not grow with the object.
        """

        def ask() -> None:
            if size <= PART_SIZE:
                self._obstore.put(self._store, name, b"".join(parts), use_multipart=False)
            else:
                # The parts are of any length; those of the upload are of PART_SIZE.
                self._obstore.put(
                    *(self._store, name, iter(parts)),
                    use_multipart=True,
                    chunk_size=PART_SIZE,
                    max_concurrency=PARTS_AT_ONCE,
                )

        self._asked("write", name, ask, attempts=1)
        self.sync(name)

    def put_new(self, name: str, data: bytes) -> bool:
        """Put an object unless there is one of that name; whether it was put.

        False also for one that was put before by a request whose answer was lost: compare the bytes.
        """

        def ask() -> bool:
            try:
                self._obstore.put(self._store, name, data, mode="create", use_multipart=False)
            except self._obstore.exceptions.AlreadyExistsError:
                return False
            return True

        is_put = self._make_file(name, data) if self.directory else None
        if is_put is None:
            is_put = self._asked("write", name, ask, attempts=1)
            if is_put:
                self.sync(name)
        return is_put

    def _make_file(self, name: str, data: bytes) -> bool | None:
        """As ``put_new``, for a local disk: ``obstore`` would give the object its name before its bytes are synced.

        None where the file system cannot.
        """
        try:
            is_made = make_file_once(os.path.join(self.directory, name), data)
        except OSError as error:
            raise ArchiveFailed(f"Failed to write {self.url}/{name}: {error.strerror}.", name=name) from error
        if is_made:
            self.sync(name)
        return is_made

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects; one that is missing counts as deleted."""
        for start in range(0, len(names), _LISTED_AT_ONCE):
            some = names[start : start + _LISTED_AT_ONCE]
            with contextlib.suppress(ObjectMissing):
                self._asked("delete", some[0], partial(self._obstore.delete, self._store, list(some)))

    def sync(self, name: str) -> None:
        """Bring an object of a local disk, and its name, to the device: before anything names it."""
        if not self.directory:
            return
        try:
            path = os.path.join(self.directory, name)
            descriptor = disk.open_file(path)
            try:
                disk.sync(descriptor)
            finally:
                disk.close(descriptor)
            while len(path) > len(self.directory):
                path = os.path.dirname(path)
                disk.sync_directory(path)
        except OSError as error:
            raise ArchiveFailed(f"Failed to sync {self.url}/{name}: {error.strerror}.", name=name) from error

    def _asked(
        self,
        what: str,
        name: str,
        ask: Callable[[], _T],
        cost: Callable[[_T], StorageStats] = lambda _: StorageStats(requests=1),
        *,
        stop: int = 0,
        attempts: int = _ATTEMPTS,
    ) -> _T:
        """The answer to one request, whose ``cost`` is counted. ``ObjectMissing``, ``ObjectCut``, ``ArchiveFailed``.

        ``what`` is done with the object ``name``, which has ``stop`` bytes at least or is cut. The time is
        looked at between attempts alone: see ``StorageAddress.timeout_s``.
        """
        pause, attempt, until = 0.05, 1, time.monotonic() + self._timeout_s
        while True:
            try:
                found = ask()
            except Exception as error:  # noqa: BLE001 - obstore's errors derive from several of Python's
                if stop and (isinstance(error, _Short) or _NO_RANGE.search(said(error))):
                    self._refuse_cut(name, stop)
                is_last = attempt >= attempts or self._stopped or time.monotonic() >= until
                self._refuse(what, name, error, attempt if is_last else 0)
            else:
                self.count(cost(found))
                return found
            self.count(StorageStats(repeated=1))
            attempt += 1
            time.sleep(pause * random.uniform(0.5, 1))
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _refuse_cut(self, name: str, stop: int) -> None:
        """``ObjectCut`` if an object has fewer bytes; nothing where that is not said."""
        with contextlib.suppress(self._obstore.exceptions.BaseError, OSError):
            size = int(self._obstore.head(self._store, name)["size"])
            self.count(StorageStats(requests=1))
            if size < stop:
                raise ObjectCut(self._where(name), size)

    def _where(self, name: str) -> str:
        return f"{self.url.rstrip('/')}/{name}"

    def _refuse(self, what: str, name: str, error: Exception, attempts: int) -> None:
        """Raise the named error of one that another attempt does not change, or of the last one of so many."""
        known, where = self._obstore.exceptions, self._where(name)
        if what in _OF_OBJECTS and isinstance(error, FileNotFoundError | known.NotFoundError):
            raise ObjectMissing(where) from None
        if self.directory and _NO_PERMISSION.search(str(error)):
            advice = "run as a user who may, or change its mode"
            raise ArchiveAccessRefused(f"No permission to {what} {where}: {advice}.", name=name) from None
        denied = PermissionError | known.PermissionDeniedError | known.UnauthenticatedError
        if isinstance(error, denied) or (isinstance(error, known.BaseError) and _NO_ACCESS.search(said(error))):
            _refuse_access(what, where, name, error)
        if isinstance(error, CommitLogError) or not isinstance(error, known.BaseError | OSError | _Short):
            raise error
        if attempts:
            again = f", asked for {attempts} times" if attempts > 1 else ""
            # Not `from error`: its own text may have a signed URL.
            raise ArchiveFailed(
                f"Failed to {what} {where}{again}: {said(error)}. Is the address right, and does the store answer this "
                "host?",
                name=name,
            ) from None


def _fetched(*parts: bytes | memoryview) -> StorageStats:
    return StorageStats(requests=1, bytes_fetched=sum(map(len, parts)))


class _Short(Exception):
    """An answer of fewer bytes than were asked for."""


def _refuse_access(what: str, where: str, name: str, error: Exception) -> NoReturn:
    raise ArchiveAccessRefused(
        f"Object storage refuses to let this client {what} {where}: {said(error)}. Credentials come from the "
        "environment (AWS_ACCESS_KEY_ID, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_KEY, ...), a profile, "
        "or the machine's role.",
        name=name,
    ) from None


def _listed(meta: Mapping[str, Any]) -> Listed:
    return Listed(meta["path"], meta["size"], int(meta["last_modified"].timestamp() * _MS))
