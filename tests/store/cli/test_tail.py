"""``commitlog tail``."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from commitlog_store import MessageFilter, StoreReader
from commitlog_store.cli import message_commands
from commitlog_store.queries import scan
from commitlog_store.queries.body_pattern import BodyPattern
from commitlog_store.queries.scan_back import newest_matching
from tests.store.cli.commands import EXPECTED, SCRIPT, ended, lines, run, shell
from tests.support import quick_programs
from tests.support.store_builder import FIRST_STORE_TIME, StoreBuilder
from tests.support.waiting import WAIT_LIMIT_S, wait_for


def test_tail_prints_the_newest_over_all_queues(golden_533: Path) -> None:
    places = sorted(m["physicalOffset"] for m in EXPECTED["message"] if m["topic"] == "orders")
    assert [row["physicalOffset"] for row in lines("tail", golden_533, "orders", "--json")] == places[-10:]
    assert [row["physicalOffset"] for row in lines("tail", golden_533, "orders", "-n", 3, "--json")] == places[-3:]
    assert len(lines("tail", golden_533, "orders", "-n", 10_000, "--json")) == len(places)
    assert run("tail", golden_533, "orders", "-n", 0) == ""
    found = lines("tail", golden_533, "orders", "-q", 1, "-n", 2, "--json")
    assert [(row["queueId"], row["queueOffset"]) for row in found] == [(1, 78), (1, 79)]


@pytest.mark.parametrize("count", [1, 49, 50, 51, 1999, 2000, 2001])
def test_tail_prints_the_newest_over_queues_that_grew_unevenly(tmp_path: Path, count: int) -> None:
    builder = StoreBuilder(tmp_path / "store", queue_file_units=100)
    builder.pad_queue("t", 2, 33)
    places = [builder.append("t", [0, 1, 2], [b"x"] * 99), builder.append("t", 3, [b"x"] * 1000)]
    places += [builder.append("t", 1, [b"x"] * 400), builder.append("t", [4, 0], [b"x"] * 501)]
    expected = np.concatenate(places).tolist()[-count:]
    assert [row["physicalOffset"] for row in lines("tail", builder.path, "t", "-n", count, "--json")] == expected


def test_tail_reads_only_what_it_prints(tmp_path: Path) -> None:
    """Not the newest of every queue: of a topic with many queues that would be many times what is wanted."""
    builder = StoreBuilder(tmp_path / "store", log_file_size=64 << 20)
    builder.append("t", range(50), [bytes(20_000)] * 2000)
    with StoreReader.open(builder.path) as reader:
        tracemalloc.start()
        try:
            rows = scan.newest(reader, scan.ranges(reader, ["t"]), 40)
            assert len(rows) == 40
            assert tracemalloc.get_traced_memory()[1] < 10_000_000
        finally:
            tracemalloc.stop()


def test_tail_reports_a_damaged_unit_among_the_newest(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("t", [0, 1], [b"x"] * 40)
    with (builder.path / "consumequeue" / "t" / "1" / f"{0:020d}").open("r+b") as file:
        file.seek(20 * 17)
        file.write(bytes(8))
    done = ended("tail", builder.path, "t", "-n", 10)
    assert done.returncode == 1
    assert "queue offset 17" in done.stderr


def test_tail_follows_what_another_process_appends_until_it_is_interrupted(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store", queue_file_units=5)
    builder.append("t", 0, [b"old 1", b"old 2"])
    command = [SCRIPT, "tail", "-f", "-n", "1", str(builder.path), "t", "--json"]
    process = quick_programs.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert json.loads(process.stdout.readline())["body"] == "old 2"
        builder.append("t", [0, 1], [b"new 1", b"a new queue", b"new 2"])
        said = {json.loads(process.stdout.readline())["body"] for _ in range(3)}
        assert said == {"new 1", "a new queue", "new 2"}
        builder.append("t", 0, [b"new 3"] * 10)
        assert [json.loads(process.stdout.readline())["body"] for _ in range(10)] == ["new 3"] * 10
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=WAIT_LIMIT_S)
    assert (process.returncode, out, err) == (130, "", "")


def test_tail_ends_when_its_pipe_is_closed(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("t", 0, [b"old"])
    command = [SCRIPT, "tail", "-f", str(builder.path), "t"]
    process = quick_programs.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    assert "old" in process.stdout.readline()
    process.stdout.close()
    builder.append("t", 0, [b"new"])
    assert process.wait(timeout=WAIT_LIMIT_S) == 0
    with process.stderr:
        assert process.stderr.read() == ""


def test_tail_ends_when_its_pipe_is_closed_and_no_message_comes(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("t", 0, [b"old"])
    done = shell(f"commitlog tail -f {builder.path} t | head -1; echo ${{PIPESTATUS[0]}}")
    first, code = done.stdout.splitlines()
    assert first.endswith("old")
    assert (code, done.stderr) == ("0", "")


def test_tail_follows_into_a_file(tmp_path: Path) -> None:
    """A file has no reader that could go."""
    builder = StoreBuilder(tmp_path / "store")
    builder.append("t", 0, [b"old"])
    printed = tmp_path / "printed"
    with printed.open("w") as file:
        process = quick_programs.Popen([SCRIPT, "tail", "-f", str(builder.path), "t"], stdout=file)
        try:
            wait_for(lambda: printed.stat().st_size)
            builder.append("t", 0, [b"new"])
            wait_for(lambda: b"new" in printed.read_bytes())
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=WAIT_LIMIT_S) == 130


def _bodies(*arguments: object) -> list[str]:
    return [row["body"] for row in lines("tail", *arguments, "--json")]


@pytest.fixture
def shop(tmp_path: Path) -> StoreBuilder:
    """6,000 messages in three queues; each thousandth is paid, with a key and an amount."""
    builder = StoreBuilder(tmp_path / "store", log_file_size=4 << 20)
    for start in range(0, 6000, 1000):
        amount = f"amount\x01{start}\x02"
        builder.append("orders", start % 3, [f"order {start}".encode()], tags="paid", keys=[f"k{start}"], more=amount)
        others = range(start + 1, start + 1000)
        builder.append(
            "orders", [one % 3 for one in others[:3]], [f"order {one}".encode() for one in others], tags="new"
        )
    return builder


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        (["--tag", "paid", "-n", 2], [4000, 5000]),
        (["--tag", "paid"], [0, 1000, 2000, 3000, 4000, 5000]),
        (["--tag", "paid || new", "-n", 2], [5998, 5999]),
        (["--key", "k2000"], [2000]),
        (["--filter", "amount >= 1000 AND amount < 4000", "-n", 2], [2000, 3000]),
        (["--grep", "order [12]000"], [1000, 2000]),
        (["--tag", "paid", "--grep", "order [12]", "-n", 1], [2000]),
        (["--tag", "paid", "-q", 0], [0, 3000]),
        (["--tag", "none"], []),
        (["--tag", "paid", "-n", 0], []),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
def test_tail_prints_the_newest_that_match(shop: StoreBuilder, options: list[object], numbers: list[int]) -> None:
    assert _bodies(shop.path, "orders", *options) == [f"order {number}" for number in numbers]


def test_tail_begins_at_a_time(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("t", [0, 1], [b"%d" % number for number in range(10)], tags="a", step_ms=1000)
    since = ["--since", FIRST_STORE_TIME + 6000]
    assert _bodies(builder.path, "t", *since) == ["6", "7", "8", "9"]
    assert _bodies(builder.path, "t", *since, "-n", 2) == ["8", "9"]
    assert _bodies(builder.path, "t", *since, "--grep", "[4-8]", "--tag", "a") == ["6", "7", "8"]


def test_tail_says_when_it_did_not_look_at_all(shop: StoreBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_commands, "MOST_LOOKED_AT", 2000)
    done = ended("tail", shop.path, "orders", "--tag", "paid", "--json")
    found = [json.loads(line)["body"] for line in done.stdout.splitlines()]
    assert found == ["order 3000", "order 4000", "order 5000"]
    (looked, left) = map(int, re.findall(r"(?:newest|;) (\d+)", done.stderr))
    assert (done.returncode, looked + left) == (0, 6000)
    assert 2000 <= looked < 6000
    assert done.stderr.startswith(f"commitlog: {len(found)} of the newest")
    assert "--since TIME looks further back" in done.stderr
    assert len(_bodies(shop.path, "orders", "--tag", "paid", "--since", FIRST_STORE_TIME - 1)) == 6, "a time is a limit"


def test_tail_reads_no_more_of_a_large_store_than_it_must(shop: StoreBuilder) -> None:
    """Windows from the end; of queues that were idle for long, only their last units."""
    idle = range(3, 40)
    with StoreReader.open(shop.path) as reader:
        whole = scan.ranges(reader, ["orders"])
        found = newest_matching(
            reader, whole, 1, ["body"], MessageFilter.parse(tags="paid"), BodyPattern(), verify_crc=True
        )
    assert found.looked_at < 2000
    assert found.looked_at + found.left == 6000
    builder = StoreBuilder(shop.path.parent / "uneven", log_file_size=4 << 20)
    builder.append("t", idle, [b"idle"] * 50)
    builder.append("t", 0, [b"busy"] * 5000, tags="a")
    with StoreReader.open(builder.path) as reader:
        whole = scan.ranges(reader, ["t"])
        found = newest_matching(
            reader, whole, 3, ["body"], MessageFilter.parse(tags="a"), BodyPattern(), verify_crc=True
        )
        assert found.looked_at <= 1024
        assert sum(table.num_rows for table in found.tables) == 3


def test_tail_follows_what_matches(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("t", 0, [b"old"], tags="a")
    command = [SCRIPT, "tail", "-f", str(builder.path), "t", "--tag", "a", "--grep", "ol|new", "--json"]
    process = quick_programs.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert json.loads(process.stdout.readline())["body"] == "old"
        builder.append("t", 0, [b"new but not a"], tags="b")
        builder.append("t", 0, [b"other", b"new"], tags="a")
        assert json.loads(process.stdout.readline())["body"] == "new"
    finally:
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=WAIT_LIMIT_S)
    assert (process.returncode, out) == (130, "")
