"""Opening an archive of 1,000 log files and 10,000 queues: three requests, and less than a second."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from commitlog_store import StoreReader
from commitlog_store.archive import catalog as catalogs
from commitlog_store.archive import layout
from commitlog_store.archive.manifest import GROUP_SIZE, Group, Manifest, ObjectRef, Segment, encode_manifest
from commitlog_store.archive.tables import QueueTables
from commitlog_store.archive.unit_objects import QueuePart
from commitlog_store.archive.uploads import Pace, Uploads
from commitlog_store.object_storage.object_store import ObjectStore

SEGMENTS, QUEUES, FILE_SIZE = 1_000, 10_000, 1 << 30
# Messages of a queue in a segment.
EACH = 100


def _unread(kind: str, offset: int, size: int) -> ObjectRef:
    """An object that opening does not read, and that is not there."""
    digest = hashlib.sha256(f"{kind} {offset}".encode()).hexdigest()
    return ObjectRef(name=layout.object_name(kind, offset, digest), size=size, crc32=offset & 0xFFFFFFFF, sha256=digest)


def _segment(number: int) -> Segment:
    start = number * FILE_SIZE
    return Segment(
        start=start,
        log=_unread(layout.COMMIT_LOG, start, FILE_SIZE),
        units=_unread(layout.UNITS, start, 300_000 + 20 * EACH * QUEUES),
        units_head=300_000,
        rows=EACH * QUEUES,
        records=EACH * QUEUES,
        strays=0,
        index=_unread(layout.INDEX, start, 24_000_024),
        index_rows=2_000_000,
        first_timestamp_ms=1_700_000_000_000 + number * 1000,
        last_timestamp_ms=1_700_000_000_999 + number * 1000,
        head_crc32=number,
        tail_stop=start + FILE_SIZE - 100,
        tail_crc32=number,
    )


def _put_manifest(objects: ObjectStore, uploads: Uploads, groups: Sequence[Group], tables: QueueTables) -> None:
    head, rows = catalogs.encode_catalog(tables.catalog())
    manifest = Manifest(
        archive_id="0" * 32,
        generation=SEGMENTS,
        created_ms=1,
        writer="test",
        file_size=FILE_SIZE,
        segments=tuple(map(_segment, range(SEGMENTS))),
        groups=tuple(groups),
        catalog=uploads.put(layout.CATALOG, SEGMENTS * FILE_SIZE, [head, rows]),
        catalog_head=len(head),
        queues=QUEUES,
        config={},
    )
    assert objects.put_new(layout.manifest_name(SEGMENTS), encode_manifest(manifest))


@pytest.mark.stress
@pytest.mark.timeout(900)
def test_a_large_archive_opens_with_three_requests_within_a_second(tmp_path: Path) -> None:
    objects = ObjectStore.open(f"file://{tmp_path}", writes=True)
    uploads, tables, groups = Uploads(objects, Pace(0)), QueueTables(), list[Group]()
    names = [(f"topic-{number // 8:05d}", number % 8) for number in range(QUEUES)]
    for number in range(SEGMENTS):
        tables.add([QueuePart(name, number * EACH, EACH) for name in names])
        if tables.open_segments == GROUP_SIZE:
            spans, first = tables.close_group(), len(groups) * GROUP_SIZE
            table = uploads.put(layout.GROUPS, first * FILE_SIZE, [catalogs.encode_group(spans)])
            groups.append(Group(first_segment=first, table=table, head=catalogs.GROUP_HEAD, queues=len(spans)))
    _put_manifest(objects, uploads, groups, tables)
    took = []
    for _ in range(3):
        began = time.process_time()
        with StoreReader.open(f"archive+file://{tmp_path}") as archive:
            took.append(time.process_time() - began)
            assert archive.stats().requests == 3
            assert archive.stats().bytes_fetched < 2_000_000
            assert len(archive.topics()) == QUEUES // 8
            assert archive.queue_info("topic-00700", 3).max_offset == SEGMENTS * EACH
            assert archive.stats().requests == 3
    # Of the processor: 0.02 s, the first time with imports.
    assert min(took) < 1.0
