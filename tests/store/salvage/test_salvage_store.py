"""``salvage_store``: every whole record is taken, what is lost is reported, and the source stays as it is."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pa_dataset
import pytest

from commitlog_store import (
    MessageExtBrokerInner,
    MessageStore,
    MessageStoreConfig,
    PutMessageStatus,
    StoreReader,
    salvage_store,
)
from commitlog_store.errors import InvalidValue, NotAStore, StoreNotFound
from commitlog_store.verify.store import verify_store
from tests.store.salvage.damaged_stores import (
    FILE_SIZE,
    GOLDEN_498,
    SMALL_INDEX,
    damaged,
    log_file,
    messages,
    places,
)
from tests.support.clean_store import assert_clean

RECORDS = places(GOLDEN_498)
LOG_END = RECORDS[-1].stop
MESSAGES = messages(GOLDEN_498)


def snapshot(directory: Path) -> dict[str, tuple[object, ...]]:
    """Content, size, times and blocks of all files, and the times of directories."""
    return {
        str(path.relative_to(directory)): (
            path.stat().st_size,
            path.stat().st_mtime_ns,
            path.stat().st_ctime_ns,
            path.stat().st_blocks,
            path.stat().st_mode,
            path.read_bytes() if path.is_file() else None,
        )
        for path in [directory, *sorted(directory.rglob("*"))]
    }


def check_four_bytes(tmp_path: Path, at: int, data: bytes) -> None:
    """Salvage the log with four bytes damaged; all but the records that these touch must be found."""
    store = damaged(tmp_path / "damaged", at, data)
    shutil.rmtree(tmp_path / "target", ignore_errors=True)
    report = salvage_store(store, tmp_path / "target", config=SMALL_INDEX)
    hit = [one for one in RECORDS if one.start < at + len(data) and at < one.stop]
    missing = len(RECORDS) - report.records
    assert missing <= len(hit), (at, report)
    assert len(report.unreadable) <= len(hit), (at, report)
    found = messages(tmp_path / "target")
    assert sum(found.values()) == report.found >= sum(MESSAGES.values()) - len(hit), (at, report)
    assert sum((found - MESSAGES).values()) <= len(hit) - missing, (at, report)  # changed, and nothing shows it
    assert_clean(tmp_path / "target")


@pytest.mark.parametrize("name", ["golden_533", "golden_498"])
def test_a_whole_log_is_copied_byte_by_byte(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    store = request.getfixturevalue(name)
    report = salvage_store(store, tmp_path / "target", config=SMALL_INDEX)
    assert report.is_whole
    assert not report.moved
    for path in (store / "commitlog").iterdir():
        copy = tmp_path / "target" / "commitlog" / path.name
        # A broker makes the next file ahead of need.
        assert copy.read_bytes() == path.read_bytes() if copy.exists() else not any(path.read_bytes())
    assert verify_store(tmp_path / "target") == []
    assert messages(tmp_path / "target") == messages(store)


@pytest.mark.parametrize("tenth", range(10))
def test_four_bytes_damaged_cost_one_record_at_most(tmp_path: Path, tenth: int) -> None:
    check_four_bytes(tmp_path, LOG_END * tenth // 10, b"\xde\xad\xbe\xef")


@pytest.mark.stress
def test_four_bytes_damaged_anywhere_cost_one_record_at_most(tmp_path: Path) -> None:
    chance = random.Random(14)
    for _ in range(200):
        check_four_bytes(tmp_path, chance.randrange(LOG_END), chance.randbytes(4))


@pytest.mark.parametrize("field", range(0, 88, 4))
def test_a_damaged_header_costs_one_record_at_most(tmp_path: Path, field: int) -> None:
    check_four_bytes(tmp_path, RECORDS[300].start + field, b"\x7f\x01\xff\x33")


def orders(store: Path) -> list[dict[str, Any]]:
    """The messages of queue 1 of the topic."""
    columns = ["queueOffset", "physicalOffset", "storeTimestamp", "body"]
    with StoreReader.open(store) as reader:
        info = reader.queue_info("orders", 1)
        batches = list(reader.read("orders", 1, info.min_offset, columns=columns))
    return list(pa.Table.from_batches(batches).to_pylist())


def test_in_a_log_that_begins_at_0_offsets_after_the_lost_one_move_down(tmp_path: Path) -> None:
    """RocketMQ would take the blank units before a queue's first one for messages, and skip those after them."""
    rows = orders(GOLDEN_498)
    lost = rows[7]
    store = damaged(tmp_path / "damaged", lost["physicalOffset"] + 90, b"XXXX")
    report = salvage_store(store, tmp_path / "target", config=SMALL_INDEX)
    (topic,) = [one for one in report.topics if one.topic == "orders"]
    assert topic.lost_offsets == [(1, 7, 8)]
    assert report.moved == [("orders", 1, 8, len(rows), 7)]
    assert (report.found, report.lost) == (sum(MESSAGES.values()) - 1, 1)
    ((start, stop, what),) = report.unreadable
    assert start == lost["physicalOffset"]
    assert what.startswith("BODYCRC: expected ")
    with StoreReader.open(tmp_path / "target") as reader:
        assert reader.queue_info("orders", 1).min_offset == 0
    for row in orders(tmp_path / "target"):
        # Places stay in all files but the damaged one.
        was = rows[row["queueOffset"] + (row["queueOffset"] >= 7)]
        moved = stop - start if start < was["physicalOffset"] < FILE_SIZE else 0
        assert row == was | {"queueOffset": row["queueOffset"], "physicalOffset": was["physicalOffset"] - moved}


def test_in_a_log_that_begins_later_offsets_after_the_lost_one_stay(tmp_path: Path) -> None:
    """Consumers mostly stand near the end, and find there what they expect."""
    rows = [row for row in orders(GOLDEN_498) if row["physicalOffset"] >= FILE_SIZE]
    lost = rows[3]
    store = damaged(tmp_path / "damaged", lost["physicalOffset"] + 90, b"XXXX")
    log_file(store, 0).unlink()
    report = salvage_store(store, tmp_path / "target", config=SMALL_INDEX)
    first = rows[0]["queueOffset"]
    assert report.moved == [("orders", 1, first, first + 3, first + 1)]
    kept = [(row["queueOffset"] + (place < 3), row["body"]) for place, row in enumerate(rows) if row != lost]
    assert [(row["queueOffset"], row["body"]) for row in orders(tmp_path / "target")] == kept


def test_positions_of_consumers_move_with_their_messages(tmp_path: Path) -> None:
    store = damaged(tmp_path / "damaged", orders(GOLDEN_498)[7]["physicalOffset"] + 90, b"XXXX")
    (store / "config").mkdir()
    # As RocketMQ writes them, keys without quotes included.
    texts = {
        "consumerOffset.json": '{"dataVersion":{"counter":9},"offsetTable":{"orders@a":{0:9,1:7},"clicks@a":{1:9},\n'
        '"orders@b":{0:9,1:3,2:5},"orders@c":{1:30},"none@c":{1:9},"orders@ahead":{1:999}}}',
        "delayOffset.json": '{"offsetTable":{3:20}}',
        "topics.json": '{"orders@a":{1:9}}',
    }
    for name, text in texts.items():
        (store / "config" / name).write_text(text)
    salvage_store(store, tmp_path / "target", config=SMALL_INDEX)
    with StoreReader.open(tmp_path / "target") as reader:
        end = reader.queue_info("orders", 1).max_offset
    # None is after the end of its queue: the store is closed, and may get messages before the group consumes.
    positions = texts["consumerOffset.json"].replace("{1:30}", "{1:29}").replace('none@c":{1:9}', 'none@c":{1:0}')
    moved = texts | {"consumerOffset.json": positions.replace("999", str(end))}
    assert {name: (tmp_path / "target" / "config" / name).read_text() for name in texts} == moved


def test_prepared_transactions_are_found_where_they_are_now(tmp_path: Path) -> None:
    """A commit names the place of what was prepared, which may move, stay in another file, or be lost."""
    path = tmp_path / "store"
    config = MessageStoreConfig(mapped_file_size_commit_log=4096, max_hash_slot_num=100, max_index_num=400)
    prepared = []
    with MessageStore.open(path, config) as store:
        for row in range(60):
            half = MessageExtBrokerInner(topic="t", body=b"half %d" % row, sys_flag=4, queue_id=0)
            prepared.append(store.put_message(half).physical_offset)
            done = MessageExtBrokerInner(
                topic="t", body=b"%d" % row, sys_flag=8, queue_id=0, prepared_transaction_offset=prepared[row]
            )
            assert store.put_message(done).status is PutMessageStatus.PUT_OK
    lost = 3
    with (path / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(prepared[lost] + 90)
        file.write(b"XXXX")
    report = salvage_store(path, tmp_path / "target", config=config)
    (topic,) = report.topics
    assert (topic.prepared, topic.committed, topic.found, topic.lost) == (59, 60, 60, 0)
    assert (report.lost_references, len(report.unreadable)) == (1, 1)
    with StoreReader.open(tmp_path / "target") as reader:
        columns = ["body", "preparedTransactionOffset"]
        rows = [row for batch in reader.read("t", 0, 0, columns=columns) for row in batch.to_pylist()]
        assert len(rows) == 60
        for row in rows:
            place = row["preparedTransactionOffset"]
            wanted = 0 if int(row["body"]) == lost else prepared[int(row["body"])]
            assert place == wanted or wanted - 200 < place < wanted < 4096
            if wanted:
                assert reader.message_at(place).body == b"half " + row["body"]


def test_the_store_takes_messages_and_rebuilds(tmp_path: Path) -> None:
    store = damaged(tmp_path / "damaged", RECORDS[100].start + 10, b"\0\0\0\0")
    salvage_store(store, tmp_path / "target", config=SMALL_INDEX)
    before = messages(tmp_path / "target")
    with MessageStore.open(tmp_path / "target", SMALL_INDEX) as opened:
        assert opened.recovered is None  # it was closed
    with MessageStore.open(tmp_path / "target", SMALL_INDEX, rebuild=True):
        pass
    assert messages(tmp_path / "target") == before
    assert verify_store(tmp_path / "target") == []


def test_the_source_is_not_touched(tmp_path: Path) -> None:
    store = shutil.copytree(GOLDEN_498, tmp_path / "store")
    for path in (store, *store.rglob("*")):
        os.chmod(path, 0o555 if path.is_dir() else 0o444)
    before = snapshot(store)
    try:
        salvage_store(store)
        salvage_store(store, tmp_path / "target", config=SMALL_INDEX)
        salvage_store(store, f"ndjson:{tmp_path / 'lines'}")
        assert snapshot(store) == before
    finally:
        for path in (store, *store.rglob("*")):
            os.chmod(path, 0o755)


def test_the_log_alone_is_enough(tmp_path: Path) -> None:
    whole = salvage_store(GOLDEN_498)
    for path in (damaged(tmp_path / "log", 0, b""), tmp_path / "log" / "commitlog"):
        report = salvage_store(path)
        assert (report.topics, report.records, report.target) == (whole.topics, whole.records, None)
    with pytest.raises(StoreNotFound):
        salvage_store(tmp_path / "none")
    with pytest.raises(NotAStore, match="20 digits"):
        salvage_store(GOLDEN_498 / "index")


def test_a_missing_file_becomes_a_blank_one_of_the_same_name(tmp_path: Path) -> None:
    store = damaged(tmp_path / "damaged", 0, b"")
    log_file(store, FILE_SIZE).unlink()
    report = salvage_store(store, tmp_path / "target", config=SMALL_INDEX)
    assert [one[:2] for one in report.unreadable] == [(FILE_SIZE, 2 * FILE_SIZE)]
    assert report.records == sum(not FILE_SIZE <= one.start < 2 * FILE_SIZE for one in RECORDS)
    last = log_file(tmp_path / "target", 2 * FILE_SIZE)
    with StoreReader.open(tmp_path / "target") as reader:
        assert reader.physical_bounds() == (0, LOG_END)
    assert last.stat().st_size == FILE_SIZE
    assert log_file(tmp_path / "target", FILE_SIZE).stat().st_blocks * 512 < FILE_SIZE
    assert sum(messages(tmp_path / "target").values()) == report.found
    assert_clean(tmp_path / "target")
    with MessageStore.open(tmp_path / "target", SMALL_INDEX, rebuild=True):
        pass
    assert_clean(tmp_path / "target")


def test_the_head_of_the_log_may_be_missing(tmp_path: Path) -> None:
    store = damaged(tmp_path / "damaged", 0, b"")
    log_file(store, 0).unlink()
    report = salvage_store(store, tmp_path / "target", config=SMALL_INDEX)
    assert report.is_whole  # as after retention
    names = sorted(path.name for path in (tmp_path / "target" / "commitlog").iterdir())
    assert names == [log_file(store, FILE_SIZE).name, log_file(store, 2 * FILE_SIZE).name]
    assert_clean(tmp_path / "target")


def test_a_piece_that_begins_with_zeros_loses_nothing(tmp_path: Path) -> None:
    """As the directories are in which opening and repair keep what they cut."""
    first = RECORDS[-60].start
    store = tmp_path / "piece"
    (store / "commitlog").mkdir(parents=True)
    file = log_file(store, first)
    data = log_file(GOLDEN_498, first).read_bytes()
    at = first % FILE_SIZE
    file.write_bytes(bytes(at) + data[at:])
    report = salvage_store(store, tmp_path / "target", config=SMALL_INDEX)
    assert report.records == 60
    assert not [one for one in report.unreadable if one.start >= first]
    assert_clean(tmp_path / "target")


def test_a_short_file_and_a_zeroed_tail_lose_what_they_held(tmp_path: Path) -> None:
    store = damaged(tmp_path / "damaged", 0, b"")
    os.truncate(log_file(store, 0), 100_000)
    os.truncate(log_file(store, 2 * FILE_SIZE), 0)
    os.truncate(log_file(store, 2 * FILE_SIZE), FILE_SIZE)
    report = salvage_store(store, tmp_path / "target", config=SMALL_INDEX)
    kept = [one for one in RECORDS if one.stop <= 100_000 or FILE_SIZE <= one.start < 2 * FILE_SIZE]
    assert report.records == len(kept)
    assert [one[:2] for one in report.unreadable][-1] == (100_000, FILE_SIZE)
    assert_clean(tmp_path / "target")


def test_files_that_were_swapped_are_taken_for_what_they_hold(tmp_path: Path) -> None:
    store = damaged(tmp_path / "damaged", 0, b"")
    one, other = log_file(store, 0), log_file(store, FILE_SIZE)
    one.rename(store / "aside")
    other.rename(one)
    (store / "aside").rename(other)
    report = salvage_store(store, tmp_path / "target", config=SMALL_INDEX)
    assert report.misnamed == [(one.name, other.name), (other.name, one.name)]
    assert report.records == len(RECORDS)
    assert not report.unreadable
    assert messages(tmp_path / "target") == MESSAGES


def test_targets_that_are_in_use_or_in_the_source_are_refused(tmp_path: Path) -> None:
    store = damaged(tmp_path / "damaged", 0, b"")
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").write_text("mine")
    (tmp_path / "link").symlink_to(store)
    for target in (
        tmp_path / "used",
        tmp_path / "used" / "file",
        f"parquet:{tmp_path / 'used'}",
        f"ndjson:{tmp_path / 'used' / 'file'}",
        f"csv:{tmp_path / 'used'}",
        store,
        store / "new",
        tmp_path / "link" / "new",
        f"parquet:{store / 'new'}",
    ):
        before = snapshot(tmp_path)
        with pytest.raises(InvalidValue, match=r"give another target|begins in an empty|takes (one|a file)"):
            salvage_store(store, target, config=SMALL_INDEX)
        assert snapshot(tmp_path) == before


def test_a_target_beside_the_log_that_is_salvaged_is_refused(tmp_path: Path) -> None:
    """The store whose log it is must not change either."""
    store = damaged(tmp_path / "damaged", 0, b"")
    for target in (store / "new", f"ndjson:{store / 'rows'}"):
        with pytest.raises(InvalidValue, match="give another target"):
            salvage_store(store / "commitlog", target, config=SMALL_INDEX)


def test_a_misspelled_kind_of_file_is_not_taken_for_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidValue, match=r"not to 'parqet:out'\. For a directory of that name give \./parqet:out"):
        salvage_store(GOLDEN_498, "parqet:out", config=SMALL_INDEX)
    assert not list(tmp_path.iterdir())
    salvage_store(GOLDEN_498, "./parqet:out", config=SMALL_INDEX)
    assert messages(tmp_path / "parqet:out") == MESSAGES


def test_files_hold_the_visible_messages_with_their_old_offsets(tmp_path: Path) -> None:
    store = damaged(tmp_path / "damaged", RECORDS[100].start + 90, b"XXXX")
    report = salvage_store(store, f"parquet:{tmp_path / 'parquet'}")
    salvage_store(store, f"ndjson:{tmp_path / 'lines'}")
    salvage_store(store, tmp_path / "target", config=SMALL_INDEX)
    rows = pa_dataset.dataset(tmp_path / "parquet", partitioning="hive").to_table().to_pylist()
    lines = [json.loads(line) for line in (tmp_path / "lines").read_text().splitlines()]
    assert len(rows) == len(lines) == report.found
    with StoreReader.open(GOLDEN_498) as reader:
        for row, line in zip(rows[::50], lines[::50], strict=True):
            assert reader.message_at(row["physicalOffset"]).body == row["body"]
            there = reader.message_at(line["physicalOffset"])
            assert (there.queue_offset, there.topic, there.queue_id) == tuple(
                line[name] for name in ("queueOffset", "topic", "queueId")
            )


def test_progress_counts_both_walks(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    salvage_store(GOLDEN_498, tmp_path / "target", config=SMALL_INDEX, progress=lambda *now: seen.append(now))
    assert seen == sorted(seen)
    assert {total for _, total in seen} == {2 * FILE_SIZE * len(list((GOLDEN_498 / "commitlog").iterdir()))}
    assert seen[-1][1] // 2 < seen[-1][0] <= seen[-1][1]


def test_a_log_of_later_files_without_a_record_gives_a_store_that_opens(tmp_path: Path) -> None:
    """Its checkpoint would name an end that no file has."""
    log, target = tmp_path / "store" / "commitlog", tmp_path / "target"
    log.mkdir(parents=True)
    (log / f"{65536:020}").write_bytes(bytes(65536))
    assert salvage_store(log, target).records == 0
    assert_clean(target)
    with MessageStore.open(target, MessageStoreConfig.embedded()) as store:
        assert store.put("orders", b"first").queue_offset == 0
