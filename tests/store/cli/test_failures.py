"""Failures of a command: exit codes, and one sentence on stderr."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from commitlog_store.cli.app import app
from commitlog_store.errors import CommitLogError
from commitlog_store.format.sys_flag import COMPRESSED_FLAG
from tests.store.cli.commands import SCRIPT, ended, new_script
from tests.support import quick_programs
from tests.support.store_builder import StoreBuilder
from tests.support.waiting import WAIT_LIMIT_S


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["cat", "{store}", "nope"], "Topic 'nope'"),
        (["cat", "{store}", "../config"], "A topic is made of"),
        (["cat", "{store}", "orders", "-q", "9"], "no queue 9"),
        (["tail", "{store}", "nope"], "Topic 'nope'"),
        (["get", "{store}", "965939"], "nothing was written there"),
        (["get", "{store}", "7"], "MAGICCODE"),
        (["get", "{store}", "9999999999999999999"], "No message"),
        (["get", "{store}", "99999999999999999999"], "32 characters"),
        (["get", "{store}", "²"], "32 characters"),
        (["get", "{store}", "nonsense"], "32 characters"),
        (["query", "{store}", "no such key"], "without spaces"),
        (["query", "{store}", "nokey", "-t", "orders"], "No message of topic 'orders' with key 'nokey'"),
    ],
    ids=lambda value: " ".join(value[:1] + value[2:]) if isinstance(value, list) else None,
)
def test_missing_topics_and_messages_are_reported_in_one_sentence_on_stderr_with_code_1(
    golden_533: Path, arguments: list[str], words: str
) -> None:
    done = ended(*(argument.format(store=golden_533) for argument in arguments))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("commitlog: ")
    assert words.format(store=golden_533) in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ["info"],
        ["cat", "orders"],
        ["tail", "orders"],
        ["get", "0"],
        ["query", "k"],
        ["offset-at", "0"],
        ["verify"],
        ["repair"],
        ["txn", "ls"],
        ["schedule", "ls"],
        ["txn", "reset", "query"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize(
    ("path", "words"), [("nowhere", "the directory does not exist"), ("checkpoint", "is a file"), ("index", "")]
)
def test_a_path_that_is_not_a_store_is_reported_in_one_sentence_with_code_2(
    golden_533: Path, command: list[str], path: str, words: str
) -> None:
    at = 2 if command[0] in ("txn", "schedule") else 1
    done = ended(*command[:at], golden_533 / path, *command[at:])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("commitlog: ")
    assert (words or f"did you mean {golden_533}") in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [["cat", "{store}", "nope"], ["cat", "{store}"], ["get", "{store}", "0"]])
def test_the_installed_script_ends_as_its_entry_point_does(golden_533: Path, arguments: list[str]) -> None:
    given = [argument.format(store=golden_533) for argument in arguments]
    installed, called = new_script(*given), ended(*given)
    assert (installed.returncode, installed.stdout) == (called.returncode, called.stdout)
    assert installed.stderr == called.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["nope"],
        ["info"],
        ["info", "--nope", "."],
        ["cat", "."],
        ["cat", ".", "t", "--offset", "1"],
        ["cat", ".", "t", "--offset", "1", "--queue", "0", "--since", "1"],
        ["cat", ".", "t", "-n", "-1"],
        ["cat", ".", "t", "-q", "x"],
        ["tail", ".", "t", "-n", "x"],
        ["query", "."],
        ["query", ".", "k", "-n", "0"],
    ],
    ids=" ".join,
)
def test_wrong_usage_has_code_2_and_is_explained_on_stderr(arguments: list[str]) -> None:
    done = ended(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Usage: commitlog" in done.stderr


@pytest.mark.parametrize("command", ["doctor", "doctor --deep", "info", "verify", "repair"])
def test_a_reader_that_goes_hides_no_verdict(command: str, tmp_path: Path) -> None:
    """``commitlog doctor ... | head -1`` in a script with pipefail: what is wrong shows in the exit code."""
    store = tmp_path / "store"
    StoreBuilder(store, log_file_size=64 << 10).append("orders", 0, [b"x" * 100] * 900)
    sorted((store / "commitlog").iterdir())[1].unlink()
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as closed:
        done = quick_programs.run([SCRIPT, *command.split(), store], check=False, stdout=closed, stderr=subprocess.PIPE)
    assert done.returncode == 1, done.stderr
    assert b"Traceback" not in done.stderr


def test_a_closed_pipe_is_not_a_failure(golden_533: Path) -> None:
    """``commitlog cat ... | head -1``: no traceback, no error code."""
    for options in ("", "--json"):
        command = f"{SCRIPT} cat {golden_533} orders {options} | head -1; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, check=False, timeout=WAIT_LIMIT_S
        )
        assert done.stderr == ""
        assert done.stdout.splitlines()[1:] == ["0"]


@pytest.mark.parametrize("command", ["info", "verify", "repair", "salvage", "offset-at 2h"])
def test_a_table_without_a_reader_is_not_a_failure(golden_533: Path, command: str) -> None:
    name, *more = command.split()
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as gone:
        arguments = [SCRIPT, name, str(golden_533), *more]
        done = quick_programs.run(arguments, stdout=gone, stderr=subprocess.PIPE, check=False, timeout=WAIT_LIMIT_S)
    assert (done.returncode, done.stderr) == (0, b"")


def test_damage_met_on_the_way_ends_with_code_1_after_what_was_read(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    places = builder.append("t", 0, [b"x"] * 600)
    (path,) = (builder.path / "commitlog").iterdir()
    with path.open("r+b") as file:
        file.seek(int(places[-1]) + 4)
        file.write(b"????")
    done = ended("cat", builder.path, "t", "--json")
    assert done.returncode == 1
    assert 0 < len(done.stdout.splitlines()) < 600
    assert "MAGICCODE" in done.stderr
    assert str(path) in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_body_that_does_not_match_its_crc_is_reported(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("t", 0, [b"a body"])
    (path,) = (builder.path / "commitlog").iterdir()
    with path.open("r+b") as file:
        file.seek(89)
        file.write(b"?")
    done = ended("get", builder.path, 0)
    assert done.returncode == 1
    assert "BODYCRC" in done.stderr


def test_a_body_that_cannot_be_unpacked_is_reported_in_one_sentence(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("t", 0, [b"no stream"], sys_flag=COMPRESSED_FLAG)
    for arguments in (["get", builder.path, 0], ["cat", builder.path, "t"]):
        done = ended(*arguments)
        assert done.returncode == 1
        assert "found 9 bytes that are not a whole ZLIB stream (Error -3" in done.stderr
        assert "check)." in done.stderr
        assert ".." not in done.stderr.replace(str(tmp_path), "")


def test_a_store_of_another_kind_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "consumequeue").mkdir()
    for name in ("CURRENT", "MANIFEST-000001"):
        (tmp_path / "consumequeue" / name).touch()
    done = ended("info", tmp_path)
    assert done.returncode == 2
    assert "RocksDB" in done.stderr


def test_in_process_errors_are_the_packages_own(golden_533: Path) -> None:
    """The script turns them into a sentence; the commands themselves raise them."""
    with pytest.raises(CommitLogError):
        CliRunner().invoke(app, ["cat", str(golden_533), "nope"], catch_exceptions=False)
