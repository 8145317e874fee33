"""The file by which readers see that no queue has changed, without asking each: ``<store>/settled``.

36 bytes, big-endian::

    0          4            8             16              24          32
    +----------+------------+-------------+---------------+-----------+----------+
    | MAGIC    | IS SETTLED | TURN        | DISPATCHED TO | INODE     | CRC-32   |
    | "PYST"   | 0 1        |             |               |           | of these |
    +----------+------------+-------------+---------------+-----------+----------+

The owner unsettles the file before it changes a queue's files, and settles it when dispatch has nothing left: all
records before DISPATCHED TO are in their queues then. Each of the two is a TURN. So no queue has changed between two
looks that find the file settled in the same turn.

INODE is the file's own: in a copy, whose queues may come after this file, it says nothing. Nothing is synced, since the
next owner takes another turn before it changes anything. A broker does not know the file: readers also look whether the
log has a record at DISPATCHED TO, and whose mark the checkpoint has (docs/decisions/0031-idle-stores.md).
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
from typing import NamedTuple

from commitlog_store.errors import CommitLogError, StoreIOError
from commitlog_store.files import disk
from commitlog_store.files.mapped_file_writer import is_out_of_space
from commitlog_store.format.checksum import crc32
from commitlog_store.paths import SETTLED

_MAGIC = b"PYST"
_FIELDS = struct.Struct(">4siqqQ")
_CRC = struct.Struct(">I")
_SIZE = _FIELDS.size + _CRC.size


class SettledTurn(NamedTuple):
    """A turn in which no queue changes. ``dispatched_to`` is a physical offset."""

    turn: int
    dispatched_to: int


def settled_turn(store_path: str) -> SettledTurn | None:
    """The turn of a settled file; None if it is not settled, missing, damaged or a copy."""
    try:
        descriptor = disk.open_file(os.path.join(store_path, SETTLED))
        try:
            found = _decode(disk.read_at(descriptor, _SIZE, 0))
            inode = disk.identity(descriptor).inode
        finally:
            disk.close(descriptor)
    except (OSError, CommitLogError):
        return None
    return found[1] if found is not None and found[0] and found[2] == inode else None


def _decode(data: bytes) -> tuple[bool, SettledTurn, int] | None:
    """Whether the file is settled, its turn, and the inode; None for anything else, as for a half written file."""
    if len(data) != _SIZE:
        return None
    magic, is_settled, turn, dispatched_to, inode = _FIELDS.unpack_from(data)
    if magic != _MAGIC or _CRC.unpack_from(data, _FIELDS.size)[0] != crc32(data[: _FIELDS.size]):
        return None
    return bool(is_settled), SettledTurn(turn, dispatched_to), inode


class SettledFile:
    """The file as the store's owner writes it. Not for several threads."""

    def __init__(self, store_path: str) -> None:
        """Take the next turn, unsettled. Without space for the file there is none. ``StoreIOError``."""
        self.path = os.path.join(store_path, SETTLED)
        self._descriptor = -1
        self._is_settled = True
        self._now = SettledTurn(time.time_ns(), 0)
        try:
            if disk.exists(self.path):
                self._descriptor = disk.open_for_writing(self.path)
                found = _decode(disk.read_at(self._descriptor, _SIZE, 0))
                self._now = self._now if found is None else found[1]
            else:
                self._descriptor = disk.create_file(self.path)
            self._inode = disk.identity(self._descriptor).inode
            self.unsettle()
        except OSError as error:
            raise StoreIOError("open", path=self.path, cause=error) from error
        except StoreIOError as error:
            self.close()
            if not is_out_of_space(error):
                raise
            disk.unlink(self.path)

    def unsettle(self) -> None:
        """Before a change. ``StoreIOError``: nothing may be changed then."""
        if self._is_settled and self._descriptor >= 0:
            self._write(SettledTurn(self._now.turn + 1, self._now.dispatched_to), is_settled=False)

    def settle(self, dispatched_to: int) -> None:
        """After all changes. A write that fails leaves a file that says nothing, which harms nothing."""
        if self._descriptor >= 0 and not (self._is_settled and self._now.dispatched_to == dispatched_to):
            with contextlib.suppress(StoreIOError):
                self._write(SettledTurn(self._now.turn + 1, dispatched_to), is_settled=True)

    def _write(self, now: SettledTurn, *, is_settled: bool) -> None:
        packed = _FIELDS.pack(_MAGIC, is_settled, *now, self._inode)
        self._now, self._is_settled = now, True  # should the write fail, the next change writes first
        try:
            disk.write_at(self._descriptor, packed + _CRC.pack(crc32(packed)), 0)
        except OSError as error:
            raise StoreIOError("write", path=self.path, cause=error) from error
        self._is_settled = is_settled

    def close(self) -> None:
        if self._descriptor >= 0:
            disk.close(self._descriptor)
            self._descriptor = -1
