"""Copies a store to another one on a standalone cluster, with the source and the sink of this package.

    python -m tests.connector.cluster.copying_driver BASE batch|stream

``batch``: two workers, one job. ``stream``: one worker; a second joins when the first batch is committed, and the first
is killed with its executor while the next batch runs. Prints ``fine`` when each message was copied once, in the order
of its queue.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from commitlog_store import MessageStore, MessageStoreConfig, StoreReader
from tests.connector.cluster.standalone import StandaloneCluster, standalone_cluster
from tests.connector.sink.sink_helpers import append, stream_to
from tests.connector.sink_failures.driver import QUICK_DRIVER
from tests.support.local_spark import start_spark
from tests.support.programs import python_path
from tests.support.stored_bodies import bodies
from tests.support.waiting import WAIT_LIMIT_S, wait_for

FIRST, SECOND = "127.0.0.2", "127.0.0.3"
QUEUES = 4
ROWS = 4_000
# Several partitions for each queue, so that every executor has some.
BYTES_OF_A_PARTITION = 16_384
COPIED = ("topic", "queueId", "body")


def main(directory: str, mode: str) -> None:
    base = Path(directory)
    scratch = base / "scratch"
    scratch.mkdir()
    hosts = [FIRST, SECOND] if mode == "batch" else [FIRST]
    with standalone_cluster(scratch, *hosts) as cluster:
        spark = session(scratch, cluster)
        if mode == "batch":
            wait_for(lambda: executors(spark) == 2)
            copy_at_once(spark, base)
        else:
            copy_while_workers_change(spark, cluster, base)
        spark.stop()
    print("fine")


def session(scratch: Path, cluster: StandaloneCluster) -> SparkSession:
    settings = {
        "spark__master": cluster.address,
        "spark__executor__cores": "2",
        "spark__executor__memory": "512m",
        "spark__executorEnv__PYTHONPATH": python_path(),
    }
    return start_spark(scratch, **(QUICK_DRIVER | settings))


def executors(spark: SparkSession) -> int:
    """The executors that Spark has at the moment; the driver has an entry of its own."""
    return int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1


def source_options() -> dict[str, str]:
    return {"subscribe": "orders", "startingOffsets": "earliest", "maxBytesPerPartition": str(BYTES_OF_A_PARTITION)}


def copy_at_once(spark: SparkSession, base: Path) -> None:
    """One job of all executors copies ``BASE/input``, which it makes, to ``BASE/output``."""
    write(base / "input", 0)
    frame = spark.read.format("commitlog").options(**source_options()).load(str(base / "input"))
    append(frame.select(*COPIED), base / "output", topic=None)
    check_copy(base)


def check_copy(base: Path) -> None:
    for queue_id in range(QUEUES):
        assert bodies(base / "output", queue_id=queue_id) == bodies(base / "input", queue_id=queue_id), queue_id


def copy_while_workers_change(spark: SparkSession, cluster: StandaloneCluster, base: Path) -> None:
    write(base / "input", 0)
    copy_all(spark, base)
    cluster.add_worker(SECOND)
    wait_for(lambda: executors(spark) == 2)
    write(base / "input", 1)
    stream = spark.readStream.format("commitlog").options(**source_options(), maxOffsetsPerTrigger="1000")
    writer = stream.load(str(base / "input")).select(*COPIED).writeStream.format("commitlog")
    query = writer.option("checkpointLocation", str(base / "checkpoint")).start(str(base / "output"))
    wait_for(lambda: copied(base) > ROWS)
    cluster.kill_worker(FIRST)
    wait_for(lambda: copied(base) == 2 * ROWS)
    query.stop()
    query.awaitTermination(WAIT_LIMIT_S)
    assert executors(spark) >= 1
    check_copy(base)


def copy_all(spark: SparkSession, base: Path) -> None:
    """Copy what the input has now, in several batches."""
    stream = spark.readStream.format("commitlog").options(**source_options(), maxOffsetsPerTrigger="1000")
    frame = stream.load(str(base / "input")).select(*COPIED)
    stream_to(frame, base / "output", base / "checkpoint", topic=None)


def copied(base: Path) -> int:
    with StoreReader.open(base / "output") as reader:
        return sum(queue.max_offset - queue.min_offset for queue in reader.queues("orders"))


def write(path: Path, turn: int) -> None:
    """Put the messages of a turn, spread over the queues."""
    rows = {
        "body": [f"{turn}-{number}-{'.' * 100}".encode() for number in range(ROWS)],
        "queueId": pa.array([number % QUEUES for number in range(ROWS)], pa.int32()),
    }
    config = MessageStoreConfig(mapped_file_size_commit_log=1 << 20, max_hash_slot_num=100, max_index_num=1_000)
    with MessageStore.open(path, config) as store:
        store.put_messages(pa.table(rows), topic="orders").raise_for_status()


if __name__ == "__main__":
    main(*sys.argv[1:])
