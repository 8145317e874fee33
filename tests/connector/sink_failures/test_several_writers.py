"""Several writers of one store, and a query that reads it all the time: each row once, no part of a batch seen."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from commitlog_store import StoreReader
from tests.connector.sink.test_stream import replay_last
from tests.connector.sink_failures.output import TOPIC, Input, Watcher, check_output
from tests.connector.sink_failures.owner import OWNERS_QUEUES
from tests.connector.sink_failures.query import Query, ended, register
from tests.connector.sink_failures.reading_query import ReadingQuery
from tests.support import quick_programs
from tests.support.local_spark import PROJECT
from tests.support.long_runs import part_of
from tests.support.programs import child_environment
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


BATCHES = 5
STRESS_BATCHES = part_of(50)


@contextmanager
def helper(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Another Python process."""
    with quick_programs.Popen(
        [sys.executable, "-m", *arguments],
        cwd=PROJECT,
        env=child_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process


def write_together(spark: SparkSession, base: Path, count: int) -> None:
    """Two queries, a Python program, and a query that reads what they write."""
    register(spark)
    first = Query(spark, base, Input(base / "a", "a", (0, 1, 2, 3)), lockTimeout="100", queues=10)
    second = Query(spark, base, Input(base / "b", "b", (4, 5, 6, 7)), lockTimeout="100", queues=10)
    third = Input(base / "c", "c", OWNERS_QUEUES)
    inputs = first.source, second.source, third
    with Watcher(first.store, *inputs):
        for one in inputs:
            one.add()
        first.run_well()
        second.run_well()
        with helper("tests.connector.sink_failures.owner", str(base), "c", str(count)) as owner:
            wait_for(lambda: has_queues(first.store, 10) or owner.poll())
            with ReadingQuery(spark, base, first.store, *inputs):
                for one in inputs:
                    one.add(count - 1)
                running = [first.start(), second.start()]
                assert [ended(one) for one in running] == ["", ""]
                assert owner.wait(200) == 0
    check_output(first.store, *inputs)


def has_queues(store: Path, count: int) -> bool:
    with StoreReader.open(store) as reader:
        return len(reader.queue_ids(TOPIC)) >= count


def test_two_queries_and_a_program_take_turns_while_a_query_reads(spark: SparkSession, tmp_path: Path) -> None:
    write_together(spark, tmp_path, BATCHES)


@pytest.mark.stress
@pytest.mark.timeout(3600)
def test_two_queries_and_a_program_take_many_turns(spark: SparkSession, tmp_path: Path) -> None:
    write_together(spark, tmp_path, STRESS_BATCHES)


def test_a_broker_that_owns_the_store_is_reported_and_nothing_is_written(query: Query) -> None:
    source = query.source
    source.add()
    query.run_well()
    source.add()
    before = sorted(path.name for path in query.store.rglob("*"))
    query.options["lockTimeout"] = "0.3"
    with Watcher(query.store, source):
        with helper("tests.store.owner.lock_holder", "lock", str(query.store / "lock")) as broker:
            assert broker.stdout is not None
            assert broker.stdout.readline() == "ready\n"
            error = query.run()
            assert broker.stdin is not None
            broker.stdin.close()
        assert "StoreLocked" in error
        assert f"process {broker.pid}" in error
        assert "Waited 0.3 s for it. Nothing was written. The option lockTimeout says" in error
        assert error.count("Waited") == error.count("The option lockTimeout")
        assert sorted(path.name for path in query.store.rglob("*")) == before
        query.run_well()
    check_output(query.store, source)


def fill_the_log(query: Query, busy: Input) -> list[Path]:
    """Let another query write to the store; the files that are full."""
    Query(query.spark, query.checkpoint.parent, busy).run_well()
    files = sorted((query.store / "commitlog").iterdir())
    return [file for file in files if file.read_bytes()[:4] != bytes(4)]


def refuse_another_plan(query: Query, older: Path) -> None:
    """With an older copy of its checkpoint, the query plans its last batch again; then its own copy is restored."""
    kept = query.checkpoint.with_name("kept")
    query.checkpoint.rename(kept)
    shutil.copytree(older, query.checkpoint)
    error = query.run()
    assert "BatchConflict" in error
    assert f"commitlog txn reset {query.store} " in error
    shutil.rmtree(query.checkpoint)
    kept.rename(query.checkpoint)


def test_an_idle_query_whose_frames_retention_has_taken_continues(
    query: Query, reading: ReadingQuery, tmp_path: Path
) -> None:
    """Only the ledger knows its last batch then: the same one again is skipped, another one is refused."""
    source, older = query.source, tmp_path / "older"
    busy = Input(tmp_path / "busy", "b", (4, 5, 6, 7))
    busy.extra_rows = 100
    busy.add(3)
    reading.also_expect(busy)
    with Watcher(query.store, source, busy):
        source.add()
        query.run_well()
        shutil.copytree(query.checkpoint, older)
        source.add()
        query.run_well()
        full = fill_the_log(query, busy)
        assert len(full) > 3
        reading.catch_up()
        for file in full[:-1]:
            file.unlink()
        with StoreReader.open(query.store) as reader:
            assert min(one.physical_offset for one in reader.batches()) < reader.physical_bounds()[0]
        replay_last(query.checkpoint)
        query.run_well()
        assert [said["commit"] for said in query.told if "commit" in said] == [0, 1, 1], "the last one again"
        refuse_another_plan(query, older)
        source.add()
        query.run_well()
    check_output(query.store, source, busy, expired=True)
    with StoreReader.open(query.store) as reader:
        begins = tuple(reader.queue_info(TOPIC, queue).min_offset for queue in source.queues)
    assert begins == source.ends(range(2)), "all that is left of the idle query is the batch it wrote then"
