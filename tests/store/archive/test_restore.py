"""Restore: the store of an archive opens, and has the log's bytes and the messages of the store that was archived."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlog_store import MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.archive.archiver import archive_store
from commitlog_store.archive.generations import newest
from commitlog_store.archive.restore import restore_store
from commitlog_store.errors import ArchiveDamaged, ArchiveGap, ArchiveNotFound, InvalidValue, NotAStore
from commitlog_store.owned_store.opening import StoreOpening
from tests.store.archive.archives import (
    FILE_SIZE,
    add_messages,
    assert_same_messages,
    log_bytes,
    objects_of,
    small_store,
    url_of,
)
from tests.support.clean_store import assert_clean


@pytest.mark.parametrize("name", ["golden_533", "golden_498"])
def test_a_golden_store_comes_back_byte_for_byte(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    store: Path = request.getfixturevalue(name)
    archive_store(store, url_of(tmp_path / "a"), with_last=True)
    report = restore_store(url_of(tmp_path / "a"), tmp_path / "restored")
    restored = log_bytes(tmp_path / "restored")
    assert restored[: report.stop] == log_bytes(store)[: report.stop]
    assert not any(restored[report.stop :])
    if name == "golden_533":  # of the killed broker's log the last record is left out
        assert restored == log_bytes(store)
        assert_same_messages(store, tmp_path / "restored")


def test_a_restored_store_takes_messages(tmp_path: Path) -> None:
    small_store(tmp_path / "store", 200)
    archive_store(tmp_path / "store", url_of(tmp_path / "a"), with_last=True)
    restore_store(url_of(tmp_path / "a"), tmp_path / "restored")
    with MessageStore.open(tmp_path / "restored", MessageStoreConfig(mapped_file_size_commit_log=FILE_SIZE)) as store:
        before = store.reader().queue_info("orders", 0).max_offset
        assert store.put("orders", b"new", queue_id=0).queue_offset == before


def test_restored_queues_have_files_of_the_size_that_the_store_had(tmp_path: Path) -> None:
    config = MessageStoreConfig.embedded(mapped_file_size_commit_log=FILE_SIZE, mapped_file_size_consume_queue=2000)
    with MessageStore.open(tmp_path / "store", config) as store:
        for number in range(150):
            store.put("orders", b"%d" % number, queue_id=0)
    archive_store(tmp_path / "store", url_of(tmp_path / "a"), with_last=True)
    restore_store(url_of(tmp_path / "a"), tmp_path / "restored")
    files = sorted((tmp_path / "restored" / "consumequeue" / "orders" / "0").iterdir())
    assert [file.name for file in files[:2]] == [f"{0:020d}", f"{2000:020d}"]
    with MessageStore.open(tmp_path / "restored", config) as store:
        assert store.put("orders", b"new", queue_id=0).queue_offset == 150


def test_a_restored_store_has_the_settings_of_mqadmin(tmp_path: Path) -> None:
    small_store(tmp_path / "store", 200)
    settings = b'{"configTable":{"ORDER_TOPIC_CONFIG":{"orders":"broker-a:4"}}}'
    (tmp_path / "store" / "config" / "kvConfig.json").write_bytes(settings)
    archive_store(tmp_path / "store", url_of(tmp_path / "a"))
    restore_store(url_of(tmp_path / "a"), tmp_path / "restored")
    assert (tmp_path / "restored" / "config" / "kvConfig.json").read_bytes() == settings


def test_a_batch_of_which_the_archive_has_the_beginning_is_left_out(tmp_path: Path) -> None:
    """The ledger, archived beside, says that the batch was committed, and the archived log ends before its end."""
    url = f"file://{tmp_path / 'archive'}"
    with MessageStore.open(tmp_path / "store", MessageStoreConfig(mapped_file_size_commit_log=16 << 10)) as store:
        for version in (1, 2):
            with store.transaction("loader", version) as batch:
                batch.put_messages([{"topic": "orders", "body": bytes(1_000)}] * 10 * version)
        archive_store(store.path, url)
    restore_store(url, tmp_path / "restored")
    with StoreReader.open(tmp_path / "restored") as reader:
        assert [one.batch.version for one in reader.batches()] == [1]
        assert sum(map(len, reader.scan("orders"))) == 10
    assert_clean(tmp_path / "restored")


def test_since_leaves_out_the_files_before(tmp_path: Path) -> None:
    small_store(tmp_path / "store", 400)
    archive_store(tmp_path / "store", url_of(tmp_path / "a"))
    third = newest(objects_of(tmp_path / "a")).segments[2]
    report = restore_store(url_of(tmp_path / "a"), tmp_path / "r", since_ms=third.first_timestamp_ms)
    assert report.start == third.start
    assert log_bytes(tmp_path / "r") == log_bytes(tmp_path / "store")[third.start : report.stop]
    with pytest.raises(InvalidValue, match="exists"):
        restore_store(url_of(tmp_path / "a"), tmp_path / "r")


def test_an_interrupted_restore_continues_with_the_files_that_are_missing(tmp_path: Path) -> None:
    small_store(tmp_path / "store", 400)
    archive_store(tmp_path / "store", url_of(tmp_path / "a"))
    segments = newest(objects_of(tmp_path / "a")).segments

    class Interrupted(Exception):
        pass

    def interrupt(done: int, _total: int) -> None:
        if done == 3 * FILE_SIZE:
            raise Interrupted

    with pytest.raises(Interrupted):
        restore_store(url_of(tmp_path / "a"), tmp_path / "r", progress=interrupt)
    assert not (tmp_path / "r").exists()
    # One of them is damaged since, and a file is there that does not belong to the archive.
    damaged = tmp_path / "r.restoring" / "commitlog" / f"{segments[1].start:020d}"
    damaged.write_bytes(bytes(FILE_SIZE))
    (tmp_path / "r.restoring" / "commitlog" / f"{1 << 40:020d}").write_bytes(b"")
    report = restore_store(url_of(tmp_path / "a"), tmp_path / "r")
    assert report.downloaded == len(segments) - 2
    assert log_bytes(tmp_path / "r") == log_bytes(tmp_path / "store")[: report.stop]


def test_a_changed_object_is_named_and_nothing_gets_the_name_of_a_store(tmp_path: Path) -> None:
    small_store(tmp_path / "store", 400)
    archive_store(tmp_path / "store", url_of(tmp_path / "a"))
    segment = newest(objects_of(tmp_path / "a")).segments[1]
    path = tmp_path / "a" / segment.log.name
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArchiveDamaged, match=segment.log.name):
        restore_store(url_of(tmp_path / "a"), tmp_path / "r")
    path.unlink()
    with pytest.raises(ArchiveDamaged, match="missing"):
        restore_store(url_of(tmp_path / "a"), tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_a_log_with_a_gap_is_restored_after_it(tmp_path: Path) -> None:
    builder = small_store(tmp_path / "store", 200)
    stop = archive_store(tmp_path / "store", url_of(tmp_path / "a")).stop
    add_messages(builder, 600)
    builder.delete_log_files(stop // FILE_SIZE + 2)
    archive_store(tmp_path / "store", url_of(tmp_path / "a"), allow_gap=True)
    with pytest.raises(ArchiveGap, match="since_ms=") as caught:
        restore_store(url_of(tmp_path / "a"), tmp_path / "r")
    since = int(str(caught.value).partition("since_ms=")[2].partition(" ")[0])
    assert restore_store(url_of(tmp_path / "a"), tmp_path / "r", since_ms=since).start == caught.value.stop


def test_nothing_is_restored_without_an_archive(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for url in (url_of(tmp_path / "a"), url_of(tmp_path / "nothing")):
        with pytest.raises(ArchiveNotFound):
            restore_store(url, tmp_path / "r")
    assert not (tmp_path / "r.restoring").exists()


def test_nothing_is_restored_into_a_directory_that_a_store_keeps_for_itself(tmp_path: Path) -> None:
    small_store(tmp_path / "store", 200)
    archive_store(tmp_path / "store", url_of(tmp_path / "a"))
    with pytest.raises(NotAStore, match=f"is within the store {tmp_path}/store, in a directory that it keeps for"):
        restore_store(url_of(tmp_path / "a"), tmp_path / "store" / "commitlog" / "restored")
    assert all(file.is_file() for file in (tmp_path / "store" / "commitlog").iterdir())


def test_a_file_that_an_interrupted_restore_of_another_archive_left_is_not_taken(tmp_path: Path) -> None:
    """It begins with the same bytes, and has more records."""
    builder = small_store(tmp_path / "store", 10)
    archive_store(tmp_path / "store", url_of(tmp_path / "a"), with_last=True)
    add_messages(builder, 10)
    archive_store(tmp_path / "store", url_of(tmp_path / "b"), with_last=True)
    restore_store(url_of(tmp_path / "b"), tmp_path / "longer")
    left = tmp_path / "r.restoring" / "commitlog"
    left.mkdir(parents=True)
    (left / f"{0:020d}").write_bytes((tmp_path / "longer" / "commitlog" / f"{0:020d}").read_bytes())
    report = restore_store(url_of(tmp_path / "a"), tmp_path / "r")
    assert not any(log_bytes(tmp_path / "r")[report.stop :])


def test_a_restore_that_was_killed_while_it_built_the_queues_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_store(tmp_path / "store", 200)
    archive_store(tmp_path / "store", url_of(tmp_path / "a"), with_last=True)

    def kill(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(StoreOpening, "run", kill)
        with pytest.raises(KeyboardInterrupt):
            restore_store(url_of(tmp_path / "a"), tmp_path / "r")
    report = restore_store(url_of(tmp_path / "a"), tmp_path / "r")
    assert report.stop == newest(objects_of(tmp_path / "a")).stop
    assert_same_messages(tmp_path / "store", tmp_path / "r")
    assert not (tmp_path / "r" / "restored.json").exists()
    with pytest.raises(InvalidValue, match="exists"):
        restore_store(url_of(tmp_path / "a"), tmp_path / "r")
