"""Runs the benchmarks: ``python -m tests.benchmarks [name ...]``, all of them without a name.

Each runs in a process of its own: a Java machine keeps the settings of its first session, and gets faster for minutes.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
from pathlib import Path

_WRITING = ("sink", "write")


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmarks named in ``arguments``, one after the other, and return an exit code."""
    known = sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))
    # Those that read keep their stores, which leave the writing ones too little of the disk.
    known.sort(key=lambda name: name not in _WRITING)
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description="Run benchmarks.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(known) or 'none yet'}")
    names: list[str] = parser.parse_args(arguments).names
    unknown = sorted(set(names) - set(known))
    if unknown:
        parser.error(f"unknown benchmark {', '.join(unknown)}; there are {', '.join(known) or 'none'}")
    if len(names) == 1:
        print(f"== {names[0]}", flush=True)
        importlib.import_module(f"tests.benchmarks.bench_{names[0]}").main()
        return 0
    runs = [subprocess.run([sys.executable, "-m", "tests.benchmarks", name], check=False) for name in names or known]
    return int(any(run.returncode for run in runs))


if __name__ == "__main__":
    raise SystemExit(main())
