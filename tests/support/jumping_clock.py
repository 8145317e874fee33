"""A program whose wall clock a test sets. ``time.monotonic`` goes on, as it does when the system's clock is set.

    python -m tests.support.jumping_clock CLOCK MODULE ARGUMENTS

runs MODULE as ``python -m`` does. CLOCK is a file with the hours by which its clock is ahead of the system's, read each
time; without the file they are the same. Times of files are the system's.
"""

from __future__ import annotations

import runpy
import sys
import time
from pathlib import Path

_HOUR_NS = 3_600_000_000_000


def set_clock(clock: Path, hours_ahead: float) -> None:
    unfinished = clock.with_suffix(".unfinished")
    unfinished.write_text(str(hours_ahead))
    unfinished.rename(clock)


def main(clock: str, module: str, *arguments: str) -> None:
    system_ns = time.time_ns

    def time_ns() -> int:
        try:
            with open(clock, encoding="ascii") as file:
                return system_ns() + int(float(file.read()) * _HOUR_NS)
        except FileNotFoundError:
            return system_ns()

    # Before the program's modules are imported, which keep these functions.
    time.time_ns = time_ns
    time.time = lambda: time_ns() / 1e9
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
