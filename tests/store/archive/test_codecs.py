"""The names and the bytes of an archive's objects: each codec gives back what it was given, and refuses other bytes."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from msgspec.structs import replace

from commitlog_store.archive import catalog, layout, manifest, unit_objects
from commitlog_store.errors import ArchiveDamaged, InvalidValue, UnsupportedArchive
from commitlog_store.format.checksum import crc32
from commitlog_store.format.consume_queue_unit import FILLER_SIZE, UNIT_DTYPE, UNIT_SIZE

FILE_SIZE = 4096


def _object(kind: str, offset: int, data: bytes, *, checked: bool = False) -> manifest.ObjectRef:
    sha256 = hashlib.sha256(data).hexdigest()
    name = layout.object_name(kind, offset, sha256)
    return manifest.ObjectRef(name=name, size=len(data), crc32=7, sha256=sha256, checked_pages=checked)


def _segment(start: int, size: int = FILE_SIZE) -> manifest.Segment:
    return manifest.Segment(
        start=start,
        log=_object(layout.COMMIT_LOG, start, bytes(size)),
        units=_object(layout.UNITS, start, b"units"),
        units_head=24,
        rows=3,
        records=4,
        strays=0,
        index=_object(layout.INDEX, start, bytes(36), checked=True),
        index_rows=1,
        first_timestamp_ms=1,
        last_timestamp_ms=2,
        head_crc32=5,
        tail_stop=start + size,
        tail_crc32=6,
    )


def _manifest(*segments: manifest.Segment, groups: int = 0, group_size: int = 32) -> manifest.Manifest:
    return manifest.Manifest(
        archive_id="0" * 32,
        generation=3,
        created_ms=1,
        writer="pyspark-commitlog",
        file_size=FILE_SIZE,
        group_size=group_size,
        segments=segments,
        groups=tuple(
            manifest.Group(
                first_segment=index * group_size,
                table=_object(layout.GROUPS, 0, b"g"),
                head=catalog.GROUP_HEAD,
                queues=1,
            )
            for index in range(groups)
        ),
        catalog=_object(layout.CATALOG, 0, b"catalog"),
        catalog_head=32,
        queues=2,
        config={"topics.json": _object(layout.CONFIG, 0, b"{}")},
    )


def test_a_listing_of_manifests_begins_with_the_newest() -> None:
    names = [layout.manifest_name(generation) for generation in (1, 2, 9, 10, 11, 1000)]
    assert sorted(names) == names[::-1]
    assert [layout.generation_of(name) for name in names] == [1, 2, 9, 10, 11, 1000]


@pytest.mark.parametrize("name", ["manifest/7", "manifest/99999999999999999999", "catalog/" + "9" * 20, "manifest/x"])
def test_other_objects_are_no_manifest(name: str) -> None:
    assert layout.generation_of(name) is None


def test_generations_count_from_one() -> None:
    with pytest.raises(InvalidValue, match="from 1 on"):
        layout.manifest_name(0)


def test_a_manifest_is_read_as_it_was_written() -> None:
    written = _manifest(_segment(0), _segment(FILE_SIZE), _segment(3 * FILE_SIZE, 100), groups=1, group_size=2)
    assert manifest.decode_manifest(manifest.encode_manifest(written), "manifest/x") == written
    assert (written.start, written.stop, written.grouped) == (0, 3 * FILE_SIZE + 100, 2)
    assert len(written.objects()) == 3 * 3 + 1 + 1 + 1


def test_an_identity_is_read_as_it_was_written() -> None:
    written = manifest.Identity(
        archive_id="1" * 32, created_ms=1, file_size=FILE_SIZE, start=0, head_size=9, head_crc32=9
    )
    assert manifest.decode_identity(manifest.encode_identity(written), layout.IDENTITY) == written


@pytest.mark.parametrize(
    ("segments", "groups"),
    [
        ((), 0),
        ((_segment(0, FILE_SIZE + 1),), 0),  # more bytes than a log file has
        ((_segment(FILE_SIZE), _segment(0)), 0),
        ((_segment(7),), 0),
        ((_segment(0),), 1),  # a group of more segments than it has
        (tuple(_segment(index * FILE_SIZE) for index in range(5)), 1),  # three segments in no group of two
    ],
)
def test_a_manifest_that_contradicts_itself_is_damaged(segments: tuple[manifest.Segment, ...], groups: int) -> None:
    written = manifest.encode_manifest(_manifest(*segments, groups=groups, group_size=2))
    with pytest.raises(ArchiveDamaged, match="manifest/x contradicts itself"):
        manifest.decode_manifest(written, "manifest/x")


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b"\xff\xfe", b'{"format": "iceberg", "version": 1}'])
def test_other_bytes_are_no_manifest(data: bytes) -> None:
    with pytest.raises(ArchiveDamaged, match="manifest/x is not a manifest of an archive"):
        manifest.decode_manifest(data, "manifest/x")


def test_a_later_version_is_refused_whatever_else_it_has() -> None:
    for version, decode in ((4, manifest.decode_manifest), (2, manifest.decode_identity)):
        start = b'{"format": "commitlog-archive", "version": %d' % version
        with pytest.raises(UnsupportedArchive, match=f"x has version {version}"):
            decode(start + b',\n "crc32": %d\n}\n' % crc32(start), "x")


def test_archives_of_snapshots_without_checksums_of_pages_are_refused_with_what_to_do() -> None:
    """Content read as if it had checksums would hide messages. And no newer version reads version 1."""
    start = b'{"format": "commitlog-archive", "version": 1'
    first = start + b',\n "crc32": %d\n}\n' % crc32(start)
    unchecked = replace(_segment(FILE_SIZE), index=_object(layout.INDEX, FILE_SIZE, bytes(36)))
    continued = manifest.encode_manifest(_manifest(unchecked, _segment(2 * FILE_SIZE)))
    for data in (first, continued):
        with pytest.raises(UnsupportedArchive, match=r"manifest/x has .* snapshots .* another prefix") as refused:
            manifest.decode_manifest(data, "manifest/x")
        assert "newer" not in str(refused.value)


def _units(count: int, first: int) -> np.ndarray:
    units = np.zeros(count, UNIT_DTYPE)
    units["physical_offset"] = np.arange(first, first + count)
    units["size"] = 100
    return units


def test_the_units_of_a_queue_are_one_range_of_the_object() -> None:
    filler = _units(3, 50)
    filler["size"][1] = FILLER_SIZE
    queues = [
        unit_objects.QueueUnits(("orders", 0), 7, _units(2, 10)),
        unit_objects.QueueUnits(("orders", 1), 0, filler),
        unit_objects.QueueUnits(("zürich", 0), 1, _units(1, 90)),
    ]
    head, pieces = unit_objects.encode_units(queues)
    data = head + b"".join(piece.tobytes() for piece in pieces)
    directory = unit_objects.decode_directory(data[: len(head)], "units/x")
    assert directory.queues == [queue.name for queue in queues]
    assert directory.entries["first_offset"].tolist() == [7, 0, 1]
    assert len(data) == len(head) + 6 * UNIT_SIZE
    for queue, entry in zip(queues, directory.entries, strict=True):
        start = directory.size + int(entry["first_row"]) * UNIT_SIZE
        units = data[start : start + int(entry["count"]) * UNIT_SIZE]
        assert np.array_equal(unit_objects.decode_units(units), queue.units)


@pytest.mark.parametrize("at", [0, 9, 12, 16, 20, 24, 30, 40, 60])
def test_a_changed_byte_of_a_directory_is_noticed(at: int) -> None:
    head, _ = unit_objects.encode_units([unit_objects.QueueUnits(("orders", 0), 7, _units(2, 10))])
    changed = head[:at] + bytes([head[at] ^ 0x10]) + head[at + 1 :]
    with pytest.raises(ArchiveDamaged, match="units/x is not a unit object"):
        unit_objects.decode_directory(changed, "units/x")


@pytest.mark.parametrize("size", [0, 23, 24, 40])
def test_a_directory_that_was_cut_is_noticed(size: int) -> None:
    head, _ = unit_objects.encode_units([unit_objects.QueueUnits(("orders", 0), 7, _units(2, 10))])
    with pytest.raises(ArchiveDamaged):
        unit_objects.decode_directory(head[:size], "units/x")


def _catalog(groups: int, segments: int) -> catalog.Catalog:
    spans = np.zeros((3, segments), catalog.SPAN_DTYPE)
    spans["first_offset"] = np.arange(3 * segments).reshape(3, segments)
    spans["count"] = 1
    return catalog.Catalog(
        [("orders", 1), ("orders", 0), ("paid", 0)],
        np.array([0, 1, 2]),
        np.array([10, 11, 12]),
        np.array([10, 9, 2]),
        np.arange(3 * groups).reshape(3, groups),
        spans,
    )


@pytest.mark.parametrize(("groups", "segments"), [(0, 1), (1, 0), (2, 5)])
def test_a_catalog_is_read_whole_and_by_rows(groups: int, segments: int) -> None:
    written = _catalog(groups, segments)
    head_bytes, rows = catalog.encode_catalog(written)
    read = catalog.decode_catalog(head_bytes + rows, len(head_bytes), "catalog/x")
    head = catalog.decode_head(head_bytes, "catalog/x")
    assert read.queues == head.queues == written.queues
    assert head.min_offsets.tolist() == [0, 1, 2]
    assert head.max_offsets.tolist() == [10, 11, 12]
    assert head.shown_offsets.tolist() == read.shown_offsets.tolist() == [10, 9, 2]
    assert np.array_equal(read.group_offsets, written.group_offsets)
    assert np.array_equal(read.spans, written.spans)
    for number in range(3):
        start, stop = head.row_range(number)
        offsets, spans = catalog.decode_row(head, (head_bytes + rows)[start:stop])
        assert np.array_equal(offsets, written.group_offsets[number])
        assert np.array_equal(spans, written.spans[number])


def test_a_catalog_that_was_cut_is_noticed() -> None:
    head, rows = catalog.encode_catalog(_catalog(1, 2))
    with pytest.raises(ArchiveDamaged, match="its head says"):
        catalog.decode_catalog(head + rows[:-1], len(head), "catalog/x")
    with pytest.raises(ArchiveDamaged):
        catalog.decode_head(head[:-1], "catalog/x")


def test_a_group_is_read_whole_and_by_rows() -> None:
    spans = _catalog(0, 4).spans
    data = catalog.encode_group(spans)
    assert np.array_equal(catalog.decode_group(data, "groups/x"), spans)
    row = 4 * catalog.SPAN_DTYPE.itemsize
    start = catalog.GROUP_HEAD + 2 * row
    assert np.array_equal(catalog.decode_spans(data[start : start + row]), spans[2])
    with pytest.raises(ArchiveDamaged):
        catalog.decode_group(data[:-1], "groups/x")


@pytest.mark.parametrize(("offset", "index"), [(0, 0), (9, 0), (10, 2), (19, 2), (20, 3), (100, 3)])
def test_the_span_of_an_offset_is_the_last_one_that_does_not_begin_after_it(offset: int, index: int) -> None:
    assert catalog.span_at(np.array([0, 10, 10, 20]), offset) == index


def test_spans_in_native_byte_order_are_written_as_the_others() -> None:
    spans = _catalog(0, 4).spans
    native = spans.astype(spans.dtype.newbyteorder("="))
    assert catalog.encode_group(native) == catalog.encode_group(spans)
