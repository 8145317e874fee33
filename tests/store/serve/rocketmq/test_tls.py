"""TLS of RocketMQ's clients (useTLS): on the same port as plain connections, distinguished by the first byte."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from commitlog_store.errors import InvalidValue
from commitlog_store.format.remoting_command import RemotingCommand
from commitlog_store.serve.connection_counts import ConnectionCount
from commitlog_store.serve.listen import TlsFiles, tls_context
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from commitlog_store.serve.rocketmq.connection import ConnectionLimits
from commitlog_store.serve.rocketmq.listener import RECEIVED_AT_ONCE, RemotingServer, bind
from commitlog_store.serve.rocketmq.processor import Connection, Handler, Processor
from commitlog_store.threads.wakeup import Wakeup
from tests.store.follower.certificates import make_certificate
from tests.store.serve.rocketmq.brokers import Served, broker
from tests.store.serve.rocketmq.remoting_client import RemotingClient, records
from tests.support.waiting import WAIT_LIMIT_S, wait_for


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    certificate, key = make_certificate(tmp_path)
    return TlsFiles(certificate=str(certificate), key=str(key))


@pytest.fixture
def served(request: pytest.FixtureRequest, tmp_path: Path, files: TlsFiles) -> Iterator[Served]:
    """The parameter is how long a connection may be idle."""
    limits = ConnectionLimits(idle_s=getattr(request, "param", 2.0))
    with broker(tmp_path / "s", tls=files, limits=limits) as one:
        yield one


def _trusting(files: TlsFiles) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=files.certificate)


def test_clients_with_and_without_tls_share_the_port(served: Served, files: TlsFiles) -> None:
    with RemotingClient(served.address, tls=_trusting(files)) as tls, RemotingClient(served.address) as plain:
        assert tls.send("orders", b"t" * 100_000).code == 0
        assert plain.send("orders", b"p").code == 0
        served.store.dispatch()
        assert [one.body for one in records(tls.pull("orders", 0, 0))] == [b"t" * 100_000, b"p"]
        held = tls.start_pull("orders", 0, 2, hold_ms=100_000)
        plain.send("orders", b"later")
        assert [one.body for one in records(tls.answer(held))] == [b"later"]


def test_a_message_larger_than_what_is_received_at_once_comes_whole(served: Served, files: TlsFiles) -> None:
    body = bytes(range(256)) * 8_000
    assert len(body) > 4 * RECEIVED_AT_ONCE
    with RemotingClient(served.address, tls=_trusting(files)) as client:
        assert client.send("orders", body).code == 0
        served.store.dispatch()
        assert [one.body for one in records(client.pull("orders", 0, 0))] == [body]


@pytest.mark.parametrize("served", [0.5], indirect=True)
@pytest.mark.parametrize("sent", [b"", b"\x16", b"\x16\x03\x01\x00\x05hello", b"\x00"])
def test_what_does_not_become_a_connection_ends(served: Served, sent: bytes) -> None:
    host, port = served.address.split(":")
    with socket.create_connection((host, int(port)), timeout=100) as bad:
        bad.sendall(sent)
        with RemotingClient(served.address) as client:
            assert client.route("TBW102")
        # A handshake may be answered by an alert before the end.
        while True:
            try:
                if not bad.recv(1000):
                    break
            except ConnectionError:
                break


def test_a_client_that_does_not_know_the_certificate_is_not_served(served: Served) -> None:
    with pytest.raises(ssl.SSLError):
        RemotingClient(served.address, tls=ssl.create_default_context())


def test_stopping_ends_connections_that_have_not_begun(tmp_path: Path, files: TlsFiles) -> None:
    with broker(tmp_path / "s", tls=files) as one:
        host, port = one.address.split(":")
        silent = socket.create_connection((host, int(port)), timeout=100)
        with RemotingClient(one.address) as client:
            wait_for(lambda: client.route("TBW102"))
    assert silent.recv(1) == b""
    silent.close()


class _Slow(Processor):
    """Answers when it is let."""

    def __init__(self) -> None:
        self.asked: list[Connection] = []
        self.may_answer = Wakeup()

    def handlers(self) -> Mapping[int, Handler]:
        return {RequestCode.GET_ROUTEINFO_BY_TOPIC: self._answer}

    async def _answer(self, request: RemotingCommand, connection: Connection) -> RemotingCommand:
        self.asked.append(connection)
        await asyncio.get_running_loop().run_in_executor(None, self.may_answer.wait, WAIT_LIMIT_S)
        return request.answer(ResponseCode.SUCCESS)


def test_a_server_that_stops_refuses_new_clients_while_others_are_answered(files: TlsFiles) -> None:
    slow = _Slow()
    server = RemotingServer(bind("127.0.0.1", 0), tls=tls_context(files))
    server.start([slow])
    stopping = threading.Thread(target=server.stop, args=(WAIT_LIMIT_S,))
    with RemotingClient(f"127.0.0.1:{server.port}", tls=_trusting(files)) as client:
        asked = client.start(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})
        wait_for(lambda: slow.asked)
        stopping.start()
        wait_for(lambda: _is_free(server.port))
        assert stopping.is_alive()
        slow.may_answer.set()
        assert client.answer(asked).code == ResponseCode.SUCCESS
    stopping.join(WAIT_LIMIT_S)


def test_of_more_clients_at_once_than_the_limit_some_are_served(files: TlsFiles) -> None:
    server = RemotingServer(bind("127.0.0.1", 0), tls=tls_context(files), limits=ConnectionLimits(max_connections=2))
    clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(5)]  # the system queues them
    server.start([])
    for client in clients:
        client.sendall(b"\x00")
    wait_for(lambda: server.connections() == ConnectionCount(beginning=2, active=0, idle=0, refused=3))
    server.stop(1.0)
    for client in clients:
        client.close()


def _is_free(port: int) -> bool:
    """Whether nothing listens there: a new client is refused."""
    try:
        bind("127.0.0.1", port).close()
    except OSError:
        return False
    return True


def test_files_that_cannot_be_used_are_said(tmp_path: Path, files: TlsFiles) -> None:
    with pytest.raises(InvalidValue, match="nothing"):
        tls_context(TlsFiles(certificate=str(tmp_path / "nothing"), key=files.key))
    with pytest.raises(InvalidValue, match="TLS cannot use"):
        tls_context(TlsFiles(certificate=files.key, key=files.key))
