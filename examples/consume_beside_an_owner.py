"""Consume in another process than the store's owner, with positions of your own: beside a RocketMQ broker, say.

Positions of consumer groups belong to the owner of a store. A program beside it reads with ``StoreReader``, and keeps
its positions where it keeps its results; here that is a file. This example kills its consumer once, with ``kill -9``,
and starts it again.

    python examples/consume_beside_an_owner.py [DIRECTORY]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from commitlog_store import MessageStore, MessageStoreConfig, StoreReader

ORDERS = 300
QUEUES = 2
# Files of 16 MiB suffice for an example; RocketMQ's are of 1 GiB.
CONFIG = MessageStoreConfig(mapped_file_size_commit_log=16 << 20, default_topic_queue_nums=QUEUES)


class Positions:
    """The next queue offset of each queue, in a file that is replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        found = json.loads(path.read_text()) if path.exists() else {}
        self.next = {("orders", queue_id): found.get(str(queue_id), 0) for queue_id in range(QUEUES)}

    def save(self) -> None:
        unfinished = self._path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps({queue_id: offset for (_, queue_id), offset in self.next.items()}))
        os.replace(unfinished, self._path)


def consume(directory: Path) -> None:
    """The consumer's process: print every order, and wait for more until it is killed."""
    positions = Positions(directory / "positions.json")
    with StoreReader.open(directory / "store") as reader:
        while reader.wait_for_any(positions.next, timeout_s=60):
            for (topic, queue_id), offset in positions.next.items():
                result = reader.get_message(topic, queue_id, offset)
                for message in result.messages:
                    print(message.body.decode(), flush=True)
                # Also where no message was found: the position may have expired, and this is where to continue.
                positions.next[topic, queue_id] = result.next_begin_offset
            positions.save()  # after the work: a kill in between repeats these messages and loses none


def produce(store: MessageStore) -> None:
    for number in range(ORDERS):
        store.put("orders", b"order-%d" % number)
        time.sleep(0.001)


def orders_of(directory: Path, enough: int) -> list[str]:
    """Run a consumer until it has printed so many lines, kill it, and return all that it printed."""
    command = [sys.executable, __file__, "--consume", str(directory)]
    found = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            found.append(line.strip())
            if len(found) >= enough or found[-1] == f"order-{ORDERS - 1}":
                process.kill()
    if process.returncode >= 0:
        raise SystemExit(f"The consumer was not killed, it ended with {process.returncode}.")
    return found


def main(directory: Path) -> int:
    """0 when the consumers got every order that was put."""
    with MessageStore.open(directory / "store", CONFIG) as store:
        producer = threading.Thread(target=produce, args=(store,))
        producer.start()
        first = orders_of(directory, enough=100)
        print(f"Killed a consumer after {len(set(first))} orders.")
        rest: list[str] = []
        while len({*first, *rest}) < ORDERS:
            rest += orders_of(directory, enough=ORDERS)
        producer.join()
    repeated = len(first) + len(rest) - ORDERS
    print(f"All {ORDERS} orders were consumed; because of kills, {repeated} of them again.")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--consume"]:
        consume(Path(sys.argv[2]))
        raise SystemExit
    raise SystemExit(main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="commitlog-"))))
