"""Whatever an owner removes or adds between two calls of a look at its store, the look reports no damage."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlog_store.files.mapped_file import MappedFile
from commitlog_store.verify.assessment import Verdict, assess_store
from tests.support.between_calls import change_before
from tests.support.growing_store import GrowingStore
from tests.support.long_runs import LONG_RUN_S, Progress

KINDS = ("clean", "commit and clean", "clean the queues", "delete a topic")


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[GrowingStore]:
    with GrowingStore.open(tmp_path / "store") as growing:
        yield growing


def _check(growing: GrowingStore, kind: str, call: int, *, deep: bool) -> int:
    """The number of calls that the look made."""
    growing.grow()
    change = growing.prepare(kind)
    with change_before({call: change}) as calls:
        found = assess_store(growing.path, deep=deep)
    if not 1 <= call <= calls.made:
        change()
    errors = [one for one in found.findings if one.severity == "error"]
    assert (errors, found.lost, found.verdict) == ([], 0, Verdict.OK), f"{kind} before call {call} of {calls.made}"
    return calls.made


@pytest.mark.parametrize("deep", [False, True], ids=["quick", "deep"])
def test_what_an_owner_removes_during_a_look_is_no_damage(growing: GrowingStore, deep: bool) -> None:
    growing.check_some(lambda kind, call: _check(growing, kind, call, deep=deep), KINDS)


def test_an_index_file_that_retention_removes_while_it_is_opened_is_no_damage(
    growing: GrowingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    growing.grow()
    real = MappedFile.open
    removed: list[str] = []

    def open_and_remove(path: str, *given: object) -> MappedFile:
        found = real(path, *given)  # type: ignore[arg-type]
        if os.path.dirname(path).endswith("/index") and not removed:
            os.unlink(path)
            removed.append(path)
        return found

    monkeypatch.setattr(MappedFile, "open", open_and_remove)
    found = assess_store(growing.path, deep=True)
    assert removed
    assert [one for one in found.findings if one.path in removed] == []


@pytest.mark.stress
@pytest.mark.timeout(LONG_RUN_S)
@pytest.mark.parametrize("deep", [False, True], ids=["quick", "deep"])
def test_what_an_owner_removes_before_any_call_of_a_look_is_no_damage(
    growing: GrowingStore, deep: bool, progress: Progress
) -> None:
    growing.check_all(lambda kind, call: _check(growing, kind, call, deep=deep), progress, KINDS)
