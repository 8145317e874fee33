"""Archives of some topics: their messages in a log of their own, nothing twice and nothing missing after a kill."""

from __future__ import annotations

import json
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from commitlog_store import Message, MessageStore, MessageStoreConfig, StoreReader, archive_store
from commitlog_store.archive import selected_log
from commitlog_store.archive.archiver import ArchiveReport, ArchiveSettings, open_archiver
from commitlog_store.archive.check import check_archive
from commitlog_store.archive.gc import gc_archive
from commitlog_store.archive.generations import newest, newest_or_none
from commitlog_store.archive.holding import archive_hold
from commitlog_store.archive.manifest import SELECTION_VERSION, Manifest, ObjectRef
from commitlog_store.archive.restore import download, restore_store
from commitlog_store.archive.selected_copy import SelectedCopy
from commitlog_store.archive.selected_log import SelectedLog
from commitlog_store.archive.selected_topics import SelectedTopics
from commitlog_store.columnar.columns import ALL_COLUMNS
from commitlog_store.errors import ArchiveGap, ArchiveMismatch, InvalidValue, StoreLocked, TargetFailed
from commitlog_store.files import disk
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.format.sys_flag import TRANSACTION_COMMIT_TYPE
from commitlog_store.groups.consumer_offset import ConsumerOffsets
from commitlog_store.object_storage.object_store import ObjectStore
from commitlog_store.paths import BATCH_LEDGER, BATCH_TOPIC
from tests.store.archive.archives import (
    FILE_SIZE,
    add_messages,
    archived_bytes,
    assert_sound,
    objects_of,
    small_store,
    tree,
    url_of,
)
from tests.support.clean_store import assert_clean
from tests.support.store_builder import StoreBuilder

# Of a message: the place in the log, and what is made of it.
_PLACES = ("physicalOffset", "msgId", "preparedTransactionOffset")
_SAME = [column for column in ALL_COLUMNS if column not in _PLACES]


def _archive(tmp_path: Path, topics: str | Sequence[str] = "orders", **settings: Any) -> ArchiveReport:
    return archive_store(tmp_path / "store", url_of(tmp_path / "a"), topics=topics, **settings)


def _messages(
    store: str | Path, topics: Sequence[str], columns: Sequence[str] = _SAME
) -> dict[tuple[str, int], list[Any]]:
    """All messages of topics that a store or an archive has, by queue."""
    with StoreReader.open(store) as reader:
        return {
            (topic, queue.queue_id): [
                row
                for batch in reader.read(topic, queue.queue_id, queue.min_offset, columns=list(columns))
                for row in batch.to_pylist()
            ]
            for topic in topics
            for queue in (reader.queues(topic) if topic in reader.topics() else [])
        }


def _archived(tmp_path: Path) -> str:
    return f"archive+{url_of(tmp_path / 'a')}"


def _topics(store: str | Path) -> list[str]:
    with StoreReader.open(store) as reader:
        return reader.topics()


@pytest.mark.parametrize("name", ["golden_533", "golden_498"])
def test_the_archive_has_the_messages_of_the_topics_and_restore_makes_a_store_of_them(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    store: Path = request.getfixturevalue(name)
    wanted = [topic for topic in _topics(store) if topic in SelectedTopics("*")][::2]
    report = archive_store(store, url_of(tmp_path / "a"), topics=wanted, with_last=True)
    assert report.strays == 0
    assert_sound(objects_of(tmp_path / "a"))
    assert _topics(_archived(tmp_path)) == wanted
    expected = _messages(store, wanted)
    if name == "golden_498":  # of the killed broker's log the last record is left out
        expected = {queue: rows for queue, rows in expected.items() if queue in _messages(_archived(tmp_path), wanted)}
    assert _messages(_archived(tmp_path), wanted) == expected
    restore_store(url_of(tmp_path / "a"), tmp_path / "restored")
    assert _messages(tmp_path / "restored", wanted) == expected
    assert_clean(tmp_path / "restored")
    with MessageStore.open(
        tmp_path / "restored",
        MessageStoreConfig(mapped_file_size_commit_log=newest(objects_of(tmp_path / "a")).file_size),
    ) as owner:
        before = owner.reader().queue_info(wanted[0], 0).max_offset
        assert owner.put(wanted[0], b"new", queue_id=0).queue_offset == before


def test_many_runs_make_the_log_that_one_run_makes(tmp_path: Path) -> None:
    builder = small_store(tmp_path / "store", 40)
    for step in range(12):
        _archive(tmp_path, with_last=bool(step % 2), work_dir=tmp_path / "work" if step % 3 else None)
        assert_sound_or_missing(tmp_path)
        add_messages(builder, 10 + 17 * step)
    _archive(tmp_path, with_last=True)
    archive_store(tmp_path / "store", url_of(tmp_path / "once"), topics="orders", with_last=True)
    assert archived_bytes(objects_of(tmp_path / "a")) == archived_bytes(objects_of(tmp_path / "once"))
    assert _messages(_archived(tmp_path), ["orders"]) == _messages(tmp_path / "store", ["orders"])


def assert_sound_or_missing(tmp_path: Path) -> None:
    if newest_or_none(objects_of(tmp_path / "a")) is not None:
        assert_sound(objects_of(tmp_path / "a"))


def test_a_run_has_the_messages_of_all_closed_files_though_its_own_file_is_not_closed(tmp_path: Path) -> None:
    small_store(tmp_path / "store", 100)
    report = _archive(tmp_path)
    assert report.stop % FILE_SIZE
    assert report.source_stop % FILE_SIZE == 0
    every = _messages(tmp_path / "store", ["orders"], ["body", "physicalOffset"])
    for queue, found in _messages(_archived(tmp_path), ["orders"], ["body"]).items():
        assert [row["body"] for row in found] == [
            row["body"] for row in every[queue] if row["physicalOffset"] < report.source_stop
        ]
    assert _archive(tmp_path).generation == report.generation, "nothing has come since"


class _Killed(BaseException):
    pass


def _killed_at(count: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **settings: Any) -> bool:
    """Run an archiver that ends at one of its writes to disk, of the archive's objects or of its work directory."""
    calls = 0

    def failing(real: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > count:
                raise _Killed
            return real(*arguments, **options)

        return call

    with monkeypatch.context() as patch:
        for name in ("write_at", "truncate", "unlink", "rename", "create_file"):
            patch.setattr(disk, name, failing(getattr(disk, name)))
        try:
            _archive(tmp_path, with_last=True, **settings)
        except _Killed:
            return True
        return False


@pytest.mark.parametrize("work_dir", ["work", None])
def test_a_run_that_ends_at_any_write_is_continued(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, work_dir: str | None
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    builder = small_store(tmp_path / "store", 300)
    count, runs = 3, 0
    while _killed_at(count, monkeypatch, tmp_path, work_dir=work_dir and tmp_path / work_dir):
        runs += 1
        count += runs % 2 * 2
        add_messages(builder, 20)
        assert_sound_or_missing(tmp_path)
    assert runs > 5
    archive_store(tmp_path / "store", url_of(tmp_path / "once"), topics="orders", with_last=True)
    assert archived_bytes(objects_of(tmp_path / "a")) == archived_bytes(objects_of(tmp_path / "once"))
    gc_archive(objects_of(tmp_path / "a"), older_than_s=-60)
    assert_sound(objects_of(tmp_path / "a"))


def test_two_archivers_at_once_make_one_archive(tmp_path: Path) -> None:
    small_store(tmp_path / "store", 1500)
    failures: list[BaseException] = []

    def run() -> None:
        try:
            _archive(tmp_path, with_last=True)
        except BaseException as error:  # noqa: BLE001 - the test fails with it
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert_sound(objects_of(tmp_path / "a"))
    assert _messages(_archived(tmp_path), ["orders"]) == _messages(tmp_path / "store", ["orders"])


def test_a_part_in_the_work_directory_spares_its_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = small_store(tmp_path / "store", 30)
    _archive(tmp_path, with_last=True, work_dir=tmp_path / "work")
    add_messages(builder, 20)
    downloads: list[str] = []

    def counted(objects: ObjectStore, ref: ObjectRef) -> Iterator[bytes]:
        downloads.append(ref.name)
        return download(objects, ref)

    monkeypatch.setattr(selected_log, "download", counted)
    _archive(tmp_path, with_last=True, work_dir=tmp_path / "work")
    assert not downloads
    (file,) = (tmp_path / "work" / "commitlog").iterdir()
    data = bytearray(file.read_bytes())
    data[200] ^= 1
    file.write_bytes(data)
    add_messages(builder, 20)
    _archive(tmp_path, with_last=True, work_dir=tmp_path / "work")
    assert len(downloads) == 1
    assert _messages(_archived(tmp_path), ["orders"]) == _messages(tmp_path / "store", ["orders"])


def test_a_temporary_work_directory_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    small_store(tmp_path / "store", 300)
    _archive(tmp_path, with_last=True)
    assert not list((tmp_path / "temporary").iterdir())


def test_other_work_directories_are_refused(tmp_path: Path) -> None:
    small_store(tmp_path / "store", 30)
    before = tree(tmp_path / "store")
    with pytest.raises(InvalidValue, match=r"is in .*, a directory of the store or of the archive"):
        _archive(tmp_path, work_dir=tmp_path / "store" / "work")
    with pytest.raises(InvalidValue, match=r"is in .*, a directory of the store or of the archive"):
        _archive(tmp_path, work_dir=tmp_path / "store")
    with pytest.raises(InvalidValue, match=r"is in .*, a directory of the store or of the archive"):
        _archive(tmp_path, work_dir=tmp_path / "a")
    small_store(tmp_path / "other", 30)
    with pytest.raises(InvalidValue, match="is not empty, and was not made by an archiver"):
        _archive(tmp_path, work_dir=tmp_path / "other")
    assert tree(tmp_path / "store") == before
    url, topics = url_of(tmp_path / "a"), SelectedTopics("orders")
    archiver = open_archiver(tmp_path / "store", url, ArchiveSettings(topics=topics, work_dir=str(tmp_path / "work")))
    with pytest.raises(StoreLocked, match=r"in use by another archiver, process [0-9]+\. Give each one"):
        _archive(tmp_path, work_dir=tmp_path / "work")
    archiver.close()
    _archive(tmp_path, work_dir=tmp_path / "work")


def test_a_work_directory_that_has_an_archive_is_refused(tmp_path: Path) -> None:
    """Also one that an archiver made, and in which an archive was made later: its objects have names like its files."""
    builder = small_store(tmp_path / "store", 300)
    work = tmp_path / "work"
    _archive(tmp_path, work_dir=work)
    archive_store(tmp_path / "store", url_of(work))
    archive_store(tmp_path / "store", url_of(tmp_path / "around" / "commitlog"))
    (tmp_path / "around" / "work-directory").touch()
    (tmp_path / "link").symlink_to(tmp_path / "around")
    before = tree(work), tree(tmp_path / "around")
    add_messages(builder, 100)
    with pytest.raises(InvalidValue, match=r"work has an archive\. Give another directory"):
        _archive(tmp_path, work_dir=work)
    for place in ("around", "link"):
        with pytest.raises(InvalidValue, match=f"{place} contains .*around/commitlog, a directory of the store or of"):
            archive_store(
                *(tmp_path / "store", url_of(tmp_path / "around" / "commitlog")),
                topics="orders",
                work_dir=tmp_path / place,
            )
    assert (tree(work), tree(tmp_path / "around")) == before


def test_only_files_that_an_archiver_makes_are_removed_from_its_work_directory(tmp_path: Path) -> None:
    builder = small_store(tmp_path / "store", 300)
    work = tmp_path / "work"
    (work / "lost+found").mkdir(parents=True)
    _archive(tmp_path, work_dir=work)
    others = [work / "commitlog" / f"{0:020d}-0123456789abcdef", work / "config" / f"{0:020d}-0123456789abcdef"]
    for path in others:
        path.touch()
    stale = [work / "commitlog" / f"{FILE_SIZE * 99:020d}", work / "config" / "delayOffset.json"]
    for path in stale:
        path.touch()
    add_messages(builder, 300)
    _archive(tmp_path, work_dir=work)
    assert all(path.exists() for path in others)
    assert not any(path.exists() for path in stale)


def test_a_work_directory_that_is_full_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_store(tmp_path / "store", 300)

    def full(descriptor: int, data: Any, offset: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk, "write_at", full)
    with pytest.raises(TargetFailed, match=r"Cannot write .*work.*No space left.*--work-dir"):
        _archive(tmp_path, work_dir=tmp_path / "work")


def test_a_run_after_a_full_disk_archives_no_record_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full when the file's filler is written: its records are in the file."""
    small_store(tmp_path / "store", 150)
    work = str(tmp_path / "work")
    settings = ArchiveSettings(topics=SelectedTopics("orders"), with_last=True, work_dir=work)
    archiver = open_archiver(tmp_path / "store", url_of(tmp_path / "a"), settings)

    def full(copy: SelectedCopy) -> None:
        raise TargetFailed("write", path=work, cause=OSError(28, "No space left on device"))

    with monkeypatch.context() as patch:
        patch.setattr(SelectedCopy, "fill", full)
        with pytest.raises(TargetFailed):
            archiver.run_once()
    while not archiver.run_once():
        pass
    archiver.close()
    archive_store(tmp_path / "store", url_of(tmp_path / "once"), topics="orders", with_last=True)
    assert archived_bytes(objects_of(tmp_path / "a")) == archived_bytes(objects_of(tmp_path / "once"))


def test_the_last_file_is_read_once_in_its_time_though_it_has_nothing_of_the_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = small_store(tmp_path / "store", 30)
    builder.append("paid", 0, [b"other"])
    settings = ArchiveSettings(topics=SelectedTopics("refunds"), with_last=True, last_every_s=60)
    archiver = open_archiver(tmp_path / "store", url_of(tmp_path / "a"), settings)
    asked = []
    take = SelectedLog.take

    def noted(log: SelectedLog, newest: Manifest | None, *, with_last: bool) -> bool:
        asked.append(with_last)
        return take(log, newest, with_last=with_last)

    now = 1000.0
    monkeypatch.setattr(SelectedLog, "take", noted)
    monkeypatch.setattr("time.monotonic", lambda: now)
    for _ in range(3):
        assert archiver.run_once()
    now += 61
    assert archiver.run_once()
    archiver.close()
    assert asked == [True, False, False, True]


@pytest.mark.parametrize("gone", ["", "commitlog", "config", f"commitlog/{0:020d}"])
@pytest.mark.parametrize("work_dir", ["work", None])
def test_a_work_directory_that_a_cleaner_took_is_made_again(
    gone: str, work_dir: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    builder = small_store(tmp_path / "store", 30)
    settings = ArchiveSettings(
        topics=SelectedTopics("orders"), with_last=True, last_every_s=0, work_dir=work_dir and str(tmp_path / work_dir)
    )
    archiver = open_archiver(tmp_path / "store", url_of(tmp_path / "a"), settings)
    while not archiver.run_once():
        pass
    (place,) = [tmp_path / work_dir] if work_dir else (tmp_path / "temporary").iterdir()
    if gone.endswith("0"):
        (place / gone).unlink()
    else:
        shutil.rmtree(place / gone)
    add_messages(builder, 30)
    while not archiver.run_once():
        pass
    archiver.close()
    assert not list((tmp_path / "temporary").iterdir())
    assert _messages(_archived(tmp_path), ["orders"]) == _messages(tmp_path / "store", ["orders"])


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ("orders", "paid", "has the topics 'orders' alone. Name the same ones"),
        ("orders", ["orders", "paid"], "has the topics 'orders' alone"),
        ("orders", None, "has the topics 'orders' alone"),
        (None, "orders", "has all topics of its store"),
    ],
)
def test_a_run_with_other_topics_is_refused(tmp_path: Path, first: Any, second: Any, said: str) -> None:
    small_store(tmp_path / "store", 300)
    _archive(tmp_path, first)
    before = tree(tmp_path / "a")
    with pytest.raises(ArchiveMismatch, match=said):
        _archive(tmp_path, second, with_last=True)
    assert tree(tmp_path / "a") == before
    again = _archive(tmp_path, first and [first, first], with_last=True)
    assert again.added


@pytest.mark.parametrize("patterns", ["", [], [""], [1], 5])
def test_topics_are_names_or_patterns(tmp_path: Path, patterns: Any) -> None:
    small_store(tmp_path / "store", 10)
    with pytest.raises(InvalidValue, match="topics is a name, a pattern, or a list"):
        _archive(tmp_path, patterns)


def test_names_and_patterns_without_a_topic_are_reported(tmp_path: Path) -> None:
    small_store(tmp_path / "store", 40)
    (tmp_path / "store" / "consumequeue" / "late" / "0").mkdir(parents=True)
    wanted = ["ord*", "orders", "order", "l*", "re?"]
    assert _archive(tmp_path, wanted).unmatched == ("order", "re?")
    assert archive_store(tmp_path / "store", url_of(tmp_path / "all")).unmatched == ()
    shutil.rmtree(tmp_path / "store" / "consumequeue")
    assert _archive(tmp_path, wanted).unmatched == (), "its topics are not known"


def test_a_work_directory_without_topics_is_refused(tmp_path: Path) -> None:
    small_store(tmp_path / "store", 10)
    with pytest.raises(InvalidValue, match="work_dir is for archives of some topics"):
        archive_store(tmp_path / "store", url_of(tmp_path / "a"), work_dir=tmp_path / "work")
    assert not (tmp_path / "a").exists()


def test_another_store_is_refused(tmp_path: Path) -> None:
    small_store(tmp_path / "store", 300)
    _archive(tmp_path, with_last=True)
    other = small_store(tmp_path / "other", 20)
    with pytest.raises(ArchiveMismatch, match="whose last one begins before that"):
        archive_store(other.path, url_of(tmp_path / "a"), topics="orders")
    other.now_ms += 5
    add_messages(other, 400)
    with pytest.raises(ArchiveMismatch, match="lost its end and grew again"):
        archive_store(other.path, url_of(tmp_path / "a"), topics="orders")


def test_it_is_neither_a_part_of_a_history_nor_does_retention_wait_for_it(tmp_path: Path) -> None:
    small_store(tmp_path / "store", 300)
    _archive(tmp_path)
    with pytest.raises(ArchiveMismatch, match="'orders' alone, at other physical offsets than their store: it cannot"):
        StoreReader.open(tmp_path / "store", archive=_archived(tmp_path))
    with pytest.raises(ArchiveMismatch, match="retention that waits for it would delete messages that no archive has"):
        archive_hold(StorePaths.of(str(tmp_path / "store")), url_of(tmp_path / "a"), at_most_ms=None)


def test_an_earlier_version_does_not_add_other_topics(tmp_path: Path) -> None:
    small_store(tmp_path / "store", 300)
    _archive(tmp_path, "*")
    assert newest(objects_of(tmp_path / "a")).version == SELECTION_VERSION == 3
    archive_store(tmp_path / "store", url_of(tmp_path / "all"))
    assert newest(objects_of(tmp_path / "all")).version == 2


def test_batches_lose_their_frames_and_keep_their_messages(tmp_path: Path) -> None:
    config = MessageStoreConfig(mapped_file_size_commit_log=16 << 10, schedule_enable=False)
    with MessageStore.open(tmp_path / "store", config) as owner:
        for version in range(1, 8):
            rows = [
                {"topic": "orders" if row % 3 else "late", "queueId": row % 2, "body": b"%d " % version + bytes(900)}
                for row in range(7 * version)
            ]
            with owner.transaction("loader", version) as batch:
                batch.put_messages(pa.Table.from_pylist(rows))
            _archive(tmp_path, ["*", BATCH_TOPIC])
            _assert_whole_batches(tmp_path, lambda number: 7 * number)
    _archive(tmp_path, ["*", BATCH_TOPIC], with_last=True)
    assert _messages(_archived(tmp_path), ["late", "orders"]) == _messages(tmp_path / "store", ["late", "orders"])
    assert BATCH_TOPIC not in _topics(_archived(tmp_path))
    restore_store(url_of(tmp_path / "a"), tmp_path / "restored")
    assert_clean(tmp_path / "restored")
    assert _messages(tmp_path / "restored", ["orders"]) == _messages(tmp_path / "store", ["orders"])
    with MessageStore.open(tmp_path / "restored", config) as restored, restored.transaction("loader", 7) as batch:
        batch.put_messages(pa.table({"topic": ["orders"], "body": [b"again"]}))


def _assert_whole_batches(tmp_path: Path, size: Callable[[int], int]) -> int:
    """Of each batch that the archive has a message of, all are there; how many messages."""
    if newest_or_none(objects_of(tmp_path / "a")) is None:
        return 0
    found = _messages(_archived(tmp_path), _topics(_archived(tmp_path)), ["body"])
    counted = Counter(int(row["body"].split()[0]) for rows in found.values() for row in rows)
    assert counted == {number: size(number) for number in counted}
    return counted.total()


def test_a_batch_is_shown_once_all_of_it_is_archived(tmp_path: Path) -> None:
    """Also between the generations of one run, and after a run that was killed there: batches of several files."""
    sizes = (10, 20, 3, 45, 1, 30, 2, 2, 18, 50)
    _store_of_batches(tmp_path / "store", sizes)
    shown = []
    for _ in _steps(tmp_path):
        shown.append(_assert_whole_batches(tmp_path, lambda number: sizes[number]))
        assert_sound(objects_of(tmp_path / "a"))
    assert len(shown) > 5
    assert shown == sorted(shown)
    assert newest(objects_of(tmp_path / "a")).open_batch is None
    _archive(tmp_path, ["orders", "late"], with_last=True)
    assert _assert_whole_batches(tmp_path, lambda number: sizes[number]) == sum(sizes)


def test_a_restored_store_has_none_of_a_batch_within_which_the_archive_ends(tmp_path: Path) -> None:
    """It has no frame of it, by which recovery would cut it off. The batch may begin with the archive, too."""
    sizes = (20, 3, 45, 1)
    _store_of_batches(tmp_path / "store", sizes)
    ends = []
    for step in _steps(tmp_path):
        manifest = newest(objects_of(tmp_path / "a"))
        if manifest.open_batch is None:
            continue
        ends.append(manifest.open_batch[0])
        target = tmp_path / f"restored{step}"
        report = restore_store(url_of(tmp_path / "a"), target)
        assert (report.start, report.stop) == (0, manifest.open_batch[0])
        assert report.files == len(list((target / "commitlog").iterdir())) == max(-(-report.stop // (16 << 10)), 1)
        assert _messages(target, _topics(target)) == {
            queue: rows for queue, rows in _messages(_archived(tmp_path), _topics(target)).items() if rows
        }
        assert_clean(target)
    assert 0 in ends
    assert len(set(ends)) < len(ends), "one batch fills several files"


def _store_of_batches(path: Path, sizes: Sequence[int]) -> None:
    """A store of batches with so many messages of orders and late, and as many of another topic."""
    config = MessageStoreConfig(mapped_file_size_commit_log=16 << 10, schedule_enable=False)
    with MessageStore.open(path, config) as owner:
        for version, size in enumerate(sizes):
            rows = [
                {"topic": "orders" if row % 4 else "late", "queueId": row % 3, "body": b"%d " % version + bytes(1000)}
                for row in range(2 * size)
            ]
            rows[::2] = [{**row, "topic": "other"} for row in rows[::2]]
            with owner.transaction("loader", version) as batch:
                batch.put_messages(pa.Table.from_pylist(rows))


def _steps(tmp_path: Path) -> Iterator[int]:
    """Each step of an archiver, by one of its own."""
    topics = SelectedTopics(["orders", "late"])
    for step in range(100):
        archiver = open_archiver(tmp_path / "store", url_of(tmp_path / "a"), ArchiveSettings(topics=topics))
        pause = archiver.run_once()
        archiver.close()
        if pause:
            return
        yield step


def test_beside_an_owner_that_puts_and_commits(tmp_path: Path) -> None:
    config = MessageStoreConfig(mapped_file_size_commit_log=32 << 10)
    stopped = threading.Event()
    with MessageStore.open(tmp_path / "store", config) as owner:

        def put() -> None:
            for number in range(200):
                owner.put("orders", b"%d" % number, queue_id=0)
                with owner.transaction("loader", number) as batch:
                    batch.put_messages(pa.table({"topic": ["late", "orders", "paid"], "body": [b"%d" % number] * 3}))
            stopped.set()

        thread = threading.Thread(target=put)
        thread.start()
        while not stopped.is_set():
            _archive(tmp_path, ["orders", "late"], with_last=True, work_dir=tmp_path / "work")
        thread.join()
        owner.dispatch()  # a batch that is being dispatched is not archived yet
        _archive(tmp_path, ["orders", "late"], with_last=True)
    assert_sound(objects_of(tmp_path / "a"))
    assert check_archive(objects_of(tmp_path / "a")).strays == 0
    found = _messages(_archived(tmp_path), ["late", "orders"])
    assert found == _messages(tmp_path / "store", ["late", "orders"])
    assert sum(map(len, found.values())) == 3 * 200


def test_a_place_in_the_stores_log_that_a_message_names_is_none(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", MessageStoreConfig(mapped_file_size_commit_log=FILE_SIZE)) as owner:
        owner.put("paid", b"one", queue_id=0)
        owner.half_messages.commit(
            owner.half_messages.prepare(Message(topic="orders", body=b"two", queue_id=0), "payments")
        )
    (before,) = _messages(tmp_path / "store", ["orders"], ALL_COLUMNS)["orders", 0]
    assert before["preparedTransactionOffset"] > 0
    _archive(tmp_path, with_last=True)
    (after,) = _messages(_archived(tmp_path), ["orders"], ALL_COLUMNS)["orders", 0]
    assert (after["preparedTransactionOffset"], after["physicalOffset"]) == (0, 0)
    assert after["sysFlag"] == before["sysFlag"]
    assert after["sysFlag"] & TRANSACTION_COMMIT_TYPE
    assert _topics(_archived(tmp_path)) == ["orders"], "half messages are not of the topic"


def test_files_that_retention_took_are_a_gap(tmp_path: Path) -> None:
    builder = small_store(tmp_path / "store", 200)
    stop = _archive(tmp_path).source_stop
    add_messages(builder, 400)
    builder.delete_log_files(stop // FILE_SIZE + 2)
    with pytest.raises(ArchiveGap, match="retention deleted them before") as found:
        _archive(tmp_path)
    assert (found.value.start, found.value.stop) == (stop, stop + 2 * FILE_SIZE)
    report = _archive(tmp_path, allow_gap=True)
    checked = check_archive(objects_of(tmp_path / "a"), deep=True)
    assert (checked.problems, checked.strays, checked.topics) == ([], 0, ("orders",))
    ((before, after),) = checked.gaps
    assert after % FILE_SIZE == 0
    assert after - before >= 2 * FILE_SIZE
    assert report.strays == 0
    add_messages(builder, 100)
    assert _archive(tmp_path, with_last=True).source_stop == builder.position
    with StoreReader.open(tmp_path / "store") as reader, StoreReader.open(_archived(tmp_path)) as archived:
        for queue in reader.queues("orders"):
            assert archived.queue_info("orders", queue.queue_id).max_offset == queue.max_offset
            part = next(iter(reader.read("orders", queue.queue_id, queue.min_offset, columns=_SAME)))
            same = next(iter(archived.read("orders", queue.queue_id, queue.min_offset, columns=_SAME)))
            assert part.slice(0, 5).to_pylist() == same.slice(0, 5).to_pylist()
    since = newest(objects_of(tmp_path / "a")).segments[-1].first_timestamp_ms
    restore_store(url_of(tmp_path / "a"), tmp_path / "restored", since_ms=since)
    assert_clean(tmp_path / "restored")


def test_an_allowed_gap_is_reported_once_though_no_message_follows(tmp_path: Path) -> None:
    builder = small_store(tmp_path / "store", 200)
    stop = _archive(tmp_path, with_last=True).stop
    builder.append("paid", 0, [b"%06d" % number * 10 for number in range(600)])
    builder.delete_log_files(builder.position // FILE_SIZE - 2)
    with pytest.raises(ArchiveGap):
        _archive(tmp_path)
    assert _archive(tmp_path, allow_gap=True).stop == stop
    builder.append("orders", 0, [b"after"])
    _archive(tmp_path)
    assert _archive(tmp_path, with_last=True).strays == 0
    assert _archive(tmp_path, with_last=True).added == 0
    checked = check_archive(objects_of(tmp_path / "a"), deep=True)
    assert (checked.problems, len(checked.gaps)) == ([], 1)
    assert _messages(_archived(tmp_path), ["orders"], ["body"])["orders", 0][-1] == {"body": b"after"}


def test_a_damaged_record_is_a_gap(tmp_path: Path) -> None:
    builder = small_store(tmp_path / "store", 300)
    place = int(builder.append("orders", 0, [b"damaged" * 9])[0])
    add_messages(builder, 300)
    file = tmp_path / "store" / "commitlog" / f"{place // FILE_SIZE * FILE_SIZE:020d}"
    data = bytearray(file.read_bytes())
    data[place % FILE_SIZE + 95] ^= 1
    file.write_bytes(data)
    for _ in range(2):
        with pytest.raises(ArchiveGap, match=f"cannot be read from physical offset {place} to .*CRC"):
            _archive(tmp_path, with_last=True)
        newest_now = newest(objects_of(tmp_path / "a"))
        assert newest_now.selection is not None
        assert newest_now.selection.source_stop == place, "all before it is archived"
    report = _archive(tmp_path, with_last=True, allow_gap=True)
    assert (report.source_stop, report.strays) == (builder.position, 0)
    assert check_archive(objects_of(tmp_path / "a"), deep=True).problems == []
    report = _archive(tmp_path, with_last=True)
    assert report.source_stop == builder.position
    with StoreReader.open(_archived(tmp_path), on_damage="skip") as archived:
        rows = sum(len(part) for part in archived.read("orders", 0, archived.queue_info("orders", 0).min_offset))
        assert rows == builder.next_offsets["orders", 0] - 1


def test_a_note_that_another_archiver_made_first_is_known_though_a_listing_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archiver tried to make it again and again until the listing showed it."""
    builder = small_store(tmp_path / "store", 60)
    builder.append("paid", 0, [b"other" * 100] * 20)
    archiver = open_archiver(
        tmp_path / "store", url_of(tmp_path / "a"), ArchiveSettings(topics=SelectedTopics("orders"))
    )
    while not archiver.run_once():
        pass
    listed = {one.name for one in objects_of(tmp_path / "a").list()}
    builder.append("paid", 0, [b"other" * 100] * 20)
    noted = _archive(tmp_path).generation
    assert noted == archiver.report().generation + 1
    real = ObjectStore.list
    with monkeypatch.context() as patched:
        patched.setattr(
            ObjectStore, "list", lambda *given, **how: (one for one in real(*given, **how) if one.name in listed)
        )
        assert not archiver.run_once()
        assert archiver.run_once()
    assert archiver.report().generation == noted
    archiver.close()


def test_what_was_read_is_noted_though_it_has_no_message_of_the_topics(tmp_path: Path) -> None:
    builder = small_store(tmp_path / "store", 200)
    _archive(tmp_path)
    builder.append("paid", 0, [b"%06d" % number * 10 for number in range(600)])
    report = _archive(tmp_path)
    assert report.source_stop >= builder.position - FILE_SIZE
    assert _archive(tmp_path).generation == report.generation, "a note is not repeated"
    builder.delete_log_files(report.source_stop // FILE_SIZE)
    builder.append("orders", 0, [b"new" * 30] * 300)
    report = _archive(tmp_path, with_last=True)
    assert report.source_stop == builder.position
    assert_sound(objects_of(tmp_path / "a"))
    with StoreReader.open(_archived(tmp_path)) as archived:
        assert archived.queue_info("orders", 0).max_offset == builder.next_offsets["orders", 0]


def test_a_long_backlog_is_archived_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a part of one file of the archive, or a note of how far the log was read."""
    monkeypatch.setattr(selected_log, "_MOST_FILES", 3)
    builder = StoreBuilder(tmp_path / "store", log_file_size=FILE_SIZE)
    for count in (400, 3, 500, 600):
        builder.append("paid", 0, [b"%06d" % number * 10 for number in range(count)])
        builder.append("orders", 0, [b"%06d" % number * 10 for number in range(5)])
    report = _archive(tmp_path, with_last=True)
    assert (report.segments, report.source_stop) == (1, builder.position)
    assert report.generation > 8
    assert_sound(objects_of(tmp_path / "a"))
    assert _messages(_archived(tmp_path), ["orders"]) == _messages(tmp_path / "store", ["orders"])


def test_a_store_without_a_message_of_the_topics_gets_no_archive(tmp_path: Path) -> None:
    builder = small_store(tmp_path / "store", 200)
    assert _archive(tmp_path, "refunds").generation == 0
    builder.append("refunds", 0, [b"one"])
    assert _archive(tmp_path, "refunds", with_last=True).added == 1
    assert _topics(_archived(tmp_path)) == ["refunds"]


def test_until_ends_before_the_first_file_with_a_later_message(tmp_path: Path) -> None:
    builder = small_store(tmp_path / "store", 200)
    until = builder.now_ms
    add_messages(builder, 400)
    report = _archive(tmp_path, until_ms=until)
    whole = archive_store(tmp_path / "store", url_of(tmp_path / "all"), until_ms=until)
    assert report.source_stop == whole.stop
    _archive(tmp_path, with_last=True)
    assert _messages(_archived(tmp_path), ["orders"]) == _messages(tmp_path / "store", ["orders"])


def test_config_files_have_the_topics_alone(tmp_path: Path) -> None:
    config = MessageStoreConfig(mapped_file_size_commit_log=FILE_SIZE)
    with MessageStore.open(tmp_path / "store", config) as owner:
        for topic in ("orders", "paid", "123"):
            owner.put(topic, b"body", queue_id=0)
            owner.commit_group_offsets("billing", {(topic, 0): 1})
        with owner.transaction("loader", 1) as batch:
            batch.put_messages(pa.table({"topic": ["orders"], "body": [b"body"]}))
    _archive(tmp_path, ["orders", "123"], with_last=True)
    restore_store(url_of(tmp_path / "a"), tmp_path / "restored")
    names = {path.name for path in (tmp_path / "restored" / "config").iterdir()}
    assert BATCH_LEDGER in {path.name for path in (tmp_path / "store" / "config").iterdir()} - names
    topics = json.loads((tmp_path / "restored" / "config" / "topics.json").read_text())["topicConfigTable"]
    assert {"orders", "123"} <= set(topics)
    assert not {"paid", BATCH_TOPIC} & set(topics)
    positions = ConsumerOffsets(str(tmp_path / "restored")).all()
    assert positions == {("billing", "orders"): {0: 1}, ("billing", "123"): {0: 1}}


@pytest.mark.parametrize("steps", ["once", "before", "after", "each", "note", "expired"])
def test_a_restored_store_has_no_messages_of_a_topic_that_was_deleted(steps: str, tmp_path: Path) -> None:
    """Whether they were archived before the deletion, with it, or the archive has noted since that more was read."""
    config = MessageStoreConfig(mapped_file_size_commit_log=16 << 10, schedule_enable=False)

    def put(owner: MessageStore, topic: str, count: int) -> None:
        for number in range(count):
            owner.put(topic, b"%05d" % number + bytes(500), queue_id=0)
            owner.put("other", bytes(200), queue_id=0)
            owner.put("paid", b"%05d" % number, queue_id=0)

    def archive(at: str, **settings: Any) -> None:
        if steps in (at, "each"):
            _archive(tmp_path, ["orders", "paid"], **settings)

    generation = 0
    with MessageStore.open(tmp_path / "store", config) as owner:
        put(owner, "orders", 60)
        archive("before", with_last=True)
        archive("note", with_last=True)
        archive("expired", with_last=True)
        owner.delete_topic("orders", with_messages=True)
        if steps == "note":
            for _ in range(100):
                owner.put("other", bytes(500), queue_id=0)
            generation = newest(objects_of(tmp_path / "a")).generation
        archive("after", with_last=True)
        archive("note")
        if steps == "note":
            assert newest(objects_of(tmp_path / "a")).generation == generation + 1
        put(owner, "orders", 10)
        archive("expired", with_last=True)
        if steps == "expired":
            (tmp_path / "store" / "config" / "deletedTopics.json").unlink()
        put(owner, "other", 40)
    _archive(tmp_path, ["orders", "paid"], with_last=True)
    assert_sound(objects_of(tmp_path / "a"))
    restore_store(url_of(tmp_path / "a"), tmp_path / "restored")
    assert_clean(tmp_path / "restored")
    with StoreReader.open(tmp_path / "restored") as reader:
        bounds = reader.queue_info("orders", 0)
        assert (bounds.min_offset, bounds.max_offset) == (60, 70)
        assert reader.queue_info("paid", 0).max_offset == 110
    with MessageStore.open(tmp_path / "restored", config) as owner:
        assert owner.put("orders", b"next", queue_id=0).queue_offset == 70


def test_a_pattern_takes_no_system_topic_and_a_name_does() -> None:
    assert "RMQ_SYS_TRANS_HALF_TOPIC" not in SelectedTopics("*")
    assert "RMQ_SYS_TRANS_HALF_TOPIC" in SelectedTopics("RMQ_SYS_TRANS_HALF_TOPIC")
    assert "%RETRY%billing" in SelectedTopics("*")
    assert BATCH_TOPIC not in SelectedTopics([BATCH_TOPIC, "*"])
