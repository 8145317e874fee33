"""Live pages: one look for all who have the same page open, in a bounded part of a processor; times that are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlog_store import MessageStore, StoreReader
from commitlog_store.errors import CommitLogError
from commitlog_store.serve.http.pages.known_times import KnownTimes
from commitlog_store.serve.http.pages.live_looks import LiveLooks
from commitlog_store.serve.http.pages.views import Values


class _Time:
    """A clock, and looks that take processor time by it."""

    def __init__(self) -> None:
        self.now, self.spent, self.looks = 0.0, 0.0, 0

    def clock(self) -> float:
        return self.now

    def processor_time(self) -> float:
        return self.spent

    def look(self, before: Values | None) -> Values:
        self.spent += 0.05
        self.looks += 1
        return {"looks": self.looks, "before": before and before["looks"]}


def _looks(time: _Time) -> LiveLooks:
    return LiveLooks(pause_s=2.0, clock=time.clock, processor_time=time.processor_time)


def test_all_who_have_a_page_open_get_one_look_and_looks_take_a_hundredth_of_a_processor() -> None:
    time = _Time()
    looks = _looks(time)
    assert [looks.of("/", time.look)["looks"] for _ in range(64)] == [1] * 64
    time.now = 4.9
    assert looks.of("/", time.look) == {"looks": 1, "before": None}
    time.now = 5.0  # a hundred times 50 ms
    assert looks.of("/", time.look) == {"looks": 2, "before": 1}


def test_the_more_pages_are_open_the_less_often_each_is_looked_at() -> None:
    time = _Time()
    looks = _looks(time)
    looks.of("/", time.look)
    looks.of("/topics", time.look)
    time.now = 9.9
    assert looks.of("/", time.look)["looks"] == 3
    assert looks.of("/topics", time.look)["looks"] == 2
    time.now = 10.0
    assert looks.of("/topics", time.look)["looks"] == 4
    time.now = 20.0
    looks.of("/", time.look)  # the other one was closed meanwhile
    time.now = 25.0
    assert looks.of("/", time.look)["looks"] == 6


def test_a_look_that_fails_is_not_repeated_before_it_is_due_and_what_was_shown_stays() -> None:
    time = _Time()
    looks = _looks(time)

    def fail(before: Values | None) -> Values:
        time.look(before)
        raise CommitLogError("gone")

    for _ in range(3):
        with pytest.raises(CommitLogError, match="gone"):
            looks.of("/", fail)
    assert time.looks == 1
    time.now = 5.0
    assert looks.of("/", time.look)["looks"] == 2
    time.now = 10.0
    assert looks.of("/", fail)["looks"] == 2


def test_times_are_known_for_a_minute_without_the_store(tmp_path: Path) -> None:
    time = _Time()
    known = KnownTimes(clock=time.clock)
    with MessageStore.open(tmp_path / "store") as store:
        for body in (b"a", b"b"):
            store.put("orders", body, queue_id=0)
        places = [("orders", 0, 0), ("orders", 0, 1)]
        with StoreReader.open(store.path) as reader:
            stored = known.of(reader, places)
            assert stored == reader.store_timestamps(places)
            (missing,) = known.of(reader, [("orders", 0, 2)])
            assert isinstance(missing, CommitLogError)
        assert known.of(reader, places) == stored  # nothing is read: the reader is closed
        time.now = 40.0
        assert known.of(reader, places) == stored
        time.now = 75.0
        with pytest.raises(CommitLogError, match="closed"):
            known.of(reader, places)
