"""A disk that remembers in which order it was written, and can be cut off at any point.

The functions of ``commitlog_store.files.disk`` that change something do the real thing and note it down, one at a time,
so that there is one order of all operations. ``CrashImages`` then plays the notes again and keeps apart what is on the
device from what is not: docs/durability.md, "What is assumed", is the model.

- Of what was written to a file since its last sync, each sector of 512 bytes is as it was after any of these writes, or
  before them. The file's size likewise.
- Of what happened to a directory's names since it was last synced, any part happened. A file that has no name is gone.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from commitlog_store.files import disk

SECTOR_SIZE = 512

_CHANGES = (
    *("create_file", "open_for_writing", "allocate", "write_at", "write_mapped", "store_mapped", "sync", "truncate"),
    "punch_hole",
    *("rename", "unlink", "make_directory", "remove_directory", "sync_directory", "create_unnamed_file", "give_name"),
)


@contextlib.contextmanager
def log_is_not_mapped() -> Iterator[None]:
    """Let no file of the log be mapped for writing, as without memory for it: each record goes there by a write.

    What is stored through a mapping cannot fail, only its sync can.
    """
    real = disk.map_for_writing

    def call(descriptor: int, size: int) -> mmap.mmap:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if os.path.basename(os.path.dirname(path)) == "commitlog":
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM), path)
        return real(descriptor, size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "map_for_writing", call)
        yield


class Operation(NamedTuple):
    """One change. ``file`` is the number of a file, which stays the same when it is renamed."""

    kind: str
    file: int = -1
    path: str = ""
    target: str = ""
    position: int = 0
    data: bytes = b""


class RecordingDisk:
    """Everything that happens to the files below ``root``, in order, in ``operations``.

    What is below ``root`` at first counts as being on the device.
    """

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.operations: list[Operation] = []
        self._lock = threading.RLock()
        self._files: dict[str, int] = {}
        self._open: dict[int, int] = {}
        self.initial_files: dict[str, bytes] = {}
        self.initial_directories: list[str] = []
        for parent, _, names in os.walk(root):
            self.initial_directories.append(parent)
            for name in names:
                path = os.path.join(parent, name)
                self._files[path] = len(self._files)
                self.initial_files[path] = Path(path).read_bytes()
        self._next = len(self._files)

    @property
    def now(self) -> int:
        """How many operations there were."""
        with self._lock:
            return len(self.operations)

    @contextlib.contextmanager
    def recording(self) -> Iterator[RecordingDisk]:
        """Record what happens concurrently."""
        with pytest.MonkeyPatch.context() as patch:
            for name in _CHANGES:
                patch.setattr(disk, name, self._noting(getattr(disk, name), getattr(self, f"_{name}")))
            yield self

    def _noting(self, function: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            with self._lock:
                result = function(*arguments, **named)
                note(result, *arguments, **named)
                return result

        return call

    def _note(self, operation: Operation) -> None:
        self.operations.append(operation)

    def _create_file(self, descriptor: int, path: str) -> None:
        self._create_unnamed_file(descriptor, os.path.dirname(path))
        self._give_name(None, descriptor, path)

    def _create_unnamed_file(self, descriptor: int, directory: str) -> None:
        del directory
        self._open[descriptor] = self._next
        self._next += 1
        self._note(Operation("make", self._open[descriptor]))

    def _give_name(self, _: None, descriptor: int, path: str) -> None:
        self._files[path] = self._open[descriptor]
        self._note(Operation("create", self._files[path], path))

    def _open_for_writing(self, descriptor: int, path: str) -> None:
        self._open[descriptor] = self._files[path]

    def _allocate(self, _: None, descriptor: int, offset: int, length: int) -> None:
        self._note(Operation("grow", self._open[descriptor], position=offset + length))

    def _punch_hole(self, _: None, descriptor: int, offset: int, length: int) -> None:
        self._note(Operation("write", self._open[descriptor], position=offset, data=bytes(length)))

    def _write_at(self, _: None, descriptor: int, data: Any, offset: int) -> None:
        self._note(Operation("write", self._open[descriptor], position=offset, data=bytes(memoryview(data).cast("B"))))

    def _write_mapped(self, _: None, mapping: Any, data: Any, offset: int, *, descriptor: int) -> None:
        self._write_at(None, descriptor, data, offset)

    def _store_mapped(self, _: None, target: Any, indexes: Any, values: Any, *, descriptor: int, offset: int) -> None:
        size = target.dtype.itemsize
        for index in np.unique(indexes).tolist():
            place = offset + index * size
            # A slice, since a single item would come in the machine's own byte order.
            data = target[index : index + 1].tobytes()
            self._note(Operation("write", self._open[descriptor], position=place, data=data))

    def _sync(self, _: None, descriptor: int) -> None:
        self._note(Operation("sync", self._open[descriptor]))

    def sync_failed(self, descriptor: int) -> None:
        """Note that a sync was asked for and failed."""
        with self._lock:
            self._note(Operation("lose", self._open[descriptor]))

    def _truncate(self, _: None, descriptor: int, size: int) -> None:
        self._note(Operation("resize", self._open[descriptor], position=size))

    def _rename(self, _: None, source: str, target: str) -> None:
        self._files[target] = self._files.pop(source)
        self._note(Operation("rename", self._files[target], source, target))

    def _unlink(self, _: None, path: str) -> None:
        self._note(Operation("unlink", self._files.pop(path), path))

    def _make_directory(self, _: None, path: str) -> None:
        self._note(Operation("mkdir", path=path))

    def _remove_directory(self, _: None, path: str) -> None:
        self._note(Operation("rmdir", path=path))

    def _sync_directory(self, _: None, path: str) -> None:
        self._note(Operation("syncdir", path=path))


@dataclass
class _File:
    """A file's bytes as the kernel has them, as the device has them, and what may be there of the way between."""

    current: bytearray
    durable: bytes
    sizes: list[int] = field(default_factory=list)
    sectors: dict[int, list[bytes]] = field(default_factory=dict)

    def write(self, position: int, data: bytes) -> None:
        end = position + len(data)
        if end > len(self.current):
            self.resize(end)
        self.current[position:end] = data
        self._keep(position, end)

    def resize(self, size: int) -> None:
        old = len(self.current)
        if size < old:
            del self.current[size:]
        else:
            self.current.extend(bytes(size - old))
        self.sizes.append(size)
        if size < old:
            self._keep(size, old)  # what is cut off reads as zero, should the file grow again

    def _keep(self, start: int, end: int) -> None:
        for sector in range(start // SECTOR_SIZE, -(-end // SECTOR_SIZE)):
            at = sector * SECTOR_SIZE
            data = bytes(self.current[at : at + SECTOR_SIZE]).ljust(SECTOR_SIZE, b"\0")
            self.sectors.setdefault(sector, []).append(data)

    def sync(self) -> None:
        durable = bytearray(self.durable)
        if self.sizes:
            del durable[min(self.sizes) :]
            durable.extend(bytes(len(self.current) - len(durable)))
        for sector, versions in self.sectors.items():
            at = sector * SECTOR_SIZE
            durable[at : at + SECTOR_SIZE] = versions[-1][: len(durable) - at]
        self.durable = bytes(durable)
        self.lose()

    def lose(self) -> None:
        """A sync failed: the kernel takes all for clean, and no later sync brings it to the device."""
        self.sizes.clear()
        self.sectors.clear()

    def after_crash(self, keep: Callable[[], bool], chance: random.Random) -> bytes:
        size = _one_of([len(self.durable), *self.sizes], keep, chance)
        data = bytearray(self.durable.ljust(max([size, *self.sizes]), b"\0"))
        for sector, versions in self.sectors.items():
            at = sector * SECTOR_SIZE
            old = bytes(data[at : at + SECTOR_SIZE])
            data[at : at + SECTOR_SIZE] = _one_of([old, *versions], keep, chance)[: len(data) - at]
        return bytes(data[:size])


def _one_of(versions: Sequence[Any], keep: Callable[[], bool], chance: random.Random) -> Any:
    """The last version if what was not synced is kept; else the first, or sometimes one between them."""
    if len(versions) == 1 or keep():
        return versions[-1]
    return versions[0] if len(versions) == 2 or chance.random() < 0.5 else chance.choice(versions[:-1])


class SyncedOnly(random.Random):
    """The chance by which a crash leaves nothing that was not synced, for ``CrashImages.write``."""

    def random(self) -> float:
        return 0.0

    def choice(self, seq: Any) -> Any:
        return seq[0]


class CrashImages:
    """Plays a recording up to any point, forwards only, and writes down what a crash there may leave."""

    def __init__(self, recorded: RecordingDisk) -> None:
        self._root = recorded.root
        self._operations = recorded.operations
        self._files: dict[int, _File] = {}
        self._names: dict[str, int] = {}
        # Directories on the device, and for each what happened to the names in it since it was synced.
        self._directories = set(recorded.initial_directories)
        self._waiting: dict[str, list[Operation]] = {}
        for number, (path, data) in enumerate(recorded.initial_files.items()):
            self._files[number] = _File(bytearray(data), data)
            self._names[path] = number
        self.at = 0

    def advance(self, point: int) -> None:
        """Let everything happen up to a point of the recording."""
        while self.at < point:
            self._apply(self._operations[self.at])
            self.at += 1

    def _apply(self, operation: Operation) -> None:
        match operation.kind:
            case "write":
                self._files[operation.file].write(operation.position, operation.data)
            case "resize":
                self._files[operation.file].resize(operation.position)
            case "grow":
                file = self._files[operation.file]
                file.resize(max(operation.position, len(file.current)))
            case "sync":
                self._files[operation.file].sync()
            case "lose":
                self._files[operation.file].lose()
            case "syncdir":
                for waiting in self._waiting.pop(operation.path, []):
                    _happen(waiting, self._names, self._directories)
            case "make":
                self._files[operation.file] = _File(bytearray(), b"")
            case _:
                self._waiting.setdefault(os.path.dirname(operation.path), []).append(operation)

    def write(self, directory: Path, chance: random.Random) -> None:
        """Write what a crash now may leave into ``directory``, which is created from scratch."""
        # Seldom everything, seldom nothing: and any share of it between.
        share = chance.choice((0.0, 0.1, 0.5, 0.9, 1.0))

        def keep() -> bool:
            return chance.random() < share

        names, directories = dict(self._names), set(self._directories)
        for waiting in self._waiting.values():
            for operation in waiting:
                if keep():
                    _happen(operation, names, directories)
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        there = {self._root}
        for path in sorted(directories, key=len):
            if path != self._root and os.path.dirname(path) in there:
                there.add(path)
                (directory / os.path.relpath(path, self._root)).mkdir()
        for path, number in names.items():
            if os.path.dirname(path) in there:
                target = directory / os.path.relpath(path, self._root)
                target.write_bytes(self._files[number].after_crash(keep, chance))


def _happen(operation: Operation, names: dict[str, int], directories: set[str]) -> None:
    match operation.kind:
        case "create":
            names[operation.path] = operation.file
        case "rename":
            names.pop(operation.path, None)
            names[operation.target] = operation.file
        case "unlink":
            if names.get(operation.path) == operation.file:
                del names[operation.path]
        case "mkdir":
            directories.add(operation.path)
        case "rmdir":
            directories.discard(operation.path)
