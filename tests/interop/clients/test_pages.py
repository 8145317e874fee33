"""The programs in Java and Go of docs/rocketmq-for-tests.md and docs/producers-into-spark.md run as they stand."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from commitlog_store import StoreReader
from tests.interop.clients.rocketmq_client import SOURCES, client_command
from tests.interop.clients.servers import SERVER_VERSION, own_server
from tests.interop.rocketmq import DOWNLOAD_TIMEOUT_SECONDS, RocketMqUnavailable
from tests.support.local_spark import PROJECT
from tests.support.programs import child_environment
from tests.support.quick_spark import JAVA_OPTIONS
from tests.support.waiting import wait_for


def program_of(page: str, language: str) -> str:
    text = (PROJECT / "docs" / page).read_text(encoding="utf-8")
    (program,) = (
        one for one in re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL) if "main(" in one
    )
    return str(program)


def run(language: str, program: str, jars_cache: Path, directory: Path) -> str:
    """What a program of one file prints, with ``commitlog`` of this Python in its path."""
    environment = child_environment() | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    environment.pop(JAVA_OPTIONS, None)
    if language == "java":
        try:
            command = client_command(f"java-{SERVER_VERSION}", jars_cache, directory / "home")
        except RocketMqUnavailable as reason:
            pytest.skip(str(reason))
        (directory / "Program.java").write_text(program, encoding="utf-8")
        command[-1] = str(directory / "Program.java")
    else:
        if shutil.which("go") is None:
            pytest.skip("the page's program is in Go; go is missing")
        (directory / "main.go").write_text(program, encoding="utf-8")
        for name in ("go.mod", "go.sum"):
            shutil.copy(SOURCES / "go" / name, directory)
        command = ["go", "run", "."]
    done = subprocess.run(
        command,
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=DOWNLOAD_TIMEOUT_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("language", ["java", "go"])
def test_a_test_with_a_broker_of_its_own(jars_cache: Path, tmp_path: Path, language: str) -> None:
    program = program_of("rocketmq-for-tests.md", language)
    assert "order 17" in run(language, program, jars_cache, tmp_path).splitlines()


@pytest.mark.parametrize("language", ["java", "go"])
def test_a_producer_of_the_store_that_spark_reads(jars_cache: Path, tmp_path: Path, language: str) -> None:
    program = program_of("producers-into-spark.md", language)
    with own_server(tmp_path / "server") as address:
        assert "127.0.0.1:10911" in program
        printed = run(language, program.replace("127.0.0.1:10911", address), jars_cache, tmp_path)
        assert printed.splitlines()[-1] in ("SEND_OK", "true")
        with StoreReader.open(tmp_path / "server" / "store") as reader:
            wait_for(lambda: sum(queue.max_offset for queue in reader.queues("orders")) == 1)
            (row,) = reader.scan("orders", columns=["body", "tags", "keys", "properties"]).read_all().to_pylist()
    assert (row["body"], row["tags"], row["keys"]) == (b"12.50", "paid", "order-17")
    assert dict(row["properties"])["region"] == "EU"
