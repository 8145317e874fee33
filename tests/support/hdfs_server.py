"""A real HDFS as a process of its own: Hadoop's MiniDFSCluster, with one name node and one data node."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.maven import CACHE, MavenUnavailable, jars_of
from tests.support.quick_spark import JAVA_OPTIONS

_VERSION = "3.4.2"
_PARTS = ("minicluster", "api", "runtime")
_PROGRAM = Path(__file__).with_name("MiniHdfs.java")
_JVM = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


@dataclass(frozen=True)
class HdfsServer:
    """``url`` is the name node's, such as hdfs://127.0.0.1:8020."""

    url: str
    process: subprocess.Popen[str]


@contextlib.contextmanager
def hdfs_server(directory: Path) -> Iterator[HdfsServer]:
    """A server whose files are in ``directory``; the test is skipped where its jars cannot be fetched."""
    try:
        jars = jars_of([f"org.apache.hadoop:hadoop-client-{part}:{_VERSION}" for part in _PARTS], CACHE / "hdfs")
    except MavenUnavailable as reason:
        pytest.skip(str(reason))
    java = os.path.join(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
    # Settings of Spark's JVMs are not its own.
    environment = {name: value for name, value in os.environ.items() if name != JAVA_OPTIONS}
    with (
        (directory / "hdfs.log").open("wb") as log,
        subprocess.Popen(
            [java, *_JVM, "-cp", f"{jars}/*", str(_PROGRAM), str(directory / "hdfs")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=directory,
            env=environment,
        ) as server,
    ):
        assert server.stdout is not None
        try:
            found = next((hit for line in server.stdout if (hit := re.match(r"port (\d+)$", line))), None)
            assert found is not None, f"HDFS ended before it listened: {(directory / 'hdfs.log').read_text()[-2000:]}"
            yield HdfsServer(f"hdfs://127.0.0.1:{found[1]}", server)
        finally:
            server.kill()
