"""Check after every step of a test: ``commitlog verify`` finds nothing wrong."""

from __future__ import annotations

from pathlib import Path

from commitlog import verify_store

__all__ = ["assert_clean"]


def assert_clean(store: Path | str) -> None:
    """No error, whatever the notes: the queues of a store in use or after an interruption may lag behind its log."""
    errors = [finding for finding in verify_store(store) if finding.severity == "error"]
    assert not errors, "\n".join(f"{finding.check}: {finding.message}" for finding in errors)
