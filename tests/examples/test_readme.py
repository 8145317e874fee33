"""The quick starts in README.md run as they stand, on a golden store in place of the path they name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from commitlog import StoreReader
from tests.support.local_spark import PROJECT, make_java_available

__all__: list[str] = []

STORE_PATH = "/var/lib/rocketmq/store"
CHECKPOINT_PATH = "/tmp/orders-checkpoint"


def python_blocks() -> dict[str, str]:
    """The README's Python blocks, by the heading they stand under."""
    text = (PROJECT / "README.md").read_text(encoding="utf-8")
    sections = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    found = {}
    for heading, section in zip(sections[1::2], sections[2::2], strict=True):
        if block := re.search(r"^```python\n(.*?)^```$", section, flags=re.MULTILINE | re.DOTALL):
            found[heading] = block[1]
    return found


def run(program: str, store: Path, directory: Path) -> str:
    """Run ``program`` on ``store`` in a process of its own and return what it printed."""
    program = program.replace(STORE_PATH, str(store)).replace(CHECKPOINT_PATH, str(directory / "checkpoint"))
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK_")}
    ran = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_quick_start_for_python(golden_533: Path, tmp_path: Path) -> None:
    printed = run(python_blocks()["Quick start: Python"], golden_533, tmp_path)
    assert "['queueOffset', 'keys', 'body']" in printed


def test_quick_start_for_writing(tmp_path: Path) -> None:
    program = python_blocks()["Quick start: writing"]
    assert "/tmp/shop-store" in program
    printed = run(program.replace("/tmp/shop-store", str(tmp_path / "shop")), tmp_path, tmp_path)
    assert printed.startswith("PutMessageStatus.PUT_OK")
    with StoreReader.open(tmp_path / "shop") as reader:
        assert sum(queue.max_offset for queue in reader.queues("orders")) == 5
        assert sum(queue.max_offset for queue in reader.queues("audit")) == 1


@pytest.mark.spark
def test_quick_start_for_spark(golden_533: Path, tmp_path: Path) -> None:
    make_java_available()
    program = python_blocks()["Quick start: Spark"]
    forever = "query.awaitTermination()"
    assert forever in program
    printed = run(program.replace(forever, "query.processAllAvailable()\nquery.stop()"), golden_533, tmp_path)
    assert re.search(r"^\| *orders\|", printed, flags=re.MULTILINE), printed
