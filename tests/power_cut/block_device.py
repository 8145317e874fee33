"""A block device whose power can be cut: ``traced_device`` behind a loop device, with ext4 on it.

Needs root, /dev/fuse, free loop devices and mke2fs; ``why_not`` says what is missing.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.power_cut.traced_device import CutImage
from tests.support.source_tree import PROJECT

_MIB = 96
_MOST_NOTES = 64 << 20
# What e2fsck says after every crash: counts and bitmaps are written late, and unlinked files that were open.
_USUAL = re.compile(
    r"recovering journal|^Pass \d|count wrong|^Fix\? yes|orphaned|bitmap differences|FILE SYSTEM WAS MODIFIED|"
    r"\d+/\d+ files|UPDATED"
)


class Note(NamedTuple):
    """A line that the program wrote, and when: after so many entries of the trace."""

    point: int
    what: str
    number: int
    place: int


class PowerCuts:
    """A device that is traced, and the images of power cuts."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._served = root / "served"
        # Where the file system is mounted while it is written, and where an image is.
        self.live, self.image = root / "live", root / "image"
        self.notes_file = self._served / "notes"
        for path in (self._served, self.live, self.image):
            path.mkdir()
        words = [sys.executable, "-m", "tests.power_cut.traced_device", str(self._served), str(_MIB)]
        self._server = subprocess.Popen(words, cwd=PROJECT, stdout=subprocess.PIPE)
        assert self._server.stdout is not None
        assert self._server.stdout.readline() == b"ready\n"
        whole = "lazy_itable_init=0,lazy_journal_init=0"
        _run("mkfs.ext4", "-q", "-F", "-J", "size=4", "-E", whole, str(self._served / "disk"))

    def close(self) -> None:
        for path in (self.image, self.live):
            if path.is_mount():
                _run("umount", str(path))
        # Another program that looks at all loop devices may keep one of ours for a moment.
        _run("umount", "--lazy", str(self._served))
        self._server.wait(timeout=60)
        assert self._server.stdout is not None
        self._server.stdout.close()

    @contextlib.contextmanager
    def power_on(self) -> Iterator[Path]:
        """The file system that is traced. What happens after the block is no part of the trace's notes."""
        with _mounted(self._served / "disk", self.live):
            yield self.live
            self.note("end")

    def fail_reads(self, start: int, size: int) -> None:
        """From now on, reads of these bytes of the disk fail."""
        (self._served / "bad").write_text(json.dumps([start, start + size]))

    def note(self, line: str) -> None:
        self.notes_file.write_text(line)

    def notes(self) -> list[Note]:
        """Everything that was noted. The last one is ``end``."""
        descriptor = os.open(self.notes_file, os.O_RDONLY)
        try:
            found = json.loads(os.read(descriptor, _MOST_NOTES))
        finally:
            os.close(descriptor)
        notes = []
        for point, line in found:
            what, *numbers = line.split()
            number, place = [*map(int, numbers), -1, -1][:2]
            notes.append(Note(point, what, number, place))
        return notes

    @contextlib.contextmanager
    def after_cut(self, point: int, seed: str) -> Iterator[Path | None]:
        """The file system after power was cut at a point of the trace: checked as at a boot, and mounted.

        None when the file system itself has lost files: its journal's blocks are larger than the sectors that tear.
        """
        descriptor = os.open(self._served / "cut", os.O_WRONLY)
        try:
            os.write(descriptor, CutImage(point, seed).encode())
        finally:
            os.close(descriptor)
        if not _is_sound(self._served / "cut"):
            yield None
            return
        with _mounted(self._served / "cut", self.image):
            yield self.image


@contextlib.contextmanager
def power_cuts(root: Path) -> Iterator[PowerCuts]:
    """``root`` is an empty directory. What is mounted is unmounted at the end."""
    cuts = PowerCuts(root)
    try:
        yield cuts
    finally:
        cuts.close()


@contextlib.contextmanager
def _mounted(device: Path, path: Path) -> Iterator[None]:
    loop = _run("losetup", "--find", "--show", str(device)).strip()
    try:
        # The kernel may remember blocks of what was behind this loop device before.
        _run("blockdev", "--flushbufs", loop)
        _run("mount", "-t", "ext4", "-o", "commit=1", loop, str(path))
        try:
            yield
        finally:
            _run("umount", str(path))
    finally:
        _run("losetup", "--detach", loop)


def _is_sound(device: Path) -> bool:
    """Replay the journal and check the file system. False when more was wrong than what a crash always leaves."""
    words = ["e2fsck", "-fy", str(device)]
    checked = subprocess.run(words, check=False, capture_output=True, text=True, timeout=120)
    found = [line for line in checked.stdout.splitlines() if line and not _USUAL.search(line)]
    return checked.returncode in (0, 1) and not found


def _run(*words: str) -> str:
    ran = subprocess.run(words, check=False, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, f"{words}: {ran.stderr}"
    return ran.stdout


def why_not() -> str | None:
    """Why no device can be had here; None if one can."""
    if os.geteuid() != 0:
        return "mounting a device of its own takes root"
    if not os.path.exists("/dev/fuse") or not os.path.exists("/dev/loop-control"):
        return "the system has no /dev/fuse or no loop devices"
    missing = [tool for tool in ("mkfs.ext4", "e2fsck", "losetup", "blockdev", "mount") if shutil.which(tool) is None]
    if missing:
        return f"{missing[0]} is missing"
    try:
        descriptor = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        return f"/dev/fuse cannot be opened: {error.strerror}"
    os.close(descriptor)
    return None
