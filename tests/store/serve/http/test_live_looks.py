"""Live pages: one look for all who have the same page open, in a bounded part of a processor; times that are known."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest
from starlette.responses import StreamingResponse

from commitlog_store import MessageStore, StoreReader
from commitlog_store.errors import CommitLogError, RemoteFailed
from commitlog_store.serve.call_limits import answering, refuse_unwanted
from commitlog_store.serve.http.pages import known_numbers
from commitlog_store.serve.http.pages.known_numbers import KnownTimes
from commitlog_store.serve.http.pages.live_looks import LiveLooks
from commitlog_store.serve.http.pages.live_streams import LiveStreams
from commitlog_store.serve.http.pages.views import Values
from commitlog_store.threads.wakeup import Wakeup
from tests.support.waiting import WAIT_LIMIT_S


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
    looks.of("/", time.look)  # the other page was closed before
    time.now = 25.0
    assert looks.of("/", time.look)["looks"] == 6


def test_a_look_that_fails_is_not_repeated_before_it_is_due_and_what_was_shown_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
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
    assert not caplog.messages, "each visitor got the error"
    for time.now in (10.0, 15.0):
        assert looks.of("/", fail)["looks"] == 2
    assert caplog.messages == ["An open page stays as it was, '/': gone"]


def test_a_mistake_of_the_program_is_raised_though_the_page_has_something_to_show() -> None:
    time = _Time()
    looks = _looks(time)

    def fail(before: Values | None) -> Values:
        time.look(before)
        raise TypeError("a mistake")

    for _ in range(2):
        with pytest.raises(TypeError, match="a mistake"):
            looks.of("/", fail)
    assert looks.of("/", time.look)["looks"] == 3
    time.now = 6.0
    with pytest.raises(TypeError, match="a mistake"):
        looks.of("/", fail)
    assert looks.of("/", time.look)["looks"] == 3, "not due again"


def test_a_visitor_who_leaves_during_the_first_look_ends_it_for_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    time = _Time()
    looks, begun, left = _looks(time), Wakeup(), Wakeup()

    def abandoned(before: Values | None) -> Values:
        time.look(before)
        begun.set()
        left.wait(WAIT_LIMIT_S)
        refuse_unwanted()
        raise AssertionError("its visitor has left")

    def visit(look: Callable[[Values | None], Values], is_there: bool) -> Values:
        with answering(lambda: is_there):
            return looks.of("/", look)

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(visit, abandoned, False)
        begun.wait(WAIT_LIMIT_S)
        other = threads.submit(visit, time.look, True)
        left.set()
        assert isinstance(first.exception(WAIT_LIMIT_S), RemoteFailed)
        assert other.result(WAIT_LIMIT_S)["looks"] == 2
    assert not caplog.messages


def test_times_of_a_page_that_asks_for_very_many_are_known_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_numbers, "_MOST", 2)

    class Reader:
        asked = 0

        def store_timestamps(self, places: Sequence[object]) -> list[int]:
            self.asked += len(places)
            return [7] * len(places)

    known, reader = KnownTimes(clock=lambda: 0.0), Reader()
    page = [("orders", 0, offset) for offset in range(9)]
    for _ in range(3):
        assert known.of(cast("StoreReader", reader), page) == [7] * 9
        known.of(cast("StoreReader", reader), page[:1])
    assert reader.asked == 9
    for first in range(9, 900, 9):  # of a queue that grows, what is known does not grow without end
        known.of(cast("StoreReader", reader), [("orders", 0, first + offset) for offset in range(9)])
    assert len(known._known) <= 3 * 9


def test_pages_that_are_opened_at_the_same_time_are_no_more_streams_than_may_be() -> None:
    async def made() -> str:
        return "<p>looked</p>"

    async def opened() -> list[object]:
        streams = LiveStreams()
        asked = [streams.stream(made) for _ in range(100)]  # a stream counts once its answer begins
        events = [aiter(answer.body_iterator) for answer in asked if isinstance(answer, StreamingResponse)]
        return [one for stream in events if (one := await anext(stream, b""))]

    assert len(asyncio.run(opened())) == 64


@pytest.mark.parametrize("asked_at", [(30.0, 59.0), (59.0,), ()], ids=str)
def test_times_are_known_for_a_minute_at_most_without_the_store(tmp_path: Path, asked_at: tuple[float, ...]) -> None:
    time = _Time()
    known = KnownTimes(clock=time.clock)
    with MessageStore.open(tmp_path / "store") as store:
        for body in (b"a", b"b"):
            store.put("orders", body, queue_id=0)
        store.dispatch()
        places = [("orders", 0, 0), ("orders", 0, 1)]
        with StoreReader.open(store.path) as reader:
            stored = known.of(reader, places)
            assert stored == reader.store_timestamps(places)
            (missing,) = known.of(reader, [("orders", 0, 2)])
            assert isinstance(missing, CommitLogError)
        for time.now in (0.0, *asked_at):
            assert known.of(reader, places) == stored  # nothing is read: the reader is closed
        time.now = 60.0
        with pytest.raises(CommitLogError, match="closed"):
            known.of(reader, places)
