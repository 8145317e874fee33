"""Where a queue and the log end, after clean stops and after crashes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from commitlog_store import StoreReader
from commitlog_store.errors import CorruptConsumeQueue, CorruptStoreError, FileMissing, MessageNotFound, TopicNotFound
from commitlog_store.format.consume_queue_unit import UNIT_FILE_DTYPE, UNIT_SIZE
from commitlog_store.format.sys_flag import TRANSACTION_PREPARED_TYPE
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.paths import file_name_for_offset
from tests.store.shapes.numbered_bodies import (
    SMALL_LOG,
    UNITS,
    bounds,
    log_files,
    made_bodies,
    numbered,
    queue_files,
    read,
)
from tests.support.store_builder import StoreBuilder


@pytest.mark.parametrize("count", [9, 10, 11, 20])
def test_a_queue_may_end_exactly_at_a_files_end(builder: StoreBuilder, count: int) -> None:
    builder.append("t", 0, made_bodies(count))
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (0, count)
        assert read(reader) == numbered(0, count)
        builder.append("t", 0, made_bodies(1, count))
        assert bounds(reader) == (0, count + 1)
        assert read(reader, count) == numbered(count, count + 1)


@pytest.mark.parametrize("size", [0, 3, UNIT_SIZE, UNITS * UNIT_SIZE])
def test_an_empty_queue_file_allocated_ahead_changes_nothing(builder: StoreBuilder, size: int) -> None:
    builder.append("t", 0, made_bodies(10))
    ahead = queue_files(builder)[0].parent / file_name_for_offset(10 * UNIT_SIZE)
    ahead.write_bytes(bytes(size))
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (0, 10)
        assert read(reader) == numbered(0, 10)


def test_an_empty_log_file_allocated_ahead_changes_nothing(builder: StoreBuilder) -> None:
    builder.append("t", 0, made_bodies(30))
    end = builder.position
    for ahead in (1, 2):
        base = (end // SMALL_LOG + ahead) * SMALL_LOG
        (builder.path / "commitlog" / file_name_for_offset(base)).write_bytes(bytes(SMALL_LOG))
    with StoreReader.open(builder.path) as reader:
        assert reader.physical_bounds() == (0, end)
        assert read(reader) == numbered(0, 30)
        with pytest.raises(MessageNotFound, match="nothing was written there"):
            reader.message_at(end)


def test_a_copy_that_was_cut_after_the_last_record_is_whole(builder: StoreBuilder) -> None:
    """Backups leave out the zeros after the end."""
    builder.append("t", 0, made_bodies(33))
    os.truncate(log_files(builder)[-1], builder.position % SMALL_LOG)
    os.truncate(queue_files(builder)[-1], 3 * UNIT_SIZE)
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (0, 33)
        assert read(reader) == numbered(0, 33)
        assert reader.physical_bounds() == (0, builder.position)


def _cut_the_log(builder: StoreBuilder, physical_offset: int) -> None:
    """The log as it is when the bytes after that place were never written."""
    path = log_files(builder)[-1]
    kept = physical_offset - int(path.name)
    path.write_bytes(path.read_bytes()[:kept].ljust(SMALL_LOG, b"\0"))


def test_after_a_crash_units_whose_messages_never_reached_the_log_are_left_out(builder: StoreBuilder) -> None:
    """A machine that stops may have written the queue and not the log: RocketMQ cuts such units off when it starts."""
    places = builder.append("t", 0, made_bodies(33))
    builder.write_abort()
    for kept in range(32, int(np.searchsorted(places, int(log_files(builder)[-1].name))) - 1, -1):
        _cut_the_log(builder, int(places[kept]))
        with StoreReader.open(builder.path) as reader:
            for _ in range(2):
                assert bounds(reader) == (0, kept)
                assert read(reader) == numbered(0, kept)


def test_after_a_crash_units_after_the_last_log_file_are_left_out(builder: StoreBuilder) -> None:
    places = builder.append("t", 0, made_bodies(60))
    log_files(builder)[-1].unlink()
    builder.write_abort()
    kept = int(np.searchsorted(places, int(log_files(builder)[-1].name) + SMALL_LOG))
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (0, kept)
        assert read(reader) == numbered(0, kept)


def test_after_a_crash_a_last_log_file_cut_within_a_record_ends_before_it(builder: StoreBuilder) -> None:
    places = builder.append("t", 0, made_bodies(33))
    os.truncate(log_files(builder)[-1], int(places[32]) % SMALL_LOG + 40)
    builder.write_abort()
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (0, 32)
        assert read(reader) == numbered(0, 32)


def test_in_a_closed_store_a_unit_that_leads_after_the_log_is_an_error(builder: StoreBuilder) -> None:
    """An owner that closes its store has written both; what is missing then is damage, not a crash."""
    places = builder.append("t", 0, made_bodies(33))
    _cut_the_log(builder, int(places[31]))
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (0, 33)
        assert read(reader, 0, 31) == numbered(0, 31)
        for start in (0, 31, 32):
            with pytest.raises(CorruptStoreError):
                read(reader, start)
        assert reader.physical_bounds() == (0, places[31])
    newest = log_files(builder)[-1]
    newest.unlink()
    with StoreReader.open(builder.path) as reader, pytest.raises(FileMissing, match="the log ends before it") as caught:
        read(reader)
    assert caught.value.path == str(newest)


@pytest.mark.parametrize("first_bytes", [1, 8, 12, 19])
def test_a_unit_that_a_crash_tore_is_an_error_when_its_message_is_in_the_log(
    builder: StoreBuilder, first_bytes: int
) -> None:
    """Units lie across pages, which reach the disk one by one. RocketMQ writes the unit again when it starts."""
    places = builder.append("t", 0, made_bodies(25))
    (path,) = queue_files(builder)[2:]
    whole = path.read_bytes()
    builder.write_abort()
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (0, 25)
        path.write_bytes(whole[: 4 * UNIT_SIZE + first_bytes].ljust(len(whole), b"\0"))
        torn = any(whole[4 * UNIT_SIZE :][:first_bytes])
        if not torn:
            assert bounds(reader) == (0, 24), "nothing of it was written"
        elif first_bytes < 12:
            for _ in range(2):
                with pytest.raises(CorruptConsumeQueue, match=f"expected {places[24]} and the size") as raised:
                    bounds(reader)
                assert (raised.value.path, raised.value.offset) == (str(path), 4 * UNIT_SIZE)
        else:
            assert read(reader) == numbered(0, 25), "only the tags code is incomplete"
        path.write_bytes(whole)
        assert bounds(reader) == (0, 25), "the owner has finished it"
        if torn and first_bytes < 12:
            path.write_bytes(whole[: 4 * UNIT_SIZE + first_bytes].ljust(len(whole), b"\0"))
            _cut_the_log(builder, int(places[24]))
            assert bounds(reader) == (0, 24), "neither of the two was written whole"


def before_each_search(monkeypatch: pytest.MonkeyPatch, action: Callable[[int], object]) -> None:
    """Let something happen whenever the log is searched for a message, with the offset the search begins at."""
    headers_from = CommitLog.headers_from

    def acted(log: CommitLog, physical_offset: int) -> Iterator[tuple[int, int, bytes]]:
        action(physical_offset)
        return headers_from(log, physical_offset)

    monkeypatch.setattr(CommitLog, "headers_from", acted)


def test_the_log_is_searched_once_for_a_unit_that_stays_as_it_is(
    builder: StoreBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = builder.append("t", [0, 1], made_bodies(66))
    _cut_the_log(builder, int(places[62]))
    builder.write_abort()
    searches: list[int] = []
    before_each_search(monkeypatch, searches.append)
    with StoreReader.open(builder.path) as reader:
        for _ in range(3):
            assert bounds(reader) == (0, 31)
        assert searches == [places[60]], "from the last message that is there"
        builder.truncate(int(places[62]))
        builder.append("t", [0, 1], made_bodies(2, 100))
        assert bounds(reader) == (0, 32)
        assert len(searches) == 1, "the owner has started again and written others in their places"


def test_a_unit_seen_while_it_is_written_is_looked_at_again(
    builder: StoreBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A live owner writes the record first, then the unit; a reader may see half of it."""
    builder.append("t", 0, made_bodies(25))
    (path,) = queue_files(builder)[2:]
    whole = path.read_bytes()
    builder.write_abort()
    path.write_bytes(whole[: 4 * UNIT_SIZE + 8].ljust(len(whole), b"\0"))
    before_each_search(monkeypatch, lambda _: path.write_bytes(whole))
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (0, 25)
        assert read(reader) == numbered(0, 25)


def test_other_queues_and_prepared_messages_are_not_taken_for_the_lost_one(builder: StoreBuilder) -> None:
    """Queue id and offset alone do not make a message: another topic has the same, and what a transaction prepared
    has no unit."""
    builder.append("t", 0, made_bodies(3))
    builder.append("other", 0, made_bodies(4))
    builder.append("prepared", 0, [b"x"] * 4, sys_flag=TRANSACTION_PREPARED_TYPE)
    for topic in ("t", "prepared"):
        wild = np.zeros(1, UNIT_FILE_DTYPE)
        wild["physical_offset"], wild["size"] = 3 * SMALL_LOG, 200
        builder.write_units(topic, 0, 3, wild)
    builder.write_abort()
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader, "t") == (0, 3)
        assert bounds(reader, "prepared") == (0, 3)


def test_a_store_without_any_file_is_empty(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    with StoreReader.open(builder.path) as reader:
        assert reader.topics() == []
        assert reader.physical_bounds() == (0, 0)
        assert reader.index_files() == []
        assert reader.query("t", "k") == []
        with pytest.raises(TopicNotFound):
            reader.queues("t")
        with pytest.raises(MessageNotFound, match=r"holds \[0, 0\)"):
            reader.message_at(0)


@pytest.mark.parametrize("left", ["commitlog", "consumequeue", "checkpoint", "abort", "lock"])
def test_a_store_with_only_one_of_its_parts_opens(tmp_path: Path, left: str) -> None:
    """RocketMQ makes the others when it needs them."""
    path = tmp_path / "store"
    path.mkdir()
    if left in {"commitlog", "consumequeue"}:
        (path / left).mkdir()
    else:
        (path / left).write_bytes(b"")
    with StoreReader.open(path) as reader:
        assert reader.topics() == []
        assert reader.physical_bounds() == (0, 0)


def test_a_queue_directory_without_files_is_an_empty_queue(builder: StoreBuilder) -> None:
    builder.append("t", 0, made_bodies(3))
    (builder.path / "consumequeue" / "t" / "1").mkdir()
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader, "t", 1) == (0, 0)
        assert read(reader, queue_id=1) == []
