"""Kafka beside the store: a broker and Spark's connector, fetched with Maven. The product needs nothing of it."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.maven import CACHE, MavenUnavailable, jars_of

# The newest connector there is; it runs in a Spark of the next minor version.
_CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
_BROKER = "org.apache.kafka:kafka_2.13:3.9.0"
_LOGGING = "org.slf4j:slf4j-simple:1.7.36"
# Spark has these itself.
_IN_SPARK = ("hadoop-", "scala-library", "slf4j-", "lz4-", "snappy-", "jsr305")
_CACHE = CACHE / "kafka"
_SECONDS_TO_START = 60

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
    try:
        return jars_of(artifacts, _CACHE / name)
    except MavenUnavailable as error:
        raise KafkaUnavailable(str(error)) from error
