"""A name server's settings by namespace and key, as ``mqadmin updateKvConfig`` and ``updateTopic -o true`` set them."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from commitlog_store.serve.rocketmq.processors import kv_config
from tests.store.serve.rocketmq.brokers import broker
from tests.store.serve.rocketmq.remoting_client import RemotingClient
from tests.support.clean_store import assert_clean

NAMESPACE = "ORDER_TOPIC_CONFIG"
ITEM = {"namespace": NAMESPACE, "key": "orders"}
FILE = Path("config", "kvConfig.json")


def test_a_setting_is_kept_until_it_is_deleted(tmp_path: Path) -> None:
    for value in ("broker-a:4", "broker-a:4;broker-b:8"):
        with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
            assert client.ask(RequestCode.PUT_KV_CONFIG, {**ITEM, "value": value}).code == 0
        with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
            found = client.ask(RequestCode.GET_KV_CONFIG, ITEM)
            assert (found.code, found.fields) == (0, {"value": value})
            listed = client.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": NAMESPACE})
            assert orjson.loads(listed.body) == {"table": {"orders": value}}
    assert orjson.loads((tmp_path / "s" / FILE).read_bytes()) == {"configTable": {NAMESPACE: {"orders": value}}}
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        for _ in range(2):
            assert client.ask(RequestCode.DELETE_KV_CONFIG, ITEM).code == 0
        assert client.ask(RequestCode.GET_KV_CONFIG, ITEM).code == ResponseCode.QUERY_NOT_FOUND
        listed = client.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": NAMESPACE})
        assert (listed.code, orjson.loads(listed.body)) == (0, {"table": {}})
    assert_clean(tmp_path / "s")


def test_what_does_not_exist_is_said_as_a_name_server_says_it(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        found = client.ask(RequestCode.GET_KV_CONFIG, ITEM)
        assert (found.code, found.remark) == (22, f"No config item, Namespace: {NAMESPACE} Key: orders")
        listed = client.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, ITEM)
        assert (listed.code, listed.remark) == (22, f"No config item, Namespace: {NAMESPACE}")
        assert client.ask(RequestCode.DELETE_KV_CONFIG, ITEM).code == 0
        assert client.ask(RequestCode.PUT_KV_CONFIG, ITEM).code == ResponseCode.SYSTEM_ERROR
    assert not (tmp_path / "s" / FILE).exists()


def test_settings_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_config, "MOST_SIZE", len(NAMESPACE) + 100)
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        assert client.ask(RequestCode.PUT_KV_CONFIG, {**ITEM, "value": "x" * 90}).code == 0
        more = client.ask(RequestCode.PUT_KV_CONFIG, {**ITEM, "key": "bills", "value": "x" * 9})
        assert more.code == ResponseCode.SYSTEM_BUSY
        for namespace in ("a" * 300, "b"):  # names count, too
            other = client.ask(RequestCode.PUT_KV_CONFIG, {"namespace": namespace, "key": "k", "value": "x"})
            assert other.code == (ResponseCode.SYSTEM_BUSY if len(namespace) > 1 else 0)
        assert client.ask(RequestCode.GET_KV_CONFIG, ITEM).fields == {"value": "x" * 90}


def test_a_damaged_file_is_an_error_and_stays(tmp_path: Path) -> None:
    file = tmp_path / "s" / FILE
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        file.parent.mkdir(exist_ok=True)
        file.write_text('{"configTable":{"a":1}}')
        answer = client.ask(RequestCode.PUT_KV_CONFIG, {**ITEM, "value": "x"})
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "kvConfig.json" in str(answer.remark)
    assert file.read_text() == '{"configTable":{"a":1}}'
