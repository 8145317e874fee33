"""The follower that is killed: ``python -m tests.crash_kill.replication_follower``, forks as in ``forked_programs``.

Words: HOST:PORT of the master; the mirror's directory; after how many file operations to die (0: follow until killed;
with a ``/`` after the number, within that one: half of what it writes is written); and the size of a log file, if it is
not a small one. It says ``open`` and where the mirror ends, then each further end.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from commitlog_store import MessageStoreConfig
from commitlog_store.files import disk
from commitlog_store.follower.log_follower import LogFollower
from tests.crash_kill.replication_master import SMALL
from tests.support.forked_programs import serve

# Everything that changes a file or a directory.
CHANGES = (
    *("create_file", "create_unnamed_file", "give_name", "make_directory", "allocate", "write_at", "write_mapped"),
    *("store_mapped", "sync", "sync_directory", "truncate", "punch_hole", "rename", "unlink", "remove_directory"),
)
_WRITES = ("write_at", "write_mapped")


def die_after(operations: int, *, within: bool) -> None:
    """End this process with SIGKILL after, or within, so many changes of its files."""
    calls, lock = itertools.count(1), threading.RLock()

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            with lock:
                last = next(calls) == operations
                if last and within and name in _WRITES:
                    target, data, offset = arguments
                    data = memoryview(data).cast("B")
                    arguments = (target, data[: len(data) // 2], offset)
                result = real(*arguments, **named)
                if last:
                    os.kill(os.getpid(), signal.SIGKILL)
                return result

        return call

    for name in CHANGES:
        setattr(disk, name, counted(name, getattr(disk, name)))


def follow_until_killed(master: str, path: str, dies: str, log_file_size: str = "") -> None:
    if dies != "0":
        die_after(int(dies.rstrip("/")), within=dies.endswith("/"))
    settings = {"mapped_file_size_commit_log": int(log_file_size)} if log_file_size else SMALL
    with LogFollower(master, path, ack="synced", config=MessageStoreConfig.from_mapping(settings)) as follower:
        end = follower.status.end
        print("open", end, flush=True)
        while True:
            # Raises what stopped it.
            if follower.wait_for(end + 1, timeout_s=1):
                end = follower.status.end
                print(end, flush=True)


if __name__ == "__main__":
    serve(follow_until_killed)
