"""Runs the benchmarks: ``python -m tests.benchmarks [name ...]``, all of them without a name.

A name also stands for those that begin with it and a ``_``: ``scale`` for ``scale_files``, ``scale_queues`` and others.

Each runs in a process of its own: a Java machine keeps the settings of its first session, and gets faster for minutes.
What a benchmark shows is written as JSON, too (``results.py``).
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.benchmarks.measure import machine, on_show
from tests.benchmarks.results import Results, now, results_directory, surroundings

_WRITING = ("sink", "write")


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmarks named in ``arguments``, one after the other, and return an exit code."""
    known = sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))
    # Those that read keep their stores, which leave the writing ones too little of the disk.
    known.sort(key=lambda name: name not in _WRITING)
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description="Run benchmarks.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(known) or 'none yet'}")
    # Of this program's own processes: a name stands for itself, and not for its parts.
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    parsed = parser.parse_args(arguments)
    given: list[str] = parsed.names
    unknown = sorted(name for name in set(given) if not named_by(name, known))
    if unknown:
        parser.error(f"unknown benchmark {', '.join(unknown)}; there are {', '.join(known) or 'none'}")
    names = given if parsed.alone else list(dict.fromkeys(one for name in given for one in named_by(name, known)))
    if len(names) == 1:
        run(names[0], importlib.import_module(f"tests.benchmarks.bench_{names[0]}").main, results_directory())
        return 0
    command = [sys.executable, "-m", "tests.benchmarks", "--alone"]
    runs = [subprocess.run([*command, name], check=False) for name in names or known]
    return int(any(run.returncode for run in runs))


def named_by(name: str, known: Iterable[str]) -> list[str]:
    """The benchmarks that a name stands for: its own, and the parts of a larger one."""
    return [one for one in known if one == name or one.startswith(f"{name}_")]


def run(name: str, benchmark: Callable[[], object], directory: Path) -> None:
    """Run one benchmark, and write what it showed, also where it ends with an error."""
    print(f"== {name}", flush=True)
    results = Results(name, machine=machine(), begun=now(), surroundings=surroundings())
    on_show(results.add)
    complete = False
    try:
        benchmark()
        complete = True
    finally:
        print(f"  {results.write(directory, complete=complete)}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
