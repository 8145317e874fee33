"""Archives in object storage: beside plain uploads and downloads with the same library, and beside the directory.

The object store is a server of S3's protocol on loopback, written in Python: what it takes itself is most of all
figures but those with a warm cache. Both sides ask it alike: parts of 8 MiB, four at a time; ranges of 8 MiB, twelve at
a time (for each range moto copies the whole object, so downloading whole objects is five times as fast). Processor
seconds of this process alone are shown beside, and the same for an archive in a directory, which has no server.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
import pyarrow.fs
from obstore.store import LocalStore, S3Store

from commitlog_store import DEFAULT_COLUMNS, MessageFilter, StoreReader
from commitlog_store.archive.archiver import archive_store
from commitlog_store.archive.layout import COMMIT_LOG
from commitlog_store.object_storage.clients import PART_SIZE, PARTS_AT_ONCE
from commitlog_store.object_storage.pages import PageLimits
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


def _processor_s(work: Callable[[], object], turns: int = 3) -> float:
    """The least processor seconds of this process."""
    taken = []
    for _ in range(turns):
        begun = time.process_time()
        work()
        taken.append(time.process_time() - begun)
    return min(taken)


def _put(client: S3Store | LocalStore, prefix: str, files: list[Path]) -> None:
    for file in files:
        obstore.put(
            *(client, f"{prefix}/{file.name}", file),
            use_multipart=True,
            chunk_size=PART_SIZE,
            max_concurrency=PARTS_AT_ONCE,
        )


def _uploads(store: Path, work: Path, client: S3Store, options: dict[str, str]) -> None:
    files = sorted((store / "commitlog").iterdir())
    names = iter(range(1000))
    size = sum(file.stat().st_size for file in files) / 1e9

    def archived(url: str) -> None:
        archive_store(store, f"{url}/archived-{next(names)}", with_last=True, options=options)

    taken = in_turns(lambda: _put(client, f"plain-{next(names)}", files), lambda: archived(f"s3://{BUCKET}"), turns=2)
    show("plain uploads of the log's files, in parts", f"{1e3 * size / taken[0]:.0f} MB/s")
    show("archive", f"{1e3 * size / taken[1]:.0f} MB/s", f"{taken[0] / taken[1]:.0%} of them (goal 80%)")

    directory = work / "uploads"
    directory.mkdir()
    local = LocalStore(prefix=directory)
    plain = _processor_s(lambda: _put(local, f"plain-{next(names)}", files))
    ours = _processor_s(lambda: archive_store(store, f"file://{directory}/archived-{next(names)}", with_last=True))
    shutil.rmtree(directory)
    show("processor time of plain uploads to a directory", f"{plain / size:.2f} s/GB")
    show("processor time of an archive there", f"{ours / size:.2f} s/GB", "with two checksums, units and keys")


def _ranges(sizes: dict[str, int]) -> list[tuple[str, int, int]]:
    return [(name, at, min(at + PART_SIZE, size)) for name, size in sizes.items() for at in range(0, size, PART_SIZE)]


def _download(client: S3Store, sizes: dict[str, int]) -> None:
    """All bytes, as a reader asks for them."""

    def piece(part: tuple[str, int, int]) -> int:
        name, start, end = part
        return len(obstore.get_range(client, name, start=start, end=end))

    with ThreadPoolExecutor(PageLimits().requests) as threads:
        assert sum(threads.map(piece, _ranges(sizes))) == sum(sizes.values())


def _download_with_arrow(endpoint: str, sizes: dict[str, int]) -> None:
    """The same by ``pyarrow.fs``, with each object opened once."""
    files = pyarrow.fs.S3FileSystem(
        access_key=KEYS["access_key_id"],
        secret_key=KEYS["secret_access_key"],
        region=KEYS["region"],
        endpoint_override=endpoint.removeprefix("http://"),
        scheme="http",
    )
    opened = {name: files.open_input_file(f"{BUCKET}/{name}") for name in sizes}

    def piece(part: tuple[str, int, int]) -> int:
        name, start, end = part
        return len(opened[name].read_at(end - start, start))

    with ThreadPoolExecutor(PageLimits().requests) as threads:
        assert sum(threads.map(piece, _ranges(sizes))) == sum(sizes.values())


def _libraries(client: S3Store, endpoint: str, sizes: dict[str, int]) -> None:
    """Which library reads ranges with less."""
    works = [partial(_download, client, sizes), partial(_download_with_arrow, endpoint, sizes)]
    taken, size = in_turns(*works, turns=2), sum(sizes.values()) / 1e9
    for name, work, seconds in zip(("obstore", "pyarrow.fs"), works, taken, strict=True):
        beside = f"{_processor_s(work) / size:.2f} s of the processor a GB, the server's apart"
        show(f"ranges of 8 MiB by {name}", f"{1e3 * size / seconds:.0f} MB/s", beside)


def _read_processor_s(store: Path, work: Path, size: float) -> None:
    """Processor time of reading all rows without Spark and without a server."""
    archive, cache = work / "local-archive", work / "local-cache"
    archive_store(store, f"file://{archive}", with_last=True)

    def read(path: str, cache_dir: Path | None = None) -> None:
        with StoreReader.open(path, cache_dir=cache_dir) as reader:
            queues = reader.queues("orders")
            ranges = [("orders", queue.queue_id, queue.min_offset, queue.max_offset) for queue in queues]
            assert sum(len(one) for one in reader.read_side_by_side(ranges, columns=DEFAULT_COLUMNS))

    url = f"archive+file://{archive}"
    read(url, cache)
    directory = _processor_s(partial(read, str(store)))
    show("processor time of reading the directory", f"{directory / size:.2f} s/GB")
    show("of an archive in a directory", f"{_processor_s(partial(read, url)) / size:.2f} s/GB")
    show("of an archive, everything cached", f"{_processor_s(partial(read, url, cache)) / size:.2f} s/GB")
    shutil.rmtree(archive)
    shutil.rmtree(cache)


def _reads(spark: SparkSession, store: Path, work: Path, client: S3Store, endpoint: str) -> None:
    archive_store(store, _URL, with_last=True, options=options_for(endpoint))
    sizes = {
        str(one["path"]): int(one["size"])
        for batch in obstore.list(client, "orders")
        for one in batch
        if f"/{COMMIT_LOG}/" in str(one["path"])
    }
    size = sum(sizes.values()) / 1e6
    _libraries(client, endpoint, sizes)
    _read_processor_s(store, work, size / 1e3)

    def frame(**more: str) -> DataFrame:
        reader = spark.read.format("commitlog").options(subscribe="orders", endpoint=endpoint, **more)
        return reader.load(_URL)

    # Without a cache: the download keeps nothing on a disk either.
    cold = partial(to_noop, frame())
    taken = in_turns(partial(_download, client, sizes), cold, turns=2)
    show("download of the log's objects, in ranges", f"{size / taken[0]:.0f} MB/s")
    show(
        "Spark, all rows, nothing cached", f"{size / taken[1]:.0f} MB/s", f"{taken[0] / taken[1]:.0%} of it (goal 80%)"
    )
    directory = spark.read.format("commitlog").options(path=str(store), subscribe="orders").load()
    rows = directory.count()
    taken = in_turns(partial(to_noop, directory), partial(to_noop, frame(cacheDir=str(work / "cache"))))
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
        _uploads(store, work, client, options_for(endpoint))
        # The workers' credentials.
        os.environ.update({f"AWS_{key.upper()}": value for key, value in KEYS.items()})
        spark = start_spark(work, spark__driver__memory="2g")
        spark.sparkContext.setLogLevel("ERROR")
        _reads(spark, store, work, client, endpoint)
        spark.stop()
