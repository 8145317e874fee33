"""``dump-log``, ``dump-queue`` and ``dump-index``: what stands in the files, damaged or not."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

from commitlog_store.format.index_file import HEADER_SIZE
from tests.store.cli.commands import EXPECTED, ended, lines, run
from tests.support.store_builder import StoreBuilder


def test_dump_log_prints_every_record_of_a_store_and_of_a_file(golden_533: Path) -> None:
    expected = sorted(EXPECTED["message"], key=lambda message: message["physicalOffset"])
    rows = lines("dump-log", golden_533, "--json")
    # Prepared and rolled back messages of transactions are in no queue, so RocketMQ read none of them.
    queued = {message["physicalOffset"] for message in expected}
    assert all(row["sysFlag"] & 0xC in (0x4, 0xC) for row in rows if row["physicalOffset"] not in queued)
    for row, message in zip([row for row in rows if row["physicalOffset"] in queued], expected, strict=True):
        for name in ("physicalOffset", "topic", "queueId", "queueOffset", "storeSize"):
            assert row[name] == message[name]
        assert row["fault"] is None
    second = sorted((golden_533 / "commitlog").iterdir())[1]
    inside = range(int(second.name), int(second.name) + second.stat().st_size)
    assert lines("dump-log", second, "--json") == [row for row in rows if row["physicalOffset"] in inside]
    assert lines("dump-log", golden_533, "--offset", rows[7]["physicalOffset"], "-n", 3, "--json") == rows[7:10]
    assert len(lines("dump-log", golden_533, "-n", 1 << 64, "--json")) == len(rows)
    text = run("dump-log", golden_533, "-n", 2).splitlines()
    assert [line.split("\t")[0] for line in text] == ["physicalOffset", "0", str(rows[1]["physicalOffset"])]


def test_dump_log_deep_has_bodies_and_properties(golden_533: Path) -> None:
    by_place = {row["physicalOffset"]: row for row in lines("dump-log", golden_533, "--deep", "--json")}
    for message in EXPECTED["message"][::50]:
        (row,) = lines("get", golden_533, message["physicalOffset"], "--json")
        found = by_place[message["physicalOffset"]]
        assert [found.get(name) for name in ("body", "bodyBase64", "properties")] == [
            row.get(name) for name in ("body", "bodyBase64", "properties")
        ]
    (row, *_) = csv.DictReader(io.StringIO(run("dump-log", golden_533, "--deep", "-n", 1, "-o", "csv")))
    assert json.loads(row["properties"]) == by_place[0]["properties"]


def test_dump_log_prints_damage_and_what_lies_after_it(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    places = builder.append("t", 0, [b"a body of some length"] * 10).tolist()
    (path,) = (builder.path / "commitlog").iterdir()
    with path.open("r+b") as file:
        file.seek(places[4] + 4)
        file.write(b"????")
    done = ended("dump-log", path, "--json")
    assert done.returncode == 1
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["physicalOffset"] for row in rows] == places
    assert [row["topic"] for row in rows] == ["t"] * 4 + [None] + ["t"] * 5
    assert "MAGICCODE" in rows[4]["fault"]
    assert rows[4]["fault"].endswith(f", up to {places[5]}")


def test_dump_queue_prints_units_of_a_store_a_queue_and_a_file(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store", queue_file_units=10)
    builder.pad_queue("t", 1, 3)
    places = builder.append("t", 1, [b"x"] * 12).tolist()
    directory = builder.path / "consumequeue" / "t" / "1"
    rows = lines("dump-queue", builder.path, "t", "-q", 1, "--json")
    assert rows == lines("dump-queue", directory, "--json")
    # A filler's place is zero, and its size is not.
    assert [(row["queueOffset"], row["state"]) for row in rows[:4]] == [
        (0, "filler"), (1, "filler"), (2, "filler"), (3, "message"),
    ]  # fmt: skip
    assert [row["physicalOffset"] for row in rows[3:]] == places
    (_, second) = sorted(directory.iterdir())
    assert lines("dump-queue", second, "--json") == rows[10:]
    assert lines("dump-queue", builder.path, "t", "-q", 1, "--offset", 5, "-n", 7, "--json") == rows[5:12]
    assert run("dump-queue", builder.path, "t", "-q", 1, "-n", 1).splitlines()[1].split("\t")[:3] == ["0", "0", "-"]


def test_dump_queue_of_a_store_asks_for_a_topic(golden_533: Path, tmp_path: Path) -> None:
    done = ended("dump-queue", golden_533)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Name a topic of the store" in done.stderr
    done = ended("dump-queue", tmp_path)
    assert (done.returncode, done.stderr) == (2, f"commitlog: {tmp_path} holds no such file.\n")


def test_dump_index_prints_headers_and_entries(golden_533: Path) -> None:
    (header,) = lines("dump-index", golden_533, "--header", "--json")
    (file,) = (golden_533 / "index").iterdir()
    assert (header["file"], header["slots"]) == (str(file), (file.stat().st_size - HEADER_SIZE) // 84)
    rows = lines("dump-index", file, "--json")
    assert rows[0] == header
    entries = rows[1:]
    assert [row["entry"] for row in entries] == list(range(1, header["entries"] + 1))
    known = {row["physicalOffset"] for row in lines("dump-log", golden_533, "--json")}
    assert {row["physicalOffset"] for row in entries} <= known
    assert all(row["previous"] < row["entry"] for row in entries)
    assert len(run("dump-index", file, "-n", 4, "-o", "csv").splitlines()) == 5


def test_a_path_without_such_files_is_reported_with_code_2(tmp_path: Path, golden_533: Path) -> None:
    for arguments in (
        ["dump-log", tmp_path / "nowhere"],
        ["dump-log", tmp_path],
        ["dump-log", golden_533 / "checkpoint"],
        ["dump-queue", golden_533, "nope"],
        ["dump-index", tmp_path],
    ):
        done = ended(*arguments)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
