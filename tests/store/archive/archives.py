"""Stores to archive, and what an archive holds."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from commitlog_store import StoreReader
from commitlog_store.archive import catalog as catalogs
from commitlog_store.archive.check import check_archive
from commitlog_store.archive.generations import newest
from commitlog_store.archive.unit_objects import decode_units
from commitlog_store.format.consume_queue_unit import UNIT_SIZE
from commitlog_store.object_storage.object_store import ObjectStore
from tests.support.store_builder import StoreBuilder

FILE_SIZE = 8192


def small_store(path: Path, messages: int = 200, *, queues: int = 3, log_start: int = 0) -> StoreBuilder:
    """A store of small log files, with two topics whose messages are interleaved."""
    builder = StoreBuilder(path, log_file_size=FILE_SIZE, log_start=log_start)
    add_messages(builder, messages, queues=queues)
    return builder


def add_messages(builder: StoreBuilder, messages: int, *, queues: int = 3) -> None:
    """More messages; each has a body of its own."""
    for first in range(0, messages, 10):
        begun = sum(builder.next_offsets.values())
        bodies = [b"%06d" % (begun + number) * 10 for number in range(min(10, messages - first))]
        builder.append("orders" if first % 20 else "paid", range(queues), bodies)


def url_of(path: Path) -> str:
    return f"file://{path}"


def objects_of(path: Path) -> ObjectStore:
    return ObjectStore.open(url_of(path))


def log_bytes(store: Path) -> bytes:
    """The log, file after file."""
    return b"".join(file.read_bytes() for file in sorted((store / "commitlog").iterdir()))


def archived_bytes(objects: ObjectStore) -> bytes:
    """The log as the newest generation has it; its segments follow each other."""
    manifest = newest(objects)
    stop, data = manifest.start, []
    for segment in manifest.segments:
        assert segment.start == stop
        found = objects.get(segment.log.name)
        assert found is not None
        data.append(found)
        stop = segment.stop
    return b"".join(data)


def assert_sound(objects: ObjectStore) -> None:
    """Nothing is wrong with an archive, down to the last byte."""
    report = check_archive(objects, deep=True)
    assert report.problems == []


def units_of(objects: ObjectStore, topic: str, queue_id: int) -> tuple[int, np.ndarray]:
    """The first offset and the units of a queue, found as a reader finds them: through catalog and groups."""
    manifest = newest(objects)
    data = objects.get(manifest.catalog.name)
    assert data is not None
    head = catalogs.decode_head(data[: manifest.catalog_head], manifest.catalog.name)
    number = head.queues.index((topic, queue_id))
    row = slice(*head.row_range(number))
    _, open_spans = catalogs.decode_row(head, data[row])
    spans = []
    for group in manifest.groups:
        if number < group.queues:
            size = manifest.group_size * catalogs.SPAN_DTYPE.itemsize
            start = group.head + number * size
            found = objects.get_ranges(group.table.name, [(start, start + size)])
            assert found is not None
            spans += list(catalogs.decode_spans(found[0]))
        else:
            spans += list(np.zeros(manifest.group_size, catalogs.SPAN_DTYPE))
    spans += list(open_spans)
    units, end = [], int(head.min_offsets[number])
    for segment, span in zip(manifest.segments, spans, strict=True):
        if span["count"]:
            assert span["first_offset"] == end
            start = segment.units_head + int(span["first_row"]) * UNIT_SIZE
            found = objects.get_ranges(segment.units.name, [(start, start + int(span["count"]) * UNIT_SIZE)])
            assert found is not None
            units.append(decode_units(found[0]))
            end += int(span["count"])
    assert end == head.max_offsets[number]
    return int(head.min_offsets[number]), np.concatenate(units)


def assert_same_messages(first: Path, second: Path, *, besides: tuple[str, ...] = ()) -> None:
    """Both stores have the same queues, with the same messages."""
    with StoreReader.open(first) as one, StoreReader.open(second) as other:
        topics = [topic for topic in one.topics() if topic not in besides]
        assert topics == [topic for topic in other.topics() if topic not in besides]
        for topic in topics:
            assert one.queues(topic) == other.queues(topic)
            for queue in one.queues(topic):
                rows = [
                    [batch.to_pydict() for batch in reader.read(topic, queue.queue_id, queue.min_offset)]
                    for reader in (one, other)
                ]
                assert rows[0] == rows[1]


def tree(path: Path) -> dict[str, tuple[int, int, int]]:
    """Every file below a directory: inode, size and time of change."""
    found = {}
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                status = os.stat(os.path.join(folder, name))
            except FileNotFoundError:  # a temporary name of one that is being written
                continue
            found[os.path.join(folder, name)] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return found
