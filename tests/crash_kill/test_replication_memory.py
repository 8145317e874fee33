"""A follower that is stopped costs its master no memory, and catching up costs the follower none that stays."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from tests.crash_kill.replication_filler import FILE_SIZE
from tests.support.forked_programs import ForkedProgram

MIB = 1 << 20
# Far less than what is written; an allocator keeps some of what was freed.
MOST_GROWTH = 24 * MIB


def anonymous_memory(process: int) -> int:
    """Bytes of a process's memory that are not pages of files."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    assert found is not None
    return int(found.group(1)) << 10


def highest_until(program: ForkedProgram, wanted: str) -> int:
    """The most anonymous memory of a program until it says a line that begins so."""
    most = 0
    while not (program.line(0.02) or "").startswith(wanted):
        most = max(most, anonymous_memory(program.child))
    return max(most, anonymous_memory(program.child))


def measure(root: Path, mib: int) -> tuple[int, int]:
    """How much more memory the master takes while a stopped follower falls behind, and the follower in catching up."""
    with (
        ForkedProgram("tests.crash_kill.replication_filler") as masters,
        ForkedProgram("tests.crash_kill.replication_follower") as followers,
    ):
        masters.start(mib, root / "master")
        line = masters.line()
        while not line:
            line = masters.line()
        _, address, end = line.split()
        followers.start(address, root / "mirror", 0, FILE_SIZE)
        highest_until(followers, end)
        master_before, follower_before = anonymous_memory(masters.child), anonymous_memory(followers.child)
        os.kill(followers.child, signal.SIGSTOP)
        (root / "master" / "go").touch()
        end, master_most = "", 0
        while not end:
            line = masters.line(0.02) or ""
            master_most = max(master_most, anonymous_memory(masters.child))
            end = line.split()[1] if line.startswith("filled") else ""
        os.kill(followers.child, signal.SIGCONT)
        follower_most = highest_until(followers, end)
        master_most = max(master_most, anonymous_memory(masters.child))
        masters.kill()
        followers.kill()
    return master_most - master_before, follower_most - follower_before


@pytest.mark.parametrize("mib", [40, pytest.param(500, marks=pytest.mark.stress)])
def test_memory_is_flat_however_far_a_follower_is_behind(tmp_path: Path, mib: int) -> None:
    master, follower = measure(tmp_path, mib)
    print(f"{mib} MiB: master {master / MIB:.1f} MiB more, follower {follower / MIB:.1f}")
    assert master < MOST_GROWTH
    assert follower < MOST_GROWTH
