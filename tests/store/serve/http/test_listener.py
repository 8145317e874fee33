"""The listener for HTTP: how it begins and ends, what it bounds, and whom it answers."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
from pathlib import Path

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from commitlog_store import MessageStore
from commitlog_store.errors import InvalidValue, ListenFailed
from commitlog_store.serve.http.front import HttpFront
from commitlog_store.serve.http.listener import HttpLimits, HttpListener, bind
from commitlog_store.serve.http.pages.templates import _ENVIRONMENT, FIRST
from commitlog_store.serve.listen import ListenSettings, TlsFiles, bound_socket, tls_context
from tests.store.follower.certificates import make_certificate
from tests.store.serve.http.fronts import browsing, client_of, shown
from tests.store.serve.servers import ServeProcess
from tests.support.waiting import WAIT_LIMIT_S, wait_for


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path / "store") as store:
        store.put("orders", b"one")
    return tmp_path / "store"


def test_the_command_says_where_browsers_find_it_and_stops(store: Path) -> None:
    with ServeProcess(store, "--http", "127.0.0.1:0", new_interpreter=True) as server:
        place = server.first_line.partition("and at ")[2].partition(" to browsers")[0]
        assert place.startswith("http://127.0.0.1:")
        assert httpx.get(f"{place}/no-such-page", timeout=60, trust_env=False).status_code == 404
        assert server.stop()[0] == 0


@pytest.mark.parametrize("how", [[], ["--read-only"]], ids=["owned", "read only"])
def test_metrics_have_the_names_of_the_brokers_file(store: Path, tmp_path: Path, how: list[str]) -> None:
    """Beside a broker its metrics and these are of one node."""
    config = tmp_path / "broker.conf"
    config.write_text("brokerName=orders-b\nbrokerClusterName=shop\n")
    with ServeProcess(store, *how, "--http", "127.0.0.1:0", "--config", config) as server:
        place = server.first_line.partition("and at ")[2].partition(" to browsers")[0]
        metrics = httpx.get(f"{place}/metrics", timeout=60, trust_env=False).text
    assert 'cluster="shop"' in metrics
    assert 'node_id="orders-b"' in metrics


def test_a_port_that_is_taken_is_named(store: Path) -> None:
    with shown(store) as front, pytest.raises(ListenFailed, match=r"Cannot listen on 127\.0\.0\.1"):
        HttpFront({}, ListenSettings.parse(front.url.removeprefix("http://")))


@pytest.mark.parametrize("address", ["0.0.0.0:0", "192.0.2.1:8816", "[::]:0", "store.example.org:0"])
def test_other_hosts_are_let_in_only_with_tls_and_tokens(address: str) -> None:
    with pytest.raises(InvalidValue, match=r"give --tls-cert and --tls-key and --tokens too, or listen on --http 127"):
        HttpFront({}, ListenSettings.parse(address))


def test_tls_uses_the_certificate_of_the_other_listeners(store: Path, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    tls = TlsFiles(certificate=str(certificate), key=str(key))
    with shown(store, tls=tls) as front:
        assert front.url.startswith("https://")
        trusting = ssl.create_default_context(cafile=str(certificate))
        with client_of(front, verify=trusting) as client:
            assert client.get("/no-such-page").status_code == 404
        with client_of(front) as client, pytest.raises(httpx.ConnectError, match="certificate"):
            client.get("/")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8816", "localhost.evil.example", "", "[zz]"])
def test_a_name_that_was_made_to_lead_here_is_refused(store: Path, host: str) -> None:
    with browsing(store) as client:
        assert client.get("/", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost:1", "LOCALHOST", "127.0.0.1", "[::1]:8816", "10.0.0.1"])
def test_addresses_and_localhost_are_names_of_this_server(store: Path, host: str) -> None:
    with browsing(store) as client:
        assert client.get("/no-such-page", headers={"host": host}).status_code == 404


def test_every_answer_tells_browsers_to_run_nothing_of_others(store: Path) -> None:
    with browsing(store) as client:
        for answer in (client.get("/no-such-page"), client.get("/", headers={"host": "evil.example"})):
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "same-origin"


def test_the_two_parts_of_an_answer_do_not_wait_for_the_clients_ack() -> None:
    with bound_socket("127.0.0.1", 0, 1) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_warm_front_has_what_the_first_visitor_would_wait_for(store: Path) -> None:
    with shown(store) as front:
        cache = _ENVIRONMENT.cache
        assert cache is not None
        cache.clear()
        front.warm()
        wait_for(lambda: {name for _, name in list(cache)} >= set(FIRST))
        with client_of(front) as client:
            assert client.get("/topics").status_code == 200


def _connected(front: HttpFront) -> socket.socket:
    host, _, port = front.url.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=60)


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: local", b"POST /sign-in HTTP/1.1\r\n"])
def test_a_request_that_does_not_become_whole_ends_its_connection(store: Path, sent: bytes) -> None:
    with shown(store, limits=HttpLimits(request_s=0.3)) as front, _connected(front) as client:
        client.sendall(sent)
        assert client.recv(100) == b""


def _answer(client: socket.socket) -> bytes:
    """Nothing from a connection that was closed."""
    try:
        client.sendall(b"GET /no-such-page HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return client.recv(100)
    except (ConnectionResetError, BrokenPipeError):
        return b""


def test_connections_beyond_the_limit_are_closed(store: Path) -> None:
    limits = HttpLimits(max_connections=2)
    with shown(store, limits=limits) as front, _connected(front) as first, _connected(front) as second:
        assert b" 404 " in _answer(first)
        assert b" 404 " in _answer(second)
        with _connected(front) as third:
            assert _answer(third) == b""


def test_many_connections_beyond_the_limit_are_one_warning(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    limits = HttpLimits(max_connections=1)
    with shown(store, limits=limits) as front, _connected(front) as first:
        assert b" 404 " in _answer(first)
        for _ in range(5):
            with _connected(front) as other:
                assert _answer(other) == b""
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "1 connections are open, as many as may be: more are closed, 1 so far"
    ]


def _is_free(port: int) -> bool:
    """Whether nothing listens there: a new client is refused."""
    try:
        bind(ListenSettings.parse(f"127.0.0.1:{port}")).close()
    except ListenFailed:
        return False
    return True


async def _never(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that answers when its client leaves."""
    del scope, send
    while (await receive())["type"] != "http.disconnect":
        pass


@pytest.mark.parametrize("is_tls", [False, True])
def test_a_listener_that_stops_refuses_new_clients_while_others_are_answered(tmp_path: Path, *, is_tls: bool) -> None:
    certificate, key = make_certificate(tmp_path)
    tls = tls_context(TlsFiles(certificate=str(certificate), key=str(key))) if is_tls else None
    listener = HttpListener(bind(ListenSettings.parse("127.0.0.1:0")), _never, tls=tls)
    listener.start()
    stopping = threading.Thread(target=listener.stop, args=(WAIT_LIMIT_S,))
    with contextlib.ExitStack() as opened:
        client = opened.enter_context(socket.create_connection(("127.0.0.1", listener.port), timeout=60))
        if is_tls:
            trusting = ssl.create_default_context(cafile=str(certificate))
            client = opened.enter_context(trusting.wrap_socket(client, server_hostname="127.0.0.1"))
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_for(lambda: listener.connections().active == 1)
        stopping.start()
        wait_for(lambda: _is_free(listener.port))
        assert listener.connections().active == 1
    stopping.join(WAIT_LIMIT_S)
    assert not stopping.is_alive()


def test_an_error_that_ends_work_on_the_loop_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def prepare() -> None:
        raise ValueError("a template is wrong")

    listener = HttpListener(bind(ListenSettings.parse("127.0.0.1:0")), _never)
    listener.start()
    with caplog.at_level(logging.ERROR):
        listener.run(prepare())
        wait_for(lambda: "a template is wrong" in caplog.text)
    assert "prepare of the listener for HTTP has ended" in caplog.text
    listener.stop(0.0)
