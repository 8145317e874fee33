"""A segment of an archive, made of one log file: its checksums, and the queue units and keys of its records."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from commitlog_store.archive.manifest import HEAD_SIZE
from commitlog_store.archive.unit_objects import QueueUnits
from commitlog_store.batch.frames import FoundFrame, frames_in
from commitlog_store.columnar.dispatch import dispatch_requests, index_entries
from commitlog_store.config import MessageStoreConfig
from commitlog_store.errors import FileChanged
from commitlog_store.files.mapped_file import MappedFile
from commitlog_store.format.arrays import Int32Array, Int64Array
from commitlog_store.format.checksum import crc32
from commitlog_store.log.past_damage import Gap, walk_past_damage
from commitlog_store.log.scan import FileWalk
from commitlog_store.queue.derived_queues import DerivedQueue, QueueBuilder

_PIECE = 4 << 20
# Large enough that each of a thousand queues has several units in a block.
_BLOCK_SIZE = 32 << 20


@dataclass(frozen=True, kw_only=True)
class Sums:
    """Checksums of the first ``size`` bytes of a file; ``prefix_crc32`` is that of its first ``prefix`` bytes."""

    size: int
    crc32: int
    sha256: str
    head_crc32: int
    prefix_crc32: int


@dataclass(frozen=True, kw_only=True)
class Records:
    """What the records of a segment say: the units of their queues, sorted by name, and the last batch's frame.

    ``key_hashes`` are those of their keys, one after the other, and ``key_positions`` the places of the records in the
    file that have them. ``strays`` are whole records without a place in a queue, as their offset or topic is damaged.
    """

    queues: list[QueueUnits]
    key_hashes: Int32Array
    key_positions: Int64Array
    records: int
    strays: int
    first_timestamp_ms: int
    last_timestamp_ms: int
    last_frame: FoundFrame | None
    tail_stop: int
    tail_crc32: int

    @property
    def rows(self) -> int:
        """Units of all queues."""
        return sum(len(queue.units) for queue in self.queues)


class _OneFile:
    """A log of one file, for a walk over it."""

    def __init__(self, file: MappedFile) -> None:
        self._file = file
        self.bases = [file.base]

    def find(self, offset: int, /) -> MappedFile | None:
        return self._file if 0 <= offset - self._file.base < self._file.size else None


def read_pieces(file: MappedFile, size: int) -> Iterator[bytes]:
    """The first ``size`` bytes of a file. ``FileChanged`` when it has fewer."""
    for start in range(0, size, _PIECE):
        piece = file.read(start, min(_PIECE, size - start))
        if len(piece) < min(_PIECE, size - start):
            raise FileChanged(
                f"{file.path} holds {start + len(piece)} bytes, {size} were expected: it was truncated while it was "
                "being archived. Restore the file, and archive the store again.",
                path=file.path,
            )
        yield piece


def sums_of(file: MappedFile, size: int, *, prefix: int = 0, read: Callable[[int], None] | None = None) -> Sums:
    """The checksums of the first ``size`` bytes. ``read`` is called with the length of each piece."""
    crc, prefix_crc, at = 0, 0, 0
    sha256 = hashlib.sha256()
    head = file.read(0, min(HEAD_SIZE, size))
    for piece in read_pieces(file, size):
        crc = crc32(piece, crc)
        sha256.update(piece)
        if at < prefix:
            prefix_crc = crc32(piece[: prefix - at], prefix_crc)
        at += len(piece)
        if read is not None:
            read(len(piece))
    return Sums(size=size, crc32=crc, sha256=sha256.hexdigest(), head_crc32=crc32(head), prefix_crc32=prefix_crc)


def read_records(file: MappedFile, size: int) -> Records:
    """The records of the first ``size`` bytes of a file, past damage.

    Memory is 20 bytes a record, 12 a key, and a block.
    """
    builder, delay_levels_ms = QueueBuilder(), MessageStoreConfig().delay_levels_ms
    records, last_frame = 0, None
    first_ms, last_ms = -1, -1
    end = file.base + size
    tail_stop = file.base
    hashes, positions = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    for part in walk_past_damage(_OneFile(file), file.base, end, check_crc=False, block_size=_BLOCK_SIZE):
        if isinstance(part, Gap):
            builder.add_gap(part.size)
            continue
        requests = dispatch_requests(part, delay_levels_ms)
        builder.add(requests)
        keys = index_entries(part)
        hashes.append(keys.key_hashes)
        positions.append(requests.physical_offsets[keys.rows] - file.base)
        last_frame = [last_frame, *frames_in(part)][-1]
        low, high = int(requests.store_timestamps.min()), int(requests.store_timestamps.max())
        first_ms = low if not records else min(first_ms, low)
        last_ms = max(last_ms, high)
        records += len(part)
        tail_stop = part.physical_offset + part.end
    queues = [_units(queue) for queue in builder.finish(file.path, end)]
    return Records(
        queues=queues,
        key_hashes=np.concatenate(hashes),
        key_positions=np.concatenate(positions),
        records=records,
        strays=sum(stray.records for stray in builder.strays),
        first_timestamp_ms=first_ms,
        last_timestamp_ms=last_ms,
        last_frame=last_frame,
        tail_stop=tail_stop,
        tail_crc32=tail_crc32(file, tail_stop),
    )


class LastOfFile(NamedTuple):
    """The latest store time of records of a file, -1 without any, and the frame of the last batch that they begin."""

    timestamp_ms: int
    frame: FoundFrame | None


def last_of_file(file: MappedFile, start: int, size: int) -> LastOfFile:
    """What the records of the first ``size`` bytes say, from the physical offset ``start`` on, past damage."""
    last_ms, frame = -1, None
    parts = walk_past_damage(_OneFile(file), start, file.base + size, check_crc=False, block_size=_BLOCK_SIZE)
    for part in parts:
        if isinstance(part, Gap):
            continue
        last_ms = max(last_ms, int(part.field("store_timestamp").max()))
        frame = [frame, *frames_in(part)][-1]
    return LastOfFile(last_ms, frame)


def tail_crc32(file: MappedFile, tail_stop: int) -> int:
    """The CRC-32 of the last bytes of a file before a physical offset."""
    start = max(tail_stop - HEAD_SIZE, file.base)
    return crc32(file.read(start - file.base, tail_stop - start))


def _units(queue: DerivedQueue) -> QueueUnits:
    first, stop = queue.bounds()
    units = next(queue.units(first, stop, chunk=stop - first))
    return QueueUnits((queue.topic, queue.queue_id), first, units)


@dataclass(frozen=True, slots=True)
class Written:
    """The written part of a file: where its last record starts, its end, and its last batch's frame."""

    last_record: int
    end: int
    last_frame: FoundFrame | None


def written_records(file: MappedFile, limit: int) -> Written:
    """The good records with which a file begins, before the physical offset ``limit``."""
    last, frame = file.base, None
    walk = FileWalk(file, file.base, limit, check_crc=True)
    for scan in walk:
        last = scan.physical_offset + int(scan.positions[-1])
        frame = [frame, *frames_in(scan)][-1]
    return Written(last, walk.offset, frame)
