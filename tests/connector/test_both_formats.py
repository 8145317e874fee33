"""A job for Spark's Kafka connector gives the same rows on a store."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.connector.both_formats_driver import UNAVAILABLE
from tests.support.programs import run_program


@pytest.mark.spark
@pytest.mark.stress
@pytest.mark.timeout(1200)
def test_one_job_gives_the_same_rows_on_kafka_and_on_a_store(tmp_path: Path) -> None:
    ran = run_program("-m", "tests.connector.both_formats_driver", tmp_path, timeout=1100)
    if ran.stdout.startswith(UNAVAILABLE):
        pytest.skip(ran.stdout)
    assert (ran.returncode, ran.stdout) == (0, "fine\n"), ran.stdout[-3000:] + ran.stderr[-3000:]
