"""``commitlog top``: what its screen shows of a directory and of a served store, its keys, its end, its bounds."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import os
import pty
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator

import pytest
from textual.pilot import Pilot

from commitlog_store import MessageStore, StoreReader
from commitlog_store.cli.top_screen import TopScreen
from commitlog_store.queries.store_overview import OverviewLooks, StoreOverview, TopicLook
from tests.store.cli.commands import SCRIPT, ended
from tests.store.serve.servers import served
from tests.support import quick_programs
from tests.support.readable import readable
from tests.support.waiting import WAIT_LIMIT_S


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path_factory.mktemp("top") / "store") as store:
        for topic, count in (("orders", 3), ("parcels", 5), ("audit", 1)):
            for _ in range(count):
                store.put(topic, b"x", queue_id=0)
        store.commit_group_offsets("billing", {("orders", 0): 1})
        store.commit_group_offsets("shipping", {("parcels", 0): 0})
        store.dispatch()
        yield store


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


def test_rates_are_of_the_last_ten_seconds_and_errors_leave_the_last_answers(store: MessageStore) -> None:
    clock = _Clock()
    with (
        served(owned=store) as url,
        StoreReader.open(url, rpc_timeout_s=1) as far,
        StoreReader.open(store.path) as near,
    ):
        looks = [OverviewLooks(reader, clock=clock) for reader in (far, near)]
        assert {one.rate for look in looks for one in look.look().topics} == {None}
        clock.now += 5
        for _ in range(50):
            store.put("audit", b"x", queue_id=0)
        store.dispatch()
        for look in looks:
            found = look.look()
            rates = {one.topic: one.rate or 0 for one in found.topics}
            assert rates["audit"] == pytest.approx(10, rel=0.01)
            assert rates["orders"] == 0
            assert {one.group: one.lag for one in found.groups} == {"billing": 2, "shipping": 5}
            assert (found.log_start, found.log_end) == store.physical_bounds()
            assert (found.disk_free or 0) > 0
            assert found.problems == []
    clock.now += 60
    last = looks[0].look()
    assert last.topics
    assert [text for text in last.problems if "closed" in text]


def _on_screen(
    look: Callable[[], StoreOverview], steps: Callable[[TopScreen, Pilot[None]], Awaitable[None]], pause_s: float = 0.05
) -> None:
    async def run() -> None:
        screen = TopScreen(look, "/data/store", pause_s=pause_s)
        async with screen.run_test(size=(100, 30)) as pilot:
            await steps(screen, pilot)

    asyncio.run(run())


async def _until(pilot: Pilot[None], holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_LIMIT_S
    while not holds():
        assert time.monotonic() < deadline
        await pilot.pause(0.01)


def _names(screen: TopScreen) -> list[str]:
    return [str(screen.topics.get_row_at(row)[-1]) for row in range(screen.topics.row_count)]


def test_keys_sort_filter_and_quit(store: MessageStore) -> None:
    with StoreReader.open(store.path) as reader:
        looks = OverviewLooks(reader)

        async def steps(screen: TopScreen, pilot: Pilot[None]) -> None:
            await _until(pilot, lambda: screen.topics.row_count == 3)
            await pilot.press("s", "s", "s")
            assert _names(screen) == ["audit", "orders", "parcels"]
            await pilot.press("r")
            assert _names(screen) == ["parcels", "orders", "audit"]
            await pilot.press("slash", "O", "r", "d", "enter")
            await _until(pilot, lambda: _names(screen) == ["orders"])
            assert screen.groups.row_count == 0
            await pilot.press("escape")
            await _until(pilot, lambda: screen.topics.row_count == 3)
            await pilot.press("tab")
            assert screen.groups.has_focus
            assert str(screen.groups.get_row_at(0)[-1]) == "shipping"
            await pilot.press("q")
            await _until(pilot, lambda: not screen.is_running)

        _on_screen(looks.look, steps)


def test_names_are_shown_as_they_are_and_problems_with_them() -> None:
    evil = StoreOverview(
        topics=[TopicLook(topic="[red]\x1b[31m", queues=1, messages=1, rate=None)], problems=["[b]gone\x07"]
    )

    async def steps(screen: TopScreen, pilot: Pilot[None]) -> None:
        await _until(pilot, lambda: screen.topics.row_count == 1)
        assert _names(screen)[0].startswith("[red]")
        assert "\x1b" not in _names(screen)[0]
        assert screen.query_one("#problems").display

    _on_screen(lambda: evil, steps)


def test_an_hour_of_looks_does_not_grow_the_screen() -> None:
    many = StoreOverview(
        topics=[TopicLook(topic=f"t{n}", queues=1, messages=n, rate=float(n)) for n in range(250)], log_end=0
    )

    async def steps(screen: TopScreen, pilot: Pilot[None]) -> None:
        async def look(times: int) -> int:
            for number in range(times):
                found = dataclasses.replace(many, log_end=number)
                screen.post_message(TopScreen.Looked(found))
                await pilot.pause()
            gc.collect()
            return len(gc.get_objects())

        await _until(pilot, lambda: screen.topics.row_count == 200)
        before = await look(3)
        assert await look(20) < before + 2_000  # a look has more than 1,000 cells
        assert screen.topics.row_count == 200

    _on_screen(lambda: many, steps, pause_s=60)


@pytest.mark.parametrize("end", ["q", "Ctrl-C", "SIGTERM"])
def test_on_a_terminal_it_shows_the_store_until_it_is_ended(store: MessageStore, end: str) -> None:
    main, side = pty.openpty()
    environment = {**os.environ, "COLUMNS": "100", "LINES": "30", "TERM": "xterm-256color"}
    with quick_programs.Popen(
        [SCRIPT, "top", store.path], stdin=side, stdout=side, stderr=side, env=environment
    ) as process:
        os.close(side)
        printed, asked = b"", False
        deadline = time.monotonic() + WAIT_LIMIT_S
        while time.monotonic() < deadline:
            if not readable(main, 1):
                continue
            try:
                data = os.read(main, 1 << 16)
            except OSError:  # the other side is closed
                break
            printed += data
            if b"shipping" in printed and b"parcels" in printed and not asked:
                asked = True
                if end == "SIGTERM":
                    process.terminate()
                else:
                    os.write(main, b"q" if end == "q" else b"\x03")
        assert asked, printed
        assert process.wait(WAIT_LIMIT_S) == 0
    os.close(main)
    assert b"\x1b[?1049l" in printed  # the terminal's own screen is back
    assert printed.rstrip().endswith((b"\x1b[?25h", b"l", b"h")), printed[-100:]


def test_without_a_terminal_or_the_extra_it_says_what_to_do(store: MessageStore) -> None:
    done = ended("top", store.path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "needs a terminal" in done.stderr
    hidden = "import sys; sys.modules['textual'] = None; from commitlog_store.cli import main; main()"
    command = [sys.executable, "-c", hidden, "top", store.path]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=WAIT_LIMIT_S)
    assert ran.returncode == 1
    assert "pip install 'pyspark-commitlog[top]'" in ran.stderr
