"""Offset message ids lead to the record that they name, and hosts read as Java prints them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog_store.errors import InvalidValue
from commitlog_store.format.message_id import (
    MessageId,
    decode_message_id,
    encode_message_id,
    encode_message_ids,
    format_host,
    parse_host,
)
from tests.store.format.golden_files import STORES, messages

IPV4 = bytes([10, 1, 2, 3])
IPV6 = bytes.fromhex("20010db8000000000000000000000085")
MAPPED = bytes(10) + b"\xff\xff" + IPV4

IPS = st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16)


@pytest.mark.parametrize("store", STORES)
def test_ids_are_those_that_rocketmq_gave(store: str) -> None:
    for message in messages(store):
        host, port = parse_host(message["storeHost"])
        assert encode_message_id(host, port, message["physicalOffset"]) == message["msgId"]
        assert decode_message_id(message["msgId"]) == MessageId(host, port, message["physicalOffset"])


@pytest.mark.parametrize("store", STORES)
def test_hosts_read_as_rocketmq_prints_them(store: str) -> None:
    hosts = {message[which] for message in messages(store) for which in ("bornHost", "storeHost")}
    assert hosts
    for host in hosts:
        assert format_host(*parse_host(host)) == host


def test_ipv6_hosts_are_among_those_compared() -> None:
    assert any(message["bornHost"].count(":") == 8 for message in messages(STORES[0]))


def test_id_of_an_ipv4_host_has_32_characters() -> None:
    assert encode_message_id(IPV4, 10911, 962499) == "0A01020300002A9F00000000000EAFC3"


def test_id_of_an_ipv6_host_has_56_characters() -> None:
    text = encode_message_id(IPV6, 10911, 1)
    assert text == "20010DB8000000000000000000000085" + "00002A9F" + "0000000000000001"
    assert decode_message_id(text) == (IPV6, 10911, 1)


@given(IPS, st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**63 - 1))
def test_ids_are_read_back(host: bytes, port: int, physical_offset: int) -> None:
    text = encode_message_id(host, port, physical_offset)
    assert decode_message_id(text) == decode_message_id(text.lower()) == MessageId(host, port, physical_offset)


@pytest.mark.parametrize("length", [0, 1, 31, 33, 55, 57, 64])
def test_id_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(InvalidValue, match=f"has {length}"):
        decode_message_id("0" * length)


@pytest.mark.parametrize("character", ["G", " ", "\n", "-", "é", "٣"])
def test_id_with_something_else_than_hex_digits_is_refused(character: str) -> None:
    for text in (character + "0" * 31, "0" * 31 + character):
        with pytest.raises(InvalidValue, match="hexadecimal"):
            decode_message_id(text)


def test_id_with_a_negative_physical_offset_is_refused() -> None:
    with pytest.raises(InvalidValue, match="offsets start at 0"):
        decode_message_id("0A01020300002A9F" + "F" * 16)


@pytest.mark.parametrize("size", [0, 3, 5, 15, 17])
def test_ip_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(InvalidValue, match=f"not {size}"):
        encode_message_id(bytes(size), 1, 1)
    with pytest.raises(InvalidValue, match=f"not {size}"):
        format_host(bytes(size), 1)


@pytest.mark.parametrize(
    ("port", "physical_offset"),
    [
        pytest.param(2**31, 0, id="port-too-large"),
        pytest.param(-(2**31) - 1, 0, id="port-too-small"),
        pytest.param(0, 2**63, id="offset-too-large"),
        pytest.param(0, -(2**63) - 1, id="offset-too-small"),
    ],
)
def test_number_that_does_not_fit_an_id_is_refused(port: int, physical_offset: int) -> None:
    with pytest.raises(InvalidValue, match="not"):
        encode_message_id(IPV4, port, physical_offset)


def test_ipv4_host_is_dotted() -> None:
    assert format_host(bytes([192, 168, 1, 9]), 4000) == "192.168.1.9:4000"
    assert format_host(bytes(4), 0) == "0.0.0.0:0"
    assert format_host(b"\xff" * 4, 65535) == "255.255.255.255:65535"


def test_ipv6_host_leaves_no_group_out_and_has_no_leading_zeros() -> None:
    assert format_host(IPV6, 40420) == "2001:db8:0:0:0:0:0:85:40420"
    assert format_host(bytes(15) + b"\x01", 1) == "0:0:0:0:0:0:0:1:1"


def test_ipv4_address_within_ipv6_reads_as_ipv4_as_java_holds_it() -> None:
    assert format_host(MAPPED, 10911) == "10.1.2.3:10911"


def test_host_of_a_record_is_shown_even_with_a_port_that_cannot_be() -> None:
    assert format_host(IPV4, -1) == "10.1.2.3:-1"
    assert format_host(IPV4, 70000) == "10.1.2.3:70000"


@given(IPS.filter(lambda ip: len(ip) == 4 or ip[:12] != MAPPED[:12]), st.integers(0, 65535))
def test_hosts_are_read_back(host: bytes, port: int) -> None:
    assert parse_host(format_host(host, port)) == (host, port)


def test_ipv6_host_may_be_written_short() -> None:
    assert parse_host("2001:DB8::85:40420") == (IPV6, 40420)
    assert parse_host("::1:10911") == (bytes(15) + b"\x01", 10911)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10.1.2.3",
        "10.1.2.3:",
        ":10911",
        "10.1.2:10911",
        "10.1.2.256:10911",
        "10.1.2.3:-1",
        "10.1.2.3:65536",
        "10.1.2.3:1000000",
        "10.1.2.3:1\n",
        "10.1.2.3:٣",
        "localhost:10911",
        "/10.1.2.3:10911",
        "[::1]:10911",
        "1:2:3:4:5:6:7:10911",
        "1:2:3:4:5:6:7:8:9:10911",
        "fe80::1%eth0:10911",
    ],
)
def test_a_text_that_is_not_a_host_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue):
        parse_host(text)


@given(IPS, st.integers(0, 65_535), st.lists(st.integers(0, (1 << 63) - 1)))
def test_ids_of_several_messages_are_those_of_each(host: bytes, port: int, offsets: list[int]) -> None:
    assert encode_message_ids(host, port, offsets) == [encode_message_id(host, port, one) for one in offsets]
