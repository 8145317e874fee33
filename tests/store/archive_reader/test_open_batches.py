"""A log file may end within a batch: readers of an archive see that batch when the file with its end is archived."""

from __future__ import annotations

import contextlib
import math
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.archive.archiver import Archiver, ArchiveSettings, open_archiver
from commitlog_store.archive.generations import newest
from tests.store.archive.archives import assert_sound, objects_of, url_of

CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=16 << 10, mapped_file_size_consume_queue=20 * 10, schedule_enable=False
)
# Rows of each batch, of a kilobyte: within one file, over an end of a file, over two of them, and none at its last end.
SIZES = (10, 20, 3, 45, 1, 30, 2, 2, 18, 50)
QUEUES = 3
KEYS = [(topic, f"k{row}") for topic in ("late", "orders") for row in range(max(SIZES))]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Each body says which batch it is of. A queue and a topic come with a batch that goes over several files."""
    with MessageStore.open(tmp_path / "store", CONFIG) as owner:
        for version, size in enumerate(SIZES, 1):
            rows = [
                {
                    "topic": "late" if version > 3 and row % 5 == 4 else "orders",
                    "queueId": row % (QUEUES - (version < 4)),
                    "keys": f"k{row}",
                    "body": b"%d " % version + bytes(1_000),
                }
                for row in range(size)
            ]
            with owner.transaction("loader", version) as batch:
                batch.put_messages(pa.Table.from_pylist(rows))
            if version % 2:
                owner.put("orders", b"0 ", queue_id=0)
    return tmp_path / "store"


@contextlib.contextmanager
def archiver_of(store: Path, archive: Path, **settings: float) -> Iterator[Archiver]:
    archiver = open_archiver(store, url_of(archive), ArchiveSettings(**settings))  # type: ignore[arg-type]
    try:
        yield archiver
    finally:
        archiver.close()


def versions(bodies: Iterator[bytes]) -> list[int]:
    return sorted(int(body.split()[0]) for body in bodies)


def scanned(reader: StoreReader) -> list[int]:
    table = reader.scan("*", columns=["body"]).read_all()
    return [one for one in versions(body.as_py() for body in table["body"]) if one]


def whole_batches(found: list[int]) -> int:
    """How many batches these rows are of, each with all its rows."""
    count = len(set(found))
    assert found == [version for version in range(1, count + 1) for _ in range(SIZES[version - 1])]
    return count


def read_in_other_ways(reader: StoreReader) -> list[list[int]]:
    """By queue, pulled, and by key."""
    infos = [info for topic in ("late", "orders") if topic in reader.topics() for info in reader.queues(topic)]
    read = [
        body.as_py()
        for info in infos
        for batch in reader.read(info.topic, info.queue_id, info.min_offset, columns=["body"])
        for body in batch["body"]
    ]
    pulled = [
        message.body
        for info in infos
        for message in reader.get_message(info.topic, info.queue_id, info.min_offset, 1_000).messages
    ]
    assert sum(info.max_offset - info.min_offset for info in infos) == len(read)
    return [[one for one in versions(iter(bodies)) if one] for bodies in (read, pulled)]


def test_no_generation_shows_a_part_of_a_batch(store: Path, tmp_path: Path) -> None:
    seen, generations = [], 0
    with archiver_of(store, tmp_path / "a", with_last=True, last_every_s=math.inf) as archiver:
        while archiver.run_once() == 0:
            generations += 1
            with StoreReader.open(f"archive+{url_of(tmp_path / 'a')}") as reader:
                found = scanned(reader)
                seen.append(whole_batches(found))
                assert read_in_other_ways(reader) == [found, found]
                assert sum(len(reader.query(*key, limit=99)) for key in KEYS) == len(found)
                listed = [one.batch.version for one in reader.batches()]  # the store's last one, once it is archived
                assert listed == [len(SIZES)] * (seen[-1] == len(SIZES))
            assert_sound(objects_of(tmp_path / "a"))
    assert seen == sorted(seen)
    assert seen[-1] == len(SIZES)
    assert len(set(seen)) >= 4, seen
    assert generations == len(newest(objects_of(tmp_path / "a")).segments)


def test_a_reader_that_waits_sees_whole_batches_come(store: Path, tmp_path: Path) -> None:
    with archiver_of(store, tmp_path / "a") as archiver:
        assert archiver.run_once() == 0
        with StoreReader.open(f"archive+{url_of(tmp_path / 'a')}") as reader:
            assert whole_batches(scanned(reader)) == 1
            while archiver.run_once() == 0:
                reader.look_again()  # type: ignore[attr-defined]
                whole_batches(scanned(reader))
            assert whole_batches(scanned(reader)) == len(SIZES) - 1


def test_a_history_has_all_of_a_batch_whose_beginning_is_archived(store: Path, tmp_path: Path) -> None:
    """Retention has deleted the files up to one within a batch."""
    files = sorted((store / "commitlog").iterdir())
    for count in range(1, len(files)):
        with archiver_of(store, tmp_path / f"archive-{count}") as archiver:
            for _ in range(count):
                assert archiver.run_once() == 0
    for count in range(1, len(files)):
        files[count - 1].unlink()
        with StoreReader.open(store, archive=f"archive+{url_of(tmp_path)}/archive-{count}") as reader:
            assert whole_batches(scanned(reader)) == len(SIZES)
            assert sum(len(reader.query(*key, limit=99)) for key in KEYS) == sum(SIZES)


def test_a_history_shows_no_part_of_a_batch_that_its_store_has_not_dispatched(store: Path, tmp_path: Path) -> None:
    """The topic came with a batch that goes over several files, and the store has no queue of it yet."""
    shutil.rmtree(store / "consumequeue" / "late")
    seen = set()
    with archiver_of(store, tmp_path / "a") as archiver:
        while archiver.run_once() == 0:
            with (
                StoreReader.open(f"archive+{url_of(tmp_path / 'a')}") as past,
                StoreReader.open(store, archive=f"archive+{url_of(tmp_path / 'a')}") as history,
            ):
                if "late" in past.topics():
                    assert history.queues("late") == past.queues("late")
                    seen.add(sum(info.max_offset for info in past.queues("late")))
    assert 0 in seen, "the beginning of its first batch was archived alone"


def test_an_archive_that_begins_within_a_batch_shows_the_part_that_it_has(store: Path, tmp_path: Path) -> None:
    """Retention took the file with the batch's beginning before anything was archived."""
    files = sorted((store / "commitlog").iterdir())
    for file in files[: len(files) // 2]:
        file.unlink()
    with archiver_of(store, tmp_path / "a", with_last=True) as archiver:
        while archiver.run_once() == 0:
            pass
    assert_sound(objects_of(tmp_path / "a"))
    with StoreReader.open(f"archive+{url_of(tmp_path / 'a')}") as past, StoreReader.open(store) as live:
        found = scanned(past)
        assert found == scanned(live)
        assert 0 < found.count(found[0]) < SIZES[found[0] - 1]
