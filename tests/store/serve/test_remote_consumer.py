"""Consumers of one group in different clients share its queues, lose nothing, and count once with a transaction."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from commitlog_store import MessageStore, RemoteStore, StoreReader, connect
from commitlog_store.errors import (
    CommitLogError,
    ConsumerClosed,
    InvalidValue,
    PutNotConfirmed,
    RemoteFailed,
    TransactionEnded,
)
from commitlog_store.remote.connection import Connection
from commitlog_store.remote.consumer import RemoteConsumer
from commitlog_store.remote.session import CLOSE_SECONDS, Session
from commitlog_store.serve import consumer_calls, sessions
from tests.store.serve.servers import ServeProcess, served, shorten_waits
from tests.support import quick_programs
from tests.support.programs import child_environment
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import WAIT_LIMIT_S, wait_for

COUNT = 400


def _fill(store: MessageStore, count: int = COUNT) -> None:
    store.create_topic("orders", 4)
    tags = ["even", "odd"] * (count // 2)
    bodies = [b"%d" % number for number in range(count)]
    store.put_messages(pa.table({"topic": ["orders"] * count, "body": bodies, "tags": tags})).raise_for_status()
    store.dispatch()


@pytest.fixture
def owned(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store") as store:
        _fill(store)
        yield store


@pytest.fixture
def url(owned: MessageStore) -> Iterator[str]:
    with served(owned=owned) as url:
        yield url


@pytest.fixture
def remote(url: str) -> Iterator[RemoteStore]:
    with connect(url) as remote:
        yield remote


def _poll_all(consumer: RemoteConsumer, *, ack: bool = True) -> list[bytes]:
    found = []
    while messages := consumer.poll(50):
        for message in messages:
            found.append(message.body)
            if ack:
                consumer.ack(message)
    return found


def test_what_was_acknowledged_is_not_polled_again(remote: RemoteStore) -> None:
    with remote.consumer("billing", "orders", tags="even") as consumer:
        found = _poll_all(consumer)
        assert sorted(found, key=int) == [b"%d" % number for number in range(0, COUNT, 2)]
        assert "open" in repr(consumer)
    with remote.consumer("billing", "orders", tags="even") as consumer:
        assert consumer.poll(1) == []
    with pytest.raises(ConsumerClosed):
        consumer.poll()


def test_batches_commits_and_places(remote: RemoteStore) -> None:
    with remote.consumer("billing", "orders") as consumer:
        batch = consumer.poll_batch(10, columns=["queueId", "queueOffset"])
        assert batch is not None
        assert batch.schema.names == ["queueId", "queueOffset"]
        queue = ("orders", batch["queueId"][0].as_py())
        assert consumer.positions()[queue] == 10
        consumer.rewind()
        assert consumer.positions()[queue] == 0
        consumer.seek(*queue, 90)
        assert consumer.poll_batch(100) is not None
        consumer.commit(sync=True)
        with pytest.raises(InvalidValue, match="does not read queue"):
            consumer.seek("orders", 7, 0)
        with pytest.raises(InvalidValue, match="takes one message"):
            consumer.ack([])  # type: ignore[arg-type]
        while consumer.poll_batch(1000) is not None:
            pass
        assert consumer.poll_batch() is None
        retried = remote.get_message("orders", 0, 0, 1).messages[0]
        consumer.retry(retried, "1s")
        assert consumer.poll(1, 60)[0].original_topic == "orders"


def test_errors_are_those_of_an_open_store(owned: MessageStore, remote: RemoteStore) -> None:
    for store in (owned, remote):
        for group, topics, named, said in (
            ("a b", "orders", {}, "group"),
            ("billing", [], {}, "at least one topic"),
            ("billing", 5, {}, "a list of names"),
            ("billing", "orders", {"consume_from": "sometime"}, "consume_from is"),
            ("billing", "orders", {"consume_from": None}, "consume_from is"),
            ("billing", "orders", {"filter": "a >"}, "expected"),
        ):
            with pytest.raises(InvalidValue, match=said):
                store.consumer(group, topics, **named)  # type: ignore[arg-type]


def test_the_consumers_of_a_group_share_its_queues_wherever_they_are(
    owned: MessageStore, url: str, remote: RemoteStore
) -> None:
    with connect(url) as other, remote.consumer("billing", "orders") as first:
        assert len(first.positions()) == 4
        with other.consumer("billing", "orders") as second:
            assert len(first.positions()) == len(second.positions()) == 2
            assert len(_poll_all(second)) == COUNT // 2
            with owned.consumer("billing", "orders") as third:
                first.positions()
                assert len(third.positions()) == 1
        assert len(first.positions()) == 4
        assert len(_poll_all(first)) == COUNT // 2


_PROGRAM = """
import sys
from commitlog_store import connect

with connect(sys.argv[1]) as store, store.consumer("billing", "orders") as consumer:
    print("joined", len(consumer.positions()), flush=True)
    sys.stdin.readline()
    while messages := consumer.poll(20, 1):
        for message in messages:
            print(message.body.decode())
            consumer.ack(message)
"""


def test_consumers_in_different_processes_get_each_message_once(url: str) -> None:
    with ExitStack() as stack:
        programs = []
        for _ in range(2):
            command = [sys.executable, "-c", _PROGRAM, url]
            program = quick_programs.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=child_environment()
            )
            stack.enter_context(program)
            stack.callback(program.kill)
            assert program.stdout is not None
            assert program.stdout.readline().startswith("joined")
            programs.append(program)
        for program in programs:
            assert program.stdin is not None
            program.stdin.write("go\n")
            program.stdin.flush()
        found = [program.communicate(timeout=WAIT_LIMIT_S)[0].split() for program in programs]
    assert all(len(bodies) > 0 for bodies in found)
    assert Counter(found[0] + found[1]) == Counter(str(number) for number in range(COUNT))


def test_a_consumer_that_calls_nothing_gives_its_queues_back(
    owned: MessageStore, url: str, remote: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (consumer_calls, sessions):
        monkeypatch.setattr(module, "LEASE_SECONDS", 0.5)
    with connect(url) as other, remote.consumer("billing", "orders") as first:
        with remote.transaction("invoices", 1) as done:
            first.poll_batch(10)
            first.commit(in_transaction=done)
        late = remote.transaction("invoices", 2)
        taken = first.poll(30)
        with other.consumer("billing", "orders") as second:
            wait_for(lambda: len(second.positions()) == 4)
            with pytest.raises(TransactionEnded, match="are not this consumer's any more"):
                first.commit(in_transaction=late)
            with pytest.raises(TransactionEnded), late:
                pass
            first.ack(taken[0])
            wait_for(lambda: len(first.positions()) == 2)
            found = _poll_all(second)
            found += _poll_all(first)
            assert {message.body for message in taken} <= set(found)
    assert [one.batch.version for one in owned.batches()] == [1]


def test_a_store_that_is_closed_closes_its_consumers(url: str, remote: RemoteStore) -> None:
    with remote.consumer("billing", "orders") as other:
        with connect(url) as store:
            first = store.consumer("billing", "orders")
            unpolled = store.consumer("billing", "orders", tags="odd")
            taken = first.poll(1)
            first.ack(taken[0])
            assert len(other.positions()) == 2
        assert len(other.positions()) == 4, "at once, and not when the lease ends"
        with pytest.raises(CommitLogError, match="closed"):
            unpolled.poll()
        unpolled.close()
        assert taken[0].body not in _poll_all(other)


def test_a_close_that_is_interrupted_leaves_no_other_thread_waiting(
    remote: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    consumer = remote.consumer("billing", "orders")
    with monkeypatch.context() as patch:
        patch.setattr(Session, "close", interrupted)
        with pytest.raises(KeyboardInterrupt):
            consumer.close()
    assert not consumer._lock.locked(), "another thread waits for it before it is refused"
    with pytest.raises(ConsumerClosed):
        consumer.poll()


def test_a_consumer_that_is_dropped_gives_its_queues_back(url: str, remote: RemoteStore) -> None:
    with remote.consumer("billing", "orders") as other:
        dropped = remote.consumer("billing", "orders")
        assert len(other.positions()) == 2
        del dropped
        gc.collect()
        assert len(other.positions()) == 4


def started_program(program: str, url: str) -> subprocess.Popen[str]:
    """It writes a line when it is ready, and ends when it gets one."""
    command = [sys.executable, "-c", program, url]
    return quick_programs.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=child_environment()
    )


def test_a_program_that_ends_gives_its_queues_back(url: str, remote: RemoteStore) -> None:
    program = (
        "import sys\nfrom commitlog_store import connect\nstore = connect(sys.argv[1])\n"
        "consumer = store.consumer('billing', 'orders')\nprint(len(consumer.positions()), flush=True)\ninput()\n"
        "sys.exit(3)\n"
    )
    with (
        remote.consumer("billing", "orders") as other,
        started_program(program, url) as running,
    ):
        assert running.stdout is not None
        assert running.stdout.readline() == "2\n"
        assert len(other.positions()) == 2
        running.communicate("go on\n", timeout=WAIT_LIMIT_S)
        assert running.returncode == 3
        assert len(other.positions()) == 4


def test_a_consumer_that_a_signal_handler_closes_within_another_call_leaves(url: str, remote: RemoteStore) -> None:
    with remote.consumer("billing", "orders") as other:
        closed = remote.consumer("billing", "orders")
        assert len(other.positions()) == 2
        with remote._sessions.call():  # where a handler finds the thread
            closed.close()
        assert len(other.positions()) == 4


def test_a_consumer_that_the_server_has_forgotten_does_not_keep_its_store_from_closing_the_others(
    url: str, remote: RemoteStore
) -> None:
    with remote.consumer("billing", "orders") as other:
        with connect(url) as store:
            forgotten, known = store.consumer("billing", "orders"), store.consumer("billing", "orders")
            other.positions()
            forgotten.ack(forgotten.poll(1)[0])
            assert forgotten._session is not None
            Connection(store.address).ask("close_session", "raise", (forgotten._session.opened.session,))
            assert known.positions()
        assert len(other.positions()) == 4


def test_a_store_whose_server_does_not_answer_is_closed_soon(url: str) -> None:
    with TcpProxy(int(url.rpartition(":")[2])) as proxy:
        store = connect(proxy.url)
        consumers = [store.consumer("billing", "orders") for _ in range(3)]
        for consumer in consumers:
            consumer.positions()
        consumers[0].ack(consumers[0].poll(1)[0])
        proxy.lose_answers = True
        started = time.monotonic()
        store.close()
        assert time.monotonic() - started < 6 * CLOSE_SECONDS, "the server is waited for once"


def test_a_program_whose_server_does_not_answer_ends_soon(url: str) -> None:
    program = (
        "import sys\nfrom commitlog_store import connect\nstore = connect(sys.argv[1])\n"
        "consumers = [store.consumer('billing', 'orders') for _ in range(8)]\nconsumers[0].positions()\n"
        "consumers[0].ack(consumers[0].poll(1)[0])\nprint('ready', flush=True)\ninput()\n"
    )
    with (
        TcpProxy(int(url.rpartition(":")[2])) as proxy,
        started_program(program, proxy.url) as running,
    ):
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        proxy.lose_answers = True
        started = time.monotonic()
        running.communicate("end\n", timeout=WAIT_LIMIT_S)
        assert running.returncode == 0
        assert time.monotonic() - started < 6 * CLOSE_SECONDS, "the server is waited for once"


def test_a_consumer_is_dropped_without_a_word_to_the_server(
    remote: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    ask = Connection.ask

    def noted(self: Connection, call: str, *arguments: Any, **named: Any) -> Any:
        asked.append(call)
        return ask(self, call, *arguments, **named)

    monkeypatch.setattr(Connection, "ask", noted)
    dropped = remote.consumer("billing", "orders")
    asked.clear()
    del dropped
    gc.collect()
    assert asked == []
    remote.flush()
    assert asked[0] == "close_session", "with the next call of the store"


@pytest.mark.parametrize("call", ["commit_positions", "positions"])
def test_a_consumer_that_is_closed_within_its_own_call_leaves_after_it(
    remote: RemoteStore, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    with remote.consumer("billing", "orders") as other:
        closed = remote.consumer("billing", "orders")
        batch = remote.transaction("invoices", 1)
        assert len(other.positions()) == 2
        once = Session.once

        def interrupted(self: Session, name: str, *arguments: object, **named: Any) -> Any:
            if name == call:
                monkeypatch.undo()
                closed.close()  # as a signal handler does
            return once(self, name, *arguments, **named)

        monkeypatch.setattr(Session, "once", interrupted)
        if call == "positions":
            closed.positions()
        else:
            closed.commit(in_transaction=batch)
        assert closed._session is None
        assert len(other.positions()) == 4


def test_a_consumer_that_is_closed_as_its_call_begins_leaves_after_it(
    remote: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with remote.consumer("billing", "orders") as other:
        closed = remote.consumer("billing", "orders")
        refuse_closed = closed._refuse_closed

        def interrupted() -> None:
            closed.close()  # as a signal handler does
            refuse_closed()

        monkeypatch.setattr(closed, "_refuse_closed", interrupted)
        with pytest.raises(ConsumerClosed):
            closed.positions()
        assert len(other.positions()) == 4


@pytest.mark.parametrize(
    "end", ["sys.exit(0)", "del consumer\n    os._exit(0)", "del consumer, store\n    os._exit(0)"]
)
def test_a_process_that_is_forked_from_a_consumer_ends(url: str, end: str) -> None:
    program = (
        "import os, signal, sys\nfrom commitlog_store import connect\nstore = connect(sys.argv[1])\n"
        "consumer = store.consumer('billing', 'orders')\nconsumer.poll(1)\nchild = os.fork()\n"
        f"if not child:\n    signal.alarm(20)\n    {end}\n"
        "print(os.waitpid(child, 0)[1], len(consumer.positions()))\n"
    )
    command = [sys.executable, "-c", program, url]
    ended = quick_programs.run(
        command, stdout=subprocess.PIPE, text=True, env=child_environment(), timeout=WAIT_LIMIT_S, check=True
    )
    assert ended.stdout == "0 4\n", "not killed by SIGALRM, and the parent has its queues"


def test_queues_that_move_before_the_commit_end_the_transaction(url: str, remote: RemoteStore) -> None:
    with connect(url) as other, remote.consumer("billing", "orders") as first:
        batch = remote.transaction("invoices", 1)
        first.poll(COUNT)
        first.commit(in_transaction=batch)
        batch.put_messages([{"topic": "invoices", "body": b"x"}])
        with other.consumer("billing", "orders") as second:
            second.positions()
            with pytest.raises(TransactionEnded, match="poll again"), batch:
                pass
        assert remote.batches() == []


def test_messages_that_were_polled_before_the_consumer_joined_again_end_the_transaction(
    url: str, remote: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (consumer_calls, sessions):
        monkeypatch.setattr(module, "LEASE_SECONDS", 0.5)
    with connect(url) as other, remote.consumer("billing", "orders") as consumer:
        polled = consumer.poll(30)
        with other.consumer("billing", "orders") as second:
            wait_for(lambda: len(second.positions()) == 4)
        polled += consumer.poll(30)
        batch = remote.transaction("invoices", 1)
        with pytest.raises(TransactionEnded, match="poll again"):
            consumer.commit(in_transaction=batch)
        with pytest.raises(TransactionEnded), batch:
            pass
        with remote.transaction("invoices", 1) as batch:
            again = [message.body for message in consumer.poll(COUNT)]
            consumer.commit(in_transaction=batch)
        assert sorted(again) == sorted(b"%d" % number for number in range(COUNT)), "each of them once"


def test_a_commit_in_a_transaction_that_the_server_has_lost_gives_the_messages_back(remote: RemoteStore) -> None:
    lost = remote.transaction("invoices", 1)
    lost.session.close()  # as a server that was started again before the poll
    with remote.consumer("billing", "orders") as consumer:
        assert consumer.poll(30)
        with pytest.raises(TransactionEnded, match="no open transaction"):
            consumer.commit(in_transaction=lost)
        with remote.transaction("invoices", 1) as batch:
            again = consumer.poll(COUNT)
            consumer.commit(in_transaction=batch)
    assert len(again) == COUNT, "the messages of the transaction that was lost come again"


def test_a_poll_whose_answer_was_lost_is_given_again(owned: MessageStore, url: str) -> None:
    with TcpProxy(int(url.rpartition(":")[2]), 3) as proxy, connect(proxy.url) as remote:
        with remote.consumer("billing", "orders") as consumer:
            proxy.chaos = 0.1
            found: list[bytes] = []
            while len(set(found)) < COUNT or not min(proxy.done.values()):
                for message in consumer.poll(7, 1):
                    found.append(message.body)
                    consumer.ack(message)
            proxy.chaos = 0.0
        assert max(Counter(found).values()) == 1
        with remote.consumer("billing", "orders") as consumer:
            assert consumer.poll(1) == []


def test_a_poll_without_an_answer_is_named_and_its_messages_come_again(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_waits(monkeypatch)
    with (
        TcpProxy(int(url.rpartition(":")[2])) as proxy,
        connect(proxy.url, rpc_timeout_s=1) as remote,
        remote.consumer("billing", "orders") as consumer,
    ):
        proxy.lose_answers = True
        with pytest.raises(RemoteFailed):
            consumer.poll(10)
        proxy.lose_answers = False
        proxy.cut()
        assert len(set(_poll_all(consumer))) == COUNT


def test_a_cancelled_task_loses_no_message(owned: MessageStore, remote: RemoteStore) -> None:
    async def cancel() -> list[bytes]:
        with remote.consumer("billing", "orders") as consumer:
            for _ in range(5):
                task = asyncio.ensure_future(consumer.apoll(20, 30))
                await asyncio.sleep(0)
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            found = []
            while messages := await consumer.apoll(50):
                found += [message.body for message in messages]
            timer.start()
            async for message in consumer:
                found.append(message.body)
                consumer.close()
            return found

    timer = threading.Timer(1, owned.put, ("orders", b"last"))
    assert set(asyncio.run(cancel())) == {b"last", *(b"%d" % number for number in range(COUNT))}
    timer.join()


def test_messages_of_a_cancelled_task_end_no_transaction(owned: MessageStore, remote: RemoteStore) -> None:
    async def cancel(consumer: RemoteConsumer) -> None:
        task = asyncio.ensure_future(consumer.apoll(20, 30))
        while not consumer._lock.locked():  # until its call is under way
            await asyncio.sleep(0.001)
        task.cancel()
        owned.put("orders", b"last")  # which the call gets, and no caller
        with suppress(asyncio.CancelledError):
            await task

    with remote.consumer("billing", "orders") as consumer:
        while consumer.poll(COUNT):
            consumer.commit()
        asyncio.run(cancel(consumer))
        with remote.transaction("invoices", 1) as batch:
            assert [message.body for message in consumer.poll(20, WAIT_LIMIT_S)] == [b"last"]
            consumer.commit(in_transaction=batch)


def _copy(url: str, worker: int, enough: threading.Event) -> None:
    """Copies orders to invoices, each in a transaction with the position, whatever happens to the server."""
    with connect(url, rpc_timeout_s=60) as store, store.consumer("billing", "orders") as consumer:
        version = 1
        while not enough.is_set():
            try:
                with store.transaction(f"copy-{worker}", version) as batch:
                    if not batch.already_there:
                        messages = consumer.poll(10, 0.2)
                        consumer.commit(in_transaction=batch)
                        batch.put_messages([{"topic": "invoices", "body": one.body} for one in messages])
                version += 1
            except (TransactionEnded, PutNotConfirmed, RemoteFailed):
                with suppress(CommitLogError):
                    consumer.rewind()


def test_each_message_counts_once_though_the_server_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with MessageStore.open(path) as store:
        _fill(store)
    server = ServeProcess(path)
    listen = server.url.removeprefix("grpc://")
    enough = threading.Event()
    workers = [threading.Thread(target=_copy, args=(server.url, worker, enough)) for worker in range(3)]
    for worker in workers:
        worker.start()

    def copied() -> list[bytes]:
        with StoreReader.open(path) as reader:
            if "invoices" not in reader.topics():
                return []
            return list(reader.scan("invoices", columns=["body"]).read_all()["body"].to_pylist())

    try:
        for kill in range(3):
            wait_for(lambda kill=kill: len(copied()) >= (kill + 1) * 60)  # type: ignore[misc]
            server.stop(signal.SIGKILL)
            server = ServeProcess(path, listen=listen)
        wait_for(lambda: len(copied()) >= COUNT)
    finally:
        enough.set()
        for worker in workers:
            worker.join()
        with server:
            code, _ = server.stop()
    assert code == 0
    assert Counter(copied()) == Counter(b"%d" % number for number in range(COUNT))
