"""kill -9 of whole drivers, at any moment and at chosen ones, and commits that live on without their driver."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.connector.sink_failures.driver import KEEP_ALL_PLANS
from tests.connector.sink_failures.output import Input, Watcher, check_output
from tests.connector.sink_failures.query import Query, ended, register
from tests.connector.sink_failures.reading_query import ReadingQuery
from tests.support.killed_driver import Drivers
from tests.support.long_runs import LONG_RUN_S, Progress, part_of
from tests.support.waiting import WAIT_LIMIT_S, wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# ``moment``: at any. ``before``: the JVM dies as a commit begins, which continues when the next driver has done the
# same batch. ``inside``: the JVM dies within a commit, which continues while the next driver waits for the store.
# ``after``: driver and commit die when the sink has committed and the checkpoint has not.
KINDS = ("before",)
STRESS_KINDS = ("moment", "before", "moment", "inside", "moment", "after") * part_of(34)
# The stress form kills at least so many, in campaigns that may run beside each other.
STRESS_KILLS, CAMPAIGNS = part_of(200), 4


class Campaign:
    """Driver after driver, each killed in its own way; the tests' own session is the last one."""

    def __init__(self, query: Query, base: Path, drivers: Drivers, progress: Progress) -> None:
        self.query = query
        self.base = base
        self.drivers = drivers
        self.progress = progress
        self.kills = 0
        self.chance = random.Random(20240807)

    def run(self, kinds: Sequence[str]) -> None:
        store, source = self.query.store, self.query.source
        before = ""
        self.query.make_store()
        with Watcher(store, source), ReadingQuery(self.query.spark, self.base, store, source):
            for number, kind in enumerate(kinds):
                arguments = str(self.base), str(self.base / f"scratch-{number}")
                log = self.base / f"driver-{number}.log"
                with self.drivers.run("tests.connector.sink_failures.driver", *arguments, log=log) as process:
                    self.feed_until_it_commits(process, before)
                    self.kill(process, kind)
                self.note_kill(process, kind)
                before = kind
            seen = self.count("begun"), self.count("commit")
            source.add()
            query = self.query.start()
            self.let_go_on(before, *seen)
            error = ended(query)
            assert not error, error
            source.take_order(self.query.checkpoint)
        check_output(store, source)

    def note_kill(self, process: subprocess.Popen[bytes], kind: str) -> None:
        """The whole driver was killed, or its JVM, and then Python's part of it failed."""
        code = process.returncode
        assert code == -signal.SIGKILL if kind == "moment" else code > 0, f"it was not killed: {code}"
        self.kills += 1
        self.progress.count("driver kills", self.kills)

    def count(self, what: str) -> int:
        return sum(what in said for said in self.query.told)

    def feed_until_it_commits(self, process: subprocess.Popen[bytes], before: str) -> None:
        begun, done = self.count("begun"), self.count("commit")
        self.query.source.add(self.chance.randrange(1, 3))
        if process.poll() is None:
            self.let_go_on(before, begun, done)
        wait_for(lambda: self.count("commit") > done or process.poll() is not None)
        assert process.poll() is None, "the driver failed"

    def let_go_on(self, before: str, begun: int, done: int) -> None:
        """The surviving commit continues when another driver is in a commit too, or has done the same batch."""
        paused, go = self.query.plan.with_suffix(".paused"), self.query.plan.with_suffix(".go")
        if before not in ("before", "inside"):
            return
        if before == "before":
            wait_for(lambda: self.count("commit") > done)
        else:
            wait_for(lambda: self.count("begun") > begun)
        go.touch()
        lives_on = Path("/proc", paused.read_text(), "stat")
        wait_for(lambda: not lives_on.exists() or lives_on.read_text().rpartition(")")[2].split()[0] == "Z")
        paused.unlink()
        go.unlink()

    def kill(self, process: subprocess.Popen[bytes], kind: str) -> None:
        if kind == "moment":
            until = time.monotonic() + self.chance.uniform(0, 1.5)
            while time.monotonic() < until:
                self.query.source.add()
                time.sleep(self.chance.uniform(0, 0.3))
            return
        if kind == "after":
            self.query.fail("after")
        else:
            self.query.fail("zombie", turn=1 if kind == "before" else self.chance.randrange(8, 50))
        self.query.source.add()
        process.wait(WAIT_LIMIT_S)
        assert not self.query.plan.exists(), "no commit came"


@pytest.fixture
def campaign(spark: SparkSession, tmp_path: Path, progress: Progress) -> Iterator[Campaign]:
    register(spark)
    spark.conf.set(*KEEP_ALL_PLANS)
    with Drivers() as drivers:
        yield Campaign(Query(spark, tmp_path, Input(tmp_path / "input")), tmp_path, drivers, progress)
    spark.conf.unset(KEEP_ALL_PLANS[0])


def test_killed_drivers_leave_each_row_once_and_late_commits_lose(campaign: Campaign) -> None:
    campaign.run(KINDS)
    assert campaign.kills == len(KINDS)


@pytest.mark.stress
@pytest.mark.timeout(LONG_RUN_S)
@pytest.mark.parametrize("number", range(CAMPAIGNS))
def test_many_killed_drivers_leave_each_row_once(campaign: Campaign, number: int) -> None:
    size = len(STRESS_KINDS) // CAMPAIGNS
    campaign.chance.seed(number)
    campaign.run(STRESS_KINDS[number * size :][:size])
    assert campaign.kills * CAMPAIGNS >= STRESS_KILLS
