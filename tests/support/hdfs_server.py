"""A real HDFS as a process of its own: Hadoop's MiniDFSCluster (``MiniHdfs.java``)."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from tests.support.maven import CACHE, MavenUnavailable, jars_of
from tests.support.quick_spark import JAVA_OPTIONS

_VERSION = "3.4.2"
# The cluster has classes of Mockito's in its own, and does not name it as what it needs.
_ARTIFACTS = (
    f"org.apache.hadoop:hadoop-minicluster:{_VERSION}",
    f"org.apache.hadoop:hadoop-minikdc:{_VERSION}",
    "org.mockito:mockito-core:2.28.2",
)
_PROGRAM = Path(__file__).with_name("MiniHdfs.java")
_JVM = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


@dataclass(frozen=True)
class HdfsServer:
    """``url`` is the first name node's, such as hdfs://127.0.0.1:8020. ``port`` is that of the second one of a pair."""

    url: str
    port: int
    krb5_conf: str
    directory: Path
    process: subprocess.Popen[str]

    def fail_over(self) -> None:
        """Make the second name node of a pair the active one."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("failover\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"


@contextlib.contextmanager
def hdfs_server(directory: Path, kind: Literal["plain", "pair", "kerberos"] = "plain") -> Iterator[HdfsServer]:
    """A server whose files are in ``directory``; the test is skipped where its jars cannot be fetched."""
    try:
        jars = jars_of(_ARTIFACTS, CACHE / f"hdfs-{_VERSION}")
    except MavenUnavailable as reason:
        pytest.skip(str(reason))
    java = os.path.join(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
    # Settings of Spark's JVMs are not its own.
    environment = {name: value for name, value in os.environ.items() if name != JAVA_OPTIONS}
    (directory / "hdfs").mkdir()
    with (
        (directory / "hdfs.log").open("wb") as log,
        subprocess.Popen(
            [java, *_JVM, "-cp", f"{jars}/*", str(_PROGRAM), str(directory / "hdfs"), kind],
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
            found = next((hit for line in server.stdout if (hit := re.match(r"port (\d+) ?(.*)$", line))), None)
            assert found is not None, f"HDFS ended before it listened: {(directory / 'hdfs.log').read_text()[-2000:]}"
            port, path = (int(found[2]), "") if found[2].isdigit() else (0, found[2])
            yield HdfsServer(f"hdfs://127.0.0.1:{found[1]}", port, path, directory / "hdfs", server)
        finally:
            server.kill()
