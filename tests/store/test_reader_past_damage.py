"""Reading a damaged store: from the log alone, and past damaged records and units."""

from __future__ import annotations

import logging
import pickle
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from commitlog_store import ALL_COLUMNS, MessageStore, StoreReader
from commitlog_store.errors import CorruptConsumeQueue, CorruptRecord, FileMissing, InvalidValue
from commitlog_store.format.record import Corrupt, field_offset
from commitlog_store.format.sys_flag import COMPRESSED_FLAG
from commitlog_store.paths import BATCH_TOPIC
from tests.store.batch.batches import commit
from tests.support import golden
from tests.support.store_builder import FIRST_STORE_TIME, StoreBuilder

_COUNT = 400
_LOG_FILE = 16 << 10


class Orders(StoreBuilder):
    """400 messages in two queues, in files of 16 KiB, and where each of them lies."""

    def __post_init__(self) -> None:
        super().__post_init__()
        keys = [f"k{number}" for number in range(_COUNT)]
        self.places = self.append("orders", [0, 1], [body(number) for number in range(_COUNT)], keys=keys).tolist()


@pytest.fixture
def built(tmp_path: Path) -> Orders:
    return Orders(tmp_path / "store", log_file_size=_LOG_FILE)


def body(number: int) -> bytes:
    return f"body {number} ".encode() * 10


def poke(built: Orders, at: int, data: bytes) -> None:
    with open(built.path / "commitlog" / f"{at // _LOG_FILE * _LOG_FILE:020d}", "r+b") as file:
        file.seek(at % _LOG_FILE)
        file.write(data)


def poke_unit(built: Orders, queue_id: int, offset: int, data: bytes) -> None:
    (path,) = (built.path / "consumequeue" / "orders" / str(queue_id)).iterdir()
    with path.open("r+b") as file:
        file.seek(offset * 20)
        file.write(data)


def bodies(batches: Iterable[pa.RecordBatch]) -> list[bytes]:
    return [value for batch in batches for value in batch.column("body").to_pylist()]


def read_all(reader: StoreReader, queue_id: int, **options: Any) -> list[bytes]:
    info = reader.queue_info("orders", queue_id)
    return bodies(reader.read("orders", queue_id, info.min_offset, columns=("body",), **options))


def without(queue_id: int, *numbers: int) -> list[bytes]:
    return [body(number) for number in range(queue_id, _COUNT, 2) if number not in numbers]


# From the log alone.


@pytest.mark.parametrize("tenth", range(10))
@pytest.mark.parametrize("name", [golden.ROCKETMQ_498, golden.ROCKETMQ_533])
def test_four_damaged_bytes_cost_no_other_message(name: str, tenth: int, tmp_path: Path) -> None:
    """Every message but the damaged one is read from the log, with its own offset and all of its columns."""
    log = tmp_path / "store" / "commitlog"
    shutil.copytree(golden.GOLDEN / name / "store" / "commitlog", log)
    answers = sorted(golden.expected(name)["message"], key=lambda message: message["physicalOffset"])
    damaged = answers[len(answers) * tenth // 10]
    file = max(path for path in log.iterdir() if int(path.name) <= damaged["physicalOffset"])
    file.chmod(0o644)
    with file.open("r+b") as opened:
        opened.seek(damaged["physicalOffset"] - int(file.name) + field_offset("physical_offset"))
        opened.write(b"\xff\xff\xff\xff")
    found = {}
    with StoreReader.open(tmp_path / "store", from_log=True, on_damage="skip") as reader:
        for topic in reader.topics():
            for info in reader.queues(topic):
                for batch in reader.read(topic, info.queue_id, info.min_offset, columns=ALL_COLUMNS, verify_crc=True):
                    for row in batch.to_pylist():
                        found[topic, info.queue_id, row["queueOffset"]] = row["physicalOffset"]
        assert [gap.start for gap in reader.log_gaps] == [damaged["physicalOffset"]]
    wanted = {(m["topic"], m["queueId"], m["queueOffset"]): m["physicalOffset"] for m in answers if m is not damaged}
    assert found == wanted


def test_a_store_with_only_a_log_is_read(built: Orders) -> None:
    for name in ("consumequeue", "index", "config"):
        shutil.rmtree(built.path / name)
    with StoreReader.open(built.path) as reader:
        assert reader.topics() == []
    with StoreReader.open(built.path, from_log=True) as reader:
        assert reader.topics() == ["orders"]
        assert [(info.min_offset, info.max_offset) for info in reader.queues("orders")] == [(0, 200), (0, 200)]
        assert read_all(reader, 1) == without(1)
        assert [message.body for message in reader.query("orders", "k7")] == [body(7)]
        assert reader.query("orders", "k7", end=1) == []
        assert reader.message_at(built.places[9]).body == body(9)
        assert reader.log_gaps == []
        first, end = reader.physical_bounds()
        assert (first, end) == (0, built.position)


def test_damaged_queues_do_not_matter_to_the_log(built: Orders) -> None:
    poke_unit(built, 0, 3, b"\xff" * 20)
    with StoreReader.open(built.path) as reader, pytest.raises(CorruptConsumeQueue):
        read_all(reader, 0)
    with StoreReader.open(built.path, from_log=True) as reader:
        assert read_all(reader, 0) == without(0)


def test_a_lost_message_is_an_error_or_a_gap_that_is_reported(built: Orders, caplog: pytest.LogCaptureFixture) -> None:
    poke(built, built.places[100], b"junk")
    poke(built, built.places[102], b"junk")
    poke(built, built.places[200] + 90, b"junk")
    with caplog.at_level(logging.WARNING), StoreReader.open(built.path, from_log=True) as reader:
        assert [gap.start for gap in reader.log_gaps] == [built.places[n] for n in (100, 102, 200)]
        assert str(built.places[100]) in caplog.text
        with pytest.raises(CorruptRecord, match=r"offsets \[50, 52\)") as raised:
            read_all(reader, 0)
        assert built.places[98] <= raised.value.offset <= built.places[102]
        assert read_all(reader, 1) == without(1)
        caplog.clear()
        assert read_all(reader, 0, on_damage="skip") == without(0, 100, 102, 200)
    first, second = reader.skipped
    assert (first.topic, first.queue_id, first.start, first.stop, first.messages) == ("orders", 0, 50, 52, 2)
    assert first.physical_start <= built.places[100] < built.places[102] < first.physical_stop
    assert (second.start, second.stop) == (100, 101)
    assert "[50, 52)" in caplog.text


def test_a_range_that_begins_or_ends_in_a_gap_reports_it(built: Orders) -> None:
    for number in (100, 102, 104):
        poke(built, built.places[number], b"junk")
    with StoreReader.open(built.path, from_log=True, on_damage="skip") as reader:
        assert bodies(reader.read("orders", 0, 51, 54)) == [body(106)]
        assert bodies(reader.read("orders", 0, 49, 52)) == [body(98)]
        assert bodies(reader.read("orders", 0, 51, 52)) == []
        assert [(gap.start, gap.stop) for gap in reader.skipped] == [(51, 53), (50, 52), (51, 52)]


def test_a_kept_piece_begins_where_its_records_begin(built: Orders, tmp_path: Path) -> None:
    """The kept end of a log: the first file has a hole before the records."""
    kept = tmp_path / "kept" / "commitlog"
    kept.mkdir(parents=True)
    start = built.places[150]
    for path in sorted((built.path / "commitlog").iterdir()):
        if int(path.name) + _LOG_FILE > start:
            data = path.read_bytes()
            with open(kept / path.name, "wb") as file:
                skipped = max(start - int(path.name), 0)
                file.seek(skipped)
                file.write(data[skipped:])
    with StoreReader.open(tmp_path / "kept", from_log=True) as reader:
        assert [(info.min_offset, info.max_offset) for info in reader.queues("orders")] == [(75, 200), (75, 200)]
        assert read_all(reader, 0) == [body(n) for n in range(150, _COUNT, 2)]
        assert reader.physical_bounds() == (start, built.position)
        assert reader.log_gaps == [], "a hole with which a log begins is not damage"


def test_a_missing_log_file_costs_only_its_messages(built: Orders) -> None:
    (built.path / "commitlog" / f"{_LOG_FILE:020d}").unlink()
    lost = [n for n in range(_COUNT) if _LOG_FILE <= built.places[n] < 2 * _LOG_FILE]
    with StoreReader.open(built.path, from_log=True, on_damage="skip") as reader:
        assert read_all(reader, 0) == without(0, *lost)
        assert read_all(reader, 1) == without(1, *lost)
        assert [gap.size for gap in reader.log_gaps] == [_LOG_FILE]
        assert sum(gap.messages for gap in reader.skipped) == len(lost)


def test_times_are_found_beside_lost_messages(built: Orders) -> None:
    with StoreReader.open(built.path) as reader:
        stored = {offset: reader.store_timestamp("orders", 0, offset) for offset in range(200)}
    for number in range(180, 220):
        poke(built, built.places[number], b"junk")
    ways = StoreReader.open(built.path, from_log=True), StoreReader.open(built.path, on_damage="skip")
    for reader in ways:
        with reader:
            for offset in (0, 50, 89, 110, 199):
                assert reader.offset_by_time("orders", 0, stored[offset]) == offset
                assert reader.offset_by_time("orders", 0, stored[offset], boundary="upper") == offset
            assert reader.offset_by_time("orders", 0, stored[199] + 1) == 200
            assert reader.offset_by_time("orders", 0, stored[100]) == 110
            assert reader.offset_by_time("orders", 0, stored[100], boundary="upper") == 89


def test_a_reader_from_the_log_is_pickled_with_its_options(built: Orders) -> None:
    shutil.rmtree(built.path / "consumequeue")
    poke(built, built.places[100], b"junk")
    with StoreReader.open(built.path, from_log=True, on_damage="skip") as reader:
        pickled = pickle.dumps(reader)
    with pickle.loads(pickled) as copy:
        assert read_all(copy, 0) == without(0, 100)


def test_a_broken_batch_at_the_end_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with MessageStore.open(path) as store:
        commit(store, 1)
        commit(store, 2)
    with StoreReader.open(path) as reader:
        (last,) = reader.batches()
    with StoreReader.open(path, from_log=True) as reader:
        assert [batch.batch.version for batch in reader.batches()] == [2]
        assert reader.queue_info("orders", 0).max_offset == 20
    shutil.rmtree(path / "config")
    (path / "abort").write_bytes(b"")
    (path / "checkpoint").write_bytes(bytes(4096))
    (log,) = (path / "commitlog").iterdir()
    with log.open("r+b") as file:
        file.seek(last.end - 400)
        file.write(bytes(400))
    with StoreReader.open(path, from_log=True) as reader:
        assert [batch.batch.version for batch in reader.batches()] == [1]
        assert [(info.min_offset, info.max_offset) for info in reader.queues("orders")] == [(0, 10)] * 3
        assert reader.queue_info(BATCH_TOPIC, 0).max_offset == 1
        (gap,) = reader.log_gaps
        assert gap.start == last.physical_offset
        assert isinstance(gap.fault, Corrupt)
        assert "loader" in gap.reason


def test_the_store_is_not_changed(built: Orders) -> None:
    poke(built, built.places[100], b"junk")
    before = snapshot(built.path)
    with StoreReader.open(built.path, from_log=True, on_damage="skip") as reader:
        read_all(reader, 0)
    assert snapshot(built.path) == before


def snapshot(path: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(file): (file.read_bytes() if file.is_file() else b"", file.stat().st_mtime_ns) for file in path.rglob("*")
    }


# By queue, past damage.


@pytest.mark.parametrize("rows", [1, 7, 16_384])
@pytest.mark.parametrize(
    ("at", "junk"),
    [
        (0, b"\xff\xff\xff\xff"),
        (4, b"junk"),
        (field_offset("queue_offset"), b"\x01"),
        (field_offset("body_length"), b"\x01"),
    ],
)
def test_damaged_records_are_skipped_and_reported(built: Orders, at: int, junk: bytes, rows: int) -> None:
    for number in (0, 100, 102, 398):
        poke(built, built.places[number] + at, junk)
    columns = ("body", "bornTimestamp", "keys")
    with StoreReader.open(built.path, on_damage="skip") as reader:
        found = bodies(reader.read("orders", 0, 0, columns=columns, max_batch_rows=rows))
        assert found == without(0, 0, 100, 102, 398)
        assert read_all(reader, 1) == without(1)
        with pytest.raises(CorruptRecord):
            list(reader.read("orders", 0, 0, columns=columns, on_damage="raise"))
    gaps = [(gap.start, gap.stop, gap.physical_start) for gap in reader.skipped]
    assert gaps == [(0, 1, built.places[0]), (50, 52, built.places[100]), (199, 200, built.places[398])]
    assert reader.skipped[0].size == built.places[1] - built.places[0]


def test_what_was_skipped_is_listed_once(built: Orders) -> None:
    poke(built, built.places[100], b"junk")
    with StoreReader.open(built.path, on_damage="skip") as reader:
        assert read_all(reader, 0) == read_all(reader, 0)
        assert len(reader.skipped) == 1


def test_a_body_that_does_not_match_its_crc_is_skipped_unless_it_is_asked_for(built: Orders) -> None:
    poke(built, built.places[100] + 95, b"junk")
    with StoreReader.open(built.path, on_damage="skip") as reader:
        assert len(read_all(reader, 0, verify_crc=False)) == 200
        assert not reader.skipped
        assert read_all(reader, 0) == without(0, 100)
        assert [(gap.start, gap.stop) for gap in reader.skipped] == [(50, 51)]


def test_a_damaged_compressed_body_is_skipped(built: Orders) -> None:
    built.append("orders", 0, [b"not a stream"], sys_flag=COMPRESSED_FLAG)
    with StoreReader.open(built.path, on_damage="skip") as reader:
        assert read_all(reader, 0) == without(0)
        assert [(gap.start, gap.stop) for gap in reader.skipped] == [(200, 201)]


@pytest.mark.parametrize(
    "unit",
    [
        b"\xff" * 20,
        (5).to_bytes(8, "big") + (100).to_bytes(4, "big") + bytes(8),
        (1 << 40).to_bytes(8, "big") + (100).to_bytes(4, "big") + bytes(8),
        (0).to_bytes(8, "big") + (0x7FFFFF00).to_bytes(4, "big") + bytes(8),
    ],
)
@pytest.mark.parametrize("offset", [1, 30, 60])
def test_damaged_units_are_skipped_and_reported(built: Orders, offset: int, unit: bytes) -> None:
    poke_unit(built, 0, offset, unit)
    with StoreReader.open(built.path, on_damage="skip") as reader:
        assert read_all(reader, 0) == without(0, 2 * offset)
        assert [(gap.start, gap.stop) for gap in reader.skipped] == [(offset, offset + 1)]
        sizes = [size for units in reader.units("orders", 0, 0, 200) for size in units["size"].tolist()]
        assert len(sizes) == 200
        assert min(sizes) > 0


@pytest.mark.parametrize(
    ("start", "stop"), [(0, 1), (0, 40), (49, 51), (50, 51), (99, 100), (100, 101), (100, 150), (101, 199), (125, 126)]
)
@pytest.mark.parametrize("junk", [0x00, 0xFF])
def test_units_that_mislead_the_search_for_a_queues_ends_are_skipped(
    built: Orders, start: int, stop: int, junk: int
) -> None:
    """A search by bisection meets zeros, which look like the queue's end, or a unit that looks expired."""
    poke_unit(built, 0, start, bytes([junk]) * (20 * (stop - start)))
    with StoreReader.open(built.path, on_damage="skip") as reader:
        assert (reader.queue_info("orders", 0).min_offset, reader.queue_info("orders", 0).max_offset) == (0, 200)
        assert read_all(reader, 0) == without(0, *range(2 * start, 2 * stop))
        assert [(gap.start, gap.stop) for gap in reader.skipped] == [(start, stop)]
        assert read_all(reader, 1) == without(1)


@pytest.mark.parametrize("offset", [75, 99, 100, 120, 150])
def test_a_unit_that_looks_expired_hides_no_message_before_it(built: Orders, offset: int) -> None:
    built.delete_log_files(1)
    (path,) = (built.path / "consumequeue" / "orders" / "0").iterdir()
    poke_unit(built, 0, offset, path.read_bytes()[:20])
    with StoreReader.open(built.path) as whole, StoreReader.open(built.path, on_damage="skip") as reader:
        first = whole.queue_info("orders", 1).min_offset
        assert reader.queue_info("orders", 0).min_offset in (first, first + 1)
        found = read_all(reader, 0)
        left = [n for n in range(0, _COUNT, 2) if built.places[n] >= _LOG_FILE and n != 2 * offset]
        assert found == [body(n) for n in left]


def test_much_damage_costs_no_decoding_in_vain(tmp_path: Path) -> None:
    """Twenty thousand damaged records in one block, each decoded once rather than with all that follow."""
    builder = StoreBuilder(tmp_path / "store", log_file_size=8 << 20)
    places = builder.append("orders", 0, [b"x" * 10] * 20_000)
    (log,) = (builder.path / "commitlog").iterdir()
    data = bytearray(log.read_bytes())
    for at in places[10:-10].tolist():
        data[at + 4 : at + 8] = b"junk"
    log.write_bytes(data)
    with StoreReader.open(builder.path, on_damage="skip") as reader:
        assert len(bodies(reader.read("orders", 0, 0))) == 20
        assert [(gap.start, gap.stop) for gap in reader.skipped] == [(10, 19_990)]


def test_a_missing_file_is_skipped(built: Orders) -> None:
    (built.path / "commitlog" / f"{_LOG_FILE:020d}").unlink()
    lost = [n for n in range(_COUNT) if _LOG_FILE <= built.places[n] < 2 * _LOG_FILE]
    with StoreReader.open(built.path) as reader, pytest.raises(FileMissing):
        read_all(reader, 0)
    with StoreReader.open(built.path, on_damage="skip") as reader:
        assert read_all(reader, 0) == without(0, *lost)
        (gap,) = reader.skipped
        assert gap.messages == len([n for n in lost if n % 2 == 0])
        assert (gap.physical_start, gap.physical_stop) != (-1, -1)
    with StoreReader.open(built.path, on_damage="skip-records") as reader, pytest.raises(FileMissing):
        read_all(reader, 0)


def test_a_query_skips_a_damaged_record(built: Orders, caplog: pytest.LogCaptureFixture) -> None:
    entries = [(f"orders#k{number // 2}", built.places[number], FIRST_STORE_TIME + number) for number in range(20)]
    built.write_index("20261121000000000", entries)
    poke(built, built.places[10], b"junk")
    with StoreReader.open(built.path) as reader, pytest.raises(CorruptRecord):
        reader.query("orders", "k5")
    with caplog.at_level(logging.WARNING), StoreReader.open(built.path, on_damage="skip") as reader:
        assert reader.query("orders", "k5") == []
    assert str(built.places[10]) in caplog.text


def test_a_damaged_record_has_no_fence(built: Orders) -> None:
    poke(built, built.places[100], b"junk")
    with StoreReader.open(built.path, on_damage="skip") as reader:
        assert reader.fence("orders", 0, 50) is None
        assert reader.fence("orders", 0, 51) is not None
    with StoreReader.open(built.path) as reader:
        assert reader.fence("orders", 0, 50) is not None


def test_another_way_of_treating_damage_is_refused(built: Orders) -> None:
    with pytest.raises(InvalidValue, match="'raise', 'skip' or 'skip-records'"):
        StoreReader.open(built.path, on_damage="ignore")  # type: ignore[arg-type]
