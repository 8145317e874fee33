"""``StoreReader.scan`` over many queues gives what a ``read`` of one queue after the other gives, damage included."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog_store import ALL_COLUMNS, MessageFilter, MessageStore, OnDamage, StoreReader
from commitlog_store.errors import CommitLogError, ReaderClosed
from commitlog_store.paths import is_system_topic
from commitlog_store.queue.skipped import SkippedRange
from tests.store.ranges_of_queues import Rows, one_by_one, unpacked_bodies
from tests.support.store_builder import StoreBuilder

# A message: its topic, queue and tag.
_Message = tuple[int, int, str]
_MESSAGES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.sampled_from("ab")), min_size=1, max_size=80)
_LONG_TOPIC = "t" * 120

# The rows, the error that ended the read, and what was skipped.
_Outcome = tuple[Rows, tuple[type[CommitLogError], str] | None, list[SkippedRange]]


def _store(directory: Path, messages: Sequence[_Message], *, log_file_size: int = 4 << 10) -> StoreBuilder:
    """Messages in this order, over several files of the log and of the queues; topics of various lengths."""
    store = StoreBuilder(directory / "store", log_file_size=log_file_size, queue_file_units=7)
    for number, (topic, queue_id, tag) in enumerate(messages):
        name = f"topic-{topic}" if topic != 4 else f"{_LONG_TOPIC}-{topic}"
        body = b"%d" % number * (1 + number % 40)
        store.append(name, queue_id, [body], tags=tag, more=f"n\x01{number}\x02")
    return store


def _many(directory: Path) -> StoreBuilder:
    """600 messages in some 150 queues of 50 topics, in no order."""
    chance = random.Random(7)
    return _store(
        directory,
        [(chance.randrange(50), chance.randrange(3), chance.choice("ab")) for _ in range(600)],
        log_file_size=16 << 10,
    )


def _outcome(reader: StoreReader, batches: Iterator[pa.RecordBatch]) -> _Outcome:
    rows: Rows = []
    error = None
    try:
        for batch in batches:
            rows += batch.to_pylist()
    except CommitLogError as found:
        error = type(found), str(found)
    return rows, error, reader.skipped


def _scanned(reader: StoreReader, **options: Any) -> Iterator[pa.RecordBatch]:
    yield from reader.scan("*", **options)


def _one_by_one(reader: StoreReader, **options: Any) -> Iterator[pa.RecordBatch]:
    topics = [topic for topic in reader.topics() if not is_system_topic(topic)]
    for one in reader.queue_infos([(topic, queue_id) for topic in topics for queue_id in reader.queue_ids(topic)]):
        yield from reader.read(one.topic, one.queue_id, one.min_offset, one.max_offset, **options)


def _same(path: Path, *, on_damage: OnDamage = "raise", **options: Any) -> _Outcome:
    """What a scan gives, which is what reads of one queue after the other give."""
    options = {"columns": ALL_COLUMNS, **options}
    with StoreReader.open(path, on_damage=on_damage) as reader:
        found = _outcome(reader, _scanned(reader, **options))
    with StoreReader.open(path, on_damage=on_damage) as reader:
        assert found == _outcome(reader, _one_by_one(reader, **options))
    return found


@given(messages=_MESSAGES, wanted=st.sampled_from([{}, {"tags": "a"}, {"filter": "n > 20"}, {"tags": "none"}]))
def test_any_messages(
    tmp_path_factory: pytest.TempPathFactory, messages: list[_Message], wanted: dict[str, Any]
) -> None:
    store = _store(tmp_path_factory.mktemp("scanned"), messages)
    rows, error, _ = _same(store.path, **wanted)
    assert error is None
    assert wanted or len(rows) == len(messages)


@given(messages=_MESSAGES, data=st.data(), on_damage=st.sampled_from(["raise", "skip", "skip-records"]))
def test_any_damage(
    tmp_path_factory: pytest.TempPathFactory, messages: list[_Message], data: st.DataObject, on_damage: OnDamage
) -> None:
    """Bytes of log and queues are changed, or one of their files is missing."""
    store = _store(tmp_path_factory.mktemp("damaged"), messages)
    files = sorted(path for kind in ("commitlog", "consumequeue") for path in (store.path / kind).rglob("0*0*0*"))
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(files))
        if not path.is_file():
            continue
        if data.draw(st.integers(0, 5)) == 0:
            if len(list(path.parent.iterdir())) > 1:  # a store without its log is not opened
                path.unlink()
            continue
        used = max(len(path.read_bytes().rstrip(b"\0")), 1)
        with path.open("r+b") as file:
            file.seek(data.draw(st.integers(0, used - 1)))
            file.write(data.draw(st.binary(min_size=1, max_size=4)))
    _same(store.path, on_damage=on_damage, verify_crc=data.draw(st.booleans()))


@pytest.mark.parametrize("on_damage", ["raise", "skip"])
@pytest.mark.parametrize("place", [0, 301, 599])
def test_one_damaged_record_among_many_queues(tmp_path: Path, on_damage: OnDamage, place: int) -> None:
    store = _many(tmp_path)
    with StoreReader.open(store.path) as reader:
        records = sorted(reader.scan("*", columns=["physicalOffset"]).read_all()["physicalOffset"].to_pylist())
    file, within = divmod(records[place], store.log_file_size)
    path = sorted((store.path / "commitlog").iterdir())[file]
    with path.open("r+b") as log:
        log.seek(within + 4)
        log.write(b"\xff")
    rows, error, skipped = _same(store.path, on_damage=on_damage)
    if on_damage == "skip":
        assert (len(rows), error, len(skipped)) == (599, None, 1)
    else:
        assert error is not None


def test_queues_share_batches_of_bounded_rows(tmp_path: Path) -> None:
    """Far fewer batches than queues, and no batch of more rows than a read gives."""
    store = StoreBuilder(tmp_path / "store")
    for number in range(60):
        store.append(f"topic-{number:02d}", [0, 1], [b"x"] * 1000)
    with StoreReader.open(store.path) as reader:
        batches = list(reader.scan("*", columns=["topic", "queueId", "queueOffset"]))
        assert _rows_in(batches) == 60_000
        assert len(batches) < 20
        assert max(batch.num_rows for batch in batches) <= 16_384
        places = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
        assert places == sorted(places)


def _rows_in(batches: Sequence[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)


def test_large_records_are_not_read_together_beyond_a_bound(tmp_path: Path) -> None:
    """48 MiB in 24 queues: what a batch holds, and so what is in memory at a time, stays below the bound."""
    store = StoreBuilder(tmp_path / "store", log_file_size=64 << 20)
    for number in range(12):
        store.append(f"topic-{number:02d}", [0, 1], [b"x" * (512 << 10)] * 8)
    store.append("small", list(range(20)), [b"y"] * 100)
    with StoreReader.open(store.path) as reader:
        batches = list(reader.scan("*", columns=["body"], verify_crc=False))
        assert _rows_in(batches) == 12 * 8 + 100
        assert max(batch.nbytes for batch in batches) < 17 << 20
    _same(store.path, verify_crc=False, columns=["topic", "queueId", "queueOffset", "storeSize"])


def test_bodies_that_unpack_to_much_are_read_queue_by_queue(tmp_path: Path) -> None:
    rows, error, _ = _same(unpacked_bodies(tmp_path, 8), columns=["queueId", "body"])
    assert error is None
    assert len(rows) == 8


def test_a_queue_with_fillers_and_one_that_retention_has_cut(tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path / "store", log_file_size=4 << 10, queue_file_units=7)
    store.pad_queue("late", 0, 5)
    for _ in range(30):
        store.append("late", 0, [b"x" * 100])
        store.append("other", [0, 1], [b"x" * 100] * 2)
    store.delete_log_files(2)
    rows, error, _ = _same(store.path)
    assert error is None
    assert 0 < len(rows) < 90


def test_light_queues_beside_plain_ones(tmp_path: Path) -> None:
    """Their units lead to records of other queues."""
    store = StoreBuilder(tmp_path / "store")
    store.append("orders", [0, 1, 2], [b"x"] * 30)
    directory = store.path / "consumequeue"
    for number in range(3):
        light = directory / f"%LMQ%{number}" / "0"
        light.mkdir(parents=True)
        for file in (directory / "orders" / "1").iterdir():
            (light / file.name).write_bytes(file.read_bytes())
    rows, error, _ = _same(store.path)
    assert error is None
    assert len(rows) == 60


def test_a_store_read_from_its_log(tmp_path: Path) -> None:
    store = _many(tmp_path)
    with StoreReader.open(store.path, from_log=True) as reader:
        assert _outcome(reader, _scanned(reader)) == _outcome(reader, _one_by_one(reader))


def test_retention_during_a_scan_is_reported(tmp_path: Path) -> None:
    """Also of queues that would have been read together."""
    store = StoreBuilder(tmp_path / "store", log_file_size=64 << 10, queue_file_units=100)
    for _ in range(20):
        for number in range(30):
            store.append(f"topic-{number:02d}", 0, [b"x" * 1000] * 4)
    with StoreReader.open(store.path) as reader:
        batches = reader.scan("*", columns=["topic"])
        first = batches.read_next_batch().num_rows
        store.delete_log_files(20)
        rows, error, _ = _outcome(reader, iter(batches))
        assert error is not None
        assert "OffsetOutOfRange" in error[0].__name__
        assert first + len(rows) < 2400


def test_a_reader_that_is_closed_ends_the_stream_within_a_group(tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path / "store")
    for number in range(60):
        store.append(f"topic-{number:02d}", [0, 1], [b"x"] * 1000)
    reader = StoreReader.open(store.path)
    batches = reader.scan("*", columns=[])
    batches.read_next_batch()
    reader.close()
    with pytest.raises(ReaderClosed):
        batches.read_next_batch()


def test_what_is_read_together_is_counted_by_topic(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store") as store:
        for number in range(30):
            store.put(f"topic-{number % 3}", b"x" * 10 * number, tags="ab"[number % 2]).raise_for_status()
        store.dispatch()
        with store.reader() as reader:
            table = reader.scan("*", columns=["body"], tags="a").read_all()
        found = store.stats()
    assert found.topic_get_times == {f"topic-{number}": 5 for number in range(3)}
    assert found.get_message_size_total >= table.nbytes - 8 * 15


def test_ranges_of_several_topics_are_read_together(tmp_path: Path) -> None:
    """Topic by topic, in the order in which they are first named."""
    store = _many(tmp_path)
    with StoreReader.open(store.path) as reader:
        ranges = [
            (topic, queue.queue_id, queue.min_offset, queue.max_offset)
            for topic in reversed(reader.topics())
            for queue in reader.queues(topic)
        ]
        together = reader.read_together(ranges, columns=ALL_COLUMNS)
        assert together is not None
        assert len(together) == 1
        assert together[0].to_pylist() == one_by_one(reader, ranges)
        chosen = MessageFilter.parse(tags="a")
        few = reader.read_together(ranges, columns=["tags"], filter=chosen) or []
        assert {row["tags"] for batch in few for row in batch.to_pylist()} == {"a"}
