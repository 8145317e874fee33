"""A master that writes much: ``python -m tests.crash_kill.replication_filler``, forks as in ``forked_programs``.

Words: MiB to write, store. It writes a quarter of that, and says the address on which it serves slaves; when the store
has a file ``go``, it writes the rest, and says ``filled`` and where the log ends. Then it waits to be killed.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pyarrow as pa

from commitlog_store import MessageStore, MessageStoreConfig
from tests.support.forked_programs import serve
from tests.support.waiting import wait_for

FILE_SIZE = 16 << 20


def fill(mib: str, path: str) -> None:
    config = MessageStoreConfig(mapped_file_size_commit_log=FILE_SIZE, ha_listen_address="127.0.0.1:0")
    table = pa.table({"body": [b"x" * 1024] * 1024})
    with MessageStore.open(path, config) as store:
        for _ in range(int(mib) // 4):
            store.put_messages(table, topic="much").raise_for_status()
        print("open", store.ha_address, store.physical_bounds()[1], flush=True)
        wait_for((Path(path) / "go").exists)
        for _ in range(int(mib) - int(mib) // 4):
            store.put_messages(table, topic="much").raise_for_status()
        print("filled", store.physical_bounds()[1], flush=True)
        signal.pause()


if __name__ == "__main__":
    serve(fill)
