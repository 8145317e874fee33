"""Stores whose queues lead to a log that is not there: unmounted, removed, or in another directory."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlog_store import StoreReader
from commitlog_store.errors import LogNotFound
from tests.store.shapes.numbered_bodies import bounds, log_files, made_bodies, numbered, read
from tests.support.store_builder import StoreBuilder


def removed(store: Path) -> None:
    shutil.rmtree(store / "commitlog")


def unmounted(store: Path) -> None:
    """The mount point is left."""
    removed(store)
    (store / "commitlog").mkdir()


def only_other_names(store: Path) -> None:
    unmounted(store)
    (store / "commitlog" / "lost+found").mkdir()


@pytest.mark.parametrize("lose", [removed, unmounted, only_other_names])
@pytest.mark.parametrize("from_log", [False, True])
def test_a_store_without_its_log_is_refused_by_name(
    builder: StoreBuilder, lose: Callable[[Path], None], from_log: bool
) -> None:
    builder.append("t", 0, made_bodies(33))
    lose(builder.path)
    with pytest.raises(LogNotFound) as caught:
        StoreReader.open(builder.path, from_log=from_log)
    text = str(caught.value)
    assert caught.value.path == str(builder.path / "commitlog")
    assert f"not at {builder.path}/commitlog: no log file exists there" in text
    assert "topic 't' lead to messages" in text
    assert "Is its disk mounted?" in text
    assert "--commit-log DIR" in text


def test_the_topic_of_a_user_is_named_before_those_of_the_system(builder: StoreBuilder) -> None:
    for topic in ("RMQ_SYS_TRANS_HALF_TOPIC", "orders"):
        builder.append(topic, 0, made_bodies(3))
    unmounted(builder.path)
    with pytest.raises(LogNotFound, match="topic 'orders' lead to messages"):
        StoreReader.open(builder.path)


def test_a_new_store_whose_queue_files_have_no_units_is_empty(builder: StoreBuilder) -> None:
    queue = builder.path / "consumequeue" / "t" / "0"
    queue.mkdir(parents=True)
    (queue / f"{0:020d}").write_bytes(bytes(4000))
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (0, 0)


def test_retention_that_leaves_the_newest_file_is_not_a_lost_log(builder: StoreBuilder) -> None:
    builder.append("t", 0, made_bodies(60))
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (0, 60)
        builder.delete_log_files(len(log_files(builder)) - 1)
        low, high = bounds(reader)
        assert 0 < low < high == 60
        assert read(reader, low) == numbered(low, 60)


ASKS: dict[str, Callable[[StoreReader], object]] = {
    "queues": lambda reader: reader.queues("t"),
    "read": lambda reader: list(reader.read("t", 0, 0)),
    "get_message": lambda reader: reader.get_message("t", 0, 0),
    "offset_by_time": lambda reader: reader.offset_by_time("t", 0, 0),
    "message_at": lambda reader: reader.message_at(0),
    "query": lambda reader: reader.query("t", "k"),
    "physical_bounds": lambda reader: reader.physical_bounds(),
    "wait_for_any": lambda reader: reader.wait_for_any({("t", 0): 33}, 0),
}


@pytest.mark.parametrize("lose", [removed, unmounted])
@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
def test_an_open_reader_refuses_when_the_log_disappears_and_reads_when_it_is_back(
    builder: StoreBuilder, lose: Callable[[Path], None], ask: Callable[[StoreReader], object], tmp_path: Path
) -> None:
    builder.append("t", 0, made_bodies(33))
    shutil.copytree(builder.path / "commitlog", tmp_path / "copy")
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (0, 33)
        lose(builder.path)
        for _ in range(2):
            with pytest.raises(LogNotFound, match="its files were there before"):
                ask(reader)
        shutil.copytree(tmp_path / "copy", builder.path / "commitlog", dirs_exist_ok=True)
        assert bounds(reader) == (0, 33)
        ask(reader)


def test_a_log_behind_a_symbolic_link_is_read(builder: StoreBuilder, tmp_path: Path) -> None:
    builder.append("t", 0, made_bodies(33))
    shutil.move(builder.path / "commitlog", tmp_path / "disk")
    (builder.path / "commitlog").symlink_to(tmp_path / "disk")
    with StoreReader.open(builder.path) as reader:
        assert read(reader, 0) == numbered(0, 33)
