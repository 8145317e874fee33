"""The driver commits or removes staged files; without a Spark."""

from __future__ import annotations

import json
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import MessageStore, StoreReader
from commitlog_store.batch.staging import LEFT_OVER_AFTER_SECONDS, StagedWriter, remove_leftovers
from commitlog_store.batch_id import BatchId
from commitlog_store.errors import DiskFull, NotAStore, StagingLost, StoreLocked
from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.options.write import SinkOptions, parse_batch_write_options, parse_stream_write_options
from pyspark_commitlog.sink.columns import SinkColumns
from pyspark_commitlog.sink.commit import commit_staged, plan_write, prepare_store, remove_staged, staged_rows
from pyspark_commitlog.sink.task import StagedRows, StageTask
from pyspark_commitlog.sink.writers import CommitLogBatchWriter
from tests.connector.sink.sink_helpers import SMALL, body_texts, messages, staged_files
from tests.support import quick_programs
from tests.support.clean_store import assert_clean
from tests.support.programs import may_mount
from tests.support.waiting import WAIT_LIMIT_S, wait_for

BATCH = BatchId("query", 0)


def options_of(path: Path, **options: str) -> SinkOptions:
    return parse_batch_write_options(SMALL | {"path": str(path)} | options)


def stage(options: SinkOptions, partition: int, *texts: str, batch: BatchId = BATCH) -> StagedRows:
    one = StageTask(options=options, columns=SinkColumns(("body",)), queue_counts={})
    rows = pa.record_batch({"body": [text.encode() for text in texts]})
    staged = one.stage([rows] if texts else [], batch, partition, 0)
    return StagedRows(partition=partition, batch=batch, staged=staged)


@pytest.fixture
def options(tmp_path: Path) -> SinkOptions:
    options = options_of(tmp_path / "store")
    prepare_store(options)
    return options


@pytest.mark.parametrize(
    "form", ["{}/_checkpoint", "{}/checkpoint", "file://{}/_checkpoint", "{}/x/../checkpoint", "{}"]
)
def test_a_checkpoint_in_the_place_of_a_new_store_is_named(tmp_path: Path, form: str) -> None:
    """Spark makes it before the first batch, as beside the files of a Delta table."""
    store = tmp_path / "store"
    location = form.format(store)
    options = parse_stream_write_options(SMALL | {"path": str(store), "checkpointLocation": location})
    made = store / location.rpartition("/")[2] if form != "{}" else store
    (made / "offsets").mkdir(parents=True)
    with pytest.raises(OptionError, match=r"checkpointLocation is .* within the directory of the store") as refused:
        prepare_store(options)
    assert refused.value.option == "checkpointLocation"
    assert not (store / "commitlog").exists()


def test_a_checkpoint_below_an_existing_store_is_no_fault(options: SinkOptions) -> None:
    (Path(options.path) / "_checkpoint").mkdir()
    prepare_store(replace(options, checkpoint_location=f"{options.path}/_checkpoint"))


def test_partitions_are_committed_in_their_order_and_nothing_is_left_staged(options: SinkOptions) -> None:
    told = [stage(options, 2, "e"), stage(options, 0, "a", "b"), stage(options, 1, "c", "d")]
    committed = commit_staged(options, BATCH, staged_rows(told))
    assert committed is not None
    assert committed.rows == 5
    assert not committed.already_there
    path = Path(options.path)
    by_place = sorted(messages(path), key=lambda message: message.physical_offset)
    assert [message.body for message in by_place] == [b"a", b"b", b"c", b"d", b"e"]
    assert not staged_files(path)
    assert_clean(path)


def test_a_new_topic_is_listed_with_its_queues(tmp_path: Path) -> None:
    options = options_of(tmp_path / "store", queues="7")
    prepare_store(options)
    commit_staged(options, BATCH, [stage(options, 0, "a")])
    listed = json.loads((tmp_path / "store/config/topics.json").read_text())["topicConfigTable"]
    assert listed["orders"]["writeQueueNums"] == listed["orders"]["readQueueNums"] == 7


def test_a_batch_is_written_once(options: SinkOptions) -> None:
    commit_staged(options, BATCH, [stage(options, 0, "a")])
    again = commit_staged(options, BATCH, [stage(options, 0, "a")])
    assert again is not None
    assert again.already_there
    assert body_texts(Path(options.path)) == ["a"]
    assert not staged_files(Path(options.path))


def test_an_empty_batch_does_not_open_the_store(options: SinkOptions) -> None:
    with MessageStore.open(options.path):
        assert commit_staged(options, BATCH, [stage(options, 0), stage(options, 1)]) is None
        assert commit_staged(options, BATCH, []) is None


def test_a_commit_waits_for_the_owner_of_the_store(tmp_path: Path) -> None:
    options = options_of(tmp_path / "store", lockTimeout="0.05")
    prepare_store(options)
    told = stage(options, 0, "a")
    with MessageStore.open(options.path), pytest.raises(StoreLocked, match=r"option lockTimeout") as caught:
        commit_staged(options, BATCH, [told])
    assert caught.value.holder is not None
    assert str(caught.value.holder) in str(caught.value)
    assert commit_staged(options, BATCH, [told]) is not None


def test_a_file_that_the_driver_does_not_see_fails_the_batch(options: SinkOptions) -> None:
    told = [stage(options, 0, "a"), stage(options, 1, "b")]
    remove_staged(options, told[1:])
    with pytest.raises(StagingLost, match="does not share this directory"):
        commit_staged(options, BATCH, told)
    assert body_texts(Path(options.path)) == []


def test_a_commit_that_waits_says_for_whom_and_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = options_of(tmp_path / "store", lockTimeout="100")
    prepare_store(options)
    staged = [stage(options, 0, "a")]
    with ThreadPoolExecutor(1) as pool:
        with MessageStore.open(options.path):
            commit = pool.submit(commit_staged, options, BATCH, staged)
            wait_for(lambda: "Waiting for it" in caplog.text)
        committed = commit.result()
    assert committed is not None
    assert committed.rows == 1
    (said,) = [record.getMessage() for record in caplog.records if "Waiting for it" in record.getMessage()]
    assert f"this process ({os.getpid()}) has it open already" in said
    assert re.search(r"\b[1-9] s of 100 s \(lockTimeout\) are over", said)


def test_a_disk_that_is_too_full_refuses_the_commit_with_the_option_that_says_so(tmp_path: Path) -> None:
    full = options_of(tmp_path / "store", diskSpaceWarningLevelRatio="0.000001")
    prepare_store(full)
    rows = [stage(full, 0, "a")]
    with pytest.raises(DiskFull) as caught:
        commit_staged(full, BATCH, rows)
    assert "is used (disk_space_warning_level_ratio" in str(caught.value)
    assert "Nothing was written." in str(caught.value)
    assert "The option diskSpaceWarningLevelRatio says how much of the disk may be used." in str(caught.value)
    assert body_texts(tmp_path / "store") == []
    free = options_of(tmp_path / "store", diskSpaceWarningLevelRatio="1")
    committed = commit_staged(free, BATCH, rows)
    assert committed is not None
    assert not committed.already_there
    assert body_texts(tmp_path / "store") == ["a"]


def test_abort_removes_the_files_it_is_given_and_no_others(options: SinkOptions) -> None:
    mine, others = [stage(options, 0, "a"), stage(options, 1)], stage(options, 2, "b")
    path = Path(options.path)
    for _ in range(2):
        remove_staged(options, staged_rows([mine[0], None, mine[1]]))
        assert others.staged is not None
        assert staged_files(path) == [others.staged.path]
    remove_staged(options, [others])
    assert not list((path / "staging").iterdir())
    remove_staged(options, [])


def test_abort_after_the_commit_point_changes_nothing(options: SinkOptions) -> None:
    told = [stage(options, 0, "a")]
    commit_staged(options, BATCH, told)
    remove_staged(options, told)
    assert body_texts(Path(options.path)) == ["a"]


def test_files_of_an_earlier_attempt_are_removed_by_the_next_commit(options: SinkOptions) -> None:
    writer = StagedWriter(options.path, BATCH, "0-0")  # as a killed task leaves it
    commit_staged(options, BATCH, [stage(options, 0, "a")])
    assert not staged_files(Path(options.path))
    writer.discard()


def test_a_directory_with_foreign_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").touch()
    with pytest.raises(NotAStore):
        prepare_store(options_of(tmp_path))
    assert [one.name for one in tmp_path.iterdir()] == ["photo.jpg"]


def test_an_empty_directory_becomes_a_store(tmp_path: Path) -> None:
    options = options_of(tmp_path)
    prepare_store(options)
    prepare_store(options)
    assert (tmp_path / "commitlog").is_dir()


def test_an_unnamed_write_whose_driver_died_is_removed_by_its_age(options: SinkOptions) -> None:
    write = CommitLogBatchWriter(plan_write(options, SinkColumns(("body",))))
    stage(options, 0, "a", batch=write._staged_as)
    soon = time.time() + LEFT_OVER_AFTER_SECONDS
    remove_leftovers(options.path, now=soon - 60)
    assert len(staged_files(Path(options.path))) == 1
    remove_leftovers(options.path, now=soon + 60)
    assert not staged_files(Path(options.path))


def test_old_files_go_after_a_commit_that_asks_for_it(tmp_path: Path) -> None:
    options = options_of(tmp_path / "store", retentionBytes="512k")
    prepare_store(options)
    kept = options_of(tmp_path / "store")
    for version in range(12):
        batch = BatchId("query", version)
        # Only the last one deletes.
        given = options if version == 11 else kept
        assert commit_staged(given, batch, [stage(given, 0, "x" * 100_000, batch=batch)]) is not None
    path = Path(options.path)
    bases = sorted(int(one.name) for one in (path / "commitlog").iterdir())
    assert bases[0] > 0
    with StoreReader.open(path) as reader:
        assert [one.batch.version for one in reader.batches()] == [11]
    assert commit_staged(options, BatchId("query", 11), [stage(options, 0, "y")]) is not None
    assert_clean(path)


def test_a_disk_that_is_full_of_old_messages_takes_a_commit_when_younger_files_may_go(tmp_path: Path) -> None:
    """The files go before the commit: it would be refused, and after it nothing would be deleted."""
    if not may_mount(tmp_path):
        pytest.skip("mounting a small file system takes root, or a system that lets users have mounts of their own")
    program = "tests.connector.sink.on_a_filling_disk"
    done = quick_programs.run_with_own_mounts(program, tmp_path, timeout=WAIT_LIMIT_S)
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr
