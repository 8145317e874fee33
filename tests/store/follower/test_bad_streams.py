"""A network that cuts, delays, doubles and changes bytes: the mirror stores nothing wrong, and ends with everything."""

from __future__ import annotations

import contextlib
import itertools
import random
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import MessageStore
from commitlog_store.errors import PeerRefused
from tests.store.follower.certificates import make_certificate
from tests.store.follower.mirrors import assert_identical, follow, log_bytes, master_of
from tests.store.owner.owned_store import put_ok
from tests.support.clean_store import assert_clean
from tests.support.cutting_proxy import CuttingProxy, body_of_high_bytes
from tests.support.waiting import wait_for


def _put_some(master: MessageStore, chance: random.Random, version: int) -> None:
    for number in range(12):
        master.put("orders", body_of_high_bytes(chance, chance.choice([600, 2_000, 6_000])), queue_id=number % 2)
    rows = [body_of_high_bytes(chance, 1_000) for _ in range(chance.choice([3, 40]))]
    with master.transaction("app", version) as transaction:
        transaction.put_messages(pa.table({"body": rows}), topic="batches")


def _sealed(root: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The settings of a master and of a mirror, with TLS and a token."""
    certificate, key = make_certificate(root)
    (root / "token").write_text("secret")
    token = {"ha_token_file": str(root / "token")}
    ours = {"ha_tls_certificate": str(certificate), "ha_tls_key": str(key)}
    return ours | token, {"ha_tls_ca": str(certificate)} | token


def follow_through(root: Path, turns: int, seed: int, *, least: int, sealed: bool = False) -> None:
    """Follow through a bad network until each kind of damage was done so often, then through a good one."""
    chance = random.Random(seed)
    mirror = root / "mirror"
    ours, theirs = _sealed(root) if sealed else ({}, {})
    with (
        master_of(root / "master", **ours) as master,
        CuttingProxy(str(master.ha_address), seed, sealed=sealed) as proxy,
    ):
        for turn in itertools.count():
            if turn >= turns and min(proxy.done.values()) >= least:
                break
            _put_some(master, chance, 2 * turn + 1)
            # A follower gives up a master from which it got wrong bytes several times in a row.
            with follow(proxy.address, mirror, settings=theirs) as follower, contextlib.suppress(PeerRefused):
                _put_some(master, chance, 2 * turn + 2)
                follower.wait_for(master.physical_bounds()[1], timeout_s=0.5)
            end = follower.status.end
            assert log_bytes(mirror, 0, end) == log_bytes(root / "master", 0, end)
            assert_clean(mirror)
        proxy.honest = True
        with follow(proxy.address, mirror, settings=theirs) as follower:
            assert_identical(master, follower)
    assert_clean(mirror)


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "TLS and token"])
def test_a_bad_network_leaves_nothing_wrong_in_the_mirror(tmp_path: Path, sealed: bool) -> None:
    follow_through(tmp_path, 8, seed=1, least=1, sealed=sealed)


@pytest.mark.parametrize("damage", ["flip", "double"])
def test_under_tls_each_damage_ends_the_connection_by_name(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = _sealed(tmp_path)
    with (
        master_of(tmp_path / "master", **ours) as master,
        CuttingProxy(str(master.ha_address), 1, sealed=True) as proxy,
    ):
        proxy.honest = True
        with follow(proxy.address, tmp_path / "mirror", settings=theirs) as follower:
            for turn in range(1, 4):
                # The first connection has come through TLS and the hello, and so has each one after a damage.
                put_ok(master)
                assert_identical(master, follower)
                caplog.clear()
                proxy.next = damage
                put_ok(master, body=b"changed on the way" * 100)
                assert_identical(master, follower)
                assert proxy.done[damage] == turn
                wait_for(lambda: any("is not connected to its master" in text for text in caplog.messages))
                # A length that was changed may make TLS wait for bytes that never come.
                assert "[SSL: " in caplog.text or "timed out" in caplog.text


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "TLS and token"])
@pytest.mark.parametrize("seed", range(100, 120))
def test_bad_networks_leave_nothing_wrong_in_the_mirror(tmp_path: Path, seed: int, sealed: bool) -> None:
    follow_through(tmp_path, 60, seed, least=3, sealed=sealed)
