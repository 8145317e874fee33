"""Two drivers, with JVMs of their own, write to one store, and one of them is killed again and again."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.connector.sink_failures.driver import KEEP_ALL_PLANS
from tests.connector.sink_failures.output import Input, Watcher, check_output
from tests.connector.sink_failures.query import Query, register
from tests.connector.sink_failures.reading_query import ReadingQuery
from tests.support.killed_driver import Drivers
from tests.support.long_runs import LONG_RUN_S, Progress, part_of
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


QUEUES = {"a": (0, 1, 2, 3), "b": (4, 5, 6, 7)}
KILLS = part_of(12, least=4)


@pytest.mark.stress
@pytest.mark.timeout(LONG_RUN_S)
def test_two_drivers_race_for_a_store_and_each_row_is_there_once(
    spark: SparkSession, tmp_path: Path, progress: Progress
) -> None:
    register(spark)
    spark.conf.set(*KEEP_ALL_PLANS)
    queries = {
        name: Query(spark, tmp_path, Input(tmp_path / name, name, queues), lockTimeout="100", queues=10)
        for name, queues in QUEUES.items()
    }
    inputs = [query.source for query in queries.values()]
    queries["a"].make_store()
    chance = random.Random(20241122)
    with (
        Drivers() as drivers,
        Watcher(queries["a"].store, *inputs),
        ReadingQuery(spark, tmp_path, queries["a"].store, *inputs),
    ):
        with contextlib.ExitStack() as running:
            begin(drivers, running, tmp_path, "b", 0)
            for kill in range(KILLS):
                with contextlib.ExitStack() as killed:
                    process = begin(drivers, killed, tmp_path, "a", kill)
                    race(queries, process, chance)
                assert process.returncode == -signal.SIGKILL
                progress.count("driver kills", kill + 1)
        for query in queries.values():
            query.source.add()
            query.run_well()
            query.source.take_order(query.checkpoint)
    spark.conf.unset(KEEP_ALL_PLANS[0])
    check_output(queries["a"].store, *inputs)


def begin(drivers: Drivers, until: contextlib.ExitStack, base: Path, name: str, number: int) -> subprocess.Popen[bytes]:
    """A driver of one input, which runs until ``until`` is closed, and is killed then."""
    scratch, queues = base / f"scratch-{name}-{number}", ",".join(map(str, QUEUES[name]))
    module, log = "tests.connector.sink_failures.driver", base / f"driver-{name}-{number}.log"
    return until.enter_context(drivers.run(module, str(base), str(scratch), name, queues, log=log))


def race(queries: dict[str, Query], process: subprocess.Popen[bytes], chance: random.Random) -> None:
    """Feed both until each has committed something, and for a while after that."""
    done = {name: commits(query) for name, query in queries.items()}
    for query in queries.values():
        query.source.add()
    wait_for(lambda: all(commits(query) > done[name] for name, query in queries.items()) or process.poll() is not None)
    assert process.poll() is None, "the driver failed"
    until = time.monotonic() + chance.uniform(0, 1.5)
    while time.monotonic() < until:
        chance.choice(list(queries.values())).source.add()
        time.sleep(chance.uniform(0, 0.2))


def commits(query: Query) -> int:
    return sum("commit" in said for said in query.told)
