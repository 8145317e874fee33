"""Memory for a batch is bounded by chunks, not by the batch."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.programs import run_program
from tests.support.waiting import WAIT_LIMIT_S


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits what a process allocates")
def test_a_batch_larger_than_memory_is_staged_and_committed(tmp_path: Path) -> None:
    done = run_program("-m", "tests.store.batch.stage_in_little_memory", tmp_path / "store", timeout=WAIT_LIMIT_S)
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr
