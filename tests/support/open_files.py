"""The files that a process has open or mapped, as Linux names them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def files_of(process: int, below: Path) -> list[str]:
    """Those below a directory, sorted; the name of a removed one ends with " (deleted)"."""
    found = set()
    for link in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed concurrently
            found.add(os.readlink(link))
    for line in Path(f"/proc/{process}/maps").read_text().splitlines():
        found.add(line.split(None, 5)[-1])
    return sorted(file for file in found if file.startswith(f"{below}{os.sep}"))


def removed_files_of(process: int, below: Path) -> list[str]:
    """Those that are removed: their space is taken until they are closed."""
    return [file for file in files_of(process, below) if file.endswith(" (deleted)")]
