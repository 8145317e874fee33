"""Check after every step of a test: ``commitlog verify`` finds nothing wrong."""

from __future__ import annotations

from pathlib import Path

from commitlog_store import verify_store


def assert_clean(store: Path | str, *, killed: bool = False) -> None:
    """No error, whatever the notes: the queues of a store in use or after an interruption may lag behind its log.

    A store that was ``killed`` within a batch may have to cut records off that were never acknowledged.
    """
    allowed = {"opening.cuts"} if killed else set()
    errors = [one for one in verify_store(store) if one.severity == "error" and one.check not in allowed]
    assert not errors, "\n".join(f"{finding.check}: {finding.message}" for finding in errors)
