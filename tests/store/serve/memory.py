"""The memory and threads of another process (Linux)."""

from __future__ import annotations

from pathlib import Path


def anonymous_mib(pid: int) -> float:
    """Its resident memory without pages of files, which the system takes back when it needs them."""
    return _status(pid, "RssAnon") / 1024


def resident_mib(pid: int) -> float:
    """Its resident memory, with pages of files and libraries."""
    return _status(pid, "VmRSS") / 1024


def threads(pid: int) -> int:
    return _status(pid, "Threads")


def descriptors(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def _status(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1])
