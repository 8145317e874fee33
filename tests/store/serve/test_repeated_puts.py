"""A put through a server is stored once: when its answer is lost, its connection cut or doubled, its server killed."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import MessageStore, RemoteStore, StoreReader, connect
from commitlog_store.columnar.input import Rows
from commitlog_store.errors import NotServed, PutNotConfirmed, RemoteFailed, ServerBusy
from commitlog_store.message import Message, PutMessageStatus
from commitlog_store.remote import table_puts
from commitlog_store.serve.call_limits import CallLimits
from tests.store.serve.servers import ServeProcess, served
from tests.support.long_runs import LONG_RUN_S, Progress, part_of
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import wait_for


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store") as store:
        yield store


def _bodies(path: Path | str) -> Counter[bytes]:
    with StoreReader.open(path) as reader:
        if not reader.topics():
            return Counter()
        return Counter(reader.scan("orders", columns=["body"]).read_all()["body"].to_pylist())


def _port(url: str) -> int:
    return int(url.rpartition(":")[2])


@pytest.mark.parametrize(
    "put",
    [
        lambda remote: remote.put("orders", b"once"),
        lambda remote: remote.put_messages(pa.table({"topic": ["orders"], "body": [b"once"]})).raise_for_status(),
        lambda remote: remote.put_message_batch([Message(topic="orders", body=b"once")]).raise_for_status(),
    ],
    ids=["message", "table", "batch"],
)
def test_an_answer_that_was_lost_is_asked_for_again(store: MessageStore, put: Callable[[RemoteStore], object]) -> None:
    with served(owned=store) as url, TcpProxy(_port(url)) as proxy, connect(proxy.url) as remote:
        before = store.physical_bounds()[1]
        proxy.lose_answers = True
        results: list[object] = []
        thread = threading.Thread(target=lambda: results.append(put(remote)))
        thread.start()
        wait_for(lambda: store.physical_bounds()[1] > before)
        proxy.lose_answers = False
        proxy.cut()
        thread.join()
        assert results
        assert len({one.physical_offset for one in results if hasattr(one, "physical_offset")}) <= 1
        store.dispatch()
        assert _bodies(store.path) == {b"once": 1}


def test_a_put_that_gets_no_answer_in_time_may_be_stored(store: MessageStore) -> None:
    with served(owned=store) as url, TcpProxy(_port(url)) as proxy, connect(proxy.url, rpc_timeout_s=1) as remote:
        proxy.lose_answers = True
        with pytest.raises(PutNotConfirmed, match="was lost, and it may have been done"):
            remote.put("orders", b"perhaps")
        result = remote.put_messages([{"topic": "orders", "body": b"perhaps too"}])
        assert result.status is PutMessageStatus.UNKNOWN_ERROR
        assert result.rows["queueOffset"].to_pylist() == [-1]
        proxy.lose_answers = False
        proxy.cut()
        remote.put("orders", b"surely")
        store.dispatch()
        stored = _bodies(store.path)
        assert max(stored.values()) == 1
        assert {b"surely"} <= stored.keys() <= {b"surely", b"perhaps", b"perhaps too"}


def test_a_server_that_is_away_stores_nothing_and_is_named_in_time(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store") as store, served(owned=store) as url, TcpProxy(_port(url)) as proxy:
        with connect(proxy.url, rpc_timeout_s=0.5) as remote:
            remote.put("orders", b"first")
            with TcpProxy(1) as nowhere, pytest.raises(RemoteFailed):
                connect(nowhere.url, rpc_timeout_s=0.5)
            proxy.retarget(1)
            proxy.cut()
            with pytest.raises((RemoteFailed, PutNotConfirmed)):
                remote.put("orders", b"second")
            proxy.retarget(_port(url))
            remote.put("orders", b"third")
        store.dispatch()
        assert _bodies(store.path) == {b"first": 1, b"third": 1}


def test_a_close_waits_once_for_a_server_that_is_away(store: MessageStore) -> None:
    with served(owned=store) as url, TcpProxy(_port(url)) as proxy:
        remote = connect(proxy.url)
        with contextlib.ExitStack() as stack:
            for number in range(8):  # each has a session of its own
                batch = stack.enter_context(remote.transaction("loader", number))
                batch.put_messages([{"topic": "orders", "body": b"x"}])
        proxy.retarget(1)
        proxy.cut()
        begun = time.monotonic()
        remote.close()
        assert time.monotonic() - begun < 8, "two seconds, and not for each session"


def test_a_call_is_refused_for_its_bytes_before_it_is_done_and_not_after(store: MessageStore) -> None:
    limits = CallLimits(4)
    store.put("orders", b"stored before")
    with served(owned=store, limits=limits) as url, connect(url, rpc_timeout_s=0.5) as remote:
        with remote.consumer("billing", "orders") as consumer:
            others = limits.enter("others")
            others.hold(64 << 20, may_refuse=False)
            with pytest.raises(ServerBusy, match="Calls under way hold"):
                remote.put("orders", b"refused")
            assert [one.body for one in consumer.poll(timeout_s=5)] == [b"stored before"]
            others.leave()
        store.dispatch()
        assert _bodies(store.path) == {b"stored before": 1}


@pytest.mark.parametrize("seed", [1, 2])
def test_chaos_loses_nothing_that_was_acknowledged_and_doubles_nothing(store: MessageStore, seed: int) -> None:
    with served(owned=store) as url, TcpProxy(_port(url), seed) as proxy, connect(proxy.url) as remote:
        proxy.chaos = 0.05
        acknowledged: list[bytes] = []
        unknown: list[bytes] = []
        tried: list[bytes] = []

        def put(writer: int) -> None:
            for number in range(400):
                if number >= 40 and min(proxy.done.values()) > 0:
                    break  # each kind of trouble was met
                body = b"%d of %d" % (number, writer)
                tried.append(body)
                if number % 2:
                    status = remote.put_message(Message(topic="orders", body=body)).status
                else:
                    status = remote.put_messages([{"topic": "orders", "body": body}]).status
                (acknowledged if status is PutMessageStatus.PUT_OK else unknown).append(body)

        threads = [threading.Thread(target=put, args=(writer,)) for writer in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        proxy.chaos = 0.0
        store.dispatch()
        stored = _bodies(store.path)
        assert min(proxy.done.values()) > 0, "the proxy did nothing"
        assert max(stored.values()) == 1, "a message was stored twice"
        assert set(acknowledged) <= stored.keys()
        assert stored.keys() <= {*acknowledged, *unknown}
        assert len(acknowledged) + len(unknown) == len(tried)


def test_a_client_that_was_idle_while_its_server_was_started_again_puts_on(tmp_path: Path) -> None:
    with ServeProcess(tmp_path / "store") as server, connect(server.url, rpc_timeout_s=2) as remote:
        remote.put("orders", b"first")
        assert server.stop()[0] == 0
        with pytest.raises(RemoteFailed, match="No server of commitlog serve answers"):
            remote.put("orders", b"to nobody")
        with ServeProcess(tmp_path / "store", listen=server.url.removeprefix("grpc://")) as again:
            remote.put("orders", b"second")
            remote.put_messages([{"topic": "orders", "body": b"third"}]).raise_for_status()
            assert again.stop()[0] == 0
    assert _bodies(tmp_path / "store") == {b"first": 1, b"second": 1, b"third": 1}


def _message(remote: RemoteStore) -> Callable[[], object]:
    return lambda: remote.put("orders", b"once")


def _table(remote: RemoteStore) -> Callable[[], object]:
    return lambda: remote.put_messages([{"topic": "orders", "body": b"once"}]).raise_for_status()


def _transaction(remote: RemoteStore) -> Callable[[], object]:
    batch = remote.transaction("loader", 1)
    batch.put_messages([{"topic": "orders", "body": b"once"}])
    return lambda: batch.__exit__(None, None, None)


@pytest.mark.parametrize("prepared", [_message, _table, _transaction])
def test_a_put_may_be_stored_when_its_server_comes_back_read_only(
    tmp_path: Path, prepared: Callable[[RemoteStore], Callable[[], object]]
) -> None:
    """The new server refuses the call; the one before had done it."""
    path = tmp_path / "store"
    outcome: list[PutNotConfirmed] = []

    def put(call: Callable[[], object]) -> None:
        with pytest.raises(PutNotConfirmed) as raised:
            call()
        outcome.append(raised.value)

    with ServeProcess(path) as server, TcpProxy(_port(server.url)) as proxy, connect(proxy.url) as remote:
        remote.put("orders", b"before")
        thread = threading.Thread(target=put, args=(prepared(remote),))
        with StoreReader.open(path) as reader:
            before = reader.physical_bounds()[1]
            proxy.lose_answers = True
            thread.start()
            wait_for(lambda: reader.physical_bounds()[1] > before)
        server.process.kill()
        server.process.wait()
        with ServeProcess(path, "--read-only") as second:
            proxy.retarget(_port(second.url))
            proxy.lose_answers = False
            proxy.cut()
            thread.join()
            assert [error.status for error in outcome] == [PutMessageStatus.UNKNOWN_ERROR]
            with pytest.raises(NotServed, match="shows its stores read only"):
                remote.put("orders", b"refused")
    MessageStore.open(path).close()
    assert _bodies(path) == {b"before": 1, b"once": 1}


def test_the_rest_of_a_table_is_refused_by_row_when_its_server_comes_back_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    rows = [{"topic": "orders", "body": b"%d" % number} for number in range(3)]
    with ServeProcess(path) as server, connect(server.url) as remote, contextlib.ExitStack() as servers:

        def parts(table: Rows) -> Iterator[tuple[int, pa.RecordBatch]]:
            """A part for each row; another server comes before the second one."""
            (batch,) = table.to_batches() if isinstance(table, pa.Table) else [table]
            yield 0, batch.slice(0, 1)
            assert server.stop()[0] == 0
            servers.enter_context(ServeProcess(path, "--read-only", listen=server.url.removeprefix("grpc://")))
            yield 1, batch.slice(1, 1)
            yield 2, batch.slice(2, 1)

        monkeypatch.setattr(table_puts, "parts_of", parts)
        result = remote.put_messages(rows)
    assert result.rows["status"].to_pylist() == ["PUT_OK", "SERVICE_NOT_AVAILABLE", "SERVICE_NOT_AVAILABLE"]
    assert "shows its stores read only" in result.reason
    assert _bodies(path) == {b"0": 1}


def _wait_for_more(messages: list[bytes]) -> None:
    wanted = len(messages) + 50
    wait_for(lambda: len(messages) >= wanted)


def test_a_server_that_is_killed_and_started_again(tmp_path: Path, progress: Progress) -> None:
    check_kills(tmp_path / "store", 3, progress)


@pytest.mark.stress
@pytest.mark.timeout(LONG_RUN_S)
def test_a_server_that_is_killed_hundreds_of_times(tmp_path: Path, progress: Progress) -> None:
    check_kills(tmp_path / "store", part_of(200), progress)


def check_kills(path: Path, kills: int, progress: Progress) -> None:
    """No put is doubled, and none that was acknowledged is lost; the rest is named as unknown."""
    server = ServeProcess(path)
    listen = server.url.removeprefix("grpc://")
    acknowledged: list[bytes] = []
    unknown: list[bytes] = []
    stop = threading.Event()
    with connect(server.url, rpc_timeout_s=60) as remote:

        def put(writer: int) -> None:
            number = 0
            while not stop.is_set():
                body = b"%d of %d" % (number, writer)
                status = remote.put_message(Message(topic="orders", body=body)).status
                (acknowledged if status is PutMessageStatus.PUT_OK else unknown).append(body)
                number += 1

        threads = [threading.Thread(target=put, args=(writer,)) for writer in range(3)]
        for thread in threads:
            thread.start()
        try:
            for kill in range(kills):
                _wait_for_more(acknowledged)
                server.stop(signal.SIGKILL)
                server = ServeProcess(path, listen=listen)
                assert server.url
                progress.count("server kills", kill + 1)
            _wait_for_more(acknowledged)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    with server:
        assert server.stop()[0] == 0
    stored = _bodies(path)
    assert max(stored.values()) == 1, "a message was stored twice"
    assert set(acknowledged) <= stored.keys()
    assert stored.keys() <= {*acknowledged, *unknown}
    assert len(unknown) <= 3 * kills, "one put of each thread at most for each kill"
