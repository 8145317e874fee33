"""A process that exports a store again and again and is killed each time, until an export ends.

``python -m tests.store.export.killed_exports STORE TARGET [skip]`` kills the first export (SIGKILL) at its first call
of the operating system that changes the target, the second at its second, and so on; each resumes the one before, and
with ``skip`` all skip damage. It prints the number of exports that were killed. Exports are forks, since importing
takes longer than an export.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from commitlog_store.export.export_store import export_store
from commitlog_store.files import disk

# Small files, so that an export makes several of them.
FILE_SIZE = 60_000
_CALLS = ("create_file", "make_directory", "rename", "sync", "sync_directory", "truncate", "unlink", "write_at")


def die_at(number: int) -> None:
    left = number

    def killing(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return called

    for name in _CALLS:
        setattr(disk, name, killing(getattr(disk, name)))


def main(store: str, target: str, skip: str = "") -> None:
    killed = 0
    while True:
        child = os.fork()
        if not child:
            die_at(killed + 1)
            export_store(store, target, resume=True, on_damage="skip" if skip else "raise", file_size=FILE_SIZE)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status == 0:
            break
        assert os.WIFSIGNALED(status), status
        killed += 1
    print(killed)


if __name__ == "__main__":
    main(*sys.argv[1:])
