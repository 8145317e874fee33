"""A forked child keeps no socket of its parent's stores: the peer sees at once that the parent has ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.store.follower.certificates import make_certificate
from tests.store.follower.mirrors import assert_identical, follow, master_of
from tests.store.owner.owned_store import put_ok
from tests.support import quick_programs
from tests.support.waiting import WAIT_LIMIT_S, wait_for

# Follows a master, forks a child that stays, and is killed.
_FORKING_FOLLOWER = """
import os, signal, sys, time
from pathlib import Path
from tests.store.follower.mirrors import follow
from tests.support.waiting import WAIT_LIMIT_S

with follow(sys.argv[1], Path(sys.argv[2])) as follower:
    assert follower.wait_for(1, timeout_s=WAIT_LIMIT_S)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, b"1")  # what a fork does in the child is done
        time.sleep(3600)
    os.read(reader, 1)
    print(child, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def _sockets() -> set[str]:
    """The sockets of this process, by their inodes."""
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing
            found.add(os.readlink(f"/proc/self/fd/{descriptor}"))
    return {name for name in found if name.startswith("socket:")}


@pytest.mark.parametrize("tls", [False, True])
def test_a_forked_child_has_no_socket_of_a_master_or_a_mirror(tmp_path: Path, tls: bool) -> None:
    ours, theirs = {}, {}
    if tls:
        certificate, key = make_certificate(tmp_path)
        ours = {"ha_tls_certificate": str(certificate), "ha_tls_key": str(key)}
        theirs = {"ha_tls_ca": str(certificate)}
    before = _sockets()
    with (
        master_of(tmp_path / "master", **ours) as master,
        follow(master, tmp_path / "mirror", settings=theirs) as follower,
    ):
        put_ok(master)
        assert_identical(master, follower)
        opened = _sockets() - before
        assert len(opened) >= 3, "the listener and both ends of the connection"
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            kept = len(_sockets() & opened)
            os.write(writer, str(kept).encode())
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(reader, 10) == b"0"
        os.close(reader)
        os.close(writer)
        put_ok(master)
        assert_identical(master, follower)
        assert len(_sockets() & opened) == len(opened), "the parent has all of its own"


def test_a_master_sees_the_end_of_a_killed_follower_whose_child_lives(tmp_path: Path) -> None:
    with master_of(tmp_path / "master", ha_housekeeping_interval=3_600_000) as master:
        put_ok(master)
        command = [sys.executable, "-c", _FORKING_FOLLOWER, str(master.ha_address), str(tmp_path / "mirror")]
        with quick_programs.Popen(command, stdout=subprocess.PIPE) as program:
            assert program.stdout is not None
            child = int(program.stdout.readline())  # not up to the end: the child has it, too
            try:
                assert program.wait(WAIT_LIMIT_S) == -signal.SIGKILL
                wait_for(lambda: not master.slaves())
            finally:
                os.kill(child, signal.SIGKILL)
