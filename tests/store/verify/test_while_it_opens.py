"""A store that an owner opens or closes during a look at it is not reported as damaged."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from commitlog_store import MessageStore, Verdict, assess_store
from commitlog_store.paths import ABORT, CHECKPOINT
from tests.store.owner.owned_store import open_store, put_ok


@pytest.fixture
def owners() -> Iterator[contextlib.ExitStack]:
    """Closes the stores that a change has left open."""
    with contextlib.ExitStack() as stack:
        yield stack


def _put(store: MessageStore, first: int, count: int = 20) -> None:
    for number in range(first, first + count):
        put_ok(store, body=b"m%d" % number, keys=[f"k{number}"], queue_id=number % 2)


def _closed(path: Path) -> Path:
    with open_store(path) as store:
        _put(store, 0)
    return path


def _open_and_put(path: Path, owners: contextlib.ExitStack) -> Callable[[], None]:
    _closed(path)
    return lambda: _put(owners.enter_context(open_store(path)), 100)


def _open_put_and_close(path: Path, owners: contextlib.ExitStack) -> Callable[[], None]:
    del owners
    _closed(path)

    def change() -> None:
        with open_store(path) as store:
            _put(store, 100)

    return change


def _put_and_close(path: Path, owners: contextlib.ExitStack) -> Callable[[], None]:
    store = owners.enter_context(open_store(path))
    _put(store, 0)

    def change() -> None:
        _put(store, 100)
        store.close()

    return change


@pytest.mark.parametrize("prepare", [_open_and_put, _open_put_and_close, _put_and_close])
def test_an_owner_that_opens_or_closes_the_store_while_it_is_verified_is_no_damage(
    tmp_path: Path,
    owners: contextlib.ExitStack,
    prepare: Callable[[Path, contextlib.ExitStack], Callable[[], None]],
) -> None:
    changes = [prepare(tmp_path / "store", owners)]

    def change_once(done: int, total: int) -> None:
        del done, total
        while changes:
            changes.pop()()

    found = assess_store(tmp_path / "store", deep=True, progress=change_once)
    assert not changes
    errors = [one for one in found.findings if one.severity == "error"]
    assert (errors, found.lost, found.verdict) == ([], 0, Verdict.OK)
    # Beside an owner a look goes up to the log's end at its start; only one that found something wrong is repeated.
    assert found.found in (20, 40)


def test_damage_is_reported_also_when_the_store_is_opened_during_each_look(tmp_path: Path) -> None:
    path = _closed(tmp_path / "store")
    log = path / "commitlog" / f"{0:020d}"
    data = log.read_bytes()
    log.write_bytes(data.replace(b"m7", b"XX"))
    looks: list[int] = []

    def open_it(done: int, total: int) -> None:
        if done == total:
            looks.append(done)
            open_store(path).close()

    found = assess_store(path, deep=True, progress=open_it)
    assert (found.verdict, found.lost, len(looks)) == (Verdict.DAMAGED, 1, 3)


@pytest.mark.parametrize(("name", "verdict"), [(ABORT, Verdict.WARNING), (CHECKPOINT, Verdict.OK)])
def test_a_link_that_leads_nowhere_in_the_place_of_a_file_ends_no_look(
    tmp_path: Path, name: str, verdict: Verdict
) -> None:
    path = _closed(tmp_path / "store")
    (path / name).unlink(missing_ok=True)
    (path / name).symlink_to(tmp_path / "nothing")
    for deep in (False, True):
        assert assess_store(path, deep=deep).verdict is verdict
