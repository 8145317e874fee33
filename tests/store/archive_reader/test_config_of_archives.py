"""What an archive knows of groups, half and delayed messages, batches and topics, as of its newest generation."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from commitlog_store import Message, MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.archive.archiver import archive_store
from commitlog_store.archive.generations import newest
from commitlog_store.archive.object_store import ObjectStore
from commitlog_store.cli.app import app
from commitlog_store.errors import ArchiveDamaged
from commitlog_store.files.temporary import TemporaryFiles

NOW_MS = 1_800_000_000_000
ASKS: dict[str, Callable[[StoreReader], Any]] = {
    "groups": lambda reader: reader.groups(now_ms=NOW_MS),
    "positions": lambda reader: [reader.group_offsets(row.group) for row in reader.groups(now_ms=NOW_MS)],
    "dead letters": lambda reader: reader.dead_letters(),
    "group settings": lambda reader: reader.group_settings(),
    "filters": lambda reader: reader.group_filters(),
    "topics": lambda reader: reader.topic_settings(),
    "delayed": lambda reader: [level for level in reader.delay_levels() if level.level],
    "half": lambda reader: reader.pending_half_messages(),
    "batches": lambda reader: reader.batches(),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a group, whose position is before its end, a delayed and a half message, and a batch."""
    path = tmp_path_factory.mktemp("known") / "store"
    with MessageStore.open(path, MessageStoreConfig.embedded(mapped_file_size_commit_log=4 << 10)) as owner:
        for number in range(40):
            owner.put("orders", b"%d" % number * 60, queue_id=0)
        owner.put("orders", b"later", queue_id=0, delay="1h")
        owner.half_messages.prepare(Message(topic="orders", body=b"half", queue_id=0), "payers")
        with owner.transaction("loader", version=3) as batch:
            batch.put_messages([Message(topic="orders", body=b"batch", queue_id=0)])
        with owner.consumer("billing", ["orders"]) as consumer:
            assert consumer.poll(max_messages=30, timeout_s=10)
            consumer.commit()
    return path


def test_an_archived_store_knows_what_its_directory_does(store: Path, tmp_path: Path) -> None:
    archive_store(store, f"file://{tmp_path}/past", with_last=True)
    url = f"archive+file://{tmp_path}/past"
    with StoreReader.open(store) as directory, StoreReader.open(url) as archive:
        opening = archive.stats().requests
        for what, ask in ASKS.items():
            assert ask(archive) == ask(directory), what
        assert archive.stats().requests > opening
        (row,) = [row for row in archive.groups("billing") if row.topic == "orders"]
        assert row.lag
        assert len(archive.pending_half_messages()) == 1
        assert [batch.batch.version for batch in archive.batches()] == [3]
        copies = archive.config_home
        assert os.listdir(f"{copies}/config")
    assert not os.path.exists(copies)
    runner = CliRunner()
    for command in ("groups ls", "half ls", "txn ls", "schedule ls", "topics ls", "dlq ls"):
        printed = [runner.invoke(app, [*command.split(), str(place), "--json", "--stats"]) for place in (store, url)]
        assert [one.exit_code for one in printed] == [0, 0], command
        assert len(printed[0].stdout.splitlines()) == len(printed[1].stdout.splitlines()) >= (command != "dlq ls")
        assert "commitlog: 0 requests" in printed[0].stderr
        assert " requests to object storage: " in printed[1].stderr


def test_copies_that_are_removed_are_made_again(store: Path, tmp_path: Path) -> None:
    """As by the system's clean-up of old temporary files: without its copies, a store would have no groups."""
    archive_store(store, f"file://{tmp_path}/past", with_last=True)
    with StoreReader.open(f"archive+file://{tmp_path}/past") as archive:
        positions = archive.groups(now_ms=NOW_MS)
        assert positions
        (Path(archive.config_home) / "config" / "consumerOffset.json").unlink()
        assert archive.groups(now_ms=NOW_MS) == positions
        shutil.rmtree(archive.config_home)
        assert archive.groups(now_ms=NOW_MS) == positions
        copies = Path(archive.config_home)
    assert not copies.exists()


def test_a_forked_process_does_not_remove_the_files_of_its_parent() -> None:
    files = TemporaryFiles()
    files.add("config", "topics.json", b"{}")
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            files.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert files.are_whole()
    files.close()
    assert not os.path.exists(files.path)


def test_a_position_that_is_after_the_archive_says_so(store: Path, tmp_path: Path) -> None:
    """Files of config/ are newer than the end of the closed log files."""
    archive_store(store, f"file://{tmp_path}/past")
    with StoreReader.open(f"archive+file://{tmp_path}/past") as archive:
        (row,) = [row for row in archive.groups("billing") if row.topic == "orders"]
        assert row.max_offset is not None
        assert row.committed_offset is not None
        assert (row.lag == 0) == (row.committed_offset >= row.max_offset)
        assert ("is not archived yet" in row.error) == (row.committed_offset > row.max_offset)
        assert archive.batches() == []  # the log that has it is not archived


def test_a_damaged_config_file_is_named(store: Path, tmp_path: Path) -> None:
    archive_store(store, f"file://{tmp_path}/past", with_last=True)
    ref = newest(ObjectStore.open(f"file://{tmp_path}/past")).config["consumerOffset.json"]
    path = tmp_path / "past" / ref.name
    path.write_bytes(path.read_bytes().replace(b"orders", b"ordres"))
    with (
        StoreReader.open(f"archive+file://{tmp_path}/past") as archive,
        pytest.raises(ArchiveDamaged, match=ref.name),
    ):
        archive.groups()
