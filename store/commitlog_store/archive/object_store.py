"""ObjectStore: the calls on an object store that archives need, through ``obstore``, and its errors without secrets.

What is assumed of an object store (docs/decisions/0042-archives.md): an object appears whole or not at all, a listing
shows each object that was put before it began, and ``put_new`` succeeds for one caller alone. S3, GCS, Azure and a
directory of a local disk have all of these.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from commitlog_store.errors import ArchiveFailed, ArchiveNotFound
from commitlog_store.files import disk
from commitlog_store.files.whole_file import make_file_once
from commitlog_store.object_storage.address import StorageAddress, said

if TYPE_CHECKING:
    import obstore.store

__all__ = ["Listed", "ObjectStore"]

# Parts of an upload, and how many of them are under way: memory is a few times their product.
PART_SIZE = 8 << 20
PARTS_AT_ONCE = 4
_LISTED_AT_ONCE = 1000
_MS = 1000


class Listed(NamedTuple):
    """An object of a listing: its name below the prefix, its bytes, and when it was put (ms)."""

    name: str
    size: int
    modified_ms: int


class ObjectStore:
    """The objects below one prefix. Any number of threads may use it. Errors are ``ArchiveFailed``, without secrets."""

    def __init__(self, store: obstore.store.ObjectStore, url: str, *, directory: str = "") -> None:
        """Use ``open``; or a store of ``obstore`` with credentials of one's own, and the URL to show for it."""
        self.url = url
        # Of an archive on a local disk.
        self.directory = directory
        self._store = store
        self.lists_in_order = not directory and StorageAddress.parse(url).lists_in_order

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
        repeated with back-off for ``retry_timeout_s``. ``InvalidValue``; ``ArchiveNotFound`` without the directory.
        """
        address = StorageAddress.parse(url, options=options, timeout_s=retry_timeout_s)
        if address.is_local and not writes and not disk.is_directory(address.directory):
            raise ArchiveNotFound(f"No archive at {url}: {address.directory} is not a directory.", path=url)
        return cls(address.connect(makes_directory=writes), address.url, directory=address.directory)

    def __str__(self) -> str:
        return self.url

    def get(self, name: str) -> bytes | None:
        """All bytes of an object; None without it."""
        import obstore

        with self._asking("read", name):
            try:
                return bytes(obstore.get(self._store, name).bytes())
            except FileNotFoundError:
                return None

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes] | None:
        """Some ranges ``[start, stop)`` of an object, asked for at once; None without it."""
        import obstore

        starts, stops = [start for start, _ in ranges], [stop for _, stop in ranges]
        with self._asking("read", name):
            try:
                return [bytes(one) for one in obstore.get_ranges(self._store, name, starts=starts, ends=stops)]
            except FileNotFoundError:
                return None

    def head(self, name: str) -> Listed | None:
        """Size and time of an object; None without it."""
        import obstore

        with self._asking("look at", name):
            try:
                return _listed(obstore.head(self._store, name))
            except FileNotFoundError:
                return None

    def put(self, name: str, parts: Iterable[bytes | memoryview], size: int) -> None:
        """Put an object of ``size`` bytes, in parts if it is large. What ``parts`` raises ends it: nothing is put then.

        Memory does not grow with the object.
        """
        import obstore

        with self._asking("write", name):
            if size <= PART_SIZE:
                obstore.put(self._store, name, b"".join(parts), use_multipart=False)
            else:
                # The parts are of any length; those of the upload are of PART_SIZE.
                obstore.put(
                    *(self._store, name, iter(parts)),
                    use_multipart=True,
                    chunk_size=PART_SIZE,
                    max_concurrency=PARTS_AT_ONCE,
                )
            self.sync(name)

    def put_new(self, name: str, data: bytes) -> bool:
        """Put an object unless there is one of that name; whether it was put.

        False also for one that was put before by a request whose answer was lost: compare the bytes.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError

        is_put = self._make_file(name, data) if self.directory else None
        if is_put is None:
            with self._asking("write", name):
                try:
                    obstore.put(self._store, name, data, mode="create", use_multipart=False)
                except AlreadyExistsError:
                    return False
                self.sync(name)
        return is_put is not False

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

    def list(self, folder: str = "", *, first_only: bool = False) -> Iterator[Listed]:
        """The objects below a folder, or all; with ``first_only``, those that one request gives."""
        import obstore

        with self._asking("list", folder):
            pages = iter(obstore.list(self._store, folder or None, chunk_size=_LISTED_AT_ONCE))
        while True:
            with self._asking("list", folder):
                page = next(pages, None)
            if page is None:
                return
            yield from map(_listed, page)
            if first_only and self.lists_in_order:
                return

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects; one that is missing counts as deleted."""
        import obstore

        for start in range(0, len(names), _LISTED_AT_ONCE):
            some = list(names[start : start + _LISTED_AT_ONCE])
            with self._asking("delete", some[0]), contextlib.suppress(FileNotFoundError):
                obstore.delete(self._store, some)

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

    @contextlib.contextmanager
    def _asking(self, what: str, name: str) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except BaseError as error:
            where = f"{self.url.rstrip('/')}/{name}"
            # Not `from error`: its own text may have a signed URL.
            raise ArchiveFailed(f"Failed to {what} {where}: {said(error)}.", name=name) from None


def _listed(meta: Mapping[str, Any]) -> Listed:
    return Listed(meta["path"], meta["size"], int(meta["last_modified"].timestamp() * _MS))
