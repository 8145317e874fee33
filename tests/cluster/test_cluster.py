"""A Spark cluster reads and writes stores of a host whose disk no other host sees, over TLS, with tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.hosts import OWN_MACHINE, why_no_hosts
from tests.support.programs import run_program


def run(base: Path, mode: str) -> None:
    """Without hosts, the addresses of this machine take their place."""
    machines, within = ("addresses", ()) if why_no_hosts() else ("hosts", OWN_MACHINE)
    ran = run_program("-m", "tests.cluster.machine", base, mode, machines, timeout=300, within=within)
    assert (ran.returncode, ran.stdout) == (0, "fine\n"), ran.stderr[-3000:]


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_executors_without_the_directory_read_two_stores_and_write_a_third_one(tmp_path: Path) -> None:
    """One of them is killed as it writes."""
    run(tmp_path, "batch")
    assert (tmp_path / "killed").exists()


@pytest.mark.spark
@pytest.mark.stress
@pytest.mark.timeout(400)
def test_a_stream_goes_on_when_a_host_joins_and_another_loses_power(tmp_path: Path) -> None:
    if reason := why_no_hosts():
        pytest.skip(reason)
    run(tmp_path, "stream")
