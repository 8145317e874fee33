"""A store whose opening cuts off more than the disk has space for: ``python -m ...cut_on_a_full_disk DIR``.

It runs in a mount namespace of its own, mounts a small file system at DIR, and prints one line, ``fine``, or fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from commitlog_store.errors import DiskFull
from commitlog_store.recovery.forecast import forecast_open
from tests.crash.cuts import whole_records
from tests.store.owner.owned_store import open_store
from tests.store.recovery.test_contradictions import damaged_in_the_unflushed_part


def main(mount: Path) -> None:
    """Look and open, without and with space."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(mount)], check=True)
    path = mount / "store"
    damaged_in_the_unflushed_part(path, repeats=1000)
    before = whole_records(path)
    ballast = mount / "ballast"
    with ballast.open("wb") as stream:
        free = os.statvfs(mount).f_bavail * os.statvfs(mount).f_bsize
        # Enough for queues and index, which opening builds again first.
        os.posix_fallocate(stream.fileno(), 0, free - (100 << 10))
    forecast = forecast_open(path)
    assert isinstance(forecast.refusal, DiskFull), forecast
    with pytest.raises(DiskFull) as caught:
        open_store(path)
    assert str(caught.value) == str(forecast.refusal)
    assert whole_records(path) == before
    ballast.unlink()
    forecast = forecast_open(path)
    with open_store(path) as store:
        assert store.recovered is not None
        assert store.recovered.cut == forecast.cut is not None
        assert store.recovered.kept is not None
        assert before == whole_records(path) | whole_records(Path(store.recovered.kept.path))
    print("fine")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
