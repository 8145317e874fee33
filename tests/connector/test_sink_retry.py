"""Tasks that fail midway and are tried again: each row once, and nothing left staged."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlog import StoreReader
from tests.connector.sink_failure_output import Watcher
from tests.connector.sink_helpers import bodies, messages, staged_files
from tests.connector.sink_retry_driver import ROWS
from tests.support.clean_store import assert_clean
from tests.support.programs import run_program

__all__: list[str] = []

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


def test_tasks_that_fail_midway_leave_nothing_and_each_row_is_there_once(tmp_path: Path) -> None:
    with (
        Watcher(tmp_path / "batch", queues=range(4)) as batch,
        Watcher(tmp_path / "stream", queues=range(4)) as stream,
    ):
        ran = run_program("-m", "tests.connector.sink_retry_driver", tmp_path, timeout=150)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert "the task fails, as the test wants" in ran.stderr
    for name, watcher in (("batch", batch), ("stream", stream)):
        store = tmp_path / name
        assert [sum(ends) for ends in watcher.seen if any(ends)] == [ROWS], "readers saw all of it at once"
        assert bodies(store) == sorted(str(number) for number in range(ROWS))
        assert len({message.unique_key for message in messages(store)}) == ROWS
        assert not staged_files(store)
        assert_clean(store)
        with StoreReader.open(store) as reader:
            assert {queue.queue_id for queue in reader.queues("orders")} == {0, 1, 2, 3}
