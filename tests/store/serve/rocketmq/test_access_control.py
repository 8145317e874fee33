"""Access control: signatures as RocketMQ makes them, what each request needs, and accounts that change."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commitlog_store import Message
from commitlog_store.errors import InvalidValue, ReadFailed
from commitlog_store.format.remoting_command import HeaderKind, RemotingCommand, signature
from commitlog_store.serve.listen import ListenSettings
from commitlog_store.serve.rocketmq.access.access_control import AccessControl
from commitlog_store.serve.rocketmq.access.plain_acl import AccessDenied
from commitlog_store.serve.rocketmq.access.request_needs import ADMIN_CODES, NEEDS
from commitlog_store.serve.rocketmq.broker import RocketMQSettings
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from tests.store.serve.rocketmq.brokers import Served, broker
from tests.store.serve.rocketmq.remoting_client import RemotingClient, pull_fields, records, send_fields
from tests.store.serve.rocketmq.signed_client import SignedClient
from tests.support.waiting import wait_for

SECRET = "a-secret-of-somebody"
ACL = f"""
accounts:
  - accessKey: the-admin
    secretKey: {SECRET}
    admin: true
  - accessKey: somebody
    secretKey: {SECRET}
    topicPerms:
      - orders=PUB
      - payments=SUB
      - both=PUB|SUB
    groupPerms:
      - billing=SUB
  - accessKey: from-elsewhere
    secretKey: {SECRET}
    whiteRemoteAddress: 192.0.2.*
"""
NO_PERMISSION = ResponseCode.NO_PERMISSION


@pytest.fixture
def acl(tmp_path: Path) -> Path:
    path = tmp_path / "plain_acl.yml"
    path.write_text(ACL)
    return path


@pytest.fixture
def served(tmp_path: Path, acl: Path) -> Iterator[Served]:
    with broker(tmp_path / "s", acl=acl) as one:
        for topic in ("orders", "payments", "both", "others"):
            one.store.put_message(Message(topic=topic, body=topic.encode(), keys=["k"]))
        one.store.dispatch()
        yield one


@pytest.fixture
def client(served: Served) -> Iterator[SignedClient]:
    with SignedClient(served.address, "somebody", SECRET) as one:
        yield one


def test_signatures_are_those_of_rocketmqs_signer() -> None:
    """Made by AclClientRPCHook and AclSigner of 4.9.8, and the same by those of 5.3.3."""
    fields = {
        "a": "orders-producers",
        "b": "orders",
        "c": "TBW102",
        "d": "4",
        "e": "0",
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": "KEYS\x0117\x02ä水\x01🚀",
        "j": "0",
        "k": "false",
        "m": "false",
        "AccessKey": "rocketmq2",
        "SecurityToken": "a token",
        "Signature": "left out",
    }
    assert signature(fields, "order 17: päid".encode(), b"12345678") == "6//4HGWfSA1Hm2UK7cL1/5JJ+lU="
    assert signature({}, b"some text", b"a secret key") == "Talf415XtTC4blP7HF8EGF7/BPQ="
    assert signature({}, b"", b"12345678") == "beQgVA0KNM4WtCe68fj2DEn3WWU="


@pytest.mark.parametrize("kind", HeaderKind)
def test_a_client_with_an_account_produces_and_consumes(served: Served, kind: HeaderKind) -> None:
    with SignedClient(served.address, "somebody", SECRET, kind=kind) as client:
        assert client.route("both")
        assert client.send("both", b"signed", properties={"KEYS": "ä水"}).code == 0
        served.store.dispatch()
        found = records(client.pull("both", 0, 0, consumerGroup="billing"))
        assert found[-1].body == b"signed"


def test_what_is_not_signed_is_refused(served: Served) -> None:
    with RemotingClient(served.address) as client:
        answer = client.send("orders", b"x")
        assert (answer.code, answer.remark) == (NO_PERMISSION, "No accessKey is configured")
        for code in RequestCode:
            found = client.ask(code)
            expected = (NO_PERMISSION, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
            assert found.code in expected, code


def test_an_account_that_does_not_exist_is_refused(served: Served) -> None:
    with SignedClient(served.address, "nobody" * 1000, SECRET) as client:
        answer = client.send("orders", b"x")
        assert answer.code == NO_PERMISSION
        assert (answer.remark or "").startswith("No acl config for nobody")
        assert len(answer.remark or "") < 200


def test_another_secret_is_refused(served: Served) -> None:
    with SignedClient(served.address, "somebody", SECRET + "x") as client:
        answer = client.send("orders", b"x")
        assert (answer.code, answer.remark) == (NO_PERMISSION, "Check signature failed for accessKey=somebody")


@pytest.mark.parametrize("changed", ["field", "body", "more", "signature", "no signature", "umlaut"])
def test_a_request_that_was_changed_is_refused(served: Served, client: SignedClient, changed: str) -> None:
    fields = client.signed({name: str(value) for name, value in send_fields("orders").items()}, b"x")
    body = b"y" if changed == "body" else b"x"
    if changed == "field":
        fields["b"] = "both"
    elif changed == "more":
        fields["z"] = "z"
    elif changed == "signature":
        fields["Signature"] = ("B" if fields["Signature"][0] == "A" else "A") + fields["Signature"][1:]
    elif changed == "no signature":
        del fields["Signature"]
    elif changed == "umlaut":
        fields["Signature"] = "ä水"
    end = served.store.physical_bounds()
    with RemotingClient(served.address) as other:
        assert other.ask(RequestCode.SEND_MESSAGE_V2, fields, body).code == NO_PERMISSION
    assert served.store.physical_bounds() == end


def heartbeat(group: str, *topics: str) -> bytes:
    data = [{"topic": topic, "subString": "*"} for topic in topics]
    consumers = [{"groupName": group, "subscriptionDataSet": data}]
    return json.dumps({"clientID": "c", "consumerDataSet": consumers}).encode()


def long_send(topic: str) -> dict[str, Any]:
    return {
        "producerGroup": "p",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": 0,
        "sysFlag": 0,
        "bornTimestamp": 0,
        "flag": 0,
        "properties": "",
    }


POSITION = {"queueId": 0, "commitOffset": 0}
LOCKS = b'{"consumerGroup":"%s","clientId":"c","mqSet":[]}'
DENIED = [
    (RequestCode.SEND_MESSAGE, long_send("payments"), b"x", "topic:payments"),
    (RequestCode.SEND_MESSAGE_V2, send_fields("payments"), b"x", "topic:payments"),
    (RequestCode.SEND_MESSAGE_V2, send_fields("new"), b"x", "topic:new"),
    (RequestCode.SEND_BATCH_MESSAGE, send_fields("payments"), b"x", "topic:payments"),
    (RequestCode.SEND_MESSAGE_V2, send_fields("%RETRY%other"), b"x", "group:other"),
    (RequestCode.SEND_MESSAGE_V2, send_fields("%DLQ%billing"), b"x", "topic:%DLQ%billing"),
    (RequestCode.PULL_MESSAGE, pull_fields("orders", 0, 0, consumerGroup="billing"), b"", "topic:orders"),
    (RequestCode.PULL_MESSAGE, pull_fields("payments", 0, 0, consumerGroup="other"), b"", "group:other"),
    (RequestCode.LITE_PULL_MESSAGE, pull_fields("orders", 0, 0, consumerGroup="billing"), b"", "topic:orders"),
    (RequestCode.PULL_MESSAGE, pull_fields("%RETRY%other", 0, 0, consumerGroup="billing"), b"", "group:other"),
    (RequestCode.PULL_MESSAGE, pull_fields("%DLQ%other", 0, 0, consumerGroup="billing"), b"", "topic:%DLQ%other"),
    (RequestCode.CONSUMER_SEND_MSG_BACK, {"offset": 0, "group": "other", "delayLevel": 0}, b"", "group:other"),
    (RequestCode.QUERY_MESSAGE, {"topic": "orders", "key": "k", "maxNum": 1}, b"", "topic:orders"),
    (RequestCode.HEART_BEAT, {}, heartbeat("other", "payments"), "group:other"),
    (RequestCode.HEART_BEAT, {}, heartbeat("billing", "payments", "orders"), "topic:orders"),
    (RequestCode.UNREGISTER_CLIENT, {"clientID": "c", "consumerGroup": "other"}, b"", "group:other"),
    (RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "other"}, b"", "group:other"),
    (
        RequestCode.UPDATE_CONSUMER_OFFSET,
        {"consumerGroup": "other", "topic": "payments", **POSITION},
        b"",
        "group:other",
    ),
    (
        RequestCode.UPDATE_CONSUMER_OFFSET,
        {"consumerGroup": "billing", "topic": "orders", **POSITION},
        b"",
        "topic:orders",
    ),
    (RequestCode.LOCK_BATCH_MQ, {}, LOCKS % b"other", "group:other"),
    (RequestCode.UNLOCK_BATCH_MQ, {}, LOCKS % b"other", "group:other"),
    (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {"group": "other", "topic": "payments"}, b"", "group:other"),
    (RequestCode.CONSUME_MESSAGE_DIRECTLY, {"consumerGroup": "other", "clientId": "c"}, b"", "group:other"),
    (RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "other", "clientId": "c"}, b"", "group:other"),
]


@pytest.mark.parametrize(("code", "fields", "body", "what"), DENIED)
def test_each_request_needs_its_permissions(
    served: Served, client: SignedClient, code: RequestCode, fields: dict[str, Any], body: bytes, what: str
) -> None:
    end = served.store.physical_bounds()
    answer = client.ask(code, fields, body)
    assert (answer.code, answer.remark) == (NO_PERMISSION, f"No default permission for {what}")
    assert served.store.physical_bounds() == end
    with SignedClient(served.address, "the-admin", SECRET) as admin:
        assert "permission for" not in (admin.ask(code, fields, body).remark or "")


def test_no_request_with_needs_lacks_a_test() -> None:
    assert {code for code, *_ in DENIED} == NEEDS.keys()


@pytest.mark.parametrize("code", sorted(ADMIN_CODES))
def test_administration_needs_an_admin(served: Served, client: SignedClient, code: RequestCode) -> None:
    answer = client.ask(code, {"topic": "both"})
    assert answer.code == NO_PERMISSION
    assert answer.remark == f"Need admin permission for request code={code:d}, but accessKey=somebody is not"
    with SignedClient(served.address, "the-admin", SECRET) as admin:
        assert admin.ask(code, {"topic": "nothing"}).code != NO_PERMISSION


def test_what_is_allowed_is_answered(client: SignedClient) -> None:
    assert client.ask(RequestCode.HEART_BEAT, {}, heartbeat("billing", "payments", "%RETRY%billing")).code == 0
    assert client.pull("payments", 0, 0, consumerGroup="billing").code == 0
    assert client.ask(RequestCode.LOCK_BATCH_MQ, {}, LOCKS % b"billing").code == 0
    assert client.send("%RETRY%billing", b"again").code == 0
    trace = client.send("RMQ_SYS_TRACE_TOPIC", b"trace")
    assert "permission for" not in (trace.remark or "")


def test_a_message_by_its_place_needs_its_topic(served: Served, client: SignedClient) -> None:
    delayed = served.store.put_message(Message(topic="others", body=b"later", delay_level=18)).physical_offset
    for topic, code in (("payments", 0), ("both", 0), ("others", NO_PERMISSION), ("orders", NO_PERMISSION)):
        (message,) = served.store.get_message(topic, 0, 0).messages
        answer = client.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": message.physical_offset})
        assert (answer.code, bool(answer.body)) == (code, not code)
    assert client.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": delayed}).code == NO_PERMISSION


def test_a_message_of_another_topic_comes_by_no_way_around(served: Served, client: SignedClient) -> None:
    """Sent back to the account's own group, or consumed directly by its own consumer."""
    client.ask(RequestCode.HEART_BEAT, {}, heartbeat("billing", "payments"))
    for topic, is_refused in (("payments", False), ("others", True), ("orders", True)):
        (message,) = served.store.get_message(topic, 0, 0).messages
        end = served.store.physical_bounds()
        back = {"offset": message.physical_offset, "group": "billing", "delayLevel": 0}
        assert client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back).code == (NO_PERMISSION if is_refused else 0)
        assert (served.store.physical_bounds() == end) is is_refused
        direct = {"consumerGroup": "billing", "clientId": "nobody", "msgId": message.message_id}
        answer = client.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, direct)
        assert (answer.code == NO_PERMISSION) is is_refused
        assert ("not online" in str(answer.remark)) is not is_refused


def test_look_ups_by_unique_key_may_leave_their_mark_unsigned(served: Served, client: SignedClient) -> None:
    """As clients up to 4.9.3 do."""
    fields = client.signed({"topic": "payments", "key": "k", "maxNum": "1"}, b"")
    with RemotingClient(served.address) as old:
        answer = old.ask(RequestCode.QUERY_MESSAGE, {**fields, "_UNIQUE_KEY_QUERY": "true"})
        assert answer.code != NO_PERMISSION
        assert old.ask(RequestCode.QUERY_MESSAGE, {**fields, "_UNIQUE_KEY_QUERX": "true"}).code == NO_PERMISSION


def test_one_way_requests_that_are_refused_change_nothing(served: Served, client: SignedClient) -> None:
    end = served.store.physical_bounds()
    client.start(RequestCode.SEND_MESSAGE_V2, send_fields("payments"), b"x", one_way=True)
    assert client.route("payments")  # answered after it
    assert served.store.physical_bounds() == end


def test_settings_of_the_broker_show_no_secret(client: SignedClient) -> None:
    for code in (RequestCode.GET_BROKER_CONFIG, RequestCode.GET_BROKER_RUNTIME_INFO):
        answer = client.ask(code)
        assert answer.code == 0
        assert SECRET.encode() not in answer.body


def test_a_consumer_does_not_get_the_signature_of_who_asks(served: Served, client: SignedClient) -> None:
    client.ask(RequestCode.HEART_BEAT, {}, heartbeat("billing", "payments"))
    with SignedClient(served.address, "the-admin", SECRET) as admin:
        admin.start(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "billing", "clientId": "c"})
        found = client.receive()
        while found.code != RequestCode.GET_CONSUMER_RUNNING_INFO:
            found = client.receive()
        assert found.fields["consumerGroup"] == "billing"
        assert not {"AccessKey", "Signature"} & found.fields.keys()


def test_white_addresses_need_no_signature(tmp_path: Path, acl: Path) -> None:
    acl.write_text("globalWhiteRemoteAddresses:\n- 127.0.0.*\n")
    with broker(tmp_path / "s", acl=acl) as served, RemotingClient(served.address) as client:
        assert client.send("orders", b"x").code == 0


def test_an_account_with_a_white_address_needs_no_signature_from_there(acl: Path) -> None:
    access = AccessControl(str(acl))
    request = RemotingCommand(code=RequestCode.SEND_MESSAGE_V2, fields={"b": "orders", "AccessKey": "from-elsewhere"})
    assert access.check(request, "192.0.2.7") is None
    with pytest.raises(AccessDenied, match="Check signature failed"):
        access.check(request, "192.0.3.7")


def test_a_changed_file_holds_within_seconds(served: Served, acl: Path, client: SignedClient) -> None:
    assert client.send("orders", b"x").code == 0
    acl.write_text(ACL.replace("orders=PUB", "orders=DENY"))
    wait_for(lambda: client.send("orders", b"x").code == NO_PERMISSION)
    with SignedClient(served.address, "somebody-new", SECRET) as new:
        assert new.send("both", b"x").code == NO_PERMISSION
        other = acl.with_name("new.yml")
        other.write_text(ACL.replace("accessKey: somebody", "accessKey: somebody-new"))
        os.replace(other, acl)
        wait_for(lambda: new.send("both", b"x").code == 0)


@pytest.mark.parametrize("content", [None, b"", b"accounts:\n- accessKey: somebody", b"\xff\xfe", b"accounts:\n  *x"])
def test_a_broken_file_keeps_the_old_rules_and_is_logged_once(
    acl: Path, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    access = AccessControl(str(acl))
    request = RemotingCommand(code=RequestCode.GET_BROKER_CONFIG, fields={"AccessKey": "somebody"})
    request.fields = {**request.fields, "Signature": signature(request.fields, b"", SECRET.encode())}
    if content is None:
        acl.unlink()
    else:
        acl.write_bytes(content)
    with caplog.at_level(logging.INFO, "commitlog_store"):
        for _ in range(3):
            access.refresh()
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        assert access.check(request, "127.0.0.1") is not None
        acl.write_text(ACL.replace("accessKey: somebody", "accessKey: somebody-new"))
        access.refresh()
        with pytest.raises(AccessDenied):
            access.check(request, "127.0.0.1")
    assert SECRET not in caplog.text


def test_refusals_are_logged_without_what_could_break_a_line(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    with SignedClient(served.address, "evil\nline", SECRET) as client:
        for _ in range(20):
            assert client.send("orders", b"x").code == NO_PERMISSION
    found = [record.getMessage() for record in caplog.records if "is refused" in record.getMessage()]
    assert 1 <= len(found) < 20
    assert not any("\n" in one or SECRET in one for one in found)


def test_addresses_that_others_reach_need_accounts(acl: Path) -> None:
    listen = ListenSettings.parse("0.0.0.0:0")
    with pytest.raises(InvalidValue, match=r"--acl plain_acl\.yml"):
        RocketMQSettings(listen=listen).refuse_open()
    RocketMQSettings(listen=listen, acl=str(acl)).refuse_open()


def test_a_file_that_cannot_be_read_is_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ReadFailed, match=r"none\.yml"):
        AccessControl(str(tmp_path / "none.yml"))
