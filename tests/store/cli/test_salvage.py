"""``commitlog salvage``: the report for people and for programs, and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

from tests.store.cli.commands import ended
from tests.store.salvage.damaged_stores import GOLDEN_498, damaged, messages, places

SMALL_INDEX = ("--max-hash-slot-num", "100", "--max-index-num", "4000")


def test_looking_reports_and_writes_nothing(tmp_path: Path) -> None:
    found = ended("salvage", GOLDEN_498)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.splitlines()[-1].endswith(
        f"{sum(messages(GOLDEN_498).values())} messages found, 0 known to be lost"
    )
    assert not list(tmp_path.iterdir())


def test_what_is_lost_is_listed(tmp_path: Path) -> None:
    record = places(GOLDEN_498)[300]
    store = damaged(tmp_path / "damaged", record.start + 90, b"XXXX")
    found = ended("salvage", store, "--to", tmp_path / "target", *SMALL_INDEX)
    assert (found.returncode, found.stderr) == (1, "")
    lines = found.stdout.splitlines()
    assert f"in {tmp_path / 'target'}" == lines[-1]
    assert "unreadable: 1 stretches" in found.stdout
    assert any(line.startswith(f"{record.start}  ") and "BODYCRC: expected" in line for line in lines)
    assert ended("verify", tmp_path / "target").returncode == 0


def test_json_has_the_same(tmp_path: Path) -> None:
    record = places(GOLDEN_498)[300]
    store = damaged(tmp_path / "damaged", record.start + 90, b"XXXX")
    found = ended("salvage", store, "--to", f"csv:{tmp_path / 'rows'}", "--json")
    assert found.returncode == 1
    report = json.loads(found.stdout)
    assert report["target"] == f"csv:{tmp_path / 'rows'}"
    assert report["found"] + report["lost"] == sum(messages(GOLDEN_498).values())
    ((hole,),) = [one["lostOffsets"] for one in report["topics"] if one["lost"]]
    assert hole["stop"] - hole["start"] == 1
    assert [(one["start"], one["stop"]) for one in report["unreadable"]] == [(record.start, record.stop)]
    (moved,) = report["moved"]
    assert (moved["start"], moved["newStart"]) == (hole["stop"], hole["start"])


def test_wrong_usage_and_what_is_not_a_log_end_with_2(tmp_path: Path) -> None:
    assert ended("salvage", tmp_path / "none").returncode == 2
    assert ended("salvage", tmp_path).returncode == 2
    refused = ended("salvage", GOLDEN_498, "--to", GOLDEN_498 / "new")
    assert refused.returncode == 2
    assert "give another target" in " ".join(refused.stderr.replace("│", " ").split())
