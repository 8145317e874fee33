"""``commitlog info``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.damage_table.commands import file_modes_hold
from tests.store.cli.commands import COUNTS, EXPECTED, ended, lines, run
from tests.store.verify.made_store import make_store
from tests.store.verify.test_assessment import delete_second
from tests.support.counted_calls import counted_calls
from tests.support.store_builder import StoreBuilder


def test_info_counts_what_rocketmq_counts(golden_533: Path) -> None:
    (found,) = lines("info", golden_533, "--all", "--sizes", "--json")
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
    text = run("info", golden_533, "--all")
    assert str(golden_533) in text
    assert "log [0, 965939) in 4 files" in text
    for topic, count in COUNTS.items():
        (row,) = [line.split() for line in text.splitlines() if line.startswith(topic + " ")]
        assert str(count) in row
    rows = [line for line in run("info", golden_533, "--queues").splitlines() if line.startswith("orders ")]
    assert [row.split()[1] for row in rows] == ["0", "1", "2", "3"]
    assert "abort file present" not in text


def test_system_topics_are_left_out_unless_all_is_asked_for(golden_533: Path) -> None:
    hidden = "1 topic of RocketMQ's or the store's own: --all shows them too.\n"
    for command in (["info"], ["info", "--queues"], ["stats"], ["topics", "ls"]):
        shown, everything = run(*command, golden_533), run(*command, golden_533, "--all")
        assert shown.endswith(hidden), command
        assert ("SCHEDULE_TOPIC_XXXX" in shown, "SCHEDULE_TOPIC_XXXX" in everything) == (False, True), command
        assert "--all" not in everything
        for form in ("json", "csv"):
            assert "SCHEDULE_TOPIC_XXXX" not in run(*command, golden_533, "-o", form)
            assert "SCHEDULE_TOPIC_XXXX" in run(*command, golden_533, "--all", "-o", form)
    assert "SCHEDULE_TOPIC_XXXX" in run("stats", golden_533, "SCHEDULE_TOPIC_XXXX"), "it is named"


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
    done = ended("info", builder.path, "--sizes", "--json")
    assert done.returncode == 1
    (queue,) = json.loads(done.stdout)["topics"][0]["queues"]
    assert queue["messages"] == 900
    assert queue["size"] is None
    assert "queue offset 300" in queue["error"]


def test_the_verdict_is_one_line_and_the_exit_code(tmp_path: Path, golden_533: Path) -> None:
    assert run("info", golden_533).splitlines()[1].startswith("verdict OK: ")
    path = make_store(tmp_path / "store")
    delete_second(path)
    done = ended("info", path)
    assert done.returncode == 1
    assert done.stdout.splitlines()[1] == "verdict DOES NOT OPEN: at least 195 messages lost"
    assert "The CommitLog file that starts at 65536 is missing" in done.stderr, "the cause"
    assert done.stderr.rstrip().endswith(f"More: commitlog doctor {path}")
    found = json.loads(ended("info", path, "--json").stdout)
    assert (found["verdict"], found["lost"], found["unreadable"]) == ("DOES NOT OPEN", 195, 0)
    assert json.loads(ended("info", path, "--json", "--from-log").stdout)["verdict"] is None


def test_info_says_that_the_owner_did_not_close_the_store(golden_498: Path) -> None:
    assert "abort file present" in run("info", golden_498)
    assert lines("info", golden_498, "--json")[0]["aborted"] is True


def test_info_on_many_queues_is_quick(tmp_path: Path) -> None:
    """A queue costs the same number of calls however many there are, and opens few files."""
    paths: list[Path] = []
    for topics in (1, 1, 4, 16):  # the first run imports modules
        builder = StoreBuilder(tmp_path / str(len(paths)), log_file_size=4 << 20, queue_file_units=20)
        for topic in range(topics):
            builder.append(f"topic-{topic}", range(20), [b"x" * 100] * 40)
        paths.append(builder.path)
    found: list[str] = []
    _, few, more, many = (
        counted_calls(lambda path=path: found.append(run("info", path, "--json")))  # type: ignore[misc]
        for path in paths
    )
    shown = json.loads(found[-1])
    assert sum(queue["messages"] for topic in shown["topics"] for queue in topic["queues"]) == 16 * 40
    assert (many - more) / 240 < 1.2 * (more - few) / 60
    assert (many - more) / 240 < 2_000, "it was 1,100"


def test_info_continues_when_a_part_of_the_store_is_damaged(tmp_path: Path) -> None:
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
    done = ended("info", builder.path)
    assert done.returncode == 1
    assert [line.split()[:2] for line in done.stdout.splitlines() if line.startswith("good")] == [["good", "1"]]
    for words in ("a multiple of the unit size", "20261121000000000", "checkpoint", "batch consume queues"):
        assert words in done.stderr
    found = json.loads(ended("info", builder.path, "--json").stdout)
    assert len(found["problems"]) >= 4
    by_topic = {topic["topic"]: topic["queues"] for topic in found["topics"]}
    assert by_topic["good"][0]["messages"] == 5
    assert by_topic["bad"][0]["messages"] == 5


def test_what_is_the_same_for_many_queues_is_said_once(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("orders", [0, 1, 2], [b"x"] * 9)
    (file,) = (builder.path / "commitlog").iterdir()
    file.chmod(0)
    with file_modes_hold():
        done = ended("info", builder.path)
    assert done.returncode == 1
    assert done.stderr.count(f"No permission to read {file}: run as a user who may") == 1


def test_a_broken_checkpoint_is_reported_in_one_sentence(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    path = builder.path / "checkpoint"
    for data, words in (
        (b"?", "found a file that should have 4096 bytes, not 1"),
        (b"\xff" * 4096, "found a physic_msg_timestamp that should be 0 to 253402300799999, not -1"),
    ):
        path.write_bytes(data)
        done = ended("info", builder.path, "--json")
        assert done.returncode == 1
        (problem,) = json.loads(done.stdout)["problems"]
        assert problem == f"Checkpoint in {path} at byte 0: expected 4096 bytes of times, {words}."


@pytest.mark.parametrize("command", [["info"], ["cat", "*"], ["cat", "orders"], ["tail", "orders"]], ids=" ".join)
def test_a_log_without_queues_is_not_shown_as_empty(tmp_path: Path, command: list[str]) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("orders", 0, [b"x"] * 5)
    shutil.rmtree(builder.path / "consumequeue")
    done = ended(command[0], builder.path, *command[1:])
    assert done.returncode == 1
    assert "--from-log" in done.stderr
    done = ended("info", StoreBuilder(tmp_path / "empty").path)
    assert (done.returncode, done.stderr) == (0, "")


def test_info_lists_what_cuts_have_kept(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("orders", 0, [b"x"] * 5)
    kept = builder.path / "repair" / "20261121T083655.000Z"
    kept.mkdir(parents=True)
    report = {"cutAt": 100, "size": 2000, "messages": 3, "reason": "damage", "uncommitted": "", "queues": []}
    (kept / "kept.json").write_text(json.dumps(report))
    assert f"kept from byte 100 on: 3 messages, 2.0 kB, in {kept}\n" in run("info", builder.path)
    (piece,) = lines("info", builder.path, "--json")[0]["kept"]
    assert (piece["path"], piece["cutAt"], piece["messages"]) == (str(kept), 100, 3)
