"""Kept pieces: what recovery and repair have cut off a log, each in a directory of its own that reads like a store.

::

    repair/20261122T163000.123Z/kept.json                            what was cut, where and why
                                commitlog/00000000000000000000       zero before the cut, then the log's bytes
                                          00000000000000262144       ...

The files have the names and sizes that they had in the log, so every physical offset keeps its meaning. Queues are
derived from the log when a piece is read. A piece that holds only a batch that was never committed has a name that ends
in ``-uncommitted``; the next one of its kind replaces it, since its writer writes the batch again.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from commitlog_store.errors import CorruptConfig, DiskFull, InvalidValue, ReadFailed, StoreIOError
from commitlog_store.files import disk
from commitlog_store.files.error_paths import failed_reads, failed_writes
from commitlog_store.files.limits import free_bytes
from commitlog_store.files.mapped_file import MappedFile
from commitlog_store.files.space import NO_SPACE
from commitlog_store.files.whole_file import new_file
from commitlog_store.paths import COMMIT_LOG, KEPT, REPAIR

_PIECE_SIZE = 1 << 20
_ZEROS = bytes(_PIECE_SIZE)
_UNCOMMITTED = "-uncommitted"
_LARGEST_REPORT = 1 << 30
_FULL = "What is cut off is kept there, so it needs as much space. Free some. Nothing was cut."
_OUR_NAME = re.compile(rf"\d{{8}}T\d{{6}}\.\d{{3}}Z({_UNCOMMITTED})?")


class LostMessages(NamedTuple):
    """Whole messages of a queue that a cut removes, and the range ``[start, stop)`` of their queue offsets.

    Prepared and rolled-back messages have no place in a queue: if there are only such, the range is empty.
    """

    topic: str
    queue_id: int
    start: int
    stop: int
    messages: int


@dataclass(frozen=True, kw_only=True)
class CutOff:
    """Whole records after the end of a log, which opening cuts off: from ``start``, a physical offset, ``size`` bytes.

    ``messages`` is their number, ``lost`` has them by queue. ``uncommitted`` names the batch, if they are nothing but
    a part of one that was never committed.
    """

    start: int
    size: int
    messages: int
    reason: str
    lost: list[LostMessages] = field(default_factory=list)
    uncommitted: str = ""


@dataclass(frozen=True, kw_only=True)
class KeptPiece(CutOff):
    """A piece of a log that was cut off, and is kept in the directory ``path``, which every reader opens."""

    path: str


class _Report(msgspec.Struct, rename="camel"):
    """The content of ``kept.json``."""

    cut_at: int
    size: int
    messages: int
    reason: str
    uncommitted: str
    queues: list[dict[str, Any]]


def kept_pieces(store_path: str | os.PathLike[str]) -> list[KeptPiece]:
    """The kept pieces of a store, oldest first. Changes nothing. ``CorruptConfig``, ``ReadFailed``."""
    parent = os.path.join(os.path.abspath(os.fspath(store_path)), REPAIR)
    with failed_reads(parent, "list"):
        names = sorted(_names(parent))
    paths = [os.path.join(parent, name) for name in names if _OUR_NAME.fullmatch(name)]
    # What a link leads to is not the store's (invariant 10).
    return [read_kept_piece(path) for path in paths if is_kept_piece(path) and not disk.is_symlink(path)]


def is_kept_piece(path: str) -> bool:
    """Whether a directory is a kept piece of a log."""
    return disk.exists(os.path.join(path, KEPT))


def read_kept_piece(path: str) -> KeptPiece:
    """The report of the piece in a directory. ``CorruptConfig``, ``ReadFailed``."""
    file = os.path.join(path, KEPT)
    try:
        report = msgspec.json.decode(disk.read_file(file, _LARGEST_REPORT), type=_Report)
        lost = [LostMessages(*(queue[name] for name in _QUEUE_FIELDS)) for queue in report.queues]
    except OSError as error:
        raise ReadFailed("read", path=file, cause=error) from error
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError) as error:
        raise CorruptConfig(
            "Report of a kept piece", path=file, offset=0, expected="the JSON that a cut writes", found=str(error)
        ) from error
    return KeptPiece(
        path=path,
        start=report.cut_at,
        size=report.size,
        messages=report.messages,
        reason=report.reason,
        lost=lost,
        uncommitted=report.uncommitted,
    )


_QUEUE_FIELDS = ("topic", "queueId", "start", "stop", "messages")


def refuse_keeping(store_path: str, files: Sequence[MappedFile], cut: CutOff) -> None:
    """Refuse what ``keep_piece`` cannot keep, as far as a look can tell, and change nothing.

    ``InvalidValue`` where no directory of pieces can be, ``DiskFull``, ``OSError``.
    """
    parent = os.path.join(store_path, REPAIR)
    if disk.is_symlink(parent):
        raise InvalidValue(f"{parent} is a symbolic link; a store is written only in its directory. Remove it.")
    if disk.exists(parent) and not disk.is_directory(parent):
        raise InvalidValue(f"{parent} is not a directory, and what is cut off is kept in one of that name. Move it.")
    free = free_bytes(store_path)
    if sum(file.base + file.capacity - max(file.base, cut.start) for file in _files_after(files, cut)) <= free:
        return
    # Most of a log's last file is zeros, which take no space.
    size = sum(len(data) for file in _files_after(files, cut) for _, data in _pieces(file, cut.start))
    if size > free:
        cause = OSError(errno.ENOSPC, f"{size} bytes are needed, and fewer are free")
        raise DiskFull("write", path=parent, cause=cause, advice=_FULL)


def keep_piece(store_path: str, files: Sequence[MappedFile], cut: CutOff) -> KeptPiece:
    """Copy a log's bytes from the cut on, and then write the report beside them. Returns the piece with its path.

    It is whole and on the device before this returns; without its report it does not count as a piece. ``DiskFull``,
    ``InvalidValue``, ``StoreIOError``; then nothing is left of it.
    """
    parent = os.path.join(store_path, REPAIR)
    made = os.path.join(parent, _new_name(parent) + (_UNCOMMITTED if cut.uncommitted else ""))
    log = os.path.join(made, COMMIT_LOG)
    try:
        if disk.is_directory(parent) and not disk.is_symlink(parent):
            _clear(parent, uncommitted=bool(cut.uncommitted))
        refuse_keeping(store_path, files, cut)
        for path in (parent, made, log):
            if not disk.exists(path):
                disk.make_directory(path)
        for file in _files_after(files, cut):
            _copy(file, log, cut.start)
        for path in (log, made, parent, store_path):
            disk.sync_directory(path)
        disk.close(new_file(os.path.join(made, KEPT), lambda descriptor: _write_report(descriptor, cut)))
    except OSError as error:
        _remove(made)
        if error.errno in NO_SPACE:
            raise DiskFull("write", path=made, cause=error, advice=_FULL) from error
        raise StoreIOError("write", path=made, cause=error, advice="Nothing was cut.") from error
    return KeptPiece(path=made, **vars(cut))


def drop_kept(store_path: str | os.PathLike[str]) -> list[KeptPiece]:
    """Remove every kept piece of a store. Returns the removed ones.

    Takes no lock: no owner reads or changes a piece that is complete. ``CorruptConfig``, ``StoreIOError``.
    """
    directory = os.path.abspath(os.fspath(store_path))
    found = kept_pieces(directory)
    parent = os.path.join(directory, REPAIR)
    with failed_writes(parent, "remove a kept piece of"):
        for piece in found:
            _remove_tree(piece.path)
        if found:
            disk.sync_directory(parent)
    return found


def _new_name(parent: str) -> str:
    now = time.time_ns() // 1_000_000
    taken = {name.removesuffix(_UNCOMMITTED) for name in _names(parent)}
    while (name := time.strftime("%Y%m%dT%H%M%S", time.gmtime(now // 1000)) + f".{now % 1000:03d}Z") in taken:
        now += 1
    return name


def _names(parent: str) -> list[str]:
    return disk.list_names(parent) if disk.is_directory(parent) and not disk.is_symlink(parent) else []


def _clear(parent: str, *, uncommitted: bool) -> None:
    """Remove copies that a crash has left incomplete, and the last uncommitted batch if another one is to be kept."""
    for name in _names(parent):
        path = os.path.join(parent, name)
        incomplete = _OUR_NAME.fullmatch(name) is not None and not is_kept_piece(path)
        if incomplete or (uncommitted and name.endswith(_UNCOMMITTED)):
            _remove_tree(path)


def _write_report(descriptor: int, cut: CutOff) -> None:
    report = _Report(
        cut_at=cut.start,
        size=cut.size,
        messages=cut.messages,
        reason=cut.reason,
        uncommitted=cut.uncommitted,
        queues=[dict(zip(_QUEUE_FIELDS, lost, strict=True)) for lost in cut.lost],
    )
    disk.write_at(descriptor, msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n", 0)


def _files_after(files: Sequence[MappedFile], cut: CutOff) -> list[MappedFile]:
    return [file for file in files if file.base + file.capacity > cut.start]


def _pieces(file: MappedFile, at: int) -> Iterator[tuple[int, bytes]]:
    """The bytes of a log file from a physical offset on, without those that are zero, and their positions."""
    source = disk.open_file(file.path)
    try:
        for first, last in disk.data_extents(source, max(at - file.base, 0), file.capacity):
            for place in range(first, last, _PIECE_SIZE):
                data = disk.read_at(source, min(_PIECE_SIZE, last - place), place)
                if not _ZEROS.startswith(data):
                    yield place, data
    finally:
        disk.close(source)


def _copy(file: MappedFile, directory: str, at: int) -> None:
    """Copy the bytes of a log file from a physical offset on, at the same positions; zeros stay holes."""
    target = disk.create_file(os.path.join(directory, os.path.basename(file.path)))
    try:
        disk.truncate(target, file.capacity)
        for place, data in _pieces(file, at):
            disk.write_at(target, data, place)
        disk.sync(target)
    finally:
        disk.close(target)


def _remove(made: str) -> None:
    """Remove an incomplete copy, as far as possible: the next cut removes what is left."""
    try:
        if disk.exists(made):
            _remove_tree(made)
    except OSError:
        pass


def _remove_tree(path: str) -> None:
    """Remove a piece: its report first, so that what a crash leaves of it does not count as one."""
    for name in sorted(disk.list_names(path), key=lambda name: name != KEPT):
        inner = os.path.join(path, name)
        if disk.is_directory(inner) and not disk.is_symlink(inner):
            _remove_tree(inner)
        else:
            disk.unlink(inner)
    disk.remove_directory(path)
