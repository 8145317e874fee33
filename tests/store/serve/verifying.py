"""What tests of a served store's verification share: a damaged store, and a process that is stopped."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from commitlog_store import MessageStore


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
