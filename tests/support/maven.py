"""Jars of Java programs that tests run beside the store, fetched with Maven and kept in the user's cache."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "pyspark-commitlog"

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tests</groupId><artifactId>jars</artifactId><version>1</version>
  <dependencies>{}</dependencies>
</project>
"""
_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


class MavenUnavailable(Exception):
    """Maven is missing, or the network is."""


def jars_of(artifacts: Sequence[str], directory: Path) -> Path:
    """``directory``, with the jars of some artifacts (``group:name:version``) and of all that they need at run time."""
    if directory.exists():
        return directory
    if shutil.which("mvn") is None:
        raise MavenUnavailable(f"{', '.join(artifacts)}: jars are fetched with Maven (mvn), which is missing.")
    incomplete = directory.with_name(f"{directory.name}.{os.getpid()}")
    incomplete.mkdir(parents=True)
    pom = incomplete / "pom.xml"
    pom.write_text(_POM.format("".join(_DEPENDENCY.format(*artifact.split(":")) for artifact in artifacts)))
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime"]
    ran = subprocess.run(
        [*command, f"-DoutputDirectory={incomplete}"], check=False, capture_output=True, text=True, timeout=900
    )
    if ran.returncode:
        shutil.rmtree(incomplete)
        raise MavenUnavailable(f"Maven did not get {', '.join(artifacts)}: {ran.stdout[-1000:]}")
    try:
        incomplete.rename(directory)
    except OSError:  # another run was faster
        shutil.rmtree(incomplete)
    return directory
