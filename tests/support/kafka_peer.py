"""Kafka beside the store: a broker and Spark's connector, fetched with Maven. The product needs nothing of it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

# The newest connector there is; it runs in a Spark of the next minor version.
_CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
_BROKER = "org.apache.kafka:kafka_2.13:3.9.0"
_LOGGING = "org.slf4j:slf4j-simple:1.7.36"
# Spark has these itself.
_IN_SPARK = ("hadoop-", "scala-library", "slf4j-", "lz4-", "snappy-", "jsr305")
_CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "pyspark-commitlog" / "kafka"
_SECONDS_TO_START = 60

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tests</groupId><artifactId>kafka-peer</artifactId><version>1</version>
  <dependencies>{}</dependencies>
</project>
"""
_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"

_SETTINGS = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={logs}
num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


class KafkaUnavailable(Exception):
    """Maven is missing, or the network is."""


def connector_jars() -> list[Path]:
    """The jars of Spark's Kafka connector, for ``spark.jars``. ``KafkaUnavailable``."""
    jars = _download("connector", [_CONNECTOR]).glob("*.jar")
    return sorted(jar for jar in jars if not jar.name.startswith(_IN_SPARK))


@contextmanager
def running_broker(work: Path) -> Iterator[str]:
    """A broker with its logs in ``work``. Gives its address. ``KafkaUnavailable``."""
    jars = _download("broker", [_BROKER, _LOGGING])
    port, controller = _free_port(), _free_port()
    settings = work / "kafka.properties"
    settings.write_text(_SETTINGS.format(port=port, controller=controller, logs=work / "kafka-logs"))
    java = [os.path.join(os.environ["JAVA_HOME"], "bin", "java"), "-Xmx1g", "-cp", f"{jars}/*"]
    cluster = "MkU3OEVBNTcwNTJENDM2Qk"
    format_storage = [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings)]
    subprocess.run(format_storage, check=True, capture_output=True)
    with (work / "kafka.log").open("wb") as log:
        broker = subprocess.Popen([*java, "kafka.Kafka", str(settings)], stdout=log, stderr=log)
    try:
        _wait_for(port)
        yield f"127.0.0.1:{port}"
    finally:
        broker.kill()
        broker.wait()


def _wait_for(port: int) -> None:
    end = time.monotonic() + _SECONDS_TO_START
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError as error:
            if time.monotonic() > end:
                raise KafkaUnavailable(f"The broker did not listen within {_SECONDS_TO_START} s.") from error
            time.sleep(0.2)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def _download(name: str, artifacts: Sequence[str]) -> Path:
    directory = _CACHE / name
    if directory.exists():
        return directory
    if shutil.which("mvn") is None:
        raise KafkaUnavailable("Kafka's jars are fetched with Maven (mvn), which is missing.")
    incomplete = directory.with_name(f"{name}.{os.getpid()}")
    incomplete.mkdir(parents=True)
    pom = incomplete / "pom.xml"
    pom.write_text(_POM.format("".join(_DEPENDENCY.format(*artifact.split(":")) for artifact in artifacts)))
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime"]
    ran = subprocess.run(
        [*command, f"-DoutputDirectory={incomplete}"], check=False, capture_output=True, text=True, timeout=900
    )
    if ran.returncode:
        shutil.rmtree(incomplete)
        raise KafkaUnavailable(f"Maven did not get {', '.join(artifacts)}: {ran.stdout[-1000:]}")
    incomplete.rename(directory)
    return directory
