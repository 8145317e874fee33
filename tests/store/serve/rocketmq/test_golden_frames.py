"""Frames that RocketMQ's clients and a real broker sent each other are decoded, and written so that they mean the same.

``golden/`` has a file for each client: Java 5.3.3 and 4.9.8 with both kinds of header, Go, and the broker itself, which
speaks to its name server. `tests/interop/clients` records them.
"""

from __future__ import annotations

import base64
import json
import struct
from dataclasses import dataclass
from pathlib import Path

import pytest

from commitlog_store.format.remoting_command import HeaderKind, RemotingCommand, RemotingError, decode
from commitlog_store.serve.rocketmq.codes import RequestCode

GOLDEN = Path(__file__).parent / "golden"
CLIENTS = sorted(path.stem for path in GOLDEN.glob("*.jsonl"))


@dataclass(frozen=True, kw_only=True)
class Golden:
    """A request and its answer, None when there was none; frames without the 4 bytes of their length."""

    code: int
    is_from_client: bool
    server: str
    request: bytes
    answer: bytes | None


def golden(client: str) -> list[Golden]:
    """What the client and its servers said to each other."""
    found = []
    for line in (GOLDEN / f"{client}.jsonl").read_text().splitlines():
        one = json.loads(line)
        answer = None if one["answer"] is None else base64.b64decode(one["answer"])
        request = base64.b64decode(one["request"])
        named = {name: one[name] for name in ("code", "is_from_client", "server")}
        found.append(Golden(**named, request=request, answer=answer))
    return found


def frames(client: str) -> list[bytes]:
    return [frame for one in golden(client) for frame in (one.request, one.answer) if frame is not None]


@pytest.mark.parametrize("client", CLIENTS)
def test_each_frame_is_decoded_and_written_again_with_the_same_meaning(client: str) -> None:
    for frame in frames(client):
        command = decode(frame)
        encoded = command.encode()
        assert struct.unpack_from(">i", encoded)[0] == len(encoded) - 4
        assert decode(encoded[4:]) == command


@pytest.mark.parametrize("client", CLIENTS)
def test_answers_repeat_the_number_of_their_request(client: str) -> None:
    for one in golden(client):
        request = decode(one.request)
        assert request.code == one.code
        assert not request.is_response
        assert request.is_one_way == (one.answer is None)
        if one.answer is not None:
            answer = decode(one.answer)
            assert answer.is_response
            assert answer.opaque == request.opaque
            assert answer.kind is HeaderKind.JSON, "5.3.3 answers in the kind it is configured with; clients take both"


def kinds(client: str) -> set[HeaderKind]:
    """Of the requests of the client itself."""
    return {decode(one.request).kind for one in golden(client) if one.is_from_client}


def test_there_are_clients_of_both_kinds_of_header() -> None:
    assert {client: kinds(client) for client in CLIENTS} == {
        "broker-5.3.3": {HeaderKind.JSON},
        "go": {HeaderKind.JSON},
        "java-4.9.8": {HeaderKind.JSON},
        "java-4.9.8-rocketmq": {HeaderKind.ROCKETMQ},
        "java-5.3.3": {HeaderKind.JSON},
        "java-5.3.3-rocketmq": {HeaderKind.ROCKETMQ},
    }


def requests(client: str, code: int, *, is_from_client: bool = True) -> list[RemotingCommand]:
    """The requests with a code."""
    found = [decode(one.request) for one in golden(client) if one.is_from_client == is_from_client]
    return [one for one in found if one.code == code]


def test_members_of_unusual_types_mean_the_same() -> None:
    """fastjson writes numbers and booleans of some fields without quotes, and other clients write null."""
    usual = b'{"code":310,"extFields":{"b":"orders","e":"3","k":"true"},"flag":2,"opaque":7,"version":479}'
    unusual = (
        usual.replace(b'"3"', b"3").replace(b'"true"', b'true,"n":null').replace(b'"code"', b'"remark":null,"code"')
    )
    first, second = (decode(struct.pack(">I", len(header)) + header + b"body") for header in (usual, unusual))
    assert first == second
    assert first.fields == {"b": "orders", "e": "3", "k": "true"}
    assert first.body == b"body"


def test_members_that_are_only_shown_may_have_any_type() -> None:
    header = b'{"code":310,"extFields":[],"language":9,"remark":5}'
    found = decode(struct.pack(">I", len(header)) + header)
    assert (found.code, found.fields, found.language, found.remark) == (310, {}, "9", "5")


@pytest.mark.parametrize("code", [b"1e3", b"2147483648", b'"310"', b"null"])
def test_a_code_that_is_no_number_of_32_bits_is_refused(code: bytes) -> None:
    header = b'{"code":%s}' % code
    with pytest.raises(RemotingError, match=r"\$\.code"):
        decode(struct.pack(">I", len(header)) + header)


def test_the_fields_of_a_send_are_read_from_both_kinds_of_header() -> None:
    """Field b is the topic, i are the properties; bodies come as they are."""
    for client in ("java-5.3.3", "java-4.9.8-rocketmq"):
        sends = requests(client, RequestCode.SEND_MESSAGE_V2)
        assert sends
        for one in sends:
            assert one.fields["b"].startswith("test")
            assert one.body
            assert "UNIQ_KEY\x01" in one.fields["i"]
    named = [
        one for one in requests("java-4.9.8-rocketmq", RequestCode.SEND_MESSAGE_V2) if "name\x01" in one.fields["i"]
    ]
    assert "name\x01Zürich 水" in named[0].fields["i"]


def test_brokers_ask_clients_too() -> None:
    """Of transactions whose outcome is unknown, and of a group whose members have changed."""
    for client in ("java-5.3.3", "java-4.9.8", "go"):
        for code in (RequestCode.CHECK_TRANSACTION_STATE, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED):
            assert requests(client, code, is_from_client=False), (client, code)
