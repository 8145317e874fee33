"""A reader that comes while the first owner makes the store finds an empty store, or none: never something else."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from commitlog_store import StoreReader
from commitlog_store.errors import NotAStore, StoreNotFound, TopicNotFound
from commitlog_store.files import disk
from tests.store.owner.owned_store import open_store, put_ok
from tests.support.stored_bodies import bodies

CHANGES = ("create_file", "write_at", "sync", "rename", "make_directory", "sync_directory", "allocate")


def look(store: Path) -> str:
    try:
        with StoreReader.open(store) as reader:
            assert reader.topics() == []
            assert reader.batches() == []
            assert reader.physical_bounds() == (0, 0)
            with pytest.raises(TopicNotFound):
                reader.queues("orders")
            return "empty"
    except StoreNotFound:
        return "none"
    except NotAStore:
        return "not yet"


def test_every_step_of_making_a_store_leaves_one_that_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "deep" / "store"
    seen: list[str] = []

    def watched(name: str) -> Any:
        real = getattr(disk, name)

        def call(*arguments: Any) -> Any:
            result = real(*arguments)
            seen.append(look(store))
            return result

        return call

    with monkeypatch.context() as patch:
        patch.setattr(time, "sleep", lambda _: None)
        for name in CHANGES:
            patch.setattr(disk, name, watched(name))
        opened = open_store(store)
    with opened:
        put_ok(opened)
    # The directory around it, made and synced; its own, without the lock for the moment that it takes to make that.
    assert seen[:4] == ["none", "none", "not yet", "empty"]
    assert set(seen[3:]) == {"empty"}
    assert bodies(store) == [b"body"]


def test_a_directory_that_is_empty_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first owner makes the lock next."""
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        if seconds:  # the reader's own look, later, may let other threads run
            pauses.append(seconds)
        if len(pauses) == 3:
            (tmp_path / "lock").touch()

    monkeypatch.setattr(time, "sleep", sleep)
    assert look(tmp_path) == "empty"
    assert len(pauses) == 3


def test_a_directory_that_stays_empty_is_not_a_store(tmp_path: Path) -> None:
    """It may be where a disk is to be mounted: no messages and no store are not the same."""
    with pytest.raises(NotAStore, match="holds neither 'commitlog'"):
        StoreReader.open(tmp_path)
