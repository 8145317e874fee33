"""A disk that remembers the order of its writes: ``python -m tests.power_cut.traced_device MOUNT_POINT MIB``.

A FUSE file system with four files, the first and the third for one loop device each:

- ``disk``: a device. Every write and every flush of it goes to the trace.
- ``notes``: lines that are written to it go to the trace too, between the writes before and after them. Read, it is
  the trace's notes as JSON: ``[[position, line], ...]``; a position is a number of entries.
- ``cut``: after ``{"point": p, "seed": s}`` was written to it, it is the disk as a power cut at position *p* may have
  left it: all that was flushed before, and of what was written since whichever sectors of 512 bytes the seed chooses,
  in whichever order. It takes writes, which are forgotten with the next cut. Read ``images`` to see how it was made.
- ``bad``: after ``[start, stop]`` was written to it, reads of these bytes of the disk fail, as those of bad sectors.

It runs in a process of its own: a process that waits for its own file system blocks indefinitely.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import random
import stat
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from tests.power_cut.fuse_protocol import (
    MAX_WRITE,
    Opcode,
    Request,
    attributes,
    entry,
    init_answer,
    opened,
    parse_request,
    reply,
    written,
)

SECTOR: Final = 512
_ROOT = 1
_NODES = {b"disk": 2, b"notes": 3, b"cut": 4, b"bad": 5}
_DISK, _NOTES, _CUT, _BAD = 2, 3, 4, 5
_READ = struct.Struct("<QQI")  # handle, offset, size


class _Write(NamedTuple):
    offset: int
    data: bytes


class Trace:
    """The entries of a device: writes, flushes (None) and notes (str)."""

    def __init__(self, size: int) -> None:
        self.disk = bytearray(size)
        self.entries: list[_Write | str | None] = []
        # What was flushed before a position, for the cut that was made last: cuts are made in ascending order.
        self._flushed = bytearray(size)
        self._flushed_to = 0

    def write(self, offset: int, data: bytes) -> None:
        self.disk[offset : offset + len(data)] = data
        self.entries.append(_Write(offset, data))

    def flush(self) -> None:
        self.entries.append(None)

    def note(self, line: str) -> None:
        self.entries.append(line)

    def notes(self) -> list[tuple[int, str]]:
        return [(place, one) for place, one in enumerate(self.entries, 1) if isinstance(one, str)]

    def cut(self, point: int, seed: str) -> bytearray:
        """What a power cut leaves after so many entries."""
        image = self._flushed_before(point)
        since = [one for one in self.entries[self._flushed_to : point] if isinstance(one, _Write)]
        _lose_some(image, since, random.Random(seed))
        return image

    def _flushed_before(self, point: int) -> bytearray:
        flush = next((at for at in range(point - 1, -1, -1) if self.entries[at] is None), 0)
        if flush < self._flushed_to:
            self._flushed, self._flushed_to = bytearray(len(self._flushed)), 0
        for one in self.entries[self._flushed_to : flush]:
            if isinstance(one, _Write):
                self._flushed[one.offset : one.offset + len(one.data)] = one.data
        self._flushed_to = flush
        return bytearray(self._flushed)


def _lose_some(image: bytearray, since: list[_Write], chance: random.Random) -> None:
    """Put some sectors of writes that were not flushed into an image."""
    sectors = [
        (write.offset + at, write.data[at : at + SECTOR]) for write in since for at in range(0, len(write.data), SECTOR)
    ]
    if not sectors:
        return
    for place, data in _KEPT[chance.choice(list(_KEPT))](sectors, chance):
        image[place : place + len(data)] = data


_Sectors = list[tuple[int, bytes]]


def _torn(sectors: _Sectors, chance: random.Random) -> _Sectors:
    """The first ones, in their order: a device that is slow."""
    return sectors[: chance.randrange(len(sectors) + 1)]


def _some(sectors: _Sectors, chance: random.Random) -> _Sectors:
    share = chance.choice([0.03, 0.3, 0.5, 0.9, 0.99])
    return [one for one in sectors if chance.random() < share]


def _newest(sectors: _Sectors, chance: random.Random) -> _Sectors:
    """The last ones only: a device that has reordered them."""
    return sectors[chance.randrange(len(sectors)) :]


def _but_one(sectors: _Sectors, chance: random.Random) -> _Sectors:
    lost = sectors[chance.randrange(len(sectors))][0]
    return [one for one in sectors if one[0] != lost]


def _but_a_run(sectors: _Sectors, chance: random.Random) -> _Sectors:
    """All but a few that follow one another on the device."""
    first = sectors[chance.randrange(len(sectors))][0]
    lost = range(first, first + SECTOR * chance.choice([2, 8, 16, 64]))
    return [one for one in sectors if one[0] not in lost]


_KEPT: dict[str, Callable[[_Sectors, random.Random], _Sectors]] = {
    "none": lambda sectors, _: sectors[:0],
    "all": lambda sectors, _: sectors,
    "torn": _torn,
    "some": _some,
    "some others": _some,
    "newest": _newest,
    "all but one": _but_one,
    "all but a run": _but_a_run,
}


class CutImage(NamedTuple):
    """The order for an image, as it is written to ``cut``."""

    point: int
    seed: str

    def encode(self) -> bytes:
        return json.dumps(self._asdict()).encode()


class _Server:
    """Answers the kernel's requests, one after the other."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self._trace = Trace(size)
        self._image = bytearray(size)
        self._bad = (0, 0)

    def run(self) -> None:
        while True:
            try:
                data = os.read(self._descriptor, MAX_WRITE + 4096)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.EAGAIN, errno.ENOENT):
                    continue
                return  # ENODEV: it was unmounted
            request = parse_request(data)
            answer = self._answer(request)
            if answer is not None:
                with contextlib.suppress(FileNotFoundError):  # the request was interrupted
                    os.write(self._descriptor, answer)

    def _answer(self, request: Request) -> bytes | None:
        if request.opcode in (Opcode.FORGET, Opcode.BATCH_FORGET):
            return None
        try:
            return reply(request.unique, self._body(request))
        except OSError as error:
            return reply(request.unique, error=error.errno or errno.EIO)

    def _body(self, request: Request) -> bytes:
        match request.opcode:
            case Opcode.INIT:
                return init_answer()
            case Opcode.LOOKUP:
                node = _NODES.get(request.body.rstrip(b"\0"))
                if node is None:
                    raise OSError(errno.ENOENT, "no such file")
                return entry(node, self._size(node), self._mode(node))
            case Opcode.GETATTR | Opcode.SETATTR:
                return attributes(request.node, self._size(request.node), self._mode(request.node))
            case Opcode.OPEN:
                return opened()
            case Opcode.READ:
                _, offset, size = _READ.unpack_from(request.body)
                if request.node == _DISK and offset < self._bad[1] and self._bad[0] < offset + size:
                    raise OSError(errno.EIO, "a bad sector")
                return bytes(memoryview(self._content(request.node))[offset : offset + size])
            case Opcode.WRITE:
                _, offset, size = _READ.unpack_from(request.body)
                self._write(request.node, offset, request.body[40 : 40 + size])
                return written(size)
            case Opcode.FSYNC if request.node == _DISK:
                self._trace.flush()
                return b""
            case Opcode.FALLOCATE:
                raise OSError(errno.EOPNOTSUPP, "the kernel writes zeros instead")
            case Opcode.FSYNC | Opcode.FLUSH | Opcode.RELEASE | Opcode.DESTROY:
                return b""
        raise OSError(errno.ENOSYS, "not implemented")

    def _write(self, node: int, offset: int, data: bytes) -> None:
        if node == _DISK:
            self._trace.write(offset, data)
        elif node == _NOTES:
            self._trace.note(data.decode())
        elif node == _BAD:
            start, stop = json.loads(data)
            self._bad = (start, stop)
        elif data.startswith(b"{") and offset == 0:
            order = CutImage(**json.loads(data))
            self._image = self._trace.cut(order.point, order.seed)
        else:
            self._image[offset : offset + len(data)] = data

    def _content(self, node: int) -> bytes | bytearray:
        if node == _NOTES:
            return json.dumps(self._trace.notes()).encode()
        return self._trace.disk if node == _DISK else self._image

    def _size(self, node: int) -> int:
        return 0 if node in (_ROOT, _NOTES, _BAD) else len(self._image)

    @staticmethod
    def _mode(node: int) -> int:
        return stat.S_IFDIR | 0o755 if node == _ROOT else stat.S_IFREG | 0o644


@contextlib.contextmanager
def _mounted(path: str) -> Iterator[int]:
    """The descriptor to serve a file system at ``path`` with. ``OSError``."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open("/dev/fuse", os.O_RDWR)
    try:
        options = f"fd={descriptor},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
        if libc.mount(b"traced", path.encode(), b"fuse", 0, options):
            raise OSError(ctypes.get_errno(), "mount failed", path)
        yield descriptor
    finally:
        os.close(descriptor)


def main(path: str, mebibytes: int) -> None:
    """Serve until the file system is unmounted."""
    with _mounted(path) as descriptor:
        print("ready", flush=True)
        _Server(descriptor, mebibytes << 20).run()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
