"""Selective reads of a store: the rows are those of a whole read, filtered, and nothing else is touched."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from commitlog_store import (
    ALL_COLUMNS,
    Message,
    MessageFilter,
    MessageStore,
    MessageStoreConfig,
    StoreReader,
)
from commitlog_store.errors import CorruptRecord, FileMissing, FilterError, InvalidValue
from commitlog_store.format.consume_queue_unit import UNIT_FILE_DTYPE, UNIT_SIZE
from tests.support.filter_rows import FilterRows
from tests.support.store_builder import StoreBuilder

TAGS = ("paid", "sent", "Aa", "BB", "späť")
LOG_FILE = 32 << 10
FILTERS: tuple[dict[str, Any], ...] = (
    {"tags": "paid"},
    {"tags": "Aa || späť"},
    {"tags": "none"},
    {"tags": "*"},
    {"filter": "amount > 50 AND region IN ('eu', 'us')"},
    {"filter": "region IS NULL OR TAGS = 'sent'"},
    {"filter": "TAGS IN ('sent', 'Aa') AND amount > 20"},
    {"filter": "TAGS = 'sent' AND TAGS = 'Aa'"},
    {"filter": "amount > 5000"},
    {"keys": ["k7", "k8"]},
    {"keys": "k1 k2", "tags": "paid || sent || BB", "filter": "NOT (amount BETWEEN 10 AND 20)"},
)


@pytest.fixture
def built(tmp_path: Path) -> StoreBuilder:
    """600 messages in two queues, in files of 32 KiB: properties differ in names, order and number."""
    source = random.Random(5)
    builder = StoreBuilder(tmp_path / "store", log_file_size=LOG_FILE)
    builder.pad_queue("orders", 1, 7)
    for start in range(0, 600, 100):
        even = start % 300 == 0
        amounts = [f"amount\x01{source.choice(('n/a', source.randint(0, 100)))}\x02" for _ in range(100)]
        regions = [source.choice(("", "region\x01eu\x02", "region\x01us\x02region\x01asia\x02")) for _ in range(100)]
        builder.append(
            "orders",
            [0, 1],
            [f"body {start + row}".encode() * source.randint(1, 9) for row in range(100)],
            tags=[source.choice(TAGS) for _ in range(100)],
            keys=[f"k{source.randint(0, 20)} x" for _ in range(100)],
            more=amounts if even else [a + b for a, b in zip(amounts, regions, strict=True)],
        )
    return builder


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    found = list(batches)
    assert all(batch.num_rows for batch in found)
    return [row for batch in found for row in batch.to_pylist()]


def matching(rows: list[dict[str, Any]], given: Mapping[str, Any]) -> list[dict[str, Any]]:
    wanted = MessageFilter.parse(**given)
    return [
        row
        for row, kept in zip(rows, wanted.matches(FilterRows([dict(row["properties"]) for row in rows])), strict=True)
        if kept
    ]


@pytest.mark.parametrize("from_log", [False, True])
@pytest.mark.parametrize("given", FILTERS, ids=str)
def test_the_rows_are_those_of_a_whole_read(built: StoreBuilder, given: dict[str, Any], from_log: bool) -> None:
    with StoreReader.open(built.path, from_log=from_log) as reader:
        for queue_id in (0, 1):
            low = reader.queue_info("orders", queue_id).min_offset
            everything = rows_of(reader.read("orders", queue_id, low, columns=ALL_COLUMNS))
            limits: tuple[dict[str, Any], ...] = ({}, {"max_batch_rows": 7}, {"max_batch_bytes": 2_000})
            for options in limits:
                batches = reader.read("orders", queue_id, low, columns=ALL_COLUMNS, **options, **given)
                assert rows_of(batches) == matching(everything, given)
                assert batches.position == reader.queue_info("orders", queue_id).max_offset
            part = reader.read("orders", queue_id, low + 11, low + 250, columns=ALL_COLUMNS, **given)
            assert rows_of(part) == matching(everything[11:250], given)


def test_a_filter_of_the_columns_needs_none_of_them(built: StoreBuilder) -> None:
    with StoreReader.open(built.path) as reader:
        batches = list(reader.read("orders", 0, 0, columns=["queueOffset"], tags="paid", filter="amount > 50"))
    assert {tuple(batch.schema.names) for batch in batches} == {("queueOffset",)}


def test_the_position_moves_over_messages_that_do_not_match(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("t", 0, [b"x"] * 300, tags=["rare" if row in (10, 200) else "often" for row in range(300)])
    with StoreReader.open(builder.path) as reader:
        batches = reader.read("t", 0, 5, 290, columns=["queueOffset"], max_batch_rows=50, filter="TAGS CONTAINS 'rare'")
        assert batches.position == 5
        assert next(batches).column(0).to_pylist() == [10]
        assert 11 <= batches.position <= 200
        assert next(batches).column(0).to_pylist() == [200]
        assert list(batches) == []
        assert batches.position == 290


def poke(builder: StoreBuilder, at: int, data: bytes) -> None:
    path = builder.path / "commitlog" / f"{at // builder.log_file_size * builder.log_file_size:020d}"
    with path.open("r+b") as file:
        file.seek(at % builder.log_file_size)
        file.write(data)


def poke_tags_code(builder: StoreBuilder, topic: str, offset: int, code: int) -> None:
    (path,) = (builder.path / "consumequeue" / topic / "0").iterdir()
    with path.open("r+b") as file:
        file.seek(offset * UNIT_SIZE + 12)
        file.write(struct.pack(">q", code))


def test_units_decide_before_any_record_is_touched(tmp_path: Path) -> None:
    """Records of other tags are damaged, and a file that holds none of the wanted is missing."""
    builder = StoreBuilder(tmp_path / "store", log_file_size=4096)
    tags = ["paid" if 40 <= row < 50 else "sent" for row in range(100)]
    places = builder.append("t", 0, [b"x" * 100] * 100, tags=tags).tolist()
    for row in (39, 50):
        poke(builder, places[row] + 4, b"\xff\xff\xff\xff")
    (builder.path / "commitlog" / f"{places[70] // 4096 * 4096:020d}").unlink()
    with StoreReader.open(builder.path) as reader:
        found = rows_of(reader.read("t", 0, 0, columns=["queueOffset"], tags="paid"))
        assert [row["queueOffset"] for row in found] == list(range(40, 50))
        assert rows_of(reader.read("t", 0, 0, columns=["queueOffset"], filter="TAGS = 'paid'")) == found
        with pytest.raises(CorruptRecord, match="offset 39"):
            rows_of(reader.read("t", 0, 0, columns=["queueOffset"], filter="TAGS STARTSWITH 'paid'"))
        with pytest.raises(FileMissing):
            rows_of(reader.read("t", 0, 51, columns=["queueOffset"], tags="sent"))


@pytest.mark.parametrize("code", [1_700_000_000_000, -(2**63) + 60, -(2**63)])
def test_units_with_times_and_addresses_leave_it_to_the_record(tmp_path: Path, code: int) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("t", 0, [b"x"] * 10, tags=["paid", "sent"] * 5)
    for offset in range(4):
        poke_tags_code(builder, "t", offset, code)
    with StoreReader.open(builder.path) as reader:
        found = rows_of(reader.read("t", 0, 0, columns=["queueOffset"], tags="paid"))
    assert [row["queueOffset"] for row in found] == [0, 2, 4, 6, 8]


def test_delayed_messages_are_found_by_their_tags(tmp_path: Path) -> None:
    """Their units hold the time of delivery."""
    config = MessageStoreConfig(mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=2000)
    with MessageStore.open(tmp_path / "store", config) as store:
        for number in range(10):
            message = Message(
                queue_id=0, topic="t", body=b"%d" % number, tags=("a", "b")[number % 2], properties={"DELAY": "3"}
            )
            assert store.put_message(message).ok
        store.flush()
    with StoreReader.open(tmp_path / "store") as reader:
        found = rows_of(reader.read("SCHEDULE_TOPIC_XXXX", 2, 0, columns=["body"], tags="b"))
    assert [row["body"] for row in found] == [b"1", b"3", b"5", b"7", b"9"]


def test_light_queues_are_filtered_as_others(tmp_path: Path) -> None:
    """Their units lead to messages of another queue."""
    builder = StoreBuilder(tmp_path / "store")
    builder.append("t", 0, [b"x"] * 20, tags=["a", "b"] * 10, more=[f"n\x01{row}\x02" for row in range(20)])
    (path,) = (builder.path / "consumequeue" / "t" / "0").iterdir()
    builder.write_units("%LMQ%one", 0, 0, np.fromfile(path, UNIT_FILE_DTYPE)[10:20])
    with StoreReader.open(builder.path) as reader:
        found = rows_of(reader.read("%LMQ%one", 0, 0, columns=["queueOffset"], tags="b", filter="n > 15"))
    assert [row["queueOffset"] for row in found] == [7, 9]


def test_bodies_of_other_messages_are_not_checked(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store", log_file_size=1 << 20)
    places = builder.append("t", 0, [b"x" * 100] * 100, more=[f"n\x01{row}\x02" for row in range(100)]).tolist()
    for row in (20, 60):
        poke(builder, places[row] + 88 + 50, b"damage")
    with StoreReader.open(builder.path) as reader:
        expression = "n > 40 AND n <> 60"
        found = rows_of(reader.read("t", 0, 0, columns=["body"], filter=expression, verify_crc=True))
        assert len(found) == 58
        with pytest.raises(CorruptRecord, match=r"BODYCRC.*offset 60"):
            rows_of(reader.read("t", 0, 0, columns=["body"], filter="n > 40", verify_crc=True))


def test_damage_among_those_that_match_is_skipped(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store", log_file_size=1 << 20)
    more = [f"n\x01{row}\x02" for row in range(100)]
    places = builder.append("t", 0, [b"x" * 100] * 100, tags=["a", "b"] * 50, more=more).tolist()
    for row in (20, 30, 61):
        poke(builder, places[row] + 4, b"\xff\xff\xff\xff")
    with StoreReader.open(builder.path, on_damage="skip") as reader:
        found = rows_of(reader.read("t", 0, 0, columns=["queueOffset"], tags="a", filter="n > 10"))
        assert [row["queueOffset"] for row in found] == [row for row in range(12, 100, 2) if row not in (20, 30)]
        assert [(gap.start, gap.stop) for gap in reader.skipped] == [(20, 21), (30, 31)]


def test_lost_messages_are_reported_whatever_the_filter(tmp_path: Path) -> None:
    """What a lost message had is not known."""
    builder = StoreBuilder(tmp_path / "store", log_file_size=1 << 20)
    places = builder.append("t", 0, [b"x" * 100] * 100, tags=["a"] * 40 + ["b"] * 60).tolist()
    poke(builder, places[50] + 4, b"\xff\xff\xff\xff")
    with StoreReader.open(builder.path, from_log=True) as reader:
        assert len(rows_of(reader.read("t", 0, 0, 50, tags="a"))) == 40
        with pytest.raises(CorruptRecord, match=r"\[50, 51\)"):
            rows_of(reader.read("t", 0, 0, tags="a"))
        found = rows_of(reader.read("t", 0, 0, tags="b", on_damage="skip"))
        assert [row["queueOffset"] for row in found] == [*range(40, 50), *range(51, 100)]
        assert [(gap.start, gap.stop) for gap in reader.skipped] == [(50, 51)]


def test_bodies_that_unpack_to_much_are_given_in_small_batches(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store", log_file_size=1 << 20)
    plain = [bytes([row]) * 50_000 for row in range(60)]
    builder.append(
        "t", 0, [zlib.compress(one) for one in plain], sys_flag=1, more=[f"n\x01{row}\x02" for row in range(60)]
    )
    with StoreReader.open(builder.path) as reader:
        batches = list(reader.read("t", 0, 0, columns=["body"], filter="n >= 20", max_batch_bytes=200_000))
    assert [row["body"] for row in rows_of(batches)] == plain[20:]
    assert max(batch.nbytes for batch in batches) < 210_000


def test_sparse_matches_come_in_large_batches(tmp_path: Path) -> None:
    """Messages that lie far apart are read one by one, and the bytes between them limit no batch."""
    builder = StoreBuilder(tmp_path / "store", log_file_size=256 << 20, queue_file_units=300_000)
    count = 70_000
    tags = np.where(np.arange(count) % 1_000 == 0, "rare", "often").tolist()
    builder.append("t", 0, [b"x" * 1_000] * count, tags=tags)
    with StoreReader.open(builder.path) as reader:
        (batch,) = reader.read("t", 0, 0, columns=["queueOffset"], tags="rare")
    assert batch.column(0).to_pylist() == list(range(0, count, 1_000))


def test_a_ready_filter_is_taken_as_it_is(built: StoreBuilder) -> None:
    wanted = MessageFilter.parse(tags="paid")
    with StoreReader.open(built.path) as reader:
        assert rows_of(reader.read("orders", 0, 0, filter=wanted)) == rows_of(reader.read("orders", 0, 0, tags="paid"))
        with pytest.raises(InvalidValue, match="MessageFilter"):
            reader.read("orders", 0, 0, filter=wanted, tags="paid")
        with pytest.raises(FilterError):
            reader.read("orders", 0, 0, filter="amount >")


def test_a_golden_store_gives_each_tag(golden_533: Path, expected_533: dict[str, list[dict[str, Any]]]) -> None:
    """What RocketMQ wrote: batches, prepared messages, records of both versions."""
    with StoreReader.open(golden_533) as reader:
        for topic in reader.topics():
            messages = [message for message in expected_533["message"] if message["topic"] == topic]
            for tag in {message.get("tags") or "none" for message in messages}:
                expected = [message["physicalOffset"] for message in messages if message.get("tags") == tag]
                found = [
                    row["physicalOffset"]
                    for info in reader.queues(topic)
                    for row in rows_of(
                        reader.read(topic, info.queue_id, info.min_offset, columns=["physicalOffset"], tags=tag)
                    )
                ]
                assert sorted(found) == sorted(expected), (topic, tag)
