"""``commitlog export``: options, the report, exit codes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pa_parquet

from tests.store.cli.commands import COUNTS, ended, lines, run
from tests.store.damage.flipped_bodies import BAD, COUNT, make


def test_the_report_counts_rows_and_files(golden_533: Path, tmp_path: Path) -> None:
    text = run("export", golden_533, "--to", f"parquet:{tmp_path / 'out'}", "--topic", "pack*")
    assert text == f"{COUNTS['packed']} rows of 1 topic: 1 file in {tmp_path / 'out'}\n"
    (file,) = (tmp_path / "out" / "topic=packed").iterdir()
    assert pa_parquet.ParquetFile(file).metadata.num_rows == COUNTS["packed"]
    [again] = lines(
        "export", golden_533, "--to", f"parquet:{tmp_path / 'out'}", "--topic", "packed", "--resume", "--json"
    )
    assert again == {
        "target": f"parquet:{tmp_path / 'out'}",
        "topics": ["packed"],
        "rows": 0,
        "totalRows": COUNTS["packed"],
        "skipped": {},
        "totalSkipped": {},
        "lostEnds": [],
        "files": 1,
    }


def test_columns_and_tags_are_texts(golden_533: Path, tmp_path: Path) -> None:
    wanted = [row for row in lines("cat", golden_533, "packed", "--json") if row["tags"] is None]
    run("export", golden_533, "--to", f"ndjson:{tmp_path / 'out'}", "-t", "packed", "--columns", "keys, queueOffset")
    found = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert len(found) == COUNTS["packed"] >= len(wanted)
    assert all(list(row) == ["keys", "queueOffset"] for row in found)
    run("export", golden_533, "--to", f"ndjson:{tmp_path / 'none'}", "-t", "packed", "--tag", "no such || tag")
    assert (tmp_path / "none").read_text() == ""


def test_exit_codes(golden_533: Path, tmp_path: Path) -> None:
    target = f"ndjson:{tmp_path / 'out'}"
    assert ended("export", golden_533, "--to", "out").returncode == 2
    assert ended("export", golden_533, "--to", target, "--columns", "nope").returncode == 2
    assert ended("export", golden_533, "--to", target, "--topic", "no-such").returncode == 1
    assert ended("export", golden_533, "--to", target).returncode == 0
    refused = ended("export", golden_533, "--to", target)
    assert refused.returncode == 2
    assert "--resume" in refused.stderr


def test_a_log_whose_queues_are_gone_is_not_an_empty_store(tmp_path: Path) -> None:
    store = make("put alone", tmp_path / "store").path
    shutil.rmtree(store / "consumequeue")
    done = ended("export", store, "--to", f"ndjson:{tmp_path / 'out'}")
    assert done.returncode == 1
    assert "no consume queues" in done.stderr
    assert "--from-log" in done.stderr
    assert not (tmp_path / "out").exists()


def test_an_export_ends_at_a_damaged_body_and_is_resumed_after_it(tmp_path: Path) -> None:
    flipped = make("put alone", tmp_path / "store")
    target = f"ndjson:{tmp_path / 'out'}"
    done = ended("export", flipped.path, "--to", target)
    assert done.returncode == 1
    assert "BODYCRC" in done.stderr
    assert "--resume --on-damage skip" in done.stderr
    done = ended("export", flipped.path, "--to", target, "--resume", "--on-damage", "skip")
    assert done.returncode == 1
    assert f"{COUNT - 1} rows of 1 topic, 1 message skipped: " in done.stdout
    assert "commitlog: 1 message skipped because of damage: orders 1.\n" in done.stderr
    rows = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert [row["queueOffset"] for row in rows] == [number for number in range(COUNT) if number != BAD]
    # Nothing was skipped now, and the report still says what the target lacks.
    again = ended("export", flipped.path, "--to", target, "--resume", "--json")
    assert again.returncode == 0
    report = json.loads(again.stdout)
    assert (report["rows"], report["skipped"], report["totalSkipped"]) == (0, {}, {"orders": 1})


def test_an_export_without_the_check_has_the_bodies_as_they_are(tmp_path: Path) -> None:
    flipped = make("put alone", tmp_path / "store")
    run("export", flipped.path, "--to", f"ndjson:{tmp_path / 'out'}", "--no-verify-crc")
    rows = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert [row["body"].encode() for row in rows] == flipped.changed
    run("export", flipped.path, "--to", f"csv:{tmp_path / 'places'}", "--columns", "queueOffset")
    assert len((tmp_path / "places").read_text().splitlines()) == COUNT + 1
