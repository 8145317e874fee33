"""``--commit-log`` and a broker.conf with ``storePathCommitLog``: every command that takes them, on a log elsewhere."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import Message, MessageStore, MessageStoreConfig, commit_group_offsets
from tests.store.cli.commands import ended, plain, script, shell
from tests.store.owner.owned_store import small
from tests.store.verify.made_store import make_store


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


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with several log files, in one directory."""
    return make_store(tmp_path_factory.mktemp("large") / "store")


LOOKING = {
    "info STORE": "orders",
    "cat STORE orders": "9",
    "tail STORE orders": "9",
    "get STORE 0 --body": "0",
    "query STORE k --topic orders": "9",
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
    "repair STORE": "No loss is known",
    "doctor STORE": "OK",
    "doctor STORE --deep": "none lost",
    "doctor STORE --nagios --warn lag=100,disk=100%,overdue=60s": "COMMITLOG OK",
    "verify STORE": "all is well",
}
WRITING = {
    "groups reset STORE billing --to earliest --yes": "orders",
    "topics rm STORE batched --with-messages --yes": "Deleted batched",
    "txn reset STORE loader --yes": "Forgot 'loader'",
    "clean STORE --max-bytes 1G --yes": "Deleted 0 files",
}


@pytest.mark.parametrize(("command", "found"), (LOOKING | WRITING).items())
def test_each_command_takes_the_logs_directory(store: Path, tmp_path: Path, command: str, found: str) -> None:
    words = [str(store) if word == "STORE" else word for word in command.split()]
    done = ended(*words, "--commit-log", tmp_path / "disk")
    code = 1 if "Nothing is changed without --yes" in done.stderr else 0
    assert (done.returncode, done.stderr.count("is not at")) == (code, 0), done.stderr
    assert found in done.stdout
    assert not (store / "commitlog").exists()


@pytest.mark.parametrize("command", LOOKING)
def test_without_it_each_command_names_it(store: Path, command: str) -> None:
    words = [str(store) if word == "STORE" else word for word in command.split()]
    done = ended(*words)
    if words[0] in ("doctor", "info", "verify", "repair"):
        said = plain(done.stdout + done.stderr)
        assert done.returncode == (2 if "--nagios" in words else 1)
        assert f"{store}/commitlog holds no file, " in said
        assert "Mount or restore the log, or name its directory" in said
        assert "--commit-log DIR" in said
        if "--nagios" not in words and words[0] != "info":
            next_step = "repair" if words[0] == "repair" else "doctor"
            assert f"commitlog {next_step} {store} --commit-log DIR" in said
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


ASSESSING = ("doctor --json", "doctor --deep --json", "verify --json", "info --json", "repair --json")


@pytest.mark.parametrize("command", ASSESSING)
@pytest.mark.parametrize("harm", ["none", "middle file deleted", "index deleted"])
def test_each_assessing_command_counts_as_for_a_store_in_one_directory(
    large: Path, tmp_path: Path, command: str, harm: str
) -> None:
    plain_store, log = Path(shutil.copytree(large, tmp_path / "store")), tmp_path / "a disk" / "log"
    if harm == "middle file deleted":
        sorted((plain_store / "commitlog").iterdir())[1].unlink()
    elif harm == "index deleted":
        shutil.rmtree(plain_store / "index")
    name, *options = command.split()
    expected = ended(name, plain_store, *options)
    log.parent.mkdir()
    (plain_store / "commitlog").rename(log)
    done = ended(name, plain_store, *options, "--commit-log", log)
    assert done.returncode == expected.returncode == (harm != "none" and (harm != "index deleted" or name != "repair"))
    shown, plainly = json.loads(done.stdout), json.loads(expected.stdout)
    for one in ("verdict", "found", "lost", "unreadable", "lostMessages", "topics", "cutAt", "messages"):
        assert shown.get(one) == plainly.get(one), one
    for step in shown.get("nextSteps", []):
        assert str(log) in shlex.split(step), "so that it can be pasted"
        assert shell(step).returncode in (0, 1), step


def test_doctor_says_where_the_log_is(store: Path, tmp_path: Path) -> None:
    assert f"in 1 file of {tmp_path}/disk" in plain(ended("doctor", store, "--commit-log", tmp_path / "disk").stdout)


def test_the_commands_that_repair_prints_name_the_logs_directory(large: Path, tmp_path: Path) -> None:
    path, log = Path(shutil.copytree(large, tmp_path / "store")), tmp_path / "log"
    (path / "commitlog").rename(log)
    sorted(log.iterdir())[1].unlink()
    done = ended("repair", path, "--commit-log", log)
    assert done.returncode == 1
    assert f"  commitlog salvage {log} --to DIRECTORY\n" in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ["doctor", "PATH"],
        ["repair", "PATH", "--rebuild"],
        ["produce", "PATH", "--topic", "orders"],
        ["txn", "reset", "PATH", "app"],
        ["serve", "PATH"],
    ],
    ids=lambda words: words[0],
)
def test_no_command_opens_a_copy_with_the_log_of_the_live_store(tmp_path: Path, words: list[str]) -> None:
    """Its lock is the copy's: the live store's owner would go on beside it."""
    log, live, copy = tmp_path / "log", tmp_path / "live", tmp_path / "copy"
    with MessageStore.open(live, small(store_path_commit_log=str(log))) as store:
        store.put("orders", b"copied")
    shutil.copytree(live, copy)
    shutil.copytree(log, copy / "commitlog")
    before = {file: file.read_bytes() for file in log.iterdir()}
    settings = tmp_path / "broker.conf"
    settings.write_text(f"storePathRootDir={live}\nstorePathCommitLog={log}\n")
    done = ended(*(copy if word == "PATH" else word for word in words), "--config", settings)
    assert done.returncode == 2, done.stderr
    said = plain(done.stderr).replace(" ", "")  # a long path is cut into lines
    assert f"is that of the store at {live}, not of {copy}".replace(" ", "") in said
    assert {file: file.read_bytes() for file in log.iterdir()} == before


def test_a_store_is_its_own_by_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell leaves ``~`` as it is within quotes."""
    monkeypatch.setenv("HOME", str(tmp_path))
    log, live = tmp_path / "log", tmp_path / "live"
    with MessageStore.open(live, MessageStoreConfig(store_path_commit_log=str(log))) as store:
        store.put("orders", b"x")
    (tmp_path / "link").symlink_to(live)
    settings = tmp_path / "broker.conf"
    settings.write_text(f"storePathRootDir={live}\nstorePathCommitLog={log}\n")
    for path in ("~/live", tmp_path / "link", f"{live}/"):
        done = ended("doctor", path, "--config", settings)
        assert done.returncode == 0, done.stderr
    done = ended("doctor", tmp_path / "mistyped", "--config", settings)
    assert "no store at" in done.stderr.lower() or "does not exist" in done.stderr
