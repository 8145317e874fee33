"""A Python program that takes turns with the queries.

    python -m tests.connector.sink_failures.owner BASE NAME COUNT

It writes the batches of the input ``BASE/NAME`` to ``BASE/store``, queues 8 and 9: each as a transaction, for which it
opens and closes the store, with a message to another topic beside it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa

from commitlog_store import Message, MessageStore
from tests.connector.sink_failures.output import TOPIC, Input

OWNERS_QUEUES = (8, 9)


def main(base: str, name: str, count: int) -> None:
    source = Input(Path(base, name), name, OWNERS_QUEUES)
    for version in range(count):
        bodies, queues = zip(*source.rows(version), strict=True)
        rows = pa.table({"body": [body.encode() for body in bodies], "queueId": pa.array(queues, pa.int32())})
        with MessageStore.open(Path(base, "store"), lock_timeout_s=100) as store:
            with store.transaction("owner", version) as batch:
                batch.put_messages(rows, topic=TOPIC)
            store.put_message(Message(topic="beside", body=b"beside", queue_id=0)).raise_for_status()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
