"""Saved ends of queues: used only while they are those of the queues, whatever has happened to the store since."""

from __future__ import annotations

import errno
import mmap
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from commitlog_store import CommitLogError, MessageStore, StoreReader, assess_store
from commitlog_store.errors import StoreIOError
from commitlog_store.files import disk
from commitlog_store.format.checkpoint import decode_checkpoint, decode_mark, encode_checkpoint
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.paths import ABORT, CHECKPOINT, CONSUME_QUEUE, SAVED_ENDS
from commitlog_store.queue import catalog, saved_ends
from commitlog_store.queue.loaded_ends import load_saved_ends
from commitlog_store.reading import bounds as reading_bounds
from commitlog_store.recovery.forecast import forecast_open
from commitlog_store.recovery.start import StartKind
from commitlog_store.testing import kill, start_of
from tests.store.owner import owned_store
from tests.store.owner.owned_store import put_ok
from tests.support.between_calls import change_before
from tests.support.waiting import wait_for

TOPICS = ("audit", "orders", "parts")
QUEUES = [(topic, queue_id) for topic in TOPICS for queue_id in range(2)]
# Two ticks of the times of a file system that has nanoseconds, and something on top.
TICKS_NS = 20_000_000
OLD_ENOUGH_S = 0.03


def save_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is written and read whatever the number of queues, and times prove something soon."""
    monkeypatch.setattr(saved_ends, "_LEAST_QUEUES", 1)
    monkeypatch.setattr(saved_ends, "_TICKS_NS", TICKS_NS)
    monkeypatch.setattr(catalog, "_LOOKED_AT_FIRST", 0)


def open_store(path: Path, **settings: Any) -> MessageStore:
    """Queue files of ten units."""
    return owned_store.open_store(path, mapped_file_size_consume_queue=200, **settings)


def put_round(store: MessageStore, count: int = 14) -> None:
    for number in range(count):
        for topic, queue_id in QUEUES:
            put_ok(store, topic, b"%06d" % number, queue_id=queue_id)


@pytest.fixture(autouse=True)
def few_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    save_soon(monkeypatch)


@contextmanager
def no_time_proves_anything() -> Iterator[None]:
    """All happens within one tick."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(saved_ends, "_TICKS_NS", 10**15)
        yield


def close_when_old(store: MessageStore) -> None:
    """Close the store when the times of all its queues' files prove something."""
    store.flush()
    root = Path(store.path) / CONSUME_QUEUE

    def newest() -> float:
        return max(one.stat().st_ctime for one in [root, *root.rglob("*")])

    wait_for(lambda: time.time() - newest() > OLD_ENOUGH_S)
    store.close()


def make(path: Path) -> Path:
    """A closed store of three topics with two queues of two files each, all of them saved."""
    store = open_store(path)
    put_round(store)
    close_when_old(store)
    return path


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    return make(tmp_path / "store")


def queue_file(path: Path, base: int = 200) -> Path:
    """The last file of a queue, or another one."""
    return path / CONSUME_QUEUE / "orders" / "0" / f"{base:020d}"


def bounds(path: Path) -> dict[object, object]:
    """What a reader that is new says of each queue."""
    found: dict[object, object] = {}
    with StoreReader.open(path) as reader:
        try:
            found["log"] = reader.physical_bounds()
        except CommitLogError as error:
            found["log"] = str(error)
        found["topics"] = topics = reader.topics()
        for topic in topics:
            try:
                found[topic] = reader.queues(topic)
                ids = reader.queue_ids(topic)
            except CommitLogError as error:
                found[topic], ids = str(error), [0, 1]
            for queue_id in ids:
                try:
                    info = reader.queue_info(topic, queue_id)
                    batches = reader.read(topic, queue_id, info.min_offset, info.max_offset)
                    found[topic, queue_id] = info, [batch.to_pylist() for batch in batches]
                except CommitLogError as error:
                    found[topic, queue_id] = str(error)
    return found


def seen(path: Path) -> dict[str, Any]:
    """All that rests on the ends of queues: the opening, a reader, the quick look."""
    forecast = forecast_open(str(path))
    looked = assess_store(path)
    return {
        "start": (forecast.start.kind, forecast.start.reason, str(forecast.refusal)),
        "bounds": bounds(path),
        "findings": [(one.check, one.severity, one.path, one.message) for one in looked.findings],
        "verdict": looked.verdict,
    }


def opened_queue_files(path: Path, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The queue files that were opened during ``act``."""
    opened: list[str] = []
    below, open_one = str(path / CONSUME_QUEUE), disk.open_file

    def noting(name: str) -> int:
        if name.startswith(below):
            opened.append(name)
        return open_one(name)

    with monkeypatch.context() as patched:
        patched.setattr(disk, "open_file", noting)
        act()
    return opened


def test_an_opening_and_a_reader_open_no_file_of_a_queue_that_has_not_changed(
    closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look() -> None:
        with StoreReader.open(closed) as reader:
            assert [info.max_offset for topic in TOPICS for info in reader.queues(topic)] == [14] * 6

    assert opened_queue_files(closed, look, monkeypatch) == []
    assert opened_queue_files(closed, lambda: forecast_open(str(closed)), monkeypatch) == []

    def own() -> None:
        with open_store(closed) as store:
            assert start_of(store).kind is StartKind.CLEAN

    assert opened_queue_files(closed, own, monkeypatch) == []


def test_a_store_that_was_opened_and_closed_without_a_change_keeps_its_file(closed: Path) -> None:
    before = (closed / SAVED_ENDS).stat()
    with open_store(closed):
        pass
    assert (closed / SAVED_ENDS).stat().st_ino == before.st_ino
    assert load_saved_ends(str(closed)) is not None


def test_only_changed_queues_are_looked_at_after_the_next_close(closed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(closed) as store:
        put_ok(store, "orders", queue_id=1)
        close_when_old(store)
    changed = str(closed / CONSUME_QUEUE / "orders" / "1")
    with open_store(closed) as store:
        assert start_of(store).kind is StartKind.CLEAN
        put_ok(store, "orders", queue_id=1)
        store.flush()
        with no_time_proves_anything():
            opened = opened_queue_files(closed, store.close, monkeypatch)
    assert {os.path.dirname(name) for name in opened} <= {changed}
    assert opened_queue_files(closed, lambda: forecast_open(str(closed)), monkeypatch)  # just changed: looked at
    assert forecast_open(str(closed)).start.kind is StartKind.CLEAN


def truncate(path: Path) -> None:
    os.truncate(queue_file(path), 40)


def truncate_first(path: Path) -> None:
    os.truncate(queue_file(path, 0), 40)


def zero_last_unit(path: Path) -> None:
    with queue_file(path).open("r+b") as file:
        file.seek(60)
        file.write(bytes(20))


def zero_with_old_times(path: Path) -> None:
    times = queue_file(path).stat()
    zero_last_unit(path)
    os.utime(queue_file(path), ns=(times.st_atime_ns, times.st_mtime_ns))


def zero_through_a_mapping(path: Path) -> None:
    with queue_file(path).open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
        mapping[60:80] = bytes(20)


def add_units(path: Path) -> None:
    with queue_file(path).open("r+b") as file:
        data = file.read(80)
        file.write(data[60:80])


def remove_last_file(path: Path) -> None:
    queue_file(path).unlink()


def remove_first_file(path: Path) -> None:
    queue_file(path, 0).unlink()


def add_file(path: Path) -> None:
    shutil.copy2(queue_file(path), queue_file(path, 400))


def remove_queue(path: Path) -> None:
    shutil.rmtree(queue_file(path).parent)


def add_queue(path: Path) -> None:
    shutil.copytree(queue_file(path).parent, queue_file(path).parent.with_name("7"))


def remove_topic(path: Path) -> None:
    shutil.rmtree(path / CONSUME_QUEUE / "orders")


def add_topic(path: Path) -> None:
    shutil.copytree(path / CONSUME_QUEUE / "orders", path / CONSUME_QUEUE / "restored")


def exchange_queues(path: Path) -> None:
    queue = queue_file(path).parent
    queue.rename(queue.with_name("aside"))
    queue.with_name("1").rename(queue)
    queue.with_name("aside").rename(queue.with_name("1"))


def replace_by_a_shorter_file(path: Path) -> None:
    data = queue_file(path).read_bytes()
    times = queue_file(path).stat()
    queue_file(path).unlink()
    queue_file(path).write_bytes(data[:40].ljust(200, b"\0"))
    os.utime(queue_file(path), ns=(times.st_atime_ns, times.st_mtime_ns))


def directory_as_file(path: Path) -> None:
    queue_file(path).unlink()
    queue_file(path).mkdir()


def link_to_a_queue(path: Path) -> None:
    queue = queue_file(path).parent
    queue.rename(path.parent / "elsewhere")
    queue.symlink_to(path.parent / "elsewhere")


def link_to_a_changed_queue(path: Path) -> None:
    zero_last_unit(path)
    link_to_a_queue(path)


def copy_of_the_queues(path: Path) -> None:
    (path / CONSUME_QUEUE).rename(path.parent / "first")
    shutil.copytree(path.parent / "first", path / CONSUME_QUEUE)
    zero_last_unit(path)


def file_is_torn(path: Path) -> None:
    zero_last_unit(path)
    os.truncate(path / SAVED_ENDS, (path / SAVED_ENDS).stat().st_size // 2)


def other_kinds_of_queues(path: Path) -> None:
    (path / "compaction" / "compactionCq" / "orders").mkdir(parents=True)


def abort_is_left(path: Path) -> None:
    """As a broker that was killed leaves it: its queue's bytes may have no time of their own on tmpfs."""
    zero_last_unit(path)
    (path / ABORT).write_bytes(b"")


CHANGES = [
    *(truncate, truncate_first, zero_last_unit, zero_with_old_times, zero_through_a_mapping, add_units),
    *(remove_last_file, remove_first_file, add_file, remove_queue, add_queue, remove_topic, add_topic),
    *(exchange_queues, replace_by_a_shorter_file, directory_as_file, link_to_a_queue, link_to_a_changed_queue),
    *(copy_of_the_queues, file_is_torn, other_kinds_of_queues, abort_is_left),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_store_is_seen_as_without_the_file(change: Callable[[Path], None], closed: Path) -> None:
    assert load_saved_ends(str(closed)) is not None
    change(closed)
    found = seen(closed)
    (closed / SAVED_ENDS).unlink()
    assert found == seen(closed)


def asked_again(reader: StoreReader) -> object:
    """What a reader that has asked before says of all queues, with their messages."""
    try:
        topics = reader.topics()
        queues = [(topic, queue_id) for topic in topics for queue_id in reader.queue_ids(topic)]
        together = zip(topics, reader.queue_ids_of(topics), strict=True)
        assert [(topic, queue_id) for topic, ids in together if isinstance(ids, list) for queue_id in ids] == queues
        infos = reader.queue_infos(queues)
        batches = [list(reader.read(one.topic, one.queue_id, one.min_offset, one.max_offset)) for one in infos]
        scanned = [batch.to_pylist() for batch in reader.scan("*")]
        return infos, [[batch.to_pylist() for batch in one] for one in batches], scanned
    except CommitLogError as error:
        return str(error)


# How queues are asked for: a few, many one by one and together, and most queues of a store.
WAYS = ["few", "many", "many together", "all together"]


def ask_as(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_bounds, "_FEW", 1000 if way == "few" else 0)
    monkeypatch.setattr(catalog, "_FEWEST_OF_ALL", 0 if way == "all together" else 1000)
    monkeypatch.setattr(catalog, "_COMPARED_AT_ONCE", 0 if way == "many together" else 1000)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("change", CHANGES)
def test_a_reader_that_knows_the_queues_sees_a_change(
    change: Callable[[Path], None], way: str, closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It compares the entries at each question, for queues that it has read and for those that it has not."""
    ask_as(way, monkeypatch)
    with StoreReader.open(closed) as asked, StoreReader.open(closed) as has_read, StoreReader.open(closed) as other:
        asked.queue_infos(QUEUES)
        asked_again(has_read)
        change(closed)
        (closed / SAVED_ENDS).rename(closed / "aside")
        expected = asked_again(other)
        (closed / "aside").rename(closed / SAVED_ENDS)
        assert asked_again(asked) == expected
        assert asked_again(has_read) == expected


@pytest.mark.parametrize("shows", [False, True])
def test_where_mapped_writes_have_no_times_an_entry_is_used_once(
    shows: bool, closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on tmpfs, where a broker may have come since."""
    monkeypatch.setattr(disk, "shows_mapped_writes", lambda _: shows)
    with StoreReader.open(closed) as reader:
        reader.topics()
        assert opened_queue_files(closed, lambda: reader.queue_infos(QUEUES), monkeypatch) == []
        opened = opened_queue_files(closed, lambda: reader.queue_infos(QUEUES), monkeypatch)
        assert {os.path.dirname(name) for name in opened} == (
            set() if shows else {str(closed / CONSUME_QUEUE / topic / str(queue_id)) for topic, queue_id in QUEUES}
        )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("at", [13, 14])
def test_where_mapped_writes_have_no_times_they_are_seen_by_a_reader_that_has_asked(
    at: int, way: str, closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker adds a unit, or recovery takes the last one away; the entry still equals what the system says."""
    monkeypatch.setattr(disk, "shows_mapped_writes", lambda _: False)
    ask_as(way, monkeypatch)
    with StoreReader.open(closed) as reader:
        assert {info.max_offset for info in reader.queue_infos(QUEUES)} == {14}
        file = queue_file(closed)
        before, units = disk.stamp, file.read_bytes()
        stamps = {path: before(path) for path in map(str, (closed / CONSUME_QUEUE).rglob("*"))}
        with file.open("r+b") as open_file:
            open_file.seek(at * 20 - 200)
            open_file.write(bytes(20) if at == 13 else units[60:80])
        monkeypatch.setattr(disk, "stamp", lambda path: stamps.get(path) or before(path))
        monkeypatch.setattr(disk, "stamps", lambda paths, fields_of: [fields_of(disk.stamp(path)) for path in paths])
        for _ in range(3):
            found = {(info.topic, info.queue_id): info.max_offset for info in reader.queue_infos(QUEUES)}
            assert found == {**dict.fromkeys(QUEUES, 14), ("orders", 0): 13 if at == 13 else 15}


def test_places_in_the_log_are_looked_at_together_as_one_by_one(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", mapped_file_size_commit_log=4096) as store:
        put_round(store, 30)
    (tmp_path / "store" / "commitlog" / f"{8192:020d}").unlink()
    log = CommitLog(str(tmp_path / "store" / "commitlog"))
    log.refresh()
    places = np.arange(-64, log.bounds()[1] + 256, 16)
    for size in (-1, 0, 100, 5000):
        sizes = np.full(len(places), size)
        one_by_one = [log.holds(place, size) for place in places.tolist()]
        assert log.holds_all(places, sizes).tolist() == one_by_one, size
        assert any(one_by_one) == (size < 5000)
    heads = [log.header(place) for place in places.tolist()]
    assert log.headers(places) == heads
    assert None in heads
    assert any(heads)
    log.close()


def looked_at(act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> int:
    """How many directories and files of queues were compared during ``act``."""
    compared: list[str] = []
    stamps, stamp = disk.stamps, disk.stamp

    def noting_all(paths: Sequence[str], shown: Callable[[os.stat_result], object]) -> list[object]:
        compared.extend(paths)
        return stamps(paths, shown)

    def noting(path: str) -> os.stat_result | None:
        compared.append(path)
        return stamp(path)

    with monkeypatch.context() as patched:
        patched.setattr(disk, "stamps", noting_all)
        patched.setattr(disk, "stamp", noting)
        act()
    return sum(f"/{CONSUME_QUEUE}/" in path for path in compared)


def test_lost_ends_right_after_the_bounds_of_all_queues_compare_them_once(
    closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a stream's first trigger asks: only once, so that the next question sees what was changed by hand."""
    ask_as("all together", monkeypatch)
    with StoreReader.open(closed) as reader:
        infos, state = reader.settled_queue_infos(QUEUES)
        assert [info.max_offset for info in infos] == [14] * 6
        assert state is not None
        assert looked_at(lambda: reader.lost_ends() == [], monkeypatch) == 0
        assert looked_at(lambda: reader.lost_ends() == [], monkeypatch) > 0
        reader.settled_queue_infos(QUEUES)
        truncate(closed)
        reader.lost_ends()
        assert len(reader.lost_ends()) == 1


def test_a_file_is_read_once_for_many_readers_and_again_once_it_has_changed(
    closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each task of a Spark query opens the store. What a reader compared is its own."""
    file = closed / SAVED_ENDS
    wait_for(lambda: time.time() - file.stat().st_ctime > OLD_ENOUGH_S)
    first = load_saved_ends(str(closed))
    assert first is not None
    first.look()
    read: list[str] = []
    read_file = disk.read_file

    def noting(path: str, most: int) -> bytes:
        read.append(path)
        return read_file(path, most)

    monkeypatch.setattr(disk, "read_file", noting)
    second = load_saved_ends(str(closed))
    assert second is not None
    assert second is not first
    assert second.topics() == first.topics()
    truncate(closed)
    assert not second.compare().queues.all()
    assert str(file) not in read
    file.write_bytes(b"?" * file.stat().st_size)
    assert load_saved_ends(str(closed)) is None
    assert str(file) in read


def test_lost_ends_do_not_rest_on_what_a_reader_saw_long_ago(closed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask_as("all together", monkeypatch)
    with StoreReader.open(closed) as reader:
        reader.settled_queue_infos(QUEUES)
        truncate(closed)
        monkeypatch.setattr(catalog, "_COMPARED_FOR_S", 0.0)
        assert len(reader.lost_ends()) == 1


def test_lost_ends_compare_queues_again_once_an_owner_has_come(closed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask_as("all together", monkeypatch)
    with StoreReader.open(closed) as reader:
        reader.settled_queue_infos(QUEUES)
        with open_store(closed) as store:
            put_ok(store, "orders")
            close_when_old(store)
        truncate(closed)
        assert len(reader.lost_ends()) == 1


def listed_by(reader: StoreReader) -> list[tuple[str, int]]:
    found = zip(TOPICS, reader.queue_ids_of(TOPICS), strict=True)
    return [(topic, queue_id) for topic, ids in found if isinstance(ids, list) for queue_id in ids]


def test_ids_and_bounds_of_one_question_compare_each_directory_and_file_once(
    closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_as("all together", monkeypatch)
    with StoreReader.open(closed) as reader:

        def ask() -> None:
            infos, state = reader.settled_queue_infos(lambda: listed_by(reader))
            assert [(info.topic, info.queue_id, info.max_offset) for info in infos] == [(*key, 14) for key in QUEUES]
            assert state is not None

        assert looked_at(ask, monkeypatch) == len(TOPICS) + len(QUEUES) + 2 * len(QUEUES)


def test_bounds_do_not_rest_on_the_list_of_ids_once_the_store_has_changed(
    closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are kept for the state that comes after the list."""
    ask_as("all together", monkeypatch)
    changes = [lambda store: put_ok(store, "orders")]

    def listed() -> list[tuple[str, int]]:
        found = listed_by(reader)
        while changes:
            with open_store(closed) as store:
                changes.pop()(store)
        return found

    with StoreReader.open(closed) as reader:
        for _ in range(2):
            infos, _ = reader.settled_queue_infos(listed)
            assert [info.max_offset for info in infos] == [14, 14, 15, 14, 14, 14]


def test_only_the_entries_of_changed_topics_differ_in_the_next_file(closed: Path) -> None:
    before = load_saved_ends(str(closed))
    with open_store(closed) as store:
        for topic in ("new", "orders", "zero"):
            put_ok(store, topic, queue_id=1)
        close_when_old(store)
    after = load_saved_ends(str(closed))
    assert before is not None
    assert after is not None
    assert list(after.topics()) == ["audit", "new", "orders", "parts", "zero"]
    ends = {topic: entry.ends for topic in after.topics() if (entry := after.topic(topic)) is not None}
    for topic in ("audit", "parts"):
        same = before.topic(topic)
        assert same is not None
        assert ends[topic] == same.ends
    assert {topic: {key: one.end for key, one in of.items()} for topic, of in ends.items()} == {
        "audit": {0: 14, 1: 14},
        "new": {1: 1},
        "orders": {0: 14, 1: 15},
        "parts": {0: 14, 1: 14},
        "zero": {1: 1},
    }


def owner_sees(path: Path) -> tuple[object, object]:
    with open_store(path) as store:
        return start_of(store).kind, bounds(path)


@pytest.mark.parametrize("change", [truncate, zero_with_old_times, remove_last_file, add_file])
def test_an_owner_builds_changed_queues_again(change: Callable[[Path], None], closed: Path) -> None:
    before = bounds(closed)
    change(closed)
    assert owner_sees(closed) == (StartKind.REBUILD, before)


def states(path: Path) -> Iterator[tuple[bytes, bytes]]:
    """File and checkpoint after each of three sessions."""
    for number in range(3):
        with open_store(path) as store:
            for _ in range(number + 1):
                put_ok(store, "orders")
            close_when_old(store)
        yield (path / SAVED_ENDS).read_bytes(), (path / CHECKPOINT).read_bytes()


@pytest.mark.parametrize("number", [0, 1])
def test_an_older_file_is_not_used_with_the_store_of_today(number: int, closed: Path) -> None:
    before = list(states(closed))
    (closed / SAVED_ENDS).write_bytes(before[number][0])
    assert load_saved_ends(str(closed)) is None
    assert owner_sees(closed)[0] is StartKind.CLEAN


@pytest.mark.parametrize("number", [0, 1])
def test_an_older_file_with_its_checkpoint_shows_no_older_end(number: int, closed: Path) -> None:
    """Both are restored from a backup: the file is used, and its entries do not hold."""
    before = list(states(closed))
    now = bounds(closed)
    (closed / SAVED_ENDS).write_bytes(before[number][0])
    (closed / CHECKPOINT).write_bytes(before[number][1])
    assert load_saved_ends(str(closed)) is not None
    assert bounds(closed) == now
    with open_store(closed) as store:
        assert start_of(store).kind is not StartKind.CLEAN
    assert bounds(closed) == now


def test_the_file_of_another_store_is_not_used(closed: Path, tmp_path: Path) -> None:
    other = make(tmp_path / "other")
    for name in (SAVED_ENDS, CHECKPOINT):
        shutil.copy(other / name, closed / name)
    assert load_saved_ends(str(closed)) is None


def test_a_copy_of_a_store_does_not_use_it(closed: Path, tmp_path: Path) -> None:
    shutil.copytree(closed, tmp_path / "copy")
    assert load_saved_ends(str(tmp_path / "copy")) is None
    assert owner_sees(tmp_path / "copy") == owner_sees(closed)


def test_no_flipped_bit_of_the_file_is_believed(closed: Path) -> None:
    whole = bytearray((closed / SAVED_ENDS).read_bytes())
    for at in range(len(whole)):
        whole[at] ^= 1 << at % 8
        (closed / SAVED_ENDS).write_bytes(whole)
        assert load_saved_ends(str(closed)) is None, at
        whole[at] ^= 1 << at % 8
    for size in range(0, len(whole), 7):
        (closed / SAVED_ENDS).write_bytes(whole[:size])
        assert load_saved_ends(str(closed)) is None, size


def test_a_brokers_checkpoint_ends_its_use(closed: Path) -> None:
    """A broker that has written the store has moved the checkpoint's times, and leaves the mark beside them."""
    data = (closed / CHECKPOINT).read_bytes()
    times = decode_checkpoint(data)
    moved = encode_checkpoint(type(times)(times.physic_msg_timestamp + 1, *list(vars(times).values())[1:]))
    (closed / CHECKPOINT).write_bytes(moved[:40] + data[40:])
    assert load_saved_ends(str(closed)) is None


def test_a_closed_store_that_another_program_has_opened_ends_its_use(closed: Path) -> None:
    """A broker leaves the mark as it is until it writes its checkpoint; on tmpfs its mapped writes set no times."""
    (closed / ABORT).write_bytes(b"")
    assert load_saved_ends(str(closed)) is None


def test_a_reader_beside_an_owner_uses_it_and_sees_what_is_new(closed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(closed) as store:
        put_ok(store, "orders")
        store.dispatch()

        def look() -> None:
            with StoreReader.open(closed) as reader:
                assert [one.max_offset for topic in TOPICS for one in reader.queues(topic)] == [14, 14, 15, 14, 14, 14]

        opened = opened_queue_files(closed, look, monkeypatch)
        assert {os.path.dirname(name) for name in opened} == {str(closed / CONSUME_QUEUE / "orders" / "0")}


def test_a_batch_during_a_question_about_unchanged_queues_is_seen_wholly_or_not_at_all(tmp_path: Path) -> None:
    """It comes before each of the calls that the question makes."""
    rows = pa.table({"topic": ["orders"] * 2, "queueId": pa.array([0, 1], pa.int32()), "body": [b"a", b"b"]})
    call, seen = 0, set()
    while True:
        call += 1
        path = make(tmp_path / str(call))
        with open_store(path) as store, StoreReader.open(path) as reader:

            def commit(store: MessageStore = store) -> None:
                with store.transaction("app", version=1) as batch:
                    batch.put_messages(rows)
                store.dispatch()

            assert [info.max_offset for info in reader.queues("audit")] == [14, 14]
            with change_before({call: commit}) as calls:
                found = [info.max_offset for info in reader.queues("orders")]
            if calls.made < call:
                break
            seen.add(tuple(found))
    assert seen == {(14, 14), (15, 15)}


def test_a_few_unchanged_queues_are_asked_for_with_few_looks(closed: Path) -> None:
    """At the log's directory (twice where it has just changed) and the topic's; at those of two queues, and their two
    files each; and three at the place in the log of each queue's last message."""
    with StoreReader.open(closed) as reader:
        reader.topics()
        reader.queues("audit")
        with change_before({}) as calls:
            assert [info.max_offset for info in reader.queues("orders")] == [14, 14]
        assert calls.made <= 2 + 1 + 2 * 3 + 2 * 3


def test_after_a_crash_only_readers_of_the_same_boot_use_it(closed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power cut the queues' bytes may be newer than their times."""
    kill(open_store(closed))
    assert load_saved_ends(str(closed)) is not None
    monkeypatch.setattr(disk, "boot_id", lambda: bytes(range(16)))
    assert load_saved_ends(str(closed)) is None
    monkeypatch.setattr(disk, "boot_id", lambda: b"")
    assert load_saved_ends(str(closed)) is None
    with open_store(closed) as store:
        assert start_of(store).kind is StartKind.SCAN
        assert load_saved_ends(str(closed)) is None  # named again by the next clean close
        close_when_old(store)
    assert load_saved_ends(str(closed)) is not None


def test_a_queue_that_changed_just_before_the_close_is_not_believed(tmp_path: Path) -> None:
    """A change within the same tick of the clock would have the same time."""
    path = tmp_path / "store"
    with open_store(path) as store:
        put_round(store, 1)
        close_when_old(store)
    with open_store(path) as store:
        put_ok(store, "orders")
        store.flush()
        os.utime(queue_file(path, 0))  # its time of change is now
        with no_time_proves_anything():
            store.close()
    saved = load_saved_ends(str(path))
    assert saved is not None
    orders = saved.topic("orders")
    assert orders is not None
    assert orders.ends[0].changed_ns == 0 or not orders.ends[0].files
    assert orders.ends[1].holds(str(path / CONSUME_QUEUE / "orders" / "1")) is not None


def fail(step: str, file: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a step of writing a file of the store fail."""
    act = getattr(disk, step)

    def failing(place: str | int, *given: Any, **named: Any) -> Any:
        path = os.readlink(f"/proc/self/fd/{place}") if isinstance(place, int) else place
        if os.path.basename(path).startswith(file):
            raise OSError(code, os.strerror(code), path)
        return act(place, *given, **named)

    monkeypatch.setattr(disk, step, failing)


@pytest.mark.parametrize("step", ["create_file", "write_at", "sync", "rename"])
def test_a_file_that_cannot_be_written_leaves_a_store_that_is_closed_without_it(
    step: str, closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk. The file of the close before is still there."""
    with open_store(closed) as store:
        put_ok(store, "orders")
        store.flush()
        with monkeypatch.context() as patched:
            fail(step, SAVED_ENDS, errno.ENOSPC, patched)
            store.close()
    mark = decode_mark((closed / CHECKPOINT).read_bytes())
    assert mark is not None
    assert (mark.closed, mark.saved_ends) == (True, 0)
    assert load_saved_ends(str(closed)) is None
    assert owner_sees(closed)[0] is StartKind.CLEAN


def test_a_death_between_the_file_and_the_mark_leaves_no_file_to_be_used(
    closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(closed)
    before = (closed / SAVED_ENDS).read_bytes()
    put_ok(store, "orders")
    store.flush()
    with monkeypatch.context() as patched:
        fail("write_at", CHECKPOINT, errno.EIO, patched)
        with pytest.raises(StoreIOError):
            store.close()
    assert (closed / SAVED_ENDS).read_bytes() != before
    assert load_saved_ends(str(closed)) is None
    with open_store(closed) as again:
        assert start_of(again).kind is StartKind.SCAN
        assert load_saved_ends(str(closed)) is None
    with StoreReader.open(closed) as reader:
        assert reader.queue_info("orders", 0).max_offset == 15


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.stress) for seed in range(2, 9))])
def test_whatever_owners_do_readers_see_the_same_with_the_file_and_without(seed: int, tmp_path: Path) -> None:
    """Sessions of puts, new and deleted topics, deleted files, kills and clean closes."""
    chosen, path = random.Random(seed), tmp_path / "store"
    for number in range(12):
        store = open_store(path)
        for _ in range(chosen.randrange(40)):
            topic = chosen.choice([*TOPICS, f"new-{number}"])
            put_ok(store, topic, os.urandom(chosen.randrange(400)), queue_id=chosen.randrange(3))
        store.dispatch()
        if chosen.random() < 0.3 and "orders" in bounds_of(path):
            store.delete_topic("orders", with_messages=True)
        {0: kill, 1: MessageStore.close}.get(chosen.randrange(6), close_when_old)(store)
        found = bounds(path)
        if (path / SAVED_ENDS).exists():
            (path / SAVED_ENDS).rename(tmp_path / "aside")
            assert found == bounds(path)
            (tmp_path / "aside").rename(path / SAVED_ENDS)


def bounds_of(path: Path) -> list[str]:
    with StoreReader.open(path) as reader:
        return reader.topics()
