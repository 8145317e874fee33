"""Tasks that fail midway and are tried again: each row is stored exactly once, and nothing is left staged."""

from __future__ import annotations

from pathlib import Path

from tests.connector.sink.retry_driver import ROWS
from tests.connector.sink.sink_helpers import messages, staged_files
from tests.support.clean_store import assert_clean
from tests.support.spark_programs import SparkPrograms


def test_tasks_that_fail_midway_leave_nothing_and_each_row_is_stored_exactly_once(
    spark_programs: SparkPrograms, tmp_path: Path
) -> None:
    ran = spark_programs.run("tests.connector.sink.retry_driver", tmp_path, directory=tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "fine\n"), ran.stderr[-3000:]
    assert "the task fails, as the test wants" in ran.stderr
    for write in ("batch", "stream"):
        store = tmp_path / write / "store"
        written = messages(store)
        assert len(written) > ROWS
        assert len({message.unique_key for message in written}) == len(written)
        assert not staged_files(store)
        assert_clean(store)
