"""Fixtures of the tests about the owner."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.store.owner.owned_store import Gate


@pytest.fixture
def sync_gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Holds or fails the syncs of CommitLog files."""
    with Gate.within(monkeypatch, "sync") as gate:
        yield gate


@pytest.fixture
def write_gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Holds or fails the writes to CommitLog files."""
    with Gate.within(monkeypatch, "write_at", "write_mapped") as gate:
        yield gate
