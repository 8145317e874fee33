"""Source and sink on a standalone cluster, whose master, workers and driver are processes of their own.

In ``make test`` the cluster of ``tests/cluster`` makes the same copy beside its other work.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.programs import run_program


def copy(base: Path, mode: str) -> None:
    ran = run_program("-m", "tests.connector.cluster.copying_driver", base, mode, timeout=300)
    assert (ran.returncode, ran.stdout) == (0, "fine\n"), ran.stderr[-3000:]


@pytest.mark.spark
@pytest.mark.stress
@pytest.mark.timeout(400)
def test_two_workers_copy_each_message_once(tmp_path: Path) -> None:
    copy(tmp_path, "batch")


@pytest.mark.spark
@pytest.mark.stress
@pytest.mark.timeout(400)
def test_a_stream_goes_on_when_a_worker_joins_and_another_is_killed(tmp_path: Path) -> None:
    copy(tmp_path, "stream")
