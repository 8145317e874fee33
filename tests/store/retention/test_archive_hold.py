"""Retention waits for an archive: for what its newest manifest has, up to a limit, and on a full disk no longer."""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from commitlog_store import MessageStore
from commitlog_store.archive.archiver import archive_store
from commitlog_store.archive.generations import newest
from commitlog_store.archive.holding import ArchiveHolder, archive_hold
from commitlog_store.engine.subject import Hold
from commitlog_store.errors import ArchiveMismatch, InvalidValue
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.object_storage.object_store import ObjectStore
from commitlog_store.retention.archive_status import read_status
from commitlog_store.retention.decision import LogFile, RetentionLimits, decide
from tests.store.cli.commands import ended, run
from tests.store.retention.small_stores import SMALL, Clock, fill, log_bases, store_clock
from tests.support.waiting import wait_for

FILE = SMALL.mapped_file_size_commit_log


def _url(path: Path) -> str:
    return f"file://{path}"


def test_only_what_the_manifest_has_whole_may_go(tmp_path: Path) -> None:
    path, url = tmp_path / "store", _url(tmp_path / "archive")
    with MessageStore.open(path, SMALL) as store:
        fill(store, 60)
        store.flush()
        archived = archive_store(path, url, with_last=True).stop
        fill(store, 60)
        assert archived % FILE, "a part of a file is archived"
        kept = {"max_bytes": 0, "keep_for": [f"archive:{url}"], "keep_at_most_hours": 1e5}
        report = store.clean(**kept, dry_run=True)  # type: ignore[arg-type]
        assert report.log_start == archived // FILE * FILE
        assert report.holders == (f"archive {url}",)
        # Objects that no manifest names do not count.
        (tmp_path / "archive" / "commitlog" / "unnamed").write_bytes(b"x" * FILE)
        assert store.clean(**kept).log_start == report.log_start == log_bases(path)[0]  # type: ignore[arg-type]
        archive_store(path, url)
        report = store.clean(**kept)  # type: ignore[arg-type]
        assert (report.log_start, report.holders) == (report.log_end // FILE * FILE, ())


def test_an_archive_of_another_store_lets_nothing_go(tmp_path: Path) -> None:
    for name in ("one", "other"):
        with MessageStore.open(tmp_path / name, SMALL) as store:
            fill(store, 60, topic=name)
    archive_store(tmp_path / "one", _url(tmp_path / "archive"))
    with MessageStore.open(tmp_path / "other", SMALL) as store:
        before = log_bases(tmp_path / "other")
        with pytest.raises(ArchiveMismatch, match="has another log"):
            store.clean(max_bytes=0, keep_for=[f"archive:{_url(tmp_path / 'archive')}"])
        with pytest.raises(InvalidValue, match="An archive is"):
            store.clean(max_bytes=0, keep_for=["archive:nonsense"])
        assert log_bases(tmp_path / "other") == before


def test_the_hold_ends_by_age_and_on_a_full_disk() -> None:
    files = [LogFile(base=n * 10, end=n * 10 + 10, path=f"{n}", newest_ms=n) for n in range(3)]
    hold = Hold(from_offset=0, holder="archive x", at_most_ms=100, yields_to_disk=True)
    by_bytes, at_once = RetentionLimits(max_bytes=0), RetentionLimits(at_once=True)
    assert decide(files, 30, by_bytes, [hold], 50).holders == ("archive x",)
    assert [one.overruled for one in decide(files, 30, by_bytes, [hold], 100).doomed] == [("archive x",)]
    assert [one.overruled for one in decide(files, 30, at_once, [hold], 50).doomed] == [("archive x",)] * 2
    lasting = replace(hold, yields_to_disk=False)
    assert not decide(files, 30, at_once, [lasting], 50).doomed


def test_an_open_store_waits_for_the_archive_of_its_settings(tmp_path: Path) -> None:
    path, url = tmp_path / "store", _url(tmp_path / "archive")
    config = replace(SMALL, retention_bytes=2 * FILE, retention_archive=url)
    with store_clock(Clock()), MessageStore.open(path, replace(config, retention_archive_hours=0)) as store:
        fill(store, 100)
        report = store.clean()
        assert (report.deleted, report.holders) == ([], (f"archive {url}",))
        store.flush()
        stop = archive_store(path, url).stop
    with MessageStore.open(path, config) as store:
        wait_for(lambda: (shown := read_status(str(path))) is not None and shown.archived == stop)
        report = store.clean()
        assert report.deleted
        assert not report.holders
        shown = json.loads(run("info", path, "--json"))["archiveHold"]
        assert (shown["url"], shown["archived"], shown["failure"]) == (url, stop, "")
        text = run("info", path)
        assert f"retention waits for the archive {url}, which lacks" in text
        assert f"from {stop} on, for 7 d at most" in text
        assert f"retention waits for the archive {url}" in " ".join(run("doctor", path).split())
        assert json.loads(run("doctor", path, "--json"))["archiveHold"]["url"] == url
        assert f"; retention waits for the archive {url}, which lacks" in run("doctor", path, "--nagios")
    with MessageStore.open(path, SMALL):
        assert json.loads(run("info", path, "--json"))["archiveHold"] is None


def test_the_command_clean_waits_for_an_archive(tmp_path: Path) -> None:
    path, url = tmp_path / "store", _url(tmp_path / "archive")
    with MessageStore.open(path, SMALL) as store:
        fill(store, 60)
    command = ["clean", path, "--max-bytes", "1", "--keep-for", f"archive:{url}", "--keep-at-most", "9999w", "--yes"]
    archive_store(path, url)
    assert f"The log begins at {newest(ObjectStore.open(url)).stop} now" in run(*command)
    (tmp_path / "archive" / "archive.json").rename(tmp_path / "archive.json")
    for one in (tmp_path / "archive" / "manifest").iterdir():
        one.write_bytes(b"damaged")
    done = ended(*command)
    assert done.returncode == 1
    assert "is not a manifest of an archive" in done.stderr


def test_a_look_without_an_answer_keeps_the_last_one_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, archive = tmp_path / "store", tmp_path / "archive"
    with MessageStore.open(path, SMALL) as store:
        fill(store, 60)
    archive_store(path, _url(archive))
    paths = StorePaths.of(str(path), None)
    config = replace(SMALL, retention_archive=_url(archive))
    holder = ArchiveHolder(paths, config, ObjectStore.open(_url(archive)), clock=Clock())
    assert [one.from_offset for one in holder.holds()] == [0], "before the first answer everything is held"
    assert holder.run_once() == 60.0
    expected = archive_hold(paths, _url(archive), at_most_ms=None).from_offset
    manifests = archive / "manifest"
    kept = {one: one.read_bytes() for one in manifests.iterdir()}
    with caplog.at_level(logging.WARNING):
        for one in kept:
            one.write_bytes(b"damaged")
        assert [holder.run_once() for _ in range(7)] == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
        assert caplog.text.count("retention waits for the archive") == 1
        assert [one.from_offset for one in holder.holds()] == [expected]
        shown = read_status(str(path))
        assert shown is not None
        assert shown.archived == expected
        assert "is not a manifest" in shown.failure
        for one, data in kept.items():
            one.write_bytes(data)
        assert holder.run_once() == 60.0
        assert caplog.text.count("answers again") == 1
    shutil.rmtree(manifests)
    assert holder.run_once() == 60.0
    assert [one.from_offset for one in holder.holds()] == [0], "an archive without a manifest has nothing"


def test_an_archive_of_what_the_log_lost_lets_nothing_go(tmp_path: Path) -> None:
    """A log that lost whole files at its end, and grew again: the archive has others at these offsets."""
    path, archive = tmp_path / "store", tmp_path / "archive"
    with MessageStore.open(path, SMALL) as store:
        fill(store, 60)
    stop = archive_store(path, _url(archive)).stop
    cut = stop - 2 * FILE
    for base in log_bases(path):
        if base >= cut:
            (path / "commitlog" / f"{base:020d}").unlink()
    paths = StorePaths.of(str(path), None)
    holder = ArchiveHolder(paths, replace(SMALL, retention_archive=_url(archive)), ObjectStore.open(_url(archive)))
    holder.run_once()
    assert [one.from_offset for one in holder.holds()] == [cut], "of files that come next nothing is known"
    with MessageStore.open(path, SMALL, accept_lost_log=True) as store:
        fill(store, 60, topic="later")
    holder.run_once()
    assert [one.from_offset for one in holder.holds()] == [0], "not an archive of this log"
    shown = read_status(str(path))
    assert shown is not None
    assert "has another log" in shown.failure
