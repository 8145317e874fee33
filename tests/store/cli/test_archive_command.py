"""The commands archive and restore: what they print, and their exit codes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from commitlog_store.archive.generations import newest_or_none
from tests.store.archive.archives import add_messages, objects_of, small_store, tree, url_of
from tests.support import quick_programs
from tests.support.programs import child_environment
from tests.support.waiting import WAIT_LIMIT_S, wait_for


def _run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return quick_programs.run_program("-m", "commitlog_store", *arguments, timeout=200)


def test_a_store_is_archived_checked_collected_and_restored(tmp_path: Path) -> None:
    small_store(tmp_path / "store", 200)
    url = url_of(tmp_path / "a")
    archived = json.loads(_run("archive", tmp_path / "store", url, "--with-last", "--json").stdout)
    assert (archived["start"], archived["added"]) == (0, archived["segments"])
    checked = _run("archive", "--check", url, "--deep")
    assert (checked.returncode, checked.stdout.splitlines()[-1]) == (0, "nothing is wrong")
    assert "too young" in _run("archive", "--gc", url).stdout
    collected = json.loads(_run("archive", "--gc", url, "--json").stdout)
    assert list(collected) == ["url", "generation", "dryRun", "deleted", "deletedBytes", "young"]
    restored = json.loads(_run("restore", url, tmp_path / "restored", "--json").stdout)
    assert restored["stop"] == archived["stop"]


def test_the_messages_of_some_topics_are_archived_and_restored(tmp_path: Path) -> None:
    small_store(tmp_path / "store", 300)
    url = url_of(tmp_path / "a")
    none = _run("archive", tmp_path / "store", url, "--topics", "ordres")
    assert none.returncode == 0
    assert "no log file with a message of the topics is closed" in none.stdout
    assert none.stderr == "commitlog: No topic of the store matches 'ordres'. Did you mean 'orders'?\n"
    done = _run("archive", tmp_path / "store", url, "--topics", "orders", "-t", "ref*", "--work-dir", tmp_path / "work")
    assert done.returncode == 0
    assert "; the store's log was read up to " in done.stdout
    refused = _run("archive", tmp_path / "store", url, "--topics", "orders")
    assert refused.returncode == 1
    assert "has the topics 'orders', 'ref*' alone. Name the same ones (--topic)" in refused.stderr
    assert "topics: orders, ref*" in _run("archive", "--check", url).stdout
    assert _run("restore", url, tmp_path / "restored").returncode == 0
    assert _run("info", tmp_path / "restored", "--json").stdout.count('"topic"') == 1


def test_a_check_that_finds_something_exits_with_1(tmp_path: Path) -> None:
    small_store(tmp_path / "store", 200)
    _run("archive", tmp_path / "store", url_of(tmp_path / "a"))
    next((tmp_path / "a" / "units").iterdir()).unlink()
    checked = _run("archive", "--check", url_of(tmp_path / "a"))
    assert checked.returncode == 1
    assert "wrong: units/" in checked.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["archive", "{store}"], 2, "Give a store directory and the URL"),
        (["archive", "--check", "{store}", "file:///x"], 2, "the URL of an archive alone"),
        (["archive", "--check", "--gc", "file:///x"], 2, "Give one of them"),
        (["archive", "{store}", "file:///x", "--topics", "a*", "b*"], 2, "and --topic before each pattern"),
        (["archive", "{store}", "file:///x", "--topics", ""], 2, "topics is a name, a pattern, or a list of them"),
        (["archive", "{store}", "file:///x", "--work-dir", "w"], 2, "It is for --topic"),
        (["archive", "--check", "file:///x", "--topics", "a"], 2, "an archive knows its topics"),
        (["archive", "{store}", "hdfs://host:8020"], 2, "An archive is s3://BUCKET"),
        (["archive", "{store}", "webhdfs://host/x"], 2, "For an archive in HDFS: hdfs://HOST:PORT/DIRECTORY, the name"),
        (["cat", "{store}", "orders", "--archive", "viewfs://c/x"], 1, "For an archive in HDFS: hdfs://HOST:PORT/"),
        (["archive", "--check", "hdfs://h:1/x", "--endpoint", "http://x"], 2, "'endpoint' is not one of them."),
        (["archive", "--check", "file:///nowhere/at/all"], 2, "No archive at"),
        (["archive", "{store}", "nonsense"], 2, "An archive is s3://BUCKET"),
        (["restore", "nonsense", "{store}/x"], 2, "An archive is s3://BUCKET"),
        (["archive", "{store}/nothing", "file:///x"], 2, "No store at"),
        (
            ["archive", "--check", "/some/a b"],
            2,
            "not '/some/a b'. For an archive in a directory: archive+file:///some/a%20b.",
        ),
        (["archive", "--check", "a"], 2, "not 'a'. For an archive in a directory: archive+file:// and its absolute"),
        (["archive", "--check", "file:a"], 2, "An archive is s3://BUCKET"),
        (
            ["cat", "{store}", "orders", "--archive", "file:///a"],
            1,
            "For an archive in a directory: archive+file:///a.",
        ),
        (["cat", "{store}", "orders", "--archive", "S3://b/a"], 1, "not 'S3://b/a'. In lower case: s3://b/a."),
        (["info", "{store}", "--cache-dir", "c", "--cache-size", "1G"], 2, "--cache-dir, --cache-size: For an archive"),
        (["verify", "s3://b/a"], 2, "'commitlog archive --check --deep' verifies it; or copy the store"),
        (["cat", "archive+file:///nowhere", "orders"], 2, "No archive at archive+file:///nowhere: /nowhere is not a"),
        (["archive", "{store}", "file:///dev/null/a"], 1, "/dev/null/a cannot be made, or is not a directory: "),
    ],
)
def test_wrong_usage_says_what_is_wanted(tmp_path: Path, arguments: list[str], code: int, said: str) -> None:
    small_store(tmp_path / "store", 10)
    done = _run(*(one.format(store=tmp_path / "store") for one in arguments))
    assert done.returncode == code
    assert said in " ".join(done.stderr.replace("│", " ").split())


def test_an_open_log_file_is_archived_with_an_option_that_is_named(tmp_path: Path) -> None:
    small_store(tmp_path / "store", 5)
    said = "; --with-last archives the written part of the last one, too.\n"
    assert _run("archive", tmp_path / "store", url_of(tmp_path / "a")).stdout.endswith(said)


def test_the_directory_of_an_archive_is_not_a_store(tmp_path: Path) -> None:
    """It has a directory 'commitlog', as stores have."""
    small_store(tmp_path / "store", 200)
    archive = tmp_path / "an archive"
    _run("archive", tmp_path / "store", f"file://{archive}")
    before = tree(archive)
    for command in (["info"], ["verify"], ["produce", "--create", "--topic", "orders"]):
        done = _run(*command, archive)
        assert done.returncode == 2
        assert f"is an archive, not a store. It is read at its address, archive+file://{tmp_path}/an%20archive;" in (
            done.stderr
        )
    assert tree(archive) == before
    assert "orders" in _run("info", f"archive+file://{tmp_path}/an%20archive").stdout


@pytest.mark.parametrize("more", [[], ["--topics", "orders"]])
def test_following_archives_what_comes_and_ends_with_a_signal(tmp_path: Path, more: list[str]) -> None:
    builder = small_store(tmp_path / "store", 100)
    command = [sys.executable, "-m", "commitlog_store", "archive", str(tmp_path / "store"), url_of(tmp_path / "a")]
    process = quick_programs.Popen(
        [*command, "--follow", "--every", "0.1", *more],
        env={**child_environment(), "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )

    def segments() -> int:
        manifest = newest_or_none(objects_of(tmp_path / "a")) if tree(tmp_path / "a") else None
        return 0 if manifest is None else len(manifest.segments)

    wait_for(lambda: segments() == (1 if more else 2))
    add_messages(builder, 200)
    wait_for(lambda: segments() >= (3 if more else 5))
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=WAIT_LIMIT_S)
    assert process.returncode == 0
    assert "physical offsets 0 to" in output
    assert {path.name for path in tmp_path.iterdir()} == {"store", "a"}
