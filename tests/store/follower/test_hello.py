"""Two stores of this package: tokens, TLS, and a fence against two masters."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from commitlog_store import MessageStore
from commitlog_store.errors import PeerRefused, ReplicaStore
from commitlog_store.follower.promote import promote
from commitlog_store.format.ha_transfer import encode_offset
from commitlog_store.replication import epoch_reporter
from commitlog_store.replication.epoch_reporter import EpochReporter
from commitlog_store.replication.handshake import Security, answer_hello
from commitlog_store.replication.peer import MasterAddress
from commitlog_store.replication.replica_mark import read_mark
from tests.store.follower.certificates import make_certificate
from tests.store.follower.mirrors import assert_identical, follow, master_of
from tests.store.owner.owned_store import put_ok, small
from tests.support.scripted_master import ScriptedMaster
from tests.support.scripted_slave import ScriptedSlave
from tests.support.waiting import WAIT_LIMIT_S, wait_for


@pytest.fixture
def tokens(tmp_path: Path) -> dict[str, str]:
    """The settings with a token, and with another one."""
    for name in ("one", "two"):
        (tmp_path / name).write_text(f"{name}-secret\n")
    return {name: str(tmp_path / name) for name in ("one", "two")}


def test_sides_with_one_token_replicate(tmp_path: Path, tokens: dict[str, str]) -> None:
    settings = {"ha_token_file": tokens["one"]}
    with master_of(tmp_path / "master", **settings) as master:
        put_ok(master)
        with follow(master, tmp_path / "mirror", settings=settings) as follower:
            assert_identical(master, follower)


def test_a_slave_with_another_token_is_refused_on_both_sides(
    tmp_path: Path, tokens: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with master_of(tmp_path / "master", ha_token_file=tokens["one"]) as master:
        put_ok(master)
        with (
            follow(master, tmp_path / "mirror", settings={"ha_token_file": tokens["two"]}) as follower,
            pytest.raises(PeerRefused, match="another token"),
        ):
            follower.wait_for(1, timeout_s=WAIT_LIMIT_S)
        assert not master.slaves()


def test_a_slave_without_a_hello_is_not_served_where_there_is_a_token(
    tmp_path: Path, tokens: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with master_of(tmp_path / "master", ha_token_file=tokens["one"]) as master:
        put_ok(master)
        with ScriptedSlave(master.ha_address, 1) as slave:
            assert slave.was_closed()
        assert "without a hello" in caplog.text


def test_a_token_is_for_a_master_of_this_package(tmp_path: Path, tokens: dict[str, str]) -> None:
    """A RocketMQ master takes the hello for an offset, and sends nothing."""
    with (
        ScriptedMaster(lambda slave: slave.send(bytes(100))) as master,
        follow(master.address, tmp_path / "mirror", settings={"ha_token_file": tokens["one"]}) as follower,
        pytest.raises(PeerRefused, match="without a token and TLS"),
    ):
        follower.wait_for(1, timeout_s=WAIT_LIMIT_S)


def test_tls_carries_many_frames(tmp_path: Path, tokens: dict[str, str]) -> None:
    certificate, key = make_certificate(tmp_path)
    with master_of(
        tmp_path / "master",
        ha_tls_certificate=str(certificate),
        ha_tls_key=str(key),
        ha_token_file=tokens["one"],
        broker_role="SYNC_MASTER",
    ) as master:
        settings = {"ha_tls_ca": str(certificate), "ha_token_file": tokens["one"]}
        with follow(master, tmp_path / "mirror", settings=settings) as follower:
            wait_for(lambda: any(slave.request_offset >= 0 for slave in master.slaves()))
            for number in range(300):
                put_ok(master, body=b"%d " % number * 100)
            assert_identical(master, follower)


def test_a_master_that_the_authority_does_not_know_is_refused(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    other, _ = make_certificate(tmp_path, "other")
    with (
        master_of(tmp_path / "master", ha_tls_certificate=str(certificate), ha_tls_key=str(key)) as master,
        follow(master, tmp_path / "mirror", settings={"ha_tls_ca": str(other)}) as follower,
        pytest.raises(PeerRefused, match="TLS with the master"),
    ):
        follower.wait_for(1, timeout_s=WAIT_LIMIT_S)


def _promoted(tmp_path: Path, settings: dict[str, str]) -> str:
    """A mirror that was promoted, and the address of its old master, which is closed."""
    with master_of(tmp_path / "master", **settings) as master:
        address = master.ha_address
        assert address is not None
        with follow(master, tmp_path / "mirror", settings=settings) as follower:
            put_ok(master)
            assert_identical(master, follower)
    promote(tmp_path / "mirror")
    return address


def test_an_old_master_that_returns_is_told_and_takes_no_more_messages(
    tmp_path: Path, tokens: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epoch_reporter, "_INTERVAL_S", 0.1)
    settings = {"ha_token_file": tokens["one"]}
    address = _promoted(tmp_path, settings)
    with master_of(tmp_path / "mirror", **settings) as new:
        put_ok(new)
        with master_of(tmp_path / "master", **{**settings, "ha_listen_address": address}) as old:
            wait_for(lambda: not old.writable)
            # Its answer comes after that, unless it closes before.
            wait_for(lambda: read_mark(str(tmp_path / "mirror")) is None)
        with pytest.raises(ReplicaStore, match="superseded by epoch 1"):
            MessageStore.open(tmp_path / "master", small())
        put_ok(new)


def test_a_slave_of_a_higher_epoch_supersedes_a_master(tmp_path: Path, tokens: dict[str, str]) -> None:
    """Also when the promoted store does not know where its old master is: the first to meet it tells it."""
    settings = {"ha_token_file": tokens["one"]}
    _promoted(tmp_path, settings)
    with (
        master_of(tmp_path / "mirror", **settings) as new,
        follow(new, tmp_path / "second", settings=settings) as follower,
    ):
        assert_identical(new, follower)
    with master_of(tmp_path / "master", **settings) as old:
        with (
            follow(old, tmp_path / "second", settings=settings) as follower,
            pytest.raises(PeerRefused, match="was superseded"),
        ):
            follower.wait_for(follower.status.end + 1, timeout_s=WAIT_LIMIT_S)
        wait_for(lambda: not old.writable)


def test_an_old_master_that_is_killed_while_it_is_told_is_told_again() -> None:
    """It proved its token, and ended before it took the epoch in: the report does not count."""
    told: list[bool] = []
    answers = [False, True]
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for confirms in answers:
                peer, _ = listener.accept()
                with peer:
                    hello = answer_hello(peer, b"", token="", epoch=0, timeout_s=WAIT_LIMIT_S)
                    if confirms:
                        peer.sendall(encode_offset(hello.epoch))

        thread = threading.Thread(target=serve)
        thread.start()
        address = MasterAddress(*listener.getsockname())
        reporter = EpochReporter(address, 3, Security(), lambda: told.append(True))
        reporter.run_once()
        assert not told
        reporter.run_once()
        thread.join(WAIT_LIMIT_S)
    assert told == [True]
