"""Closing either end waits for no peer: not for one that is silent while it connects, begins TLS, or says its hello."""

from __future__ import annotations

import itertools
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from commitlog_store.follower import log_follower, mirror_start
from commitlog_store.follower.remoting import RemotingClient
from commitlog_store.format.ha_hello import MAGIC
from commitlog_store.format.ha_transfer import encode_offset
from commitlog_store.replication import connection, epoch_reporter
from commitlog_store.replication.epoch_reporter import EpochReporter
from commitlog_store.replication.handshake import Security
from commitlog_store.replication.peer import MasterAddress, parse_address
from tests.store.follower.certificates import make_certificate
from tests.store.follower.mirrors import assert_identical, follow, master_of
from tests.store.owner.owned_store import open_store, put_ok
from tests.support.waiting import WAIT_LIMIT_S, wait_for

# How long each of the waits is that closing ends.
_WAITS_S = 2 * WAIT_LIMIT_S


@pytest.fixture(autouse=True)
def _long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in (
        (log_follower, "_CONNECT_S"),
        (mirror_start, "_CONNECT_S"),
        (connection, "_HELLO_S"),
        (epoch_reporter, "_TIMEOUT_S"),
    ):
        monkeypatch.setattr(module, name, _WAITS_S)
    connect, waits_s = RemotingClient.__init__, itertools.chain([0.3], itertools.repeat(_WAITS_S))

    def connect_and_wait(client: RemotingClient, *given: Any, **named: Any) -> None:
        connect(client, *given, **named | {"timeout_s": next(waits_s)})  # a new mirror waits for the first answer

    monkeypatch.setattr(RemotingClient, "__init__", connect_and_wait)


@contextmanager
def _quick() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < _WAITS_S / 4


@pytest.mark.parametrize("how", ["tls", "hello"])
def test_a_master_does_not_wait_for_a_silent_slave(tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture) -> None:
    if how == "tls":
        certificate, key = make_certificate(tmp_path)
        settings = {"ha_tls_certificate": str(certificate), "ha_tls_key": str(key)}
    else:
        (tmp_path / "token").write_text("secret")
        settings = {"ha_token_file": str(tmp_path / "token")}
    with master_of(tmp_path / "master", **settings) as master, ExitStack() as peers:
        assert master.ha_address is not None
        for _ in range(3):
            peer = socket.create_connection(parse_address(master.ha_address))
            peers.enter_context(peer)
            if how == "hello":
                peer.sendall(encode_offset(MAGIC))
        wait_for(lambda: len(master.slaves()) == 3)
        time.sleep(0.1)  # their threads wait for them by now
        with _quick():
            master.close()
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@contextmanager
def _full_listener() -> Iterator[MasterAddress]:
    """A port at which connecting takes for ever."""
    with socket.socket() as listener, ExitStack() as waiting:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
        yield MasterAddress(*listener.getsockname())


@pytest.mark.parametrize("how", ["connect", "tls", "hello", "remoting"])
def test_a_follower_does_not_wait_for_a_silent_master(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {}
    if how == "tls":
        settings["ha_tls_ca"] = str(make_certificate(tmp_path)[0])
    elif how == "hello":
        (tmp_path / "token").write_text("secret")
        settings["ha_token_file"] = str(tmp_path / "token")
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        if how == "connect":
            address = str(stack.enter_context(_full_listener()))
        config_from = None
        if how == "remoting":  # which a new mirror waits for
            config_from = address
            with open_store(tmp_path / "mirror") as copied:
                put_ok(copied)
        with follow(address, tmp_path / "mirror", settings=settings, config_from=config_from) as follower:
            for _ in range({"connect": 0, "remoting": 3}.get(how, 1)):
                stack.enter_context(listener.accept()[0])
            time.sleep(0.1)  # the thread waits for its answer by now
            with _quick():
                follower.close()
            assert (follower.failure, follower.config_error) == (None, None)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("how", ["connect", "hello"])
def test_a_report_of_an_epoch_ends_at_once(how: str, caplog: pytest.LogCaptureFixture) -> None:
    with ExitStack() as stack:
        if how == "connect":
            address = stack.enter_context(_full_listener())
        else:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            address = MasterAddress(*listener.getsockname())
        reporter = EpochReporter(address, 3, Security(), lambda: None)
        thread = threading.Thread(target=reporter.run_once)
        thread.start()
        time.sleep(0.1)  # it waits by now
        with _quick():
            reporter.hang_up()
            thread.join(WAIT_LIMIT_S)
    assert not caplog.records


def test_closing_both_ends_warns_of_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with master_of(tmp_path / "master") as master:
        put_ok(master)
        with follow(master, tmp_path / "mirror") as follower:
            assert_identical(master, follower)
            wait_for(lambda: follower.status.caught_up)
            with _quick():
                follower.close()
        with follow(master, tmp_path / "second") as follower:
            assert_identical(master, follower)
            follower.close()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
