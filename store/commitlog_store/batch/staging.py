"""The staging area: encoded messages of batches on disk, before they are committed.

::

    <store>/staging/<application>/<version>/<any name>

Any process may stage, on any machine that sees the store's directory, any number of times; only ``MessageStore``
brings staged messages into the log. Leftovers are removed by the next commit of the same application; if none comes,
by their age (``remove_leftovers``).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType

import numpy as np

from commitlog_store.batch_id import BatchId, StagedFile
from commitlog_store.columnar.encode import EncodedMessages
from commitlog_store.columnar.staged_block import (
    BLOCK_HEAD_SIZE,
    StagedBlock,
    decode_block,
    decode_block_head,
    encode_block,
)
from commitlog_store.errors import (
    CommitLogError,
    CorruptStaging,
    InvalidValue,
    StagingFailed,
    StagingLost,
    StoreAccessDenied,
)
from commitlog_store.files import disk
from commitlog_store.format.arrays import ByteArray
from commitlog_store.format.checksum import crc32
from commitlog_store.paths import STAGING

PLAIN_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")
_TRIES = 5
STAGE_AGAIN = "Nothing was written to the store; stage the batch again."


def staged_path(batch: BatchId, name: str) -> str:
    """The path of a staged file, relative to the store."""
    return os.path.join(STAGING, _directory_name(batch.app_id), str(batch.version), name)


def unique_name(beginning: str = "") -> str:
    """A name for a staged file that no other has."""
    return f"{beginning}-{secrets.token_hex(8)}" if beginning else secrets.token_hex(8)


class StagedContent:
    """What a staged file holds so far: its blocks are made here, wherever the file is."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.rows = self.size = self._crc = 0

    def add(self, encoded: EncodedMessages) -> tuple[bytes, ByteArray]:
        """The next block of the file, in two pieces. The queues of its records are known."""
        queued = encoded.queued()
        crc = crc32(queued.records.data.data)
        block = StagedBlock(queued.records, queued.host_flags, queued.queues, queued.queue_codes, queued.hints, crc)
        head, data = encode_block(block)
        self._crc = crc32(head[:BLOCK_HEAD_SIZE], self._crc)
        self.size += len(head) + len(data)
        self.rows += len(block)
        return head, data

    def described(self) -> StagedFile:
        return StagedFile(self.path, self.rows, self.size, self._crc)


class StagedWriter:
    """Writes one staged file. Use it as a context manager: a file that is not finished is removed."""

    def __init__(self, store_path: str, batch: BatchId, name: str = "") -> None:
        """``name`` begins the file's name; a random suffix makes it unique. ``StagingFailed``."""
        self._store_path = store_path
        self.path = staged_path(batch, unique_name(name))
        self._whole = os.path.join(store_path, self.path)
        self._content = StagedContent(self.path)
        self._finished = False
        try:
            self._descriptor = create_staged(store_path, self.path)
        except OSError as error:
            raise StagingFailed("stage a batch at", path=self._whole, cause=error) from error

    def append(self, encoded: EncodedMessages) -> None:
        """Stage records whose queues are known. ``StagingFailed``."""
        if not len(encoded.rows):
            return
        at = self._content.size
        head, data = self._content.add(encoded)
        try:
            disk.write_at(self._descriptor, head, at)
            disk.write_at(self._descriptor, data, at + len(head))
        except OSError as error:
            raise StagingFailed("stage a batch at", path=self._whole, cause=error) from error

    def finish(self) -> StagedFile:
        """Close the file and return its rows, size and checksum. A file without rows is removed."""
        self._close()
        self._finished = True
        if not self._content.rows:
            self._remove()
        return self._content.described()

    def discard(self) -> None:
        """Close and remove the file. A second call does nothing."""
        if not self._finished:
            self._close()
            self._finished = True
            self._remove()

    def _close(self) -> None:
        if self._descriptor >= 0:
            disk.close(self._descriptor)
            self._descriptor = -1

    def _remove(self) -> None:
        with contextlib.suppress(OSError):  # the next commit of the application removes it
            disk.unlink(self._whole)

    def __enter__(self) -> StagedWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()


def create_staged(store_path: str, path: str) -> int:
    """Make a new staged file and the directories that it needs, open for writing. ``OSError``."""
    directory, whole = os.path.dirname(path), os.path.join(store_path, path)
    for _ in range(_TRIES):
        try:
            _make_directories(store_path, directory)
            return disk.create_file(whole)
        except FileNotFoundError:
            # Another process has just removed an empty directory. A store that does not exist is not created.
            if not disk.is_directory(store_path):
                raise
    _make_directories(store_path, directory)
    return disk.create_file(whole)


def _make_directories(store_path: str, directory: str) -> None:
    """Make missing directories of a path below the store. Nothing is written through a symbolic link (invariant 10)."""
    at = store_path
    for part in directory.split(os.sep):
        at = os.path.join(at, part)
        with contextlib.suppress(FileExistsError):
            disk.make_directory(at)
        if disk.is_symlink(at):
            raise NotADirectoryError(errno.ENOTDIR, "is a symbolic link; staged files lie in the store", at)


def staged_size(store_path: str, staged: StagedFile) -> int:
    """The bytes of a staged file as it is now. ``StagingLost``."""
    descriptor = _opened(store_path, staged)
    try:
        return disk.size_of(descriptor)
    finally:
        disk.close(descriptor)


def refuse_foreign_files(batch: BatchId, staged: Sequence[StagedFile]) -> None:
    """``InvalidValue`` for a file that is named twice, for one of another batch, and for any other kind of file.

    A batch that belongs to no application may have files of one that does: ``batch.app_id`` is empty then.
    """
    seen: set[str] = set()
    for one in staged:
        _refuse_other_path(one)
        if one.path in seen:
            raise InvalidValue(f"The staged file {one.path} is named twice in {batch}: its rows would be stored twice.")
        seen.add(one.path)
        own = os.path.dirname(staged_path(batch, "any"))
        if batch.app_id and os.path.dirname(one.path) != own:
            raise InvalidValue(
                f"The staged file {one.path} is not one of {batch}, whose files lie in {own}: commit it with the batch "
                "that it was staged for."
            )


class BlockBuffers:
    """Two buffers for blocks that are read one after the other: a block's buffer is used again two blocks later.

    Touching memory for the first time costs several times as much as reading into it.
    """

    def __init__(self) -> None:
        self._buffers = [bytearray(), bytearray()]

    def take(self, size: int) -> memoryview:
        """A writable view of that many bytes."""
        buffer = self._buffers.pop(0)
        if len(buffer) < size:
            buffer = bytearray(size)
        self._buffers.append(buffer)
        return memoryview(buffer)[:size]


def read_blocks(store_path: str, staged: StagedFile, buffers: BlockBuffers | None = None) -> Iterator[StagedBlock]:
    """The blocks of a staged file, each in memory of its own, or in ``buffers``.

    ``StagingLost``, ``CorruptStaging``.
    """
    path = _path_of(store_path, staged)
    descriptor = _opened(store_path, staged)
    try:
        at = rows = crc = 0
        while at < staged.size:
            try:
                encoded_head = disk.read_at(descriptor, BLOCK_HEAD_SIZE, at)
                head = decode_block_head(encoded_head)
                size = head.meta_size + head.records_size
                if at + BLOCK_HEAD_SIZE + size > staged.size:
                    raise InvalidValue(f"a block of {size} bytes")
                meta = disk.read_at(descriptor, head.meta_size, at + BLOCK_HEAD_SIZE)
                data = memoryview(bytearray(head.records_size)) if buffers is None else buffers.take(head.records_size)
                if disk.read_into(descriptor, data, at + BLOCK_HEAD_SIZE + head.meta_size) < len(data):
                    raise InvalidValue("a file that ends before its block")
                block = decode_block(head, meta, np.frombuffer(data, np.uint8))
            except OSError as error:
                # Not ``StagingFailed``: the store itself is not affected.
                raise StagingLost(
                    f"Cannot read the staged file {path}: {error.strerror}. {STAGE_AGAIN}", path=path
                ) from error
            except (InvalidValue, ValueError) as error:
                raise CorruptStaging(
                    "Block", path=path, offset=at, expected="what was staged", found=str(error), advice=STAGE_AGAIN
                ) from error
            crc = crc32(encoded_head, crc)
            at += BLOCK_HEAD_SIZE + size
            rows += len(block)
            yield block
        if (rows, crc) != (staged.rows, staged.crc):
            raise CorruptStaging(
                "Blocks",
                path=path,
                offset=0,
                expected=f"{staged.rows} rows with checksum {staged.crc:#010x}",
                found=f"{rows} rows with {crc:#010x}",
                advice=STAGE_AGAIN,
            )
    finally:
        disk.close(descriptor)


def _path_of(store_path: str, staged: StagedFile) -> str:
    _refuse_other_path(staged)
    return os.path.join(store_path, staged.path)


def _refuse_other_path(staged: StagedFile) -> None:
    parts = staged.path.split(os.sep)
    if len(parts) != 4 or parts[0] != STAGING or any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise InvalidValue(f"{staged.path!r} is not the path of a staged file.")


def _opened(store_path: str, staged: StagedFile) -> int:
    """Open a staged file for reading. ``StagingLost``; ``InvalidValue`` for a symbolic link on the path to it."""
    path = _path_of(store_path, staged)
    if not is_own(store_path, staged.path):
        raise InvalidValue(
            f"{path} is, or leads through, a symbolic link; staged files lie in the store. {STAGE_AGAIN}"
        )
    try:
        return disk.open_file(path)
    except OSError as error:
        raise _lost(path, error) from error


def _lost(path: str, error: OSError) -> StagingLost:
    return StagingLost(
        f"The staged file {path} cannot be opened ({error.strerror}): was it staged on another machine, which does not "
        "share this directory, or removed because its batch was committed or given up? Nothing was written.",
        path=path,
    )


def remove_files(store_path: str, files: Iterable[StagedFile]) -> None:
    """Remove these files, and directories that are then empty. Files that do not exist (any more) are skipped."""
    for staged in files:
        path = _path_of(store_path, staged)
        if is_own(store_path, os.path.dirname(staged.path)):
            with contextlib.suppress(OSError):
                disk.unlink(path)
            _remove_empty(store_path, os.path.dirname(staged.path))
            _remove_empty(store_path, os.path.dirname(os.path.dirname(staged.path)))


def remove_batch(store_path: str, batch: BatchId) -> None:
    """Remove the staged files of one version of an application, as far as possible."""
    directory = os.path.join(STAGING, _directory_name(batch.app_id))
    _remove_version(store_path, os.path.join(directory, str(batch.version)))
    _remove_empty(store_path, directory)


def remove_up_to(store_path: str, batch: BatchId) -> None:
    """Remove the staged files of an application's versions up to this one: all are committed or given up."""
    _remove_versions(store_path, os.path.join(STAGING, _directory_name(batch.app_id)), batch.version)


def remove_application(store_path: str, name: str) -> None:
    """Remove the staged files in an application's directory ``name`` of the staging area."""
    _remove_versions(store_path, os.path.join(STAGING, name), None)


def _remove_versions(store_path: str, directory: str, last: int | None) -> None:
    try:
        names = disk.list_names(os.path.join(store_path, directory))
    except (OSError, StoreAccessDenied):
        return
    for name in names:
        if name.isascii() and name.isdigit() and (last is None or int(name) <= last):
            _remove_version(store_path, os.path.join(directory, name))
    _remove_empty(store_path, directory)


def is_own(store_path: str, directory: str) -> bool:
    """Whether a path below the store has no symbolic link in it: else the directory is not touched (invariant 10)."""
    at = store_path
    for part in directory.split(os.sep):
        at = os.path.join(at, part)
        if disk.is_symlink(at):
            return False
    return True


def _remove_version(store_path: str, own_directory: str) -> None:
    if not is_own(store_path, own_directory):
        return
    directory = os.path.join(store_path, own_directory)
    with contextlib.suppress(OSError, StoreAccessDenied):
        for name in disk.list_names(directory):
            disk.unlink(os.path.join(directory, name))
    _remove_empty(store_path, own_directory)


def _remove_empty(store_path: str, own_directory: str) -> None:
    if is_own(store_path, own_directory):
        with contextlib.suppress(OSError):
            disk.remove_directory(os.path.join(store_path, own_directory))


def _directory_name(app_id: str) -> str:
    """The name of an application's directory: its id if that is a plain name, else derived from a hash."""
    if PLAIN_NAME.fullmatch(app_id):
        return app_id
    return "." + hashlib.blake2b(app_id.encode(), digest_size=16).hexdigest()


# Seven days: far longer than the tasks of a batch leave its directory unchanged.
LEFT_OVER_AFTER_SECONDS = 7 * 24 * 3600
# The versions' directories, and the files in them; deeper files were not staged.
_DEPTH = 2


def remove_leftovers(store_path: str, *, now: float) -> None:
    """Remove files of applications that staged nothing in the seven days before ``now`` (seconds since the epoch).

    For the owner of the store. Nothing is raised, and files that cannot be removed stay; nothing is touched through a
    symbolic link (invariant 10). Committing such a batch later raises ``StagingLost`` and writes nothing.
    """
    staging = os.path.join(store_path, STAGING)
    with contextlib.suppress(OSError, CommitLogError):
        if disk.is_symlink(staging):
            return
        for name in disk.list_names(staging):
            _remove_if_left(store_path, name, before=now - LEFT_OVER_AFTER_SECONDS)


def _remove_if_left(store_path: str, name: str, *, before: float) -> None:
    directory = os.path.join(store_path, STAGING, name)
    with contextlib.suppress(OSError, CommitLogError):  # of one application; the others are still checked
        if not disk.is_symlink(directory) and _last_change(directory, _DEPTH) < before:
            remove_application(store_path, name)


def staged_bytes(store_path: str, least_size: int) -> int:
    """The bytes of all staged files, each counted as ``least_size`` at least. Not those removed concurrently."""
    return _size_in(os.path.join(store_path, STAGING), _DEPTH + 1, least_size)


def _size_in(path: str, depth: int, least_size: int) -> int:
    found = 0
    with contextlib.suppress(OSError, StoreAccessDenied):
        if not depth or disk.is_symlink(path) or not disk.is_directory(path):
            return max(disk.size_at(path), least_size)
        for name in disk.list_names(path):
            found += _size_in(os.path.join(path, name), depth - 1, least_size)
    return found


def _last_change(directory: str, depth: int) -> float:
    """When anything down to ``depth`` in it was written last, links not followed; seconds since the epoch."""
    found = disk.modified_at(directory)
    for name in disk.list_names(directory):
        inner = os.path.join(directory, name)
        is_own = depth > 1 and disk.is_directory(inner) and not disk.is_symlink(inner)
        found = max(found, _last_change(inner, depth - 1) if is_own else disk.modified_at(inner))
    return found
