"""SelectedCopy: the directory in which a log of some topics is made, a file at a time, before it is archived.

::

    <work directory>/
      work-directory            says that it is one
      lock                      one archiver at a time
      commitlog/<20 digits>     the file that is being filled: records from its start on, then zeros
      config/*.json             what the store's files of these names say of the topics

Nothing in it is needed later: it is made of the archive and of the store. What an earlier run has left spares a
download.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from commitlog_store.archive.manifest import ObjectRef
from commitlog_store.archive.segments import read_pieces
from commitlog_store.archive.selected_topics import CONFIG_NAMES
from commitlog_store.errors import InvalidValue, StoreLocked, TargetFailed
from commitlog_store.files import disk
from commitlog_store.files.mapped_file import MappedFile
from commitlog_store.files.store_lock import StoreLock
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.files.temporary_directory import make_temporary_directory, temporary_root
from commitlog_store.files.whole_file import replace_file
from commitlog_store.format.arrays import ByteArray
from commitlog_store.format.checksum import crc32
from commitlog_store.format.record import FILLER_SIZE, encode_filler
from commitlog_store.paths import (
    ARCHIVE_IDENTITY,
    ARCHIVE_MANIFESTS,
    COMMIT_LOG,
    CONFIG,
    LOCK,
    file_name_for_offset,
)

_MARK = "work-directory"
# A new disk has it; where that is mounted is a directory as good as an empty one.
_LOST_AND_FOUND = "lost+found"
_FILE_NAME = re.compile(r"[0-9]{20}", re.ASCII)
_ADVICE = "Nothing was changed in the archive. Name a directory with room for one log file: work_dir (--work-dir)."


class SelectedCopy:
    """A work directory, held by this archiver, and the log file in it: from ``base`` up to ``end``, of ``size`` bytes.

    Its owner closes it. ``TargetFailed`` when it cannot be written.
    """

    def __init__(self, path: str, lock: StoreLock, *, is_temporary: bool) -> None:
        """Use ``SelectedCopy.open``."""
        self.paths = StorePaths.of(path)
        self.base = self.end = self.size = 0
        self._lock = lock
        self._is_temporary = is_temporary
        self._descriptor = -1
        self._is_closed = False

    @classmethod
    def open(cls, path: str | None, taken: Iterable[str]) -> SelectedCopy:
        """The directory at ``path``, which is missing, empty, or one of an earlier archiver; None for a temporary one.

        ``taken`` are the directories of the store, and of the archive. ``InvalidValue`` for one in these or around
        them, of an archive, or any other directory; ``StoreLocked`` beside another archiver.
        """
        is_temporary = path is None
        place = os.path.abspath(temporary_root() if path is None else path)
        _refuse_taken(place, taken, is_root=is_temporary)
        with _writing(place):
            path = make_temporary_directory(place, "commitlog-archive-") if is_temporary else place
            if not disk.is_directory(path):
                disk.make_directory(path)
            mark = os.path.join(path, _MARK)
            if not disk.exists(mark):
                if set(disk.list_names(path)) - {_LOST_AND_FOUND}:
                    raise InvalidValue(
                        f"{path} is not empty, and was not made by an archiver. Give an empty directory."
                    )
                disk.close(disk.create_file(mark))
            try:
                lock = StoreLock.acquire(os.path.join(path, LOCK))
            except StoreLocked as error:
                by = "" if error.holder is None else f", process {error.holder}"
                raise StoreLocked(
                    f"The work directory {path} is in use by another archiver{by}. Give each one a directory of its "
                    "own (--work-dir).",
                    path=path,
                    holder=error.holder,
                ) from None
            try:
                for name in (COMMIT_LOG, CONFIG):
                    if not disk.is_directory(os.path.join(path, name)):
                        disk.make_directory(os.path.join(path, name))
            except BaseException:
                lock.release()
                raise
        return cls(path, lock, is_temporary=is_temporary)

    @property
    def is_whole(self) -> bool:
        """Whether the directories exist, and so does the file, once it was begun."""
        files = [] if self._descriptor < 0 else [self._path_of(self.base)]
        return all(map(disk.exists, (self.paths.commit_log, self.paths.part(CONFIG), *files)))

    @property
    def is_empty(self) -> bool:
        """Whether the file has no record."""
        return self.end == self.base

    @property
    def is_full(self) -> bool:
        """Whether the file has its filler: the next record begins the next file."""
        return self.end == self.base + self.size

    def begin(
        self,
        base: int,
        size: int,
        part: ObjectRef | None = None,
        download: Callable[[ObjectRef], Iterator[bytes]] | None = None,
    ) -> None:
        """Begin the file at ``base``: empty, or with ``part``, an object, unless that is in the directory already.

        The other files of a log are removed.
        """
        path = self._path_of(base)
        with _writing(path):
            self._close_file()
            if part is not None and _begins_with(path, base, part):
                self._descriptor, length = disk.open_for_writing(path), part.size
            else:
                if disk.exists(path):
                    disk.unlink(path)
                self._descriptor, length = disk.create_file(path), 0
                if part is not None and download is not None:
                    for piece in download(part):
                        disk.write_at(self._descriptor, piece, length)
                        length += len(piece)
            disk.truncate(self._descriptor, length)  # what an earlier run has not archived
            disk.truncate(self._descriptor, size)
            for name in disk.list_names(os.path.dirname(path)):
                if _FILE_NAME.fullmatch(name) and name != os.path.basename(path):
                    disk.unlink(os.path.join(os.path.dirname(path), name))
        self.base, self.end, self.size = base, base + length, size

    @property
    def room(self) -> int:
        """Bytes of records that fit into the file."""
        return self.base + self.size - self.end - FILLER_SIZE

    def append(self, data: ByteArray) -> None:
        """Write records at the end."""
        with _writing(self._path_of(self.base)):
            disk.write_at(self._descriptor, data, self.end - self.base)
        self.end += len(data)

    def fill(self) -> None:
        """End the file: the rest is a blank filler."""
        filler = encode_filler(self.base + self.size - self.end)
        with _writing(self._path_of(self.base)):
            disk.write_at(self._descriptor, filler, self.end - self.base)
        self.end = self.base + self.size

    def write_config(self, files: Mapping[str, bytes]) -> None:
        """Let ``config/`` have these of ``CONFIG_NAMES``, and no others of them."""
        directory = self.paths.part(CONFIG)
        with _writing(directory):
            for name, data in files.items():
                replace_file(os.path.join(directory, name), data)
            for name in CONFIG_NAMES:
                path = os.path.join(directory, name)
                if name not in files and disk.exists(path):
                    disk.unlink(path)

    def close(self) -> None:
        """Release it; a temporary one is removed. A second call does nothing."""
        self._close_file()
        if self._is_closed:
            return
        self._is_closed = True
        if self._is_temporary:
            for directory in (self.paths.commit_log, self.paths.part(CONFIG), self.paths.root):
                with contextlib.suppress(OSError):
                    for name in disk.list_names(directory):
                        disk.unlink(os.path.join(directory, name))
                    disk.remove_directory(directory)
        self._lock.release()

    def _path_of(self, base: int) -> str:
        return os.path.join(self.paths.commit_log, file_name_for_offset(base))

    def _close_file(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            disk.close(descriptor)


def _refuse_taken(place: str, taken: Iterable[str], *, is_root: bool) -> None:
    """``InvalidValue`` for a work directory in one that is taken, or around it; or in which an archive was made.

    ``is_root``: the work directory is made in that one, so it is around none.
    """
    here = disk.real_path(place)
    for own in map(disk.real_path, taken):
        common = os.path.commonpath([here, own])
        if common == own or (common == here and not is_root):
            where = "is in" if common == own else "contains"
            raise InvalidValue(
                f"{place} {where} {own}, a directory of the store or of the archive. Give another one (--work-dir)."
            )
    if not is_root and any(disk.exists(os.path.join(here, name)) for name in (ARCHIVE_IDENTITY, ARCHIVE_MANIFESTS)):
        raise InvalidValue(f"{place} has an archive. Give another directory (--work-dir).")


def _begins_with(path: str, base: int, part: ObjectRef) -> bool:
    """Whether a file begins with the bytes of an object."""
    if disk.file_size(path) < part.size:
        return False
    file, crc = MappedFile.open(path, base), 0
    try:
        for piece in read_pieces(file, part.size):
            crc = crc32(piece, crc)
    finally:
        file.close()
    return crc == part.crc32


@contextlib.contextmanager
def _writing(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TargetFailed("write", path=str(error.filename or path), cause=error, advice=_ADVICE) from error
