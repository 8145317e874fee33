"""Transactions and half messages through a server: whole and once, also when answers are lost and servers killed."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import (
    HalfMessagesChecked,
    Message,
    MessageExt,
    MessageStore,
    MessageStoreConfig,
    RemoteStore,
    StoreReader,
    connect,
)
from commitlog_store.errors import (
    BatchConflict,
    CommitLogError,
    HalfMessageEnded,
    InvalidValue,
    PutNotConfirmed,
    PutRefused,
    RemoteFailed,
    TransactionEnded,
)
from commitlog_store.half_message import Answer
from commitlog_store.paths import STAGING
from commitlog_store.remote import put_wire
from tests.store.serve.servers import ServeProcess, served
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import wait_for


@pytest.fixture
def owned(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store") as store:
        yield store


@pytest.fixture
def remote(owned: MessageStore) -> Iterator[RemoteStore]:
    with served(owned=owned) as url, connect(url) as remote:
        yield remote


def _table(count: int, first: int = 0) -> pa.Table:
    bodies = [b"%d" % number for number in range(first, first + count)]
    return pa.table({"topic": ["orders"] * count, "body": bodies})


def _bodies(path: str | Path) -> list[bytes]:
    with StoreReader.open(path) as reader:
        if "orders" not in reader.topics():
            return []
        return list(reader.scan("orders", columns=["body"]).read_all()["body"].to_pylist())


def _staged(owned: MessageStore) -> list[Path]:
    return [path for path in (Path(owned.path) / STAGING).rglob("*") if path.is_file()]


def test_a_transaction_is_committed_whole_and_once(owned: MessageStore, remote: RemoteStore) -> None:
    for expected in (False, True):
        with remote.transaction("loader", 1) as batch:
            assert batch.already_there is expected
            batch.put_messages(_table(3))
            batch.put_messages([{"body": b"3"}], topic="orders")
            assert "open" in repr(batch)
        assert batch.result is not None
        assert (batch.result.rows, batch.result.already_there) == (4, expected)
    owned.dispatch()
    assert sorted(_bodies(owned.path)) == [b"0", b"1", b"2", b"3"]
    assert [one.batch.version for one in remote.batches()] == [1]
    assert _staged(owned) == []


def test_an_exception_in_the_block_discards_everything(owned: MessageStore, remote: RemoteStore) -> None:
    batch = remote.transaction("loader", 1)
    batch.put_messages(_table(3))
    assert _staged(owned)
    batch.__exit__(KeyError, KeyError(), None)
    assert _staged(owned) == []
    with pytest.raises(TransactionEnded, match="has ended"):
        batch.put_messages(_table(1))
    with remote.transaction("loader", 1) as batch:
        assert not batch.already_there
    assert batch.result is not None


def test_errors_are_those_of_an_open_store(
    owned: MessageStore, remote: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(put_wire, "PART_ROWS", 10)
    with remote.transaction("loader", 1, "one"):
        pass
    with remote.transaction("loader", 2, "one") as batch:
        batch.put_messages(_table(1))
    for store in (owned, remote):
        with pytest.raises(BatchConflict):
            store.transaction("loader", 2, "other")
        for wrong in ("", "rmq-epoch"):
            with pytest.raises(InvalidValue, match="application"):
                store.transaction(wrong, 1)
        rows = [{"topic": "a b" if number == 25 else "orders", "body": b"x"} for number in range(40)]
        transaction = store.transaction("loader", 3)
        with pytest.raises(PutRefused, match="row 25") as refused:
            transaction.put_messages(rows)
        assert refused.value.row == 25
        with pytest.raises(TransactionEnded, match="row 25"), transaction:
            pass
        with pytest.raises(InvalidValue, match="nonsense"), store.transaction("loader", 3) as transaction:
            transaction.put_messages([{"topic": "orders", "nonsense": 1}])
    owned.dispatch()
    assert _bodies(owned.path) == [b"0"]


def test_what_a_client_left_behind_is_discarded(owned: MessageStore) -> None:
    with served(owned=owned) as url, connect(url) as remote:
        batch = remote.transaction("loader", 1)
        batch.put_messages(_table(3))
        assert _staged(owned)
        batch.session.ask("close_session", batch.session.opened.session)
        assert _staged(owned) == []
        with pytest.raises(TransactionEnded, match="was lost at the server"), batch:
            pass
        left = remote.transaction("loader", 1)
        left.put_messages(_table(3))
    assert _staged(owned) == [], "the server stopped"


@pytest.mark.parametrize("is_restarted", [False, True], ids=["same server", "another server"])
def test_a_commit_whose_answer_was_lost_is_found_in_the_ledger(tmp_path: Path, is_restarted: bool) -> None:
    server = ServeProcess(tmp_path / "store")
    with TcpProxy(int(server.url.rpartition(":")[2])) as proxy, connect(proxy.url) as remote:
        with StoreReader.open(tmp_path / "store") as reader, remote.transaction("loader", 1) as batch:
            batch.put_messages(_table(3))

            def lose() -> None:
                nonlocal server
                wait_for(reader.batches)
                if is_restarted:
                    server.stop(signal.SIGKILL)
                    server = ServeProcess(tmp_path / "store")
                    proxy.retarget(int(server.url.rpartition(":")[2]))
                proxy.lose_answers = False
                proxy.cut()

            proxy.lose_answers = True
            thread = threading.Thread(target=lose)
            thread.start()
        thread.join()
        assert batch.result is not None
        assert (batch.result.rows, batch.result.already_there) == (3, False)
    with server:
        assert server.stop()[0] == 0
    assert len(_bodies(tmp_path / "store")) == 3


def test_versions_are_stored_once_each_by_a_server_that_is_killed_again_and_again(tmp_path: Path) -> None:
    path = tmp_path / "store"
    server = ServeProcess(path)
    listen = server.url.removeprefix("grpc://")
    committed = [0, 0]
    stop = threading.Event()
    with connect(server.url, rpc_timeout_s=60) as remote:

        def load(loader: int) -> None:
            while not stop.is_set():
                version = committed[loader] + 1
                try:
                    with remote.transaction(f"loader-{loader}", version) as batch:
                        batch.put_messages(_table(10, first=version * 1000 + loader * 100))
                        batch.put_messages(_table(10, first=version * 1000 + loader * 100 + 10))
                except (TransactionEnded, PutNotConfirmed, RemoteFailed):
                    continue  # the same version again
                committed[loader] = version

        threads = [threading.Thread(target=load, args=(loader,)) for loader in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(4):
                wanted = sum(committed) + 10
                wait_for(lambda wanted=wanted: sum(committed) >= wanted)  # type: ignore[misc]
                server.stop(signal.SIGKILL)
                server = ServeProcess(path, listen=listen)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    with server:
        assert server.stop()[0] == 0
    expected = [
        b"%d" % (version * 1000 + loader * 100 + row)
        for loader in range(2)
        for version in range(1, committed[loader] + 1)
        for row in range(20)
    ]
    assert Counter(_bodies(path)) == Counter(expected)


def test_half_messages(owned: MessageStore, remote: RemoteStore) -> None:
    half = remote.half_messages
    first = half.prepare(Message(topic="orders", body=b"0"), "payments")
    second = half.prepare(Message(topic="orders", body=b"1"), "payments")
    owned.dispatch()
    assert [one.handle for one in half.pending()] == [first, second]
    half.commit(first)
    half.rollback(second)
    for handle in (first, second):
        with pytest.raises(HalfMessageEnded):
            half.commit(handle)
    with pytest.raises(InvalidValue):
        half.prepare(Message(topic="orders", body=b"x", delay_level=1), "payments")
    owned.dispatch()
    assert half.pending() == []
    assert _bodies(owned.path) == [b"0"]


def test_a_half_message_that_is_too_large_for_a_question_is_refused_as_a_put_is(remote: RemoteStore) -> None:
    with pytest.raises(PutRefused, match="A put through a server has at most 16711680 bytes; these bodies have"):
        remote.half_messages.prepare(Message(topic="orders", body=bytes(17 << 20)), "payments")


def test_a_commit_of_a_half_message_whose_answer_was_lost_is_done_once(owned: MessageStore) -> None:
    with served(owned=owned) as url, TcpProxy(int(url.rpartition(":")[2])) as proxy, connect(proxy.url) as remote:
        handle = remote.half_messages.prepare(Message(topic="orders", body=b"0"), "payments")
        end = owned.physical_bounds()[1]
        proxy.lose_answers = True
        errors: list[CommitLogError] = []

        def commit() -> None:
            try:
                remote.half_messages.commit(handle)
            except CommitLogError as error:
                errors.append(error)

        thread = threading.Thread(target=commit)
        thread.start()
        wait_for(lambda: owned.physical_bounds()[1] > end)
        proxy.lose_answers = False
        proxy.cut()
        thread.join()
        assert errors == []
    owned.dispatch()
    assert _bodies(owned.path) == [b"0"]


@pytest.fixture
def checked(tmp_path: Path) -> Iterator[RemoteStore]:
    """A connection to a store whose half messages are checked at once."""
    config = MessageStoreConfig(transaction_time_out=0, transaction_check_interval=5, transaction_check_max=3)
    with MessageStore.open(tmp_path / "store", config) as owned, served(owned=owned) as url, connect(url) as remote:
        yield remote


def _outcome(message: MessageExt) -> Answer:
    if message.body == b"fails":
        raise RuntimeError("the database is away")
    answers: dict[bytes, Answer] = {b"paid": "commit", b"not paid": "rollback"}
    return answers.get(message.body, "unknown")


def test_half_messages_are_checked_by_the_clients_callback(checked: RemoteStore) -> None:
    half = checked.half_messages
    assert half.check(_outcome) == HalfMessagesChecked()
    for body in (b"paid", b"not paid", b"nobody knows", b"fails"):
        half.prepare(Message(topic="orders", body=body), "payments")
    assert half.check(_outcome) == HalfMessagesChecked(committed=1, rolled_back=1, put_back=2, failed=1)
    assert half.check(_outcome) == HalfMessagesChecked(put_back=2, failed=1)
    assert half.check(_outcome) == HalfMessagesChecked(put_back=2, failed=1)
    assert half.check(_outcome) == HalfMessagesChecked(given_up=2)
    half.prepare(Message(topic="orders", body=b"x"), "payments")
    with pytest.raises(InvalidValue, match="answered by one of"):
        half.check(lambda _: "done")  # type: ignore[arg-type,return-value]
    checked.dispatch()
    with checked.reader() as reader:
        assert [one["body"] for one in reader.scan("orders").read_all().to_pylist()] == [b"paid"]


def test_checks_that_were_started_end_with_the_connection(checked: RemoteStore) -> None:
    half = checked.half_messages
    half.start_checks(_outcome)
    half.prepare(Message(topic="orders", body=b"paid"), "payments")
    wait_for(lambda: not half.pending())
    with pytest.raises(InvalidValue, match="started before"):
        half.start_checks(_outcome)
    checked.close()
    assert not any(thread.name == "TransactionalMessageCheckService" for thread in threading.enumerate())
