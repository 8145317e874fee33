"""RocketMQ and MessageStore write to one store in turn, each closing it or being killed, as a seed decides."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.interop.acknowledged import Acknowledged, acknowledged, assert_holds, names_of
from tests.interop.agreement import agree_on_closed, agree_on_crashed
from tests.interop.command_process import Json
from tests.interop.comparison import Answers
from tests.interop.conftest import OpenMessageStore
from tests.interop.operations import NAME, Operations
from tests.interop.rocketmq import RocketMq
from tests.interop.store_process import StoreProcess

FLUSHES: dict[str, dict[str, object]] = {
    "sync": {"flush_disk_type": "SYNC_FLUSH"},
    "async": {"flush_disk_type": "ASYNC_FLUSH"},
    "pool": {"transient_store_pool_enable": True, "transient_store_pool_size": 3},
}


class Turn(NamedTuple):
    """Who writes how, and after how many replies it is killed; None: it closes the store."""

    writer: str
    flush: str
    killed_after: int | None


@dataclass
class Turns:
    """A store, and what must be in it."""

    path: Path
    rocketmq: RocketMq
    open_message_store: OpenMessageStore
    seed: int
    names: list[str] = field(default_factory=list, init=False)
    """Of all messages, in the order in which they were put."""
    acknowledged: list[Acknowledged] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._taken = 0
        self.settings: dict[str, object] = {
            "mapped_file_size_commit_log": self._chance.choice([128 << 10, 256 << 10, 1 << 20]),
            "mapped_file_size_consume_queue": self._chance.choice([37, 300, 2_000]) * 20,
            "max_hash_slot_num": 100,
            # No fewer: RocketMQ names index files by the millisecond, and two that it makes within one are one file.
            "max_index_num": self._chance.choice([400, 1_000, 4_000]),
        }

    def random_turn(self) -> Turn:
        chance = self._chance
        killed_after = chance.randrange(60) if chance.randrange(5) < 2 else None
        return Turn(chance.choice(["RocketMQ", "MessageStore"]), chance.choice(list(FLUSHES)), killed_after)

    def take(self, turn: Turn) -> None:
        """One writes; then both look, and see the same, which is what was acknowledged."""
        self._taken += 1
        sent: list[str] = []
        put = self._write(turn, sent)
        if (self.path / "abort").exists():
            answers = agree_on_crashed(self.path, self.rocketmq, self.settings)
        else:
            assert turn.killed_after is None
            answers = agree_on_closed(self.path, self.rocketmq, self.settings)
        self._check(turn, answers, sent, put)

    def _write(self, turn: Turn, sent: list[str]) -> list[Acknowledged]:
        """What was acknowledged; the names of all messages that were put go to ``sent``."""
        opens = self.rocketmq.open if turn.writer == "RocketMQ" else self.open_message_store
        with opens(self.path, self.settings | FLUSHES[turn.flush]) as process:
            operations = self._operations(turn)
            if turn.killed_after is None:
                pairs = process.put_all(_noted(operations.take(self._chance.choice([1, 20, 120])), sent))
                put = [one for pair in pairs for one in acknowledged(*pair)]
                process.close()
                return put
            return _put_until_killed(process, _noted(operations.endless(), sent), turn.killed_after)

    def _operations(self, turn: Turn) -> Operations:
        ours = turn.writer == "MessageStore"
        return Operations(
            f"{self._taken}-{turn.writer}",
            seed=self._chance.randrange(1 << 30),
            long_topics=self.rocketmq.is_five,
            tables=ours,
            # RocketMQ's recovery knows nothing of a transaction that is half written: docs/durability.md.
            transactions=ours and turn.killed_after is None,
        )

    def _check(self, turn: Turn, answers: Answers, sent: list[str], put: list[Acknowledged]) -> None:
        found = names_of(answers.messages)
        before = len(self.names)
        assert found[:before] == self.names, "what earlier turns wrote is still there, in order"
        new = found[before:]
        assert new == sent[: len(new)], "what is new was put in this turn, in order, and begins with the first"
        if turn.killed_after is None:
            assert new == sent, "everything that was put is there"
        if turn.flush == "pool" and turn.killed_after is not None:
            # What the pool has not committed is lost with its process, acknowledged or not.
            put = [one for one in put if one.name in set(new)]
        self.names = found
        self.acknowledged += put
        assert_holds(answers.messages, self.acknowledged)


def _noted(operations: Iterable[Json], names: list[str]) -> Iterator[Json]:
    for operation in operations:
        names.extend(message["properties"][NAME] for message in operation["messages"])
        yield operation


def _put_until_killed(process: StoreProcess, operations: Iterator[Json], replies: int) -> list[Acknowledged]:
    """Killed while further puts are under way; those that are acknowledged by then count."""
    put: list[Acknowledged] = []
    if replies == 0:
        process.kill()
        return put
    for number, pair in enumerate(process.put_all(operations), start=1):
        put += acknowledged(*pair)
        if number == replies:
            process.kill()
    return put
