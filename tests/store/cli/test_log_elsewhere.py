"""``--commit-log`` and a broker.conf with ``storePathCommitLog``: every command that takes them, on a log elsewhere."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from commitlog import Message, MessageStore, MessageStoreConfig, commit_group_offsets
from tests.store.cli.commands import ended, plain, script

__all__: list[str] = []


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Ten messages, a batch, a pending half message, a delayed message and a group; the log in ``disk``."""
    path, disk = tmp_path / "store", tmp_path / "disk"
    config = MessageStoreConfig.embedded(
        store_path_commit_log=str(disk), disk_space_warning_level_ratio=1.0, schedule_enable=True
    )
    with MessageStore.open(path, config) as owner:
        for number in range(10):
            owner.put("orders", b"%d" % number, queue_id=0, keys=["k"])
        with owner.transaction("loader", version=1) as transaction:
            transaction.put_messages(pa.table({"topic": ["batched"], "body": [b"x"]}))
        owner.put("orders", b"late", delay=18)
        owner.half_messages.prepare(Message(topic="orders", body=b"half"), producer_group="p")
    commit_group_offsets(path, "billing", {("orders", 0): 3})
    return path


LOOKING = {
    "info STORE": "orders",
    "cat STORE orders": "9",
    "tail STORE orders": "9",
    "get STORE 0 --body": "0",
    "query STORE orders k": "9",
    "offset-at STORE 2h orders": "orders",
    "stats STORE": "orders",
    "groups ls STORE": "billing",
    "groups lag STORE": "orders",
    "groups reset STORE billing --to 2h": "orders",
    "topics ls STORE": "orders",
    "topics rm STORE batched --with-messages": "batched: 1 messages",
    "schedule ls STORE": "18",
    "half ls STORE": "orders",
    "txn ls STORE": "loader",
    "clean STORE --max-bytes 1G": "Nothing to delete",
    "repair STORE": "opens, and nothing is lost",
}
WRITING = {
    "groups reset STORE billing --to earliest --yes": "orders",
    "topics rm STORE batched --with-messages --yes": "Deleted batched",
    "txn reset STORE loader": "Forgot 'loader'",
    "clean STORE --max-bytes 1G --yes": "Deleted 0 files",
}


@pytest.mark.parametrize(("command", "found"), (LOOKING | WRITING).items())
def test_each_command_takes_the_logs_directory(store: Path, tmp_path: Path, command: str, found: str) -> None:
    words = [str(store) if word == "STORE" else word for word in command.split()]
    done = ended(*words, "--commit-log", tmp_path / "disk")
    assert (done.returncode, done.stderr.count("is not at")) == (0, 0), done.stderr
    assert found in done.stdout
    assert not (store / "commitlog").exists()


@pytest.mark.parametrize("command", LOOKING)
def test_without_it_each_command_names_it(store: Path, command: str) -> None:
    done = ended(*(str(store) if word == "STORE" else word for word in command.split()))
    if command == "repair STORE":
        assert done.returncode == 1
        assert "name its directory in store_path_commit_log" in plain(done.stdout + done.stderr)
        return
    assert done.returncode == 2
    assert f"The log of the store is not at {store}/commitlog" in done.stderr
    assert "--commit-log DIR" in done.stderr


def test_export_reads_the_log_elsewhere_and_does_not_write_beside_it(store: Path, tmp_path: Path) -> None:
    options = ["--topic", "orders", "--commit-log", tmp_path / "disk"]
    assert ended("export", store, "--to", f"ndjson:{tmp_path}/rows", *options).returncode == 0
    assert len((tmp_path / "rows").read_text().splitlines()) == 10
    done = ended("export", store, "--to", f"ndjson:{tmp_path}/disk/rows", *options)
    assert done.returncode == 2
    assert "give another target" in plain(done.stderr)


@pytest.mark.parametrize("way", ["option", "file"])
def test_produce_writes_into_the_log_elsewhere(store: Path, tmp_path: Path, way: str) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathCommitLog={tmp_path}/disk\nflushDiskType=SYNC_FLUSH\n")
    options = ["--commit-log", tmp_path / "disk"] if way == "option" else ["--config", conf]
    done = script("produce", store, "--topic", "orders", *options, input="more\n")
    assert done.returncode == 0, done.stderr
    assert "not used by a store" not in done.stderr
    done = ended("cat", store, "orders", "--commit-log", tmp_path / "disk", "--json")
    assert '"body":"more"' in done.stdout


def test_several_directories_are_wrong_usage_with_what_to_do(store: Path) -> None:
    done = ended("info", store, "--commit-log", "/a/log,/b/log")
    assert done.returncode == 2
    assert "RocketMQ's MultiPath" in plain(done.stderr)
    assert "link its files into one directory" in plain(done.stderr)


def test_salvage_takes_the_logs_directory_as_its_path(store: Path, tmp_path: Path) -> None:
    done = ended("salvage", tmp_path / "disk", "--to", tmp_path / "saved")
    assert done.returncode == 0, done.stderr
    assert '"body":"9"' in ended("cat", tmp_path / "saved", "orders", "--json").stdout
