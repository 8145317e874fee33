"""Snapshot isolation of batches: the gate hides a batch from readers while it is being dispatched to its queues.

``<store>/gate`` holds 36 bytes, big-endian::

    0          4          8             16            24            32
    +----------+----------+-------------+-------------+-------------+----------+
    | MAGIC    | IS OPEN  | TURN        | START       | SHOWN TO    | CRC-32   |
    | "PYGT"   | 0 1      |             |             |             | of these |
    +----------+----------+-------------+-------------+-------------+----------+

TURN counts how often it was closed or opened. The owner closes the gate at the first byte of a frame (START) before
the first of its units is written, and opens it after the last; SHOWN TO is then the frame's end. If the next frame
follows at once, the gate moves to that frame, which counts as opened and closed. A reader looks at the gate before and
after it asks queues for their ends (``consistent_reads``). The two looks say which frames to leave out, so that the
ends are those of one moment.

The gate is valid beside a running owner and after a killed one, since the kernel keeps written bytes. After a crash of
the machine nothing depends on it: recovery opens it.
"""

from __future__ import annotations

import contextlib
import os
import struct
import threading
from typing import NamedTuple

from commitlog_store.errors import StoreIOError
from commitlog_store.files import disk
from commitlog_store.files.error_paths import failed_writes
from commitlog_store.format.checksum import crc32
from commitlog_store.java_numbers import MAX_LONG
from commitlog_store.paths import GATE

_MAGIC = b"PYGT"
_FIELDS = struct.Struct(">4siqqq")
_CRC = struct.Struct(">I")
_SIZE = _FIELDS.size + _CRC.size
# How often a reader looks at a gate that is being written.
_LOOKS = 1000


class GateState(NamedTuple):
    """The contents of the gate. ``start`` and ``shown_to`` are physical offsets of the last frame that it moved for."""

    turn: int
    is_open: bool
    start: int
    shown_to: int

    def shows(self, physical_offset: int) -> bool:
        """Whether readers see a message that begins there."""
        return self.is_open or physical_offset < self.start


_NEVER_CLOSED = GateState(0, True, 0, 0)


def hidden_from(before: GateState, after: GateState) -> int | None:
    """The physical offset from which on messages seen between two looks are left out; None when it is not known.

    Everything before the first frame that was hidden at any time since the first look is complete. None means that
    several frames were hidden since, one after the other.
    """
    if not before.is_open:
        return before.start
    if after.turn == before.turn:
        return NOTHING_HIDDEN
    return after.start if after.turn - before.turn <= _ONE_FRAME else None


NOTHING_HIDDEN = MAX_LONG
# Closing and opening.
_ONE_FRAME = 2


def _encode(state: GateState) -> bytes:
    packed = _FIELDS.pack(_MAGIC, state.is_open, state.turn, state.start, state.shown_to)
    return packed + _CRC.pack(crc32(packed))


def _decode(data: bytes) -> GateState | None:
    if len(data) != _SIZE:
        return None
    magic, is_open, turn, start, shown_to = _FIELDS.unpack_from(data)
    if magic != _MAGIC or _CRC.unpack_from(data, _FIELDS.size)[0] != crc32(data[: _FIELDS.size]):
        return None
    return GateState(turn, bool(is_open), start, shown_to)


class BatchGate:
    """The gate as the store's owner writes it. The file is created when the gate is closed for the first time."""

    def __init__(self, store_path: str) -> None:
        """The gate of a killed owner is taken over as it is. ``StoreIOError``."""
        self.path = os.path.join(store_path, GATE)
        self._descriptor = -1
        self._lock = threading.Lock()
        self._unsynced = True
        self.state = _NEVER_CLOSED
        with failed_writes(self.path, "open"):
            if disk.exists(self.path):
                self._descriptor = disk.open_for_writing(self.path)
                self.state = _decode(disk.read_at(self._descriptor, _SIZE, 0)) or _NEVER_CLOSED

    def close_from(self, start: int) -> None:
        """Hide messages that begin at or after the offset; a closed gate stays where it is. ``StoreIOError``."""
        with self._lock:
            if self.state.is_open:
                self._write(GateState(self.state.turn + 1, False, start, self.state.shown_to))

    def move_to(self, start: int) -> None:
        """Hide only messages that begin at or after the offset, if the gate is closed before it. ``StoreIOError``."""
        with self._lock:
            if not self.state.is_open and self.state.start < start:
                self._write(GateState(self.state.turn + _ONE_FRAME, False, start, self.state.shown_to))

    def open(self, shown_to: int) -> None:
        """Hide nothing any more: frames are dispatched up to ``shown_to``. ``StoreIOError``."""
        with self._lock:
            if not self.state.is_open:
                self._write(GateState(self.state.turn + 1, True, self.state.start, shown_to))

    def settle(self, log_end: int) -> None:
        """After recovery: hide nothing, and count no frame as shown that is yet to be written. ``StoreIOError``.

        On the device too: the next recovery would show frames that took the place of lost ones as it dispatches them.
        """
        self.open(log_end)
        with self._lock:
            is_ahead = self.state.shown_to > log_end  # the log has lost its end since
            if is_ahead:
                self._write(self.state._replace(shown_to=log_end))
        if is_ahead:
            self.sync()

    def _write(self, state: GateState) -> None:
        with failed_writes(self.path):
            if self._descriptor < 0:
                self._descriptor = disk.create_file(self.path)
            disk.write_at(self._descriptor, _encode(state), 0)
        self.state = state
        self._unsynced = True

    def sync(self) -> None:
        """Bring the gate to the device: a crash of the machine would leave an old one. ``StoreIOError``."""
        with self._lock:
            if self._descriptor < 0 or not self._unsynced:
                return
            with failed_writes(self.path, "sync"):
                disk.sync(self._descriptor)
            self._unsynced = False

    def put_back(self, state: GateState) -> None:
        """Restore the gate as it was found: opening the store has failed. A write error is ignored."""
        with self._lock, contextlib.suppress(StoreIOError):
            if self.state != state:
                self._write(GateState(self.state.turn + 1, state.is_open, state.start, state.shown_to))

    def release(self) -> None:
        """Close the file, as it is."""
        with self._lock:
            if self._descriptor >= 0:
                disk.close(self._descriptor)
                self._descriptor = -1


class GateReader:
    """The gate as readers read it."""

    def __init__(self, store_path: str) -> None:
        self._path = os.path.join(store_path, GATE)
        self._descriptor = -1

    def look(self) -> GateState:
        """The gate as it is now. Without a gate, or with a file that is not a gate, nothing is hidden."""
        if self._descriptor < 0:
            if not disk.exists(self._path):
                return _NEVER_CLOSED
            try:
                self._descriptor = disk.open_file(self._path)
            except OSError:
                return _NEVER_CLOSED
        for _ in range(_LOOKS):
            # A look may fall between two bytes of a write.
            state = _decode(disk.read_at(self._descriptor, _SIZE, 0))
            if state is not None:
                return state
        return _NEVER_CLOSED

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            disk.close(descriptor)

    def __del__(self) -> None:
        self.close()  # of a reader that was dropped
