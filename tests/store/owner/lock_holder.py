"""Another process that owns a store, or holds the lock as RocketMQ does: ``python lock_holder.py store|lock PATH``.

It says ``ready`` and ends when its standard input does.
"""

from __future__ import annotations

import fcntl
import sys
from pathlib import Path

from tests.store.owner.owned_store import open_store, put_ok


def main(kind: str, path: str) -> None:
    """Hold the store until stdin ends."""
    if kind == "store":
        with open_store(Path(path)) as store:
            put_ok(store, body=b"theirs")
            store.dispatch()
            print("ready", flush=True)
            sys.stdin.read()
    else:
        with open(path, "ab") as stream:
            fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
            print("ready", flush=True)
            sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
