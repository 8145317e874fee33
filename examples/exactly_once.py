"""Kill a pipeline again and again, and see each row in its output once, in order.

A streaming query copies one store into another. It runs in a process of its own, which this program kills with SIGKILL
at random moments and starts again from its checkpoint. All the while a reader looks at the output, and must never see
a part of a batch. At the end every queue of the output is compared with that of the input.

    python examples/exactly_once.py [DIRECTORY] [--kills 4] [--rows 8000]

Interrupt it (Ctrl-C), kill it, pull the plug: run again on the same directory, it continues.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import pyspark_commitlog  # noqa: F401  # before the session: Spark's workers then use this Python
from commitlog_store import MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.errors import StoreOpenError, TopicNotFound

ROWS_PER_BATCH = 400
LONGEST_RUN_SECONDS = 1.5  # of a run that is to be killed, from its first batch on
# Files of 1 MiB, so that batches run over their ends, too; RocketMQ's are of 1 GiB.
CONFIG = MessageStoreConfig(mapped_file_size_commit_log=1 << 20, message_index_enable=False)
SMALL_FILES = {"mappedFileSizeCommitLog": "1m", "messageIndexEnable": "false"}


def make_input(path: Path, rows: int) -> None:
    """Rows numbered from 0 on, over four queues. In a transaction, so they are put once, however often this runs."""
    with MessageStore.open(path, CONFIG) as store, store.transaction("make input", version=0) as transaction:
        transaction.put_messages(pa.table({"body": [f"row {number}" for number in range(rows)]}), topic="rows")


def copy(directory: Path) -> None:
    """The pipeline: from store to store, to the input's end. It contains nothing that prepares for being killed."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    spark = (
        SparkSession.builder.appName("exactly once")
        .master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        # A JVM that lives for seconds spends them compiling unless it is configured not to.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
    rows = (
        spark.readStream.format("commitlog")
        .schema("topic string, queueId int, body binary")
        .option("subscribe", "rows")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", ROWS_PER_BATCH)
        .load(str(directory / "input"))
    )
    writer = rows.writeStream.format("commitlog").options(**SMALL_FILES)
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    writer.trigger(availableNow=True).start(str(directory / "output")).awaitTermination()


def end_with_parent() -> None:
    """Never run two pipelines on one checkpoint: when the program that started this one ends, its stdin closes."""
    sys.stdin.read()
    os._exit(1)


class Pipeline:
    """The copying process and those that it starts, in a session of their own: Spark's JVM, and Python workers."""

    def __init__(self, directory: Path) -> None:
        program = [sys.executable, __file__, str(directory), "--only-copy"]
        with (directory / "spark.log").open("ab") as log:
            self._process = subprocess.Popen(
                program, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )

    def ended(self) -> bool:
        """Whether the input was copied to its end."""
        if self._process.poll() not in (None, 0):
            raise RuntimeError("The pipeline failed; its directory has a spark.log that says why.")
        return self._process.poll() == 0

    def kill(self) -> None:
        """Kill all of them at any moment, also the worker that commits a batch."""
        if self._process.poll() is None:
            # The workers have a process group of their own. Without /proc, they end when the JVM is gone.
            for pid in (int(path.name) for path in Path("/proc").glob("[0-9]*")):
                with suppress(ProcessLookupError):
                    if os.getsid(pid) == self._process.pid:
                        os.kill(pid, signal.SIGKILL)
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Output:
    """The output as a reader beside the pipeline sees it."""

    def __init__(self, path: Path, rows: int) -> None:
        self._path = path
        self._all = rows
        self._reader: StoreReader | None = None
        self.rows = self.looks = self.partial = 0

    def look(self) -> int:
        """The number of rows. Each batch but the last has the same number, so a part of a batch would show."""
        try:
            self._reader = self._reader or StoreReader.open(self._path)
            rows = sum(queue.max_offset for queue in self._reader.queues("rows"))
        except (StoreOpenError, TopicNotFound):
            return 0  # no batch yet
        whole = rows % ROWS_PER_BATCH == 0 or rows == self._all
        if not whole or rows < self.rows:
            print(f"  {rows} rows are to be seen, after {self.rows}: a part of a batch!")
            self.partial += 1
        self.looks += 1
        self.rows = rows
        return rows


def run(directory: Path, output: Output, seconds: float | None) -> bool:
    """Start the pipeline; kill it that long after its first batch. Whether it came to its end before that."""
    before, until = output.look(), None
    pipeline = Pipeline(directory)
    try:
        while not pipeline.ended() and (until is None or time.monotonic() < until):
            if output.look() > before and until is None and seconds is not None:
                until = time.monotonic() + seconds
            time.sleep(0.005)
        return pipeline.ended()
    finally:
        pipeline.kill()


def bodies_by_queue(path: Path) -> dict[int, list[bytes]]:
    """The bodies of every queue in order."""
    with StoreReader.open(path) as reader:
        return {
            queue.queue_id: [
                body.as_py()
                for batch in reader.read("rows", queue.queue_id, 0, columns=["body"])
                for body in batch.column("body")
            ]
            for queue in reader.queues("rows")
        }


def main(directory: Path, kills: int, rows: int) -> int:
    """Kill and start again, then run to the end; 0 when the output is the input and no part of a batch was seen."""
    make_input(directory / "input", rows)
    expected = bodies_by_queue(directory / "input")
    rows = sum(map(len, expected.values()))
    output = Output(directory / "output", rows)
    print(f"{rows} rows in {len(expected)} queues of {directory / 'input'}; {output.look()} of them are copied.")
    try:
        for number in range(1, kills + 1):
            if run(directory, output, random.uniform(0, LONGEST_RUN_SECONDS)):
                print("The pipeline came to its end before it was killed.")
                break
            print(f"Kill {number}: the output has {output.look()} rows.")
        run(directory, output, None)
    except KeyboardInterrupt:
        print(f"Interrupted; the pipeline was killed. To continue: python {sys.argv[0]} {directory}")
        return 130

    found = bodies_by_queue(directory / "output")
    for queue_id, bodies in expected.items():
        same = found.get(queue_id) == bodies
        print(f"  queue {queue_id}: {len(found.get(queue_id, []))} rows, {'as in the input' if same else 'differs'}")
    print(f"A reader looked {output.looks} times, and saw a part of a batch {output.partial} times.")
    if found != expected or output.partial:
        return 1
    print("Each row is in the output once, in order.")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Kill a pipeline again and again; its output has each row once.")
    parser.add_argument("directory", nargs="?", type=Path, help="for the stores and the checkpoint")
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--rows", type=int, default=8_000, help="of a new input")
    parser.add_argument("--only-copy", action="store_true", help="be the pipeline: what this program starts and kills")
    given = parser.parse_args()
    if given.only_copy:
        copy(given.directory)
        raise SystemExit(0)
    raise SystemExit(main(given.directory or Path(tempfile.mkdtemp(prefix="commitlog-")), given.kills, given.rows))
