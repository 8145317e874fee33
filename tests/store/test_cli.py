"""The ``commitlog`` command on the golden stores and on stores of trouble, in process and as the installed script."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from commitlog import StoreReader
from commitlog.cli import scan
from commitlog.cli.app import app
from commitlog.errors import CommitLogError
from commitlog.format.consume_queue_unit import UNIT_FILE_DTYPE
from commitlog.format.sys_flag import COMPRESSED_FLAG
from tests.support import golden
from tests.support.store_builder import FIRST_STORE_TIME, StoreBuilder

__all__: list[str] = []

SCRIPT = str(Path(sys.executable).parent / "commitlog")
EXPECTED = golden.expected(golden.ROCKETMQ_533)
COUNTS = Counter(message["topic"] for message in EXPECTED["message"])


def run(*arguments: object) -> str:
    """The command in this process: what it prints. It must succeed and say nothing else."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return result.stdout


def lines(*arguments: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(*arguments).splitlines()]


def script(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """The installed script, as a user runs it."""
    command = [SCRIPT, *(str(argument) for argument in arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **options)


def iso(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, tz=timezone.utc).isoformat(timespec="milliseconds")


def test_info_counts_what_rocketmq_counts(golden_533: Path) -> None:
    (found,) = lines("info", golden_533, "--sizes", "--json")
    assert [found["minPhysicalOffset"], found["maxPhysicalOffset"]] == [0, EXPECTED["store"][0]["maxPhysicOffset"]]
    assert found["aborted"] is False
    assert (found["commitLogFiles"], found["indexFiles"], found["problems"]) == (4, 1, [])
    queues = [{"topic": topic["topic"], **queue} for topic in found["topics"] for queue in topic["queues"]]
    assert [
        {"kind": "queue", "topic": q["topic"], "queueId": q["queueId"], "min": q["minOffset"], "max": q["maxOffset"]}
        for q in queues
    ] == EXPECTED["queue"]
    for queue in queues:
        messages = [m for m in EXPECTED["message"] if (m["topic"], m["queueId"]) == (queue["topic"], queue["queueId"])]
        assert queue["messages"] == len(messages)
        assert queue["size"] == sum(message["storeSize"] for message in messages)
        assert queue["firstStoreTimestamp"] == messages[0]["storeTimestamp"]
        assert queue["lastStoreTimestamp"] == messages[-1]["storeTimestamp"]
        assert queue["error"] is None
    assert {topic["topic"] for topic in found["topics"] if topic["system"]} == {"SCHEDULE_TOPIC_XXXX"}


def test_info_for_people_shows_every_topic_and_with_queues_every_queue(golden_533: Path) -> None:
    text = run("info", golden_533)
    assert str(golden_533) in text
    assert "log [0, 965939) in 4 files" in text
    for topic, count in COUNTS.items():
        (row,) = [line.split() for line in text.splitlines() if line.startswith(topic + " ")]
        assert str(count) in row
    rows = [line for line in run("info", golden_533, "--queues").splitlines() if line.startswith("orders ")]
    assert [row.split()[1] for row in rows] == ["0", "1", "2", "3"]
    assert "abort file present" not in text


def test_info_reads_every_unit_only_when_sizes_are_wanted(tmp_path: Path) -> None:
    """A thousand million messages have 20 GB of units; the bounds of their queues are a few reads."""
    builder = StoreBuilder(tmp_path / "store", queue_file_units=1000)
    builder.pad_queue("t", 0, 7)
    places = builder.append("t", 0, [b"x"] * 900)
    (queue,) = lines("info", builder.path, "--sizes", "--json")[0]["topics"][0]["queues"]
    assert (queue["messages"], queue["minOffset"], queue["size"]) == (900, 7, builder.position - places[0])
    text = run("info", builder.path, "--sizes")
    assert "size" in text
    (path,) = (builder.path / "consumequeue" / "t" / "0").iterdir()
    with path.open("r+b") as file:
        file.seek(20 * 300)
        file.write(b"\xff" * 20)
    (queue,) = lines("info", builder.path, "--json")[0]["topics"][0]["queues"]
    assert (queue["messages"], queue["size"], queue["error"]) == (900, None, None)
    assert [line.split()[:5] for line in run("info", builder.path).splitlines() if line.startswith("t ")] == [
        ["t", "1", "7", "907", "900"]
    ]
    (queue,) = lines("info", builder.path, "--sizes", "--json")[0]["topics"][0]["queues"]
    assert queue["messages"] == 900
    assert queue["size"] is None
    assert "queue offset 300" in queue["error"]


def test_info_says_that_the_owner_did_not_close_the_store(golden_498: Path) -> None:
    assert "abort file present" in run("info", golden_498)
    assert lines("info", golden_498, "--json")[0]["aborted"] is True


def test_info_on_two_thousand_queues_is_quick(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store", log_file_size=4 << 20, queue_file_units=20)
    queues = range(100)
    for topic in range(20):
        builder.append(f"topic-{topic}", queues, [b"x" * 100] * 200)
    builder.append("topic-7", 3, [b"x" * 100] * 25)
    started = time.perf_counter()
    done = script("info", builder.path, "--json")
    took = time.perf_counter() - started
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert sum(queue["messages"] for topic in found["topics"] for queue in topic["queues"]) == 4025
    assert sum(len(topic["queues"]) for topic in found["topics"]) == 2000
    assert took < 2


def test_info_goes_on_when_a_part_of_the_store_is_damaged(tmp_path: Path) -> None:
    """It is the first thing that people run on a damaged store."""
    builder = StoreBuilder(tmp_path / "store", queue_file_units=20)
    builder.append("good", 0, [b"x"] * 5)
    builder.append("bad", [0, 1], [b"x"] * 10)
    (builder.path / "consumequeue" / "bad" / "1" / f"{30:020d}").write_bytes(b"")
    (builder.path / "consumequeue" / "file").write_bytes(b"")
    (builder.path / "batchconsumequeue" / "batch").mkdir(parents=True)
    (builder.path / "consumequeue" / "batch" / "0").mkdir(parents=True)
    (builder.path / "index" / "20261121000000000").write_bytes(b"?")
    (builder.path / "checkpoint").write_bytes(b"?")
    done = script("info", builder.path)
    assert done.returncode == 0, done.stderr
    assert [line.split()[:2] for line in done.stdout.splitlines() if line.startswith("good")] == [["good", "1"]]
    for words in ("a multiple of the unit size", "20261121000000000", "checkpoint", "batch consume queues"):
        assert words in done.stderr
    found = json.loads(script("info", builder.path, "--json").stdout)
    assert len(found["problems"]) >= 4
    by_topic = {topic["topic"]: topic["queues"] for topic in found["topics"]}
    assert by_topic["good"][0]["messages"] == 5
    assert by_topic["bad"][0]["messages"] == 5


def test_a_broken_checkpoint_is_told_in_one_sentence(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    path = builder.path / "checkpoint"
    for data, words in (
        (b"?", "found a file that should have 4096 bytes, not 1"),
        (b"\xff" * 4096, "found a physic_msg_timestamp that should be 0 to 253402300799999, not -1"),
    ):
        path.write_bytes(data)
        (problem,) = lines("info", builder.path, "--json")[0]["problems"]
        assert problem == f"Checkpoint in {path} at byte 0: expected 4096 bytes of times, {words}."


@pytest.mark.parametrize("topic", sorted(COUNTS))
def test_cat_prints_every_message_of_a_topic_in_the_order_of_the_log(golden_533: Path, topic: str) -> None:
    found = lines("cat", golden_533, topic, "--json")
    expected = sorted((m for m in EXPECTED["message"] if m["topic"] == topic), key=lambda m: m["physicalOffset"])
    assert [row["physicalOffset"] for row in found] == [m["physicalOffset"] for m in expected]
    for row, message in zip(found, expected, strict=True):
        for name in ("topic", "queueId", "queueOffset", "msgId", "bornHost", "properties"):
            assert row[name] == message[name]
        assert row["storeTimestamp"] == iso(message["storeTimestamp"])
        assert row["bornTimestamp"] == iso(message["bornTimestamp"])
        assert (row["tags"], row["keys"]) == (message.get("tags"), message.get("keys"))
        body = row["body"].encode() if "body" in row else base64.b64decode(row["bodyBase64"])
        if topic == "packed":
            assert body == f"compressed body {message['keys'].removeprefix('z')} ".encode() * 400
        else:
            assert body == base64.b64decode(message["body"])


def test_cat_for_people_has_a_line_a_message(golden_533: Path) -> None:
    text = run("cat", golden_533, "orders", "-q", "2", "-n", "3").splitlines()
    messages = [m for m in EXPECTED["message"] if (m["topic"], m["queueId"]) == ("orders", 2)][:3]
    assert [line.split("\t")[:2] for line in text] == [
        [iso(m["storeTimestamp"]), f"orders/2@{m['queueOffset']}"] for m in messages
    ]
    assert run("cat", golden_533, "orders", "-n", "0") == ""


def test_cat_starts_at_an_offset(golden_533: Path) -> None:
    found = lines("cat", golden_533, "orders", "--queue", 1, "--offset", 77, "--json")
    assert [row["queueOffset"] for row in found] == [77, 78, 79]
    assert run("cat", golden_533, "orders", "--queue", 1, "--offset", 80) == ""
    done = script("cat", golden_533, "orders", "--queue", 1, "--offset", 81)
    assert (done.returncode, done.stdout) == (1, "")
    assert "available are [0, 80)" in done.stderr


@pytest.mark.parametrize("as_iso", [False, True])
def test_cat_between_two_times(golden_533: Path, as_iso: bool) -> None:
    times = sorted(m["storeTimestamp"] for m in EXPECTED["message"] if m["topic"] == "orders")
    begin, end = times[60], times[200]
    since, until = (iso(begin), iso(end)) if as_iso else (begin, end)
    found = lines("cat", golden_533, "orders", "--since", since, "--until", until, "--json")
    assert len(found) == sum(begin <= stored < end for stored in times)
    assert all(iso(begin) <= row["storeTimestamp"] < iso(end) for row in found)
    assert run("cat", golden_533, "orders", "--since", until, "--until", since) == ""


def test_times_are_utc_unless_they_say_otherwise(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("t", 0, [b"0", b"1", b"2"], step_ms=60_000)
    second = datetime.fromtimestamp(FIRST_STORE_TIME / 1000 + 60, tz=timezone.utc)
    for since, zone in (
        (second.strftime("%Y-%m-%dT%H:%M:%S"), "UTC"),
        (second.strftime("%Y-%m-%d %H:%M:%S"), "Asia/Tokyo"),
        (second.strftime("%Y-%m-%dT%H:%M:%SZ"), "Asia/Tokyo"),
        (second.strftime("%Y-%m-%d %H:%M:%S+00:00"), "Asia/Tokyo"),
        (str(FIRST_STORE_TIME + 60_000), "Asia/Tokyo"),
        (second.astimezone(timezone(timedelta(hours=9))).isoformat(), "America/New_York"),
    ):
        done = script("cat", builder.path, "t", "--since", since, "--json", env={**os.environ, "TZ": zone})
        assert [json.loads(line)["body"] for line in done.stdout.splitlines()] == ["1", "2"], (since, zone, done.stderr)


def test_what_info_and_cat_print_can_be_typed_as_a_time(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("t", 0, [b"0", b"1", b"2"], step_ms=60_000)
    environment = {**os.environ, "TZ": "Asia/Tokyo"}
    printed = script("info", builder.path, env=environment).stdout.splitlines()[-1]
    last = " ".join(printed.split()[-2:])
    assert last == datetime.fromtimestamp(FIRST_STORE_TIME / 1000 + 120, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    done = script("cat", builder.path, "t", "--since", last, env=environment)
    (row,) = done.stdout.splitlines()
    assert script("cat", builder.path, "t", "--since", row.split("\t")[0], env=environment).stdout == done.stdout


@pytest.mark.parametrize("command", ["cat", "query"])
def test_the_help_of_every_time_says_which_zone(command: str) -> None:
    text = " ".join(run(command, "--help").split())
    assert text.count("TIME") == text.count("UTC unless it says otherwise") == 2


@pytest.mark.parametrize("text", ["yesterday", "", "2026-13-01", "²", "12:00", "1e9", "-5"])
def test_what_is_no_time_is_wrong_usage(golden_533: Path, text: str) -> None:
    done = script("cat", golden_533, "orders", f"--since={text}")
    assert (done.returncode, done.stdout) == (2, "")
    assert "is no time" in " ".join(done.stderr.split())


def test_bodies_and_tags_cannot_drive_the_terminal(tmp_path: Path) -> None:
    """A message may hold escape sequences, line ends, and bytes that are no text."""
    builder = StoreBuilder(tmp_path / "store")
    builder.append("t", 0, [b"\x1b[31mred\nline two\ttab", b"\xff\xfe", "größer 😀".encode()], tags="a\x1b[2Jb")
    text = run("cat", builder.path, "t")
    assert "\x1b" not in text
    first, second, third = (line.split("\t") for line in text.splitlines())
    assert first[4] == "\\x1b[31mred\\nline two\\ttab"
    assert second[4] == "hex:fffe"
    assert third[4] == "größer 😀"
    assert first[2] == "a\\x1b[2Jb"
    rows = lines("cat", builder.path, "t", "--json")
    assert [row.get("body", row.get("bodyBase64")) for row in rows] == [
        "\x1b[31mred\nline two\ttab",
        "//4=",
        "größer 😀",
    ]
    assert "\x1b" not in run("get", builder.path, "0")


def test_times_that_no_calendar_has_do_not_stop_cat(tmp_path: Path) -> None:
    """A damaged or hostile time is shown as none; the message still is."""
    builder = StoreBuilder(tmp_path / "store")
    builder.now_ms = 9_000_000_000_000_000
    builder.append("t", 0, [b"from the year 287,000"])
    (row,) = lines("cat", builder.path, "t", "--json")
    assert (row["storeTimestamp"], row["body"]) == (None, "from the year 287,000")
    assert "from the year 287,000" in run("cat", builder.path, "t")
    assert "from the year 287,000" in run("get", builder.path, 0)
    assert "9000000000000000" in run("info", builder.path)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_text_that_the_terminal_cannot_show_does_not_stop_cat(tmp_path: Path, encoding: str) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("t", 0, ["größer 😀".encode()] * 3)
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    command = [SCRIPT, "cat", str(builder.path), "t"]
    done = subprocess.run(command, capture_output=True, env=environment, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.count(b"\n") == 3
    done = subprocess.run([*command, "--json"], capture_output=True, env=environment, check=False, timeout=60)
    assert [json.loads(line)["body"] for line in done.stdout.decode(encoding).splitlines()] == ["größer 😀"] * 3


def test_tail_prints_the_newest_over_all_queues(golden_533: Path) -> None:
    places = sorted(m["physicalOffset"] for m in EXPECTED["message"] if m["topic"] == "orders")
    assert [row["physicalOffset"] for row in lines("tail", golden_533, "orders", "--json")] == places[-10:]
    assert [row["physicalOffset"] for row in lines("tail", golden_533, "orders", "-n", 3, "--json")] == places[-3:]
    assert len(lines("tail", golden_533, "orders", "-n", 10_000, "--json")) == len(places)
    assert run("tail", golden_533, "orders", "-n", 0) == ""
    found = lines("tail", golden_533, "orders", "-q", 1, "-n", 2, "--json")
    assert [(row["queueId"], row["queueOffset"]) for row in found] == [(1, 78), (1, 79)]


@pytest.mark.parametrize("count", [1, 49, 50, 51, 1999, 2000, 2001])
def test_tail_over_queues_that_grew_unevenly(tmp_path: Path, count: int) -> None:
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


def test_tail_tells_of_a_damaged_unit_among_the_newest(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("t", [0, 1], [b"x"] * 40)
    with (builder.path / "consumequeue" / "t" / "1" / f"{0:020d}").open("r+b") as file:
        file.seek(20 * 17)
        file.write(bytes(8))
    done = script("tail", builder.path, "t", "-n", 10)
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
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (130, "", "")


def test_tail_ends_when_nobody_reads_it_any_more(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("t", 0, [b"old"])
    command = [SCRIPT, "tail", "-f", str(builder.path), "t"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    assert "old" in process.stdout.readline()
    process.stdout.close()
    builder.append("t", 0, [b"new"])
    assert process.wait(timeout=20) == 0
    with process.stderr:
        assert process.stderr.read() == ""


def test_get_finds_a_message_by_id_and_by_place(golden_533: Path) -> None:
    for message in EXPECTED["message"][::97]:
        (by_id,) = lines("get", golden_533, message["msgId"], "--json")
        (by_place,) = lines("get", golden_533, message["physicalOffset"], "--json")
        assert by_id == by_place
        assert by_id["properties"] == message["properties"]
        text = run("get", golden_533, message["msgId"])
        assert message["msgId"] in text
        assert all(f"{name} = {value}" in text for name, value in message["properties"].items())


def test_query_finds_what_rocketmq_finds(golden_533: Path) -> None:
    for answer in EXPECTED["query"]:
        found = lines("query", golden_533, answer["topic"], answer["key"], "--json")
        assert [row["physicalOffset"] for row in found] == answer["physicalOffsets"]
    answer = EXPECTED["query"][0]
    with StoreReader.open(golden_533) as reader:
        stored = reader.message_at(answer["physicalOffsets"][0]).store_timestamp
    assert run("query", golden_533, answer["topic"], answer["key"], "--since", stored, "--until", stored)
    done = script("query", golden_533, answer["topic"], answer["key"], "--since", stored + 1)
    assert (done.returncode, done.stdout) == (1, "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["info", "{store}/nowhere"], "no such directory"),
        (["info", "{store}/checkpoint"], "is a file"),
        (["info", "{store}/index"], "did you mean {store}"),
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
        (["query", "{store}", "orders", "no such key"], "without spaces"),
        (["query", "{store}", "orders", "nokey"], "No message of topic 'orders' with key 'nokey'"),
    ],
    ids=lambda value: " ".join(value[:1] + value[2:]) if isinstance(value, list) else None,
)
def test_what_is_not_there_is_said_in_one_sentence_on_stderr_with_code_1(
    golden_533: Path, arguments: list[str], words: str
) -> None:
    done = script(*(argument.format(store=golden_533) for argument in arguments))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("commitlog: ")
    assert words.format(store=golden_533) in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


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
        ["query", ".", "t"],
        ["query", ".", "t", "k", "-n", "0"],
    ],
    ids=" ".join,
)
def test_wrong_usage_has_code_2_and_is_explained_on_stderr(arguments: list[str]) -> None:
    done = script(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Usage: commitlog" in done.stderr


def test_a_reader_that_leaves_early_is_no_failure(golden_533: Path) -> None:
    """``commitlog cat ... | head -1``: no traceback, no error code."""
    for options in ("", "--json"):
        command = f"{SCRIPT} cat {golden_533} orders {options} | head -1; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60)
        assert done.stderr == ""
        assert done.stdout.splitlines()[1:] == ["0"]


def test_damage_met_on_the_way_ends_with_code_1_behind_what_was_read(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    places = builder.append("t", 0, [b"x"] * 600)
    (path,) = (builder.path / "commitlog").iterdir()
    with path.open("r+b") as file:
        file.seek(int(places[-1]) + 4)
        file.write(b"????")
    done = script("cat", builder.path, "t", "--json")
    assert done.returncode == 1
    assert 0 < len(done.stdout.splitlines()) < 600
    assert "MAGICCODE" in done.stderr
    assert str(path) in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_body_that_does_not_match_its_crc_is_told(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("t", 0, [b"a body"])
    (path,) = (builder.path / "commitlog").iterdir()
    with path.open("r+b") as file:
        file.seek(89)
        file.write(b"?")
    done = script("get", builder.path, 0)
    assert done.returncode == 1
    assert "BODYCRC" in done.stderr


def test_a_body_that_cannot_be_unpacked_is_told_in_one_sentence(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("t", 0, [b"no stream"], sys_flag=COMPRESSED_FLAG)
    for arguments in (["get", builder.path, 0], ["cat", builder.path, "t"]):
        done = script(*arguments)
        assert done.returncode == 1
        assert "found 9 bytes that are no whole ZLIB stream (Error -3" in done.stderr
        assert "check)." in done.stderr
        assert ".." not in done.stderr.replace(str(tmp_path), "")


def test_help_is_there_for_every_command_and_for_none() -> None:
    for arguments in (["--help"], *([name, "--help"] for name in ("info", "cat", "tail", "get", "query"))):
        done = script(*arguments)
        assert (done.returncode, done.stderr) == (0, "")
        assert "Usage: commitlog" in done.stdout
    assert script().returncode in {0, 2}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion_is_offered(shell: str) -> None:
    # --show-completion looks at which shell started it, which in CI is none of these.
    done = script(env={**os.environ, "_COMMITLOG_COMPLETE": f"source_{shell}"})
    assert done.returncode == 0, done.stderr
    assert "_COMMITLOG_COMPLETE" in done.stdout


def test_shell_completion_knows_the_commands() -> None:
    environment = {**os.environ, "_COMMITLOG_COMPLETE": "complete_bash", "COMP_WORDS": "commitlog ", "COMP_CWORD": "1"}
    done = script(env=environment)
    assert {"info", "cat", "tail", "get", "query"} <= set(done.stdout.split())


def test_colours_only_for_a_terminal(golden_533: Path) -> None:
    assert "\x1b[" not in script("info", golden_533).stdout
    coloured = script("info", golden_533, env={**os.environ, "FORCE_COLOR": "1", "TERM": "xterm-256color"})
    assert "\x1b[" in coloured.stdout
    assert "\x1b[" not in script("cat", golden_533, "orders", env={**os.environ, "FORCE_COLOR": "1"}).stdout


def test_a_store_of_another_kind_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "consumequeue").mkdir()
    for name in ("CURRENT", "MANIFEST-000001"):
        (tmp_path / "consumequeue" / name).touch()
    done = script("info", tmp_path)
    assert done.returncode == 1
    assert "RocksDB" in done.stderr


def test_in_process_errors_are_the_packages_own(golden_533: Path) -> None:
    """The script turns them into a sentence; the commands themselves raise them."""
    with pytest.raises(CommitLogError):
        CliRunner().invoke(app, ["cat", str(golden_533), "nope"], catch_exceptions=False)


def test_light_queues_can_be_printed(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    (place,) = builder.append("orders", 0, [b"fed"])
    unit = np.zeros(1, UNIT_FILE_DTYPE)
    unit["physical_offset"], unit["size"] = place, builder.position - place
    builder.write_units("%LMQ%me", 0, 0, unit)
    (row,) = lines("cat", builder.path, "%LMQ%me", "--json")
    assert (row["topic"], row["body"]) == ("%LMQ%me", "fed")


def test_properties_that_hold_separators_are_shown(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("t", 0, [b"x"], more="empty\x01\x02k\x01v\x01w\x02")
    (row,) = lines("get", builder.path, 0, "--json")
    assert row["properties"] == {"TAGS": "paid", "k": "v\x01w"}
    assert "k = v\\x01w" in run("get", builder.path, 0)


def test_the_store_is_not_written_to(golden_533: Path) -> None:
    """Inspecting a store must leave it as it was: no lock, no time stamp, no new file."""
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in golden_533.rglob("*")}
    for arguments in (["info"], ["cat", "orders"], ["tail", "orders"], ["query", "orders", "k75"], ["get", "0"]):
        run(arguments[0], golden_533, *arguments[1:])
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in golden_533.rglob("*")} == before
