"""A store at a server takes what an open store takes: the same calls, results, statuses and errors."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import platform
import signal
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from commitlog_store import Message, MessageExtBrokerInner, MessageStore, RemoteStore, StoreReader, connect
from commitlog_store.columnar.columns import ALL_COLUMNS
from commitlog_store.errors import (
    CommitLogError,
    InvalidValue,
    NestedCall,
    PutNotConfirmed,
    PutRefused,
    RemoteAccessRefused,
    StoreClosed,
    StoreForked,
)
from commitlog_store.remote import put_wire
from commitlog_store.serve.listen import TlsFiles
from commitlog_store.serve.tokens import Role, new_token
from tests.store.follower.certificates import make_certificate
from tests.store.serve.servers import ServeProcess, served, shorten_waits
from tests.support.programs import run_program
from tests.support.tcp_proxy import TcpProxy

NOW = 1_700_000_000_000


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[MessageStore, RemoteStore]]:
    """A store of its directory, and another one through a server."""
    with (
        MessageStore.open(tmp_path / "local") as local,
        MessageStore.open(tmp_path / "served") as owned,
        served(owned=owned) as url,
        connect(url) as remote,
    ):
        yield local, remote


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[TcpProxy]:
    """A proxy of a server in a process of its own."""
    with ServeProcess(tmp_path / "store") as server, TcpProxy(int(server.url.rpartition(":")[2])) as proxy:
        yield proxy


def _said(store: MessageStore | RemoteStore, call: str, *given: Any, **named: Any) -> Any:
    """The result without its times, or the error with its fields."""
    try:
        found = getattr(store, call)(*given, **named)
    except CommitLogError as error:
        return type(error), str(error), {name: str(value) for name, value in vars(error).items()}
    if hasattr(found, "rows"):
        rows = [{**row, "storeTimestamp": row["storeTimestamp"] > 0} for row in found.rows.to_pylist()]
        return found.status, found.reason, found.message_num, rows
    return found._replace(store_timestamp=0)


def _message(**fields: Any) -> Message:
    given: dict[str, Any] = {"topic": "orders", "body": b"x", "born_timestamp": NOW} | fields
    return Message(**given)


MESSAGES: dict[str, Any] = {
    "plain": _message(),
    "all fields": _message(
        tags="paid", keys=["k1", "k2"], queue_id=3, flag=7, properties={"a": "ä"}, sharding_key="s", delay_level=2
    ),
    "buffer": _message(body=bytearray(b"xyz")),
    "topic that cannot be": _message(topic="a b"),
    "topic of RocketMQ": _message(topic="SCHEDULE_TOPIC_XXXX"),
    "large body": _message(body=bytes(5 << 20)),
    "larger than a question": _message(body=bytes(17 << 20)),
    "body is text": _message(body="x"),
    "keys is text": _message(keys="k1"),
    "queue id is text": _message(queue_id="1"),
    "queue id": _message(queue_id=-1),
    "queue id of many bits": _message(queue_id=2**70),
    "flag of many bits": _message(flag=2**40),
    "born at no time": _message(born_timestamp=2**62),
    "delay level": _message(delay_level=99),
    "text that UTF-8 has not": _message(tags="\ud800"),
    "property of the store": _message(properties={"REAL_TOPIC": "x"}),
    "large properties": _message(properties={"a": "x" * 40_000}),
    "no message": b"x",
    "broker's": MessageExtBrokerInner(
        topic="orders", body=b"x", born_timestamp=NOW, reconsume_times=3, born_host="10.0.0.1:5", queue_id=2
    ),
    "broker's, wrong": MessageExtBrokerInner(topic="orders", body=b"x", born_host=5),  # type: ignore[arg-type]
}


# In words of their own, too.
REFUSED_BEFORE_THEY_ARE_SENT = {"larger than a question", "queue id of many bits", "text that UTF-8 has not"}


@pytest.mark.parametrize("name", MESSAGES)
def test_single_messages(both: tuple[MessageStore, RemoteStore], name: str) -> None:
    local, remote = both
    message = MESSAGES[name]
    if name in REFUSED_BEFORE_THEY_ARE_SENT:
        assert remote.put_message(message).status is local.put_message(message).status
        return
    assert _said(remote, "put_message", message) == _said(local, "put_message", message)
    assert _said(remote, "put_message_batch", [message]) == _said(local, "put_message_batch", [message])
    outcomes = [[str(one)[:60] for one in store.put_together([message, _message()])] for store in both]
    assert [one[:40] for one in outcomes[1]] == [one[:40] for one in outcomes[0]]


def test_the_messages_are_the_same(both: tuple[MessageStore, RemoteStore]) -> None:
    for store in both:
        for message in MESSAGES.values():
            with contextlib.suppress(InvalidValue):
                store.put_message(message)
        store.dispatch()
    columns = [one for one in ALL_COLUMNS if not one.startswith("store") and "hysical" not in one and one != "msgId"]
    tables = []
    for store in both:
        with store.reader() as reader:
            tables.append(reader.scan("*", columns=columns).read_all())
    assert tables[0] == tables[1]
    assert tables[0].num_rows == 3


TABLES: dict[str, Any] = {
    "table": pa.table({"topic": ["orders", "audit", "orders"], "body": [b"1", b"2", b"3"], "tags": ["a", None, "b"]}),
    "rows that no store takes": [{"topic": "a b" if n % 2 else "orders", "body": b"%d" % n} for n in range(7)],
    "messages": [_message(), _message(keys=["k"])],
    "no rows": pa.table({"topic": pa.array([], pa.string()), "body": pa.array([], pa.binary())}),
    "dictionary": pa.table({"topic": pa.array(["orders"] * 9).dictionary_encode(), "body": [b"x"] * 9}),
    "views": pa.table({"topic": pa.array(["orders"], pa.string_view()), "body": pa.array([b"x"], pa.binary_view())}),
    "record batch": pa.record_batch({"topic": ["orders"], "body": [b"x"]}),
    "one-shot stream": lambda: pa.RecordBatchReader.from_batches(
        pa.schema({"topic": pa.string(), "body": pa.binary()}),
        [pa.record_batch({"topic": ["orders"], "body": [b"x"]})] * 3,
    ),
    "wrong column": pa.table({"topic": ["orders"], "body": [b"x"], "nonsense": [1]}),
    "no body": pa.table({"topic": ["orders"]}),
    "text": "x",
}


@pytest.mark.parametrize("name", TABLES)
def test_tables(both: tuple[MessageStore, RemoteStore], name: str) -> None:
    local, remote = both
    given = [table() if callable(table := TABLES[name]) else table for _ in both]
    assert _said(remote, "put_messages", given[0]) == _said(local, "put_messages", given[1])


def test_tables_that_go_in_parts(both: tuple[MessageStore, RemoteStore], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(put_wire, "PART_ROWS", 10)
    local, remote = both
    rows = [{"topic": "a b" if n in (17, 31) else "orders", "body": b"%d" % n, "queueId": n % 3} for n in range(55)]
    assert _said(remote, "put_messages", rows) == _said(local, "put_messages", rows)
    assert "row 17" in remote.put_messages(rows).reason
    result = remote.put_messages(pa.table({"topic": ["orders"] * 3, "body": [b"x", bytes(17 << 20), b"z"]}))
    assert [status == "PUT_OK" for status in result.rows["status"].to_pylist()] == [True, False, True]
    local.set_writable(False)


def test_a_store_that_rejects_puts_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(put_wire, "PART_ROWS", 2)
    with MessageStore.open(tmp_path / "store") as owned, served(owned=owned) as url, connect(url) as remote:
        owned.set_writable(False)
        assert _said(remote, "put_message", _message()) == _said(owned, "put_message", _message())
        rows = [{"topic": "orders", "body": b"x"}] * 5
        assert _said(remote, "put_messages", rows) == _said(owned, "put_messages", rows)
        with pytest.raises(PutRefused, match="SERVICE_NOT_AVAILABLE"):
            remote.put("orders", b"x")


@pytest.mark.parametrize("name", [name for name in vars(RemoteStore) if hasattr(MessageStore, name)])
def test_signatures_are_those_of_an_open_store(name: str) -> None:
    theirs, ours = getattr(MessageStore, name), getattr(RemoteStore, name)
    if callable(ours) and name not in ("__init__", "__enter__"):
        given, expected = inspect.signature(ours).parameters, inspect.signature(theirs).parameters
        assert [str(one).partition(":")[0] for one in given.values()] == [
            str(one).partition(":")[0] for one in expected.values()
        ]
        assert [one.default for one in given.values()] == [one.default for one in expected.values()]


def test_put_takes_delays_of_the_servers_levels(both: tuple[MessageStore, RemoteStore]) -> None:
    for store in both:
        assert store.put("orders", b"x", delay=timedelta(seconds=10), keys="k").queue_id == 2
        with pytest.raises(InvalidValue, match="delay"):
            store.put("orders", b"x", delay=99)


def test_what_was_put_is_read(both: tuple[MessageStore, RemoteStore]) -> None:
    _, remote = both
    remote.create_topic("orders", 1)
    remote.put("orders", b"one")
    remote.dispatch()
    remote.flush()
    assert [one.body for one in remote.get_message("orders", 0, 0).messages] == [b"one"]
    timer = threading.Timer(0.2, lambda: remote.put("orders", b"two"))
    timer.start()
    assert [one.body for one in remote.get_message("orders", 0, 1, wait_s=60).messages] == [b"two"]
    assert remote.wait_for_messages("orders", 0, 1, 60)
    assert not remote.wait_for_messages("orders", 0, 2, 0.01)
    assert remote.batches() == []
    timer.join()


def test_more_messages_than_a_question_holds_are_put_together(both: tuple[MessageStore, RemoteStore]) -> None:
    messages = [Message(topic="orders", body=b"%02d" % number * (1 << 20), queue_id=0) for number in range(12)]
    messages.insert(7, Message(topic="a b", body=b"refused"))
    said = [[one.status.name for one in store.put_together(messages)] for store in both]  # type: ignore[union-attr]
    assert said[0] == said[1] == ["PUT_OK"] * 7 + ["MESSAGE_ILLEGAL"] + ["PUT_OK"] * 5
    assert both[1].put_together([]) == both[0].put_together([]) == []


def test_tasks_put_together(both: tuple[MessageStore, RemoteStore]) -> None:
    _, remote = both

    async def put_all() -> list[Any]:
        puts = [remote.aput("a b" if n == 7 else "orders", b"%d" % n, queue_id=0) for n in range(300)]
        puts.insert(9, remote.aput("orders", "text"))  # type: ignore[arg-type]
        table = remote.aput_messages(pa.table({"topic": ["orders"], "body": [b"x"]}))
        return list(await asyncio.gather(*puts, table, return_exceptions=True))

    *results, table = asyncio.run(put_all())
    assert isinstance(results.pop(9), InvalidValue)
    assert isinstance(results.pop(7), PutRefused)
    assert table.ok
    offsets = [one.queue_offset for one in results]
    assert offsets == sorted(set(offsets))


def test_a_token_that_may_only_read_puts_nothing(tmp_path: Path) -> None:
    tokens = str(tmp_path / "tokens")
    reads, writes = (new_token(tokens, role.name, role) for role in (Role.READ, Role.WRITE))
    with MessageStore.open(tmp_path / "store") as owned, served(owned=owned, tokens=tokens) as url:
        with pytest.raises(RemoteAccessRefused, match="may read only"):
            connect(url, token=reads)
        with connect(url, token=writes) as remote:
            assert remote.put("orders", b"x").ok
            assert writes not in repr(remote) + str(vars(remote))


def test_puts_through_tls(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    tls = TlsFiles(certificate=str(certificate), key=str(key))
    with (
        MessageStore.open(tmp_path / "store") as owned,
        served(owned=owned, tls=tls) as url,
        connect(url, tls_root_certificates=certificate.read_bytes()) as remote,
    ):
        assert remote.put("orders", b"x").ok


def test_a_server_that_only_shows_its_store_takes_no_puts(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store"):
        pass
    with served(tmp_path / "store") as url, pytest.raises(InvalidValue, match="shows its stores read only"):
        connect(url)


def test_a_closed_connection_takes_no_puts(both: tuple[MessageStore, RemoteStore]) -> None:
    _, remote = both
    remote.put("orders", b"x")
    remote.close()
    remote.close()
    for put in (lambda: remote.put("orders", b"x"), lambda: asyncio.run(remote.aput("orders", b"x")), remote.reader):
        with pytest.raises(StoreClosed):
            put()


def test_a_forked_child_is_refused_by_name(both: tuple[MessageStore, RemoteStore]) -> None:
    _, remote = both
    remote.put("orders", b"x")
    pid = os.fork()
    if pid == 0:
        try:
            remote.put("orders", b"y")
        except StoreForked:
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert remote.put("orders", b"z").ok


def test_a_put_that_waits_ends_with_ctrl_c(proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_waits(monkeypatch)
    with connect(proxy.url, rpc_timeout_s=100) as remote:
        proxy.lose_answers = True
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        begun = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            remote.put("orders", b"x")
        assert time.monotonic() - begun < 50
        timer.join()
        proxy.lose_answers = False
        proxy.cut()
        assert remote.put("orders", b"y").queue_offset >= 0


def test_a_signal_handler_within_a_put_is_refused(proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_waits(monkeypatch)
    with connect(proxy.url, rpc_timeout_s=1.5) as remote:
        refused: list[BaseException] = []

        def put(*_: object) -> None:
            try:
                remote.put("orders", b"nested")
            except NestedCall as error:
                refused.append(error)

        before = signal.signal(signal.SIGUSR1, put)
        try:
            proxy.lose_answers = True
            timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1))
            timer.start()
            with pytest.raises(PutNotConfirmed):
                remote.put("orders", b"x")
            timer.join()
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert len(refused) == 1


def test_what_is_no_table_is_refused_by_the_server(both: tuple[MessageStore, RemoteStore]) -> None:
    _, remote = both
    for data in (b"", b"nonsense" * 100, put_wire.encode_rows(pa.table({"topic": ["orders"], "body": [b"x"]}))[:200]):
        with remote._sessions.session() as session, pytest.raises(InvalidValue, match="not an Arrow IPC stream"):
            session.once("put_messages", data, None, 0, False)
    with StoreReader.open(remote.path) as reader:
        assert reader.topics() == []


# Puts tables of 8 MiB at the address that it is given, and prints the page faults of a put after the first ones.
_FAULTS_OF_PUTS = """
import resource, sys
import pyarrow as pa
from commitlog_store import connect

table = pa.table({"body": [b"x" * 1024] * 8_000})
with connect(sys.argv[1]) as store:
    for turn in range(10):
        if turn == 5:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        store.put_messages(table, topic="orders").raise_for_status()
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 5)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have rules of their own")
def test_large_puts_use_the_memory_of_those_before(both: tuple[MessageStore, RemoteStore]) -> None:
    ran = run_program("-c", _FAULTS_OF_PUTS, both[1].path, timeout=60)
    # 8 MiB are 2,000 pages, and a put makes several copies of them.
    assert int(ran.stdout) < 500, ran.stderr
