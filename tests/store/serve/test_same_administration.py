"""Every command that administers a store, with a directory and with the address of a server that owns a copy of it.

Both are to print the same, refuse the same in the same words and with the same exit code, and leave the same.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from commitlog_store import Message, MessageStore, RemoteStore, StoreReader, connect
from commitlog_store.config import BrokerRole
from commitlog_store.errors import InvalidValue, PutRefused, RemoteAccessRefused
from commitlog_store.serve.tokens import Role, new_token
from tests.store.cli.commands import ended, plain
from tests.store.consumers.test_redrive import give_up
from tests.store.retention.small_stores import SMALL, Clock, fill, log_bases, store_clock
from tests.store.serve.servers import served


class Pair(NamedTuple):
    """The directory of a store, and the address and the directory of a copy that is served."""

    near: str
    url: str
    far: str
    half: list[str]
    served: MessageStore

    def outcomes(self, command: list[str]) -> list[tuple[int, str, str]]:
        """Exit code, output and errors of a command, with PATH for each place."""
        found = []
        for place in (self.near, self.url):
            done = ended(*(place if word == "PATH" else word.format(*self.half) for word in command))
            shown, said = (
                text.replace(self.url, "PATH").replace(self.far, "PATH").replace(self.near, "PATH")
                for text in (done.stdout, plain(done.stderr))
            )
            found.append((done.returncode, shown, said))
        return found

    def states(self) -> list[Any]:
        self.served.dispatch()
        return [_state(place) for place in (self.near, self.far)]


def _state(path: str) -> Any:
    with StoreReader.open(path) as reader:
        topics = {topic: reader.queues(topic) for topic in reader.topics()}
        positions = {group: reader.group_offsets(group) for group in ("billing", "audit")}
        committed = [(one.batch, one.rows) for one in reader.batches()]
        return (
            topics,
            positions,
            reader.topic_settings(),
            reader.pending_half_messages(),
            committed,
            log_bases(Path(path)),
        )


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    place = tmp_path_factory.mktemp("pair")
    with store_clock(Clock()):
        with MessageStore.open(place / "near", SMALL) as store:
            fill(store, 60)
            give_up(store, b"dead", b"too", topic="bills")
            store.create_topic("idle", 2)
            store.commit_group_offsets("audit", {("orders", 0): 5})
            half = [
                str(store.half_messages.prepare(Message(topic="orders", body=body, queue_id=1), "payments"))
                for body in (b"kept", b"dropped")
            ]
            with store.transaction("loader", 7) as batch:
                batch.put_messages([{"topic": "audit", "body": b"a", "queueId": 0}])
        shutil.copytree(place / "near", place / "far")
        with MessageStore.open(place / "far", SMALL) as far, served(owned=far) as url:
            yield Pair(str(place / "near"), url, far.path, half, far)


# In this order, on the same pair; {0} and {1} are the handles of half messages.
COMMANDS = (
    ["topics", "create", "PATH", "new", "--queues", "3"],
    ["topics", "create", "PATH", "new", "--queues", "5"],
    ["topics", "create", "PATH", "new", "--queues", "3", "--perm", "4"],
    ["topics", "create", "PATH", "closed", "--queues", "1", "--perm", "2"],
    *(["topics", "create", "PATH", one, "--queues", "2"] for one in ("TBW102", "SCHEDULE_TOPIC_XXXX", "rmq_sys_own")),
    ["topics", "create", "PATH", "RMQ_SYS_COMMITLOG_BATCHES", "--queues", "2"],
    ["topics", "create", "PATH", "no topic", "--queues", "2"],
    ["topics", "create", "PATH", "n" * 128, "--queues", "2"],
    ["topics", "create", "PATH", "%RETRY%billing", "--queues", "1"],
    ["groups", "reset", "PATH", "audit", "--to", "latest"],
    ["groups", "reset", "PATH", "audit", "--to", "latest", "--yes"],
    ["groups", "reset", "PATH", "audit", "--to", "3", "--topic", "orders", "--yes"],
    ["groups", "reset", "PATH", "unknown", "--to", "latest", "--yes"],
    ["groups", "reset", "PATH", "no group", "--to", "latest", "--yes", "--topic", "orders"],
    ["dlq", "redrive", "PATH", "billing", "-n", "1"],
    ["dlq", "redrive", "PATH", "billing", "-n", "1", "--yes"],
    ["dlq", "redrive", "PATH", "billing", "--to", "topic", "--yes"],
    ["dlq", "redrive", "PATH", "billing", "--yes"],
    ["dlq", "redrive", "PATH", "audit", "--yes"],
    ["dlq", "redrive", "PATH", "no group", "--yes"],
    ["half", "commit", "PATH", "{0}"],
    ["half", "commit", "PATH", "{0}"],
    ["half", "rollback", "PATH", "{1}"],
    ["half", "rollback", "PATH", "{1}", "--yes"],
    ["half", "rollback", "PATH", "{1}", "--yes"],
    ["half", "commit", "PATH", "no handle"],
    ["half", "commit", "PATH", "0:0:payments:00"],
    ["half", "rollback", "PATH", "0:0:payments:00", "--yes"],
    ["half", "resume", "PATH", "0000"],
    ["half", "resume", "PATH", "7F00000100002A9F0000000000000000"],
    ["txn", "reset", "PATH", "loader"],
    ["txn", "reset", "PATH", "loader", "--yes"],
    ["txn", "reset", "PATH", "loader", "--yes"],
    ["txn", "reset", "PATH", "unknown", "--yes"],
    ["topics", "rm", "PATH", "orders", "--yes"],
    ["topics", "rm", "PATH", "idle"],
    ["topics", "rm", "PATH", "idle", "--yes"],
    ["topics", "rm", "PATH", "idle", "--yes"],
    ["topics", "rm", "PATH", "SCHEDULE_TOPIC_XXXX", "--yes"],
    ["topics", "rm", "PATH", "RMQ_SYS_TRANS_HALF_TOPIC", "--with-messages", "--yes"],
    ["topics", "rm", "PATH", "audit", "--with-messages", "--yes"],
    ["topics", "rm", "PATH", "--unused", "--yes"],
    ["clean", "PATH", "--older-than", "72h", "--keep-for", "nobody", "--yes"],
    ["clean", "PATH", "--older-than", "72h"],
    ["clean", "PATH", "--max-bytes", "40K", "--yes", "--json"],
    ["clean", "PATH", "--older-than", "72h", "--yes"],
    ["topics", "rm", "PATH", "--expired", "--yes"],
)


def test_commands_do_and_refuse_at_an_address_what_they_do_with_the_directory(pair: Pair) -> None:
    assert {" ".join(one[:2]) if one[1] != "PATH" else one[0] for one in COMMANDS} == {
        "topics create", "topics rm", "groups reset", "dlq redrive", "half commit", "half rollback", "half resume",
        "txn reset", "clean",
    }  # fmt: skip
    changed = 0
    before = pair.states()
    assert before[0] == before[1]
    for command in COMMANDS:
        near, far = pair.outcomes(command)
        assert far == near, command
        assert far[0] in (0, 1, 2), far
        now = pair.states()
        assert now[0] == now[1], command
        changed += now != before
        before = now
    assert changed >= 15


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.create_topic("new", 1),
        lambda store: store.delete_topic("orders", with_messages=True),
        lambda store: store.clean_unused_topics([]),
        lambda store: store.forget_batches("loader"),
    ],
    ids=["create_topic", "delete_topic", "clean_unused_topics", "forget_batches"],
)
def test_a_replica_is_administered_by_its_master(tmp_path: Path, call: Callable[[Any], object]) -> None:
    config = replace(SMALL, broker_role=BrokerRole.SLAVE)
    with MessageStore.open(tmp_path / "store", config) as store, served(owned=store) as url, connect(url) as remote:
        stores: tuple[MessageStore | RemoteStore, ...] = store, remote
        for one in stores:
            with pytest.raises(PutRefused, match="The store is a replica"):
                call(one)


def test_a_topic_is_closed_by_an_admin(tmp_path: Path) -> None:
    """Who may write may create one; who may take it from others has the role admin."""
    tokens = tmp_path / "tokens.jsonl"
    writer, admin = (new_token(str(tokens), role.name, role) for role in (Role.WRITE, Role.ADMIN))
    with MessageStore.open(tmp_path / "store", SMALL) as store, served(owned=store, tokens=str(tokens)) as url:
        with connect(url, token=writer) as remote:
            remote.create_topic("orders", 2)
            with pytest.raises(RemoteAccessRefused, match="create_topic_with_perm administers the store"):
                remote.create_topic("orders", 2, perm=4)
        with connect(url, token=admin) as remote:
            with pytest.raises(InvalidValue, match="not 8: 'orders'"):
                remote.create_topic("orders", 2, perm=8)
            remote.create_topic("orders", 2, perm=4)
            with pytest.raises(PutRefused, match="closed for producers"):
                remote.put("orders", b"x")
