"""Archives in object storage: beside plain uploads and downloads with the same library, and beside the directory.

The object store is a server of S3's protocol on loopback, written in Python: what it takes itself is a large part of
all figures but those with a warm cache, and the same on both sides.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
from obstore.store import S3Store

from commitlog_store import DEFAULT_COLUMNS, MessageFilter, StoreReader
from commitlog_store.archive.archiver import archive_store
from commitlog_store.archive.layout import COMMIT_LOG
from commitlog_store.object_storage.object_store import PART_SIZE, PARTS_AT_ONCE
from tests.benchmarks.measure import in_turns, machine, scratch, show, to_noop
from tests.support.local_spark import start_spark
from tests.support.s3_server import BUCKET, KEYS, options_for, s3_server
from tests.support.store_builder import StoreBuilder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_FILE_SIZE, _CHUNK, _CHUNKS = 64 << 20, 5_000, 80
_URL = f"s3://{BUCKET}/orders"


def _store(path: Path) -> Path:
    """400,000 messages of 1 KiB in four queues; one in a hundred, all in a row, has the tag ``refunded``."""
    builder = StoreBuilder(path, log_file_size=_FILE_SIZE, queue_file_units=300_000)
    for chunk in range(_CHUNKS):
        tags = [
            "refunded" if chunk == _CHUNKS // 2 and row < _CHUNK * _CHUNKS // 100 else "paid" for row in range(_CHUNK)
        ]
        builder.append("orders", [0, 1, 2, 3], [b"x" * 1024] * _CHUNK, tags=tags)
    return path


def _uploads(store: Path, client: S3Store, options: dict[str, str]) -> None:
    files = sorted((store / "commitlog").iterdir())
    turns = iter(range(100))

    def plain() -> None:
        turn = next(turns)
        for file in files:
            with file.open("rb") as stream:
                obstore.put(
                    *(client, f"plain-{turn}/{file.name}", stream),
                    use_multipart=True,
                    chunk_size=PART_SIZE,
                    max_concurrency=PARTS_AT_ONCE,
                )

    def archived() -> None:
        archive_store(store, f"s3://{BUCKET}/archived-{next(turns)}", with_last=True, options=options)

    taken = in_turns(plain, archived, turns=2)
    size = sum(file.stat().st_size for file in files) / 1e6
    show("plain uploads of the log's files, in parts", f"{size / taken[0]:.0f} MB/s")
    show("archive", f"{size / taken[1]:.0f} MB/s", f"{taken[0] / taken[1]:.0%} of them (goal 80%)")


def _reads(spark: SparkSession, store: Path, work: Path, client: S3Store, endpoint: str) -> None:
    archive_store(store, _URL, with_last=True, options=options_for(endpoint))
    names = [
        str(one["path"])
        for batch in obstore.list(client, "orders")
        for one in batch
        if f"/{COMMIT_LOG}/" in str(one["path"])
    ]
    assert names, [one["path"] for batch in obstore.list(client, "orders") for one in batch]
    size = sum(int(obstore.head(client, name)["size"]) for name in names) / 1e6

    def download() -> None:
        with ThreadPoolExecutor(4) as threads:
            for data in threads.map(lambda name: obstore.get(client, name).bytes(), names):
                assert len(data)

    def frame(cache: Path) -> DataFrame:
        reader = spark.read.format("commitlog").options(subscribe="orders", endpoint=endpoint, cacheDir=str(cache))
        return reader.load(_URL)

    caches = (work / f"cache-{number}" for number in range(100))

    def cold() -> None:
        cache = next(caches)
        to_noop(frame(cache))
        shutil.rmtree(cache)

    taken = in_turns(download, cold, turns=2)
    show("download of the log's objects", f"{size / taken[0]:.0f} MB/s")
    show(
        "Spark, all rows, nothing cached", f"{size / taken[1]:.0f} MB/s", f"{taken[0] / taken[1]:.0%} of it (goal 80%)"
    )
    warm = next(caches)
    directory = spark.read.format("commitlog").options(path=str(store), subscribe="orders").load()
    rows = directory.count()
    taken = in_turns(partial(to_noop, directory), partial(to_noop, frame(warm)))
    show("Spark, all rows of the directory", f"{rows / taken[0] / 1e3:.0f} k rows/s")
    beside = f"{taken[0] / taken[1]:.0%} of the directory (goal 90%)"
    show("Spark, all rows, everything cached", f"{rows / taken[1] / 1e3:.0f} k rows/s", beside)
    _tags(store, options_for(endpoint), size * 1e6, rows)


def _tags(store: Path, options: dict[str, str], size: float, rows: int) -> None:
    wanted = MessageFilter.parse(tags="refunded")
    with StoreReader.open(_URL, storage_options=options) as reader:
        opened = reader.stats()
        ranges = [("orders", queue.queue_id, queue.min_offset, queue.max_offset) for queue in reader.queues("orders")]
        found = sum(len(one) for one in reader.read_side_by_side(ranges, columns=DEFAULT_COLUMNS, filter=wanted))
        asked = reader.stats()
    assert found * 100 == rows
    show("requests of an opening", f"{opened.requests}", "goal at most 3")
    beside = f"{asked.requests} requests, {asked.bytes_fetched / 1e6:.1f} MB (goal at most 5 %)"
    show("fetched for tags of 1 % in a row", f"{100 * asked.bytes_fetched / size:.1f} %", beside)


def main() -> None:
    """Run the benchmark and print its figures."""
    print(machine())
    with tempfile.TemporaryDirectory(dir=scratch()) as name, s3_server() as endpoint:
        work = Path(name)
        store = _store(work / "store")
        client = S3Store(
            BUCKET,
            endpoint=endpoint,
            access_key_id=KEYS["access_key_id"],
            secret_access_key=KEYS["secret_access_key"],
            region=KEYS["region"],
            client_options={"allow_http": True},
        )
        _uploads(store, client, options_for(endpoint))
        # The workers' credentials.
        os.environ.update({f"AWS_{key.upper()}": value for key, value in KEYS.items()})
        spark = start_spark(work, spark__driver__memory="2g")
        spark.sparkContext.setLogLevel("ERROR")
        _reads(spark, store, work, client, endpoint)
        spark.stop()
