"""What a benchmark showed, as JSON beside its table (``build/benchmarks/<name>.json``), for comparisons by programs."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
# "804 k msg/s = 62 %", "p50 45 µs, p99 80 µs", "4,749 /s": numbers, each with the unit that follows it.
_FIGURE = re.compile(r"(?<![\w.])(\d[\d,]*(?:\.\d+)?)(?![\d.])\s?(/s|[a-zA-Zµ%][a-zA-Zµ%/ ]*)?")
_PACKAGES = ("pyspark", "pyarrow", "numpy")


class Results:
    """The lines of one benchmark, in order, and where it ran."""

    def __init__(self, name: str, *, machine: str, begun: datetime, surroundings: Mapping[str, str]) -> None:
        self.name = name
        self._lines: list[dict[str, Any]] = []
        self._about = {"benchmark": name, "machine": machine, "begun": begun.isoformat(), **surroundings}

    def add(self, label: str, value: str, beside: str) -> None:
        """A line of the table: what was measured, and what stands beside it, such as a goal."""
        self._lines.append({"what": label, "shown": value, "figures": figures(value), "beside": beside})

    def write(self, directory: Path, *, complete: bool) -> Path:
        """Write all lines so far. ``complete`` is false for a benchmark that ended with an error."""
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{self.name}.json"
        content = {**self._about, "complete": complete, "lines": self._lines}
        path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return path


def figures(shown: str) -> list[dict[str, Any]]:
    """The numbers in a shown value, each with its unit, which may be empty."""
    return [
        {"number": float(found[1].replace(",", "")), "unit": (found[2] or "").strip()}
        for found in _FIGURE.finditer(shown)
    ]


def surroundings() -> dict[str, str]:
    """The versions of what the figures depend on, and the commit that was measured."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"],
        cwd=PROJECT,
        check=False,
        capture_output=True,
        text=True,
    )
    return {"commit": described.stdout.strip() or "unknown", **{name: version(name) for name in _PACKAGES}}


def results_directory() -> Path:
    """Where results are written: ``build/benchmarks``, or the directory in ``COMMITLOG_BENCH_RESULTS``."""
    return Path(os.environ.get("COMMITLOG_BENCH_RESULTS", PROJECT / "build" / "benchmarks"))


def now() -> datetime:
    return datetime.now(timezone.utc)
