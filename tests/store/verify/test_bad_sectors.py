"""Assessments of a store on a disk that fails reads: a verdict, with the file and what it held, and no traceback."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commitlog_store import Verdict, assess_store
from commitlog_store.files import disk
from tests.power_cut.block_device import power_cuts, why_not
from tests.store.verify.made_store import files, make_store, message_place
from tests.store.verify.test_assessment import newest_file
from tests.support import quick_programs

PAGE = 4096
# Truncates each file of the log as soon as its records are found, and uses them after that.
TRUNCATES = """
import os, sys
from commitlog_store.columnar.dispatch import dispatch_requests
from commitlog_store.format.checkpoint import Checkpoint
from commitlog_store.verify.findings import Findings
from commitlog_store.verify.log import LogCheck

log = LogCheck(sys.argv[1], Findings(), aborted=False, checkpoint=Checkpoint(0, 0, 0), mark=None)
used = 0
for scan in log.scans():
    os.truncate(log.place(scan.physical_offset)[0], 0)
    used += len(dispatch_requests(scan, ()).topic_codes)
    assert scan.data.any()
print(used)
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("made") / "store")


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "store"))


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Make every read of a file, or of all files below a directory, fail, as a bad sector does."""

    def fail(bad: Path) -> None:
        def guarded(call: Callable[..., Any]) -> Callable[..., Any]:
            def read(descriptor: int, *arguments: Any) -> Any:
                if Path(f"/proc/self/fd/{descriptor}").resolve().is_relative_to(bad):
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                return call(descriptor, *arguments)

            return read

        for name in ("read_at", "read_into"):
            monkeypatch.setattr(disk, name, guarded(getattr(disk, name)))

    return fail


def place_on_device(file: Path, at: int) -> int:
    """The byte of the device where the page with byte ``at`` of a file is."""
    listed = subprocess.run(["filefrag", "-sv", "-b1", file], check=True, capture_output=True, text=True)
    for line in listed.stdout.splitlines():
        if (parts := line.split(":"))[0].strip().isdigit():
            first, last = map(int, parts[1].split(".."))
            if first <= at <= last:
                return int(parts[2].split("..")[0]) + (at - first) // PAGE * PAGE
    raise AssertionError(listed.stdout)


@pytest.mark.parametrize("deep", [False, True])
def test_the_messages_of_a_log_file_that_cannot_be_read_are_unreadable(
    path: Path, failing: Callable[[Path], None], deep: bool
) -> None:
    bad = files(path, "commitlog")[1]
    failing(bad)
    found = assess_store(path, deep=deep)
    (finding,) = found.findings
    assert (finding.check, finding.severity, finding.path) == ("access.read", "error", str(bad))
    assert finding.message.startswith(f"Cannot read {bad}: Input/output error.")
    assert (found.verdict, found.lost, found.unreadable) == (Verdict.DAMAGED, 195, 195)


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("part", ["commitlog", "consumequeue", "consumequeue/orders/1", "index"])
def test_a_part_that_cannot_be_read_keeps_the_store_from_opening(
    path: Path, failing: Callable[[Path], None], part: str, deep: bool
) -> None:
    failing(path / part)
    found = assess_store(path, deep=deep)
    assert (found.verdict, found.lost) == (Verdict.DOES_NOT_OPEN, 900 if part == "commitlog" else 0)
    first = next(one for one in found.findings if one.severity == "error")
    assert first.check in ("access.read", "index.header")
    assert Path(first.path).is_relative_to(path / part)


@pytest.mark.parametrize("deep", [False, True])
def test_one_bad_queue_file_is_reported_once(path: Path, failing: Callable[[Path], None], deep: bool) -> None:
    bad = files(path, "consumequeue/orders/1")[0]
    failing(bad)
    found = assess_store(path, deep=deep)
    assert found.lost == 0
    assert [one.path for one in found.findings if one.check == "access.read"] in ([], [str(bad)])
    assert {one.check for one in found.findings} <= {"access.read", "opening.refused"}


def test_a_newest_message_that_cannot_be_read_is_not_said_to_be_gone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = newest_file(path)
    read_at = disk.read_at

    def read(descriptor: int, length: int, offset: int) -> bytes:
        if offset and Path(f"/proc/self/fd/{descriptor}").resolve() == newest:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read_at(descriptor, length, offset)

    monkeypatch.setattr(disk, "read_at", read)
    found = assess_store(path)
    assert [(one.check, one.path) for one in found.findings if one.check != "opening.refused"] == [
        ("access.read", str(newest))
    ]
    assert found.lost == 0


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_a_deep_look_reads_around_a_bad_sector_of_a_mapped_file(made: Path, tmp_path: Path) -> None:
    """The kernel kills a process that touches a mapped page whose sector cannot be read."""
    with power_cuts(tmp_path) as device:
        with device.power_on() as mount:
            path = Path(shutil.copytree(made, mount / "store"))
            file, at, _ = message_place(path, "orders", 1, 100)
            bad = place_on_device(file, at)
        device.fail_reads(bad, PAGE)
        with device.power_on() as mount:
            done = quick_programs.run_program(
                "-m", "commitlog_store", "doctor", "--deep", "--json", mount / "store", timeout=120
            )
            found = json.loads(done.stdout)
            kept = quick_programs.run_program(
                "-m", "commitlog_store", "cat", mount / "store", "*", "--on-damage", "skip", timeout=120
            )
    assert done.returncode == 1, done.stderr
    (finding,) = found["findings"]
    assert (finding["check"], finding["path"]) == ("access.read", str(file))
    assert 0 < finding["offset"] <= at  # the kernel may read several pages as one
    assert "of 4096 bytes; messages there count as unreadable" in finding["message"]
    assert 0 < found["lost"] == found["unreadable"] < 100
    assert (found["found"], found["verdict"]) == (900 - found["lost"], "DAMAGED")
    assert kept.returncode == 1
    assert len(kept.stdout.splitlines()) == found["found"]
    assert "Input/output error" in kept.stderr


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
@pytest.mark.parametrize("pages", [1, 3])
def test_only_the_messages_on_the_bad_first_pages_of_a_log_file_count_as_unreadable(
    made: Path, tmp_path: Path, pages: int
) -> None:
    with power_cuts(tmp_path) as device:
        with device.power_on() as mount:
            path = Path(shutil.copytree(made, mount / "store"))
            file = files(path, "commitlog")[1]
            bad = place_on_device(file, 0)
            assert place_on_device(file, (pages - 1) * PAGE) == bad + (pages - 1) * PAGE
        device.fail_reads(bad, pages * PAGE)
        looks = {}
        for deep in ((), ("--deep",)):
            with device.power_on() as mount:  # no page is in memory
                done = quick_programs.run_program(
                    "-m", "commitlog_store", "doctor", *deep, "--json", mount / "store", timeout=120
                )
            looks[deep] = json.loads(done.stdout)
            assert done.returncode == 1, done.stderr
            (finding,) = (one for one in looks[deep]["findings"] if one["check"] == "access.read")
            assert (finding["path"], finding["offset"]) == (str(file), 0)
        with device.power_on() as mount:
            kept = quick_programs.run_program(
                "-m", "commitlog_store", "cat", mount / "store", "*", "--on-damage", "skip", timeout=120
            )
    counts = [
        (look["lost"], look["unreadable"], {one["topic"]: one["lostOffsets"] for one in look["topics"] if one["lost"]})
        for look in looks.values()
    ]
    assert counts[0] == counts[1]
    lost, unreadable, _ = counts[0]
    assert 0 < lost == unreadable < 40
    assert len(kept.stdout.splitlines()) == 900 - lost


def test_a_file_that_is_truncated_while_it_is_walked_does_not_kill_the_process(path: Path) -> None:
    done = quick_programs.run_program("-c", TRUNCATES, path / "commitlog", timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) == 900
