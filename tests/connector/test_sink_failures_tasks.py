"""Executors that are lost in a write, and tasks that run twice: each row once. Retries are in ``test_sink_retry``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.connector import sink_failure_cluster_driver as killing
from tests.connector import sink_failure_speculation_driver as speculating
from tests.connector.sink_failure_output import Input, Watcher, check_output
from tests.connector.sink_failure_query import Query, register, wait_for
from tests.connector.sink_helpers import bodies, staged_files
from tests.support.clean_store import assert_clean
from tests.support.programs import run_program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__: list[str] = []


def test_twins_that_both_finish_write_each_row_once(spark: SparkSession, tmp_path: Path) -> None:
    """As under speculation, with both finishing: each task stages twice, and Spark hears of one."""
    register(spark)
    query = Query(spark, tmp_path, Input(tmp_path / "input"))
    query.plan.with_suffix(".twins").touch()
    query.source.add(2)
    with Watcher(query.store, query.source):
        query.fail("pause", batch=1)
        running = query.start()
        wait_for(query.plan.with_suffix(".paused").exists)
        assert len(staged_files(query.store)) == 4, "two tasks, and their twins"
        query.plan.with_suffix(".go").touch()
        assert running.awaitTermination(60)
    check_output(query.store, query.source)


def test_what_a_late_twin_leaves_is_removed_by_the_next_commit(spark: SparkSession, tmp_path: Path) -> None:
    """It ends when its batch has long been committed, and Spark tells nobody of it."""
    register(spark)
    query = Query(spark, tmp_path, Input(tmp_path / "input"))
    query.source.add()
    query.fail("pause", batch=0)
    with Watcher(query.store, query.source):
        running = query.start()
        wait_for(query.plan.with_suffix(".paused").exists)
        staged = {path: (query.store / path).read_bytes() for path in staged_files(query.store)}
        query.plan.with_suffix(".go").touch()
        assert running.awaitTermination(60)
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
def test_an_executor_that_is_killed_in_a_write_loses_no_row(tmp_path: Path) -> None:
    ran = run_program("-m", "tests.connector.sink_failure_cluster_driver", tmp_path, timeout=300)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert (tmp_path / "killed").read_text() == "1", "it had staged rows"
    store = tmp_path / "lost"
    assert bodies(store) == sorted(f"{number}{killing.PADDING}" for number in range(killing.ROWS))
    assert not staged_files(store)
    assert_clean(store)


@pytest.mark.spark
@pytest.mark.stress
@pytest.mark.timeout(400)
def test_a_task_and_the_twin_that_spark_speculates_write_each_row_once(tmp_path: Path) -> None:
    lines = [[f"{file}-{number}" for number in range(speculating.ROWS)] for file in range(speculating.FILES)]
    (tmp_path / "input").mkdir()
    for file, rows in enumerate(lines):
        (tmp_path / "input" / f"{file}.txt").write_text("".join(f"{row}\n" for row in rows))
    ran = run_program("-m", "tests.connector.sink_failure_speculation_driver", tmp_path, timeout=300)
    assert ran.returncode == 0, ran.stderr[-3000:]
    store = tmp_path / "store"
    attempts = {path.rpartition("/")[2].rpartition("-")[0] for path in (tmp_path / "twin").read_text().splitlines()}
    twins = {attempt.partition("-")[0] for attempt in attempts if attempt.endswith("-1")}
    assert twins, f"no second attempt had staged anything: {attempts}"
    assert {f"{twin}-0" for twin in twins} <= attempts, "its first attempt had staged something too"
    assert bodies(store) == sorted(f"{row}{speculating.PADDING}" for rows in lines for row in rows)
    assert not staged_files(store)
    assert_clean(store)
