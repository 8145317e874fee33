"""A process that salvages a store again and again, and is killed each time, until a salvage ends.

``python -m tests.store.salvage.killed_salvages STORE TARGET STEP`` kills the first salvage (SIGKILL) at its first call
of the operating system that changes the target, the second STEP calls later, and so on. What each leaves is looked at,
and removed. It prints for each whether that was ``no store``, or the number of messages in a store that opens. Salvages
are forks, since importing takes longer than a salvage.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from commitlog_store import MessageStore, StoreReader, salvage_store
from commitlog_store.errors import NotAStore, StoreNotFound
from tests.store.export.killed_exports import die_at
from tests.store.salvage.damaged_stores import SMALL_INDEX, messages


def main(store: str, target: str, step: str) -> None:
    killed_at, ended = 1, False
    while not ended:
        shutil.rmtree(target, ignore_errors=True)
        child = os.fork()
        if not child:
            die_at(killed_at)
            salvage_store(store, target, config=SMALL_INDEX)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        ended = status == 0
        assert ended or os.WIFSIGNALED(status), status
        killed_at += int(step)
        print(left_in(Path(target)))


def left_in(target: Path) -> str:
    try:
        StoreReader.open(target).close()
    except (NotAStore, StoreNotFound):
        return "no store"
    MessageStore.open(target, SMALL_INDEX).close()
    return str(sum(messages(target).values()))


if __name__ == "__main__":
    main(*sys.argv[1:])
