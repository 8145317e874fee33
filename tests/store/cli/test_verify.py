"""``commitlog verify``: the report, for people and for programs, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

from tests.store.cli.commands import lines, run, script
from tests.store.verify.made_store import damage, files, make_store, queue_file
from tests.support.store_builder import StoreBuilder

__all__: list[str] = []


def test_a_whole_store_is_reported_as_whole(golden_533: Path) -> None:
    text = run("verify", golden_533)
    assert str(golden_533) in text
    assert "1253 records" in text
    assert text.rstrip().endswith("all is well")
    (report,) = lines("verify", golden_533, "--json")
    assert set(report) == {"path", "aborted", "records", "bytes", "queues", "indexFiles", "seconds", "findings"}
    assert (report["records"], report["bytes"], report["findings"]) == (1253, 965939, [])


def test_errors_are_listed_and_end_with_code_1(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store")
    file, place = queue_file(path, "orders", 2, 130)
    damage(file, place + 8, bytes([0, 0, 0, 9]))
    done = script("verify", path)
    assert (done.returncode, done.stderr) == (1, "")
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("error")]
    assert row.split()[:4] == ["error", "queue.unit", str(file.relative_to(path)), str(place)]
    assert done.stdout.rstrip().endswith(": 1 error, no notes")
    done = script("verify", path, "--json")
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
    assert script("verify").returncode == 2


def test_names_cannot_drive_the_terminal(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("t", 0, [b"x"])
    (builder.path / "commitlog" / "\x1b[2Jname").write_bytes(b"")
    text = run("verify", builder.path)
    assert "\x1b" not in text
    assert "files.name" in text
