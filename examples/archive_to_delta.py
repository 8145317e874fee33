"""Load an archive into a Delta lake table; a second run adds only what the archive has got since. Needs no Spark.

Each commit to the table has messages of one queue, and the offset of the next one as the version of a transaction of
Delta's: rows and position are there together or not at all, so a run that is killed anywhere is simply repeated. By
default the archive is made of a store of the tests that RocketMQ 5.3.3 wrote; give one, such as s3://bucket/orders, to
load your own, with keys in the environment.

    pip install 'pyspark-commitlog[archive]' deltalake
    python examples/archive_to_delta.py [TABLE] [--archive URL] [--topic TOPIC]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from commitlog_store import StoreReader, archive_store

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden" / "rocketmq-5.3.3" / "store"
COLUMNS = ["queueId", "queueOffset", "storeTimestamp", "tags", "keys", "body"]
# A commit makes a file: with messages of 1 KiB, one of about 100 MB.
MOST_ROWS = 100_000


def position(table: str, application: str) -> int:
    """The queue offset that follows the rows in the table; 0 where it has none of that queue."""
    if not DeltaTable.is_deltatable(table):
        return 0
    return DeltaTable(table).transaction_version(application) or 0


def load(archive: str, topic: str, table: str) -> int:
    """Bring the table up to the archive's newest manifest; the number of rows that were added."""
    added = 0
    with StoreReader.open(archive) as reader:
        for queue in reader.queues(topic):
            application = f"{archive} {topic} {queue.queue_id}"
            start = max(position(table, application), queue.min_offset)
            while start < queue.max_offset:
                stop = min(start + MOST_ROWS, queue.max_offset)
                rows = pa.Table.from_batches(reader.read(topic, queue.queue_id, start, stop, columns=COLUMNS))
                write_deltalake(
                    table,
                    rows,
                    mode="append",
                    commit_properties=CommitProperties(app_transactions=[Transaction(application, stop)]),
                )
                added, start = added + rows.num_rows, stop
    return added


def main(table: str, archive: str, topic: str) -> int:
    """Load twice; 0 when the second run added nothing and each message is in the table exactly once."""
    first, second = load(archive, topic, table), load(archive, topic, table)
    files = [pq.read_table(uri, columns=["queueId", "queueOffset"]) for uri in DeltaTable(table).file_uris()]
    rows = pa.concat_tables(files)
    places = set(zip(rows["queueId"].to_pylist(), rows["queueOffset"].to_pylist(), strict=True))
    print(f"Run 1: {first} rows added. Run 2: {second} rows added.")
    print(f"{rows.num_rows} rows at {len(places)} different positions, in {table}.")
    return 0 if second == 0 and rows.num_rows == len(places) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Load an archive into a Delta lake table.")
    parser.add_argument("table", nargs="?", help="the table's directory or URL")
    parser.add_argument("--archive", help="the archive to read")
    parser.add_argument("--topic", default="orders")
    given = parser.parse_args()
    made = tempfile.mkdtemp(prefix="commitlog-")
    if given.archive is None:
        archive_store(GOLDEN, f"file://{made}/archive", with_last=True)
        given.archive = f"archive+file://{made}/archive"
    raise SystemExit(main(given.table or f"{made}/table", given.archive, given.topic))
