"""The store host without a setting: this machine's address, so that message ids of two machines differ."""

from __future__ import annotations

import resource
import socket
import sys
from pathlib import Path

import pytest

from commitlog_store import MessageStoreConfig
from commitlog_store.errors import TooManyOpenFiles
from commitlog_store.files.local_address import address_to_reach, choose_address, local_address
from tests.store.owner.owned_store import open_store, put_ok


@pytest.mark.parametrize(
    ("ipv4", "ipv6", "chosen"),
    [
        (["127.0.0.1", "10.0.0.5", "10.0.0.6"], ["2001:db8::1"], "10.0.0.5"),
        (["127.0.0.1", "192.168.1.9", "10.0.0.5"], [], "10.0.0.5"),
        (["127.0.0.1", "192.168.1.9", "192.168.2.9"], ["2001:db8::1"], "192.168.2.9"),
        (["127.0.0.1", "127.0.1.1"], ["::1", "fe80::1", "2001:db8::1"], "2001:db8::1"),
        (["127.0.0.1"], ["::1", "fe80::1"], "127.0.0.1"),
        ([], [], "127.0.0.1"),
    ],
)
def test_the_address_is_the_one_that_a_broker_takes(ipv4: list[str], ipv6: list[str], chosen: str) -> None:
    assert choose_address(ipv4, ipv6) == chosen


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere it is 127.0.0.1")
def test_the_address_is_one_of_this_machine() -> None:
    family = socket.AF_INET6 if ":" in local_address() else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as bound:
        bound.bind((local_address(), 0))


def test_a_server_of_all_addresses_is_reached_by_the_kind_that_it_listens_on() -> None:
    assert address_to_reach("0.0.0.0") == local_address()
    assert ":" in address_to_reach("::")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere it is 127.0.0.1")
def test_an_interface_that_goes_while_all_are_asked_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = local_address()
    there = socket.if_nameindex()
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1 << 20, "gone0"), *there])
    assert local_address.__wrapped__() == expected


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere it is 127.0.0.1")
def test_without_descriptors_no_other_address_is_taken_and_kept() -> None:
    expected = local_address()
    local_address.cache_clear()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(TooManyOpenFiles):
            local_address()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert local_address() == expected


def test_messages_and_their_ids_have_the_address_and_the_setting_has_precedence(tmp_path: Path) -> None:
    with open_store(tmp_path / "own") as store:
        result = put_ok(store)
        (message,) = store.get_message("orders", 0, 0, wait_s=10).messages
        assert message.store_host == f"{local_address()}:10911"
        assert message.message_id == result.message_id
    with open_store(tmp_path / "set", broker_ip="10.0.0.7", listen_port=1) as store:
        assert put_ok(store).message_id == "0A00000700000001" + "0" * 16
    assert MessageStoreConfig(broker_ip="10.0.0.7").store_host == "10.0.0.7:10911"
