"""Uploads: staged files that come in parts, over the network, and are compared with their end marker.

A part names its offset, so it may come twice. A file that lacks a part is never committed: its size is not that of the
``StagedFile`` that the end marker and the commit name.
"""

from __future__ import annotations

import os

from commitlog_store.batch.staging import PLAIN_NAME, STAGE_AGAIN, create_staged, is_own, staged_path
from commitlog_store.batch_id import BatchId, StagedFile
from commitlog_store.columnar.staged_block import BLOCK_HEAD_SIZE, decode_block_head
from commitlog_store.errors import CorruptStaging, InvalidValue, StagingFailed, StagingLost
from commitlog_store.files import disk
from commitlog_store.format.checksum import crc32


def write_part(store_path: str, batch: BatchId, name: str, offset: int, data: bytes | memoryview) -> None:
    """Write a part of the upload ``name`` to its place in the staged file.

    ``StagingLost`` if the file lacks bytes before the part: they were lost, or the file was removed. ``StagingFailed``,
    ``InvalidValue``.
    """
    path = _checked_path(batch, name)
    whole = os.path.join(store_path, path)
    if offset < 0:
        raise InvalidValue(f"A part of an upload is at an offset from 0 on, not at {offset}.")
    try:
        descriptor = _opened(store_path, path, may_create=offset == 0)
        try:
            if (size := disk.size_of(descriptor)) < offset:
                raise StagingLost(
                    f"The staged file {whole} has {size} bytes where the part at {offset} follows: what came before "
                    f"it was lost. {STAGE_AGAIN}",
                    path=whole,
                )
            disk.write_at(descriptor, data, offset)
        finally:
            disk.close(descriptor)
    except FileNotFoundError as error:
        raise StagingLost(
            f"The staged file {whole} does not exist any more: its batch was committed or given up. {STAGE_AGAIN}",
            path=whole,
        ) from error
    except OSError as error:
        raise StagingFailed("stage a batch at", path=whole, cause=error) from error


def finish_upload(store_path: str, batch: BatchId, name: str, rows: int, size: int, crc: int) -> StagedFile:
    """The staged file of an upload that has all its parts, as its end marker says. ``CorruptStaging``, ``StagingLost``.

    Only the heads of its blocks are read: the commit reads the rest and checks it with what they say.
    """
    path = _checked_path(batch, name)
    whole = os.path.join(store_path, path)
    expected = (rows, size, crc)
    try:
        descriptor = _opened(store_path, path, may_create=False)
        try:
            found = _described(descriptor)
        finally:
            disk.close(descriptor)
    except OSError as error:
        raise StagingLost(
            f"Cannot read the staged file {whole}: {error.strerror}. {STAGE_AGAIN}", path=whole
        ) from error
    if found != expected:
        raise CorruptStaging(
            "Upload", path=whole, offset=0, expected=_shown(*expected), found=_shown(*found), advice=STAGE_AGAIN
        )
    return StagedFile(path, rows, size, crc)


def _described(descriptor: int) -> tuple[int, int, int]:
    """Rows, size and checksum of a staged file, by the heads of its blocks, up to the first one that is none."""
    size = disk.size_of(descriptor)
    at = rows = crc = 0
    while at < size:
        encoded = disk.read_at(descriptor, BLOCK_HEAD_SIZE, at)
        try:
            head = decode_block_head(encoded)
        except InvalidValue:
            break
        crc = crc32(encoded, crc)
        rows += head.rows
        at += BLOCK_HEAD_SIZE + head.meta_size + head.records_size
    return rows, size, crc


def _checked_path(batch: BatchId, name: str) -> str:
    if not PLAIN_NAME.fullmatch(name):
        raise InvalidValue(f"An upload is called by letters, digits, '_', '-' and '.', not {name[:100]!r}.")
    return staged_path(batch, name)


def _opened(store_path: str, path: str, *, may_create: bool) -> int:
    if may_create:
        try:
            return create_staged(store_path, path)
        except FileExistsError:
            pass  # the part comes again
    if not is_own(store_path, os.path.dirname(path)):
        raise InvalidValue(f"{path} leads through a symbolic link; staged files lie in the store.")
    return disk.open_for_writing(os.path.join(store_path, path))


def _shown(rows: int, size: int, crc: int) -> str:
    return f"{rows} rows in {size} bytes with checksum {crc:#010x}"
