"""Figures of the past: the ring's records, what damages it, who writes it, and who does not mind it."""

from __future__ import annotations

import dataclasses
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from commitlog_store import MessageStore, StoreReader, salvage_store, store_metadata, verify_store
from commitlog_store.format.figures_record import (
    COUNTS,
    MOST_GROUPS,
    MOST_TOPICS,
    RECORD_SIZE,
    STATES,
    Figures,
    encode_figures,
    figures_of,
    good_records,
    name_hash,
)
from commitlog_store.paths import FIGURES
from commitlog_store.serve.figures import series
from commitlog_store.serve.figures.figure_ring import RING_SIZE, FigureRing
from commitlog_store.serve.figures.figures_service import FiguresService
from commitlog_store.store import owned_by
from tests.store.retention.small_stores import SMALL, fill
from tests.support.open_files import removed_files_of

# A time at which minutes, ten minutes and hours begin.
_NOON = 1_800_000_000 // 3600 * 3600
_SEED = 20261128


def _figures(begin: int, stored: int = 60, **changed: object) -> Figures:
    made = Figures(
        begin=begin,
        seconds=60,
        measured_ms=60_000,
        numbers=dict.fromkeys(COUNTS, stored) | dict.fromkeys(STATES, begin),
        topics={name_hash("orders"): (stored, 10 * stored, stored // 2)},
        lags={name_hash("billing"): stored},
    )
    return dataclasses.replace(made, **changed)  # type: ignore[arg-type]


def _values(past: series.PastFigures, name: str) -> list[series.Value]:
    return next(one.values for one in past.series if one.name == name)


def test_a_record_is_read_as_it_was_written_and_lists_those_with_most() -> None:
    topics = {name_hash(f"t{n}"): (n, n * 100, 1) for n in range(100)}
    lags = {name_hash(f"g{n}"): n for n in range(100)}
    given = _figures(_NOON, topics=topics, lags=lags)
    data = encode_figures(given)
    assert len(data) == RECORD_SIZE
    (record,) = good_records(data, _NOON, 60)
    found = figures_of(record)
    assert found.topics == {name_hash(f"t{n}"): (n, n * 100, 1) for n in range(100 - MOST_TOPICS, 100)}
    assert found.lags == {name_hash(f"g{n}"): n for n in range(100 - MOST_GROUPS, 100)}
    assert (found.topics_left_out, found.groups_left_out) == (True, True)
    assert found.numbers == given.numbers
    few = _figures(_NOON)
    assert figures_of(good_records(encode_figures(few), _NOON, 60)[0]) == few
    unknown = dataclasses.replace(few, lags=None)
    assert figures_of(good_records(encode_figures(unknown), _NOON, 60)[0]) == unknown


def test_no_damaged_bit_of_a_record_is_read() -> None:
    data = encode_figures(_figures(_NOON))
    random = np.random.default_rng(_SEED)
    for place in random.integers(0, RECORD_SIZE, 300).tolist():
        damaged = bytearray(data)
        damaged[place] ^= 1 << int(random.integers(8))
        assert not len(good_records(bytes(damaged), _NOON, 60)), place
    assert not len(good_records(bytes(RECORD_SIZE), 0, 60))
    assert not len(good_records(data[:1024] + bytes(1024), _NOON, 60))
    assert not len(good_records(data, _NOON + 60, 60))


def test_the_ring_is_bounded_and_keeps_the_last_hours_and_days(tmp_path: Path) -> None:
    ring = FigureRing(str(tmp_path))
    minutes = range(_NOON - 15 * 86_400, _NOON, 60)
    for begin in [*minutes[:-400:97], *minutes[-400:]]:
        ring.add(_figures(begin))
    assert os.path.getsize(ring.path) <= RING_SIZE == 4_866_048
    kept = ring.read(60, 0, _NOON)["begin"].tolist()
    assert kept[-360:] == list(minutes[-360:])
    assert ring.newest_minute(_NOON + 5) == _NOON - 60
    assert ring.newest_minute(_NOON + 500) == 0
    tens = ring.read(600, 0, _NOON)
    assert tens["begin"].min() >= _NOON - 14 * 86_400
    assert tens["stored"][-30:].tolist() == [600] * 30
    assert tens["log_end"][-1] == _NOON - 60


def test_a_minute_that_a_restart_has_cut_is_added_up(tmp_path: Path) -> None:
    ring = FigureRing(str(tmp_path))
    for seconds in (20, 30):
        ring.add(_figures(_NOON, stored=seconds * 7, measured_ms=seconds * 1000))
    past = series.of_store(ring, "1h", _NOON + 60, ["billing"])
    assert _values(past, "stored")[-1] == 7.0
    assert _values(past, "lag:billing")[-1] == 210
    assert _values(series.of_store(ring, "7d", _NOON + 60), "stored")[-1] == 7.0


def test_series_tell_zero_from_unknown(tmp_path: Path) -> None:
    ring = FigureRing(str(tmp_path))
    ring.add(_figures(_NOON - 240))
    ring.add(_figures(_NOON - 180, topics={1: (5, 5, 5)}, lags={}))
    ring.add(_figures(_NOON - 120, topics={1: (5, 5, 5)}, lags=None, topics_left_out=True))
    past = series.of_store(ring, "1h", _NOON, ["billing", "audit"])
    assert past.times == list(range(_NOON - 3600, _NOON, 60))
    assert _values(past, "stored")[-5:] == [None, 1.0, 1.0, 1.0, None]
    assert _values(past, "lag:billing")[-5:] == [None, 60, 0, None, None]
    assert not any(one.name == "lag:audit" for one in past.series)
    of_topic = series.of_topic(ring, "1h", _NOON, "orders")
    assert _values(of_topic, "storedBytes")[-5:] == [None, 10.0, 0.0, None, None]
    assert series.of_topic(FigureRing(str(tmp_path / "none")), "7d", _NOON, "orders").is_empty


def test_a_ring_of_other_bytes_is_empty_and_is_written_again(tmp_path: Path) -> None:
    ring = FigureRing(str(tmp_path))
    Path(ring.path).write_bytes(np.random.default_rng(_SEED).bytes(RING_SIZE // 7))
    assert series.of_store(ring, "7d", _NOON, ["billing"]).is_empty
    ring.add(_figures(_NOON - 60))
    assert not series.of_store(ring, "1h", _NOON).is_empty
    Path(ring.path).write_bytes(Path(ring.path).read_bytes()[: RECORD_SIZE * 3 + 7])
    series.of_store(ring, "24h", _NOON)
    Path(ring.path).unlink()
    Path(ring.path).mkdir()
    assert series.of_store(ring, "1h", _NOON).is_empty


def test_a_write_that_finds_no_room_leaves_the_other_records(tmp_path: Path) -> None:
    ring = FigureRing(str(tmp_path))
    ring.add(_figures(_NOON - 60))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            ring.add(_figures(_NOON))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert ring.read(60, _NOON - 3600, _NOON + 60)["begin"].tolist() == [_NOON - 60]


class _Clock:
    def __init__(self) -> None:
        self.now = float(_NOON + 30)

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store") as store:
        yield store


def _service(store: MessageStore, clock: _Clock) -> FiguresService:
    return FiguresService(store, lambda how: StoreReader.open(store.path, on_damage=how), clock=clock, monotonic=clock)


def test_the_service_adds_a_record_a_minute(store: MessageStore, clock: _Clock) -> None:
    store.put("orders", b"before the service")
    store.dispatch()
    service = _service(store, clock)
    ring = FigureRing(store.path)
    assert service.run_once() == 30
    assert not Path(ring.path).exists()
    for _ in range(30):
        store.put("orders", b"x" * 100, queue_id=0)
    store.commit_group_offsets("billing", {("orders", 0): 10})
    store.dispatch()
    clock.now = _NOON + 60.0
    assert service.run_once() == 60
    past = series.of_store(ring, "1h", clock.now, ["billing"])
    assert _values(past, "stored")[-1] == 1.0
    assert _values(past, "logEnd")[-1] == store.physical_bounds()[1]
    with StoreReader.open(store.path) as reader:
        (lag,) = (one.lag for one in reader.groups("billing") if one.queue_id == 0)
    assert _values(past, "lag:billing")[-1] == lag
    assert _values(series.of_topic(ring, "1h", clock.now, "orders"), "stored")[-1] == 1.0
    used, size = (_values(past, name)[-1] for name in ("diskUsed", "diskSize"))
    assert isinstance(used, int)
    assert isinstance(size, int)
    assert 0 < used < size
    clock.now -= 3600  # set back: the next minute is due by the new time
    assert service.run_once() == 60
    store.put("orders", b"in the last minute")
    store.dispatch()
    clock.now += 10
    service.stop()
    service.stop()
    assert _values(series.of_store(ring, "24h", clock.now + 60), "stored")[-1] is not None


@pytest.mark.skipif(sys.platform != "linux", reason="open files are looked for in /proc")
def test_the_services_reader_keeps_no_file_open_that_retention_has_deleted(tmp_path: Path, clock: _Clock) -> None:
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        others = len(owned_by(store).engine.after_removal)
        service = _service(store, clock)
        fill(store, 30)
        for version in range(3):  # a reader looks into the log for the ends of batches
            with store.transaction("loader", version) as batch:
                batch.put_messages([{"body": b"x" * 900}] * 3, topic="bills")
        fill(store, 5)
        store.commit_group_offsets("billing", {("orders", 0): 1})
        clock.now = _NOON + 60.0
        service.run_once()
        assert store.clean(max_bytes=1).deleted
        assert not removed_files_of(os.getpid(), tmp_path)
        service.stop()
        assert len(owned_by(store).engine.after_removal) == others


def test_a_service_that_cannot_be_made_leaves_nothing_in_the_store(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("no ring")

    others = len(owned_by(store).engine.after_removal)
    monkeypatch.setattr("commitlog_store.serve.figures.figures_service.FigureRing", fail)
    with pytest.raises(OSError, match="no ring"):
        FiguresService(store, lambda on_damage: StoreReader.open(store.path, on_damage=on_damage))
    assert len(owned_by(store).engine.after_removal) == others


def test_without_room_figures_are_left_out_and_the_store_goes_on(
    store: MessageStore, clock: _Clock, caplog: pytest.LogCaptureFixture
) -> None:
    service = _service(store, clock)
    ring = FigureRing(store.path)
    Path(ring.path).mkdir()
    for minute in (1, 2):
        store.put("orders", b"x")
        store.dispatch()
        clock.now = _NOON + 60.0 * minute
        service.run_once()
    assert [record.message for record in caplog.records if "figures are not kept" in record.message] != []
    assert len([record for record in caplog.records if FIGURES in record.message]) == 1
    Path(ring.path).rmdir()
    clock.now = _NOON + 180.0
    service.run_once()
    assert "figures are kept again" in caplog.text
    # What was counted since the last record is in this one.
    assert ring.read(60, _NOON, _NOON + 300)["stored"].tolist() == [2]
    service.stop()


def test_readers_and_tools_do_not_mind_the_ring(store: MessageStore, tmp_path: Path) -> None:
    FigureRing(store.path).add(_figures(_NOON))
    store.put("orders", b"x")
    store.close()
    before = Path(store.path, FIGURES).read_bytes()
    with MessageStore.open(store.path) as again:
        again.put("orders", b"y")
    with StoreReader.open(store.path) as reader:
        assert reader.scan("orders").read_all().num_rows == 2
    assert FIGURES in store_metadata(store.path, "files")["path"].to_pylist()
    assert list(verify_store(store.path)) == []
    salvage_store(store.path, tmp_path / "saved")
    assert not (tmp_path / "saved" / FIGURES).exists()
    assert Path(store.path, FIGURES).read_bytes() == before
