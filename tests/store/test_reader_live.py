"""Reading beside a live owner, and files that are cut or removed under a reader. Other processes are real ones."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from commitlog_store import StoreReader
from commitlog_store.errors import FileChanged, FileMissing, LogNotFound, OffsetOutOfRange, QueueNotFound, TopicNotFound
from tests.support import quick_programs
from tests.support.live_owner import LIVE_QUEUES, live_body
from tests.support.source_tree import PROJECT
from tests.support.store_builder import StoreBuilder


@contextmanager
def _owner(store: Path, *, seed: int, keep: int) -> Iterator[Callable[[], int]]:
    """A process that appends until the function is called, which gives the number of messages."""
    StoreBuilder(store).write_abort()
    command = [sys.executable, "-m", "tests.support.live_owner", str(store), str(seed), str(keep)]
    process = quick_programs.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def stop() -> int:
        (store / "stop").touch()
        said, errors = process.communicate()
        assert (process.returncode, errors) == (0, "")
        return int(said)

    try:
        yield stop
    finally:
        (store / "stop").touch()
        process.communicate()


class _Follower:
    """Reads one queue on and on; every row must be the next one, and right."""

    def __init__(self, reader: StoreReader, queue_id: int) -> None:
        self.reader = reader
        self.queue_id = queue_id
        self.position = 0
        self.skipped = 0
        self.times_grown = 0

    def look(self) -> None:
        before = self.position
        try:
            stop = self.reader.queue_info("live", self.queue_id).max_offset
            assert stop >= self.position, "a queue that only grows never ends earlier than before"
            self._read(stop)
        except (TopicNotFound, QueueNotFound):
            assert self.position == 0, "not there yet"
        except OffsetOutOfRange:
            first = self.reader.queue_info("live", self.queue_id).min_offset
            assert self.position < first, "what is refused is gone indeed"
            self.skipped += first - self.position
            self.position = first
        self.times_grown += self.position > before

    def _read(self, stop: int) -> None:
        columns = ["queueOffset", "body"]
        for batch in self.reader.read(
            "live", self.queue_id, self.position, stop, columns=columns, verify_crc=True, max_batch_rows=64
        ):
            for row in batch.to_pylist():
                assert row["queueOffset"] == self.position
                assert row["body"] == live_body(self.queue_id + self.position * LIVE_QUEUES)
                self.position += 1
        assert self.position == stop


def test_rows_are_contiguous_and_right_while_another_process_appends(tmp_path: Path) -> None:
    """The first topic, the first files, and from then on new units and files appear while the reader looks."""
    with _owner(tmp_path / "store", seed=1, keep=10**6) as stop, StoreReader.open(tmp_path / "store") as reader:
        followers = [_Follower(reader, queue_id) for queue_id in range(LIVE_QUEUES)]
        last_end = 0
        while min(follower.times_grown for follower in followers) < 30:
            for follower in followers:
                follower.look()
            low, end = reader.physical_bounds()
            assert low == 0
            assert end >= last_end
            last_end = end
        total = stop()
        for follower in followers:
            follower.look()
        assert sum(follower.position for follower in followers) == total
        assert not any(follower.skipped for follower in followers)


def test_rows_stay_right_while_another_process_also_deletes_the_head(tmp_path: Path) -> None:
    """Offsets that retention has taken are refused by name; everything else is contiguous and right."""
    with _owner(tmp_path / "store", seed=2, keep=3) as stop, StoreReader.open(tmp_path / "store") as reader:
        follower, slow = _Follower(reader, 0), _Follower(reader, 1)
        while follower.times_grown < 60 or slow.skipped == 0:
            follower.look()
            if follower.times_grown % 20 == 0:
                slow.look()
        total = stop()
        follower.look()
        follower.look()
        assert follower.position == -(-total // LIVE_QUEUES)


def _run_with_store(store: Path, program: str) -> str:
    """Run a program that has ``reader`` in a process of its own: SIGBUS would kill it."""
    text = "import os, sys\nfrom commitlog_store import StoreReader\nfrom commitlog_store.errors import *\n"
    text += f"store = {str(store)!r}\nreader = StoreReader.open(store)\n" + textwrap.dedent(program)
    done = quick_programs.run([sys.executable, "-c", text], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout.strip()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    builder = StoreBuilder(tmp_path / "store", log_file_size=1 << 20, queue_file_units=100)
    builder.append("t", 0, [f"message {number} ".encode() * 75 for number in range(2500)])
    assert len(list((builder.path / "commitlog").iterdir())) == 3
    return builder.path


@pytest.mark.parametrize("left", [0, 100, 4096, 200_000, 700_000])
@pytest.mark.parametrize("rows", [10, 16_384])
def test_a_log_file_cut_under_a_reader_is_a_named_error_not_a_dead_process(store: Path, left: int, rows: int) -> None:
    said = _run_with_store(
        store,
        f"""
        path = os.path.join(store, "commitlog", "{1 << 20:020d}")
        list(reader.read("t", 0, 1100, 1120))  # the file is open and mapped now
        found = []
        try:
            os.truncate(path, {left})
            for batch in reader.read("t", 0, 0, max_batch_rows={rows}, columns=["queueOffset"]):
                found += batch["queueOffset"].to_pylist()
        except FileChanged as error:
            assert error.path == path and path in str(error), error
            print("FileChanged")
        assert found == list(range(len(found))) and len(found) > 900, len(found)
        """,
    )
    assert said == "FileChanged"


def test_a_log_file_cut_between_two_batches_is_a_named_error(store: Path) -> None:
    said = _run_with_store(
        store,
        """
        batches = reader.read("t", 0, 0, max_batch_rows=100)
        next(batches)
        os.truncate(os.path.join(store, "commitlog", f"{0:020d}"), 5000)
        try:
            for batch in batches:
                pass
        except FileChanged:
            print("FileChanged")
        for look in (lambda: reader.message_at(500_000), lambda: reader.store_timestamp("t", 0, 900)):
            try:
                look()
            except CommitLogError as error:
                print(type(error).__name__)
        """,
    )
    assert said.split() == ["FileChanged", "MessageNotFound", "FileChanged"]


def test_a_log_file_cut_under_a_sparse_read_is_a_named_error(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    for _ in range(10):
        builder.append("t", 0, [b"read by itself"])
        builder.append("other", 0, [b"x" * (80 << 10)])
    said = _run_with_store(
        builder.path,
        """
        batches = reader.read("t", 0, 0, max_batch_rows=2)
        next(batches)
        os.truncate(os.path.join(store, "commitlog", f"{0:020d}"), 300_000)
        try:
            for batch in batches:
                pass
        except FileChanged:
            print("FileChanged")
        """,
    )
    assert said == "FileChanged"


def test_a_log_that_lost_its_tail_and_grew_again_is_read_again(tmp_path: Path) -> None:
    """A reader that stays open keeps no bytes from one read to the next."""
    first = StoreBuilder(tmp_path / "store")
    first.append("t", 0, [b"kept", b"lost"])
    with StoreReader.open(first.path) as reader:
        assert [row["body"] for batch in reader.read("t", 0, 0) for row in batch.to_pylist()] == [b"kept", b"lost"]
        StoreBuilder(tmp_path / "store").append("t", 0, [b"kept", b"NEW."])
        assert [row["body"] for batch in reader.read("t", 0, 0) for row in batch.to_pylist()] == [b"kept", b"NEW."]


def test_a_queue_file_cut_under_a_reader_is_a_named_error(store: Path) -> None:
    with StoreReader.open(store) as reader:
        batches = reader.read("t", 0, 0, max_batch_rows=30)
        next(batches)
        os.truncate(store / "consumequeue" / "t" / "0" / f"{200 * 20:020d}", 50 * 20)
        with pytest.raises(FileMissing) as raised:
            list(batches)
        assert (raised.value.start, raised.value.stop) == (250, 300)


def test_an_index_file_cut_under_a_reader_is_a_named_error(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    (place,) = builder.append("t", 0, [b"x"], keys=["k"])
    index = builder.write_index("20261121000000000", [("t#k", int(place), 0)], slots=5)
    with StoreReader.open(builder.path) as reader:
        assert len(reader.query("t", "k")) == 1
        for size in (99, 41, 39, 0):
            os.truncate(index, size)
            with pytest.raises(FileChanged, match=index.name):
                reader.query("t", "k")


def test_an_open_file_that_was_removed_is_read_to_its_end(store: Path) -> None:
    """A removed file stays readable while it is open; what was not open yet is named."""
    found: list[int] = []
    with StoreReader.open(store) as reader:
        batches = reader.read("t", 0, 0, max_batch_rows=100, columns=["queueOffset"])
        next(batches)
        (store / "commitlog" / f"{0:020d}").unlink()
        (store / "commitlog" / f"{1 << 20:020d}").unlink()
        with pytest.raises(OffsetOutOfRange) as raised:
            found.extend(row for batch in batches for row in batch["queueOffset"].to_pylist())
        first_left = reader.queue_info("t", 0).min_offset
        assert len(found) > 800
        assert found == list(range(100, 100 + len(found)))
        assert raised.value.start == 100 + len(found)
        assert raised.value.min_offset == first_left


def test_a_file_removed_from_the_middle_under_a_reader_is_missing(store: Path) -> None:
    with StoreReader.open(store) as reader:
        batches = reader.read("t", 0, 0, max_batch_rows=100)
        next(batches)
        gone = store / "commitlog" / f"{1 << 20:020d}"
        gone.unlink()
        with pytest.raises(FileMissing) as raised:
            list(batches)
        assert raised.value.path == str(gone)


def test_a_store_that_vanishes_under_a_reader_is_a_named_error(store: Path, tmp_path: Path) -> None:
    with StoreReader.open(store) as reader:
        batches = reader.read("t", 0, 0, max_batch_rows=100)
        next(batches)
        store.rename(tmp_path / "elsewhere")
        for look in (lambda: list(batches), lambda: reader.queue_info("t", 0), reader.physical_bounds):
            with pytest.raises(LogNotFound, match="its files were there before"):
                look()
        assert reader.topics() == []
        assert reader.checkpoint() is None
        (tmp_path / "elsewhere").rename(store)
        assert reader.queue_info("t", 0).max_offset == 2500


def test_a_topic_is_listed_once_it_has_a_queue(tmp_path: Path) -> None:
    """RocketMQ makes the topic's directory first; who goes over all topics must not trip over it."""
    StoreBuilder(tmp_path).append("orders", 0, [b"one"])
    with StoreReader.open(tmp_path) as reader:
        assert reader.topics() == ["orders"]
        fresh = tmp_path / "consumequeue" / "fresh"
        fresh.mkdir()
        (tmp_path / "consumequeue" / "stray").write_text("")
        assert reader.topics() == ["orders"]
        (fresh / "0").mkdir()
        assert reader.topics() == ["fresh", "orders"]
        assert reader.queue_ids("fresh") == [0]
