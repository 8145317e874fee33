"""Lifetime of a reader: the files it holds, closing, pickling, and lookups that it remembers."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import Fence, MessageStore, QueueInfo, StoreReader
from commitlog_store.errors import OffsetOutOfRange, ReaderClosed, UnsupportedStore
from commitlog_store.files import disk
from tests.support.interrupter import Interrupter
from tests.support.store_builder import StoreBuilder

# What an opening runs, but for the calls that open files.
_OPENING = (
    *("reader.py", "reading/opening.py", "log/commit_log.py", "log/past_damage.py", "batch/log_snapshot.py"),
    *("queue/catalog.py", "queue/lost_log.py", "files/mapped_file_queue.py"),
)


def _open_descriptors(below: Path) -> list[str]:
    links = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
    return [target for link in links if os.path.lexists(link) and (target := os.readlink(link)).startswith(str(below))]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    builder = StoreBuilder(tmp_path / "store", log_file_size=4096)
    builder.append("orders", [0, 1], [f"body {number}".encode() for number in range(40)])
    return builder.path


def test_closing_closes_every_file_and_none_is_opened_again(store: Path) -> None:
    reader = StoreReader.open(store)
    batches = reader.read("orders", 0, 0, max_batch_rows=3)
    first = next(batches)
    reader.message_at(0)
    reader.close()
    assert first.num_rows == 3
    assert first.column("body")[0].as_py() == b"body 0"
    with pytest.raises(ReaderClosed, match="open the store again"):
        list(batches)
    with pytest.raises(ReaderClosed):
        reader.queue_info("orders", 0)
    with pytest.raises(ReaderClosed):
        reader.message_at(0)
    assert _open_descriptors(store) == []


@pytest.mark.parametrize("from_log", [False, True])
def test_an_opening_that_is_interrupted_at_any_line_leaves_no_file_open(store: Path, from_log: bool) -> None:
    readers: list[StoreReader] = []
    turn = 0
    while not readers:
        turn += 1
        interrupter = Interrupter(turn, _OPENING)
        with contextlib.suppress(KeyboardInterrupt):
            interrupter.run(lambda: readers.append(StoreReader.open(store, from_log=from_log)))
        assert readers or _open_descriptors(store) == [], interrupter.where
    assert turn > 50
    readers.pop()


def test_a_reader_that_is_dropped_closes_its_files(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as owner, owner.transaction("loader", 1) as batch:
        batch.put_messages(pa.table({"body": [b"a"]}), topic="orders")
    reader: StoreReader | None = StoreReader.open(tmp_path)
    assert reader is not None
    assert reader.query("orders", "no-such-key") == []
    assert len(list(reader.read("orders", 0, 0))) == 1
    assert _open_descriptors(tmp_path) != []
    reader = None
    gc.collect()
    assert _open_descriptors(tmp_path) == []


def test_every_method_of_a_closed_reader_says_that_it_is_closed(store: Path) -> None:
    reader = StoreReader.open(store)
    units = reader.units("orders", 0, 0, 20, chunk=5)
    assert len(next(units)) == 5
    message = reader.message_at(0)
    reader.close()
    reader.close()
    calls: dict[str, Callable[[], object]] = {
        "aborted": lambda: reader.aborted,
        "assess": reader.assess,
        "batches": reader.batches,
        "checkpoint": reader.checkpoint,
        "config_home": lambda: reader.config_home,
        "consistently": lambda: reader.consistently(reader.topics),
        "dead_letters": reader.dead_letters,
        "delay_levels": reader.delay_levels,
        "facts": reader.facts,
        "fence": lambda: reader.fence("orders", 0, 0),
        "fences": lambda: reader.fences([("orders", 0, 0)]),
        "first_offsets_from": lambda: reader.first_offsets_from([("orders", 0, 0, 0, 20)]),
        "offsets_by_time": lambda: reader.offsets_by_time([(QueueInfo("orders", 0, 0, 20), 0)]),
        "queue_ids_of": lambda: reader.queue_ids_of(["orders"]),
        "store_timestamps": lambda: reader.store_timestamps([("orders", 0, 0)]),
        "units_of": lambda: reader.units_of([("orders", 0, 0, 20)]),
        "first_offset_from": lambda: reader.first_offset_from("orders", 0, 0, 0, 20),
        "group_offsets": lambda: reader.group_offsets("billing"),
        "groups": reader.groups,
        "get_message": lambda: reader.get_message("orders", 0, 0),
        "index_files": reader.index_files,
        "lost_ends": reader.lost_ends,
        "message_at": lambda: reader.message_at(0),
        "message_by_id": lambda: reader.message_by_id(message.message_id),
        "offset_by_time": lambda: reader.offset_by_time("orders", 0, 0),
        "offset_by_time, with bounds": lambda: reader.offset_by_time(
            "orders", 0, 0, bounds=QueueInfo("orders", 0, 0, 20)
        ),
        "blocks_of": lambda: reader.blocks_of([("orders", 0, 0, 1)]),
        "group_filters": reader.group_filters,
        "topic_settings": reader.topic_settings,
        "group_settings": reader.group_settings,
        "log_start": reader.log_start,
        "settled_state": reader.settled_state,
        "dispatched_state": lambda: reader.dispatched_state(Fence(0, 0), 1),
        "settled_queue_infos": lambda: reader.settled_queue_infos(list),
        "pending_half_messages": reader.pending_half_messages,
        "physical_bounds": reader.physical_bounds,
        "query": lambda: reader.query("orders", "key"),
        "query_keys": lambda: reader.query_keys("orders", ["key"]),
        "queue_ids": lambda: reader.queue_ids("orders"),
        "queue_info": lambda: reader.queue_info("orders", 0),
        "queue_infos": lambda: reader.queue_infos([]),
        "queues": lambda: reader.queues("orders"),
        "read": lambda: reader.read("orders", 0, 0),
        "read_in_turn": lambda: reader.read_in_turn([("orders", 0, 0, 1)]),
        "read_side_by_side": lambda: reader.read_side_by_side([("orders", 0, 0, 1)]),
        "read_together": lambda: reader.read_together([("orders", 0, 0, 1)]),
        "scan": lambda: reader.scan("orders"),
        "store_timestamp": lambda: reader.store_timestamp("orders", 0, 0),
        "topics": reader.topics,
        "units": lambda: reader.units("orders", 0, 0, 20),
        "waiting_timers": reader.waiting_timers,
        "wait_for_any": lambda: reader.wait_for_any({("orders", 0): 20}),
    }
    public = {name for name in dir(StoreReader) if not name.startswith("_")}
    # What was skipped, and what it cost, is asked for after reading.
    assert {name.partition(",")[0] for name in calls} == public - {
        "open",
        "close",
        "skipped",
        "log_gaps",
        "stats",
        "strays",
        "for_shell",
        "interrupt_with",
    }
    for name, call in calls.items():
        with pytest.raises(ReaderClosed, match="open the store again"):
            pytest.fail(f"{name} gave {call()!r}")
    with pytest.raises(ReaderClosed):
        next(units)


def test_a_reader_shows_its_path_and_whether_it_is_open(store: Path) -> None:
    with StoreReader.open(store) as reader:
        assert repr(reader) == f"<StoreReader of '{store}', open>"
    assert repr(reader) == f"<StoreReader of '{store}', closed>"


def test_a_pickled_reader_opens_the_store_by_itself(store: Path) -> None:
    with StoreReader.open(store) as reader:
        reader.message_at(0)
        with pickle.loads(pickle.dumps(reader)) as copy:
            reader.close()
            assert copy.queue_info("orders", 1).max_offset == 20
            assert copy.message_at(0).body == b"body 0"


def test_an_expired_queue_is_searched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = StoreBuilder(tmp_path / "store", log_file_size=4096)
    builder.append("quiet", 0, [b"x" * 100] * 10)
    builder.append("busy", 0, [b"x" * 100] * 100)
    builder.delete_log_files(2)
    with StoreReader.open(builder.path) as reader:
        assert reader.queue_info("quiet", 0).min_offset == reader.queue_info("quiet", 0).max_offset == 10
        reads: list[tuple[int, int]] = []
        read_at = disk.read_at

        def counted(descriptor: int, length: int, offset: int) -> bytes:
            reads.append((length, offset))
            return read_at(descriptor, length, offset)

        monkeypatch.setattr(disk, "read_at", counted)
        reader.queue_info("quiet", 0)
        assert len(reads) == 1
        builder.append("quiet", 0, [b"new"])
        info = reader.queue_info("quiet", 0)
        assert (info.min_offset, info.max_offset) == (10, 11)


def test_messages_before_a_missing_queue_file_stay_when_the_last_one_never_reached_the_log(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store", queue_file_units=20)
    places = builder.append("orders", 0, [b"x"] * 60)
    log = builder.path / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    data[int(places[-1]) :] = bytes(len(data) - int(places[-1]))
    log.write_bytes(data)
    builder.write_abort()
    (builder.path / "consumequeue" / "orders" / "0" / f"{20 * 20:020d}").unlink()
    with StoreReader.open(builder.path) as reader:
        info = reader.queue_info("orders", 0)
        assert (info.min_offset, info.max_offset) == (0, 59)
        assert sum(batch.num_rows for batch in reader.read("orders", 0, 40)) == 19


def test_queues_in_a_rocksdb_directory_of_their_own_are_refused_by_name(store: Path) -> None:
    for path in (store / "consumequeue").rglob("*"):
        if path.is_file():
            path.unlink()
    for topic in (store / "consumequeue").iterdir():
        for queue in topic.iterdir():
            queue.rmdir()
        topic.rmdir()
    separate = store / "consumequeue_rocksdb"
    separate.mkdir()
    (separate / "CURRENT").touch()
    (separate / "MANIFEST-000001").touch()
    with pytest.raises(UnsupportedStore, match="consumequeue_rocksdb"):
        StoreReader.open(store)


def test_opening_lists_no_directory_of_topics(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[str] = []

    def list_names(path: str) -> list[str]:
        listed.append(path)
        return os.listdir(path)

    monkeypatch.setattr(disk, "list_names", list_names)
    with StoreReader.open(store):
        assert str(store) in listed
        assert str(store / "consumequeue") not in listed, "an opening gets slower with each topic"


def test_a_limit_below_one_is_refused_whether_or_not_there_are_hits(store: Path) -> None:
    with StoreReader.open(store) as reader, pytest.raises(ValueError, match="limit"):
        reader.query("orders", "no-such-key", limit=0)


def test_offsets_beyond_the_end_are_refused_with_the_available_ones(store: Path) -> None:
    with StoreReader.open(store) as reader, pytest.raises(OffsetOutOfRange, match=r"available are \[0, 20\)"):
        reader.read("orders", 0, 5, 21)
