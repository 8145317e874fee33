"""Objects: asks one object store for objects and ranges of them, repeats what may help, and counts.

obstore repeats a request that was refused for a while (500, 503, a connection that was not made) by itself. An answer
that breaks off in its middle, or is shorter than what was asked for, is repeated here.
"""

from __future__ import annotations

import contextlib
import random
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, TypeVar

from commitlog_store.errors import ArchiveAccessRefused, ArchiveFailed, CommitLogError
from commitlog_store.object_storage.address import StorageAddress, load_obstore, said
from commitlog_store.storage_stats import StorageCounter, StorageStats

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_T = TypeVar("_T")

# So often an answer that broke off is asked for again.
_ATTEMPTS = 5
_LONGEST_PAUSE_S = 2.0
_LISTED_AT_ONCE = 1000


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


class Objects:
    """The objects below one address. Any number of threads at a time."""

    def __init__(self, address: StorageAddress, store: ObjectStore | None = None) -> None:
        """``store`` is a client of it that exists already."""
        self.address = address
        self._obstore = load_obstore()
        self._store = address.connect() if store is None else store
        self._counter = StorageCounter()
        self._stopped = False

    @property
    def stats(self) -> StorageStats:
        return self._counter.stats

    def stop(self) -> None:
        """Repeat nothing any more."""
        self._stopped = True

    def whole(self, name: str) -> bytes:
        """A small object. ``ObjectMissing``, ``ArchiveFailed``."""
        return self._repeat(name, lambda: bytes(self._obstore.get(self._store, name).bytes()), len)

    def piece(self, name: str, start: int, stop: int) -> memoryview:
        """The bytes ``[start, stop)`` of an object. ``ObjectMissing``, ``ObjectCut``, ``ArchiveFailed``."""

        def ask() -> memoryview:
            data = memoryview(self._obstore.get_range(self._store, name, start=start, end=stop))
            if len(data) != stop - start:
                raise _Short(f"{len(data)} bytes came where {stop - start} were asked for")
            return data

        return self._repeat(name, ask, len, stop)

    def first_names(self, prefix: str) -> list[str]:
        """Names of objects that begin with a prefix and a slash: the first ones, in any order.

        Most object stores list in the order of names, so one request shows these; others show all.
        """

        def ask() -> list[str]:
            pages = self._obstore.list(self._store, prefix, chunk_size=_LISTED_AT_ONCE)
            if not self.address.lists_in_order:
                return [str(one["path"]) for page in pages for one in page]
            return next(([str(one["path"]) for one in page] for page in pages if page), [])

        return self._repeat(prefix, ask, lambda _: 0)

    def _repeat(self, name: str, ask: Callable[[], _T], size: Callable[[_T], int], stop: int = 0) -> _T:
        """An answer. ``stop``: the object has so many bytes, or is cut."""
        pause = 0.05
        attempt = 1
        while True:
            try:
                found = ask()
            except Exception as error:  # noqa: BLE001 - obstore's errors derive from several of Python's
                self._refuse(name, error, last=attempt == _ATTEMPTS)
                if stop and (isinstance(error, _Short) or _NO_RANGE.search(said(error))):
                    self._refuse_cut(name, stop)
            else:
                self.count(StorageStats(requests=1, bytes_fetched=size(found)))
                return found
            self.count(StorageStats(repeated=1))
            attempt += 1
            time.sleep(pause * random.uniform(0.5, 1))
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def count(self, some: StorageStats) -> None:
        """Add to what was asked."""
        self._counter.add(some)

    def _refuse_cut(self, name: str, stop: int) -> None:
        """``ObjectCut`` if an object has fewer bytes; nothing where that is not said."""
        with contextlib.suppress(self._obstore.exceptions.BaseError, OSError):
            size = int(self._obstore.head(self._store, name)["size"])
            self.count(StorageStats(requests=1))
            if size < stop:
                raise ObjectCut(f"{self.address}/{name}", size)

    def _refuse(self, name: str, error: Exception, *, last: bool) -> None:
        """Raise the named error of one that another attempt does not change, or of the ``last`` one."""
        known = self._obstore.exceptions
        where = f"{self.address}/{name}"
        if isinstance(error, FileNotFoundError | known.NotFoundError):
            raise ObjectMissing(where) from None
        if isinstance(error, PermissionError | known.PermissionDeniedError | known.UnauthenticatedError):
            _refuse_access(where, name, error)
        if isinstance(error, CommitLogError) or not isinstance(error, known.BaseError | OSError | _Short):
            raise error
        if last or self._stopped:
            raise ArchiveFailed(
                f"{where} was not read, asked for {_ATTEMPTS} times: {said(error)}. Is the address right, and does the "
                "store answer this host?",
                name=name,
            ) from None


class _Short(Exception):
    """An answer of fewer bytes than were asked for."""


def _refuse_access(where: str, name: str, error: Exception) -> NoReturn:
    raise ArchiveAccessRefused(
        f"Object storage refuses to show {where} to this client: {said(error)}. Credentials come from the environment "
        "(AWS_ACCESS_KEY_ID, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_KEY, ...), a profile, or the "
        "machine's role.",
        name=name,
    ) from None
