"""An ``UnchangedQueue`` gives what the ``ConsumeQueue`` gives, whatever has happened to the files since the look."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from commitlog_store import StoreReader
from commitlog_store.errors import CommitLogError
from commitlog_store.format.consume_queue_unit import Units
from commitlog_store.paths import CONSUME_QUEUE
from commitlog_store.queue.catalog import QueueCatalog
from commitlog_store.queue.unchanged_queue import UnchangedQueue
from commitlog_store.queue.views import QueueView
from commitlog_store.reading import places, ranges
from commitlog_store.reading.damage import OnDamage
from tests.store.queue.test_saved_ends import QUEUES, make, save_soon

# Messages of each queue, ten of them in the first file.
COUNT = 14
RANGES = [(10, 14), (12, 14), (8, 14), (0, 3), (14, 14), (10, 15)]


def _last_file(queue: Path) -> Path:
    return max(queue.iterdir())


def _overwrite(at: int, size: int) -> Callable[[Path], object]:
    def damage(queue: Path) -> None:
        with _last_file(queue).open("r+b") as file:
            file.seek(at)
            file.write(bytes(size))

    return damage


DAMAGES: dict[str, Callable[[Path], object]] = {
    "nothing": lambda _: None,
    "first unit zeroed": _overwrite(0, 20),
    "end zeroed": _overwrite(60, 20),
    "file short": lambda queue: _last_file(queue).write_bytes(_last_file(queue).read_bytes()[:30]),
    "file gone": lambda queue: _last_file(queue).unlink(),
    "queue gone": shutil.rmtree,
    "topic gone": lambda queue: shutil.rmtree(queue.parent),
}


@pytest.fixture
def closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    save_soon(monkeypatch)
    return make(tmp_path / "store")


def _units(queue: QueueView, chunk: int, *, check: bool) -> list[object]:
    found: list[object] = []
    for start, stop in RANGES:
        try:
            found += [units.tolist() for units in queue.units(start, stop, chunk=chunk, check=check)]
        except CommitLogError as error:
            found.append(type(error))
    return found


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("chunk", [2, 1_000_000])
@pytest.mark.parametrize("check", [False, True])
def test_units_are_those_of_a_consume_queue(closed: Path, damage: str, chunk: int, *, check: bool) -> None:
    with StoreReader.open(closed) as one, StoreReader.open(closed) as other:
        for reader in (one, other):
            assert [info.max_offset for info in reader.queue_infos(QUEUES)] == [COUNT] * len(QUEUES)
        unchanged = _catalog(one).uncached_queue("orders", 0)
        whole = _catalog(other).queue("orders", 0)
        assert isinstance(unchanged, UnchangedQueue)
        DAMAGES[damage](closed / CONSUME_QUEUE / "orders" / "0")
        assert _units(unchanged, chunk, check=check) == _units(whole, chunk, check=check)


def _units_given(given: Iterator[tuple[int, Units]]) -> list[object]:
    found: list[object] = []
    try:
        found.extend((number, units.tolist()) for number, units in given)
    except CommitLogError as error:
        found.append(str(error))
    return found


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("on_damage", ["raise", "skip"])
@pytest.mark.parametrize("times", [1, 3], ids=["few", "kept"])
def test_units_of_many_ranges_are_those_of_each(
    damage: str, on_damage: OnDamage, times: int, closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is wrong with one of the ranges is found out by itself, after the ranges before it were given."""
    asked = [(*key, start, stop) for key in QUEUES for start, stop in ((10, 14), (12, 14), (8, 14))] * times

    with (
        StoreReader.open(closed, on_damage=on_damage) as one,
        StoreReader.open(closed, on_damage=on_damage) as other,
    ):
        given = {reader: reader.units_of(asked) for reader in (one, other)}
        DAMAGES[damage](closed / CONSUME_QUEUE / "orders" / "0")
        found = _units_given(given[one])
        monkeypatch.setattr(ranges, "good_units", lambda asked, _: [None] * len(asked))
        assert found == _units_given(given[other])
        assert len(found) > 6


@pytest.mark.parametrize("damage", DAMAGES)
def test_one_unit_is_that_of_a_consume_queue(closed: Path, damage: str) -> None:
    """All but the last: its entry was compared just before, and says where it is."""
    with StoreReader.open(closed) as one, StoreReader.open(closed) as other:
        for reader in (one, other):
            reader.queue_infos(QUEUES)
        unchanged = _catalog(one).uncached_queue("orders", 0)
        whole = _catalog(other).queue("orders", 0)
        assert isinstance(unchanged, UnchangedQueue)
        assert unchanged.unit(COUNT - 1) == whole.unit(COUNT - 1)
        DAMAGES[damage](closed / CONSUME_QUEUE / "orders" / "0")
        offsets = [-1, *range(COUNT - 1), COUNT]
        assert [unchanged.unit(at) for at in offsets] == [whole.unit(at) for at in offsets]


@pytest.mark.parametrize("together", [1, 1000], ids=["together", "one by one"])
def test_store_times_and_the_logs_end_need_no_consume_queue(
    together: int, closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "_READ_TOGETHER", together)
    with StoreReader.open(closed) as reader, StoreReader.open(closed) as other:
        asked = [(*key, offset) for key in QUEUES for offset in (10, COUNT - 1)]
        times = reader.store_timestamps(asked)
        end = reader.physical_bounds()
        assert not _catalog(reader)._queues
        assert times == [other.store_timestamp(*one) for one in asked]
        assert end == other.physical_bounds()


def test_store_times_read_together_are_those_of_each_message(closed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_READ_TOGETHER", 1)
    with StoreReader.open(closed) as reader, StoreReader.open(closed) as other:
        asked = [(*key, offset) for key in QUEUES for offset in range(-1, COUNT + 1)]
        assert [str(one) for one in reader.store_timestamps(asked)] == [_time_or_error(other, *one) for one in asked]


def test_fences_read_together_are_those_of_each_message(closed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the first and last messages of queues that are as they were saved are found without their units."""
    monkeypatch.setattr(places, "_READ_TOGETHER", 1)
    with StoreReader.open(closed) as reader, StoreReader.open(closed) as other:
        for offsets in ((0, COUNT - 1), range(-1, COUNT + 1)):
            reader.queue_infos(QUEUES)
            asked = [(*key, offset) for key in QUEUES for offset in offsets]
            found = reader.fences(asked)
            assert found == reader.fences(asked) == [other.fence(*one) for one in asked]
            assert bool(_catalog(reader)._queues) == (len(offsets) > 2)


def _time_or_error(reader: StoreReader, topic: str, queue_id: int, offset: int) -> str:
    try:
        return str(reader.store_timestamp(topic, queue_id, offset))
    except CommitLogError as error:
        return str(error)


def _catalog(reader: StoreReader) -> QueueCatalog:
    found = reader._catalog
    assert isinstance(found, QueueCatalog)
    return found
