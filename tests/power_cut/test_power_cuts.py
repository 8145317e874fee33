"""Power is cut at any moment, and the device keeps any part of what it had not flushed: no promise is broken.

The device is real to the kernel: ext4 with its journal is on it. tests/crash has the same with a simulated disk, which
knows no file system, but every place in every file.
"""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.power_cut.block_device import Note, PowerCuts, power_cuts, why_not
from tests.power_cut.promises import check_promises
from tests.support.long_runs import LONG_RUN_S, Progress
from tests.support.source_tree import PROJECT

FLUSH = ("SYNC_FLUSH", "ASYNC_FLUSH")
STEPS, CUTS = 40, 8
# The share of images in which ext4 itself has lost files.
MOST_UNSOUND = 0.03
STRESS_STEPS, STRESS_CUTS, STRESS_RUNS = 300, 150, 4

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


def write_until_cut(device: PowerCuts, seed: str, steps: int, flush: str, *left_out: str) -> list[Note]:
    """Run ``writer`` on the device. Everything that it noted."""
    with device.power_on() as live:
        words = [str(live / "store"), str(device.notes_file), seed, str(steps), flush, *left_out]
        subprocess.run([sys.executable, "-m", "tests.power_cut.writer", *words], cwd=PROJECT, check=True, timeout=600)
    return device.notes()


def points_of(notes: Sequence[Note], chance: random.Random, cuts: int) -> list[int]:
    """So many points of the trace after the store was opened, in ascending order."""
    first = next(note.point for note in notes if note.what == "opened")
    return sorted(chance.randrange(first, notes[-1].point) for _ in range(cuts))


def is_of_the_file_system(error: BaseException | None) -> bool:
    """Whether ext4 has found its own structures damaged, as when a name leads to a file that it has deleted."""
    while error is not None:
        if isinstance(error, OSError) and error.errno == errno.EUCLEAN:
            return True
        error = error.__cause__
    return False


def cut_often(root: Path, seed: str, steps: int, cuts: int, flush: str, progress: Progress | None = None) -> None:
    with power_cuts(root) as device:
        notes = write_until_cut(device, seed, steps, flush)
        unsound = 0
        for number, point in enumerate(points_of(notes, random.Random(seed), cuts), 1):
            cut = f"{seed}/{number}"
            try:
                with device.after_cut(point, cut) as image:
                    if image is None:
                        unsound += 1
                    else:
                        check_promises(image, [note for note in notes if note.point <= point], flush)
            except Exception as error:
                if not is_of_the_file_system(error):
                    raise AssertionError(f"{flush}, seed {cut!r}, cut after {point} entries of the trace") from error
                unsound += 1
            if progress is not None:
                progress.count("power cuts", number)
        assert unsound <= max(cuts * MOST_UNSOUND, 1), f"{unsound} of {cuts} file systems were broken"


@pytest.mark.parametrize("flush", FLUSH)
def test_a_power_cut_breaks_no_promise(flush: str, tmp_path: Path) -> None:
    cut_often(tmp_path, "quick", STEPS, CUTS, flush)


@pytest.mark.stress
@pytest.mark.timeout(LONG_RUN_S)
@pytest.mark.parametrize("flush", FLUSH)
@pytest.mark.parametrize("run", range(STRESS_RUNS))
def test_a_power_cut_breaks_no_promise_many_times(run: int, flush: str, tmp_path: Path, progress: Progress) -> None:
    seed = os.environ.get("POWER_CUT_SEED", f"stress/{run}")
    cut_often(tmp_path, seed, STRESS_STEPS, STRESS_CUTS, flush, progress)
