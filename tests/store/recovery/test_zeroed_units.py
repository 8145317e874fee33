"""Sectors and pages of a queue that were zeroed, with units after them: no message is lost without a word."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlog_store import Message, MessageStore, MessageStoreConfig, StoreReader, verify_store
from commitlog_store.errors import CorruptConsumeQueue
from commitlog_store.files import disk
from commitlog_store.format.consume_queue_unit import UNIT_SIZE
from commitlog_store.testing import kill, parts_of
from tests.store.owner.owned_store import put_ok
from tests.store.retention.small_stores import Clock, store_clock
from tests.support.clean_store import assert_clean

COUNT = 1000
ONE_FILE, SEVERAL = 5000, 300
BODIES = [b"%04d" % number for number in range(COUNT)]


def settings(units: int) -> MessageStoreConfig:
    return MessageStoreConfig(
        mapped_file_size_commit_log=64 << 10,
        mapped_file_size_consume_queue=units * UNIT_SIZE,
        max_hash_slot_num=100,
        max_index_num=4000,
    )


def fill(path: Path, units: int, *, killed: bool) -> Path:
    """1,000 messages in one queue, and others a day later. Killed, the scan of a recovery begins after the 1,000."""
    clock = Clock()
    with store_clock(clock), MessageStore.open(path, settings(units)) as store:
        for body in BODIES:
            store.put_message(Message(topic="orders", body=body, queue_id=0)).raise_for_status()
        clock.now += 86_400
        for number in range(1500):
            put_ok(store, "others", b"%04d" % number, queue_id=0)
        store.dispatch()
        store.flush()
        if killed:
            clock.now += 86_400
            put_ok(store, "others", queue_id=0)
            store.dispatch()
            parts_of(store).engine.store_flush.flush_everything()
            kill(store)
    return path


@pytest.fixture(scope="module", params=[ONE_FILE, SEVERAL], ids=["one file", "several files"])
def units(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def closed(units: int, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("closed") / "store", units, killed=False)


@pytest.fixture(scope="module")
def killed(units: int, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("killed") / "store", units, killed=True)


def queue_files(path: Path) -> list[Path]:
    return sorted((path / "consumequeue" / "orders" / "0").iterdir())


def holes(path: Path, size: int) -> Iterator[tuple[str, int, bool]]:
    """Each piece of a queue's files with units: name, place, and whether units follow it in the queue."""
    for file in queue_files(path):
        end = min(COUNT * UNIT_SIZE - int(file.name), file.stat().st_size)
        for at in range(0, end, size):
            yield file.name, at, int(file.name) + at + size <= (COUNT - 1) * UNIT_SIZE


def copied(store: Path, target: Path, *, sparse: bool) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(store, target)
    if not sparse:
        for file in queue_files(target):
            file.write_bytes(file.read_bytes())
    return target


def zero(path: Path, name: str, at: int, size: int) -> None:
    file = path / "consumequeue" / "orders" / "0" / name
    with file.open("r+b") as stream:
        stream.seek(at)
        stream.write(bytes(min(size, file.stat().st_size - at)))


def read(path: Path) -> list[bytes]:
    """All bodies of the queue. ``CorruptConsumeQueue``."""
    with StoreReader.open(path) as reader:
        start = reader.queue_info("orders", 0).min_offset
        batches = reader.read("orders", 0, start, columns=["body"])
        return [body for batch in batches for body in batch["body"].to_pylist()]


def is_whole(path: Path, file: str, expected: list[bytes]) -> bool:
    """Whether reading gives everything; if not, it names the damaged file, and no more than the zeroed are skipped."""
    with StoreReader.open(path, on_damage="skip") as reader:
        assert reader.queue_info("orders", 0).max_offset == len(expected)
        batches = reader.read("orders", 0, 0, columns=["body"])
        bodies = [body for batch in batches for body in batch["body"].to_pylist()]
    if bodies == expected:
        assert read(path) == expected
        return True
    assert set(bodies) <= set(expected)
    assert len(expected) - len(bodies) <= 4096 // UNIT_SIZE + 2
    with pytest.raises(CorruptConsumeQueue, match=file):
        read(path)
    return False


each_hole = pytest.mark.parametrize(
    ("size", "sparse"),
    [
        (512, True),
        (4096, False),
        *(pytest.param(*one, marks=pytest.mark.stress) for one in ((512, False), (4096, True))),
    ],
)


@each_hole
def test_a_reader_ends_no_queue_at_zeros_before_its_last_unit(
    closed: Path, size: int, sparse: bool, tmp_path: Path
) -> None:
    path = copied(closed, tmp_path / "store", sparse=sparse)
    for name, at, followed in holes(closed, size):
        (whole,) = [file.read_bytes() for file in queue_files(path) if file.name == name]
        zero(path, name, at, size)
        if followed:
            with StoreReader.open(path) as reader:
                assert reader.queue_info("orders", 0).max_offset == COUNT, (name, at)
            assert not is_whole(path, name, BODIES), (name, at)
        (path / "consumequeue" / "orders" / "0" / name).write_bytes(whole)
    assert read(path) == BODIES


@pytest.mark.parametrize("state", ["closed", "killed"])
@pytest.mark.parametrize(
    ("size", "sparse", "step"),
    [
        (512, True, 8),
        (4096, False, 2),
        pytest.param(512, True, 1, marks=pytest.mark.stress),
        pytest.param(512, False, 1, marks=pytest.mark.stress),
    ],
)
def test_an_owner_gives_no_offset_twice_and_a_rebuild_keeps_every_message(
    state: str, size: int, sparse: bool, step: int, request: pytest.FixtureRequest, units: int, tmp_path: Path
) -> None:
    store: Path = request.getfixturevalue(state)
    config = settings(units)
    for name, at, followed in [*holes(store, size)][::step]:
        if state == "killed" and not followed:
            continue  # nothing but the log says then that the queue is longer
        path = copied(store, tmp_path / "store", sparse=sparse)
        zero(path, name, at, size)
        with MessageStore.open(path, config) as owner:
            assert put_ok(owner, "orders", b"new", queue_id=0).queue_offset == COUNT, (name, at)
        expected = [*BODIES, b"new"]
        whole = is_whole(path, name, expected)
        found = [one for one in verify_store(path) if one.severity == "error"]
        assert whole == (not found)
        with MessageStore.open(path, config, rebuild=True) as owner:
            assert put_ok(owner, "orders", b"newer", queue_id=0).queue_offset == COUNT + 1
        assert read(path) == [*expected, b"newer"]
        assert_clean(path)


def test_units_that_a_crash_has_left_after_a_hole_are_written_again(units: int, tmp_path: Path) -> None:
    """The kernel writes pages in any order: a machine that stops may leave the last units and not those before."""
    made = tmp_path / "made"
    with MessageStore.open(made, settings(units)) as store:
        for body in BODIES:
            store.put_message(Message(topic="orders", body=body, queue_id=0)).raise_for_status()
        store.dispatch()
        store.flush()
        kill(store)
    for name, at, _ in holes(made, 4096):
        path = copied(made, tmp_path / "store", sparse=True)
        zero(path, name, at, 4096)
        with MessageStore.open(path, settings(units)) as store:
            assert put_ok(store, "orders", b"new", queue_id=0).queue_offset == COUNT, (name, at)
        assert read(path) == [*BODIES, b"new"]
        assert_clean(path)


@pytest.mark.parametrize(
    "data", [b"\x80", b"\x70", bytes(7) + b"\x11", bytes(8)], ids=["sign", "high", "low", "place 0"]
)
def test_a_damaged_last_unit_before_a_recoverys_scan_is_written_again(
    killed: Path, units: int, data: bytes, tmp_path: Path
) -> None:
    """It looks as if its message had not reached the log, and its offset would be given again."""
    path = copied(killed, tmp_path / "store", sparse=True)
    last = (COUNT - 1) * UNIT_SIZE
    (file,) = [file for file in queue_files(path) if 0 <= last - int(file.name) < units * UNIT_SIZE]
    with file.open("r+b") as stream:
        stream.seek(last - int(file.name))
        stream.write(data)
    with MessageStore.open(path, settings(units)) as store:
        assert put_ok(store, "orders", b"new", queue_id=0).queue_offset == COUNT
    assert read(path) == [*BODIES, b"new"]
    assert_clean(path)


@pytest.mark.parametrize("lost", [0, 2], ids=["whole", "ahead of the log"])
def test_a_scan_that_meets_no_damage_does_not_begin_at_the_logs_first_byte(
    killed: Path, units: int, lost: int, tmp_path: Path
) -> None:
    """Nor do units of messages that a machine has lost at the log's end bring it there."""
    path = copied(killed, tmp_path / "store", sparse=True)
    with StoreReader.open(path) as reader:
        (last,) = reader.units("others", 0, 1500, 1501)
    file = queue_files(path)[-1]
    with file.open("r+b") as stream:
        stream.seek(COUNT * UNIT_SIZE - int(file.name))
        for number in range(lost):
            place = int(last["physical_offset"][0]) + 300 + number * 100
            stream.write(place.to_bytes(8, "big") + (100).to_bytes(4, "big") + bytes(8))
    with MessageStore.open(path, settings(units)) as store:
        assert store.recovered is not None
        assert store.recovered.started_at > COUNT * 91
        assert put_ok(store, "orders", b"new", queue_id=0).queue_offset == COUNT
    assert read(path) == [*BODIES, b"new"]


@pytest.mark.parametrize("size", [20, 512])
def test_a_rebuild_keeps_the_end_of_an_expired_queue_with_zeroed_units(
    closed: Path, units: int, size: int, tmp_path: Path
) -> None:
    for name, at, followed in [*holes(closed, 512)][::4]:
        if not followed:
            continue
        path = copied(closed, tmp_path / "store", sparse=True)
        with MessageStore.open(path, settings(units)) as store:
            store.clean(max_bytes=70_000)
            if not (path / "consumequeue/orders/0" / name).exists():
                continue
            assert store.reader().queue_info("orders", 0).min_offset == COUNT
        zero(path, name, at, size)
        for number in range(2):
            with MessageStore.open(path, settings(units), rebuild=True):
                pass
            with MessageStore.open(path, settings(units)) as store:
                assert put_ok(store, "orders", b"new", queue_id=0).queue_offset == COUNT + number
            assert read(path) == [b"new"] * (number + 1), (name, at)
        assert_clean(path)


@pytest.mark.parametrize(
    ("at", "data"),
    [(COUNT - 2, data) for data in (b"\x80", b"\x70", bytes(8), bytes(UNIT_SIZE))]
    + [(COUNT - 1, data) for data in (b"\x80", bytes(8))],
)
def test_a_rebuild_keeps_the_end_of_an_expired_queue_with_a_damaged_unit_there(
    closed: Path, units: int, at: int, data: bytes, tmp_path: Path
) -> None:
    """But for a last unit that looks like one of a message that was lost, or was never written."""
    path = copied(closed, tmp_path / "store", sparse=True)
    with MessageStore.open(path, settings(units)) as store:
        store.clean(max_bytes=70_000)
    file = path / "consumequeue/orders/0" / f"{at // units * units * UNIT_SIZE:020d}"
    with file.open("r+b") as stream:
        stream.seek(at % units * UNIT_SIZE)
        stream.write(data)
    with MessageStore.open(path, settings(units), rebuild=True) as store:
        assert put_ok(store, "orders", b"new", queue_id=0).queue_offset == COUNT
    assert read(path) == [b"new"]
    assert_clean(path)


def test_a_reader_follows_an_owner_and_looks_through_a_file_once(
    closed: Path, units: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copied(closed, tmp_path / "store", sparse=False)
    lengths: list[int] = []
    real = disk.read_at

    def read_at(descriptor: int, length: int, offset: int) -> bytes:
        lengths.append(length)
        return real(descriptor, length, offset)

    with MessageStore.open(path, settings(units)) as store, StoreReader.open(path) as reader:
        assert reader.queue_info("orders", 0).max_offset == COUNT
        for count in range(1, 5):
            put_ok(store, "orders", queue_id=0)
            store.dispatch()
            with monkeypatch.context() as patch:
                patch.setattr(disk, "read_at", read_at)
                assert reader.queue_info("orders", 0).max_offset == COUNT + count
    assert sum(lengths) < 4 * 3 * 4096


@pytest.mark.parametrize("data", [b"\x80", b"\x70", bytes(8)], ids=["sign", "high", "place 0"])
def test_a_crash_beside_a_damaged_last_unit_of_an_expired_queue_gives_no_offset_twice(
    closed: Path, units: int, data: bytes, tmp_path: Path
) -> None:
    """The log has none of its messages, so that nothing but the unit says where the queue ends."""
    path = copied(closed, tmp_path / "store", sparse=True)
    with MessageStore.open(path, settings(units)) as store:
        store.clean(max_bytes=70_000)
        kill(store)
    last = (COUNT - 1) * UNIT_SIZE
    (file,) = [file for file in queue_files(path) if 0 <= last - int(file.name) < units * UNIT_SIZE]
    with file.open("r+b") as stream:
        stream.seek(last - int(file.name))
        stream.write(data)
    with MessageStore.open(path, settings(units)) as store:
        assert store.recovered is not None
        assert put_ok(store, "orders", b"new", queue_id=0).queue_offset == COUNT
    assert read(path) == [b"new"]
    assert_clean(path)


def test_a_rebuild_fills_zeroed_units_before_a_first_message_that_begins_a_file(tmp_path: Path) -> None:
    """They were those of expired messages, and reading the queue from its beginning would refuse them."""
    with MessageStore.open(fill(tmp_path / "first", ONE_FILE, killed=False), settings(ONE_FILE)) as store:
        store.clean(max_bytes=200_000)
        low = store.reader().queue_info("orders", 0).min_offset
    assert 0 < low < COUNT
    path = fill(tmp_path / "store", low, killed=False)
    zero(path, f"{0:020d}", (low - 10) * UNIT_SIZE, 10 * UNIT_SIZE)
    with MessageStore.open(path, settings(low)) as store:
        store.clean(max_bytes=200_000)
    assert len(queue_files(path)) > 1, "cleaning keeps a damaged file"
    with MessageStore.open(path, settings(low), rebuild=True):
        pass
    assert read(path) == BODIES[low:]
    assert_clean(path)
