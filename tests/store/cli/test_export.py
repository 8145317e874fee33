"""``commitlog export``: options, the report, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pa_parquet

from tests.store.cli.commands import COUNTS, ended, lines, run

__all__: list[str] = []


def test_the_report_counts_rows_and_files(golden_533: Path, tmp_path: Path) -> None:
    text = run("export", golden_533, "--to", f"parquet:{tmp_path / 'out'}", "--topic", "pack*")
    assert text == f"{COUNTS['packed']} rows of 1 topics: 1 files in {tmp_path / 'out'}\n"
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
