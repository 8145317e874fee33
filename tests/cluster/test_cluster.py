"""A Spark cluster reads stores of a host whose disk no other host sees, over TLS, with a token."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.hosts import OWN_MACHINE, why_no_hosts
from tests.support.programs import run_program


def run(base: Path, mode: str) -> None:
    reason = why_no_hosts()
    if reason:
        pytest.skip(reason)
    ran = run_program("-m", "tests.cluster.machine", base, mode, timeout=300, within=OWN_MACHINE)
    assert (ran.returncode, ran.stdout) == (0, "fine\n"), ran.stderr[-3000:]


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_executors_without_the_directory_read_two_stores(tmp_path: Path) -> None:
    run(tmp_path, "batch")


@pytest.mark.spark
@pytest.mark.stress
@pytest.mark.timeout(400)
def test_a_stream_goes_on_when_a_host_joins_and_another_loses_power(tmp_path: Path) -> None:
    run(tmp_path, "stream")
