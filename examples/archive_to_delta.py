"""Load an archive into a Delta lake table; a second run adds only what the archive has got since. Needs no Spark.

The queues are read together, in the order of the log, so that each piece of it is fetched once. Each commit to the
table has messages of all queues, and for each queue the offset of the next one as the version of a transaction of
Delta's: rows and positions are there together or not at all, so a run that is killed anywhere is simply repeated. By
default the archive is made of a store of the tests that RocketMQ 5.3.3 wrote; give one, such as s3://bucket/orders, to
load your own, with keys in the environment.

    pip install 'pyspark-commitlog[archive]' deltalake
    python examples/archive_to_delta.py [TABLE] [--archive URL] [--topic TOPIC]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from commitlog_store import StoreReader, archive_store

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden" / "rocketmq-5.3.3" / "store"
COLUMNS = ["queueId", "queueOffset", "storeTimestamp", "tags", "keys", "body"]
# A commit makes a file: with messages of 1 KiB, one of 100 MB or a little more.
LEAST_ROWS = 100_000
# A topic, a queue, and the queue offsets from the first one on and up to the second one.
Range: TypeAlias = tuple[str, int, int, int]


class Table:
    """A Delta table, with the position of each queue of a topic: the offset that follows the rows that it has."""

    def __init__(self, uri: str, source: str) -> None:
        """``source`` names the archive and the topic: those of other ones have positions of their own."""
        self.uri = uri
        self.source = source
        self.known = DeltaTable(uri) if DeltaTable.is_deltatable(uri) else None

    def position(self, queue_id: int) -> int:
        """The position of a queue; 0 for one of which the table has no row."""
        return 0 if self.known is None else self.known.transaction_version(f"{self.source} {queue_id}") or 0

    def add(self, batches: list[pa.RecordBatch], ranges: list[Range], positions: list[int]) -> None:
        """Add rows in one commit with the positions that follow them, one for each range."""
        moved = [
            Transaction(f"{self.source} {queue_id}", at)
            for (_, queue_id, *_), at in zip(ranges, positions, strict=True)
        ]
        properties = CommitProperties(app_transactions=moved)
        write_deltalake(self.uri, pa.Table.from_batches(batches), mode="append", commit_properties=properties)


def read(reader: StoreReader, ranges: list[Range]) -> Iterator[tuple[pa.RecordBatch, list[int]]]:
    """Batches of the ranges in the order of the log, each with the positions that follow it."""
    together = reader.read_side_by_side(ranges, columns=COLUMNS)
    for batch in together:
        yield batch, together.positions
    # Of an archive without damage nothing is left. Where something is, a read of its queue says what is wrong.
    positions = together.positions
    for number, (topic, queue_id, _, stop) in enumerate(ranges):
        alone = reader.read(topic, queue_id, positions[number], stop, columns=COLUMNS)
        for batch in alone:
            positions[number] = alone.position
            yield batch, list(positions)


def load(archive: str, topic: str, uri: str) -> int:
    """Bring the table up to the archive's newest manifest; the number of rows that were added."""
    table = Table(uri, f"{archive} {topic}")
    added = rows = 0
    waiting: list[pa.RecordBatch] = []
    positions: list[int] = []
    with StoreReader.open(archive) as reader:
        ranges = [
            (topic, one.queue_id, max(table.position(one.queue_id), one.min_offset), one.max_offset)
            for one in reader.queues(topic)
        ]
        for batch, positions in read(reader, ranges):
            waiting.append(batch)
            rows += batch.num_rows
            if rows >= LEAST_ROWS:
                table.add(waiting, ranges, positions)
                added, rows, waiting = added + rows, 0, []
    if waiting:
        table.add(waiting, ranges, positions)
    return added + rows


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
