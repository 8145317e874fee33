"""The end of a log that is cut, zeroed or garbled ends the log there; damage before that is never skipped."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlog_store import FlushDiskType, Message, MessageStore
from commitlog_store.errors import CorruptRecord, LogLost, LogShort
from commitlog_store.recovery.forecast import forecast_open
from commitlog_store.testing import kill
from tests.crash.stored_messages import Stored, check_store, log_records
from tests.crash.workloads import slow_clock, small_config

FLUSHES = list(FlushDiskType)


# Of the bytes of a record, one in 18, or all of them.
sampled = pytest.mark.parametrize("step", [18, pytest.param(1, marks=pytest.mark.stress)])


def bytes_of(last: Stored, flush: FlushDiskType, step: int) -> range:
    """Some bytes of a record: of one kind of store others than of the other, which recovers as it does."""
    return range(FLUSHES.index(flush) * step // len(FLUSHES), last.size, step)


def message(number: int, *, padding: int = 40) -> Message:
    return Message(
        topic=f"topic-{number % 2}",
        body=f"{number:03d}".encode() * 20,
        keys=[f"key-{number}"],
        queue_id=number % 2,
        properties={"padding": "p" * padding},
    )


def killed_store(path: Path, flush: FlushDiskType, count: int = 12) -> list[Stored]:
    """A store whose owner was killed after so many puts."""
    with slow_clock():
        store = MessageStore.open(path, small_config(flush, log_size=4 << 10))
        for number in range(count):
            store.put_message(message(number)).raise_for_status()
        store.dispatch()
        kill(store)
    return log_records(path)


def closed_store(path: Path, count: int = 60) -> list[Stored]:
    with slow_clock(), MessageStore.open(path, small_config(FlushDiskType.SYNC_FLUSH, log_size=4 << 10)) as store:
        for number in range(count):
            store.put_message(message(number)).raise_for_status()
    return log_records(path)


def files_below(path: Path) -> dict[str, bytes]:
    return {str(one.relative_to(path)): one.read_bytes() for one in sorted(path.rglob("*")) if one.is_file()}


def alter(path: Path, position: int, change: Callable[[bytes], bytes]) -> bool:
    """Change the bytes of the log from a physical offset to its file's end; whether they are other bytes now."""
    file = max(one for one in (path / "commitlog").iterdir() if int(one.name) <= position)
    data = file.read_bytes()
    at = position - int(file.name)
    changed = data[:at] + change(data[at:])
    file.write_bytes(changed)
    return changed != data


def zeroed(tail: bytes) -> bytes:
    return bytes(len(tail))


def garbled(tail: bytes) -> bytes:
    return bytes([tail[0] ^ 0xFF]) + tail[1:]


@sampled
@pytest.mark.parametrize("flush", FLUSHES, ids=lambda flush: flush.value)
def test_a_last_record_that_is_zeroed_from_any_byte_on_is_cut_off(
    flush: FlushDiskType, step: int, memory: Path
) -> None:
    records = killed_store(memory / "killed", flush)
    last = records[-1]
    for byte in bytes_of(last, flush, step):
        store = memory / "store"
        shutil.copytree(memory / "killed", store)
        alter(store, last.physical_offset + byte, zeroed)
        with open_shortened(store, flush) as opened:
            assert opened.recovered is not None
            there = log_records(store)
            check_store(store, there)
        assert there == records[:-1], f"zeroed from byte {byte} on"
        shutil.rmtree(store)


@sampled
@pytest.mark.parametrize("flush", FLUSHES, ids=lambda flush: flush.value)
def test_a_last_record_with_any_byte_garbled_is_kept_or_cut_off_but_never_raises(
    flush: FlushDiskType, step: int, memory: Path
) -> None:
    records = killed_store(memory / "killed", flush)
    last = records[-1]
    body = range(88, 88 + len(last.body))
    for byte in bytes_of(last, flush, step):
        store = memory / "store"
        shutil.copytree(memory / "killed", store)
        assert alter(store, last.physical_offset + byte, garbled)
        with open_shortened(store, flush):
            there = log_records(store)
        assert there[: len(records) - 1] == records[:-1]
        if byte in body or byte < 8 or 20 <= byte < 36:  # TOTALSIZE and MAGICCODE, QUEUEOFFSET and PHYSICALOFFSET
            assert len(there) == len(records) - 1, f"byte {byte}"
        shutil.rmtree(store)


@sampled
@pytest.mark.parametrize("flush", FLUSHES, ids=lambda flush: flush.value)
def test_a_last_file_that_is_cut_within_its_last_record_ends_before_it(
    flush: FlushDiskType, step: int, memory: Path
) -> None:
    records = killed_store(memory / "killed", flush, count=20)
    last = records[-1]
    for byte in bytes_of(last, flush, step):
        store = memory / "store"
        shutil.copytree(memory / "killed", store)
        cut_short(store, last.physical_offset + byte)
        with open_shortened(store, flush) as opened:
            assert log_records(store) == records[:-1], f"cut at byte {byte}"
            assert opened.put_message(message(19)).queue_offset == last.queue_offset
        check_store(store, log_records(store))
        shutil.rmtree(store)


def open_shortened(path: Path, flush: FlushDiskType) -> MessageStore:
    """Open a store whose last record is damaged or gone: one that was flushed is not given up without a word."""
    config = small_config(flush)
    forecast = forecast_open(path, config)
    end, short = forecast.end, forecast.refusal
    if isinstance(short, LogShort):
        with pytest.raises(LogShort, match="with 1 messages by the consume queues") as caught:
            MessageStore.open(path, config)
        assert str(caught.value) == str(short)
        end = short.found_end
    opened = MessageStore.open(path, config, accept_lost_log=short is not None)
    assert opened.recovered is not None
    assert opened.recovered.end == end
    return opened


def cut_short(store: Path, end: int) -> Path:
    """Cut the log's file that holds a physical offset there; the files after it are removed."""
    names = sorted((store / "commitlog").iterdir())
    for later in (one for one in names if int(one.name) > end):
        later.unlink()
    last = max(one for one in names if int(one.name) <= end)
    last.write_bytes(last.read_bytes()[: end - int(last.name)])
    return last


def test_a_file_of_a_closed_store_that_was_cut_short_is_refused_and_left_alone(memory: Path) -> None:
    store = memory / "store"
    records = closed_store(store)
    last = cut_short(store, records[-1].end + 10)
    before = files_below(store / "commitlog")
    with pytest.raises(CorruptRecord, match=str(last)):
        MessageStore.open(store, small_config(FlushDiskType.SYNC_FLUSH))
    assert files_below(store / "commitlog") == before


@pytest.mark.parametrize("left", ["abort", "no checkpoint"])
@pytest.mark.parametrize("change", [zeroed, garbled])
def test_a_bad_record_with_flushed_ones_after_it_is_damage_that_opening_refuses(
    change: Callable[[bytes], bytes], left: str, memory: Path
) -> None:
    store = memory / "store"
    records = closed_store(store)
    bad = records[len(records) - 5]
    alter(store, bad.physical_offset + 100, lambda tail: change(tail[:20]) + tail[20:])
    if left == "abort":
        (store / "abort").touch()
    else:
        (store / "checkpoint").unlink()
    before = files_below(store / "commitlog")
    for _ in range(2):  # the first look leaves nothing that makes the second one more lenient
        with pytest.raises(CorruptRecord, match=f"physical offset {bad.physical_offset}"):
            MessageStore.open(store, small_config(FlushDiskType.SYNC_FLUSH))
    assert files_below(store / "commitlog") == before


def test_a_lost_log_is_refused_unless_the_loss_is_accepted(memory: Path) -> None:
    store = memory / "store"
    closed_store(store)
    for file in (store / "commitlog").iterdir():
        file.unlink()
    config = small_config(FlushDiskType.SYNC_FLUSH)
    with pytest.raises(LogLost):
        MessageStore.open(store, config)
    with MessageStore.open(store, config, accept_lost_log=True) as opened:
        assert opened.physical_bounds() == (0, 0)
        result = opened.put_message(message(0))
        assert (result.physical_offset, result.queue_offset) == (0, 0)
    check_store(store, log_records(store))
    assert len(log_records(store)) == 1


def one_queue(store: Path) -> Path:
    return store / "consumequeue" / "topic-1" / "1"


def first_file(directory: Path) -> Path:
    return min(one for one in directory.iterdir() if one.is_file())


DAMAGES: dict[str, Callable[[Path], object]] = {
    "queue file missing": lambda store: first_file(one_queue(store)).unlink(),
    "queue file zeroed": lambda store: first_file(one_queue(store)).write_bytes(bytes(1000)),
    "queue file garbled": lambda store: first_file(one_queue(store)).write_bytes(b"\x5a" * 1000),
    "queue file cut short": lambda store: first_file(one_queue(store)).write_bytes(b"\x5a" * 35),
    "queue directory missing": lambda store: shutil.rmtree(one_queue(store)),
    "all queues missing": lambda store: shutil.rmtree(store / "consumequeue"),
    "index file missing": lambda store: first_file(store / "index").unlink(),
    "index file zeroed": lambda store: _overwrite(first_file(store / "index"), b"\0"),
    "index file garbled": lambda store: _overwrite(first_file(store / "index"), b"\x5a"),
    "index file empty": lambda store: first_file(store / "index").write_bytes(b""),
    "all index files missing": lambda store: shutil.rmtree(store / "index"),
    "checkpoint missing": lambda store: (store / "checkpoint").unlink(),
    "checkpoint garbled": lambda store: (store / "checkpoint").write_bytes(b"\x5a" * 4096),
}


def _overwrite(file: Path, byte: bytes) -> None:
    file.write_bytes(byte * len(file.read_bytes()))


@pytest.mark.parametrize("damage", DAMAGES)
def test_queues_and_index_that_a_crash_damaged_are_built_again_from_the_log(damage: str, memory: Path) -> None:
    store = memory / "store"
    records = killed_store(store, FlushDiskType.ASYNC_FLUSH, count=60)
    units = files_below(store / "consumequeue")
    DAMAGES[damage](store)
    # Without a checkpoint nothing is believed, and everything is looked at.
    (store / "checkpoint").unlink(missing_ok=True)
    with MessageStore.open(store, small_config(FlushDiskType.ASYNC_FLUSH)):
        pass
    assert log_records(store) == records
    check_store(store, records)
    assert files_below(store / "consumequeue") == units


@pytest.mark.parametrize(
    "missing", ["consumequeue", "index", "consumequeue/topic-1", "consumequeue/topic-0/0"], ids=lambda name: name
)
def test_missing_directories_of_a_closed_store_are_built_again(missing: str, memory: Path) -> None:
    store = memory / "store"
    records = closed_store(store)
    units = files_below(store / "consumequeue")
    shutil.rmtree(store / missing)
    with MessageStore.open(store, small_config(FlushDiskType.SYNC_FLUSH)):
        pass
    check_store(store, records)
    assert files_below(store / "consumequeue") == units


def test_rebuild_builds_everything_again(memory: Path) -> None:
    store = memory / "store"
    records = closed_store(store)
    units = files_below(store / "consumequeue")
    _overwrite(first_file(one_queue(store)), b"\x5a")
    with MessageStore.open(store, small_config(FlushDiskType.SYNC_FLUSH), rebuild=True) as opened:
        assert opened.recovered is not None
        assert opened.recovered.scanned_records == len(records)
    check_store(store, records)
    assert files_below(store / "consumequeue") == units
