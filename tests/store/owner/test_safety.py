"""The owner creates private files, and writes only in its directory (invariant 10)."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import Message, PutMessageStatus
from commitlog_store.errors import CommitLogError, NotAStore
from tests.store.owner.owned_store import open_store, put_ok
from tests.support.stored_bodies import bodies


@pytest.fixture
def permissive_umask() -> Iterator[None]:
    """The strictest test: nothing is taken away by the process's mask."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("permissive_umask")
@pytest.mark.parametrize("settings", [{}, {"warm_mapped_file_enable": True}])
def test_files_and_directories_are_the_owners_alone(tmp_path: Path, settings: dict[str, object]) -> None:
    path = tmp_path / "made" / "on" / "the" / "way"
    with open_store(path, **settings) as store:
        for _ in range(200):
            put_ok(store, keys=["k"], body=bytes(200))
        store.flush()
        found = [path, *path.rglob("*")]
        modes = {str(one.relative_to(tmp_path)): stat.S_IMODE(one.lstat().st_mode) for one in found}
        kinds = {str(one.relative_to(tmp_path)): one.is_dir() for one in found}
    assert len(found) > 15
    assert {name: mode for name, mode in modes.items() if mode != (0o700 if kinds[name] else 0o600)} == {}


@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "index", "config"])
def test_a_store_with_a_part_that_lies_elsewhere_is_not_written(tmp_path: Path, name: str) -> None:
    path, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    with open_store(path) as store:
        put_ok(store)
    (path / name).rename(elsewhere)
    (path / name).symlink_to(elsewhere)
    before = _contents(elsewhere)
    with pytest.raises(NotAStore, match=f"{name} is a symbolic link"):
        open_store(path)
    assert _contents(elsewhere) == before


def _contents(directory: Path) -> dict[str, bytes]:
    return {str(file.relative_to(directory)): file.read_bytes() for file in directory.rglob("*") if file.is_file()}


@pytest.mark.parametrize(
    ("part", "filled"),
    [
        ("orders", True),
        ("orders", False),
        ("orders/0", True),
        ("orders/0", False),
        (f"orders/0/{0:020d}", True),
        (f"orders/0/{0:020d}", False),
    ],
)
def test_a_queue_that_leads_elsewhere_is_not_written(tmp_path: Path, part: str, filled: bool) -> None:
    path, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    with open_store(path) as store:
        put_ok(store)
    place = path / "consumequeue" / part
    if filled:
        place.rename(elsewhere)
    else:
        (path / "consumequeue" / "orders" / "0" / f"{0:020d}").unlink()
        if place.exists():
            _remove_directories(place)
        elsewhere.mkdir()
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(elsewhere)
    before = elsewhere.read_bytes() if elsewhere.is_file() else _contents(elsewhere)
    try:
        with open_store(path) as store:
            store.put_message(Message(queue_id=0, topic="orders", body=b"x"))
            store.dispatch()
    except CommitLogError:
        pass
    assert (elsewhere.read_bytes() if elsewhere.is_file() else _contents(elsewhere)) == before


def _remove_directories(path: Path) -> None:
    for inner in path.iterdir():
        inner.rmdir()
    path.rmdir()


@pytest.mark.parametrize("file", ["lock", "abort", "checkpoint", f"commitlog/{0:020d}"])
def test_files_of_the_store_that_are_links_are_not_written_through(tmp_path: Path, file: str) -> None:
    path, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    with open_store(path) as store:
        put_ok(store)
    target = path / file
    elsewhere.write_bytes(target.read_bytes() if target.exists() else b"mine")
    before = elsewhere.read_bytes()
    target.unlink(missing_ok=True)
    target.symlink_to(elsewhere)
    try:
        with open_store(path) as store:
            store.put_message(Message(queue_id=0, topic="orders", body=b"x"))
    except CommitLogError:
        pass
    assert elsewhere.read_bytes() == before


def test_a_link_in_the_place_of_a_log_file_is_named_as_a_link(tmp_path: Path) -> None:
    """A log of several directories is read through such links: an owner says why it refuses them."""
    path, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    with open_store(path) as store:
        put_ok(store)
    first = path / "commitlog" / f"{0:020d}"
    first.rename(elsewhere)
    first.symlink_to(elsewhere)
    with pytest.raises(NotAStore, match="is a symbolic link, which an owner does not follow"):
        open_store(path)


def test_a_link_where_the_next_file_should_be_is_not_followed(tmp_path: Path) -> None:
    """The put that reaches it is refused and takes no offset; no missing row of a table is reported as stored."""
    path, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    elsewhere.write_bytes(bytes(16 << 10))
    with open_store(path) as store:
        put_ok(store)
        (path / "commitlog" / f"{16 << 10:020d}").symlink_to(elsewhere)
        assert not store.put_message(Message(queue_id=0, topic="orders", body=bytes(16_270))).ok
        result = store.put_messages(pa.table({"body": [bytes(1_000)] * 40, "queueId": [0] * 40}), topic="orders")
        assert not result.ok
        taken = result.rows["status"].to_pylist().count("PUT_OK")
        assert result.rows["queueOffset"].to_pylist() == [*range(1, taken + 1), *[-1] * (40 - taken)]
    assert elsewhere.read_bytes() == bytes(16 << 10)
    (path / "commitlog" / f"{16 << 10:020d}").unlink()
    with open_store(path) as store:
        assert len(bodies(store)) >= 1 + taken


HOSTILE = [
    "..",
    ".",
    "a/b",
    "../../etc/passwd",
    "/etc",
    "a\0b",
    "a\nb",
    "",
    " ",
    "a b",
    "ä",
    "a.b",
    "x" * 256,
    "\ud800",
]


@pytest.mark.parametrize("topic", HOSTILE, ids=ascii)
def test_topics_that_are_not_names_are_refused(tmp_path: Path, topic: str) -> None:
    with open_store(tmp_path / "store") as store:
        message = Message(queue_id=0, topic=topic, body=b"x")
        for result in (store.put_message(message), store.put_message_batch([message])):
            assert result.status is PutMessageStatus.MESSAGE_ILLEGAL
            assert result.reason
        store.dispatch()
        assert list((tmp_path / "store" / "consumequeue").iterdir()) == []
    assert [one.name for one in tmp_path.iterdir()] == ["store"]
