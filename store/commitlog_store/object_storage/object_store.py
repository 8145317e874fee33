"""ObjectStore: every call on an object store: repeated where that helps, counted, without secrets.

Archivers, readers and exports ask here. A client (``clients``) makes the requests: ``obstore`` those to clouds and
local disks, ``hdfs-native`` those to HDFS. Both repeat a request that was refused for a while (500, 503, a connection
that was not made) by themselves. An answer that breaks off in its middle, or is shorter than what was asked for, is
repeated here; what is written is not, since its callers know what a lost answer means.

What is assumed of an object store (docs/decisions/0042-archives.md): an object appears whole or not at all, a listing
shows each object that was put before it began, and ``put_new`` succeeds for one caller alone. S3, GCS, Azure, HDFS and
a directory of a local disk have all of these.
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
from typing import TypeVar

from commitlog_store.errors import ArchiveAccessRefused, ArchiveFailed, ArchiveNotFound, CommitLogError
from commitlog_store.files import disk
from commitlog_store.files.whole_file import make_file_once
from commitlog_store.object_storage.address import StorageAddress
from commitlog_store.object_storage.clients import LISTED_AT_ONCE, Failure, Listed, StorageClient, whole_name
from commitlog_store.object_storage.counted import StorageCounter
from commitlog_store.storage_stats import StorageStats

_T = TypeVar("_T")

# So often an answer that broke off is asked for, unless that has taken too long when it breaks off.
_ATTEMPTS = 5
_LONGEST_PAUSE_S = 2.0
# What needs the object to exist. For the rest, it is the bucket that does not.
_OF_OBJECTS = frozenset({"read", "look at", "delete"})
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
        self._connected: StorageClient | None = None
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
        ``GOOGLE_APPLICATION_CREDENTIALS``, ``AZURE_STORAGE_ACCOUNT_NAME``, ...), and Hadoop's settings from
        ``HADOOP_CONF_DIR``. ``options`` go before it: ``endpoint``, ``region``, and the other names that ``obstore``
        has for that store, or Hadoop's. A request that fails is repeated with back-off: see
        ``StorageAddress.timeout_s``. The errors of ``at``, and ``InvalidValue``.
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
            objects._connected = address.connect(makes_directory=writes)
        return objects

    @property
    def _client(self) -> StorageClient:
        """The errors of ``StorageAddress.connect``."""
        with self._connecting:
            if self._connected is None:
                self._connected = self._address.connect()
            return self._connected

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
            return self._asked("read", name, lambda: self._client.get(name), _fetched)
        return None

    def piece(self, name: str, start: int, stop: int) -> memoryview:
        """The bytes ``[start, stop)`` of an object. ``ObjectMissing``, ``ObjectCut``."""

        def ask() -> memoryview:
            data = memoryview(self._client.get_range(name, start, stop))
            if len(data) != stop - start:
                raise _Short(f"{len(data)} bytes came where {stop - start} were asked for")
            return data

        return self._asked("read", name, ask, _fetched, stop=stop)

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes] | None:
        """Some ranges ``[start, stop)`` of an object, asked for at once; None without it. ``ObjectCut``."""
        sizes = [stop - start for start, stop in ranges]

        def ask() -> list[bytes]:
            found = self._client.get_ranges(name, ranges)
            if [len(one) for one in found] != sizes:
                raise _Short(f"{sum(map(len, found))} bytes came where {sum(sizes)} were asked for")
            return found

        last = max((stop for _, stop in ranges), default=0)
        with contextlib.suppress(ObjectMissing):
            return self._asked("read", name, ask, lambda found: _fetched(*found), stop=last)
        return None

    def head(self, name: str) -> Listed | None:
        """Size and time of an object; None without it."""
        with contextlib.suppress(ObjectMissing):
            return self._asked("look at", name, lambda: self._client.head(name))
        return None

    def list(self, folder: str = "", *, first_only: bool = False, unfinished: bool = False) -> Iterator[Listed]:
        """The objects below a folder, or all; with ``first_only``, those that one request gives.

        Most object stores list in the order of names, so one request shows the first ones; others show all. With
        ``unfinished``, also what a killed client was writing in HDFS: ``whole_name`` has the name that it would have.
        """
        pages: Iterator[list[Listed]] = iter(())

        def first() -> list[Listed] | None:
            nonlocal pages
            pages = self._client.list(folder)
            return next(pages, None)

        page = self._asked("list", folder, first)
        while page is not None:
            yield from page if unfinished else (one for one in page if whole_name(one.name) == one.name)
            if first_only and self.lists_in_order and page:
                return
            # One attempt, unlike other reads: the iterator cannot be asked again after an error, and another one would
            # give the first pages twice. The last page is known to be the last one.
            page = self._asked(
                *("list", folder, lambda: next(pages, None)),
                lambda page: StorageStats(requests=int(page is not None)),
                attempts=1,
            )

    def put(self, name: str, parts: Iterable[bytes | memoryview], size: int) -> None:
        """Put an object of ``size`` bytes, in parts if it is large. What ``parts`` raises ends it: nothing is put then.

        Memory does not grow with the object.
        """
        self._asked("write", name, lambda: self._client.put(name, parts, size), attempts=1)
        self.sync(name)

    def put_new(self, name: str, data: bytes) -> bool:
        """Put an object unless there is one of that name; whether it was put.

        False also for one that was put before by a request whose answer was lost: compare the bytes.
        """
        is_put = self._make_file(name, data) if self.directory else None
        if is_put is None:
            is_put = self._asked("write", name, lambda: self._client.put_new(name, data), attempts=1)
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
        for start in range(0, len(names), LISTED_AT_ONCE):
            some = names[start : start + LISTED_AT_ONCE]
            with contextlib.suppress(ObjectMissing):
                self._asked("delete", some[0], partial(self._client.delete, some))

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
            except Exception as error:  # noqa: BLE001 - errors of clients derive from several of Python's
                if stop and self._may_be_cut(error):
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

    def _may_be_cut(self, error: Exception) -> bool:
        if isinstance(error, _Short | CommitLogError):
            return isinstance(error, _Short)
        return bool(_NO_RANGE.search(self._client.said(error)))

    def _refuse_cut(self, name: str, stop: int) -> None:
        """``ObjectCut`` if an object has fewer bytes; nothing where that is not said."""
        try:
            size = self._client.head(name).size
        except Exception as error:
            if self._client.kind_of(error) is None:
                raise
        else:
            self.count(StorageStats(requests=1))
            if size < stop:
                raise ObjectCut(self._where(name), size)

    def _where(self, name: str) -> str:
        return f"{self.url.rstrip('/')}/{name}"

    def _refuse(self, what: str, name: str, error: Exception, attempts: int) -> None:
        """Raise the named error of one that another attempt does not change, or of the last one of so many."""
        if isinstance(error, CommitLogError):
            raise error
        client, where = self._client, self._where(name)
        kind = Failure.OTHER if isinstance(error, _Short) else client.kind_of(error)
        if kind is None:
            raise error
        if what in _OF_OBJECTS and kind is Failure.MISSING:
            raise ObjectMissing(where) from None
        if self.directory and _NO_PERMISSION.search(str(error)):
            advice = "run as a user who may, or change its mode"
            raise ArchiveAccessRefused(f"No permission to {what} {where}: {advice}.", name=name) from None
        if kind is Failure.ACCESS:
            raise ArchiveAccessRefused(
                f"Object storage refuses to let this client {what} {where}: {client.said(error)}. {client.credentials}",
                name=name,
            ) from None
        if attempts:
            again = f", asked for {attempts} times" if attempts > 1 else ""
            # Not `from error`: its own text may have a signed URL.
            raise ArchiveFailed(
                f"Failed to {what} {where}{again}: {client.said(error)}. Is the address right, and does the store "
                "answer this host?",
                name=name,
            ) from None


def _fetched(*parts: bytes | memoryview) -> StorageStats:
    return StorageStats(requests=1, bytes_fetched=sum(map(len, parts)))


class _Short(Exception):
    """An answer of fewer bytes than were asked for."""
