"""A process that puts until a signal closes its store: ``python closed_by_signal.py return|exit sync|async PATH``.

It says ``ready``, then the body of each message that was acknowledged, and why the first other one was not.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType

from commitlog_store import FlushDiskType, Message
from commitlog_store.errors import StoreClosed
from tests.store.owner.owned_store import open_store


def main(how: str, flush: str, path: str) -> None:
    """Put until the handler of SIGTERM has closed the store."""
    settings = {"mapped_file_size_commit_log": 8 << 20, "flush_disk_type": FlushDiskType[f"{flush.upper()}_FLUSH"]}
    store = open_store(Path(path), **settings)
    taken: list[bytes] = []

    def close(number: int, frame: FrameType | None) -> None:
        store.close()
        if how == "exit":
            raise SystemExit

    signal.signal(signal.SIGTERM, close)
    print("ready", flush=True)
    try:
        while store.put_message(Message(queue_id=0, topic="orders", body=b"%d" % len(taken))).ok:
            taken.append(b"%d" % len(taken))
    except StoreClosed:
        print("closed", flush=True)
    finally:
        print(*(body.decode() for body in taken), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
