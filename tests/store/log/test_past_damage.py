"""The walk past damage finds every whole record of a damaged log, wherever it lies, and says what lies between."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from commitlog_store.columnar.scan import RecordScan
from commitlog_store.files import disk
from commitlog_store.files.mapped_file_queue_writer import MappedFileQueueWriter
from commitlog_store.format.record import Corrupt, Filler, Torn, Unwritten, encode_filler, field_offset
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.log.past_damage import Gap, walk_past_damage
from tests.store.columnar.log_stretches import record_of, stretch
from tests.support import golden

_TENTHS = range(10)
_FILE = 4096
_FILLER = 8


@contextmanager
def opened(log: Path) -> Iterator[CommitLog]:
    reader = CommitLog(str(log))
    reader.refresh()
    try:
        yield reader
    finally:
        reader.close()


def parts(
    log: Path, *, start: int | None = None, limit: int | None = None, block_size: int = 1 << 20
) -> list[RecordScan | Gap]:
    with opened(log) as reader:
        first, end = reader.bounds()
        low, high = first if start is None else start, end if limit is None else limit
        return list(walk_past_damage(reader, low, high, block_size=block_size))


def found(
    log: Path, *, start: int | None = None, limit: int | None = None, block_size: int = 1 << 20
) -> tuple[list[int], list[Gap]]:
    """Physical offsets of the records, and the gaps."""
    walked = parts(log, start=start, limit=limit, block_size=block_size)
    places = [at for part in walked if isinstance(part, RecordScan) for at in starts(part)]
    return places, [part for part in walked if isinstance(part, Gap)]


def starts(scan: RecordScan) -> list[int]:
    places: list[int] = (scan.positions + scan.physical_offset).tolist()
    return places


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "commitlog"
    path.mkdir()
    return path


class Log:
    """Log files of 4 KiB with records of 200 bytes, and where each of them lies."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.places: list[int] = []
        self.sizes: dict[int, int] = {}

    def file(self, base: int) -> Path:
        return self.path / f"{base:020d}"

    def write(self, base: int, count: int | None = None) -> None:
        """A file: full, with a blank filler at its end, or with ``count`` records and zeros after them."""
        data = b""
        while count is None or count > 0:
            record = stretch(
                [record_of(properties="KEYS\x01k\x02", body=bytes([65 + len(self.places) % 26]) * 100)],
                base + len(data),
            )
            if len(data) + len(record) + _FILLER > _FILE:
                data += encode_filler(_FILE - len(data))[: _FILE - len(data)]
                break
            self.places.append(base + len(data))
            self.sizes[base + len(data)] = len(record)
            data += record
            count = None if count is None else count - 1
        self.file(base).write_bytes(data.ljust(_FILE, b"\0"))

    def patch(self, place: int, data: bytes) -> None:
        with open(self.file(place // _FILE * _FILE), "r+b") as file:
            file.seek(place % _FILE)
            file.write(data)


@pytest.fixture
def made(log: Path) -> Log:
    """Two full files, one with seven records, and one that is allocated and empty."""
    made = Log(log)
    made.write(0)
    made.write(_FILE)
    made.write(2 * _FILE, 7)
    made.write(3 * _FILE, 0)
    return made


@pytest.mark.parametrize("name", [golden.ROCKETMQ_498, golden.ROCKETMQ_533])
def test_a_whole_log_has_no_gaps(name: str) -> None:
    places, gaps = found(golden.GOLDEN / name / "store" / "commitlog")
    messages = {message["physicalOffset"] for message in golden.expected(name)["message"]}
    assert not gaps
    assert messages <= set(places)
    assert places == sorted(set(places))


@pytest.mark.parametrize("junk", [b"\xff\xff\xff\xff", bytes(4), b"\x00\x00\x01\x00"])
@pytest.mark.parametrize("tenth", _TENTHS)
@pytest.mark.parametrize("name", [golden.ROCKETMQ_498, golden.ROCKETMQ_533])
def test_four_damaged_bytes_lose_no_more_than_the_record_they_hit(
    name: str, tenth: int, junk: bytes, tmp_path: Path
) -> None:
    log = golden.copy_golden(name, tmp_path / "store") / "commitlog"
    whole = [part for part in parts(log) if isinstance(part, RecordScan)]
    places = [at for scan in whole for at in starts(scan)]
    sizes = [size for scan in whole for size in scan.sizes.tolist()]
    at = places[len(places) * tenth // 10] + 37
    file = max(path for path in log.iterdir() if int(path.name) <= at)
    os.chmod(file, 0o644)
    with open(file, "r+b") as opened_file:
        opened_file.seek(at - int(file.name))
        opened_file.write(junk)
    hit = {place for place, size in zip(places, sizes, strict=True) if place < at + 4 and at < place + size}
    left, gaps = found(log)
    assert set(left) >= set(places) - hit
    lost = set(places) - set(left)
    assert lost <= hit
    assert [gap.start for gap in gaps] == sorted(lost)
    ends = {place: place + size for place, size in zip(places, sizes, strict=True)}
    assert [gap.stop for gap in gaps] == [ends[place] for place in sorted(lost)]


def test_a_made_log_is_whole(made: Log) -> None:
    assert found(made.path) == (made.places, [])
    assert found(made.path, block_size=300) == (made.places, [])


@pytest.mark.parametrize("row", [0, 1, 9, 18, 19, 20, 40, -2, -1])
@pytest.mark.parametrize(
    ("at", "junk"),
    [
        (0, bytes(8)),
        (0, b"\xff\xff\xff\xff"),
        (0, b"\x00\x00\x0f\xff"),
        (0, b"\x7f\xff\xff\xff"),
        (4, b"junk"),
        (field_offset("physical_offset"), b"\x01"),
        (field_offset("queue_id"), b"\xff"),
        (field_offset("queue_offset"), b"\x7f"),
        (field_offset("store_timestamp"), b"\x7f"),
        (100, b"junk"),
    ],
)
def test_a_damaged_record_is_a_gap_and_no_other_record_is_lost(made: Log, row: int, at: int, junk: bytes) -> None:
    place = made.places[row]
    made.patch(place + at, junk)
    for block_size in (300, 1 << 20):
        places, gaps = found(made.path, block_size=block_size)
        assert places == [other for other in made.places if other != place]
        assert [gap.start for gap in gaps] == [place]
        # Without its size, a record before a blank filler is not distinguished from the filler.
        assert gaps[0].stop == (_FILE if row == 19 and at == 0 else place + made.sizes[place])


def test_a_size_that_leads_to_a_later_record_hides_none_between(made: Log) -> None:
    """Records of one size: a damaged size of twice that leads to a good record, and the next one must be found."""
    place = made.places[4]
    made.patch(place, (2 * made.sizes[place]).to_bytes(4, "big"))
    places, gaps = found(made.path)
    assert places == [other for other in made.places if other != place]
    assert [(gap.start, gap.stop) for gap in gaps] == [(place, made.places[5])]


def test_neighbouring_damaged_records_are_one_gap(made: Log) -> None:
    for row in (4, 5, 6):
        made.patch(made.places[row] + field_offset("queue_id"), b"\xff")
    places, gaps = found(made.path)
    assert places == made.places[:4] + made.places[7:]
    assert [(gap.start, gap.stop) for gap in gaps] == [(made.places[4], made.places[7])]
    assert isinstance(gaps[0].fault, Corrupt)
    assert gaps[0].fault.field == "QUEUEID"


def test_a_missing_file_is_a_gap(made: Log) -> None:
    made.file(_FILE).unlink()
    places, gaps = found(made.path)
    assert places == [place for place in made.places if not _FILE <= place < 2 * _FILE]
    assert gaps == [Gap(_FILE, 2 * _FILE, None)]
    assert gaps[0].size == _FILE


def test_a_short_file_is_a_gap_up_to_the_next_one(made: Log) -> None:
    os.truncate(made.file(_FILE), 1000)
    places, gaps = found(made.path)
    whole = [place for place in made.places if place + made.sizes[place] <= _FILE + 1000 or place >= 2 * _FILE]
    assert places == whole
    torn, missing = gaps
    assert isinstance(torn.fault, Torn)
    assert (torn.stop, missing) == (_FILE + 1000, Gap(_FILE + 1000, 2 * _FILE, None))


def test_an_empty_file_between_others_is_a_gap(made: Log) -> None:
    os.truncate(made.file(_FILE), 0)
    assert found(made.path)[1] == [Gap(_FILE, 2 * _FILE, None)]


def test_zeros_before_a_record_are_a_gap(made: Log) -> None:
    first, after = made.places[3], made.places[8]
    made.patch(first, bytes(after - first))
    assert found(made.path)[1] == [Gap(first, after, Unwritten())]


def test_a_file_that_begins_with_a_hole_is_walked_from_its_first_record(made: Log) -> None:
    """As the kept piece of a log does."""
    kept = made.places[10]
    data = made.file(0).read_bytes()
    made.file(0).unlink()
    with open(made.file(0), "wb") as file:
        file.seek(kept)
        file.write(data[kept:])
    assert found(made.path) == (made.places[10:], [Gap(0, kept, Unwritten())])


def test_a_torn_end_is_a_gap_of_what_was_written(made: Log) -> None:
    last = made.places[-1]
    made.patch(last + 120, bytes(made.sizes[last] - 120))
    places, gaps = found(made.path)
    assert places == made.places[:-1]
    assert [(gap.start, gap.stop) for gap in gaps] == [(last, last + 120)]


def test_a_filler_that_misses_its_files_end_is_a_gap(made: Log) -> None:
    last = max(place for place in made.places if place < _FILE)
    filler = last + made.sizes[last]
    made.patch(filler, encode_filler(20)[:8])
    assert found(made.path) == (made.places, [Gap(filler, _FILE, Filler(20))])


def test_a_limit_cuts_records_and_gaps(made: Log) -> None:
    place = made.places[5]
    inside = [other for other in made.places if other + made.sizes[other] <= place + 30]
    assert found(made.path, limit=place + 30) == (inside, [])
    made.patch(place, b"junk")
    assert found(made.path, limit=place + 30)[0] == inside
    (gap,) = found(made.path, limit=place + 30)[1]
    assert gap.start == place
    assert gap.stop <= place + 30
    assert found(made.path, start=made.places[7], limit=made.places[9]) == (made.places[7:9], [])


def test_an_owners_files_are_walked_too(made: Log) -> None:
    made.patch(made.places[30] + 100, b"junk")
    writer = MappedFileQueueWriter(str(made.path), _FILE)
    writer.load()
    try:
        walked = list(walk_past_damage(writer, 0, 4 * _FILE))
    finally:
        writer.close()
    places = [at for part in walked if isinstance(part, RecordScan) for at in starts(part)]
    assert places == [other for other in made.places if other != made.places[30]]


def test_a_body_without_its_crc_is_good_when_the_crc_is_not_checked(made: Log) -> None:
    made.patch(made.places[5] + 100, b"junk")
    with opened(made.path) as reader:
        walked = list(walk_past_damage(reader, 0, 4 * _FILE, check_crc=False))
    assert [at for part in walked if isinstance(part, RecordScan) for at in starts(part)] == made.places


def test_holes_are_not_read(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two gigabytes of allocated space, of which two records are written."""
    size = 1 << 30
    for base in (0, size):
        with open(log / f"{base:020d}", "wb") as file:
            file.seek(700 << 20)
            file.write(stretch([record_of()], base + (700 << 20)))
            file.truncate(size)
    read = count_reads(monkeypatch)
    places, gaps = found(log)
    assert places == [700 << 20, size + (700 << 20)]
    assert [gap.start for gap in gaps] == [0, places[0] + len(stretch([record_of()], 0)), size]
    assert sum(read) < 1 << 20


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    read: list[int] = []
    real: Callable[[int, int, int], bytes] = disk.read_at

    def counted(descriptor: int, length: int, offset: int) -> bytes:
        data = real(descriptor, length, offset)
        read.append(len(data))
        return data

    monkeypatch.setattr(disk, "read_at", counted)
    return read


def test_the_directory_is_not_changed(made: Log) -> None:
    made.patch(made.places[5], b"junk")
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in made.path.iterdir()}
    found(made.path)
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in made.path.iterdir()} == before


def test_swapped_files_are_gaps(made: Log) -> None:
    """A record that lies elsewhere than it says is not a good record."""
    shutil.move(made.file(0), made.path / "kept")
    shutil.move(made.file(_FILE), made.file(0))
    shutil.move(made.path / "kept", made.file(_FILE))
    places, gaps = found(made.path)
    assert places == [place for place in made.places if place >= 2 * _FILE]
    assert [gap.start for gap in gaps] == [0, _FILE]
