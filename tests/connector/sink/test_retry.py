"""Tasks that fail midway and are tried again: each row once, and nothing left staged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.connector.sink.retry_driver import ROWS
from tests.connector.sink.sink_helpers import messages, staged_files
from tests.support.clean_store import assert_clean
from tests.support.programs import run_program

__all__: list[str] = []

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


def test_tasks_that_fail_midway_leave_nothing_and_each_row_is_there_once(tmp_path: Path) -> None:
    ran = run_program("-m", "tests.connector.sink.retry_driver", tmp_path, timeout=150)
    assert (ran.returncode, ran.stdout) == (0, "fine\n"), ran.stderr[-3000:]
    assert "the task fails, as the test wants" in ran.stderr
    for write in ("batch", "stream"):
        store = tmp_path / write / "store"
        written = messages(store)
        assert len(written) > ROWS
        assert len({message.unique_key for message in written}) == len(written)
        assert not staged_files(store)
        assert_clean(store)
