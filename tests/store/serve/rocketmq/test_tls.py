"""TLS of RocketMQ's clients (useTLS): on the same port as plain connections, told apart by the first byte."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlog_store.errors import InvalidValue
from commitlog_store.serve.listen import TlsFiles, tls_context
from commitlog_store.serve.rocketmq.connection import ConnectionLimits
from tests.store.follower.certificates import make_certificate
from tests.store.serve.rocketmq.brokers import Served, broker
from tests.store.serve.rocketmq.remoting_client import RemotingClient, records
from tests.support.waiting import wait_for


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    certificate, key = make_certificate(tmp_path)
    return TlsFiles(certificate=str(certificate), key=str(key))


@pytest.fixture
def served(tmp_path: Path, files: TlsFiles) -> Iterator[Served]:
    with broker(tmp_path / "s", tls=files, limits=ConnectionLimits(idle_s=2.0)) as one:
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


def test_files_that_cannot_be_used_are_said(tmp_path: Path, files: TlsFiles) -> None:
    with pytest.raises(InvalidValue, match="nothing"):
        tls_context(TlsFiles(certificate=str(tmp_path / "nothing"), key=files.key))
    with pytest.raises(InvalidValue, match="TLS cannot use"):
        tls_context(TlsFiles(certificate=files.key, key=files.key))
