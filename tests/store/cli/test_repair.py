"""``commitlog repair`` for people: the damage, the messages that a cut would take, and the command to paste."""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.test_repair import damaged_store
from tests.store.cli.commands import answered, ended, plain, script
from tests.store.verify.made_store import damage, files, make_store, message_place
from tests.store.verify.test_assessment import cut_second, delete_newest, delete_second, newest_file


def test_the_command_it_prints_repairs_the_store(tmp_path: Path) -> None:
    store = tmp_path / "a store"
    records, bad = damaged_store(store)
    looked = script("repair", store)
    assert (looked.returncode, looked.stderr) == (1, "")
    assert f"BODYCRC of the record at physical offset {bad.physical_offset}" in looked.stdout
    assert f"{sum(record.physical_offset > bad.physical_offset for record in records)} messages" in looked.stdout
    command = shlex.split(looked.stdout.splitlines()[-1])
    assert command == ["commitlog", "repair", str(store), "--cut-at", str(bad.physical_offset)]
    cut = script(*command[1:])
    assert (cut.returncode, cut.stderr) == (0, "")
    assert f"The log ends at physical offset {bad.physical_offset} now, and the store opens." in cut.stdout
    assert ended("repair", store).stdout.startswith(f"{store} opens: ")


def test_csv_has_a_line_for_each_queue_that_loses_messages(tmp_path: Path) -> None:
    store = tmp_path / "store"
    _, bad = damaged_store(store)
    lost = json.loads(ended("repair", store, "-o", "json").stdout)["lost"]
    done = script("repair", store, "-o", "csv")
    assert (done.returncode, done.stderr) == (1, "")
    assert [{name: str(value) for name, value in one.items()} for one in lost] == list(
        csv.DictReader(io.StringIO(done.stdout))
    )
    assert ended("repair", store, "--cut-at", bad.physical_offset).returncode == 0
    assert ended("repair", store, "-o", "csv").stdout == "topic,queueId,start,stop,messages\n"
    (piece,) = csv.DictReader(io.StringIO(ended("repair", store, "--drop-kept", "--yes", "-o", "csv").stdout))
    assert (piece["cutAt"], piece["messages"]) == (str(bad.physical_offset), str(sum(one["messages"] for one in lost)))


def test_after_an_accepted_loss_the_store_opens(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    for file in files(store, "commitlog")[2:]:
        file.unlink()
    looked = ended("repair", store)
    assert looked.returncode == 1
    assert looked.stdout.splitlines()[-1] == f"  commitlog repair {store} --accept-lost-log"
    done = ended("repair", store, "--accept-lost-log", "--yes", "--json")
    assert (done.returncode, json.loads(done.stdout)["opens"]) == (0, True)
    assert ended("verify", store).returncode == 0
    done = ended("repair", store, "--accept-lost-log")
    assert (done.returncode, done.stdout) == (0, f"{store} opens now.\n"), "nothing was missing this time"


def without_newest_files(path: Path) -> Path:
    store = make_store(path)
    for file in files(store, "commitlog")[2:]:
        file.unlink()
    return store


def test_repair_accept_lost_log_shows_what_is_lost_and_asks(tmp_path: Path) -> None:
    store = without_newest_files(tmp_path / "store")
    lost = json.loads(ended("doctor", store, "--json").stdout)["lost"]
    question = "Continue without the lost part of the log? Its files cannot be put back after that. [y/N]"
    for answer in (b"n\n", b"\n"):
        code, shown, asked = answered(answer, "repair", store, "--accept-lost-log")
        assert code == 1
        assert f"At least {lost} messages lost:" in shown
        assert "Restore the files if a copy of them exists." in shown
        assert "To continue with what is left" not in shown
        assert question in plain(asked)
        assert "Nothing is changed." in plain(asked)
    assert ended("repair", store).returncode == 1
    code, shown, _ = answered(b"y\n", "repair", store, "--accept-lost-log")
    assert (code, f"{store} opens now." in shown) == (0, True)
    assert ended("repair", store).returncode == 0


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_repair_accept_lost_log_changes_nothing_without_a_terminal(tmp_path: Path, form: list[str]) -> None:
    store = without_newest_files(tmp_path / "store")
    done = ended("repair", store, "--accept-lost-log", *form)
    assert (done.returncode, done.stderr) == (1, "commitlog: Nothing is changed without --yes.\n")
    assert str(json.loads(ended("doctor", store, "--json").stdout)["lost"]) in done.stdout
    assert ended("repair", store).returncode == 1
    assert ended("repair", store, "--accept-lost-log", "--yes", *form).returncode == 0
    assert ended("repair", store).returncode == 0


def test_files_that_are_restored_before_the_answer_are_not_given_up(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    newest = files(store, "commitlog")[2:]
    for file in newest:
        file.rename(tmp_path / file.name)

    def restore() -> None:
        for file in newest:
            (tmp_path / file.name).rename(file)

    code, shown, asked = answered(b"y\n", "repair", store, "--accept-lost-log", before_answer=restore)
    assert code == 0
    assert "The store has changed since this was shown. Nothing was done" in plain(asked)
    assert f"{store} opens: the last owner closed the store, and nothing is missing." in shown
    assert ended("verify", store).returncode == 0


@pytest.mark.parametrize("has_index", [True, False])
def test_repair_rebuild_says_whether_the_index_was_built(tmp_path: Path, has_index: bool) -> None:
    store, settings = make_store(tmp_path / "store"), tmp_path / "broker.conf"
    settings.write_text(f"messageIndexEnable={str(has_index).lower()}\n")
    before = [(file.name, file.stat().st_mtime_ns) for file in files(store, "index")]
    done = ended("repair", store, "--rebuild", "--config", settings)
    assert done.returncode == 0
    queues, index = "Its queues were built again from the log.", "Its index was not"
    assert (queues in done.stdout, index in done.stdout) == (not has_index, not has_index)
    assert ("Its queues and index were built again from the log." in done.stdout) == has_index
    assert ([(file.name, file.stat().st_mtime_ns) for file in files(store, "index")] == before) != has_index


def test_an_undamaged_place_is_not_cut(tmp_path: Path) -> None:
    _, bad = damaged_store(tmp_path / "store")
    done = ended("repair", tmp_path / "store", "--cut-at", "0")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"is to be cut at physical offset {bad.physical_offset}, not at 0; nothing was cut" in done.stderr


def test_repair_without_a_store_creates_none(tmp_path: Path) -> None:
    done = ended("repair", tmp_path / "nowhere")
    assert done.returncode == 2
    assert "nowhere" in done.stderr
    assert not list(tmp_path.iterdir())


def test_it_says_that_nothing_is_lost_only_if_every_record_was_read(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    done = ended("repair", store)
    assert (done.returncode, done.stdout.splitlines()) == (
        0,
        [
            f"{store} opens: the last owner closed the store, and nothing is missing.",
            "No loss is known. Opening does not read all records; this does:",
            f"  commitlog doctor --deep {store}",
        ],
    )
    (store / "abort").touch()
    (store / "checkpoint").unlink()
    assert ended("repair", store).stdout.startswith(f"{store} opens, and nothing is lost: ")


@pytest.mark.parametrize("by_broker", [False, True])
def test_the_newest_log_file_deleted_has_one_count_in_every_command(tmp_path: Path, by_broker: bool) -> None:
    store = make_store(tmp_path / "store")
    if by_broker:
        checkpoint = store / "checkpoint"
        checkpoint.write_bytes(checkpoint.read_bytes()[:40].ljust(4096, b"\0"))
    newest = newest_file(store)
    delete_newest(store)
    said = {command: ended(*command.split(), store) for command in ("repair", "verify", "info", "salvage", "doctor")}
    assert {done.returncode for done in said.values()} == {1}
    assert "At least 112 messages lost:" in said["repair"].stdout
    assert said["verify"].stdout.rstrip().endswith("112 messages lost")
    assert "at least 112 messages lost" in said["info"].stdout
    assert f"{newest} is missing" in said["info"].stderr, "the cause"
    assert "788 messages found, 112 known to be lost" in said["salvage"].stdout
    for command in ("repair", "verify", "info", "salvage", "doctor", "doctor --deep"):
        found = json.loads(ended(*command.split(), store, "--json").stdout)
        assert found["lostMessages" if command == "repair" else "lost"] == 112
    assert ("opens, and messages are lost" in said["repair"].stdout) == by_broker


@pytest.mark.parametrize("harm", [delete_second, cut_second])
def test_a_file_from_the_middle_has_one_count_in_every_command(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    store = make_store(tmp_path / "store")
    harm(store)
    counts = set()
    for command in ("repair", "verify", "info", "salvage", "doctor", "doctor --deep"):
        done = ended(*command.split(), store, "--json")
        assert done.returncode == 1
        counts.add(json.loads(done.stdout)["lostMessages" if command == "repair" else "lost"])
    assert len(counts) == 1
    assert 0 not in counts


def test_flipped_bytes_are_lost_messages_of_verify_and_no_command_says_that_none_is(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    for offset in (10, 20, 30):
        file, place, _ = message_place(store, "orders", 1, offset)
        damage(file, place + 100, b"XXXX")
    for command in ("verify", "salvage", "doctor --deep"):
        done = ended(*command.split(), store, "--json")
        assert (done.returncode, json.loads(done.stdout)["lost"]) == (1, 3)
    for command in ("repair", "info", "doctor"):
        done = ended(command, store)
        assert (done.returncode, "nothing is lost" in done.stdout) == (0, False)
        assert "were not read" in done.stdout or "commitlog doctor --deep" in done.stdout
