"""``commitlog tail``."""

from __future__ import annotations

import json
import signal
import subprocess
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from commitlog import StoreReader
from commitlog.cli import scan
from tests.store.cli.commands import EXPECTED, SCRIPT, ended, lines, run
from tests.support.store_builder import StoreBuilder
from tests.support.waiting import WAIT_LIMIT_S

__all__: list[str] = []


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
            rows, _ = scan.newest(reader, "t", None, 40)
            assert sum(1 for _ in rows) == 40
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
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
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
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    assert "old" in process.stdout.readline()
    process.stdout.close()
    builder.append("t", 0, [b"new"])
    assert process.wait(timeout=WAIT_LIMIT_S) == 0
    with process.stderr:
        assert process.stderr.read() == ""
