"""The quick starts in README.md run as they stand, on a golden store in place of the path they name.

The Python of the connector's pages needs the stores and topics of its reader, so it is compiled only.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from commitlog_store import StoreReader
from tests.support.local_spark import PROJECT
from tests.support.spark_programs import SparkPrograms

STORE_PATH = "/var/lib/rocketmq/store"
CHECKPOINT_PATH = "/tmp/orders-checkpoint"
WRITTEN_STORE_PATH = "/data/paid-orders-store"
WRITTEN_CHECKPOINT_PATH = "/tmp/paid-orders-checkpoint"
GUIDES = [PROJECT / "docs" / name for name in ("source.md", "sink.md", "troubleshooting.md", "python.md")]


def blocks_of(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def python_blocks() -> dict[str, str]:
    """The README's Python blocks, by the heading they stand under."""
    text = (PROJECT / "README.md").read_text(encoding="utf-8")
    sections = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    found = {}
    for heading, section in zip(sections[1::2], sections[2::2], strict=True):
        if blocks := blocks_of(section):
            (found[heading],) = blocks
    return found


def with_paths(program: str, store: Path, directory: Path) -> str:
    return program.replace(STORE_PATH, str(store)).replace(CHECKPOINT_PATH, str(directory / "checkpoint"))


def run(program: str, store: Path, directory: Path) -> str:
    """Run ``program`` on ``store`` in a process of its own and return what it printed."""
    program = with_paths(program, store, directory)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK_")}
    ran = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
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


def test_quick_starts_for_spark(spark_programs: SparkPrograms, golden_533: Path, tmp_path: Path) -> None:
    """Reading and writing in one process: the second one uses the frame of the first."""
    blocks = python_blocks()
    reading, writing = blocks["Quick start: Spark"], blocks["Quick start: writing from Spark"]
    forever, until_done = "query.awaitTermination()", "query.processAllAvailable()\nquery.stop()\n"
    assert forever in reading
    written = tmp_path / "written"
    for path in (WRITTEN_STORE_PATH, WRITTEN_CHECKPOINT_PATH):
        assert path in writing
    writing = writing.replace(WRITTEN_STORE_PATH, str(written))
    writing = writing.replace(WRITTEN_CHECKPOINT_PATH, str(tmp_path / "written-checkpoint"))
    program = tmp_path / "program.py"
    program.write_text(with_paths(reading.replace(forever, until_done) + writing + until_done, golden_533, tmp_path))
    ran = spark_programs.run(program, directory=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    # The console is the JVM's, which writes where Spark's log is, too.
    assert re.search(r"^\| *orders\|", ran.stderr, flags=re.MULTILINE), ran.stderr
    with StoreReader.open(golden_533) as source, StoreReader.open(written) as copy:
        rows = sum(queue.max_offset - queue.min_offset for queue in source.queues("orders"))
        assert sum(queue.max_offset for queue in copy.queues("paid-orders")) == rows > 0


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.name)
def test_the_python_of_the_guides_is_python(guide: Path) -> None:
    blocks = blocks_of(guide.read_text(encoding="utf-8"))
    assert blocks
    for number, block in enumerate(blocks):
        compile(block, f"{guide.name}, block {number}", "exec")
