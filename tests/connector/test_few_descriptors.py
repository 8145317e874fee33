"""Few file descriptors: planning, tasks and the sink fail by name, whatever meets the limit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.connector.few_descriptors import CALLS, COUNTS
from tests.support.programs import run_program
from tests.support.waiting import WAIT_LIMIT_S

# One at which nothing can be imported, one at which a call fails midway.
FEW = (2, 9)
# Those of a process, which imports PySpark first.
PARTS = ("batch,stream,metadata,lookup", "sink,stream sink")


def check(directory: Path, parts: str, counts: Sequence[int]) -> None:
    given = [str(count) for count in counts]
    done = run_program("-m", "tests.connector.few_descriptors", directory, parts, *given, timeout=WAIT_LIMIT_S)
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stdout + done.stderr


def test_every_part_is_made() -> None:
    assert sorted(part for parts in PARTS for part in parts.split(",")) == sorted(CALLS)


@pytest.mark.parametrize("parts", PARTS)
def test_what_spark_calls_is_refused_by_name_without_descriptors(tmp_path: Path, parts: str) -> None:
    check(tmp_path, parts, FEW)


@pytest.mark.stress
@pytest.mark.parametrize("part", CALLS)
def test_what_spark_calls_is_refused_by_name_with_any_few_descriptors(tmp_path: Path, part: str) -> None:
    check(tmp_path, part, COUNTS)
