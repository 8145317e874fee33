"""What tests call after every step: does ``commitlog verify`` find anything wrong?"""

from __future__ import annotations

from pathlib import Path

from commitlog import verify_store

__all__ = ["assert_clean"]


def assert_clean(store: Path | str) -> None:
    """No error, whatever the notes: a store that is in use, or was interrupted, may have its queues behind its log."""
    errors = [finding for finding in verify_store(store) if finding.severity == "error"]
    assert not errors, "\n".join(f"{finding.check}: {finding.message}" for finding in errors)
