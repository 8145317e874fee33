"""Recent appends: bulk puts and commits hand dispatch what the log holds, and dispatch reads the log without them."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from commitlog_store import FlushDiskType, MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.columnar.dispatch import DispatchRequests, dispatch_requests, index_entries
from commitlog_store.columnar.encode import EncodedMessages
from commitlog_store.files import disk
from commitlog_store.files.frame_space import FrameSpace
from commitlog_store.log import commit_log_writer
from commitlog_store.log.recent_appends import LEAST_ROWS, AppendedRecords, RecentAppends
from tests.store.columnar.encoded_rows import BASE, encode, scan_of
from tests.support.clean_store import assert_clean

SMALL_FILES = MessageStoreConfig(mapped_file_size_commit_log=1 << 20)


def messages(count: int, seed: int = 1) -> pa.Table:
    """Rows of all kinds: several topics, tags and keys or none, unique keys of their own, all kinds of letters."""
    chance = random.Random(seed)

    def some(values: list[Any]) -> list[Any]:
        return [chance.choice(values) for _ in range(count)]

    maps = pa.map_(pa.string(), pa.string())
    properties = [None, [], [("a", "b")], [("UNIQ_KEY", "U1"), ("a", "b")], [("TAGS", "t")]]
    return pa.table(
        {
            "body": pa.array([chance.randbytes(chance.randrange(80)) for _ in range(count)], pa.binary()),
            "topic": some(["orders", "returns", "t" * 127]),
            "tags": some([None, "", "paid", "große", "x" * 40]),
            "keys": pa.array(some([None, [], ["k1"], ["k2", "k3"], ["ключ"]]), pa.list_(pa.string())),
            "properties": pa.array(some(properties), maps),
            "queueId": pa.array(some([0, 1, 2]), pa.int32()),
        }
    )


def handed(encoded: EncodedMessages) -> AppendedRecords:
    """As the writer hands over records that it puts at ``BASE``."""
    queued, starts = encoded.queued(), encoded.records.starts
    assert queued.hints is not None
    codes = queued.queue_codes.astype(np.int32)
    offsets = np.arange(len(queued), dtype=np.int64)
    return AppendedRecords(
        starts[:-1] + BASE, int(starts[-1]) + BASE, queued.queues, codes, offsets, 2, queued.host_flags, queued.hints
    )


def told(requests: DispatchRequests) -> dict[str, list[Any]]:
    names = ("physical_offsets", "sizes", "queue_ids", "queue_offsets", "store_timestamps", "tags_codes", "has_unit")
    found = {name: getattr(requests, name).tolist() for name in names}
    return found | {"topics": [requests.topics[code] for code in requests.topic_codes.tolist()]}


@pytest.mark.parametrize("seed", range(8))
def test_recent_appends_equal_what_reading_the_records_gives(seed: int) -> None:
    rows = messages(700, seed)
    unique = (
        pa.array([f"{row:08x}" if row % 3 else None for row in range(700)], pa.large_string()) if seed % 2 else None
    )
    queue_ids = rows["queueId"].combine_chunks().to_numpy()
    encoded = encode(rows, topic=None, queue_ids=queue_ids, unique_keys=unique, trailing_separator=seed % 4 < 2)
    scan = scan_of(encoded)
    read = dispatch_requests(scan, [1000])
    requests, entries = handed(encoded).requests(), handed(encoded).entries()
    assert told(requests) == told(read)
    by_reading = index_entries(scan)
    assert entries.key_hashes.tolist() == by_reading.key_hashes.tolist()
    assert entries.rows.tolist() == by_reading.rows.tolist()


def test_a_part_of_hints_is_the_hints_of_the_part() -> None:
    hints = encode(messages(1000), topic=None).queued().hints
    assert hints is not None
    for first, stop in ((0, 1000), (0, 1), (17, 720), (999, 1000), (5, 5)):
        late, early = hints.part(first, stop), hints.part(first, stop)
        assert late.tags_codes.tolist() == early.tags_codes.tolist()
        assert [array.tolist() for array in late.entries] == [array.tolist() for array in early.entries]


def test_delayed_messages_are_left_to_be_read() -> None:
    assert encode(pa.table({"body": [b"x"], "delayLevel": [2]})).queued().hints is None


def test_records_are_given_once_in_order_and_no_further_than_asked() -> None:
    one = handed(encode(messages(10)))
    two = one._replace(physical_offsets=one.physical_offsets + 10_000, end=one.end + 10_000)
    over = RecentAppends(one.size + two.size)
    for records in (one, two, one):  # the third finds no room
        over.add(records)
    assert over.take(0, 1 << 40) is None
    assert over.next_start(0, 1 << 40) == one.start
    assert over.next_start(0, 5) == 5
    assert over.take(one.start, one.end - 1) is None
    assert over.take(one.start, one.end) is one
    assert over.next_start(one.end, 1 << 40) == two.start
    over.drop_from(two.start + 1)
    assert over.take(two.start + 1, 1 << 40) is None  # skipped, so released
    assert over.next_start(0, 7) == 7
    over.add(two)
    over.drop_from(two.start)
    assert over.next_start(0, 7) == 7


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records dispatch was handed, each time."""
    counts: list[int] = []

    class Watched(RecentAppends):
        def take(self, offset: int, limit: int) -> AppendedRecords | None:
            found = super().take(offset, limit)
            if found is not None:
                counts.append(len(found.physical_offsets))
            return found

    monkeypatch.setattr(commit_log_writer, "RecentAppends", Watched)
    return counts


@pytest.mark.parametrize("flush", FlushDiskType)
def test_bulk_puts_among_single_ones_and_over_file_ends_are_dispatched(
    tmp_path: Path, taken: list[int], flush: FlushDiskType
) -> None:
    config = MessageStoreConfig(mapped_file_size_commit_log=1 << 20, flush_disk_type=flush)
    with MessageStore.open(tmp_path, config) as store:
        for seed, count in enumerate([5000, 3, 2000, LEAST_ROWS, LEAST_ROWS - 1, 40, 9000]):
            store.put_messages(messages(count, seed)).raise_for_status()
        store.dispatch()
    assert sum(taken) > 10_000
    assert_clean(tmp_path)
    with StoreReader.open(tmp_path) as reader:
        assert sum(queue.max_offset for topic in reader.topics() for queue in reader.queues(topic)) == 18_090
        assert len(reader.query("orders", "k3", limit=100_000)) > 500


def test_appends_that_do_not_fit_are_read_from_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_log_writer, "RecentAppends", lambda: RecentAppends(0))
    with MessageStore.open(tmp_path, SMALL_FILES) as store:
        store.put_messages(messages(5000)).raise_for_status()
        store.dispatch()
    assert_clean(tmp_path)


def test_batches_are_dispatched_from_recent_appends(tmp_path: Path, taken: list[int]) -> None:
    with MessageStore.open(tmp_path, SMALL_FILES) as store:
        for version in range(3):
            with store.transaction("loader", version) as batch:
                batch.put_messages(messages(9000, version))
        store.dispatch()
        assert sum(taken) > 20_000
    assert_clean(tmp_path)


def test_many_topics_are_distinguished_quickly() -> None:
    def processor_seconds(topics: int) -> float:
        rows = pa.table({"body": [b"x"] * topics, "topic": [f"topic-{row}" for row in range(topics)]})
        appends = handed(encode(rows, topic=None, queue_ids=np.zeros(topics, np.int32)))
        begun = time.process_time()
        assert len(appends.requests().topics) == topics
        return time.process_time() - begun

    few, many = (min(processor_seconds(topics) for _ in range(5)) for topics in (500, 8000))
    assert many < 64 * few, "sixteen times as many, and 256 times where each is looked for in a list"


@pytest.mark.parametrize("broken", [(RecentAppends, "drop_from"), (FrameSpace, "discard")])
def test_an_interrupted_rollback_of_a_batch_leaves_nothing_that_comes_back(
    tmp_path: Path, broken: tuple[type, str]
) -> None:
    """The frame's bytes lie after the log's end: nothing may be appended before they are zeroed."""
    with MessageStore.open(tmp_path, SMALL_FILES) as store:
        store.put_messages(messages(2000)).raise_for_status()
        end = store.physical_bounds()[1]
        with pytest.MonkeyPatch.context() as patch:

            def lost(*_: object) -> None:
                raise MemoryError  # which does not fence the log: the rollback settles it

            def interrupted(*_: object, **__: object) -> None:
                raise KeyboardInterrupt

            patch.setattr(FrameSpace, "write_at_start", lost)
            patch.setattr(*broken, interrupted)
            with pytest.raises(KeyboardInterrupt), store.transaction("loader", 1) as batch:
                batch.put_messages(messages(3000, 5))
        assert not store.put_messages(messages(10)).ok
    with MessageStore.open(tmp_path, SMALL_FILES) as store:
        assert store.recovered is not None
        assert store.physical_bounds()[1] == end
        store.put_messages(messages(3000, 6)).raise_for_status()
    assert_clean(tmp_path)


def test_a_batch_that_is_rolled_back_takes_back_its_recent_appends(tmp_path: Path, taken: list[int]) -> None:
    with MessageStore.open(tmp_path, SMALL_FILES) as store:
        store.put_messages(messages(2000)).raise_for_status()
        store.dispatch()
        with pytest.MonkeyPatch.context() as patch:
            allocate = disk.allocate

            def full(descriptor: int, offset: int, length: int) -> None:
                if length >= 1 << 20:
                    raise OSError(28, "No space left on device")
                allocate(descriptor, offset, length)

            patch.setattr(disk, "allocate", full)
            with pytest.raises(Exception, match=r"space|No room|full"), store.transaction("loader", 1) as batch:
                batch.put_messages(messages(30_000, 5))
        store.put_messages(messages(3000, 6)).raise_for_status()
        store.dispatch()
    assert_clean(tmp_path)
    with StoreReader.open(tmp_path) as reader:
        assert sum(queue.max_offset for topic in reader.topics() for queue in reader.queues(topic)) == 5000
