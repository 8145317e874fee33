"""``offset-at``, the output formats of ``info``, sizes with suffixes, and what the program says about itself."""

from __future__ import annotations

import csv
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import commitlog_store
from commitlog_store import StoreReader
from commitlog_store.cli.exit_codes import EXIT_CODES
from commitlog_store.cli.values import size_option
from commitlog_store.paths import COMPACTION_CONSUME_QUEUE
from commitlog_store.queries.topic_rates import TopicRates, stored_over_time, topic_rates
from tests.store.cli.commands import ended, lines, on_a_terminal, plain, run, script
from tests.support.store_builder import FIRST_STORE_TIME, StoreBuilder
from tests.support.waiting import WAIT_LIMIT_S

COMMANDS = ("info", "offset-at", "stats", "verify", "cat", "tail", "get", "query", "produce", "repair")


def test_the_version_and_the_module_are_the_command() -> None:
    assert run("--version").startswith(f"commitlog {commitlog_store.__version__} ")
    command = [sys.executable, "-m", "commitlog_store", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT_LIMIT_S)
    assert (done.returncode, done.stdout) == (0, run("--version"))


def test_help_groups_the_commands_and_lists_the_exit_codes() -> None:
    text = plain(run("-h"))
    assert text == plain(run("--help"))
    for name in ("Look (read only)", "Write", "Repair", "Transactions", *COMMANDS, *EXIT_CODES.values()):
        assert name in text


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_has_examples_of_it(command: str) -> None:
    text = plain(run(command, "-h"))
    assert f"Examples: $ commitlog {command} /" in text


def test_offset_at_gives_the_offsets_of_a_time_in_all_queues(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("orders", [0, 1], [b"x"] * 10, step_ms=1000)
    builder.append("payments", 0, [b"x"] * 2, step_ms=1000)
    rows = lines("offset-at", builder.path, FIRST_STORE_TIME + 5000, "--json")
    assert [(row["topic"], row["queueId"], row["offset"]) for row in rows] == [
        ("orders", 0, 3), ("orders", 1, 2), ("payments", 0, 0),
    ]  # fmt: skip
    assert rows[1]["storeTimestamp"] == "2023-11-14T22:13:25.000+00:00"
    rows = lines("offset-at", builder.path, FIRST_STORE_TIME + 10_000, "ord*", "--json")
    assert [(row["offset"], row["maxOffset"], row["storeTimestamp"]) for row in rows] == [(5, 5, None)] * 2
    text = run("offset-at", builder.path, FIRST_STORE_TIME, "payments")
    assert text.splitlines()[1].split() == ["payments", "0", "0", "0", "2", "2023-11-14T22:13:30.000+00:00"]
    (row,) = csv.DictReader(io.StringIO(run("offset-at", builder.path, "0", "payments", "-o", "csv")))
    assert (row["topic"], row["offset"], row["maxOffset"]) == ("payments", "0", "2")


def test_stats_counts_the_messages_stored_within_each_window(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("orders", [0, 1], [b"x"] * 10, step_ms=1000)
    with StoreReader.open(builder.path) as reader:
        (row,) = topic_rates(reader, ["orders"], FIRST_STORE_TIME + 12_000)
        assert row == TopicRates(
            topic="orders",
            queues=2,
            messages=10,
            rates={10: 0.7, 60: 0.167, 600: 0.017},
            last_store_timestamp=FIRST_STORE_TIME + 9_000,
            idle_ms=3000,
        )
        (row,) = topic_rates(reader, ["orders"], FIRST_STORE_TIME + 3_600_000)
        assert list(row.rates.values()) == [0.0, 0.0, 0.0]


def test_what_was_stored_over_time_is_counted_in_each_part(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("orders", [0, 1], [b"x"] * 10, step_ms=1000)
    with StoreReader.open(builder.path) as reader:
        times = [FIRST_STORE_TIME + seconds * 1000 for seconds in (-5, 0, 3, 4, 10, 20)]
        assert stored_over_time(reader, "orders", times) == [0, 3, 1, 6, 0]


def test_stats_has_a_line_for_each_topic(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("orders", [0, 1], [b"x"] * 10)
    builder.append("payments", 0, [b"x"])
    rows = lines("stats", builder.path, "--json")
    assert [(row["topic"], row["messages"], row["putTps600"]) for row in rows] == [
        ("orders", 10, 0.0), ("payments", 1, 0.0),
    ]  # fmt: skip
    assert [row["topic"] for row in lines("stats", builder.path, "pay*", "--json")] == ["payments"]
    assert "lastStoreTimestamp" in run("stats", builder.path)


def test_stats_fits_eighty_columns_and_shortens_names_on_a_terminal_only(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    long = "a_very_long_name_of_a_topic_" * 4 + "end"
    for topic in (long, "orders"):
        builder.append(topic, [0, 1], [b"x"] * 20)
    shown = on_a_terminal(80, "stats", builder.path).splitlines()
    assert all(len(line.rstrip()) <= 80 for line in shown)
    assert shown[0].split() == ["topic", "messages", "putTps10", "putTps60", "putTps600", "last", "put"]
    (row,) = [line for line in shown if "…" in line]
    assert row.startswith("a_very_lo")
    assert row.split()[0].endswith("end")
    assert re.search(r" \d+ d( \d+ h)? ago$", row.rstrip())
    for whole in (run("stats", builder.path), on_a_terminal(80, "stats", builder.path, "--full")):
        assert long in whole
        assert whole.splitlines()[0].split()[-1] == "lastStoreTimestamp"


@pytest.mark.parametrize("command", ["stats", "offset-at"])
def test_topics_that_cannot_be_read_are_reported_after_the_others(tmp_path: Path, command: str) -> None:
    builder = StoreBuilder(tmp_path / "store")
    for topic in ("audit", "orders"):
        builder.append(topic, 0, [b"x"])
    (builder.path / COMPACTION_CONSUME_QUEUE / "audit").mkdir(parents=True)
    time = ["0"] if command == "offset-at" else []
    done = ended(command, builder.path, *time, "-o", "csv")
    assert done.returncode == 1
    assert [row["topic"] for row in csv.DictReader(io.StringIO(done.stdout))] == ["orders"]
    assert "Topic 'audit'" in done.stderr
    assert "compaction topic" in ended(command, builder.path, *time, "audit").stderr


def test_info_as_csv_has_a_line_for_each_queue(golden_533: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(run("info", golden_533, "-o", "csv"))))
    expected = [
        {"topic": topic["topic"], **queue}
        for topic in lines("info", golden_533, "--json")[0]["topics"]
        for queue in topic["queues"]
    ]
    assert [(row["topic"], row["queueId"], row["maxOffset"]) for row in rows] == [
        (queue["topic"], str(queue["queueId"]), str(queue["maxOffset"])) for queue in expected
    ]


def test_a_checkpoint_of_zero_is_never(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    assert "checkpoint: messages flushed to never\n" in run("info", builder.path)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("4k", 4096),
        ("4M", 4 << 20),
        ("4 MiB", 4 << 20),
        ("1GiB", 1 << 30),
        ("1.5G", 3 << 29),
        ("2MB", 2 << 20),
        ("7B", 7),
        ("1T", 1 << 40),
    ],
)
def test_sizes_have_suffixes(text: str, size: int) -> None:
    assert size_option(text) == size


@pytest.mark.parametrize("text", ["", "M", "4X", "-1", "0", "1.5", "0.3K", "1e3"])
def test_what_is_not_a_size_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        size_option(text)


def test_a_new_store_has_the_size_that_was_given(tmp_path: Path) -> None:
    sizes = ["--mapped-file-size-commit-log", "64K", "--max-hash-slot-num", "100", "--max-index-num", "400"]
    done = script("produce", tmp_path / "store", "-t", "t", "--create", *sizes, input="x\n")
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "store" / "commitlog").iterdir()
    assert file.stat().st_size == 64 << 10
    done = ended("produce", tmp_path / "store", "-t", "t", "--mapped-file-size-commit-log", "64X")
    assert done.returncode == 2
    assert "is not a size" in plain(done.stderr)


def test_the_shell_completes_topics_from_the_store(golden_533: Path) -> None:
    words = f"commitlog cat {golden_533} o"
    environment = {**os.environ, "_COMMITLOG_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "3"}
    assert script(env=environment).stdout.split() == ["orders"]
    environment["COMP_WORDS"] = "commitlog cat /nowhere o"
    done = script(env=environment)
    assert (done.stdout.split(), done.stderr) == ([], "")
