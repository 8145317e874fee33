"""Files of absurd sizes and links that lead nowhere are reported, in little time."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from commitlog_store import MessageStore, StoreReader, Verdict, assess_store, repair_store
from commitlog_store.errors import NotAStore
from commitlog_store.files import disk
from commitlog_store.verify.store import verify_store
from tests.store.cli.commands import ended, script
from tests.store.owner.owned_store import open_store, put_ok

_FILE_SIZE = 16 << 10
_HUGE = 64 << 30


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with several CommitLog files, and several of each queue."""
    with open_store(tmp_path / "store") as store:
        for number in range(330):
            put_ok(store, body=b"m" * 200, keys=[f"k{number}"], queue_id=number % 2)
    assert len(list((tmp_path / "store" / "commitlog").iterdir())) >= 4
    return tmp_path / "store"


def _grow(path: Path, number: int, *, keep: bool) -> Path:
    """Let a CommitLog file say that it has 64 GiB, nearly all of it a hole; whether its own bytes are still there."""
    file = path / "commitlog" / f"{number * _FILE_SIZE:020d}"
    with file.open("r+b") as stream:
        if not keep:
            stream.truncate(0)
        stream.truncate(_HUGE)
    return file


@pytest.fixture
def few_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even a hundredth of 64 GiB may be read."""
    taken = 0
    plain = disk.read_at

    def counted(descriptor: int, length: int, offset: int) -> bytes:
        nonlocal taken
        taken += length
        assert taken < 512 << 20, "it reads on and on"
        return plain(descriptor, length, offset)

    monkeypatch.setattr(disk, "read_at", counted)


@pytest.mark.usefixtures("few_reads")
@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("keep", [True, False], ids=["its bytes kept", "empty"])
def test_a_huge_sparse_file_of_the_log_is_reported_and_its_holes_are_not_read(
    path: Path, number: int, keep: bool
) -> None:
    file = _grow(path, number, keep=keep)
    found = verify_store(path)
    sizes = [(finding.path, finding.message) for finding in found if finding.check == "files.size"]
    assert sizes == [(str(file), f"A CommitLog file of {_HUGE} bytes; the others have {_FILE_SIZE}.")]
    if keep:
        assert [one.check for one in found] == ["files.size", "opening.refused"]
    else:
        assert f"the log continues at physical offset {(number + 1) * _FILE_SIZE}" in str(found)


@pytest.mark.usefixtures("few_reads")
def test_a_good_record_far_after_a_hole_is_found(path: Path) -> None:
    data = (path / "commitlog" / f"{0:020d}").read_bytes()
    record = data[: int.from_bytes(data[:4], "big")]
    last = len(list((path / "commitlog").iterdir())) - 1
    file, far = _grow(path, last, keep=True), 40 << 30
    place = last * _FILE_SIZE + far
    with file.open("r+b") as stream:
        stream.seek(far)
        stream.write(record[:28] + place.to_bytes(8, "big") + record[36:])
    assert f"the log continues at physical offset {place}" in str(verify_store(path))


@pytest.mark.usefixtures("few_reads")
@pytest.mark.parametrize(
    ("files", "check", "words"),
    [
        ("index/*", "index.header", "at most 2147483647, found 68719476736"),
        ("consumequeue/orders/0/*", "files.size", "expected .* found 68719476736"),
    ],
)
def test_a_huge_sparse_file_of_index_or_queue_is_reported(path: Path, files: str, check: str, words: str) -> None:
    file = min(path.glob(files))
    os.truncate(file, _HUGE)
    found = [finding for finding in verify_store(path) if finding.check == check]
    assert [finding.path for finding in found] == [str(file)]
    assert re.search(words, found[0].message)


@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "index"])
def test_a_link_that_leads_nowhere_is_reported_by_every_way_to_open_a_store(path: Path, name: str) -> None:
    shutil.move(path / name, path.parent / "moved")
    (path / name).symlink_to(path.parent / "not mounted")
    for use in (MessageStore.open, StoreReader.open, verify_store):
        with pytest.raises(NotAStore, match=f"{name}.* link"):
            use(path)
    done = script("verify", path, "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "symbolic link that leads nowhere" in done.stderr
    assert done.stderr.count("\n") == 1


def test_links_that_cannot_be_resolved_are_files_of_the_store(tmp_path: Path) -> None:
    """Any program may have left one. ``commitlog info`` failed."""
    path = tmp_path / "store"
    open_store(path).close()
    (path / "other").touch()
    before = dict(disk.tree_files(str(path)))
    links = {"loop": "loop", "below": "other/file"}
    for name, target in links.items():
        (path / name).symlink_to(target)
    (path / "elsewhere").symlink_to(tmp_path)  # a directory: not followed
    assert dict(disk.tree_files(str(path))) == before | {str(path / name): 0 for name in links}
    with StoreReader.open(path) as reader:
        reader.facts()
    assert ended("info", path).returncode == 0


@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "index", "config"])
def test_a_directory_that_is_a_link_keeps_an_owner_out_and_is_no_fault(path: Path, name: str) -> None:
    """A broker follows links. ``commitlog repair`` before a start said that the store opens."""
    (path / name).rename(path.parent / "elsewhere")
    (path / name).symlink_to(path.parent / "elsewhere")
    with pytest.raises(NotAStore) as refused:
        MessageStore.open(path)
    for deep in (False, True):
        found = assess_store(path, deep=deep)
        assert (found.verdict, found.lost, found.opening.kind) == (Verdict.OK, 0, "refused")
        assert (found.opening.reason, type(found.opening.refusal)) == (str(refused.value), NotAStore)
        assert found.next_steps == ([] if deep else [f"commitlog doctor --deep {path}"])
    assert repair_store(path).reason == str(refused.value)
    assert ended("repair", path).returncode == 1


def test_damage_below_a_linked_directory_has_a_next_step_that_names_the_link(path: Path) -> None:
    (path / "consumequeue").rename(path.parent / "elsewhere")
    (path / "consumequeue").symlink_to(path.parent / "elsewhere")
    with min(path.glob("consumequeue/orders/0/*")).open("r+b") as file:
        file.seek(5 * 20)
        file.write(bytes(20))
    found = assess_store(path, deep=True)
    assert [one.check for one in found.findings if one.severity == "error"] == ["queue.missing-message"]
    assert found.next_steps == [f"commitlog repair {path}"]
    assert f"{path}/consumequeue is a symbolic link" in ended("repair", path).stdout


@pytest.mark.parametrize("name", ["lock", "abort", "gate", "settled"])
@pytest.mark.parametrize("kind", ["directory", "link"])
def test_a_file_of_the_owner_that_is_a_directory_or_a_link_is_reported(path: Path, name: str, kind: str) -> None:
    """``commitlog doctor`` said OK of a store that no owner could open."""
    odd = path / name
    odd.unlink(missing_ok=True)
    if kind == "directory":
        odd.mkdir()
    else:
        odd.symlink_to("nowhere")
    opens = (name, kind) == ("abort", "link")  # an owner replaces the link
    messages = []
    for deep in (False, True):
        found = assess_store(path, deep=deep)
        assert found.verdict is (Verdict.WARNING if opens else Verdict.DOES_NOT_OPEN)
        assert found.lost == 0
        (finding,) = (one for one in found.findings if one.check == "access.file")
        assert finding.path == str(odd)
        assert finding.message.startswith(f"{odd} is a {'directory' if kind == 'directory' else 'symbolic link'}")
        assert "expected a file" in finding.message
        assert "empty file" in finding.message if name == "abort" else "Remove or rename it" in finding.message
        messages.append(finding.message)
    assert str(odd) in ended("doctor", path).stdout.replace("\n", "")
    if opens:
        open_store(path).close()
    else:
        with pytest.raises(NotAStore) as refused:
            MessageStore.open(path)
        assert [str(refused.value)] * 2 == messages
        odd.rmdir() if kind == "directory" else odd.unlink()
        if name == "abort":
            odd.touch()
    open_store(path).close()
    assert assess_store(path, deep=True).verdict is Verdict.OK


@pytest.mark.parametrize("name", ["gate", "settled"])
def test_a_directory_in_place_of_a_file_of_an_owner_at_work_is_reported(path: Path, name: str) -> None:
    with open_store(path):
        (path / name).unlink(missing_ok=True)
        (path / name).mkdir()
        found = assess_store(path)
        assert (found.opening.kind, found.verdict) == ("inUse", Verdict.WARNING)
        assert [one.path for one in found.findings if one.severity == "error"] == [str(path / name)]
