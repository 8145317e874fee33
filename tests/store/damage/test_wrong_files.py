"""Pipes, directories, devices and files of impossible names or sizes in the place of a store's files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlog_store import StoreReader
from commitlog_store.errors import CommitLogError, CorruptCheckpoint, CorruptConsumeQueue, TopicNotFound
from tests.store.damage.filled_store import BODIES, expected_bodies, index_file, log_file, queue_file, read_everything
from tests.support.store_builder import StoreBuilder


def test_the_undamaged_store_reads_whole(builder: StoreBuilder) -> None:
    """Else the tests below would show nothing."""
    assert read_everything(builder.path) == expected_bodies()
    assert len(list((builder.path / "commitlog").iterdir())) == 3
    with StoreReader.open(builder.path) as reader:
        for number in range(30):
            topic = "b" if 10 <= number < 20 else "a"
            assert [m.body for m in reader.query(topic, f"k{number}")] == [BODIES[number]]


def _a_pipe(path: Path) -> None:
    os.mkfifo(path)


def _a_directory(path: Path) -> None:
    path.mkdir()


def _a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _a_broken_link(path: Path) -> None:
    path.symlink_to(path.parent / "nowhere")


@pytest.mark.parametrize("which", [log_file, queue_file, index_file])
@pytest.mark.parametrize("put", [_a_pipe, _a_directory, _a_device])
def test_something_else_in_the_place_of_a_file_is_named_and_never_waited_for(
    builder: StoreBuilder, which: Callable[[StoreBuilder], Path], put: Callable[[Path], None]
) -> None:
    """Opening a pipe for reading blocks until a process writes; a device has no end."""
    path = which(builder)
    path.unlink()
    put(path)
    with StoreReader.open(builder.path) as reader:
        looks: list[Callable[[], object]] = (
            [lambda: reader.query("a", "k0"), reader.index_files]
            if which is index_file
            else [lambda: list(reader.read("a", 0, 0)), lambda: list(reader.read("a", 0, 0))]
        )
        for look in looks:
            with pytest.raises(CommitLogError, match=str(path)):
                look()
        with pytest.raises(CommitLogError):
            reader.message_at(0) if which is log_file else looks[0]()


def test_a_link_to_nowhere_is_a_missing_file(builder: StoreBuilder) -> None:
    path = log_file(builder)
    path.unlink()
    _a_broken_link(path)
    with StoreReader.open(builder.path) as reader, pytest.raises(CommitLogError):
        list(reader.read("a", 0, 0))


@pytest.mark.parametrize("put", [_a_pipe, _a_directory])
def test_other_things_in_place_of_the_checkpoint_are_named(builder: StoreBuilder, put: Callable[[Path], None]) -> None:
    (builder.path / "checkpoint").unlink()
    put(builder.path / "checkpoint")
    with StoreReader.open(builder.path) as reader:
        with pytest.raises(CommitLogError, match="checkpoint"):
            reader.checkpoint()
        assert len(read_everything(builder.path)) == 5, "nothing else needs it"


@pytest.mark.parametrize("data", [b"", b"x", bytes(4095), bytes(4097), b"\xff" * 4096, b"\x7f" * 4096, bytes(1 << 20)])
def test_an_impossible_checkpoint_is_named(builder: StoreBuilder, data: bytes) -> None:
    path = builder.path / "checkpoint"
    path.write_bytes(data)
    with StoreReader.open(builder.path) as reader, pytest.raises(CorruptCheckpoint) as raised:
        reader.checkpoint()
    assert raised.value.path == str(path)


def test_a_file_in_place_of_a_topic_or_a_queue_is_skipped_or_named(builder: StoreBuilder) -> None:
    queues = builder.path / "consumequeue"
    (queues / "file_topic").write_bytes(b"?")
    (queues / "a" / "7").write_bytes(b"?")
    with StoreReader.open(builder.path) as reader:
        with pytest.raises(TopicNotFound):
            reader.queues("file_topic")
        for _ in range(2):
            with pytest.raises(CorruptConsumeQueue, match="expected a directory") as raised:
                reader.queue_info("a", 7)
            assert raised.value.path == str(queues / "a" / "7")
        assert reader.queue_info("a", 0).max_offset == 10


def test_a_queue_file_with_a_name_between_two_units_is_named(builder: StoreBuilder) -> None:
    (queue_file(builder).parent / f"{30:020d}").write_bytes(b"")
    with StoreReader.open(builder.path) as reader:
        for _ in range(2):
            with pytest.raises(CorruptConsumeQueue, match="a multiple of the unit size 20, found 30"):
                reader.queue_info("a", 0)
        assert reader.queue_info("a", 1).max_offset == 10


def test_damage_of_one_queue_does_not_hide_the_others(builder: StoreBuilder) -> None:
    (queue_file(builder).parent / f"{30:020d}").write_bytes(b"")
    with StoreReader.open(builder.path) as reader:
        assert reader.topics() == ["a", "b", "packed"]
        assert reader.queue_info("b", 0).max_offset == 5
        assert reader.message_at(0).body == BODIES[0]
