"""A campaign: all programs beside each other, signals at random moments, and an end at which all comes to rest."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from commitlog_store import MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.errors import CommitLogError
from tests.soak.base import GROUP, PLAIN, REMOTING_GROUP, STREAMED, TOPICS, Base, properties_of
from tests.soak.journal import lines_of, tally
from tests.support.local_spark import PROJECT, make_java_available
from tests.support.open_files import removed_files_of
from tests.support.programs import child_environment

# How long all may take to come to rest, or a program to end.
REST_S, END_S = 120.0, 60.0
CONFIG = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 1_000,
    "maxIndexNum": 20_000,
    "diskSpaceWarningLevelRatio": 90,
}
PRODUCERS = ("puts", "puts-2", "transactions", "delayed", "halves", "remoting")
CONSUMERS = ("workers-1", "workers-2", "remoting-workers")


@dataclass
class Program:
    """A program that is started again whenever it has ended."""

    name: str
    command: list[str]
    # How often it is chosen.
    weight: int = 1
    process: subprocess.Popen[bytes] | None = None
    # It is to run: one that has ended is started again.
    wanted: bool = True
    start_at: float = 0.0
    # By the clock of files.
    started_at: float = 0.0
    expected: set[int] = field(default_factory=set)

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None


class Campaign:
    """Of ``seconds`` with a seed, in a new directory; ``faults`` is what went wrong."""

    def __init__(self, directory: Path, seed: int, *, spark: bool = True) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.started = time.monotonic()
        self.timeline: list[str] = []
        self.faults: list[str] = []
        self.signals: Counter[str] = Counter()
        self.most: dict[str, tuple[int, int]] = {}
        self.base = Base(str(directory), *free_ports(self.random, 4))
        self.spark = spark
        self._prepare()
        self.programs = self._programs()

    def _prepare(self) -> None:
        for name in ("journals", "logs", "archive"):
            self.base.path(name).mkdir()
        self.base.write()
        self.base.path("broker.conf").write_text(properties_of(CONFIG))
        for directory in (self.base.store, self.base.path("sink")):
            config = MessageStoreConfig.from_properties(self.base.path("broker.conf"))
            with MessageStore.open(directory, config) as store:
                for topic in TOPICS:
                    store.create_topic(topic, 4)
                if directory == self.base.store:
                    for topic in TOPICS:
                        store.put(topic, b"first")
                    # A group holds files once it has positions.
                    store.commit_group_offsets(GROUP, {(PLAIN, 0): 0})

    def _programs(self) -> dict[str, Program]:
        base, python = self.base, [sys.executable, "-m"]
        serve = [*python, "commitlog_store", "serve", "--create", "--config", str(base.path("broker.conf"))]
        listen = ["--http", f"127.0.0.1:{base.http_port}", "--rocketmq", f"127.0.0.1:{base.rocketmq_port}"]
        archive = ["--archive", base.archive_url]
        programs = [
            Program(
                "server", [*serve, str(base.store), "--listen", f"127.0.0.1:{base.port}", *listen, *archive], weight=4
            ),
            Program(
                "archiver",
                [*python, "commitlog_store", "archive", str(base.store), base.archive_url, "--follow", "--every", "2"],
            ),
            Program("watcher", [*python, "tests.soak.watcher", base.directory]),
            *(Program(name, [*python, "tests.soak.producer", name, base.directory]) for name in PRODUCERS[:-1]),
            Program("remoting", [*python, "tests.soak.remoting_producer", "remoting", base.directory]),
            *(Program(name, [*python, "tests.soak.consumer", name, base.directory]) for name in CONSUMERS),
        ]
        if self.spark:
            address = f"127.0.0.1:{base.sink_port}"
            programs += [
                Program("sink", [*serve, str(base.path("sink")), "--listen", address], weight=2),
                Program("spark", [*python, "tests.soak.stream", base.directory], weight=2),
            ]
        return {one.name: one for one in programs}

    def note(self, what: str) -> None:
        self.timeline.append(f"{time.monotonic() - self.started:7.1f} {what}")

    def fault(self, what: str) -> None:
        self.note(f"FAULT {what}")
        self.faults.append(what)

    def start(self, program: Program) -> None:
        """Everything it starts is in its process group."""
        with self.base.log(program.name).open("ab") as log:
            log.write(f"--- started at {time.monotonic() - self.started:.1f} s\n".encode())
            log.flush()
            program.process = subprocess.Popen(
                program.command, cwd=PROJECT, env=child_environment(), stdout=log, stderr=log, start_new_session=True
            )
        program.expected, program.started_at = set(), time.time()
        self.note(f"start {program.name}, process {program.process.pid}")

    def send(self, program: Program, number: signal.Signals) -> None:
        assert program.process is not None
        self.signals[f"{number.name} of {program.name}"] += 1
        self.note(f"{number.name} to {program.name}")
        program.expected |= {0, -signal.SIGTERM, 143} if number is signal.SIGTERM else {-signal.SIGKILL}
        with suppress(ProcessLookupError):
            if number is signal.SIGKILL:
                os.killpg(program.process.pid, number)
            else:
                program.process.send_signal(number)

    def look_after(self) -> None:
        """Start what has ended, and note by what."""
        for program in self.programs.values():
            process = program.process
            if process is not None and process.poll() is not None:
                if process.returncode not in program.expected:
                    self.fault(f"{program.name} ended by itself with {process.returncode}")
                self.note(f"{program.name} has ended with {process.returncode}")
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                program.process = None
                program.start_at = time.monotonic() + self.random.choice([0.0, 0.0, 0.3, 1.5])
            if program.wanted and program.process is None and time.monotonic() >= program.start_at:
                self.start(program)
            if program.is_running():
                self._measure(program)

    def _measure(self, program: Program) -> None:
        assert program.process is not None
        with suppress(OSError, StopIteration):
            memory, descriptors = usage(program.process.pid)
            before = self.most.get(program.name, (0, 0))
            self.most[program.name] = max(before[0], memory), max(before[1], descriptors)

    def run(self, seconds: float) -> None:
        """Signals until the time is over, then the end."""
        try:
            next_at, stop_at = time.monotonic() + 5.0, time.monotonic() + seconds
            while time.monotonic() < stop_at:
                self.look_after()
                if time.monotonic() >= next_at:
                    self._disturb()
                    next_at = time.monotonic() + self.random.uniform(0.3, 3.0)
                time.sleep(0.05)
            self._come_to_rest()
        finally:
            for program in self.programs.values():
                if program.process is not None:
                    with suppress(ProcessLookupError):
                        os.killpg(program.process.pid, signal.SIGKILL)
                    program.process.wait()

    def _disturb(self) -> None:
        running = [one for one in self.programs.values() if one.is_running()]
        # A driver that is killed while its Spark starts has done nothing.
        running = [one for one in running if one.name != "spark" or self._has_committed(one)]
        if running:
            (program,) = self.random.choices(running, [one.weight for one in running])
            self.send(program, signal.SIGTERM if self.random.random() < 0.2 else signal.SIGKILL)

    def _has_committed(self, spark: Program) -> bool:
        """Whether a query of this driver has committed a batch since it was started."""
        commits = self.base.path().glob("checkpoint-*/commits/*")
        return any(file.stat().st_mtime > spark.started_at for file in commits)

    def _come_to_rest(self) -> None:
        self.note("producers stop")
        self._stop(*PRODUCERS)
        self._wait("delivered", self._delivered)
        self._wait("consumed", self._consumed)
        if self.spark:
            self._wait("copied", self._copied)
        self._wait("archived", self._archived)
        self._stop(*CONSUMERS, "watcher", "archiver")
        self._check_leaks()
        self._stop(*self.programs)

    def _stop(self, *names: str) -> None:
        for name in names:
            program = self.programs[name]
            program.wanted = False
            if program.is_running():
                self.send(program, signal.SIGTERM)
        deadline = time.monotonic() + END_S
        while any(self.programs[name].is_running() for name in names):
            if time.monotonic() > deadline:
                left = [name for name in names if self.programs[name].is_running()]
                self.fault(f"{left} did not end within {END_S:.0f} s of SIGTERM")
                return
            self.look_after()
            time.sleep(0.05)
        self.look_after()

    def _wait(self, what: str, condition: Callable[[], str]) -> None:
        deadline = time.monotonic() + REST_S
        left = "not asked"
        while time.monotonic() < deadline:
            self.look_after()
            try:
                left = condition()
            except CommitLogError as error:
                left = repr(error)
            if not left:
                self.note(what)
                return
            time.sleep(0.25)
        self.fault(f"not {what} within {REST_S:.0f} s: {left}")

    def _delivered(self) -> str:
        with StoreReader.open(str(self.base.store)) as reader:
            waiting = [f"level {one.level}: {one.waiting}" for one in reader.delay_levels() if one.waiting]
        return ", ".join(waiting)

    def _consumed(self) -> str:
        with StoreReader.open(str(self.base.store)) as reader:
            unfinished = [
                f"{one.topic} {one.queue_id}: {one.lag}"
                for one in reader.groups()
                if one.group in (GROUP, REMOTING_GROUP) and one.lag
            ]
            return ", ".join(unfinished) or self._delivered()

    def _copied(self) -> str:
        with StoreReader.open(str(self.base.store)) as reader:
            wanted = {(topic, queue.queue_id): queue.max_offset for topic in TOPICS for queue in reader.queues(topic)}
        unfinished = []
        for copy, topics in ((self.base.path("sink"), STREAMED), (self.base.path("copy"), TOPICS)):
            with StoreReader.open(str(copy)) as reader:
                found = {
                    (topic, queue.queue_id): queue.max_offset
                    for topic in set(topics) & set(reader.topics())
                    for queue in reader.queues(topic)
                }
            unfinished += [
                f"{copy.name} {place}: {found.get(place, 0)} of {end}"
                for place, end in wanted.items()
                if place[0] in topics and found.get(place, 0) != end
            ]
        return ", ".join(unfinished)

    def _archived(self) -> str:
        with StoreReader.open(str(self.base.store)) as reader:
            end = reader.physical_bounds()[1]
        with StoreReader.open(self.base.archive_to_read) as reader:
            archived = reader.physical_bounds()[1]
        size = int(CONFIG["mappedFileSizeCommitLog"])
        return "" if archived >= end // size * size else f"the archive ends at {archived}, the log at {end}"

    def _check_leaks(self) -> None:
        """A server at rest holds no removed file, and no descriptor for each of its former clients."""
        for name in ("server", "sink"):
            program = self.programs.get(name)
            if program is None or not program.is_running():
                continue
            assert program.process is not None
            process = program.process
            memory, descriptors = usage(process.pid)
            self.note(f"{name} at rest: {memory >> 20} MiB, {descriptors} descriptors")
            self._wait(f"{name} holds no removed file", partial(self._removed_files, process.pid))
            if memory > 700 << 20 or descriptors > 400:
                self.fault(f"{name} at rest has {memory >> 20} MiB and {descriptors} descriptors")

    def _removed_files(self, process: int) -> str:
        return ", ".join(removed_files_of(process, self.base.path()))

    def report(self) -> str:
        looks = Counter(line["look"] for line in lines_of(self.base.journal("watcher")))
        most = {name: f"{memory >> 20} MiB, {files} descriptors" for name, (memory, files) in self.most.items()}
        return "\n".join(
            [f"seed {self.seed}, directory {self.base.directory}", *self.timeline]
            + [f"signals: {dict(self.signals)}", f"most: {most}", f"looks: {dict(looks)}"]
            + [f"{name}: {tally(self.base.journal(name))}" for name in (*PRODUCERS, *CONSUMERS)]
            + [f"FAULT {one}" for one in self.faults]
        )

    @property
    def kills(self) -> int:
        return sum(count for what, count in self.signals.items() if what.startswith("SIGKILL"))


def usage(process: int) -> tuple[int, int]:
    """Bytes of memory, and descriptors."""
    status = Path(f"/proc/{process}/status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(resident.split()[1]) << 10, len(os.listdir(f"/proc/{process}/fd"))


def free_ports(chosen: random.Random, count: int) -> list[int]:
    """Ports below those of clients: a client with the port of a dead server would connect to itself."""
    found: list[int] = []
    while len(found) < count:
        port = chosen.randint(12_000, 30_000)
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            found.append(port)
    return found


def prepare_environment() -> None:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    make_java_available()
