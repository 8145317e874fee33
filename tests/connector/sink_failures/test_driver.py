"""A driver that dies around a commit, and checkpoints that contradict the store: each row once."""

from __future__ import annotations

import errno
import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from commitlog_store import StoreReader
from tests.connector.sink.sink_helpers import staged_files
from tests.connector.sink.test_stream import replay_last
from tests.connector.sink_failures.deaths import Deaths, points
from tests.connector.sink_failures.output import Input, Watcher, check_output
from tests.connector.sink_failures.query import Query, ended, register
from tests.connector.sink_failures.reading_query import ReadingQuery
from tests.support import quick_programs
from tests.support.long_runs import LONG_RUN_S, ONE_IN, Progress, part_of
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Of the points at which a commit can die, the default run takes one in so many, and the last one.
STEP = 30
# The stress form takes more of them (with PART=1 all), and of the kind ``half`` those that are writes: at the others it
# is as ``exit``. So many have to have been deadly, with PART=1 more than 200 of ``exit``.
STRESS_DEATHS = {"exit": part_of(150), "half": part_of(40)}
STRESS_FIRST_DEATHS = {"exit": part_of(100), "half": part_of(12)}
# A first commit takes a new store for each point, with a second query of its own.
FIRST_STEP = 40


def die_at_points(query: Query, step: int, kind: str, dry_runs: int, progress: Progress) -> int:
    """Each batch dies twice: in a commit on a clean store, and in the one that follows and so has to recover first.

    At how many points it died.
    """
    deaths = Deaths(query, kind, progress)
    with Watcher(query.store, query.source):
        clean = deaths.sizes_on_a_clean_store(dry_runs)
        middle = min(clean) // 2
        after = deaths.sizes_after_a_crash(middle, max(1, dry_runs // 3))
        count = deaths.go_through(points(clean, step), points(after, step), middle)
        query.run_well()
    check_output(query.store, query.source)
    return count


def die_at_points_of_the_first_commit(
    spark: SparkSession, base: Path, step: int, kind: str, rows: int, progress: Progress
) -> int:
    """On a new store for each point. At how many of them it died."""

    def on_a_new_store(name: str) -> Query:
        directory = base / name
        directory.mkdir()
        query = Query(spark, directory, Input(directory / "input"))
        query.source.extra_rows = rows
        query.source.add()
        return query

    dry = on_a_new_store("first-dry")
    dry.run_well()
    count = 0
    for turn in points(dry.sizes(kind), step):
        query = on_a_new_store(f"first-{turn}")
        query.make_store()
        reading = ReadingQuery(spark, query.plan.parent, query.store, query.source)
        with Watcher(query.store, query.source), reading:
            died = Deaths(query, kind, progress).die(turn)
            query.run_well()
        check_output(query.store, query.source)
        assert query.exits == [turn] * died
        count += died
        progress.count("deaths", count)
        shutil.rmtree(query.plan.parent)
    return count


def test_a_commit_that_dies_at_any_operation_is_stored_exactly_once(query: Query, progress: Progress) -> None:
    assert die_at_points(query, STEP, "exit", 3, progress) >= 6


def test_a_first_commit_that_dies_at_any_operation_is_stored_exactly_once(
    spark: SparkSession, tmp_path: Path, progress: Progress
) -> None:
    register(spark)
    assert die_at_points_of_the_first_commit(spark, tmp_path, FIRST_STEP, "exit", 0, progress) >= 4


@pytest.mark.stress
@pytest.mark.timeout(LONG_RUN_S)
@pytest.mark.parametrize("kind", ["exit", "half"])
def test_a_commit_that_dies_at_each_operation_is_stored_exactly_once(
    query: Query, kind: str, progress: Progress
) -> None:
    """``half``: within each write. The log continues in its next file in every batch."""
    query.source.extra_rows = 100
    assert die_at_points(query, ONE_IN, kind, 12, progress) >= STRESS_DEATHS[kind]


@pytest.mark.stress
@pytest.mark.timeout(LONG_RUN_S)
@pytest.mark.parametrize("kind", ["exit", "half"])
def test_a_first_commit_that_dies_at_each_operation_is_stored_exactly_once(
    spark: SparkSession, tmp_path: Path, kind: str, progress: Progress
) -> None:
    register(spark)
    deaths = die_at_points_of_the_first_commit(spark, tmp_path, ONE_IN, kind, 100, progress)
    assert deaths >= STRESS_FIRST_DEATHS[kind]


def test_newest_commits_lost_from_the_checkpoint_are_not_written_twice(query: Query) -> None:
    """The checkpoint of a driver that dies after the sink's commit; and once more after the next batch."""
    query.source.add(2)
    with Watcher(query.store, query.source):
        query.run_well()
        for _ in range(2):
            replay_last(query.checkpoint)
            query.run_well()
            query.source.add()
            query.run_well()
    assert [said["commit"] for said in query.told if "commit" in said] == [0, 1, 1, 2, 2, 3]
    check_output(query.store, query.source)


def test_an_older_checkpoint_with_the_same_plan_repeats_no_row(query: Query, tmp_path: Path) -> None:
    """It was copied while batch 1 was being committed, so batch 1 is planned in it, and it alone is repeated."""
    source = query.source
    source.add(2)
    query.fail("pause", batch=1)
    with Watcher(query.store, source):
        running = query.start()
        wait_for(query.plan.with_suffix(".paused").exists)
        shutil.copytree(query.checkpoint, tmp_path / "copy")
        query.plan.with_suffix(".go").touch()
        assert not ended(running)
        shutil.rmtree(query.checkpoint)
        shutil.copytree(tmp_path / "copy", query.checkpoint)
        source.add()
        query.run_well()
    assert [said["commit"] for said in query.told if "commit" in said] == [0, 1, 1, 2]
    check_output(query.store, source)


def test_an_older_checkpoint_that_plans_again_is_refused_until_the_ledger_is_reset(
    query: Query, tmp_path: Path
) -> None:
    source = query.source
    source.add()
    with Watcher(query.store, source):
        query.run_well()
        shutil.copytree(query.checkpoint, tmp_path / "copy")
        source.add()
        query.run_well()
        shutil.rmtree(query.checkpoint)
        shutil.copytree(tmp_path / "copy", query.checkpoint)
        error = query.run()
        assert "BatchConflict" in error
        query_id = json.loads((query.checkpoint / "metadata").read_text())["id"]
        assert f"commitlog txn reset {query.store} {query_id}" in error
        check_output(query.store, source)
        script = str(Path(sys.executable).with_name("commitlog"))
        command = [script, "txn", "reset", str(query.store), query_id, "--yes"]
        assert (
            "whose last batch was 1" in quick_programs.run(command, check=True, capture_output=True, text=True).stdout
        )
        query.run_well()
        source.order = [0, 1, 1]  # the batch is wanted again after a reset of the ledger
    check_output(query.store, source)


def test_without_its_checkpoint_it_is_a_new_query(query: Query) -> None:
    """Documented: what makes a query itself is its checkpoint."""
    query.source.add(2)
    with Watcher(query.store, query.source):
        query.run_well()
        shutil.rmtree(query.checkpoint)
        query.run_well()
        query.source.order = [0, 1, 0, 1]
    check_output(query.store, query.source)
    with StoreReader.open(query.store) as reader:
        assert [one.batch.version for one in reader.batches()] == [1, 1]


@pytest.mark.parametrize(
    ("operation", "path"),
    [("create_file", "/batchLedger.json"), ("unlink", "/abort")],
    ids=["ledger", "close"],
)
def test_a_commit_that_raises_after_its_commit_point_is_aborted_and_stored_exactly_once(
    query: Query, operation: str, path: str
) -> None:
    source = query.source
    source.add()
    with Watcher(query.store, source):
        query.run_well()
        source.add()
        query.fail("error", batch=1, operation=operation, path=path, code=errno.EIO, odd_aborts=True)
        assert query.run()
        assert "abort" in query.told[-1]
        with StoreReader.open(query.store) as reader:
            bounds = reader.physical_bounds()
        query.run_well()
        with StoreReader.open(query.store) as reader:
            assert reader.physical_bounds() == bounds, "it was there: nothing was written"
        source.add()
        query.run_well()
    check_output(query.store, source)


def test_aborts_of_any_kind_do_no_harm(query: Query) -> None:
    """Twice, with None messages, with none at all, and for an unknown batch."""
    source = query.source
    source.add(2)
    query.fail("error", batch=1, operation="write_at", path="/commitlog/", code=errno.EIO, odd_aborts=True)
    with Watcher(query.store, source):
        assert "as the test wants" in query.run()
        assert [said["abort"] for said in query.told if "abort" in said] == [1]
        assert not staged_files(query.store)
        query.run_well()
    check_output(query.store, source)


def test_batches_and_partitions_without_rows_write_nothing(query: Query) -> None:
    source = query.source
    source.add(5)
    query.change = lambda frame: frame.where("body like 'm-1-%' or (body like 'm-3-%' and queueId < 2)")
    source.lets_through = lambda body, queue: body.startswith("m-1-") or (body.startswith("m-3-") and queue < 2)
    with Watcher(query.store, source):
        query.run_well()
    check_output(query.store, source)
    with StoreReader.open(query.store) as reader:
        (last,) = reader.batches()
        assert last.batch.version == 3
        assert reader.queue_info("rmq_sys_commitlog_batch", 0).max_offset == 2


def test_batches_without_partitions_write_nothing(query: Query) -> None:
    """The plan is known to be empty, so Spark runs no task."""
    query.source.lets_through = lambda body, _: not body.startswith("m-1-")
    query.source.add()
    with Watcher(query.store, query.source):
        query.run_well()
        query.source.add()
        query.change = lambda frame: frame.where("false")
        query.run_well()
        query.change = lambda frame: frame
        query.source.add()
        query.run_well()
    check_output(query.store, query.source)


def test_staged_files_that_the_driver_does_not_see_fail_the_batch(query: Query) -> None:
    source = query.source
    source.add()
    query.fail("lose")
    with Watcher(query.store, source):
        error = query.run()
        assert "StagingLost" in error
        assert "does not share this directory" in error
        assert "Nothing was written" in error
        with StoreReader.open(query.store) as reader:
            assert reader.topics() == []
        assert not staged_files(query.store)
        query.run_well()
    check_output(query.store, source)
