"""What an archive knows of groups, half and delayed messages, batches and topics, as of its newest generation."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from commitlog_store import Message, MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.archive.archiver import archive_store
from commitlog_store.archive.generations import newest
from commitlog_store.cli.app import app
from commitlog_store.errors import ArchiveDamaged
from commitlog_store.object_storage.object_store import ObjectStore
from tests.support import quick_programs
from tests.support.programs import child_environment
from tests.support.waiting import WAIT_LIMIT_S

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
        assert not os.path.exists(archive.config_home)
    runner = CliRunner()
    for command in ("groups ls", "half ls", "txn ls", "schedule ls", "topics ls", "dlq ls"):
        printed = [runner.invoke(app, [*command.split(), str(place), "--json", "--stats"]) for place in (store, url)]
        assert [one.exit_code for one in printed] == [0, 0], command
        assert len(printed[0].stdout.splitlines()) == len(printed[1].stdout.splitlines()) >= (command != "dlq ls")
        assert "commitlog: 0 requests" in printed[0].stderr
        assert " requests to object storage: " in printed[1].stderr


def test_a_command_that_a_signal_ends_leaves_nothing_in_the_temporary_directory(store: Path, tmp_path: Path) -> None:
    archive_store(store, f"file://{tmp_path}/past", with_last=True)
    program = (
        "import sys, time\n"
        "from commitlog_store import StoreReader\n"
        f"with StoreReader.open('archive+file://{tmp_path}/past') as archive:\n"
        "    assert archive.groups() and archive.pending_half_messages()\n"
        "    print('read', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environment = {**child_environment(), "TMPDIR": str(temporary)}
    pipe = subprocess.PIPE
    with quick_programs.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe, env=environment) as reading:
        assert reading.stdout is not None
        assert reading.stdout.readline() == b"read\n"
        reading.terminate()
        assert reading.wait(WAIT_LIMIT_S) == -signal.SIGTERM
    assert os.listdir(temporary) == []


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
