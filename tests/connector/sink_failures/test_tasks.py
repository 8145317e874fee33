"""Executors lost in a write, and tasks that run twice: each row once. Retries: ``sink/test_retry.py``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.connector.sink.sink_helpers import staged_files
from tests.connector.sink_failures.output import Watcher, check_output
from tests.connector.sink_failures.query import Query
from tests.support.programs import run_program
from tests.support.waiting import WAIT_LIMIT_S, wait_for


def test_twins_that_both_finish_write_each_row_once(query: Query) -> None:
    """As under speculation, with both finishing: each task stages twice, and Spark hears of one."""
    query.plan.with_suffix(".twins").touch()
    query.source.add(2)
    with Watcher(query.store, query.source):
        query.fail("pause", batch=1)
        running = query.start()
        wait_for(query.plan.with_suffix(".paused").exists)
        assert len(staged_files(query.store)) == 4, "two tasks, and their twins"
        query.plan.with_suffix(".go").touch()
        assert running.awaitTermination(WAIT_LIMIT_S)
    check_output(query.store, query.source)


def test_files_of_a_late_twin_are_removed_by_the_next_commit(query: Query) -> None:
    """It ends long after its batch was committed, and Spark does not report it."""
    query.source.add()
    query.fail("pause", batch=0)
    with Watcher(query.store, query.source):
        running = query.start()
        wait_for(query.plan.with_suffix(".paused").exists)
        staged = {path: (query.store / path).read_bytes() for path in staged_files(query.store)}
        query.plan.with_suffix(".go").touch()
        assert running.awaitTermination(WAIT_LIMIT_S)
        for path, data in staged.items():
            (query.store / path).parent.mkdir(parents=True, exist_ok=True)
            (query.store / path).with_name("0-1-twin").write_bytes(data)
        assert staged_files(query.store)
        query.source.add()
        query.run_well()
    check_output(query.store, query.source)


@pytest.mark.spark
@pytest.mark.stress
@pytest.mark.timeout(400)
@pytest.mark.parametrize("write", ["batch", "stream"])
def test_an_executor_that_is_killed_in_a_write_loses_no_row(tmp_path: Path, write: str) -> None:
    """Readers look on, and the output is checked, where the cluster is: in the driver."""
    ran = run_program("-m", "tests.connector.sink_failures.cluster_driver", tmp_path, write, timeout=300)
    assert (ran.returncode, ran.stdout) == (0, "fine\n"), ran.stderr[-3000:]
    assert (tmp_path / "killed").read_text() == "1", "it had staged rows"


@pytest.mark.spark
@pytest.mark.stress
@pytest.mark.timeout(400)
def test_a_task_and_the_twin_that_spark_speculates_write_each_row_once(tmp_path: Path) -> None:
    ran = run_program("-m", "tests.connector.sink_failures.speculation_driver", tmp_path, timeout=300)
    assert (ran.returncode, ran.stdout) == (0, "fine\n"), ran.stderr[-3000:]
    attempts = {path.rpartition("/")[2].rpartition("-")[0] for path in (tmp_path / "twin").read_text().splitlines()}
    twins = {attempt.partition("-")[0] for attempt in attempts if attempt.endswith("-1")}
    assert twins, f"no second attempt had staged anything: {attempts}"
    assert {f"{twin}-0" for twin in twins} <= attempts, "its first attempt had staged something too"
