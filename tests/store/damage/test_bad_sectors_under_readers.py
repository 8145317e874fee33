"""Readers on a disk with a bad sector, or of a file that is cut under them: an error with a name, not a dead process.

The kernel kills a process that touches a mapped page which it cannot bring in (SIGBUS). So readers run in processes of
their own here, on a real file system that fails reads.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from commitlog_store import StoreReader
from commitlog_store.files import mapped_file
from tests.power_cut.block_device import power_cuts, why_not
from tests.store.verify.test_bad_sectors import PAGE, place_on_device
from tests.support import quick_programs
from tests.support.store_builder import StoreBuilder

QUEUES, MESSAGES = 16, 60
# As ext4 reads ahead.
LARGEST_FOLIO = 128 << 10
# A read of each queue, which maps the log: the other queues' messages lie in between.
READS = f"""
import sys
from commitlog_store import StoreReader
from commitlog_store.errors import CommitLogError, ReadFailed

with StoreReader.open(sys.argv[1]) as reader:
    for queue_id in range({QUEUES}):
        try:
            list(reader.read("t", queue_id, 0))
        except CommitLogError as error:
            print(type(error).__name__, error.path)
    for queue_id in range({QUEUES}):
        found = sum(len(batch) for batch in reader.read("t", queue_id, 0, on_damage="skip"))
        lost = sum(one.stop - one.start for one in reader.skipped if one.queue_id == queue_id)
        assert found + lost == {MESSAGES}
    try:
        list(reader.read("t", 3, 0, on_damage="skip-records"))  # as Spark reads: a later attempt may succeed
    except ReadFailed:
        print("raised")
    print(*[f"{{one.queue_id}}:{{one.start}}:{{one.stop}}" for one in reader.skipped])
"""
LOOKS_UP = """
import sys
from commitlog_store import StoreReader
from commitlog_store.errors import CommitLogError

with StoreReader.open(sys.argv[1]) as reader:
    try:
        list(reader.query_keys("t", [f"key-{number}" for number in range(int(sys.argv[2]))]))
    except CommitLogError as error:
        print(type(error).__name__, error.path)
"""
# The file loses its end after its size was asked for, and before its pages are brought in.
IS_CUT = """
import os, sys
from commitlog_store import StoreReader
from commitlog_store.errors import FileChanged
from commitlog_store.files import mapped_file

def cut_first(mapping, start, stop):
    os.truncate(sys.argv[2], start)
    return bring_in(mapping, start, stop)

bring_in, mapped_file.populate_pages = mapped_file.populate_pages, cut_first
with StoreReader.open(sys.argv[1]) as reader:
    try:
        list(reader.read("t", 0, 0))
    except FileChanged as error:
        print(type(error).__name__, error.path)
"""
needs_device = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


def interleaved(path: Path) -> list[int]:
    """A store of ``QUEUES`` queues side by side in the log. Returns the places of queue 3's messages."""
    builder = StoreBuilder(path, log_file_size=2 << 20)
    places = []
    for number in range(MESSAGES):
        for queue_id in range(QUEUES):
            (place,) = builder.append("t", queue_id, [f"message {number} ".encode() * 80])
            places += [int(place)] if queue_id == 3 else []
    return places


def log_file(path: Path) -> Path:
    return path / "commitlog" / f"{0:020d}"


@needs_device
def test_a_bad_sector_of_the_log_is_an_error_and_the_messages_there_are_skipped(tmp_path: Path) -> None:
    with power_cuts(tmp_path) as device:
        with device.power_on() as mount:
            path = mount / "store"
            at = interleaved(path)[30] + 200
            bad = place_on_device(log_file(path), at)
        device.fail_reads(bad, PAGE)
        with device.power_on() as mount:
            done = quick_programs.run_program("-c", READS, path, timeout=120)
    assert done.returncode == 0, done.stderr
    *errors, raised, skipped = done.stdout.splitlines()
    assert set(errors) == {f"ReadFailed {log_file(path)}"}
    assert raised == "raised"
    ranges = [tuple(map(int, one.split(":"))) for one in skipped.split()]
    assert any(queue_id == 3 and start <= 30 < stop for queue_id, start, stop in ranges)
    # A page has some five messages, of different queues. Kernels with large folios fail all pages of the folio.
    assert len(errors) == len({queue_id for queue_id, _, _ in ranges})
    assert sum(stop - start for _, start, stop in ranges) <= 6 + LARGEST_FOLIO // 900


@needs_device
@pytest.mark.parametrize("keys", [2, 900])
def test_a_bad_sector_of_an_index_file_is_an_error_of_a_look_up(tmp_path: Path, keys: int) -> None:
    with power_cuts(tmp_path) as device:
        with device.power_on() as mount:
            path = mount / "store"
            builder = StoreBuilder(path)
            places = [int(builder.append("t", 0, [b"x"], keys=[f"key-{number}"])[0]) for number in range(900)]
            entries = [(f"t#key-{number}", place, 0) for number, place in enumerate(places)]
            index = builder.write_index("20261121000000000", entries, slots=5000)
            bad = place_on_device(index, 40 + 5000 * 4)
        device.fail_reads(bad, PAGE)
        with device.power_on() as mount:
            done = quick_programs.run_program("-c", LOOKS_UP, path, str(keys), timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"ReadFailed {index}\n", "")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux brings in pages with a call")
def test_a_log_file_cut_between_the_look_at_its_size_and_the_read_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "store"
    interleaved(path)
    done = quick_programs.run_program("-c", IS_CUT, path, log_file(path), timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"FileChanged {log_file(path)}\n", "")


def test_a_system_that_cannot_bring_in_pages_with_a_call_reads_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux before 5.14, macOS, and sandboxes without the call: bytes are copied there, and no page is touched."""
    path = tmp_path / "store"
    interleaved(path)
    with StoreReader.open(path) as reader:
        expected = [batch.to_pylist() for batch in reader.read("t", 3, 0)]
    monkeypatch.setattr(mapped_file, "populate_pages", lambda *_: False)
    with StoreReader.open(path) as reader:
        assert [batch.to_pylist() for batch in reader.read("t", 3, 0)] == expected


def test_many_keys_are_found_without_that_call_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = StoreBuilder(tmp_path / "store")
    places = [int(builder.append("t", 0, [b"x"], keys=[f"key-{number}"])[0]) for number in range(900)]
    builder.write_index(
        "20261121000000000", [(f"t#key-{number}", at, 0) for number, at in enumerate(places)], slots=300
    )
    keys = [f"key-{number}" for number in range(0, 1000, 3)]
    with StoreReader.open(builder.path) as reader:
        expected = [batch.to_pylist() for batch in reader.query_keys("t", keys)]
    monkeypatch.setattr(mapped_file, "populate_pages", lambda *_: False)
    with StoreReader.open(builder.path) as reader:
        assert [batch.to_pylist() for batch in reader.query_keys("t", keys)] == expected
