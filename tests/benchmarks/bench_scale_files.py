"""A store of 1 TiB: openings, commands, plans, times and retention over 1,000 log files of 1 GiB.

The log is whole: every record, its CRC and its unit are right. It takes some 1 GiB, since bodies are 4 MB of zeros that
the file system does not store. So there are 268 messages a file, 256 queues, and no keys: what grows with files and
with the size of messages is real, what grows with their number is not. ``SCALE_FILES`` names another number of files.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from commitlog_store import MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.columnar.records import TopicRows, encode_records, new_headers
from commitlog_store.format.consume_queue_unit import UNIT_FILE_DTYPE
from commitlog_store.format.record import encode_filler
from commitlog_store.paths import file_name_for_offset
from pyspark_commitlog.options.read import parse_batch_options, parse_stream_options
from pyspark_commitlog.source.batch_source import CommitLogBatchReader
from pyspark_commitlog.source.schema import check_schema, default_schema
from pyspark_commitlog.source.stream_planner import StreamPlanner
from tests.benchmarks.measure import GIB, machine, scratch, show
from tests.benchmarks.steps import Figures, clocked, command, in_process, note_memory, show_all
from tests.support.encoders import tags_code
from tests.support.store_builder import StoreBuilder

_FILES = int(os.environ.get("SCALE_FILES", "1000"))
_TOPICS, _QUEUES = 16, 16
_BODY_SIZE = 4_000_000
_HOUR_MS = 3_600_000
_TIMES = 64
# Without keys there is no index.
_CONFIG = MessageStoreConfig(message_index_enable=False)


def _topic(number: int) -> str:
    return f"topic-{number:02}"


def _build(path: Path) -> None:
    """A log file an hour, the last one now. Only what is not zero is written."""
    builder = StoreBuilder(path, log_file_size=GIB)
    body = pa.array([bytes(_BODY_SIZE)], pa.large_binary())
    shared = [
        encode_records(new_headers(1), body, TopicRows([_topic(number)], np.zeros(1, np.int32)), [b"TAGS\x01paid\x02"])
        for number in range(_TOPICS)
    ]
    size = int(shared[0].sizes[0])
    header_size = new_headers(1).dtype.itemsize
    tails = [one.data[header_size + _BODY_SIZE :].tobytes() for one in shared]
    a_file = (GIB - 8) // size
    rows = np.arange(_FILES * a_file)
    topics, queue_ids, offsets = rows % _TOPICS, rows // _TOPICS % _QUEUES, rows // (_TOPICS * _QUEUES)
    places = rows // a_file * GIB + rows % a_file * size
    heads = b"".join(one.data[:header_size].tobytes() for one in shared)
    headers = np.frombuffer(heads, new_headers(1).dtype)[topics]
    headers["queue_id"], headers["queue_offset"], headers["physical_offset"] = queue_ids, offsets, places
    headers["store_timestamp"] = headers["born_timestamp"] = _times(_FILES, a_file)
    for number in range(_FILES):
        with (path / "commitlog" / file_name_for_offset(number * GIB)).open("wb") as file:
            file.truncate(GIB)
            for row in range(number * a_file, (number + 1) * a_file):
                at = row % a_file * size
                os.pwrite(file.fileno(), headers[row].tobytes(), at)
                os.pwrite(file.fileno(), tails[topics[row]], at + header_size + _BODY_SIZE)
            if number < _FILES - 1:
                os.pwrite(file.fileno(), encode_filler(GIB - a_file * size), a_file * size)
    units = np.zeros(len(rows), UNIT_FILE_DTYPE)
    units["physical_offset"], units["size"], units["tags_code"] = places, size, tags_code("paid")
    for topic in range(_TOPICS):
        for queue_id in range(_QUEUES):
            builder.write_units(_topic(topic), queue_id, 0, units[topic + _TOPICS * queue_id :: _TOPICS * _QUEUES])


def _times(files: int, a_file: int) -> np.ndarray:
    """Store times of all messages, evenly over so many hours until now."""
    end = time.time_ns() // 1_000_000
    return np.linspace(end - files * _HOUR_MS, end, files * a_file).astype(np.int64)


def _first_opening(path: Path) -> Figures:
    """As after a broker's clean close: the last three files are read, with their CRCs."""
    figures: Figures = {}
    with clocked(figures, "first open as owner, three files read"):
        store = MessageStore.open(path, _CONFIG)
    store.close()
    note_memory(figures, "memory of it")
    return figures


def _owner(path: Path) -> Figures:
    figures: Figures = {}
    with clocked(figures, "open as owner"):
        store = MessageStore.open(path, _CONFIG)
    with store:
        with clocked(figures, "retention's look, by age"):
            by_age = store.clean(dry_run=True, older_than_hours=_FILES // 2)
        with clocked(figures, "retention's look, by bytes"):
            store.clean(dry_run=True, max_bytes=_FILES // 2 * GIB)
        assert len(by_age.deleted) > _FILES // 3
        with clocked(figures, "a put, and its dispatch"):
            store.put(_topic(0), b"x", queue_id=0).raise_for_status()
            store.dispatch()
        note_memory(figures, "memory of the owner")
    return figures


def _reader(path: Path) -> Figures:
    figures: Figures = {}
    with clocked(figures, "open as reader"):
        reader = StoreReader.open(path)
    with reader:
        queues = [(_topic(topic), queue_id) for topic in range(_TOPICS) for queue_id in range(_QUEUES)]
        with clocked(figures, f"queue_infos() of {len(queues)} queues"):
            reader.queue_infos(queues)
        hours = np.random.default_rng(1).integers(0, _FILES, _TIMES).tolist()
        now = time.time_ns() // 1_000_000
        with clocked(figures, f"offset_by_time(), {_TIMES} times"):
            for (topic, queue_id), hour in zip(queues, hours, strict=False):
                reader.offset_by_time(topic, queue_id, now - hour * _HOUR_MS)
        with clocked(figures, f"a message of each of {len(queues)} queues, 4 MB each"):
            for topic, queue_id in queues:
                (batch,) = reader.read(topic, queue_id, 0, 1)
                assert batch.num_rows == 1
        note_memory(figures, "memory of the reader")
    return figures


def _plans(path: Path) -> Figures:
    """What Spark's driver does, without Spark."""
    figures: Figures = {}
    options = {"path": str(path), "subscribePattern": "topic-.*", "startingOffsets": "earliest"}
    planner = StreamPlanner.open(parse_stream_options(options))
    with clocked(figures, "first offset of a stream"):
        start = planner.initial_offset()
    with clocked(figures, "first trigger, latestOffset"):
        end = planner.latest_offset(start, limited=True)
    with clocked(figures, "first trigger, partitions"):
        of_stream = planner.partitions(start, end)
    planner.close()
    batch_options = parse_batch_options({"path": str(path), "subscribePattern": "topic-.*"})
    batch = CommitLogBatchReader(batch_options, check_schema(default_schema(batch_options)))
    with clocked(figures, "batch: partitions"):
        of_batch = batch.partitions()
    figures["partitions of the trigger, of the batch"] = f"{len(of_stream)}, {len(of_batch)}"
    note_memory(figures, "memory of the planner")
    return figures


def _commands(path: Path) -> Figures:
    figures: Figures = {}
    command(figures, "commitlog info", "info", str(path))
    command(figures, "commitlog doctor", "doctor", str(path))
    command(figures, "commitlog offset-at", "offset-at", str(path), "12h")
    return figures


def main() -> None:
    """Run the benchmark and print its figures."""
    print(machine())
    path = scratch() / "scale-files"
    shutil.rmtree(path, ignore_errors=True)
    try:
        _build(path)
        blocks = sum(file.stat().st_blocks * 512 for file in path.rglob("*") if file.is_file())
        show(f"{_FILES:,} log files of 1 GiB, bytes that they take", f"{blocks / GIB:.2f} GiB")
        for step in (_first_opening, _owner, _reader, _plans, _commands):
            show_all(in_process(step, path), {}, f"{_FILES:,} log files: ")
    finally:
        shutil.rmtree(path, ignore_errors=True)
