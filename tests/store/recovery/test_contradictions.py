"""Files of a closed store that contradict its checkpoint are noticed: nothing is trusted, and no offset given twice."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlog_store import MessageStore, StoreReader, repair_store, verify_store
from commitlog_store.errors import CutRefused, DamagedLog, InvalidValue, LogLost, LogShort
from commitlog_store.format.consume_queue_unit import UNIT_SIZE
from commitlog_store.recovery.forecast import forecast_open
from commitlog_store.recovery.kept import kept_pieces
from commitlog_store.recovery.start import StartKind
from commitlog_store.testing import kill, start_of
from commitlog_store.verify.store import verification_report
from tests.crash.cuts import whole_records
from tests.store.owner.owned_store import open_store, put_ok
from tests.support.clean_store import assert_clean
from tests.support.counted_calls import counted_calls

QUEUES = [("orders", 0), ("orders", 1), ("audit", 0)]


def put_many(store: MessageStore, count: int, repeats: int = 20) -> None:
    for number in range(count):
        topic, queue_id = QUEUES[number % 3]
        put_ok(store, topic, b"%06d" % number * repeats, queue_id=queue_id, keys=(f"key-{number}",))


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A closed store of 300 messages, 100 in each queue, in four log files and two files for each queue."""
    with open_store(tmp_path / "store") as store:
        put_many(store, 300)
    return tmp_path / "store"


def ends(path: Path) -> dict[tuple[str, int], int]:
    with StoreReader.open(path) as reader:
        return {queue: reader.queue_info(*queue).max_offset for queue in QUEUES}


def log_files(path: Path) -> list[Path]:
    return sorted((path / "commitlog").iterdir())


def cut_first_queue_file(path: Path) -> None:
    os.truncate(path / "consumequeue" / "orders" / "0" / f"{0:020d}", 200)


def cut_last_queue_file(path: Path) -> None:
    os.truncate(path / "consumequeue" / "orders" / "0" / f"{1000:020d}", 200)


def without_last_queue_file(path: Path) -> None:
    (path / "consumequeue" / "orders" / "0" / f"{1000:020d}").unlink()


def with_one_more_queue_file(path: Path) -> None:
    file = path / "consumequeue" / "orders" / "0" / f"{1000:020d}"
    shutil.copy(file, file.with_name(f"{2000:020d}"))


def without_last_units(count: int) -> Callable[[Path], None]:
    """The last units of a queue are zeros; its files have the sizes that they had."""

    def change(path: Path) -> None:
        for base in (0, 1000):
            keep = min(max((100 - count) * UNIT_SIZE - base, 0), 1000)
            with (path / "consumequeue" / "orders" / "0" / f"{base:020d}").open("r+b") as file:
                file.seek(keep)
                file.write(bytes(1000 - keep))

    return change


@pytest.mark.parametrize(
    "change",
    [
        cut_first_queue_file,
        cut_last_queue_file,
        without_last_queue_file,
        with_one_more_queue_file,
        *map(without_last_units, (1, 7, 50, 70)),
    ],
)
def test_queue_files_that_changed_are_rebuilt_and_no_offset_is_given_twice(
    change: Callable[[Path], None], closed: Path
) -> None:
    change(closed)
    forecast = forecast_open(closed)
    assert (forecast.start.kind, forecast.loses) == (StartKind.REBUILD, False)
    assert any(one.severity == "error" and one.check.startswith("queue.") for one in verify_store(closed))
    with open_store(closed) as store:
        assert start_of(store) == forecast.start
        assert put_ok(store, "orders", queue_id=0).queue_offset == 100
    assert ends(closed) == {("orders", 0): 101, ("orders", 1): 100, ("audit", 0): 100}
    assert_clean(closed)
    with open_store(closed) as store:
        assert store.recovered is None


def test_a_queue_whose_only_file_lost_zeros_is_rebuilt(closed: Path) -> None:
    """All of its units are there, but further files would have the size of the damaged one."""
    with open_store(closed) as store:
        put_ok(store, "few", queue_id=0)
    os.truncate(closed / "consumequeue" / "few" / "0" / f"{0:020d}", 500)
    assert forecast_open(closed).start.kind is StartKind.REBUILD
    with open_store(closed) as store:
        for offset in range(1, 60):
            assert put_ok(store, "few", queue_id=0).queue_offset == offset
    assert {file.stat().st_size for file in (closed / "consumequeue" / "few" / "0").iterdir()} == {1000}
    with open_store(closed) as store:
        assert store.recovered is None


def test_a_log_file_after_the_closed_end_is_not_taken_for_a_part_of_the_store(closed: Path, tmp_path: Path) -> None:
    """An older copy of the store was put over the newer one, and the newer one's last files are still there."""
    shutil.copytree(closed, tmp_path / "backup")
    with open_store(closed) as store:
        put_many(store, 200)
    newer = whole_records(closed)
    shutil.copytree(tmp_path / "backup", closed, dirs_exist_ok=True)
    with pytest.raises(DamagedLog, match="perhaps left over from another copy of this store") as caught:
        open_store(closed)
    assert whole_records(closed) <= newer
    report = verification_report(closed)
    assert [one.check for one in report.findings if one.severity == "error"][-1:] == ["opening.refused"]
    repaired = repair_store(closed, cut_at=caught.value.cut_at)
    assert repaired.kept is not None
    assert ends(closed) == dict.fromkeys(QUEUES, 100)
    with open_store(closed) as store:
        put_many(store, 130)
        kill(store)
    with open_store(closed) as store:
        assert put_ok(store, "audit", queue_id=0).queue_offset == 143
    assert_clean(closed)


def test_a_closed_log_whose_end_is_gone_is_refused(closed: Path) -> None:
    end = max(place for place, _ in whole_records(closed))
    last = max(file for file in log_files(closed) if int(file.name) <= end)
    for file in [file for file in log_files(closed) if file >= last]:
        file.unlink()
    with pytest.raises(LogShort, match=r"missing at its end, with \d+ messages by the consume queues") as caught:
        open_store(closed)
    missing = caught.value.missing_messages
    assert missing
    with MessageStore.open(closed, accept_lost_log=True) as store:
        assert store.recovered is not None
        assert store.recovered.end == caught.value.found_end
    assert sum(ends(closed).values()) == 300 - missing
    assert_clean(closed)


def test_a_log_that_is_gone_with_its_queues_is_refused(closed: Path) -> None:
    for name in ("commitlog", "consumequeue"):
        shutil.rmtree(closed / name)
    with pytest.raises(LogLost, match="the log was flushed up to physical offset"):
        open_store(closed)
    with MessageStore.open(closed, accept_lost_log=True) as store:
        assert put_ok(store).queue_offset == 0


def test_files_that_retention_removes_are_not_a_contradiction(closed: Path) -> None:
    for file in log_files(closed)[:3]:
        file.unlink()
    with StoreReader.open(closed) as reader:
        assert reader.queue_info("orders", 0).min_offset >= 50
    for topic, queue_id in QUEUES:
        (closed / "consumequeue" / topic / str(queue_id) / f"{0:020d}").unlink()
    assert verification_report(closed).errors == 0
    with open_store(closed) as store:
        assert store.recovered is None
        assert put_ok(store, "orders", queue_id=0).queue_offset == 100


def test_a_rebuild_keeps_the_end_of_a_queue_whose_messages_have_expired(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_store(path) as store:
        for _ in range(70):
            put_ok(store, "rare", queue_id=0)
        put_many(store, 300)
    rare = [file for file in log_files(path) if int(file.name) <= 70 * 100]
    for file in rare:
        file.unlink()
    with StoreReader.open(path) as reader:
        assert reader.queue_info("rare", 0).min_offset == 70
    with MessageStore.open(path, rebuild=True) as store:
        assert put_ok(store, "rare", queue_id=0).queue_offset == 70
    with MessageStore.open(path, rebuild=True) as store:
        assert put_ok(store, "rare", queue_id=0).queue_offset == 71
    assert_clean(path)


def damaged_in_the_unflushed_part(path: Path, repeats: int = 20) -> int:
    """A killed store without a mark, as RocketMQ leaves it, with one bad record. Returns how many follow it."""
    with open_store(path) as store:
        put_many(store, 100, repeats)
        kill(store)
    (path / "checkpoint").unlink()
    places = sorted(place for place, _ in whole_records(path))
    at = places[60]
    file = max(file for file in log_files(path) if int(file.name) <= at)
    with file.open("r+b") as stream:
        stream.seek(at - int(file.name) + 95)
        stream.write(b"\xff\xff\xff\xff")
    return len(places) - 61


def link_to_elsewhere(path: Path) -> None:
    path.symlink_to(path.parent.parent)


@pytest.mark.parametrize(
    ("make", "says"),
    [(link_to_elsewhere, "repair is a symbolic link"), (Path.touch, "repair is not a directory")],
    ids=["link", "file"],
)
def test_a_look_foresees_that_nothing_can_be_kept(make: Callable[[Path], None], says: str, tmp_path: Path) -> None:
    path = tmp_path / "store"
    damaged_in_the_unflushed_part(path)
    before = whole_records(path)
    make(path / "repair")
    forecast = forecast_open(path)
    assert isinstance(forecast.refusal, InvalidValue)
    assert repair_store(path).loses
    assert "opening.refused" in [one.check for one in verify_store(path)]
    with pytest.raises(InvalidValue, match=says) as caught:
        MessageStore.open(path)
    assert str(caught.value) == str(forecast.refusal)
    assert whole_records(path) == before
    (path / "repair").unlink()
    assert forecast_open(path).cut is not None
    with MessageStore.open(path) as store:
        assert store.recovered is not None
        assert store.recovered.kept is not None


def test_a_cut_is_kept_reported_and_can_be_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "store"
    count = damaged_in_the_unflushed_part(path)
    before = whole_records(path)
    with pytest.raises(CutRefused, match=f"cut {count} whole records") as caught:
        MessageStore.open(path, on_cut="refuse")
    assert (caught.value.messages, kept_pieces(path), whole_records(path)) == (count, [], before)
    with MessageStore.open(path) as store:
        assert store.recovered is not None
        assert store.recovered.cut is not None
        assert store.recovered.kept is not None
        assert store.recovered.cut.messages == count
    assert f"cut off {count} records" in caplog.text
    (piece,) = kept_pieces(path)
    assert piece == store.recovered.kept
    report = verification_report(piece.path)
    assert [one.check for one in report.findings] == ["log.record"], "the damaged one, at which the log was cut"
    assert report.records == count
    assert before == whole_records(path) | whole_records(Path(piece.path))
    with StoreReader.open(piece.path) as reader:
        assert (
            sum(info.max_offset - info.min_offset for topic in reader.topics() for info in reader.queues(topic))
            == count
        )
    with pytest.raises(InvalidValue, match="on_cut is 'keep' or 'refuse'"):
        MessageStore.open(path, on_cut="loose")  # type: ignore[arg-type]


def test_a_clean_open_of_many_queues_is_quick(tmp_path: Path) -> None:
    """A queue costs few calls of the opening thread."""
    calls: list[int] = []
    for queues in (20, 20, 220):  # the first run imports modules
        path = tmp_path / str(len(calls))
        with open_store(path) as store:
            for number in range(queues):
                put_ok(store, "many", queue_id=number)

        def opened(path: Path = path) -> None:
            with open_store(path) as store:
                assert store.recovered is None

        calls.append(counted_calls(opened))
    assert calls[2] - calls[1] < 200 * 50
