"""Few file descriptors: planning, tasks and the sink fail by name, whatever meets the limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.connector.few_descriptors import CALLS
from tests.support.programs import run_program
from tests.support.waiting import WAIT_LIMIT_S


@pytest.mark.parametrize("part", CALLS)
def test_what_spark_calls_is_refused_by_name_without_descriptors(tmp_path: Path, part: str) -> None:
    done = run_program("-m", "tests.connector.few_descriptors", tmp_path, part, timeout=WAIT_LIMIT_S)
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stdout + done.stderr
