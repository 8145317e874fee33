"""Archiving a store: what is archived, when, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from commitlog_store import Message, MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.archive import manifest as manifests
from commitlog_store.archive.archiver import ArchiveSettings, archive_store, open_archiver
from commitlog_store.archive.check import check_archive
from commitlog_store.archive.generations import newest, newest_or_none
from commitlog_store.archive.layout import IDENTITY, manifest_name
from commitlog_store.archive.uploads import Pace
from commitlog_store.errors import (
    ArchiveGap,
    ArchiveMismatch,
    ArchiveNotFound,
    FileChanged,
    InvalidValue,
    StoreNotFound,
)
from commitlog_store.object_storage.object_store import ObjectStore
from tests.store.archive.archives import (
    FILE_SIZE,
    add_messages,
    archived_bytes,
    assert_sound,
    log_bytes,
    objects_of,
    small_store,
    tree,
    units_of,
    url_of,
)
from tests.support.store_builder import StoreBuilder
from tests.support.waiting import wait_for


def test_closed_log_files_are_archived_byte_for_byte(golden_533: Path, tmp_path: Path) -> None:
    report = archive_store(golden_533, url_of(tmp_path))
    data = archived_bytes(objects_of(tmp_path))
    assert (report.start, report.stop, report.segments, report.added) == (0, len(data), 3, 3)
    assert data == log_bytes(golden_533)[: len(data)]
    assert_sound(objects_of(tmp_path))


@pytest.mark.parametrize("name", ["golden_533", "golden_498"])
def test_the_units_of_every_queue_are_those_of_its_files(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    store: Path = request.getfixturevalue(name)
    archive_store(store, url_of(tmp_path), with_last=True)
    stop = newest(objects_of(tmp_path)).stop
    with StoreReader.open(store) as reader:
        for topic in reader.topics():
            for queue in reader.queues(topic):
                first, units = units_of(objects_of(tmp_path), topic, queue.queue_id)
                files = sorted((store / "consumequeue" / topic / str(queue.queue_id)).iterdir())
                expected = np.frombuffer(b"".join(file.read_bytes() for file in files), units.dtype.newbyteorder(">"))
                expected = expected[(expected["size"] > 0) & (expected["physical_offset"] < stop)]
                assert first == queue.min_offset
                assert (units == expected[first:]).all()


def test_a_growing_log_is_continued_where_the_manifest_ends(tmp_path: Path) -> None:
    builder = small_store(tmp_path / "store", 100)
    added = [archive_store(tmp_path / "store", url_of(tmp_path / "a")).added]
    for _ in range(5):
        add_messages(builder, 150)
        added.append(archive_store(tmp_path / "store", url_of(tmp_path / "a")).added)
    assert all(added)
    objects = objects_of(tmp_path / "a")
    assert newest(objects).generation == len(newest(objects).segments) == sum(added)
    assert archived_bytes(objects) == log_bytes(tmp_path / "store")[: sum(added) * FILE_SIZE]
    assert archive_store(tmp_path / "store", url_of(tmp_path / "a")).added == 0


def test_groups_of_segments_are_closed_and_queues_that_come_later_are_found(tmp_path: Path) -> None:
    """More than two groups: a queue that begins in the second one has no row in the first one's table."""
    builder = small_store(tmp_path / "store", 1700)
    archive_store(tmp_path / "store", url_of(tmp_path / "a"))
    builder.append("late", 0, [b"x" * 50] * 3)
    add_messages(builder, 2000, queues=5)
    archive_store(tmp_path / "store", url_of(tmp_path / "a"))
    objects = objects_of(tmp_path / "a")
    manifest = newest(objects)
    assert len(manifest.groups) == 2
    assert manifest.groups[0].queues < manifest.groups[1].queues == manifest.queues
    assert_sound(objects)
    with StoreReader.open(tmp_path / "store") as reader:
        for topic, queues in (("orders", 5), ("paid", 5), ("late", 1)):
            for queue_id in range(queues):
                first, units = units_of(objects, topic, queue_id)
                places = [
                    place
                    for batch in reader.read(topic, queue_id, 0, columns=["physicalOffset"])
                    for place in batch.column(0).to_pylist()
                ]
                assert first == 0
                assert units["physical_offset"].tolist() == [place for place in places if place < manifest.stop]


def test_the_written_part_of_the_last_file_grows_and_is_replaced_by_the_closed_file(tmp_path: Path) -> None:
    builder = small_store(tmp_path / "store", 10)
    parts = []
    for _ in range(12):
        archive_store(tmp_path / "store", url_of(tmp_path / "a"), with_last=True)
        objects = objects_of(tmp_path / "a")
        data = archived_bytes(objects)
        assert data == log_bytes(tmp_path / "store")[: len(data)]
        assert len(data) == builder.position
        assert_sound(objects)
        parts.append(len(newest(objects).segments))
        add_messages(builder, 20)
    assert parts == sorted(parts)
    assert len(set(parts)) < len(parts), "no part was replaced by a longer one"


def test_nothing_is_archived_of_a_store_without_a_closed_file(tmp_path: Path) -> None:
    small_store(tmp_path / "store", 10)
    report = archive_store(tmp_path / "store", url_of(tmp_path / "a"))
    assert (report.generation, report.segments) == (0, 0)
    with pytest.raises(ArchiveNotFound, match="no manifest"):
        newest(objects_of(tmp_path / "a"))


def test_a_file_that_a_broker_has_made_ahead_does_not_close_the_one_before(tmp_path: Path) -> None:
    builder = small_store(tmp_path / "store", 100)
    base = builder.position - builder.position % FILE_SIZE
    (tmp_path / "store" / "commitlog" / f"{base + FILE_SIZE:020d}").write_bytes(bytes(FILE_SIZE))
    assert archive_store(tmp_path / "store", url_of(tmp_path / "a")).stop == base


def test_until_ends_before_the_first_file_with_a_message_of_that_time(tmp_path: Path) -> None:
    builder = small_store(tmp_path / "store", 300)
    archive_store(tmp_path / "store", url_of(tmp_path / "all"))
    segments = newest(objects_of(tmp_path / "all")).segments
    until = segments[2].first_timestamp_ms + 1
    report = archive_store(tmp_path / "store", url_of(tmp_path / "a"), until_ms=until)
    assert report.stop == segments[2].start
    assert archive_store(tmp_path / "store", url_of(tmp_path / "a"), until_ms=builder.now_ms).stop == segments[-1].stop


def test_nothing_in_the_store_is_changed(tmp_path: Path) -> None:
    small_store(tmp_path / "store", 300)
    before = tree(tmp_path / "store")
    archive_store(tmp_path / "store", url_of(tmp_path / "a"), with_last=True)
    assert tree(tmp_path / "store") == before


def test_config_files_are_archived_and_kept_when_they_have_not_changed(tmp_path: Path) -> None:
    builder = small_store(tmp_path / "store", 300)
    topics = tmp_path / "store" / "config" / "topics.json"
    topics.write_text(json.dumps({"topicConfigTable": {}}))
    archive_store(tmp_path / "store", url_of(tmp_path / "a"))
    first = newest(objects_of(tmp_path / "a")).config
    topics.unlink()  # a broker renames the new one a moment later
    add_messages(builder, 200)
    archive_store(tmp_path / "store", url_of(tmp_path / "a"))
    assert newest(objects_of(tmp_path / "a")).config == first
    assert objects_of(tmp_path / "a").get(first["topics.json"].name) == b'{"topicConfigTable": {}}'


def test_the_last_record_of_an_open_store_is_archived_once_a_queue_leads_to_it(tmp_path: Path) -> None:
    """Before, it may be half written: then the next run archives it."""
    path, url = tmp_path / "store", f"archive+{url_of(tmp_path / 'a')}"
    with MessageStore.open(path, MessageStoreConfig.embedded()) as store:
        for number in range(19):
            store.put_message(Message(topic="orders", queue_id=0, body=b"x", keys=["all", f"k{number}"]))
        result = store.put_message(Message(topic="orders", queue_id=0, body=b"x", keys=["all", "k19"]))
        assert store.wait_for_messages("orders", 0, 19, timeout_s=60)
        archive_store(path, url_of(tmp_path / "a"), with_last=True)
        with StoreReader.open(url) as archive:
            (newest_message,) = archive.query("orders", "all", limit=1)
            assert newest_message.physical_offset == result.physical_offset
            assert archive.query("orders", "k19") == [newest_message]
        crashed = shutil.copytree(path, tmp_path / "crashed", ignore=shutil.ignore_patterns("lock"))
        assert (crashed / "abort").exists()
    for unit in (crashed / "consumequeue" / "orders" / "0").iterdir():
        data = bytearray(unit.read_bytes())
        data[19 * 20 : 20 * 20] = bytes(20)  # of the last message
        unit.write_bytes(data)
    report = archive_store(crashed, url_of(tmp_path / "b"), with_last=True)
    assert report.stop == result.physical_offset


def test_a_store_that_is_open_is_archived_beside_its_owner(tmp_path: Path) -> None:
    config = MessageStoreConfig(mapped_file_size_commit_log=65536, flush_interval_commit_log=10)
    with MessageStore.open(tmp_path / "store", config) as store:
        archiver = open_archiver(tmp_path / "store", url_of(tmp_path / "a"), ArchiveSettings(with_last=True))
        for number in range(500):
            store.put_message(Message(topic="orders", body=b"%d" % number * 100, queue_id=number % 2))

        def has_three() -> bool:
            archiver.run_once()
            manifest = newest_or_none(objects_of(tmp_path / "a"))
            return manifest is not None and len(manifest.segments) == 3

        wait_for(has_three, limit_s=60)
        archiver.close()
    data = archived_bytes(objects_of(tmp_path / "a"))
    assert data == log_bytes(tmp_path / "store")[: len(data)]
    assert_sound(objects_of(tmp_path / "a"))
    # Closed, the store's last record is as sure as the others.
    report = archive_store(tmp_path / "store", url_of(tmp_path / "a"), with_last=True)
    with StoreReader.open(tmp_path / "store") as reader:
        assert report.stop > max(
            int(batch.column(0)[-1].as_py())
            for queue_id in (0, 1)
            for batch in reader.read("orders", queue_id, 0, columns=["physicalOffset"])
        )


def test_a_file_that_ends_within_a_batch_waits_for_the_rest_of_the_batch(tmp_path: Path) -> None:
    """Recovery cuts a batch off whose rest never came, from its start: also out of the file before."""
    import pyarrow as pa

    config = MessageStoreConfig(mapped_file_size_commit_log=65536)
    with MessageStore.open(tmp_path / "store", config) as store:
        store.put("orders", b"first")
        with store.transaction("app", version=1) as batch:
            batch.put_messages(pa.table({"topic": ["orders"] * 100, "body": [b"x" * 1000] * 100}))
    second = sorted((tmp_path / "store" / "commitlog").iterdir())[1]
    whole = second.read_bytes()
    # The crash: the second file has the first of the records that belong into it, and no more.
    second.write_bytes(whole[:1500] + bytes(len(whole) - 1500))
    assert archive_store(tmp_path / "store", url_of(tmp_path / "a")).segments == 0
    second.write_bytes(whole)
    assert archive_store(tmp_path / "store", url_of(tmp_path / "a")).segments == 1


def test_an_archive_of_another_store_is_refused(tmp_path: Path) -> None:
    small_store(tmp_path / "one", 300)
    StoreBuilder(tmp_path / "other", log_file_size=FILE_SIZE).append("logs", 0, [b"y" * 100] * 300)
    archive_store(tmp_path / "one", url_of(tmp_path / "a"))
    before = tree(tmp_path / "a")
    with pytest.raises(ArchiveMismatch, match="Archive this store under another prefix"):
        archive_store(tmp_path / "other", url_of(tmp_path / "a"))
    assert tree(tmp_path / "a") == before


def test_another_store_is_refused_where_an_archive_was_only_begun(tmp_path: Path) -> None:
    """Killed between the identity and the first manifest."""
    small_store(tmp_path / "one", 300)
    StoreBuilder(tmp_path / "other", log_file_size=FILE_SIZE).append("logs", 0, [b"y" * 100] * 300)
    archive_store(tmp_path / "one", url_of(tmp_path / "a"))
    shutil.rmtree(tmp_path / "a" / "manifest")
    with pytest.raises(ArchiveMismatch, match="An archive was begun"):
        archive_store(tmp_path / "other", url_of(tmp_path / "a"))
    archive_store(tmp_path / "one", url_of(tmp_path / "a"))
    assert_sound(objects_of(tmp_path / "a"))


def test_a_log_that_lost_its_end_and_grew_again_is_refused(tmp_path: Path) -> None:
    builder = small_store(tmp_path / "store", 300)
    archive_store(tmp_path / "store", url_of(tmp_path / "a"))
    last = newest(objects_of(tmp_path / "a")).segments[-1]
    builder.truncate(last.start + FILE_SIZE // 2 // 91 * 91)
    # To a record's border: the store ends before the middle of a file that is archived whole.
    cut = shutil.copytree(tmp_path / "store", tmp_path / "cut")
    (cut / "abort").touch()  # a crash lost it
    with MessageStore.open(cut, MessageStoreConfig(mapped_file_size_commit_log=FILE_SIZE)) as store:
        for number in range(200):
            store.put("orders", b"other %d" % number)
    with pytest.raises(ArchiveMismatch, match=f"at physical offset {last.start} differ"):
        archive_store(cut, url_of(tmp_path / "a"))


def test_a_part_that_is_not_the_beginning_of_what_follows_is_refused(tmp_path: Path) -> None:
    """A power cut took back a part that was archived, and other records came in its place, but for the last one."""
    builder = small_store(tmp_path / "store", 85)
    archive_store(tmp_path / "store", url_of(tmp_path / "a"), with_last=True)
    part = newest(objects_of(tmp_path / "a")).segments[-1]
    assert 4096 < part.log.size < FILE_SIZE
    add_messages(builder, 100)
    path = tmp_path / "store" / "commitlog" / f"{part.start:020d}"
    data = bytearray(path.read_bytes())
    middle = part.log.size // 2
    data[middle] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArchiveMismatch):
        archive_store(tmp_path / "store", url_of(tmp_path / "a"))


def test_a_mirror_continues_the_archive_of_its_master(tmp_path: Path) -> None:
    builder = small_store(tmp_path / "store", 300)
    archive_store(tmp_path / "store", url_of(tmp_path / "a"))
    add_messages(builder, 300)
    mirror = shutil.copytree(tmp_path / "store", tmp_path / "mirror")
    assert archive_store(mirror, url_of(tmp_path / "a")).added
    assert_sound(objects_of(tmp_path / "a"))


@pytest.mark.parametrize("with_last", [False, True])
def test_files_that_retention_took_before_are_named_and_may_be_left_out(tmp_path: Path, with_last: bool) -> None:
    builder = small_store(tmp_path / "store", 200)
    archive_store(tmp_path / "store", url_of(tmp_path / "a"), with_last=with_last)
    stop = newest(objects_of(tmp_path / "a")).stop
    add_messages(builder, 600)
    builder.delete_log_files(stop // FILE_SIZE + 2)
    first = int(min((tmp_path / "store" / "commitlog").iterdir()).name)
    with pytest.raises(ArchiveGap, match=f"to {first}") as caught:
        archive_store(tmp_path / "store", url_of(tmp_path / "a"))
    assert caught.value.stop == first
    assert archive_store(tmp_path / "store", url_of(tmp_path / "a"), allow_gap=True).added > 3
    report = check_archive(objects_of(tmp_path / "a"), deep=True)
    assert (report.gaps, report.problems) == ([(stop, first)], [])
    add_messages(builder, 100)
    assert archive_store(tmp_path / "store", url_of(tmp_path / "a")).added


@pytest.mark.parametrize("after", [0, 1])
def test_a_part_before_a_gap_may_be_the_last_of_a_group(tmp_path: Path, after: int) -> None:
    builder = small_store(tmp_path / "store", 10)
    while len(list((tmp_path / "store" / "commitlog").iterdir())) < manifests.GROUP_SIZE + after:
        add_messages(builder, 10)
    archive_store(tmp_path / "store", url_of(tmp_path / "a"), with_last=True)
    segments = newest(objects_of(tmp_path / "a")).segments
    assert len(segments) == manifests.GROUP_SIZE + after
    assert segments[-1].log.size < FILE_SIZE
    add_messages(builder, 400)
    builder.delete_log_files(len(segments) + 1)
    assert archive_store(tmp_path / "store", url_of(tmp_path / "a"), allow_gap=True).added > 1
    report = check_archive(objects_of(tmp_path / "a"), deep=True)
    assert (len(report.gaps), report.problems) == (1, [])
    with (
        StoreReader.open(f"archive+{url_of(tmp_path / 'a')}") as archive,
        StoreReader.open(tmp_path / "store") as store,
    ):
        (first,) = [one for one in store.queues("orders") if one.queue_id == 0]
        units = [
            b"".join(part.tobytes() for part in reader.units("orders", 0, first.min_offset, first.min_offset + 20))
            for reader in (archive, store)
        ]
        assert units[0] == units[1]


def test_a_queue_that_comes_after_the_archived_part_of_a_file_after_a_gap_has_its_place(tmp_path: Path) -> None:
    """What is missing before a file counts for the whole file, too, when that takes the place of its part."""
    builder = small_store(tmp_path / "store", 100)
    builder.append("rare", 0, [b"a"])
    add_messages(builder, 100)
    archive_store(tmp_path / "store", url_of(tmp_path / "a"), with_last=True)
    builder.append("rare", 0, [b"b"] * 100)
    add_messages(builder, 100)
    builder.delete_log_files(len(list((tmp_path / "store" / "commitlog").iterdir())) - 1)
    archive_store(tmp_path / "store", url_of(tmp_path / "a"), with_last=True, allow_gap=True)
    last = newest(objects_of(tmp_path / "a")).segments[-1]
    assert last.log.size < FILE_SIZE
    builder.append("rare", 0, [b"c"])
    add_messages(builder, 100)
    archive_store(tmp_path / "store", url_of(tmp_path / "a"))
    report = check_archive(objects_of(tmp_path / "a"), deep=True)
    assert (report.strays, report.problems) == (0, [])


def test_a_store_that_begins_anew_before_the_archive_is_refused(tmp_path: Path) -> None:
    """It shares no file with the archive, and would not be archived until its log is as long as the other one was."""
    small_store(tmp_path / "store", 300, log_start=64 * FILE_SIZE)
    archive_store(tmp_path / "store", url_of(tmp_path / "a"))
    small_store(tmp_path / "again", 300)
    with pytest.raises(ArchiveMismatch, match="of another store"):
        archive_store(tmp_path / "again", url_of(tmp_path / "a"))


def test_a_damaged_queue_offset_does_not_move_the_queue(tmp_path: Path) -> None:
    """One record with an offset far away, alone of its queue in its file: the rest of the queue is found as before."""
    builder = small_store(tmp_path / "store", 100, queues=1)
    builder.append("rare", 0, [b"a"])
    add_messages(builder, 100)
    builder.start_queue_at("rare", 0, 1 << 40)
    builder.append("rare", 0, [b"b"])
    add_messages(builder, 100)
    builder.start_queue_at("rare", 0, 1)
    builder.append("rare", 0, [b"c"])
    add_messages(builder, 100)
    report = archive_store(tmp_path / "store", url_of(tmp_path / "a"))
    first, units = units_of(objects_of(tmp_path / "a"), "rare", 0)
    assert (first, len(units), report.strays) == (0, 2, 1)
    assert_sound(objects_of(tmp_path / "a"))


def test_a_truncated_log_file_is_named(tmp_path: Path) -> None:
    builder = small_store(tmp_path / "store", 300)
    second = sorted((tmp_path / "store" / "commitlog").iterdir())[1]
    second.write_bytes(second.read_bytes()[:100])
    with pytest.raises(FileChanged, match=f"{second} has 100 bytes"):
        archive_store(tmp_path / "store", url_of(tmp_path / "a"))
    assert builder.position > 2 * FILE_SIZE


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("/data/archive", "An archive is s3://BUCKET"),
        ("http://host/x", "An archive is s3://BUCKET"),
        ("s3://", "An archive is s3://BUCKET"),
        ("file://host/x", "An archive is s3://BUCKET"),
        ("s3://user:secret@bucket/x", "no password"),
        ("s3://bucket/x?sig=secret", "no password"),
    ],
)
def test_what_is_not_the_url_of_an_archive_is_refused_without_showing_secrets(
    tmp_path: Path, url: str, said: str
) -> None:
    small_store(tmp_path / "store", 10)
    with pytest.raises(InvalidValue, match=said) as caught:
        archive_store(tmp_path / "store", url)
    assert "secret" not in str(caught.value)


def test_a_missing_store_is_not_archived(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFound):
        archive_store(tmp_path / "nothing", url_of(tmp_path / "a"))
    assert not (tmp_path / "a").exists()


def test_uploads_are_paced() -> None:
    """Bytes a second, over the whole time: a pause is as long as the bytes before it take."""
    now, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    pace = Pace(100, clock=lambda: now[0], sleep=sleep)
    for _ in range(3):
        pace.take(50)
    assert slept == [0.5, 0.5]
    now[0] += 10
    pace.take(50)
    assert slept == [0.5, 0.5]


def test_the_identity_is_never_written_again(tmp_path: Path) -> None:
    builder = small_store(tmp_path / "store", 200)
    archive_store(tmp_path / "store", url_of(tmp_path / "a"))
    identity = (tmp_path / "a" / IDENTITY).read_bytes()
    add_messages(builder, 200)
    archive_store(tmp_path / "store", url_of(tmp_path / "a"))
    assert (tmp_path / "a" / IDENTITY).read_bytes() == identity
    found = manifests.decode_identity(identity, IDENTITY)
    assert found.archive_id == newest(objects_of(tmp_path / "a")).archive_id


def test_an_archive_is_not_made_in_the_directory_of_the_store(tmp_path: Path) -> None:
    small_store(tmp_path / "store", 100)
    (tmp_path / "link").symlink_to(tmp_path / "store")
    before = tree(tmp_path / "store")
    for place in ("store", "store/past", "link/past", "store/commitlog"):
        with pytest.raises(InvalidValue, match="of the store itself"):
            archive_store(tmp_path / "store", url_of(tmp_path / place))
    assert tree(tmp_path / "store") == before


def test_a_url_with_a_fragment_is_not_taken_for_another_directory(tmp_path: Path) -> None:
    small_store(tmp_path / "store", 100)
    with pytest.raises(InvalidValue, match="'#'"):
        archive_store(tmp_path / "store", url_of(tmp_path / "a#b"))
    assert not (tmp_path / "a").exists()


def test_the_address_that_readers_take_is_taken_by_archivers_too(tmp_path: Path) -> None:
    small_store(tmp_path / "store", 100)
    assert archive_store(tmp_path / "store", "archive+" + url_of(tmp_path / "a")).added
    assert check_archive("archive+" + url_of(tmp_path / "a")).problems == []


def test_what_a_killed_archiver_has_put_is_synced_before_it_is_relied_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been killed between a put and its sync."""
    small_store(tmp_path / "store", 100)
    archive_store(tmp_path / "store", url_of(tmp_path / "a"))
    manifest = newest(objects_of(tmp_path / "a"))
    synced: list[str] = []
    sync = ObjectStore.sync

    def record(objects: ObjectStore, name: str) -> None:
        synced.append(name)
        sync(objects, name)

    monkeypatch.setattr(ObjectStore, "sync", record)
    archive_store(tmp_path / "store", url_of(tmp_path / "a"))
    assert synced == [manifest_name(manifest.generation)]
    for one in (tmp_path / "a" / "manifest").iterdir():
        one.unlink()
    archive_store(tmp_path / "store", url_of(tmp_path / "a"))
    assert {ref.name for ref in manifest.objects()} <= set(synced)
