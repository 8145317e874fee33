"""RocketMQ's own store: its jars from Maven Central, the program that drives it, and what its log may say."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.interop.store_process import StoreProcess
from tests.support.quick_spark import JAVA_OPTIONS

SOURCES = Path(__file__).resolve().parent / "java"
DOWNLOAD_TIMEOUT_SECONDS = 900

# One processor, little memory and no optimizing compiler: the tests start a hundred of them.
_JVM = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:ActiveProcessorCount=1"]
# RocketMQ releases mappings and locks memory through the JDK's insides.
_OPENED = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in ("java.nio", "sun.nio.ch", "java.lang", "jdk.internal.ref")
]
_PROPERTIES = [
    f"-Drmq.logback.configurationFile={SOURCES / 'v5' / 'logback.xml'}",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    # However full the disk is: neither refuse puts, nor delete files.
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.99",
]


# What RocketMQ warns of, or calls an error, though nothing is wrong.
_HARMLESS = [
    re.compile(text)
    for text in (
        r"^RocketMQLog:WARN",  # 4.x, before its logging is configured
        r"META-INF/service/org\.apache\.rocketmq\.store\.ha\.HAService\] found",  # no other one is configured
        r"Load default HA Service",
        r"The commitlog files are deleted, and delete the consume queue files",  # a store that is new
        r"Offset not matched\. Request offset: (\d+), firstOffset: \d+, lastOffset: \1,",  # waiting for a file
        r"maxPhyOffsetOfConsumeQueue\((\d+)\) >= processOffset\(\1\)",  # the queues end where the log does
        r"found a illegal magic code 0x0",  # the zeros after the log's end
        r"Unknown boundary type",  # said of many times that 5.x is asked for, and answers
    )
]


class RocketMqUnavailable(Exception):
    """The tools to install RocketMQ are missing, or the network is."""


class InstallFailed(Exception):
    """Says what the command said."""


class RocketMqProcess(StoreProcess):
    """RocketMQ gives a file its size after its name. Killed between the two, it asks for a look by hand."""

    def kill(self) -> None:
        super().kill()
        for part in ("commitlog", "consumequeue"):
            for file in (self.path / part).rglob("*"):
                if file.is_file() and file.stat().st_size == 0:
                    file.unlink()


@dataclass(frozen=True)
class RocketMq:
    """An installed version."""

    version: str
    classpath: str
    home: Path

    @property
    def is_five(self) -> bool:
        return self.version.startswith("5.")

    def open(self, path: Path, settings: Mapping[str, object]) -> StoreProcess:
        """A process that has the store at ``path`` open. ``settings`` have the names of ``MessageStoreConfig``."""
        return RocketMqProcess(
            [*self._java, "RocketMqStore"],
            path,
            {_camel_case(name): value for name, value in settings.items()} | {"osPageCacheBusyTimeOutMills": 60_000},
            path.with_name(f"{path.name}.{self.version}.log"),
        )

    def filter(self, expressions: Sequence[str], messages: Sequence[Mapping[str, str]]) -> list[list[str] | None]:
        """What RocketMQ's SQL92 filter says of messages: TRUE, FALSE, NULL or failed; None for a refused expression."""
        asked = [
            json.dumps({"filter": one, "messages": [dict(message) for message in messages]}) for one in expressions
        ]
        # RocketMQ's JVM would say that it found the settings of Spark's.
        environment = {name: value for name, value in os.environ.items() if name != JAVA_OPTIONS}
        ran = subprocess.run(
            [*self._java, "FilterOracle"],
            input="\n".join(asked).encode(),
            check=True,
            stdout=subprocess.PIPE,
            timeout=DOWNLOAD_TIMEOUT_SECONDS,
            env=environment,
        )
        return [json.loads(line).get("results") for line in ran.stdout.splitlines()]

    @property
    def _java(self) -> list[str]:
        return java_command(self.home, self.classpath)


@dataclass(frozen=True)
class RocketMqBroker:
    """The broker of an installed version."""

    version: str
    classpath: str
    home: Path
    jvm: Sequence[str] = tuple(_JVM)

    def open(self, path: Path) -> StoreProcess:
        """A process that has loaded the positions of the store at ``path``: ``java/broker/BrokerPositions.java``."""
        log = path.with_name(f"{path.name}.broker-{self.version}.log")
        return StoreProcess([*self.java(self.home), "BrokerPositions"], path, {}, log)

    def java(self, home: Path) -> list[str]:
        """The beginning of a command that runs one of its classes."""
        return java_command(home, self.classpath, self.jvm)


def java_command(home: Path, classpath: str, jvm: Sequence[str] = tuple(_JVM)) -> list[str]:
    """The beginning of a command that runs a class of RocketMQ, or one that uses it."""
    return ["java", *jvm, *_OPENED, *_PROPERTIES, f"-Duser.home={home}", "-cp", classpath]


def benchmark_command(version: str, cache: Path, *arguments: object) -> list[str]:
    """The command that runs ``java/benchmark/StoreBenchmark.java``, on a Java machine with its own settings but for
    what RocketMQ needs. ``RocketMqUnavailable``."""
    directories = (SOURCES / "common", SOURCES / "benchmark", _version_directory(version))
    sources = sorted(source for directory in directories for source in directory.glob("*.java"))
    classpath = installed(version, cache, _version_directory(version), sources, "")
    home = f"-Duser.home={cache / 'home'}"
    return ["java", "-Xmx4g", *_OPENED, *_PROPERTIES, home, "-cp", classpath, "StoreBenchmark", *map(str, arguments)]


def complaints(log: str) -> list[str]:
    """What RocketMQ complained of, the usual apart."""
    return [line for line in log.splitlines() if line and not any(usual.search(line) for usual in _HARMLESS)]


def message_store_settings(settings: Mapping[str, object]) -> dict[str, object]:
    """The same settings for ``MessageStore``, whatever the disk and its neighbours are like."""
    return {**settings, "disk_space_warning_level_ratio": 1.0, "os_page_cache_busy_time_out": 60_000}


def install(version: str, cache: Path) -> RocketMq:
    """Get the jars, unless ``cache`` has them, and compile the program. ``RocketMqUnavailable``."""
    sources = sorted([*(SOURCES / "common").glob("*.java"), *_version_directory(version).glob("*.java")])
    classpath = installed(version, cache, _version_directory(version), sources, "")
    return RocketMq(version, classpath, cache / "home")


def install_broker(version: str, cache: Path) -> RocketMqBroker:
    """``install`` for the broker's part."""
    directory = SOURCES / "broker"
    classpath = installed(version, cache, directory, sorted(directory.glob("*.java")), "broker-")
    return RocketMqBroker(version, classpath, cache / "home")


def jars(version: str, cache: Path, pom_directory: Path, kind: str) -> Path:
    """The directory of the jars that the directory's pom.xml names. ``RocketMqUnavailable``."""
    for tool in ("mvn", "javac", "java"):
        if shutil.which(tool) is None:
            raise RocketMqUnavailable(
                f"RocketMQ is installed with Maven and driven by a Java program; {tool} is missing."
            )
    named = hashlib.sha256((pom_directory / "pom.xml").read_bytes()).hexdigest()[:16]
    directory = cache / f"rocketmq-{kind}{version}-{named}"
    if not directory.exists():
        _download(version, pom_directory, directory)
    return directory


def installed(version: str, cache: Path, pom_directory: Path, sources: Sequence[Path], kind: str) -> str:
    """The class path of the jars that the directory's pom.xml names, and the compiled sources."""
    directory = jars(version, cache, pom_directory, kind)
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    classes = cache / f"classes-{kind}{version}-{digest}"
    if not classes.exists():
        _compile(sources, directory, classes)
    return f"{classes}{os.pathsep}{directory}/*"


def _version_directory(version: str) -> Path:
    return SOURCES / f"v{version[0]}"


def _download(version: str, pom_directory: Path, jars: Path) -> None:
    incomplete = incomplete_of(jars)
    command = ["mvn", "-q", "-B", "-f", str(pom_directory / "pom.xml"), "dependency:copy-dependencies"]
    arguments = [f"-Drocketmq.version={version}", f"-DoutputDirectory={incomplete}"]
    try:
        run([*command, *arguments])
    except (InstallFailed, subprocess.TimeoutExpired) as error:
        raise RocketMqUnavailable(f"Maven did not get RocketMQ {version}: {error}") from error
    keep(incomplete, jars)


def _compile(sources: Sequence[Path], jars: Path, classes: Path) -> None:
    incomplete = incomplete_of(classes)
    run(["javac", "-nowarn", "-encoding", "UTF-8", "-cp", f"{jars}/*", "-d", str(incomplete), *map(str, sources)])
    keep(incomplete, classes)


def incomplete_of(target: Path) -> Path:
    """A directory for what becomes ``target`` when it is whole: a run that is interrupted leaves no half of it."""
    directory = target.with_name(f"{target.name}.{os.getpid()}")
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


def keep(incomplete: Path, target: Path) -> None:
    """Give what is whole its name."""
    try:
        incomplete.rename(target)
    except OSError:
        if not target.exists():
            raise
        shutil.rmtree(incomplete)  # another run was faster


def run(command: Sequence[str], directory: Path | None = None, **environment: str) -> None:
    """Run what gets or builds something. ``InstallFailed`` says what it said."""
    ran = subprocess.run(
        command,
        cwd=directory,
        env=os.environ | environment,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DOWNLOAD_TIMEOUT_SECONDS,
    )
    if ran.returncode:
        raise InstallFailed(ran.stdout[-2_000:])


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)
