"""A master and a follower in processes of their own, what the master has acknowledged, and what both must have."""

from __future__ import annotations

import random
import secrets
import shutil
import socket
import time
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from commitlog_store import MessageStore, MessageStoreConfig, StoreReader
from tests.crash_kill.replication_master import QUEUES, SMALL, TOPIC, body_of
from tests.store.follower.mirrors import log_bytes
from tests.support.clean_store import assert_clean
from tests.support.forked_programs import ForkedProgram
from tests.support.waiting import WAIT_LIMIT_S

# A look compares what came since the one before, and so much before that.
_COMPARED_AGAIN = 64 << 10


class Acknowledged(NamedTuple):
    """A line of the master: messages of a round from ``first`` on, and where its log ended then."""

    both: bool
    round: int
    first: int
    messages: int
    end: int


class Pair:
    """Both processes; each is started where it is not running, and killed, by the test. A context manager.

    ``master`` and ``mirror`` are the directories.
    """

    def __init__(self, root: Path, role: str, seed: int) -> None:
        self.chance = random.Random(seed)
        self.master, self.mirror = root / "0", root / "1"
        self.acknowledged: list[Acknowledged] = []
        self.kills = 0
        self._role = role
        self._address = f"127.0.0.1:{_free_port()}"
        self._masters = ForkedProgram("tests.crash_kill.replication_master")
        self._followers = ForkedProgram("tests.crash_kill.replication_follower")
        self._round = 0
        # The newest end of the mirror that the follower said, in its life and before.
        self._mirror_end = 0
        self._compared = 0

    @property
    def safe_end(self) -> int:
        """Where the log ended after the last put that both have acknowledged."""
        return max((one.end for one in self.acknowledged if one.both), default=0)

    def start_master(self) -> None:
        if not self._masters.child:
            self._round += 1
            self._masters.start(self._role, self._address, self._round, self.master)

    def start_follower(self) -> None:
        if not self._followers.child:
            self._followers.start(self._address, self.mirror, 0)

    def run(self, puts: int, seconds: float, *, both: bool = False) -> None:
        """Wait until the master has acknowledged so many puts (``both``: with the follower), and then so long."""
        limit = time.monotonic() + WAIT_LIMIT_S
        while puts > 0:
            puts -= self._note_master(self._masters.line(), both=both)
            assert time.monotonic() < limit, f"the follower acknowledges nothing: {self._followers.errors()}"
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._note_master(self._masters.line(left))

    def kill_master(self) -> None:
        if self._masters.child:
            self.kills += 1
            for line in self._masters.kill():
                self._note_master(line)

    def kill_follower(self) -> None:
        if self._followers.child:
            self.kills += 1
            for line in self._followers.kill():
                self._note_follower(line)

    def kill_follower_while_it_opens(self) -> None:
        """Sometimes: at any time between its start and its first messages."""
        if self.chance.random() < 0.3:
            self.start_follower()
            time.sleep(self.chance.random() * 0.05)
            self.kill_follower()

    def look(self) -> None:
        """After a kill and a restart: the mirror has what both have acknowledged, and the master's bytes only."""
        safe_end = self.safe_end
        self.start_master()
        self.start_follower()
        while self._mirror_end < safe_end or not self._mirror_end:
            self._note_follower(self._followers.line())
            self._drain_master()
        start, end = max(self._compared - _COMPARED_AGAIN, 0), self._mirror_end
        assert log_bytes(self.mirror, start, end) == log_bytes(self.master, start, end), "byte-identical"
        self._compared = end

    def follower_opens(self) -> int:
        """Start the follower, and return where its mirror ends, before it has received anything."""
        self.start_follower()
        while not (line := self._followers.line() or "").startswith("open"):
            self._note_follower(line)
        self._mirror_end = int(line.split()[1])
        return self._mirror_end

    def lose_mirror(self) -> None:
        """Kill the follower, and throw its directory away."""
        self.kill_follower()
        shutil.rmtree(self.mirror)
        self._mirror_end = self._compared = 0

    def lose_master(self) -> None:
        """Kill the master, throw its directory away, and end the follower: only its mirror is left."""
        self.kill_master()
        shutil.rmtree(self.master)
        self.kill_follower()
        # What the master alone had is lost, as it was said to be.
        self.acknowledged = [one for one in self.acknowledged if one.both]

    def promoted(self) -> None:
        """The mirror is the master from now on, and the next mirror is a new one."""
        self.master, self.mirror = self.mirror, self.mirror.with_name(str(int(self.mirror.name) + 1))
        self._mirror_end = self._compared = 0

    def end(self) -> None:
        """Let the follower catch up with the master's log, byte for byte, and end both."""
        self.start_master()
        self.start_follower()
        self.run(1, 0)
        self.kill_master()
        end = max(one.end for one in self.acknowledged)
        self.start_master()
        while self._mirror_end < end:
            self._note_follower(self._followers.line())
            self._drain_master()
        self.kill_master()
        self.kill_follower()
        assert log_bytes(self.mirror, 0, self._mirror_end) == log_bytes(self.master, 0, self._mirror_end)
        self.acknowledged = [one for one in self.acknowledged if one.both or one.end <= end]

    def _drain_master(self) -> None:
        while self._masters.child and (line := self._masters.line(0)) is not None:
            self._note_master(line)

    def _note_master(self, line: str | None, *, both: bool = False) -> int:
        """Take a line in; 1 for a put that was acknowledged, by both if they are meant."""
        words = (line or "").split()
        if len(words) != 5:
            return 0  # "open", or a line within which it was killed
        where, *numbers = words
        self.acknowledged.append(Acknowledged(where == "both", *map(int, numbers)))
        return int(where == "both" or not both)

    def _note_follower(self, line: str | None) -> None:
        words = (line or "").split()
        if words and words[-1].isdigit():
            self._mirror_end = max(self._mirror_end, int(words[-1]))

    def __enter__(self) -> Pair:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._masters.__exit__(kind, error, trace)
        finally:
            self._followers.__exit__(kind, error, trace)


def assert_has(store: Path, acknowledged: list[Acknowledged]) -> None:
    """Each message once, in its round's order and in its queue, those that were acknowledged, and batches whole."""
    with MessageStore.open(store, MessageStoreConfig.from_mapping(SMALL | {"broker_role": "SLAVE"})) as opened:
        opened.dispatch()
    assert_clean(store)
    found: dict[tuple[int, int], bytes] = {}
    with StoreReader.open(store) as reader:
        for queue_id in reader.queue_ids(TOPIC):
            rows = [
                row
                for rows in reader.read(TOPIC, queue_id, 0, columns=["queueOffset", "body"], verify_crc=True)
                for row in rows.to_pylist()
            ]
            assert [row["queueOffset"] for row in rows] == list(range(len(rows))), "contiguous"
            names = [tuple(map(int, row["body"].split(b":")[:2])) for row in rows]
            assert names == sorted(set(names)), "each once, in their order"
            assert all(number % QUEUES == queue_id for _, number in names)
            found |= {(name[0], name[1]): row["body"] for name, row in zip(names, rows, strict=True)}
    for (round_, number), body in found.items():
        first, count = map(int, body.split(b":")[2:4])
        assert body == body_of(round_, number, (first, count))
        assert all((round_, other) in found for other in range(first, first + count)), "batches are whole"
    for one in acknowledged:
        missing = [number for number in range(one.first, one.first + one.messages) if (one.round, number) not in found]
        assert not missing, f"{one} lacks {missing}"


def _free_port() -> int:
    """A port that no system gives to a connection of its own, so that it is free again after each kill."""
    while True:
        # At random even where others run from the same seed.
        port = 15_000 + secrets.randbelow(15_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
