"""``commitlog follow`` and ``commitlog promote``, as processes that signals end."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from commitlog_store import MessageStore, StoreReader
from tests.store.cli.commands import ended, lines, plain
from tests.store.follower.mirrors import log_bytes
from tests.store.owner.owned_store import open_store, put_ok, small
from tests.support import quick_programs
from tests.support.local_spark import PROJECT
from tests.support.scripted_broker import ScriptedBroker
from tests.support.scripted_master import ScriptedMaster, Slave

FILE_SIZE = 16 << 10
SIZE = ("--mapped-file-size-commit-log", str(FILE_SIZE))


def write_log(path: Path, bodies: Sequence[bytes]) -> bytes:
    with open_store(path) as store:
        for body in bodies:
            put_ok(store, body=body)
        return log_bytes(path, 0, store.physical_bounds()[1])


def sends(log: bytes) -> Callable[[Slave], None]:
    def serve(slave: Slave) -> None:
        slave.send_log(log, slave.says())
        slave.wait_until_left()

    return serve


@pytest.fixture(scope="module")
def master_log(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_log(tmp_path_factory.mktemp("master") / "store", [b"%d" % number * 20 for number in range(300)])


def follow_to(end: int, *arguments: object, ending: signal.Signals = signal.SIGTERM) -> str:
    """Run the command until its mirror ends there, and send the signal; what it printed to stderr."""
    command = [sys.executable, "-m", "commitlog_store", "follow", *map(str, arguments), "--json", "--every", "0.1"]
    with quick_programs.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line)["end"] >= end:
                break
        process.send_signal(ending)
        rest, complaints = process.communicate()
    assert process.returncode == 0, complaints
    assert json.loads(rest.splitlines()[-1])["end"] == end
    return complaints


def test_it_follows_until_a_signal_and_the_mirror_is_promoted(master_log: bytes, tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    with ScriptedMaster(sends(master_log)) as master:
        follow_to(len(master_log), master.address, mirror, "--ack", "synced", *SIZE)
        follow_to(len(master_log), master.address, mirror, ending=signal.SIGINT)
    assert log_bytes(mirror, 0, len(master_log)) == master_log
    shown = ended("promote", mirror)
    assert (shown.returncode, shown.stderr) == (1, "commitlog: Nothing is changed without --yes.\n")
    assert f"Its log ends at physical offset {len(master_log)}" in plain(shown.stdout)
    assert "is a mirror" in ended("produce", mirror, "--topic", "orders").stderr
    assert lines("promote", mirror, "--json", "--dry-run")[0]["end"] == len(master_log)
    assert lines("promote", mirror, "--json", "--yes")[0]["end"] == len(master_log)
    again = ended("promote", mirror)
    assert again.returncode == 1
    assert "is not a mirror" in again.stderr
    with MessageStore.open(mirror, small()) as store:
        store.put("orders", b"own")


def test_another_log_ends_it_and_reset_begins_again_beside_the_old_mirror(master_log: bytes, tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    other = write_log(tmp_path / "other", [b"o" * 30] * 600)
    with ScriptedMaster(sends(master_log)) as master:
        follow_to(len(master_log), master.address, mirror, *SIZE)
    with ScriptedMaster(sends(other)) as master:
        refused = ended("follow", master.address, mirror)
        assert refused.returncode == 1
        assert "--reset" in refused.stderr
        complaints = follow_to(len(other), master.address, mirror, "--reset", *SIZE)
    (kept,) = (path for path in tmp_path.iterdir() if path.name.startswith("mirror."))
    assert str(kept) in complaints
    assert log_bytes(kept, 0, len(master_log)) == master_log
    with StoreReader.open(mirror) as reader:
        assert reader.queues("orders")[0].max_offset == 600


def test_the_exit_codes_of_follow_are_those_of_the_page(master_log: bytes, tmp_path: Path) -> None:
    page = (PROJECT / "docs" / "mirror.md").read_text(encoding="utf-8")
    said = {int(code): when for code, when in re.findall(r"^\| (\d) \| (.*) \|$", page, re.MULTILINE)}
    assert set(said) == {0, 1, 2}
    mirror, other = tmp_path / "mirror", tmp_path / "other"
    write_log(other, [b"o" * 30])
    with ScriptedMaster(sends(master_log)) as master:
        assert "Ctrl-C or SIGTERM" in said[0]
        for ending in (signal.SIGINT, signal.SIGTERM):
            follow_to(len(master_log), master.address, mirror, *SIZE, ending=ending)  # it ends with 0
        assert "another log at the address" in said[1]
        refused = ended("follow", master.address, other)
        assert refused.returncode == 1
        assert f"{other} is a store with messages of its own, and not a mirror of the master at" in refused.stderr
        assert "--reset" not in refused.stderr
        assert "the mirror is open already" in said[1]
        with open_store(other):
            assert ended("follow", master.address, other).returncode == 1
        assert "an address" in said[2]
        assert ended("follow", "10.0.0.7:port", mirror).returncode == 2
        assert ended("follow", master.address, mirror, "--ack", "all").returncode == 2


@pytest.mark.parametrize("wrong", [["--from", "newest"], ["--ack", "all"], ["--config-from", "host:port"]])
def test_wrong_arguments_are_named(tmp_path: Path, wrong: list[str]) -> None:
    done = ended("follow", "127.0.0.1:1", tmp_path / "mirror", *wrong)
    assert done.returncode == 2
    assert not (tmp_path / "mirror").exists()


def test_the_address_of_a_server_is_not_that_of_a_master(tmp_path: Path) -> None:
    done = ended("follow", "grpc://127.0.0.1:8815", tmp_path / "mirror")
    assert done.returncode
    assert "An address is HOST:PORT, such as 10.0.0.5:10912, not 'grpc://127.0.0.1:8815'." in plain(done.stderr)
    assert not (tmp_path / "mirror").exists()


def test_keys_without_a_remoting_port_name_the_missing_option(tmp_path: Path) -> None:
    done = ended("follow", "127.0.0.1:1", tmp_path / "mirror", "--access-keys", tmp_path / "tools.yml")
    assert done.returncode == 2
    assert "--config-from" in done.stderr


def test_a_wait_for_a_broker_is_said_once_and_ended_by_a_signal(tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    command = [
        sys.executable,
        "-m",
        "commitlog_store",
        "follow",
        "127.0.0.1:1",
        str(mirror),
        "--config-from",
        "127.0.0.1:1",
    ]
    with quick_programs.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "mirror waits for its master: The broker at 127.0.0.1:1 cannot be reached" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.communicate() == ("", "")
    assert process.returncode == 0
    assert not mirror.exists()


def test_a_new_mirror_takes_the_brokers_sizes_or_those_of_options(master_log: bytes, tmp_path: Path) -> None:
    keys = tmp_path / "tools.yml"
    keys.write_text("accessKey: rocketmq2\nsecretKey: 12345678\n")
    answers: dict[int, bytes | tuple[int, str]] = {
        26: b"mappedFileSizeCommitLog=16384\nmappedFileSizeConsumeQueue=600\nmaxHashSlotNum=9\nmaxIndexNum=40\n",
        28: b'{"table":{"commitLogMinOffset":"0","commitLogMaxOffset":"0"}}',
    }
    own = ("--mapped-file-size-consume-queue", 800, "--max-hash-slot-num", 9, "--max-index-num", 40)
    with ScriptedMaster(sends(master_log)) as master, ScriptedBroker(answers) as broker:
        config = (master.address, tmp_path / "broker", "--config-from", broker.address, "--access-keys", keys)
        follow_to(len(master_log), *config)
        assert {one["extFields"]["AccessKey"] for one in broker.asked} == {"rocketmq2"}
        follow_to(len(master_log), master.address, tmp_path / "own", *own, *SIZE)
        other = ended("follow", *config, "--mapped-file-size-consume-queue", 800)
        assert other.returncode == 1
        assert "have 600 bytes; expected 800, by mapped_file_size_consume_queue" in other.stderr
    for name, size in (("broker", 600), ("own", 800)):
        assert {one.stat().st_size for one in (tmp_path / name / "consumequeue").rglob("0" * 20)} == {size}


def test_a_refused_account_ends_it(tmp_path: Path) -> None:
    with ScriptedBroker({28: (16, "User:rocketmq2 is not found.")}) as broker:
        done = ended("follow", "127.0.0.1:1", tmp_path / "mirror", "--config-from", broker.address)
    assert done.returncode == 1
    assert "was asked with no access keys" in done.stderr
