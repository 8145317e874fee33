"""Manifest of an archive: one generation of it, as JSON; and the identity that no archive is without.

``archive.json``, created before anything is uploaded, and never changed::

    {"format": "commitlog-archive", "version": 1, "archive_id": "<32 hex>", "created_ms": 1732000000000,
     "file_size": 1073741824, "start": 0, "head_size": 4096, "head_crc32": 305419896}

``start`` is the physical offset of the first log file that was to be archived, and ``head_crc32`` the CRC-32 of its
first ``head_size`` bytes: a log that has another file there is another store's.

``manifest/<...>``, one a generation, created with a conditional put after all that it names::

    {"format": "commitlog-archive", "version": 1, "archive_id": "<32 hex>", "generation": 7, "created_ms": ...,
     "writer": "pyspark-commitlog 0.9.0", "attempt": "<16 hex>", "file_size": 1073741824, "group_size": 32,
     "queue_file_size": 6000000, "open_batch": null, "selection": null,
     "segments": [
       {"start": 0, "log": OBJECT, "units": OBJECT, "units_head": 412, "rows": 810432, "records": 810440, "strays": 0,
        "index": OBJECT, "index_rows": 1620880,
        "first_timestamp_ms": ..., "last_timestamp_ms": ...,
        "head_crc32": 305419896, "tail_stop": 1073740000, "tail_crc32": 2271560481},
       ...],
     "groups": [{"first_segment": 0, "table": OBJECT, "head": 24, "queues": 57}, ...],
     "catalog": OBJECT, "catalog_head": 9120, "queues": 61,
     "config": {"topics.json": OBJECT, ...}}

with, for each OBJECT, ``{"name": "commitlog/...", "size": bytes, "crc32": ..., "sha256": "<64 hex>"}``, and
``"checked_pages": true`` if it has these (``object_storage/checked_pages``), as index objects have. A manifest with a
``selection`` has version 3, since an archiver of version 2 would add the messages of all topics; any other one has
version 2, and the identity version 1.

- ``segments`` are in log order. Each one ends where the next begins, but for gaps: files that retention took before
  they were archived. The last one may be the written part of a log file: fewer than ``file_size`` bytes, and then
  another object takes its place once that file is closed. Before a gap such a part may remain.
- ``head_crc32`` is that of the segment's first ``HEAD_SIZE`` bytes. ``tail_stop`` is the physical offset after its last
  record, and ``tail_crc32`` that of the up to ``HEAD_SIZE`` bytes before it. A log that differs there is another one.
- ``units_head``, ``catalog_head`` and ``head`` are the bytes with which the object begins that say what is in it.
- ``index_rows`` are the rows of the index object, which is one for each hash of a key.
- ``rows`` are the units, ``records`` the whole records, ``strays`` those of them that have no place in a queue.
- ``queue_file_size`` is that of the store's queue files, for restore; 0 where it had none.
- ``open_batch``: the physical offsets of the first byte, and after the last one, of a batch that begins in the archived
  log and ends after it. A history shows it, an archive alone does not. null where the log ends with a whole batch or a
  single message.
- ``selection``: null, or that the archive has the messages of some topics alone, and how far the store's log was read
  for them: ``{"topics": ["orders*"], "source_stop": 5368709120, "tail_stop": 5368708000, "head_crc32": ...,
  "tail_crc32": ..., "batch_stop": 0, "next_start": 0}``. All other physical offsets are then those of a log of these
  messages (``selected_log.py``), and so is ``next_start``: where the next record goes, or 0 for after the last one. The
  others are the store's. ``source_stop`` is where the next run begins to read, ``tail_stop`` comes after the last
  record before that, and the CRC-32s are those of the first and the last bytes before ``tail_stop`` of the file with
  it. ``batch_stop`` is the end of the ``open_batch``, 0 for none.
- ``attempt`` is random: by it an archiver recognises its own manifest.
- The last field of both, ``crc32``, is the CRC-32 of the object's bytes before its comma.
- Timestamps are the smallest and the largest STORETIMESTAMP, in ms; both -1 without records.

Unknown fields are ignored; an unknown ``version`` is refused.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec.structs import replace

from commitlog_store.archive.damage import RESTORE_ADVICE, WrongBytes, not_decoded
from commitlog_store.errors import ArchiveDamaged, UnsupportedArchive
from commitlog_store.format.checksum import crc32
from commitlog_store.object_storage.checked_pages import content_size

FORMAT = "commitlog-archive"
IDENTITY_VERSION = 1
VERSION = 2
# Of a manifest of some topics alone.
SELECTION_VERSION = 3
# What is not read: a newer version of the package does not read it either.
_OF_SNAPSHOTS = (
    "without checksums of pages, as snapshots of the package before version 0.1.0 wrote it. Archive the store with "
    "another prefix. If it has not all of these messages any more, restore this archive with such a snapshot before."
)
# With what a manifest or an identity ends, before the CRC-32.
_CHECKSUM = b',\n "crc32": '
# Segments of one group.
GROUP_SIZE = 32
# Bytes at the start of a log file, and before the end of its last record, that tell it from another one.
HEAD_SIZE = 4096


class ObjectRef(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An object: its name below the prefix, its size in bytes and their checksums, and whether it has checked pages."""

    name: str
    size: int
    crc32: int
    sha256: str
    checked_pages: bool = False

    @property
    def content_size(self) -> int:
        """Its size without the checksums of pages."""
        return content_size(self.size) if self.checked_pages else self.size


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A log file, or the written part of the last one, which starts at the physical offset ``start``."""

    start: int
    log: ObjectRef
    units: ObjectRef
    units_head: int
    rows: int
    records: int
    strays: int
    index: ObjectRef
    index_rows: int
    first_timestamp_ms: int
    last_timestamp_ms: int
    head_crc32: int
    tail_stop: int
    tail_crc32: int

    @property
    def stop(self) -> int:
        """The physical offset after its last byte."""
        return self.start + self.log.size

    def log_ends(self) -> list[tuple[int, int, int]]:
        """The first and the last bytes of the log object, each as start, stop and CRC-32, unless there are none."""
        stop = self.tail_stop - self.start
        ends = [
            (0, min(HEAD_SIZE, self.log.size), self.head_crc32),
            (max(stop - HEAD_SIZE, 0), stop, self.tail_crc32),
        ]
        return [end for end in ends if end[0] < end[1]]


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """``GROUP_SIZE`` consecutive segments, by the index of the first one, and the table of where their units are."""

    first_segment: int
    table: ObjectRef
    head: int
    queues: int


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Topics, by name or shell pattern, that an archive has alone, and how far the log of their store was read."""

    topics: tuple[str, ...]
    source_stop: int
    tail_stop: int
    head_crc32: int
    tail_crc32: int
    batch_stop: int
    next_start: int


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Which store an archive is of."""

    format: str = FORMAT
    version: int = IDENTITY_VERSION
    archive_id: str
    created_ms: int
    file_size: int
    start: int
    head_size: int
    head_crc32: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One generation of an archive."""

    format: str = FORMAT
    version: int = VERSION
    archive_id: str
    generation: int
    created_ms: int
    writer: str
    attempt: str = ""
    file_size: int
    group_size: int = GROUP_SIZE
    queue_file_size: int = 0
    open_batch: tuple[int, int] | None = None
    selection: Selection | None = None
    segments: tuple[Segment, ...]
    groups: tuple[Group, ...]
    catalog: ObjectRef
    catalog_head: int
    queues: int
    config: dict[str, ObjectRef]

    @property
    def start(self) -> int:
        """The physical offset of the first archived byte."""
        return self.segments[0].start

    @property
    def stop(self) -> int:
        """The physical offset after the last archived byte."""
        return self.segments[-1].stop

    @property
    def grouped(self) -> int:
        """How many segments are in groups; the catalog itself says where the units of the others are."""
        return len(self.groups) * self.group_size

    def objects(self) -> list[ObjectRef]:
        """Every object that this generation consists of, besides the manifest and the identity."""
        of_segments = [one for segment in self.segments for one in (segment.log, segment.units, segment.index)]
        return [*of_segments, *(group.table for group in self.groups), self.catalog, *self.config.values()]


_Kind = TypeVar("_Kind", Identity, Manifest)


def encode_identity(identity: Identity) -> bytes:
    """The bytes of ``archive.json``."""
    return _pretty(identity)


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of a manifest, whose version is that of its content."""
    return _pretty(replace(manifest, version=VERSION if manifest.selection is None else SELECTION_VERSION))


def _pretty(value: Identity | Manifest) -> bytes:
    text = msgspec.json.format(msgspec.json.encode(value), indent=1).removesuffix(b"\n}")
    return text + _CHECKSUM + b"%d\n}\n" % crc32(text)


def decode_identity(data: bytes, name: str) -> Identity:
    """``ArchiveDamaged``, ``UnsupportedArchive``. ``name`` is the object's, for errors."""
    return _decode(data, name, Identity)


def decode_manifest(data: bytes, name: str) -> Manifest:
    """``ArchiveDamaged`` for what is not a manifest or contradicts itself, ``UnsupportedArchive``."""
    manifest = _decode(data, name, Manifest)
    if not all(segment.index.checked_pages for segment in manifest.segments):
        raise UnsupportedArchive(f"{name} has index objects {_OF_SNAPSHOTS}", path=name)
    problem = contradiction_in(manifest)
    if problem:
        raise ArchiveDamaged(f"The manifest {name} contradicts itself: {problem}. {RESTORE_ADVICE}", name=name)
    return manifest


def _decode(data: bytes, name: str, kind: type[_Kind]) -> _Kind:
    try:
        _check_sum(data)
        known = msgspec.json.decode(data, type=_Known)
        if known.format == FORMAT and known.version in _READ[kind]:
            return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, WrongBytes, UnicodeDecodeError) as error:
        raise not_decoded(name, _EXPECTED[kind], error) from error
    if known.format != FORMAT:
        raise not_decoded(name, _EXPECTED[kind], ValueError(f"its format is {known.format!r}"))
    if known.version < _READ[kind][0]:
        raise UnsupportedArchive(f"{name} has version {known.version} of the format, {_OF_SNAPSHOTS}", path=name)
    raise UnsupportedArchive(
        f"{name} has version {known.version} of the format; this version of the package reads up to version "
        f"{_READ[kind][-1]}. Install a newer one.",
        path=name,
    )


def _check_sum(data: bytes) -> None:
    """``WrongBytes`` for another CRC-32 than the one at the end, or none."""
    text, mark, end = data.rpartition(_CHECKSUM)
    crc = crc32(text)
    if not mark or end != b"%d\n}\n" % crc:
        found = end.removesuffix(b"\n}\n").decode(errors="replace") if mark else "none"
        raise WrongBytes("CRC-32 of all before it", len(text) + len(mark), crc, found)


class _Known(msgspec.Struct):
    """What every version has."""

    format: str
    version: int


_READ: dict[type, tuple[int, ...]] = {
    Identity: (IDENTITY_VERSION,),
    Manifest: (VERSION, SELECTION_VERSION),
}
_EXPECTED: dict[type, str] = {Identity: "the identity of an archive", Manifest: "a manifest of an archive"}


def contradiction_in(manifest: Manifest) -> str:
    """What is wrong with numbers that other numbers of the manifest decide; empty for nothing."""
    segments = manifest.segments
    if not segments:
        return "it has no segment"
    if manifest.group_size < 1 or manifest.file_size < 1:
        return f"group_size is {manifest.group_size}, and file_size {manifest.file_size}"
    end = 0
    for index, segment in enumerate(segments):
        if segment.start < end or segment.start % manifest.file_size:
            return f"segment {index} starts at {segment.start}, and the one before it ends at {end}"
        if not 0 < segment.log.size <= manifest.file_size:
            return f"segment {index} at {segment.start} has {segment.log.size} bytes"
        end = segment.stop
    first, last = manifest.open_batch or (end - 1, end + 1)
    if not segments[0].start <= first < end < last:
        return f"open_batch is from {first} to {last}, and the log ends at {end}"
    if not len(segments) - manifest.group_size <= manifest.grouped <= len(segments):
        return f"{len(manifest.groups)} groups of {manifest.group_size} do not go with {len(segments)} segments"
    for index, group in enumerate(manifest.groups):
        if group.first_segment != index * manifest.group_size or not 0 <= group.queues <= manifest.queues:
            return f"group {index} begins with segment {group.first_segment} and has {group.queues} queues"
    return ""
