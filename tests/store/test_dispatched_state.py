"""``dispatched_state``: beside a broker, equal ones mean that nothing came, as far as the log shows."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlog_store import Fence, Message, MessageStore, StoreReader
from commitlog_store.files import disk
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.paths import CHECKPOINT
from tests.support.store_builder import StoreBuilder

# The fields of a record: its queue offset is at 20, the bits of its system flag at 36.
_SYS_FLAG, _PREPARED = 36, 4


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    """A store as a broker writes it: 20 messages, in two topics."""
    made = StoreBuilder(tmp_path / "store", log_file_size=1 << 14)
    for topic in ("orders", "audit"):
        made.append(topic, [0, 1], [b"body"] * 10)
    return made


@pytest.fixture
def reader(builder: StoreBuilder) -> Iterator[StoreReader]:
    with StoreReader.open(builder.path) as opened:
        yield opened


@pytest.fixture
def known(reader: StoreReader) -> Fence:
    """The first message."""
    found = reader.fence("orders", 0, 0)
    assert found is not None
    return found


def headers_followed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The places of the records that are followed from here on."""
    followed: list[int] = []
    real = CommitLog.headers_from

    def counted(log: CommitLog, physical_offset: int) -> Iterator[tuple[int, int, bytes]]:
        for one in real(log, physical_offset):
            followed.append(one[0])
            yield one

    monkeypatch.setattr(CommitLog, "headers_from", counted)
    return followed


def test_the_state_stays_until_a_message_comes(builder: StoreBuilder, reader: StoreReader, known: Fence) -> None:
    before = reader.dispatched_state(known, 100)
    assert before is not None
    assert reader.dispatched_state(known, 100) == before
    builder.append("audit", 1, [b"body"])
    after = reader.dispatched_state(known, 100)
    assert after not in (None, before)
    newest = reader.fence("audit", 1, 5)
    assert newest is not None
    assert reader.dispatched_state(newest, 100) == after


def test_a_message_that_is_not_in_its_queue_yet_is_no_state(
    builder: StoreBuilder, reader: StoreReader, known: Fence
) -> None:
    """A broker's dispatch may lag for seconds: each trigger looks at the queues then, as without the state."""
    before = reader.dispatched_state(known, 100)
    queue = builder.path / "consumequeue" / "orders" / "1" / f"{0:020d}"
    undispatched = queue.read_bytes()
    builder.append("orders", 1, [b"body"])
    dispatched = queue.read_bytes()
    queue.write_bytes(undispatched)
    assert reader.dispatched_state(known, 100) is None
    assert reader.dispatched_state(known, 100) is None
    queue.write_bytes(dispatched)
    assert reader.dispatched_state(known, 100) not in (None, before)


def test_the_log_is_followed_into_its_next_file(builder: StoreBuilder, reader: StoreReader, known: Fence) -> None:
    seen = {reader.dispatched_state(known, 100)}
    for _ in range(3):
        builder.append("orders", 0, [b"b" * 6000])
        seen.add(reader.dispatched_state(known, 100))
    assert len(list((builder.path / "commitlog").iterdir())) > 1
    assert len(seen) == 4
    assert None not in seen


def test_a_long_rest_of_the_log_is_looked_through_in_several_calls(reader: StoreReader, known: Fence) -> None:
    states = [reader.dispatched_state(known, 8) for _ in range(12)]
    assert states[0] is None
    assert states[-1] == states[-2] is not None


def test_a_log_that_grows_faster_than_it_is_followed_is_seldom_looked_at(
    builder: StoreBuilder, reader: StoreReader, known: Fence, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a busy broker, idle triggers of a quiet topic cost more than asking its queues."""
    followed = headers_followed(monkeypatch)
    for _ in range(50):
        builder.append("audit", 0, [b"body"] * 8)
        assert reader.dispatched_state(known, 4) is None
    assert len(followed) <= 50


def test_of_a_long_log_the_last_file_is_followed(
    builder: StoreBuilder, reader: StoreReader, known: Fence, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query may begin with an old fence: the files between are not read. One is allocated ahead."""
    builder.append("audit", 0, [b"b" * 1000] * 300)
    files = sorted((builder.path / "commitlog").iterdir())
    assert len(files) > 20
    ahead = files[-1].with_name(f"{len(files) << 14:020d}")
    ahead.touch()
    os.truncate(ahead, 1 << 14)
    followed = headers_followed(monkeypatch)
    before = reader.dispatched_state(known, 20)
    assert before is not None
    assert min(followed) == int(files[-1].name)
    builder.append("audit", 0, [b"body"])
    assert reader.dispatched_state(known, 20) not in (None, before)


def test_the_log_is_followed_from_a_newer_message_on(builder: StoreBuilder, reader: StoreReader, known: Fence) -> None:
    """A query that has read on names one: the log between need not be followed."""
    assert reader.dispatched_state(known, 4) is None
    builder.append("audit", 0, [b"body"] * 30)
    newest = reader.fence("audit", 0, 34)
    assert newest is not None
    assert any(reader.dispatched_state(newest, 4) for _ in range(6))


def test_a_log_that_lost_its_end_is_another_state_or_none(
    builder: StoreBuilder, reader: StoreReader, known: Fence
) -> None:
    before = reader.dispatched_state(known, 100)
    lost = builder.append("orders", 0, [b"lost"])
    with_lost = reader.dispatched_state(known, 100)
    builder.truncate(int(lost[0]))
    assert reader.dispatched_state(known, 100) in (None, before)
    builder.append("orders", 0, [b"else"])
    assert reader.dispatched_state(known, 100) not in (before, with_lost)


def test_another_message_at_the_known_place_is_no_state(reader: StoreReader, known: Fence) -> None:
    assert reader.dispatched_state(Fence(known.physical_offset, known.crc ^ 1), 100) is None
    assert reader.dispatched_state(Fence(1 << 40, known.crc), 100) is None


def test_a_record_that_no_queue_has_is_no_state(builder: StoreBuilder, reader: StoreReader, known: Fence) -> None:
    """Such as the prepared half of a transaction: it does not show how far dispatch is."""
    place = int(builder.append("orders", 0, [b"body"])[0])
    log = builder.path / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    data[place + _SYS_FLAG + 3] |= _PREPARED
    data[place + 20 : place + 28] = bytes(8)  # the queue offset
    log.write_bytes(data)
    assert reader.dispatched_state(known, 100) is None


@pytest.mark.parametrize("byte", [0xFF, 0, ord("/")])
def test_a_record_whose_topic_is_damaged_is_no_state(
    byte: int, builder: StoreBuilder, reader: StoreReader, known: Fence
) -> None:
    """No CRC covers the topic: its bytes may be no text any more, or none that a topic may have."""
    place = int(builder.append("orders", 0, [b"body"])[0])
    log = builder.path / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    data[data.index(b"orders", place)] = byte
    log.write_bytes(data)
    assert reader.dispatched_state(known, 100) is None


@pytest.mark.parametrize("change", ["topic", "abort", "retention"])
def test_what_brokers_change_besides_is_another_state(change: str, tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store", log_file_size=1 << 12)
    builder.append("orders", 0, [b"b" * 1000] * 10)
    builder.append("audit", 0, [b"body"])
    with StoreReader.open(builder.path) as reader:
        known = reader.fence("audit", 0, 0)
        assert known is not None
        before = reader.dispatched_state(known, 100)
        assert before is not None
        if change == "topic":
            shutil.rmtree(builder.path / "consumequeue" / "orders")
        elif change == "abort":
            builder.write_abort()
        else:
            builder.delete_log_files(1)
        assert reader.dispatched_state(known, 100) not in (None, before)


def test_a_store_of_this_package_has_none(tmp_path: Path) -> None:
    """It dispatches in rounds, whose queues come in another order than the log's. Its copies, too."""
    with MessageStore.open(tmp_path / "store") as store:
        store.put_message(Message(topic="orders", body=b"body", queue_id=0)).raise_for_status()
        with StoreReader.open(tmp_path / "store") as reader:
            store.dispatch()
            known = reader.fence("orders", 0, 0)
            assert known is not None
            assert reader.dispatched_state(known, 100) is None
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    for path in ("store", "copy"):
        with StoreReader.open(tmp_path / path) as reader:
            assert reader.dispatched_state(known, 100) is None


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Path]:
    """A store of this package with one message, in its queue, beside its owner."""
    with MessageStore.open(tmp_path / "own") as store:
        store.put_message(Message(topic="orders", body=b"body", queue_id=0)).raise_for_status()
        store.flush()
        store.dispatch()
        yield tmp_path / "own"


def test_a_checkpoint_that_is_read_while_its_owner_writes_it_is_no_brokers(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a read may see the times of one write beside the mark of another one."""
    half_written_once = iter([True])
    real = disk.read_file

    def half_written(path: str, limit: int) -> bytes:
        data = real(path, limit)
        return bytes(24) + data[24:] if path.endswith(CHECKPOINT) and next(half_written_once, False) else data

    with StoreReader.open(own) as reader:
        known = reader.fence("orders", 0, 0)
        assert known is not None
        monkeypatch.setattr(disk, "read_file", half_written)
        assert reader.dispatched_state(known, 100) is None
        assert not list(half_written_once)


def test_a_checkpoint_that_cannot_be_read_is_no_brokers(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = disk.read_file

    def failing(path: str, limit: int) -> bytes:
        if path.endswith(CHECKPOINT):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return real(path, limit)

    with StoreReader.open(own) as reader:
        known = reader.fence("orders", 0, 0)
        assert known is not None
        monkeypatch.setattr(disk, "read_file", failing)
        assert reader.dispatched_state(known, 100) is None
