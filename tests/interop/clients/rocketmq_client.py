"""RocketMQ's clients, each a program that is driven by commands: Java 4.9.8 and 5.3.3, and Go.

``java/common/ClientProgram.java`` says which commands there are; ``go/main.go`` has the same, but for pull consumers
and mqadmin. What is downloaded and built stays in pytest's cache.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.interop.command_process import CommandProcess, Json
from tests.interop.rocketmq import (
    InstallFailed,
    RocketMqUnavailable,
    incomplete_of,
    installed,
    java_command,
    keep,
    run,
)

SOURCES = Path(__file__).resolve().parent
JAVA_VERSIONS = ("5.3.3", "4.9.8")
# Those that tests are run with. One of Java's has the other kind of header.
CLIENTS = (*(f"java-{version}" for version in JAVA_VERSIONS), "go")
# Long runs measure with a Java machine as users have it.
SMALL_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_WARNING = re.compile(r"\[[^]]+\] WARN ")
_GO_BUILD = ("go", "build", "-o")


class RocketMQClient(CommandProcess):
    """A running client. ``kind`` is one of ``CLIENTS``; producers and consumers of one process have names."""

    _numbers = itertools.count()

    def __init__(
        self,
        kind: str,
        cache: Path,
        directory: Path,
        *,
        header: str = "JSON",
        jvm: Sequence[str] = SMALL_JVM,
    ) -> None:
        """Starts it. ``header`` is the kind of header of Java's clients; Go has JSON.

        ``directory`` is its home, for its log and the positions of broadcasting. ``RocketMqUnavailable``.
        """
        self.kind = kind
        number = next(self._numbers)
        home = directory / f"home-{kind}"
        command = client_command(kind, cache, home, header, jvm)
        super().__init__(command, directory / f"{kind}-{number}.log", {"HOME": str(home)})

    @property
    def is_java(self) -> bool:
        """Java's have all of the commands."""
        return self.kind.startswith("java-")

    @property
    def is_five(self) -> bool:
        """Whether the client knows what came with RocketMQ 5."""
        return self.kind.startswith("java-5")

    def __enter__(self) -> RocketMQClient:
        return self

    def start_producer(self, name: str, address: str, **options: object) -> None:
        """Start a producer of a group of its own name."""
        self.ask("producer", name=name, group=f"{name}-producers", namesrv=address, **options)

    def subscribe(self, name: str, address: str, topic: str, expression: object = "*", **options: object) -> None:
        """Start a push consumer, of a group of its own name unless ``group`` is given, at the first message."""
        more = {"group": f"{name}-consumers"} | options
        self.ask("pushConsumer", name=name, namesrv=address, subscriptions={topic: expression}, **more)

    def send(self, producer: str, *messages: Json, **how: object) -> list[Json]:
        """The results of the sends, each with ``status``, or with ``error``."""
        results: list[Json] = self.ask("send", name=producer, messages=messages, **how)["results"]
        return results

    def received(self, consumer: str, at_least: int, timeout_s: float = 60) -> list[Json]:
        """What the consumer's listener was given so far, as soon as it was that many. ``AssertionError``."""
        limit = round(timeout_s * 1_000)
        messages: list[Json] = self.ask("received", name=consumer, atLeast=at_least, timeoutMs=limit)["messages"]
        assert len(messages) >= at_least, f"{len(messages)} of {at_least} came in {timeout_s} s: {bodies(messages)}"
        return messages

    def mqadmin(self, *arguments: str) -> str:
        """What a command of mqadmin prints, without warnings of the client's log."""
        output: str = self.ask("mqadmin", arguments=arguments)["output"]
        return "".join(line for line in output.splitlines(keepends=True) if not _WARNING.match(line))


def client_command(
    kind: str, cache: Path, home: Path, header: str = "JSON", jvm: Sequence[str] = SMALL_JVM
) -> list[str]:
    """The command that runs a client, which is installed before if needed. ``RocketMqUnavailable``."""
    (home / "conf").mkdir(parents=True, exist_ok=True)
    (home / "conf" / "logback_tools.xml").write_text("<configuration/>")  # mqadmin wants both
    (home / "conf" / "tools.yml").write_text('accessKey: ""\nsecretKey: ""\n')
    if kind == "go":
        return [str(_go_program(cache))]
    version = kind.removeprefix("java-")
    directories = (SOURCES / "java" / "common", SOURCES / "java" / f"v{version[0]}")
    sources = sorted(source for directory in directories for source in directory.glob("*.java"))
    classpath = installed(version, cache, SOURCES / "java", sources, "client-")
    properties = {
        "rocketmq.serialize.type": header,
        "rocketmq.client.logRoot": home / "logs",
        "rocketmq.client.localOffsetStoreDir": home / "offsets",
        "rocketmq.home.dir": home,
    }
    options = [f"-D{name}={value}" for name, value in properties.items()]
    return [*java_command(home, classpath, [*jvm, *options]), "ClientProgram"]


def _go_program(cache: Path) -> Path:
    if shutil.which("go") is None:
        raise RocketMqUnavailable("RocketMQ's Go client is built with Go; go is missing.")
    sources = sorted(path for path in (SOURCES / "go").iterdir() if path.suffix in (".go", ".mod", ".sum"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    built = cache / f"go-client-{digest}"
    if not built.exists():
        incomplete = incomplete_of(built)
        try:
            run([*_GO_BUILD, str(incomplete / "client"), "."], SOURCES / "go")
        except (InstallFailed, subprocess.TimeoutExpired) as error:
            raise RocketMqUnavailable(f"RocketMQ's Go client was not built: {error}") from error
        keep(incomplete, built)
    return built / "client"


def message(topic: str, body: str, **more: object) -> Json:
    """A message as clients' programs are given it."""
    return {"topic": topic, "body": body, **more}


def bodies(messages: Sequence[Mapping[str, object]]) -> list[str]:
    """Their bodies, in the order of arrival."""
    return [str(one["body"]) for one in messages]
