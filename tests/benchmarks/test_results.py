"""What a benchmark shows is written as JSON, with its numbers and units, also where it ends with an error."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.benchmarks import measure
from tests.benchmarks.__main__ import main, named_by, run
from tests.benchmarks.results import figures


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ("804 k msg/s", [(804, "k msg/s")]),
        ("4,749 /s = 60 %", [(4749, "/s"), (60, "%")]),
        ("p50 45 µs, p99 80 µs, p99.9 120 µs", [(45, "µs"), (80, "µs"), (120, "µs")]),
        ("0.086 ms", [(0.086, "ms")]),
        ("0.38 s, cpu 0.21", [(0.38, "s"), (0.21, "")]),
        ("87%", [(87, "%")]),
        ("1.40 / 3.05 ms", [(1.4, ""), (3.05, "ms")]),
        ("none", []),
    ],
)
def test_each_number_of_a_shown_value_has_its_unit(shown: str, expected: list[tuple[float, str]]) -> None:
    assert [(one["number"], one["unit"]) for one in figures(shown)] == expected


@pytest.fixture
def listeners(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of a test's benchmark are given to no other one."""
    monkeypatch.setattr(measure, "_listeners", [])


@pytest.mark.usefixtures("listeners")
def test_the_lines_of_a_benchmark_are_in_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def benchmark() -> None:
        measure.show("put_messages", "804 k msg/s", "goal 600 k")
        measure.show("open", "18 ms")

    run("small", benchmark, tmp_path / "results")
    written = json.loads((tmp_path / "results" / "small.json").read_text())
    assert "put_messages" in capsys.readouterr().out
    assert written["complete"]
    assert written["benchmark"] == "small"
    assert {"machine", "begun", "commit", "pyspark", "pyarrow", "numpy"} <= written.keys()
    assert written["lines"] == [
        {"what": "put_messages", "shown": "804 k msg/s", "figures": [{"number": 804.0, "unit": "k msg/s"}],
         "beside": "goal 600 k"},
        {"what": "open", "shown": "18 ms", "figures": [{"number": 18.0, "unit": "ms"}], "beside": ""},
    ]  # fmt: skip


@pytest.mark.usefixtures("listeners")
def test_a_benchmark_that_fails_leaves_what_it_showed(tmp_path: Path) -> None:
    def benchmark() -> None:
        measure.show("open", "18 ms")
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        run("small", benchmark, tmp_path)
    written = json.loads((tmp_path / "small.json").read_text())
    assert not written["complete"]
    assert len(written["lines"]) == 1


def test_a_name_stands_for_its_parts_too() -> None:
    known = ["kafka", "kafka_stream", "scale_files", "scale_queues", "small"]
    assert named_by("kafka", known) == ["kafka", "kafka_stream"]
    assert named_by("scale", known) == ["scale_files", "scale_queues"]
    assert named_by("scale_files", known) == ["scale_files"]
    assert named_by("sma", known) == []


def test_a_name_with_parts_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each part is a process of its own, which runs itself alone: or each would start all of them again."""
    ran: list[list[str]] = []

    def runs(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        ran.append(command[3:])
        return subprocess.CompletedProcess(command, 0)

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "run", runs)
        assert main(["small"]) == 0
    assert ran == [["--alone", "small"], ["--alone", "small_spark"]]
    monkeypatch.setattr("tests.benchmarks.bench_small.main", lambda: print("it ran"))
    monkeypatch.setenv("COMMITLOG_BENCH_RESULTS", str(tmp_path))
    assert main(["--alone", "small"]) == 0
    assert "it ran" in capfd.readouterr().out
