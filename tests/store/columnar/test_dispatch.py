"""Units and index entries made from the log alone are those that RocketMQ made."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog_store.columnar.dispatch import DispatchRequests, dispatch_requests, index_entries, units_by_queue
from commitlog_store.columnar.scan import RecordScan, scan_records
from commitlog_store.format import sys_flag
from commitlog_store.format.consume_queue_unit import UNIT_FILE_DTYPE, UNIT_SIZE
from commitlog_store.format.index_file import ENTRY_SIZE, HEADER_SIZE, INDEX_ENTRY_DTYPE, SLOT_SIZE, decode_header
from commitlog_store.format.java_hash import index_key_hash
from commitlog_store.format.properties import decode_properties, decode_utf8
from commitlog_store.format.record import Filler, Record, Unwritten
from tests.store.columnar.log_stretches import as_array, record_of, stretch
from tests.store.columnar.record_blocks import one_record, plain_record
from tests.support.encoders import tags_code
from tests.support.golden import GOLDEN, ROCKETMQ_498, ROCKETMQ_533

BASE = 4096
# RocketMQ's default levels: "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h".
DELAYS_MS = [seconds * 1000 for seconds in (1, 5, 10, 30, *range(60, 601, 60), 1200, 1800, 3600, 7200)]
INDEX_SLOTS = 1000
ROW_FIELDS = [one.name for one in fields(DispatchRequests) if one.name not in ("topics", "light")]


def scan_of(records: list[Record]) -> RecordScan:
    scan = scan_records(as_array(stretch(records, BASE)), BASE, check_crc=True)
    assert scan.stop is None
    return scan


def requests_of(*records: Record) -> DispatchRequests:
    return dispatch_requests(scan_of(list(records)), DELAYS_MS)


def golden_scans(name: str) -> list[RecordScan]:
    scans = []
    for path in sorted((GOLDEN / name / "store" / "commitlog").iterdir()):
        scan = scan_records(as_array(path.read_bytes()), int(path.name), check_crc=True)
        assert scan.stop is None or isinstance(scan.stop, Filler | Unwritten)
        scans.append(scan)
    return scans


def queue_files(name: str) -> dict[tuple[str, int], np.ndarray]:
    """All units of every queue that RocketMQ wrote, up to the first unwritten one."""
    queues = {}
    root: Path = GOLDEN / name / "store" / "consumequeue"
    for directory in root.glob("*/*"):
        files = sorted(directory.iterdir())
        assert int(files[0].name) == 0
        assert [int(file.name) for file in files] == [2000 * UNIT_SIZE * index for index in range(len(files))]
        units = np.frombuffer(b"".join(file.read_bytes() for file in files), UNIT_FILE_DTYPE)
        queues[directory.parent.name, int(directory.name)] = units[: np.count_nonzero(units["size"])]
    return queues


@pytest.mark.parametrize("name", [ROCKETMQ_533, ROCKETMQ_498])
def test_units_of_golden_logs_are_the_queue_files_of_rocketmq(name: str) -> None:
    rebuilt: dict[tuple[str, int], dict[int, bytes]] = {}
    for scan in golden_scans(name):
        for topic, queue_id, offsets, units, _ in units_by_queue(dispatch_requests(scan, DELAYS_MS)):
            queue = rebuilt.setdefault((topic, queue_id), {})
            for offset, unit in zip(offsets.tolist(), units, strict=True):
                assert offset not in queue
                queue[offset] = unit.tobytes()
    written = queue_files(name)
    assert rebuilt.keys() == written.keys()
    for key, units in written.items():
        assert sorted(rebuilt[key]) == list(range(len(units)))
        assert b"".join(unit for _, unit in sorted(rebuilt[key].items())) == units.tobytes()


@pytest.mark.parametrize("name", [ROCKETMQ_533, ROCKETMQ_498])
def test_index_entries_of_golden_logs_are_those_of_rocketmq(name: str) -> None:
    rebuilt: list[tuple[int, int]] = []
    for scan in golden_scans(name):
        requests = dispatch_requests(scan, DELAYS_MS)
        hashes, rows = index_entries(scan)
        rebuilt += zip(hashes.tolist(), requests.physical_offsets[rows].tolist(), strict=True)
    written: list[tuple[int, int]] = []
    for path in sorted((GOLDEN / name / "store" / "index").iterdir()):
        data = path.read_bytes()
        count = decode_header(data[:HEADER_SIZE]).index_count - 1
        first = HEADER_SIZE + SLOT_SIZE * INDEX_SLOTS + ENTRY_SIZE
        entries = np.frombuffer(data, INDEX_ENTRY_DTYPE, count, first)
        written += zip(entries["key_hash"].tolist(), entries["physical_offset"].tolist(), strict=True)
    assert written
    assert rebuilt == written


@given(st.lists(one_record(), max_size=6))
def test_requests_are_what_the_records_say(records: list[Record]) -> None:
    scan = scan_of(records)
    requests = dispatch_requests(scan, DELAYS_MS)
    assert len(requests) == len(records)
    assert requests.physical_offsets.tolist() == (scan.positions + BASE).tolist()
    assert requests.sizes.tolist() == [record.total_size for record in records]
    assert requests.store_timestamps.tolist() == [record.store_timestamp for record in records]
    assert [requests.topics[code] for code in requests.topic_codes] == [decode_utf8(r.topic) for r in records]
    properties = [decode_properties(record.properties) for record in records]
    assert requests.tags_codes.tolist() == [tags_code(one.get("TAGS")) for one in properties]
    assert requests.has_unit.tolist() == [sys_flag.has_queue_unit(record.sys_flag) for record in records]
    expected = []
    for row, (record, one) in enumerate(zip(records, properties, strict=True)):
        if sys_flag.transaction_type(record.sys_flag) != sys_flag.TRANSACTION_ROLLBACK_TYPE:
            texts = [one["UNIQ_KEY"]] if "UNIQ_KEY" in one else []
            texts += [key for key in one.get("KEYS", "").split(" ") if key]
            expected += [(index_key_hash(f"{decode_utf8(record.topic)}#{text}"), row) for text in texts]
    hashes, rows = index_entries(scan)
    assert list(zip(hashes.tolist(), rows.tolist(), strict=True)) == expected


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from([0, 1, 7, -1, 2**31 - 1])), max_size=30))
def test_units_keep_the_order_of_the_log(places: list[tuple[str, int]]) -> None:
    """Queue ids may be any number: what groups the rows must not run over."""
    records = [
        record_of(topic, f"TAGS\x01t{index}\x02", queue_id=queue_id, queue_offset=index)
        for index, (topic, queue_id) in enumerate(places)
    ]
    found = {}
    for topic, queue_id, offsets, units, _ in units_by_queue(requests_of(*records)):
        assert (topic, queue_id) not in found
        assert units.dtype == UNIT_FILE_DTYPE
        assert units["tags_code"].tolist() == [tags_code(f"t{index}") for index in offsets]
        found[topic, queue_id] = offsets.tolist()
    expected: dict[tuple[str, int], list[int]] = {}
    for index, place in enumerate(places):
        expected.setdefault(place, []).append(index)
    assert found == expected


@pytest.mark.parametrize("store", [ROCKETMQ_498, ROCKETMQ_533])
def test_a_record_alone_has_the_unit_that_it_has_among_others(store: str) -> None:
    for scan in golden_scans(store):
        requests = dispatch_requests(scan, DELAYS_MS)
        together = {
            (one.topic, one.queue_id, offset): unit.tobytes()
            for one in units_by_queue(requests)
            if not one.light
            for offset, unit in zip(one.queue_offsets.tolist(), one.units, strict=True)
        }
        alone = {}
        for row in range(len(requests)):
            values = {name: getattr(requests, name)[row : row + 1] for name in ROW_FIELDS}
            for one in units_by_queue(DispatchRequests(**values, topics=requests.topics)):
                alone[one.topic, one.queue_id, int(one.queue_offsets[0])] = one.units.tobytes()
        assert alone == together


def test_prepared_and_rolled_back_messages_get_no_unit_and_only_the_first_is_indexed() -> None:
    kinds = [0, sys_flag.TRANSACTION_PREPARED_TYPE, sys_flag.TRANSACTION_COMMIT_TYPE]
    kinds.append(sys_flag.TRANSACTION_ROLLBACK_TYPE)
    scan = scan_of([record_of("t", "KEYS\x01k", flags=kind, queue_offset=at) for at, kind in enumerate(kinds)])
    requests = dispatch_requests(scan, DELAYS_MS)
    (queue,) = units_by_queue(requests)
    assert queue.queue_offsets.tolist() == [0, 2]
    assert index_entries(scan).rows.tolist() == [0, 1, 2]
    assert list(units_by_queue(requests_of(record_of(flags=sys_flag.TRANSACTION_PREPARED_TYPE)))) == []


@pytest.mark.parametrize(
    ("delay", "expected"),
    [
        ("DELAY\x012", 10 + 5000),
        ("DELAY\x01+1", 10 + 1000),
        ("DELAY\x0118", 10 + 7_200_000),
        ("DELAY\x0199", 10 + 7_200_000),
        ("DELAY\x010", tags_code("a")),
        ("DELAY\x01-3", tags_code("a")),
        ("DELAY\x01x", tags_code("a")),
        ("DELAY\x012147483648", tags_code("a")),
        ("DELAY\x01 1", tags_code("a")),
        ("WAIT\x01true", tags_code("a")),
    ],
)
def test_tags_code_of_a_delayed_message_is_its_time_of_delivery(delay: str, expected: int) -> None:
    properties = f"TAGS\x01a\x02{delay}\x02"
    schedule = record_of("SCHEDULE_TOPIC_XXXX", properties, store_timestamp=10)
    assert requests_of(schedule, record_of("t", properties)).tags_codes.tolist() == [expected, tags_code("a")]
    assert dispatch_requests(scan_of([schedule]), []).tags_codes.tolist() == [tags_code("a")]


def test_light_queues_get_units_too() -> None:
    light = "INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02INNER_MULTI_QUEUE_OFFSET\x013,4\x02"
    more = "INNER_MULTI_DISPATCH\x01%LMQ%b\x02INNER_MULTI_QUEUE_OFFSET\x015\x02"
    records = [record_of("t", light), record_of("t", "TAGS\x01x", queue_offset=1), record_of("u", more)]
    requests = requests_of(*records)
    found = {(one.topic, one.queue_id): one for one in units_by_queue(requests)}
    assert {key: one.queue_offsets.tolist() for key, one in found.items()} == {
        ("t", 3): [0, 1],
        ("u", 3): [0],
        ("%LMQ%a", 0): [3],
        ("%LMQ%b", 0): [4, 5],
    }
    assert found["%LMQ%b", 0].units["physical_offset"].tolist() == requests.physical_offsets[[0, 2]].tolist()


@pytest.mark.parametrize(
    ("topic", "queues", "offsets", "expected"),
    [
        ("t", "a,b", "1,2", {("a", 3): [1], ("b", 3): [2]}),  # no light queues: the message's own queue id
        ("t", "t", "9", {("t", 3): [9]}),
        ("t", "%LMQ%a,%LMQ%b", "1", {}),
        ("t", "%LMQ%a", "x", {}),
        ("t", "%LMQ%a,%LMQ%b,", "-1,9223372036854775807", {("%LMQ%b", 0): [2**63 - 1]}),
        ("t", "%LMQ%a,%LMQ%b", "9223372036854775808,٣", {}),
        ("t", "%LMQ%a/b,%LMQ%c", "1,2", {("%LMQ%c", 0): [2]}),
        ("t", "..,.,a\0b,%LMQ%c", "1,2,3,4", {("%LMQ%c", 0): [4]}),  # these can be no directories
        ("t", f"{'x' * 256},{'ä' * 128},{'x' * 255}", "1,2,3", {("x" * 255, 3): [3]}),
        ("%RETRY%g", "%LMQ%a", "1", {}),
        ("rmq_sys_x", "%LMQ%a", "1", {}),
        ("SCHEDULE_TOPIC_XXXX", "%LMQ%a", "1", {}),
        ("SCHEDULE_TOPIC_XXXX2", "%LMQ%a", "1", {("%LMQ%a", 0): [1]}),
    ],
)
def test_invalid_light_queues_get_no_units(
    topic: str, queues: str, offsets: str, expected: dict[tuple[str, int], list[int]]
) -> None:
    properties = f"INNER_MULTI_DISPATCH\x01{queues}\x02INNER_MULTI_QUEUE_OFFSET\x01{offsets}\x02"
    own, *light = units_by_queue(requests_of(record_of(topic, properties)))
    assert (own.topic, own.queue_id, own.queue_offsets.tolist(), own.light) == (topic, 3, [0], False)
    assert {(one.topic, one.queue_id): one.queue_offsets.tolist() for one in light} == expected
    assert all(one.light for one in light)


def test_prepared_message_gets_no_unit_in_light_queues() -> None:
    properties = "INNER_MULTI_DISPATCH\x01%LMQ%a\x02INNER_MULTI_QUEUE_OFFSET\x011\x02"
    assert list(units_by_queue(requests_of(record_of("t", properties, flags=sys_flag.TRANSACTION_PREPARED_TYPE)))) == []


def test_no_records_and_no_properties_give_no_units_and_no_entries() -> None:
    empty = scan_records(as_array(b""), BASE, check_crc=True)
    requests = dispatch_requests(empty, DELAYS_MS)
    assert (len(requests), list(units_by_queue(requests)), index_entries(empty).rows.tolist()) == (0, [], [])
    bare = scan_of([plain_record(properties=b"")] * 3)
    requests = dispatch_requests(bare, DELAYS_MS)
    assert requests.tags_codes.tolist() == [0, 0, 0]
    assert index_entries(bare).key_hashes.tolist() == []


def test_keys_are_put_in_order_of_the_log() -> None:
    texts = [
        "KEYS\x01b  c ",
        "UNIQ_KEY\x01u",
        "UNIQ_KEY\x01v\x02KEYS\x01d",
        "",
        "KEYS\x01 ",
        "KEYS\x01e e\x02UNIQ_KEY\x01w",
    ]
    scan = scan_of([record_of("t", text) for text in texts])
    entries = index_entries(scan)
    assert entries.rows.tolist() == [0, 0, 1, 2, 2, 5, 5, 5]
    assert entries.key_hashes.tolist() == [index_key_hash("t#" + key) for key in "bcuvdwee"]
    assert entries.key_hashes.dtype == np.dtype(np.int32)
    assert isinstance(scan.properties.text("KEYS"), pa.StringArray)


def test_topics_of_bad_text_that_read_alike_are_one_topic() -> None:
    records = [record_of("t"), record_of("ab"), record_of("ab")]
    data = bytearray(stretch(records, BASE))
    at = records[0].total_size + 88 + 5 + 1
    data[at : at + 2] = b"\xffb"
    data[at + records[1].total_size : at + records[1].total_size + 2] = b"\xfeb"
    requests = dispatch_requests(scan_records(as_array(bytes(data)), BASE, check_crc=True), DELAYS_MS)
    assert requests.topics == ["t", "\ufffdb"]
    assert requests.topic_codes.tolist() == [0, 1, 1]
