"""Steps of a benchmark, each in a process of its own: seconds of time and of the processor, and the memory it took."""

from __future__ import annotations

import multiprocessing
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import ParamSpec

from tests.benchmarks.measure import show

# Lines of a table: what was measured, and what is shown of it.
Figures = dict[str, str]
_Arguments = ParamSpec("_Arguments")

# The command line as `python -m commitlog_store` runs it. Its last words are of its processor time and its memory:
# what the kernel says to the parent of a process may be the parent's own memory.
_COMMAND = """
import pathlib, runpy, sys, time
try:
    runpy.run_module("commitlog_store", run_name="__main__", alter_sys=True)
finally:
    status = pathlib.Path("/proc/self/status").read_text()
    print(f"\\ncpu {time.process_time()} {status}", file=sys.stderr)
"""


@contextmanager
def clocked(figures: Figures, name: str) -> Iterator[None]:
    """Note the time that the block takes, and what this process takes of the processor."""
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    figures[name] = seconds(time.perf_counter() - wall, time.process_time() - cpu)


def seconds(wall: float, cpu: float) -> str:
    return f"{wall:.3f} s, cpu {cpu:.3f}"


def note_memory(figures: Figures, name: str) -> None:
    """Note the most memory that this process has had."""
    figures[name] = f"{_peak_mib(Path('/proc/self/status').read_text()):.0f} MiB"


def _peak_mib(status: str) -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) / 1024 if found else 0.0


def in_process(step: Callable[_Arguments, Figures], *arguments: _Arguments.args, **named: _Arguments.kwargs) -> Figures:
    """What a function of a module notes in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(step, *arguments, **named).result()


def command(figures: Figures, name: str, *arguments: str) -> None:
    """Note what a command takes, from its start to its end."""
    begun = time.perf_counter()
    ran = subprocess.run(
        [sys.executable, "-c", _COMMAND, *arguments],
        check=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    taken = time.perf_counter() - begun
    cpu = re.search(r"^cpu (\S+) ", ran.stderr, re.MULTILINE)
    if cpu is None:
        raise RuntimeError(f"commitlog {' '.join(arguments)} ended with {ran.returncode}:\n{ran.stderr}")
    ended = f", exit code {ran.returncode}" if ran.returncode else ""
    figures[name] = f"{seconds(taken, float(cpu[1]))}, {_peak_mib(ran.stderr):.0f} MiB{ended}"


def show_all(figures: Figures, goals: Mapping[str, str], prefix: str = "") -> None:
    """Print the lines, each with its goal."""
    for name, value in figures.items():
        show(f"{prefix}{name}", value, goals.get(name, ""))
