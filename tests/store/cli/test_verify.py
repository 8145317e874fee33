"""``commitlog verify``: the report, for people and for programs, and its exit codes."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

from commitlog_store import Message, MessageStore
from tests.store.cli.commands import COUNTS, ended, lines, run, script
from tests.store.verify.made_store import damage, files, make_store, message_place, queue_file
from tests.support.store_builder import StoreBuilder


def test_a_whole_store_is_reported_as_whole(golden_533: Path) -> None:
    text = run("verify", golden_533)
    assert str(golden_533) in text
    assert "1253 records" in text
    assert text.rstrip().endswith("all is well")
    (report,) = lines("verify", golden_533, "--json")
    assert set(report) == {
        "path", "verdict", "aborted", "records", "bytes", "queues", "indexFiles", "seconds", "found", "lost",
        "unreadable", "topics", "findings", "nextSteps",
    }  # fmt: skip
    assert (report["records"], report["bytes"], report["lost"], report["findings"]) == (1253, 965939, 0, [])


def test_topics_add_up_to_the_records(golden_533: Path) -> None:
    """Prepared and rolled-back messages are records, and no queue has them: 'info' does not count them."""
    (report,) = lines("verify", golden_533, "--json")
    topics = report["topics"]
    assert set(topics[0]) == {
        "topic", "found", "prepared", "rolledBack", "lost", "lostOffsets", "unreadable", "unreadableOffsets",
    }  # fmt: skip
    assert sum(one["found"] + one["prepared"] + one["rolledBack"] for one in topics) == report["records"]
    assert sum(one["prepared"] for one in topics) > 0
    found = {one["topic"]: one["found"] for one in topics if one["found"]}
    assert found == dict(COUNTS)
    assert "rolled back" not in run("verify", golden_533), "nothing is lost: the table only on request"
    rows = [line.split() for line in run("verify", golden_533, "--topics").splitlines()]
    assert [
        [one["topic"], *(str(one[name]) for name in ("found", "lost", "prepared", "rolledBack"))] for one in topics
    ] == rows[2:-1]
    text = run("verify", golden_533, "--topics", "-o", "csv").splitlines()
    assert text[0] == "topic,found,lost,prepared,rolledBack,unreadable"
    assert len(text) == 1 + len(topics)


def test_lost_messages_are_counted_by_topic(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store")
    file, place, _ = message_place(path, "orders", 2, 130)
    damage(file, place + 100, b"XXXX")
    done = ended("verify", path)
    assert done.returncode == 1
    *_, headings, audit, orders, command, summary = done.stdout.splitlines()
    assert headings.split() == ["topic", "found", "lost", "unreadable", "prepared", "rolled", "back", "lost", "offsets"]
    assert audit.split() == ["audit", "180", "0", "0", "0", "0"]
    assert orders.split() == ["orders", "719", "1", "1", "0", "0", "2:", "130"]
    assert command == f"next: commitlog salvage {path}"
    assert summary.endswith(": 1 error, no notes, 1 message lost")
    report = json.loads(ended("verify", path, "--json").stdout)
    assert report["lost"] == 1
    (orders_count,) = [one for one in report["topics"] if one["topic"] == "orders"]
    assert orders_count["lostOffsets"] == [{"queueId": 2, "start": 130, "stop": 131}]


def test_messages_that_opening_would_cut_off_count_as_lost(tmp_path: Path) -> None:
    store, refused = damaged_and_left_open(tmp_path / "store")
    done = ended("verify", store)
    assert done.returncode == 1
    assert done.stdout.rstrip().endswith(f"{refused} messages lost")
    assert "no errors" not in done.stdout


def damaged_and_left_open(path: Path) -> tuple[Path, int]:
    """A store whose unflushed end has a bad record with whole ones after it, and the number of these and of itself."""
    make_store(path)
    with MessageStore.open(path) as store:
        for number in range(10):
            store.put_message(Message(topic="orders", body=b"%d" % number * 50, queue_id=0)).raise_for_status()
        store.dispatch()
        # As a crash of the machine leaves it: the checkpoint is older than the messages.
        for name in ("commitlog", "checkpoint", "consumequeue", "index", "config"):
            source, target = path / name, path.with_name("crashed") / name
            target.parent.mkdir(exist_ok=True)
            shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    crashed = path.with_name("crashed")
    (crashed / "abort").touch()
    file, place, _ = message_place(crashed, "orders", 0, 245)
    damage(file, place + 100, b"XXXX")
    return crashed, 5


def test_csv_has_a_line_for_each_finding(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store")
    assert run("verify", path, "-o", "csv") == "severity,check,path,offset,topic,queueId,queueOffset,message\n"
    file, place = queue_file(path, "orders", 2, 130)
    damage(file, place + 8, bytes([0, 0, 0, 9]))
    done = script("verify", path, "-o", "csv")
    assert (done.returncode, done.stderr) == (1, "")
    (row,) = csv.DictReader(io.StringIO(done.stdout))
    message = row.pop("message")
    assert row == {
        "severity": "error", "check": "queue.unit", "path": str(file), "offset": str(place), "topic": "orders",
        "queueId": "2", "queueOffset": "130",
    }  # fmt: skip
    assert "expected" in message


def test_errors_are_listed_and_end_with_code_1(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store")
    file, place = queue_file(path, "orders", 2, 130)
    damage(file, place + 8, bytes([0, 0, 0, 9]))
    done = script("verify", path)
    assert (done.returncode, done.stderr) == (1, "")
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("error")]
    assert row.split()[:4] == ["error", "queue.unit", str(file.relative_to(path)), str(place)]
    assert done.stdout.rstrip().endswith(": 1 error, no notes")
    done = ended("verify", path, "--json")
    assert done.returncode == 1
    (finding,) = json.loads(done.stdout)["findings"]
    assert (finding["check"], finding["severity"], finding["path"]) == ("queue.unit", "error", str(file))
    assert (finding["topic"], finding["queueId"], finding["queueOffset"], finding["offset"]) == (
        "orders",
        2,
        130,
        place,
    )


def test_notes_are_not_failures(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store")
    (path / "abort").write_bytes(b"")
    (path / "checkpoint").write_bytes(bytes(4096))
    newest = files(path, "commitlog")[-1]
    damage(newest, 60_000, b"x")
    text = run("verify", path)
    assert "abort file present" in text
    assert "tail.not-zero" in text
    assert text.rstrip().endswith(": no errors, 1 note")


def test_a_path_that_is_not_a_store_ends_with_code_2(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        done = script("verify", path)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("commitlog: ")
        assert done.stderr.count("\n") == 1
    assert ended("verify").returncode == 2


def test_names_cannot_drive_the_terminal(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("t", 0, [b"x"])
    (builder.path / "commitlog" / "\x1b[2Jname").write_bytes(b"")
    text = run("verify", builder.path)
    assert "\x1b" not in text
    assert "files.name" in text
