"""Where the tests' files are: in memory, where there is enough of it.

Many tests spend most of their time in ``fsync``, and none of these can tell a disk from memory: what a disk loses is
the matter of ``tests/power_cut``, with a device of its own, and of the simulated disk of ``tests/crash``. ``make
stress`` uses the real disk.
"""

from __future__ import annotations

import os
from pathlib import Path

# Where Linux has a file system in memory.
MEMORY = Path("/dev/shm")
# More than the files of a whole run take at any time, with what else its processes need.
_ENOUGH_BYTES = 6 << 30
# pytest's own variable for the directory that it makes its temporary directories in.
_ROOT = "PYTEST_DEBUG_TEMPROOT"


def keep_files_in_memory() -> None:
    """From now on pytest's ``tmp_path`` is in memory, unless the caller has chosen a place or memory is scarce."""
    if "TMPDIR" not in os.environ and _ROOT not in os.environ and _free_bytes() >= _ENOUGH_BYTES:
        os.environ[_ROOT] = str(MEMORY)


def _free_bytes() -> int:
    """What the file system in memory may grow by; 0 where it is missing, or may not be written to."""
    try:
        found = os.statvfs(MEMORY)
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    available = next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), 0)
    return min(found.f_bavail * found.f_frsize, available) if os.access(MEMORY, os.W_OK | os.X_OK) else 0
