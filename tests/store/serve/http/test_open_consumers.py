"""A group's page names its open consumers, and which of them holds each queue: the owner's, clients', RocketMQ's."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import orjson
import pytest

from commitlog_store import MessageStore, RemoteStore, SubscriptionGroupConfig, connect
from commitlog_store.serve.rocketmq.codes import RequestCode
from commitlog_store.serve.tokens import Role, new_token
from commitlog_store.store import consumers_of
from tests.store.serve.http.fronts import browsing
from tests.store.serve.rocketmq.remoting_client import RemotingClient
from tests.store.serve.rocketmq.test_clients import heartbeat
from tests.store.serve.rocketmq.test_rebalance_lock import batch
from tests.store.serve.servers import ServeProcess
from tests.support.waiting import wait_for

_PAGE = {"accept": "text/html"}
_CELL = re.compile(r"<(td|th)[^>]*>(.*?)</\1>")
EVIL = "<script>alert(1)</script>\u202e10.0.0.1@7"


def _fill(store: MessageStore | RemoteStore, queues: int) -> None:
    """A message in each queue of the topic orders, and a position of the group billing."""
    store.create_topic("orders", queues)
    for queue_id in range(queues):
        store.put("orders", b"one", queue_id=queue_id)
    store.dispatch()
    store.commit_group_offsets("billing", {("orders", 0): 0})


def _text(client: httpx.Client, path: str = "/groups/billing") -> str:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.text


def _rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the table after a heading, as text."""
    body = page.partition(f'id="{heading}"')[2].partition("<tbody>")[2].partition("</tbody>")[0]
    cells = [[cell for _, cell in _CELL.findall(row)] for row in body.split("</tr>")]
    return [[html.unescape(re.sub(r"<[^>]*>", "", cell)) for cell in row] for row in cells if row]


def _held_by(page: str) -> dict[int, str]:
    """Which consumer holds each queue of the topic orders, by the page."""
    return {int(row[1]): row[-1] for row in _rows(page, "positions") if row[0] == "orders"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store") as store:
        _fill(store, 4)
        yield store


def _pages(server: ServeProcess, token: str = "") -> httpx.Client:
    place = server.first_line.rpartition(" at http://")[2].split()[0]
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return httpx.Client(base_url=f"http://{place}", trust_env=False, timeout=60, headers=_PAGE | headers)


def test_each_queue_names_the_consumer_of_the_owner_that_holds_it(store: MessageStore) -> None:
    with browsing(owned=store, headers=_PAGE) as client:
        assert _held_by(_text(client)) == dict.fromkeys(range(4), "–")
        assert "No consumer of the group is open." in _text(client)
        with store.consumer("billing", "orders") as first:
            first.poll()
            assert _held_by(_text(client)) == dict.fromkeys(range(4), "consumer 1 of this process")
            with store.consumer("billing", "orders"), store.consumer("audit", "orders"):
                page = _text(client)
            one, other = "consumer 1 of this process", "consumer 2 of this process"
            assert _held_by(page) == {0: one, 1: one, 2: other, 3: other}
            found = _rows(page, "consumers")
            assert [row[:3] for row in found] == [[one, "this process", "–"], [other, "this process", "–"]]
            assert [row[4] for row in found] == ["–", "–"]
        assert _held_by(_text(client)) == dict.fromkeys(range(4), "–")


def test_a_page_beside_the_owner_knows_no_consumers(store: MessageStore) -> None:
    with store.consumer("billing", "orders"), browsing(store.path, headers=_PAGE) as client:
        page = _text(client)
    assert "The store's owner knows its consumers" in page
    assert "Held by" not in page


def test_the_first_hundred_of_many_consumers_are_shown(store: MessageStore) -> None:
    with store.consumer("billing", "orders"), browsing(owned=store, headers=_PAGE) as client:
        members = consumers_of(store, "billing")
        assert members is not None
        for _ in range(129):
            members.join(["orders"])
        page = _text(client)
    assert len(_rows(page, "consumers")) == 100
    assert "30 more are not shown." in page


@pytest.mark.parametrize("has_tokens", [False, True])
def test_a_consumer_of_a_client_is_named_by_its_token_or_else_its_address(tmp_path: Path, *, has_tokens: bool) -> None:
    options: list[str] = []
    token = ""
    if has_tokens:
        token = new_token(str(tmp_path / "tokens"), "ana", Role.ADMIN)
        options = ["--tokens", str(tmp_path / "tokens")]
    with (
        ServeProcess(tmp_path / "store", "--http", "127.0.0.1:0", *options) as server,
        connect(server.url, token=token or None) as remote,
        _pages(server, token) as client,
    ):
        _fill(remote, 2)
        with remote.consumer("billing", "orders") as consumer:
            consumer.poll(1)
            page = _text(client)
            ((name, kind, address, since, heard),) = _rows(page, "consumers")
            assert kind == "a client of this server"
            assert address.startswith("127.0.0.1:")
            assert name == f"consumer 1 of {'ana' if has_tokens else address}"
            assert since <= heard
            assert _held_by(page) == {0: name, 1: name}
        assert _held_by(_text(client)) == {0: "–", 1: "–"}


def test_a_client_of_rocketmq_is_listed_and_holds_what_it_has_locked(tmp_path: Path) -> None:
    with (
        ServeProcess(tmp_path / "store", "--http", "127.0.0.1:0", "--rocketmq", "127.0.0.1:0") as server,
        connect(server.url) as remote,
        _pages(server) as client,
    ):
        _fill(remote, 2)
        with RemotingClient(server.first_line.partition(", and at ")[2].split()[0]) as consumer:
            beat = orjson.dumps(heartbeat(client=EVIL, consumers={"billing": {"orders": "*"}, "audit": {}}))
            assert consumer.ask(RequestCode.HEART_BEAT, {}, beat).code == 0
            lock = orjson.dumps(batch(EVIL, 1))
            assert consumer.ask(RequestCode.LOCK_BATCH_MQ, {}, lock).code == 0
            page = _text(client)
            shown = EVIL.replace("\u202e", "\\u202e")
            assert _held_by(page) == {0: "–", 1: shown}
            ((name, kind, address, since, heard),) = _rows(page, "consumers")
            assert (name, address) == (shown, "{}:{}".format(*consumer.socket.getsockname()))
            assert kind.startswith("PYTHON v")
            assert since <= heard
            assert "share the queues among themselves" in page
            assert "<script>alert" not in page
            assert "\u202e" not in page
        wait_for(lambda: "No consumer of the group is open." in _text(client))
        assert _held_by(_text(client)) == {0: "–", 1: shown}, "a lock outlives its connection"


def test_a_group_without_a_position_has_a_page_with_its_consumers(store: MessageStore) -> None:
    with browsing(owned=store, headers=_PAGE) as client:
        assert client.get("/groups/audit").status_code == 404
        with store.consumer("audit", "orders"):
            page = _text(client, "/groups/audit")
            assert "The group has no position yet" in page
            assert [row[0] for row in _rows(page, "consumers")] == ["consumer 1 of this process"]
            with client.stream("GET", "/live/groups/audit") as live:
                assert live.status_code == 200
            listed = _text(client, "/groups").partition('id="without"')[2]
            assert 'href="/groups/audit"' in listed
            assert "billing" not in listed
            assert 'id="without"' not in _text(client, "/groups?q=bill")
        assert client.get("/groups/audit").status_code == 404


def test_a_group_with_settings_alone_has_a_page_that_shows_them(store: MessageStore) -> None:
    store.set_group_settings(SubscriptionGroupConfig(group_name="audit", retry_max_times=7))
    store.set_group_settings(SubscriptionGroupConfig(group_name="CID_RMQ_SYS_x"))
    with browsing(store.path, headers=_PAGE) as client:
        page = _text(client, "/groups/audit")
        assert "<dt>Most retries</dt><dd>7</dd>" in page
        assert "The group has no position yet" in page
        assert "The store's owner knows its consumers" in page
        assert 'href="/groups/audit"' in _text(client, "/groups")
        assert "CID_RMQ_SYS_x" not in _text(client, "/groups")
        assert "CID_RMQ_SYS_x" in _text(client, "/groups?system=1")
    Path(store.path, "config", "subscriptionGroup.json").write_text("{")
    Path(store.path, "config", "subscriptionGroup.json.bak").unlink(missing_ok=True)
    with browsing(store.path, headers=_PAGE) as client:
        assert client.get("/groups/audit").status_code >= 500
        assert "subscriptionGroup.json" in _text(client, "/groups")
        assert "subscriptionGroup.json" in _text(client)
