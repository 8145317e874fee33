"""The sink through a server that dies, a network that fails, and drivers that die: each row once, no batch in part."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.connector.sink.sink_helpers import staged_files
from tests.connector.sink_failures.driver import KEEP_ALL_PLANS
from tests.connector.sink_failures.output import Input, Watcher, check_output
from tests.connector.sink_failures.served_driver import start_query
from tests.store.serve.dying_server import Death, command_of, deaths, plans_left
from tests.store.serve.kept_server import KeptServer
from tests.support.killed_driver import Drivers
from tests.support.long_runs import LONG_RUN_S, Progress, part_of, some_of
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    import subprocess

    from pyspark.sql import SparkSession


# More changes of files than a call has: it dies when the call is done, and the answer is lost.
DONE = 10_000
HALF_PART = Death(call="upload_part", turn=1, half=True)
HALF_LATER_PART = Death(call="upload_part", after=3, turn=1, half=True)
# Each is what happens while one batch is written; several follow each other. Some set the server's clock by hours:
# between upload and commit, and between a commit and its repetition. The last one sets it right.
QUICK_DEATHS: Sequence[tuple[Death, ...]] = (
    *((Death(call="upload_part", turn=turn),) for turn in (0, 1, DONE)),
    (HALF_PART, Death(call="commit_batch", turn=0, hours_ahead=5)),
    (Death(call="upload_part", after=2, turn=0), HALF_LATER_PART, Death(call="commit_batch", turn=DONE)),
    (Death(call="commit_batch", turn=DONE, hours_ahead=-7),),
    *((Death(call="commit_batch", turn=turn),) for turn in (0, 3, 9, 16)),
    tuple(Death(call=call, turn=turn) for call, turn in (("upload_part", 2), ("commit_batch", 7), ("commit_batch", 2))),
    *((Death(call="commit_batch", turn=turn, half=True),) for turn in (4, 5)),
    (Death(call="commit_batch", turn=DONE, hours_ahead=0),),
)
# A kill ends a write between two pages, which readers beside the dead owner know; half a unit within a page is damage
# to them, so a commit dies between its calls here.
STRESS_DEATHS: Sequence[tuple[Death, ...]] = (
    *((Death(call="upload_part", turn=turn),) for turn in (*range(6), DONE)),
    *((replace(HALF_PART, turn=turn),) for turn in range(1, 8)),
    *((replace(HALF_LATER_PART, after=after),) for after in range(1, 20)),
    *((Death(call="upload_part", after=after, turn=DONE),) for after in range(1, 20, 3)),
    *((Death(call="commit_batch", turn=turn, hours_ahead=turn % 20 - 10),) for turn in range(60) for _ in range(2)),
    *((Death(call="commit_batch", turn=turn), Death(call="commit_batch", turn=DONE)) for turn in range(0, 60, 2)),
    *((Death(call="commit_batch", turn=DONE), Death(call="commit_batch", turn=turn)) for turn in range(0, 20, 2)),
)
QUICK_KILLS, STRESS_KILLS = 19, part_of(200)
# Where the server stalls while a driver is killed; None is any moment. The server that has written half a part is
# killed, too.
QUICK_STALLS: Sequence[Death | None] = (Death(call="commit_batch", turn=DONE, stalls=True),)
STRESS_STALLS: Sequence[Death | None] = (
    *(Death(call="commit_batch", turn=turn, stalls=True) for turn in (DONE, 3, 0, 8)),
    *(Death(call="upload_part", after=after, turn=turn, stalls=True) for after, turn in ((0, 0), (0, 4), (5, DONE))),
    *(replace(one, stalls=True) for one in (HALF_PART, HALF_LATER_PART)),
    *(None for _ in range(4)),
) * part_of(4)


@pytest.fixture
def source(tmp_path: Path) -> Input:
    return Input(tmp_path / "input")


@pytest.fixture
def plans(tmp_path: Path) -> Path:
    (tmp_path / "plans").mkdir()
    return tmp_path / "plans"


@pytest.fixture(autouse=True)
def all_plans_are_kept(spark: SparkSession) -> Iterator[None]:
    """``Input.take_order`` reads them."""
    spark.conf.set(*KEEP_ALL_PLANS)
    yield
    spark.conf.unset(KEEP_ALL_PLANS[0])


@pytest.fixture
def server(tmp_path: Path, plans: Path) -> Iterator[KeptServer]:
    with KeptServer(*command_of(plans, tmp_path / "store"), log=tmp_path / "server.log") as kept:
        yield kept


def die_at_each(
    spark: SparkSession,
    base: Path,
    source: Input,
    server: KeptServer,
    planned: Sequence[tuple[Death, ...]],
    progress: Progress,
) -> None:
    store, plans = base / "store", base / "plans"
    number = 0
    with Watcher(store, source):
        query = start_query(spark, base, source, server.url)
        try:
            for together in planned:
                for death in together:
                    death.plan(plans, number)
                    number += 1
                source.add()
                query.processAllAvailable()
                assert not plans_left(plans)
                progress.count("server kills", server.deaths)
        finally:
            query.stop()
            assert not server.failed, (base / "server.log").read_text()[-3000:]
        assert query.exception() is None
        server.stop()
    check_output(store, source)


def test_a_server_that_dies_at_any_step_gets_each_row_once(
    spark: SparkSession, tmp_path: Path, source: Input, server: KeptServer, plans: Path, progress: Progress
) -> None:
    die_at_each(spark, tmp_path, source, server, QUICK_DEATHS, progress)
    found = deaths(plans)
    assert len(found) == server.deaths >= QUICK_KILLS
    within = [death for death in found if death["cut"] or 0 < death["turn"] == death["changes"]]
    assert len(within) >= QUICK_KILLS // 2, "they died within the calls"
    assert [death["after"] for death in found if death["cut"] and death["call"] == "upload_part"] == [0, 3]


@pytest.mark.stress
@pytest.mark.timeout(LONG_RUN_S)
def test_a_server_that_dies_at_each_step_gets_each_row_once(
    spark: SparkSession, tmp_path: Path, source: Input, server: KeptServer, plans: Path, progress: Progress
) -> None:
    source.extra_rows = 60
    die_at_each(spark, tmp_path, source, server, some_of(STRESS_DEATHS), progress)
    assert len(deaths(plans)) == server.deaths >= STRESS_KILLS


def kill_drivers(
    spark: SparkSession,
    base: Path,
    source: Input,
    server: KeptServer,
    stalls: Sequence[Death | None],
    progress: Progress,
) -> None:
    """Driver after driver, each killed while the server is in a call, or at any moment; the last one is ours."""
    plans, chance = base / "plans", random.Random(20261125)
    with Watcher(base / "store", source) as watcher, Drivers() as drivers:
        for number, death in enumerate(stalls):
            log = base / f"driver-{number}.log"
            arguments = str(base), str(base / f"scratch-{number}"), server.url
            with drivers.run("tests.connector.sink_failures.served_driver", *arguments, log=log) as driver:
                before = len(watcher.seen)
                source.add(2)
                wait_for(lambda: len(watcher.seen) > before or driver.poll() is not None)  # noqa: B023
                assert driver.poll() is None, log.read_text()[-3000:]
                kill_at(driver, plans, death, source, chance)
            if death is not None and death.half:
                server.kill()
                (plans / "stalled").unlink()
            elif death is not None:
                (plans / "go").touch()
                wait_for(lambda: not (plans / "stalled").exists())
                (plans / "go").unlink()
            progress.count("driver kills", number + 1)
            progress.count("server kills", server.deaths)
        query = start_query(spark, base, source, server.url)
        try:
            source.add()
            query.processAllAvailable()
        finally:
            query.stop()
        server.stop()
        source.take_order(base / "checkpoint")
    check_output(base / "store", source)


def kill_at(
    driver: subprocess.Popen[bytes], plans: Path, death: Death | None, source: Input, chance: random.Random
) -> None:
    """Returns when the driver may be killed: that is done on leaving ``Drivers.run``."""
    if death is None:
        until = time.monotonic() + chance.uniform(0, 1.5)
        while time.monotonic() < until:
            source.add()
            time.sleep(chance.uniform(0, 0.3))
        return
    death.plan(plans, 0)
    source.add()
    wait_for(lambda: (plans / "stalled").exists() or driver.poll() is not None)
    assert driver.poll() is None


def test_a_killed_driver_leaves_each_row_once(
    spark: SparkSession, tmp_path: Path, source: Input, server: KeptServer, progress: Progress
) -> None:
    """It dies when the server has committed and has not answered. The driver that follows repeats the batch."""
    kill_drivers(spark, tmp_path, source, server, QUICK_STALLS, progress)
    found = deaths(tmp_path / "plans")
    assert [(death["call"], death["cut"]) for death in found] == [("commit_batch", False)]


@pytest.mark.stress
@pytest.mark.timeout(LONG_RUN_S)
def test_many_killed_drivers_leave_each_row_once(
    spark: SparkSession, tmp_path: Path, source: Input, server: KeptServer, progress: Progress
) -> None:
    kill_drivers(spark, tmp_path, source, server, STRESS_STALLS, progress)


def write_in_chaos(
    spark: SparkSession, base: Path, source: Input, server: KeptServer, seed: int, count: int
) -> dict[str, int]:
    """What the network did to ``count`` batches: calls of driver and tasks are delayed, cut, doubled and overtaken."""
    store = base / "store"
    with Watcher(store, source):
        with TcpProxy(int(server.url.rpartition(":")[2]), seed) as proxy:
            query = start_query(spark, base, source, proxy.url)

            def a_commit_removes_what_came_late() -> bool:
                """A server may still be busy with it, though its connection is closed."""
                source.add()
                query.processAllAvailable()
                return not staged_files(store)

            try:
                proxy.chaos = 0.03
                for _ in range(count):
                    source.add()
                    query.processAllAvailable()
                proxy.chaos = 0.0
                wait_for(a_commit_removes_what_came_late)
            finally:
                query.stop()
        assert query.exception() is None
        server.stop()
    check_output(store, source)
    return proxy.done


def test_a_network_in_chaos_brings_each_row_once(
    spark: SparkSession, tmp_path: Path, source: Input, server: KeptServer
) -> None:
    done = write_in_chaos(spark, tmp_path, source, server, 1, 6)
    assert sum(done.values()) > 0, "the network did nothing"


@pytest.mark.stress
@pytest.mark.timeout(LONG_RUN_S)
@pytest.mark.parametrize("seed", range(10, 20))
def test_a_long_time_of_chaos_brings_each_row_once(
    spark: SparkSession, tmp_path: Path, source: Input, server: KeptServer, progress: Progress, seed: int
) -> None:
    done = write_in_chaos(spark, tmp_path, source, server, seed, 60)
    progress.count("connections cut, doubled or late", done["cut"] + done["double"] + done["late"])
