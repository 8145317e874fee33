"""What tests of a served store's verification share: a damaged store, and processes that are stopped."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlog_store import MessageStore
from commitlog_store.serve.verification import Verification


def make_store_with_a_damaged_body(path: Path) -> Path:
    """A store with a byte changed in the body of its second message; ``path``."""
    with MessageStore.open(path) as store:
        store.put("orders", b"first", queue_id=0)
        second = store.put("orders", b"second", queue_id=0).physical_offset
    with (path / "commitlog" / f"{0:020d}").open("r+b") as log:
        log.seek(second)
        at = second + log.read(200).index(b"second")
        log.seek(at)
        log.write(b"S")
    return path


@contextlib.contextmanager
def stopped(process: int) -> Iterator[int]:
    """The process does not go on within the context."""
    os.kill(process, signal.SIGSTOP)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)


def stop_when_begun(patch: pytest.MonkeyPatch) -> None:
    """Processes of verifications that this process serves do not go on: none ends before a test has cancelled it."""
    start = Verification.start

    def begin(verification: Verification, *given: object, **named: object) -> bool:
        is_begun = start(verification, *given, **named)  # type: ignore[arg-type]
        if is_begun and (process := verification.state.process) is not None:
            os.kill(process, signal.SIGSTOP)
        return is_begun

    patch.setattr(Verification, "start", begin)
