"""Check finds what is missing or changed; deletion leaves alone what is named, or may be."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from commitlog_store.archive.archiver import archive_store
from commitlog_store.archive.check import check_archive
from commitlog_store.archive.gc import gc_archive
from commitlog_store.archive.generations import newest
from commitlog_store.archive.layout import IDENTITY, manifest_name
from commitlog_store.archive.uploads import GRACE_S
from commitlog_store.errors import ArchiveDamaged, ArchiveNotFound
from tests.store.archive.archives import add_messages, assert_sound, objects_of, small_store, tree, url_of


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store and its archive, with several generations, parts that were replaced, and a group. Shared."""
    root = tmp_path_factory.mktemp("archived")
    builder = small_store(root / "store", 1800)
    archive_store(root / "store", url_of(root / "a"), with_last=True)
    add_messages(builder, 50)
    archive_store(root / "store", url_of(root / "a"), with_last=True)
    return root


@pytest.fixture
def archive(archived: Path, tmp_path: Path) -> Path:
    """A copy of the archive, beside one of its store."""
    shutil.copytree(archived, tmp_path, dirs_exist_ok=True)
    return tmp_path / "a"


def _names(archive: Path) -> dict[str, str]:
    manifest = newest(objects_of(archive))
    segment = manifest.segments[1]
    return {
        "log": segment.log.name,
        "units": segment.units.name,
        "catalog": manifest.catalog.name,
        "group": manifest.groups[0].table.name,
        "identity": IDENTITY,
    }


@pytest.mark.parametrize("kind", ["log", "units", "catalog", "group", "identity"])
def test_a_missing_object_is_named(archive: Path, kind: str) -> None:
    name = _names(archive)[kind]
    (archive / name).unlink()
    problems = check_archive(objects_of(archive)).problems
    assert any(name in problem and "missing" in problem for problem in problems)


@pytest.mark.parametrize("kind", ["log", "units", "catalog", "group"])
@pytest.mark.parametrize("place", ["first", "last"])
def test_a_changed_byte_at_an_objects_ends_is_found_without_reading_all(archive: Path, kind: str, place: str) -> None:
    name = _names(archive)[kind]
    data = bytearray((archive / name).read_bytes())
    at = {"first": 0, "last": len(data) - 1}[place]
    data[at] ^= 1
    (archive / name).write_bytes(data)
    deep = check_archive(objects_of(archive), deep=True).problems
    assert any(name in problem for problem in deep)
    # Units, and what follows a log file's last record, are compared by the deep check alone.
    if not (place == "last" and kind in ("units", "log")):
        assert any(name in problem for problem in check_archive(objects_of(archive)).problems)


def test_a_cut_object_is_named(archive: Path) -> None:
    name = _names(archive)["log"]
    (archive / name).write_bytes((archive / name).read_bytes()[:-1])
    assert any(f"{name} has" in problem for problem in check_archive(objects_of(archive)).problems)


def test_a_damaged_manifest_is_an_error_of_its_own(archive: Path) -> None:
    name = manifest_name(newest(objects_of(archive)).generation)
    (archive / name).write_bytes(b"{")
    with pytest.raises(ArchiveDamaged, match=name):
        check_archive(objects_of(archive))


def test_what_no_manifest_names_is_deleted_once_it_is_old(archive: Path) -> None:
    generation = newest(objects_of(archive)).generation
    (archive / "commitlog" / f"{0:020d}-{0xCAFE:016x}").write_bytes(b"left by a killed archiver")
    (archive / "commitlog" / f"{0:020d}-{0xBEEF:016x}#1").write_bytes(b"half an upload")
    before = tree(archive)
    young = gc_archive(objects_of(archive))
    assert (young.deleted, tree(archive)) == (0, before)
    soon = time.time() + GRACE_S + 60
    assert gc_archive(objects_of(archive), now_s=soon, dry_run=True).deleted == young.young + 1
    assert tree(archive) == before
    assert gc_archive(objects_of(archive), now_s=soon).deleted == young.young + 1
    assert_sound(objects_of(archive))
    report = check_archive(objects_of(archive))
    assert (report.generation, report.unnamed) == (generation, 0)
    named = {ref.name for ref in newest(objects_of(archive)).objects()} | {IDENTITY, manifest_name(generation)}
    assert {os.path.relpath(path, archive) for path in tree(archive)} == named


def test_what_archivers_do_not_name_stays_below_the_prefix(archive: Path, tmp_path: Path) -> None:
    """An archive within an archive's prefix, and files of others: they are not this archive's to delete."""
    small_store(tmp_path / "other", 200)
    archive_store(tmp_path / "other", url_of(archive / "inner"), with_last=True)
    for name in ("notes.txt", "commitlog/notes#1", "elsewhere/00000000000000000000-0123456789abcdef#1"):
        (archive / name).parent.mkdir(exist_ok=True)
        (archive / name).write_bytes(b"not of an archive")
    others = {path for path in tree(archive) if "notes" in path or "/inner/" in path or "/elsewhere/" in path}
    unnamed = check_archive(objects_of(archive)).unnamed
    assert gc_archive(objects_of(archive), now_s=time.time() + GRACE_S + 60).deleted >= unnamed > 0
    assert others <= tree(archive).keys()
    assert check_archive(objects_of(archive)).unnamed == 0
    assert_sound(objects_of(archive / "inner"))


def test_what_readers_may_have_stays_a_day_after_it_was_replaced(tmp_path: Path) -> None:
    """Objects of a generation that was the newest one until now are old, and readers of it have just begun."""
    archive = tmp_path / "a"
    builder = small_store(tmp_path / "store", 100)
    archive_store(tmp_path / "store", url_of(archive), with_last=True)
    old = time.time() - GRACE_S - 60
    for path in archive.rglob("*"):
        os.utime(path, (old, old))
    before = newest(objects_of(archive))
    add_messages(builder, 20)
    archive_store(tmp_path / "store", url_of(archive), with_last=True)
    assert newest(objects_of(archive)).generation > before.generation
    gc_archive(objects_of(archive))
    kept = {os.path.relpath(path, archive) for path in tree(archive)}
    assert {ref.name for ref in before.objects()} | {manifest_name(before.generation)} <= kept
    gc_archive(objects_of(archive), now_s=time.time() + GRACE_S + 60)
    assert before.segments[-1].log.name not in {os.path.relpath(path, archive) for path in tree(archive)}


def test_nothing_is_deleted_below_a_prefix_without_a_manifest(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"not of an archive")
    with pytest.raises(ArchiveNotFound):
        gc_archive(url_of(tmp_path), older_than_s=0)
    assert (tmp_path / "precious").exists()


def test_an_archiver_does_not_rely_on_an_object_that_may_be_deleted(archive: Path, tmp_path: Path) -> None:
    """An upload of a run that was killed a day ago is found by its name, and put again: gc may be at work."""
    objects = objects_of(archive)
    last = newest(objects).segments[-1]
    for path in (archive / "manifest").iterdir():
        path.unlink()
    old = time.time() - GRACE_S
    for path in archive.rglob("*"):
        os.utime(path, (old, old))
    archive_store(tmp_path / "store", url_of(archive), with_last=True)
    assert newest(objects).segments[-1].log.name == last.log.name
    assert all((archive / ref.name).stat().st_mtime > old + 60 for ref in newest(objects).objects())
