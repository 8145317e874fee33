"""Archivers that are killed anywhere, and two of them at once: nothing twice, nothing missing."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from commitlog_store.archive.archiver import ArchiveReport, ArchiveSettings, archive_store, open_archiver
from commitlog_store.archive.gc import gc_archive
from commitlog_store.archive.generations import commit, newest, newest_or_none
from commitlog_store.errors import FileChanged
from commitlog_store.object_storage.object_store import ObjectStore
from tests.store.archive.archives import archived_bytes, assert_sound, log_bytes, objects_of, small_store, tree, url_of
from tests.support import quick_programs
from tests.support.long_runs import Progress, part_of
from tests.support.programs import child_environment
from tests.support.waiting import wait_for

KILLS = 8
STRESS_KILLS = part_of(200)


def _archive(store: Path, archive: Path, more: Sequence[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "commitlog_store", "archive", str(store), url_of(archive), "--max-rate", "100K"]
    return quick_programs.Popen(
        [*command, "--with-last", *more],
        env={**child_environment(), "TMPDIR": str(archive.parent)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _kill_after(files: int, store: Path, archive: Path, more: Sequence[str]) -> bool:
    """Start `commitlog archive`, and kill it once so many files were made; whether it was still running."""
    before = len(tree(archive))
    process = _archive(store, archive, more)
    wait_for(lambda: process.poll() is not None or len(tree(archive)) >= before + files)
    process.kill()
    return process.wait() != 0


def _check_kills(
    tmp_path: Path, kills: int, progress: Progress | None = None, *, topics: str | None = None, work_dir: bool = False
) -> None:
    small_store(tmp_path / "store", 600 if kills < STRESS_KILLS else 6000)
    more = [*(["--topics", topics] if topics else []), *(["--work-dir", str(tmp_path / "work")] if work_dir else [])]
    killed = 0
    while killed < kills:
        if not _kill_after(killed % (3 if kills < STRESS_KILLS else 9), tmp_path / "store", tmp_path / "a", more):
            break
        killed += 1
        if progress is not None:
            progress.count("archivers killed", killed)
        manifest = newest_or_none(objects_of(tmp_path / "a")) if (tmp_path / "a").exists() else None
        if manifest is not None:
            assert_sound(objects_of(tmp_path / "a"))
    assert killed >= min(kills, KILLS // 2)
    archive_store(tmp_path / "store", url_of(tmp_path / "a"), with_last=True, topics=topics)
    data = archived_bytes(objects_of(tmp_path / "a"))
    if topics:
        archive_store(tmp_path / "store", url_of(tmp_path / "once"), with_last=True, topics=topics)
        assert data == archived_bytes(objects_of(tmp_path / "once"))
    else:
        assert data == log_bytes(tmp_path / "store")[: len(data)]
    gc_archive(objects_of(tmp_path / "a"), older_than_s=-60)
    assert_sound(objects_of(tmp_path / "a"))
    left = {os.path.relpath(path, tmp_path / "a") for path in tree(tmp_path / "a")}
    assert len(left) == len({ref.name for ref in newest(objects_of(tmp_path / "a")).objects()}) + 2


def test_an_archiver_that_is_killed_anywhere_continues(tmp_path: Path) -> None:
    _check_kills(tmp_path, KILLS)


@pytest.mark.stress
@pytest.mark.timeout(3600)
def test_an_archiver_that_is_killed_200_times_continues(tmp_path: Path, progress: Progress) -> None:
    _check_kills(tmp_path, STRESS_KILLS, progress)


@pytest.mark.parametrize("work_dir", [True, False])
def test_an_archiver_of_some_topics_that_is_killed_anywhere_continues(tmp_path: Path, *, work_dir: bool) -> None:
    _check_kills(tmp_path, KILLS // 2, topics="orders", work_dir=work_dir)


@pytest.mark.stress
@pytest.mark.timeout(3600)
def test_an_archiver_of_some_topics_that_is_killed_200_times_continues(tmp_path: Path, progress: Progress) -> None:
    _check_kills(tmp_path, STRESS_KILLS, progress, topics="orders", work_dir=True)


def test_two_archivers_at_once_make_one_archive(tmp_path: Path) -> None:
    small_store(tmp_path / "store", 800)
    begin = threading.Barrier(3)
    reports, failures = [], []

    def archive() -> None:
        begin.wait()
        try:
            reports.append(archive_store(tmp_path / "store", url_of(tmp_path / "a")))
        except Exception as error:  # noqa: BLE001 - the test fails with it
            failures.append(error)

    threads = [threading.Thread(target=archive) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    manifest = newest(objects_of(tmp_path / "a"))
    assert sum(report.added for report in reports) == len(manifest.segments) == manifest.generation
    data = archived_bytes(objects_of(tmp_path / "a"))
    assert data == log_bytes(tmp_path / "store")[: len(data)]
    assert_sound(objects_of(tmp_path / "a"))


def test_the_loser_of_a_commit_goes_on_from_the_winners_generation(tmp_path: Path) -> None:
    """The other archiver commits between this one's look at the manifest and its own commit."""
    small_store(tmp_path / "store", 400)
    raced: list[ArchiveReport] = []

    def race(done: int, size: int) -> None:
        if done == size and not raced:
            raced.append(archive_store(tmp_path / "store", url_of(tmp_path / "a")))

    archiver = open_archiver(tmp_path / "store", url_of(tmp_path / "a"), ArchiveSettings(), progress=race)
    while not archiver.run_once():
        pass
    archiver.close()
    assert archiver.report().added == 0
    assert archiver.report().stop == raced[0].stop
    assert_sound(objects_of(tmp_path / "a"))


def test_a_commit_whose_answer_was_lost_is_not_taken_for_another_archivers(tmp_path: Path) -> None:
    small_store(tmp_path / "store", 200)
    archive_store(tmp_path / "store", url_of(tmp_path / "a"))
    objects: ObjectStore = objects_of(tmp_path / "a")
    manifest = newest(objects)
    assert commit(objects, manifest)
    other = manifest.__class__(
        **{name: getattr(manifest, name) for name in manifest.__struct_fields__ if name != "attempt"}, attempt="x"
    )
    assert not commit(objects, other)


def test_a_file_that_changes_after_its_checksums_were_made_ahead_is_archived_as_it_is(tmp_path: Path) -> None:
    """They are made while the file before it is uploaded."""
    small_store(tmp_path / "store", 400)
    second = sorted((tmp_path / "store" / "commitlog").iterdir())[1]

    def change(done: int, size: int) -> None:
        if done == size and not archiver.report().added:
            wait_for(lambda: all(thread.name != "SumsAhead" for thread in threading.enumerate()))
            data = bytearray(second.read_bytes())
            data[-1] ^= 1
            second.write_bytes(data)

    archiver = open_archiver(tmp_path / "store", url_of(tmp_path / "a"), ArchiveSettings(), progress=change)
    assert archiver.run_once() == 0
    with pytest.raises(FileChanged, match=second.name):
        archiver.run_once()
    while not archiver.run_once():
        pass
    archiver.close()
    data = archived_bytes(objects_of(tmp_path / "a"))
    assert data == log_bytes(tmp_path / "store")[: len(data)]
    assert_sound(objects_of(tmp_path / "a"))


def test_closing_ends_the_checksums_that_were_begun_ahead(tmp_path: Path) -> None:
    small_store(tmp_path / "store", 400)

    def stop(done: int, size: int) -> None:
        raise KeyboardInterrupt

    archiver = open_archiver(tmp_path / "store", url_of(tmp_path / "a"), ArchiveSettings(), progress=stop)
    with pytest.raises(KeyboardInterrupt):
        archiver.run_once()
    archiver.close()
    opened = [os.readlink(one) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
    assert not [one for one in opened if one.startswith(str(tmp_path / "store"))]
