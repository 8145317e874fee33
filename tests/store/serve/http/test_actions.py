"""Actions of an admin from the pages: who may, what is shown before, that it happens once, and the audit log."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import html
import re
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from commitlog_store import Message, MessageStore, MessageStoreConfig
from commitlog_store.engine.put_message import PutMessageResult
from commitlog_store.errors import StoreIOError
from commitlog_store.serve.http.actions import redrive
from commitlog_store.serve.http.actions.action import ActionAsked
from commitlog_store.serve.http.actions.confirmations import Confirmations
from commitlog_store.serve.http.actions.redrive import REDRIVE
from commitlog_store.serve.http.forms import read_form
from commitlog_store.serve.tokens import Role, new_token
from tests.store.serve.http.admins import Admin, audit, signed_in
from tests.store.serve.http.fronts import browsing, shown
from tests.store.serve.servers import ServeProcess
from tests.support.waiting import WAIT_LIMIT_S

_PAGE = {"accept": "text/html"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """Three orders, which the group billing has given up; a group audit that has read one."""
    with MessageStore.open(tmp_path / "store", MessageStoreConfig.embedded(max_hash_slot_num=1_000)) as store:
        for number in range(3):
            store.put("orders", b"order %d" % number, queue_id=0, keys=[f"order-{number}"])
        store.dispatch()
        with store.consumer("billing", "orders") as consumer:
            for message in consumer.poll(3, 60):
                consumer.retry(message, -1)
            consumer.commit(sync=True)
        with store.consumer("audit", "orders") as consumer:
            consumer.poll(1, 60)
            consumer.commit(sync=True)
        store.dispatch()
        yield store


@pytest.fixture
def admin(store: MessageStore, tmp_path: Path) -> Iterator[Admin]:
    with signed_in(store, tmp_path) as admin:
        yield admin


def _count(store: MessageStore, topic: str) -> int:
    store.dispatch()
    with store.reader() as reader:
        return sum(one.max_offset for one in reader.queues(topic)) if topic in reader.topics() else 0


def test_an_action_needs_a_token_file_an_admin_and_a_session(store: MessageStore, tmp_path: Path) -> None:
    with browsing(owned=store, headers=_PAGE) as client:
        answer = client.post("/topics/orders/produce", data={"body": "x"})
        assert (answer.status_code, "start it with --tokens" in answer.text) == (403, True)
        assert "Produce" not in client.get("/topics/orders").text
    with signed_in(store, tmp_path, Role.WRITE) as writer:
        assert writer.client.get("/topics/orders/produce").status_code == 403
        assert writer.client.post("/topics/orders/produce", data={"body": "x"}).status_code == 403
        assert "Produce" not in writer.page("/topics/orders")
        admin = new_token(str(writer.tokens), "boss", Role.ADMIN)
        bearer = {"authorization": f"Bearer {admin}"}
        assert writer.client.post("/topics/orders/produce", data={"body": "x"}, headers=bearer).status_code == 403
    with browsing(store.path, tokens=str(tmp_path / "tokens.jsonl"), headers=_PAGE) as client:
        client.post("/sign-in", data={"token": admin})
        answer = client.post("/dead-letters/billing/redrive", data={"to": "retry"})
        assert (answer.status_code, "read only" in answer.text) == (403, True)
    assert _count(store, "orders") == 3
    assert audit(store) == []


def test_a_message_is_shown_put_once_and_noted(admin: Admin, store: MessageStore) -> None:
    assert "/topics/orders/produce" in admin.page("/topics/orders")
    body = "\nfirst <b>\r\nsecond\n"  # browsers send CRLF
    path = "/topics/orders/produce"
    asked = admin.ask(path, body=body, keys="k1 k2", tags="paid", properties="region = eu", queue="0")
    assert "It would put a message of 18 bytes into topic orders" in asked.text
    assert "&lt;b&gt;" in asked.text
    assert (_count(store, "orders"), audit(store)) == (3, [])
    done = admin.confirm(path, asked)
    assert "is in the log at physical offset" in done.text
    with store.reader() as reader:
        store.dispatch()
        (message,) = reader.query("orders", "k1")
    stored = (message.body, message.tags, message.queue_id, message.properties["region"])
    assert stored == (b"\nfirst <b>\nsecond\n", "paid", 0, "eu")
    assert str(message.message_id) in done.text
    again = admin.confirm(path, asked)
    assert (again.status_code, "nothing was done now" in again.text) == (409, True)
    assert _count(store, "orders") == 4
    begins, ends = audit(store)
    assert begins["id"] == ends["id"]
    assert (begins["event"], begins["action"], begins["by"], begins["names"]) == (
        *("begins", "produce", "ana"),
        {"name": "orders"},
    )
    assert begins["from"].startswith("127.0.0.1:")
    assert begins["fields"]["bodySha256"] == hashlib.sha256(message.body).hexdigest()
    assert (ends["event"], message.message_id in ends["result"]) == ("done", True)
    written = (Path(store.path) / "audit.jsonl").read_text()
    assert admin.token not in written
    assert "first" not in written


def test_a_confirmation_is_that_of_its_form_its_session_and_its_time(
    admin: Admin, store: MessageStore, tmp_path: Path
) -> None:
    path = "/topics/orders/produce"
    asked = admin.ask(path, body="x")
    assert admin.confirm(path, asked, body="y").status_code == 409
    asked = admin.ask(path, body="x")
    assert admin.confirm("/topics/payments/produce", asked).status_code == 409
    asked = admin.ask(path, body="x")
    assert admin.confirm(path, asked, form_token="0" * 64).status_code == 403
    asked = admin.ask(path, body="x")
    foreign = {"origin": "https://evil.example"}
    assert admin.client.post(path, data={"body": "x"}, headers=foreign).status_code == 403
    assert admin.client.post(path, data={"body": "x", "form_token": "ü"}).status_code == 403
    admin.client.post("/sign-out")
    admin.client.post("/sign-in", data={"token": admin.token})
    assert admin.confirm(path, asked, form_token=admin.form_token()).status_code == 409
    asked = admin.ask(path, body="x")
    admin.tokens.write_text("")
    assert admin.confirm(path, asked).status_code == 401
    assert _count(store, "orders") == 3
    assert audit(store) == []


@pytest.mark.parametrize(
    ("path", "fields", "status", "reason"),
    [
        ("/topics/orders/produce", {"body": "!", "form": "base64"}, 400, "not Base64"),
        ("/topics/orders/produce", {"body": "x", "properties": "region"}, 400, "NAME=VALUE"),
        ("/topics/orders/produce", {"body": "x", "queue": "-1"}, 400, "The queue is a number"),
        ("/topics/nothing/produce", {"body": "x"}, 404, "nothing"),
        ("/groups/audit/reset", {"to": "soon"}, 400, "soon"),
        ("/groups/audit/reset", {"to": "7"}, 400, "give a topic"),
        ("/groups/nothing/reset", {"to": "latest"}, 404, "no positions of a group"),
        ("/dead-letters/nothing/redrive", {"to": "retry"}, 404, "no dead letters of group"),
        ("/dead-letters/billing/redrive", {"to": "retry", "count": "0"}, 400, "from 1 to 10,000"),
        ("/half/commit", {"handle": "1:2:payments:key"}, 404, "No half message"),
        ("/half/roll-back", {"handle": "x"}, 400, "handle is"),
        ("/batches/forget", {"application": "nobody"}, 404, "no batches"),
    ],
)
def test_what_cannot_be_done_is_said_before(
    admin: Admin, path: str, fields: dict[str, str], status: int, reason: str
) -> None:
    answer = admin.ask(path, **fields)
    assert (answer.status_code, reason in html.unescape(answer.text)) == (status, True), answer.text


def test_a_refusal_of_the_store_is_shown_and_noted(admin: Admin, store: MessageStore) -> None:
    store.set_writable(False)
    path = "/topics/orders/produce"
    answer = admin.confirm(path, admin.ask(path, body="x"))
    assert (answer.status_code, "SERVICE_NOT_AVAILABLE" in answer.text) == (409, True)
    assert [line["event"] for line in audit(store)] == ["begins", "refused"]


def test_a_form_with_a_field_twice_is_refused(admin: Admin, store: MessageStore) -> None:
    fields = {"form_token": admin.form_token(), "body": ["x", "y"]}
    answer = admin.client.post("/topics/orders/produce", data=fields)
    assert (answer.status_code, "has each field once" in answer.text) == (400, True)
    assert _count(store, "orders") == 3


def test_nothing_is_done_that_the_audit_log_does_not_take(admin: Admin, store: MessageStore) -> None:
    (Path(store.path) / "audit.jsonl").mkdir()
    path = "/topics/orders/produce"
    answer = admin.confirm(path, admin.ask(path, body="x"))
    assert (answer.status_code, "audit.jsonl" in answer.text) == (500, True)
    assert _count(store, "orders") == 3


def test_the_audit_log_has_an_action_before_it_begins(
    admin: Admin, store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a crash leaves a line without a second one. An outcome that cannot be written is shown, and not undone."""
    log, seen = Path(store.path) / "audit.jsonl", []
    put_message = MessageStore.put_message

    def put(self: MessageStore, message: Message) -> PutMessageResult:
        seen.extend(audit(store))
        log.rename(log.with_name("moved"))
        log.mkdir()
        return put_message(self, message)

    monkeypatch.setattr(MessageStore, "put_message", put)
    done = admin.act("/topics/orders/produce", body="x")
    assert "is in the log at physical offset" in done
    assert "Its outcome could not be written to the audit log" in done
    assert [line["event"] for line in seen] == ["begins"]
    assert _count(store, "orders") == 4


def test_an_answered_action_and_its_lines_outlive_a_kill(store: MessageStore, tmp_path: Path) -> None:
    """The command ``commitlog serve`` with tokens, killed as soon as it has answered."""
    store.close()
    token = new_token(str(tmp_path / "tokens.jsonl"), "boss", Role.ADMIN)
    with ServeProcess(store.path, "--http", "127.0.0.1:0", "--tokens", tmp_path / "tokens.jsonl") as server:
        place = server.first_line.rpartition("at http")[2].split()[0]
        with httpx.Client(base_url=f"http{place}", headers=_PAGE, timeout=60, trust_env=False) as client:
            client.post("/sign-in", data={"token": token})
            admin = Admin(client, tmp_path / "tokens.jsonl", token)
            admin.act("/dead-letters/billing/redrive", to="topic")
            server.process.kill()
            server.process.wait()
    assert [line["event"] for line in audit(store)] == ["begins", "done"]
    with MessageStore.open(store.path) as opened:
        assert _count(opened, "orders") == 6
        assert opened.redrive("billing") == 0


def test_actions_take_turns_and_few_wait(admin: Admin, store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on, put_message = threading.Event(), MessageStore.put_message

    def put(self: MessageStore, message: Message) -> PutMessageResult:
        assert goes_on.wait(WAIT_LIMIT_S)
        return put_message(self, message)

    monkeypatch.setattr(MessageStore, "put_message", put)
    path = "/topics/orders/produce"
    asked = [admin.ask(path, body=str(number)) for number in range(10)]
    with ThreadPoolExecutor(10) as pool:
        answers = [pool.submit(admin.confirm, path, one) for one in asked]
        (refused,), _ = wait(answers, timeout=WAIT_LIMIT_S, return_when=FIRST_COMPLETED)
        goes_on.set()
        assert (refused.result().status_code, "wait for their turn" in refused.result().text) == (503, True)
        assert sorted(one.result().status_code for one in answers) == [200] * 9 + [503]
    assert [line["event"] for line in audit(store)] == ["begins", "done"] * 9
    assert _count(store, "orders") == 12


def test_confirmations_end_and_are_bounded() -> None:
    late = Confirmations(good_for_s=0.0)
    assert late.take(late.add("session", "/x", {}, 1), "session", "/x", {}) is None
    many = Confirmations()
    names = [many.add("session", "/x", {"a": "b"}, number) for number in range(65)]
    assert many.take(names[0], "session", "/x", {"a": "b"}) is None
    assert many.take(names[1], "other", "/x", {"a": "b"}) is None
    assert many.take(names[64], "session", "/x", {"a": "b"}) == 64


def test_a_long_action_ends_between_its_parts(store: MessageStore) -> None:
    asked = ActionAsked(names={"name": "billing"}, fields={"to": "retry", "count": ""}, ends=0.0)
    with store.reader() as reader:
        plan = REDRIVE.plan(reader, asked)
    assert "left for another" in REDRIVE.do(store, asked, plan).sentence
    assert _count(store, "%RETRY%billing") == 0


def test_a_form_is_bounded(admin: Admin) -> None:
    token = admin.form_token()
    for path, size in (("/topics/orders/produce", 1 << 20), ("/batches/forget", 16 << 10)):
        assert admin.client.post(path, data={"form_token": token, "body": "x" * size}).status_code == 413
    answer = admin.client.post("/batches/forget", data={str(number): "x" for number in range(30)})
    assert (answer.status_code, "fields" in answer.text) == (400, True)


def test_a_form_is_whole_in_time() -> None:
    async def nothing_more() -> dict[str, object]:
        await asyncio.Event().wait()
        return {}

    headers = [(b"content-type", b"application/x-www-form-urlencoded")]
    request = Request({"type": "http", "method": "POST", "path": "/", "headers": headers}, nothing_more)
    with pytest.raises(HTTPException, match="not whole within") as caught:
        asyncio.run(read_form(request, seconds=0.01))
    assert caught.value.status_code == 408


def test_a_group_is_moved_as_shown(admin: Admin, store: MessageStore) -> None:
    assert "/groups/audit/reset" in admin.page("/groups/audit")
    path = "/groups/audit/reset"
    asked = html.unescape(admin.ask(path, to="latest").text)
    assert '<a href="/groups/audit">Leave it as it is</a>' in asked
    assert "Group audit has not read 2 messages of them: orders 2." in asked
    stale = admin.ask(path, to="earliest")
    assert "Group audit gets 1 message again: orders 1." in html.unescape(stale.text)
    assert "has new positions in" in admin.act(path, to="latest", topic="orders", queue="0")
    with store.reader() as reader:
        assert reader.group_offsets("audit")["orders", 0] == 3
    changed = admin.confirm(path, stale)
    assert (changed.status_code, "The store has changed" in changed.text) == (409, True)
    assert "gets 3 messages again" in html.unescape(changed.text)
    admin.confirm(path, changed)
    with store.reader() as reader:
        assert reader.group_offsets("audit")["orders", 0] == 0


def test_a_group_is_moved_to_the_end_while_messages_arrive(admin: Admin, store: MessageStore) -> None:
    path = "/groups/audit/reset"
    asked = admin.ask(path, to="latest", topic="orders", queue="0")
    store.put("orders", b"meanwhile", queue_id=0)
    store.dispatch()
    assert "has new positions in" in admin.confirm(path, asked).text
    with store.reader() as reader:
        assert reader.group_offsets("audit")["orders", 0] == 4


def test_a_group_with_open_consumers_is_not_moved(admin: Admin, store: MessageStore) -> None:
    path = "/groups/audit/reset"
    with store.consumer("audit", "orders"):
        answer = admin.confirm(path, admin.ask(path, to="latest"))
        assert (answer.status_code, "Close them first" in answer.text) == (400, True)
    assert audit(store)[-1]["event"] == "refused"


def test_a_user_redrives_a_dead_letter(admin: Admin, store: MessageStore) -> None:
    """As a new user would, from the overview on."""
    assert 'href="/dead-letters"' in admin.page("/")
    assert 'href="/dead-letters/billing"' in admin.page("/dead-letters")
    page = admin.page("/dead-letters/billing")
    assert page.count("<td>waits</td>") == 3
    assert page.index("order 2") < page.index("order 0")
    done = admin.act("/dead-letters/billing/redrive", to="retry", count="1")
    assert "Redriven: 1 dead letter of group billing." in done
    page = admin.page("/dead-letters/billing")
    assert (page.count("<td>waits</td>"), page.count("<td>redriven</td>")) == (2, 1)
    with store.consumer("billing", "orders") as consumer:
        assert [one.body for one in consumer.poll(5, 60)] == [b"order 0"]
    asked = html.unescape(admin.ask("/dead-letters/billing/redrive", to="topic").text)
    assert "It would redrive 2 dead letters of group billing: 2 to orders." in asked
    admin.act("/dead-letters/billing/redrive", to="topic")
    assert _count(store, "orders") == 5
    nothing = admin.ask("/dead-letters/billing/redrive", to="retry").text
    assert "has no dead letters to redrive" in html.unescape(nothing)
    assert "confirmation" not in nothing


def test_of_two_confirmations_of_the_first_dead_letter_one_is_used(admin: Admin, store: MessageStore) -> None:
    path = "/dead-letters/billing/redrive"
    first, second = (admin.ask(path, to="retry", count="1") for _ in range(2))
    assert admin.confirm(path, first).status_code == 200
    assert admin.confirm(path, second).status_code == 409, "the next one would go, which was not shown"
    assert _count(store, "%RETRY%billing") == 1


def test_an_action_that_fails_after_a_part_is_not_noted_as_done(
    admin: Admin, store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = MessageStore.redrive, iter([True, False])

    def failing(self: MessageStore, *given: Any, **named: Any) -> int:
        if not next(calls):
            raise StoreIOError("write", path=self.path, cause=OSError(errno.EIO, "injected"))
        return real(self, *given, **named)

    monkeypatch.setattr(redrive, "_STEP", 1)
    monkeypatch.setattr(MessageStore, "redrive", failing)
    done = admin.act("/dead-letters/billing/redrive", to="retry")
    assert "Redriven: 1 dead letter of group billing. Then it failed" in done
    ends = audit(store)[-1]
    assert (ends["event"], "Redriven: 1" in ends["result"]) == ("unknown", True)


def test_dead_letters_are_exported(admin: Admin) -> None:
    page = html.unescape(admin.page("/dead-letters/billing"))
    assert "/messages/download?topic=%25DLQ%25billing&format=parquet" in page
    found = admin.client.get("/messages/download?topic=%25DLQ%25billing&format=ndjson")
    assert len(found.text.splitlines()) == 3


def test_half_messages_are_committed_and_rolled_back(admin: Admin, store: MessageStore) -> None:
    handles = [
        str(store.half_messages.prepare(Message(topic="orders", body=body, keys=["half"], queue_id=0), "payments"))
        for body in (b"good", b"bad")
    ]
    store.dispatch()
    page = admin.page("/half")
    assert page.count('action="/half/commit"') == 2
    shown_ = html.unescape(admin.ask("/half/roll-back", handle=handles[1]).text)
    assert f"It would roll back the half message {handles[1]}" in shown_
    assert "for topic orders, queue 0, keys half: 3 bytes." in shown_
    assert "Rolled back the half message" in admin.act("/half/roll-back", handle=handles[1])
    assert handles[1] not in admin.page("/half")
    assert "Committed the half message" in admin.act("/half/commit", handle=handles[0])
    assert _count(store, "orders") == 4
    assert "No half message is pending." in admin.page("/half")


def test_an_application_is_forgotten(admin: Admin, store: MessageStore) -> None:
    with store.transaction("loader", version=7) as batch:
        batch.put_messages([{"topic": "orders", "body": b"x"}])
    store.dispatch()
    assert "loader" in admin.page("/batches")
    stale = admin.ask("/batches/forget", application="loader")
    assert "whose last batch was 7" in stale.text
    with store.transaction("loader", version=8) as batch:
        batch.put_messages([{"topic": "orders", "body": b"x"}])
    store.dispatch()
    assert admin.confirm("/batches/forget", stale).status_code == 409
    assert "Forgot 'loader'. Its last batch was 8." in admin.act("/batches/forget", application="loader")
    assert store.batches() == [] or all(one.batch.app_id != "loader" for one in store.batches())


def test_delayed_messages_are_shown_by_level(store: MessageStore) -> None:
    store.put_message(Message(topic="orders", body=b"later", delay_level=18)).raise_for_status()
    store.dispatch()
    with browsing(owned=store, headers=_PAGE) as client:
        page = client.get("/delayed").text
        assert '<th scope="row">18</th><td class="n">2 h</td><td class="n"><a href=' in page
        (place,) = re.findall(r'href="(/messages.topic=SCHEDULE[^"]*)"', page)
        assert "later" in client.get(html.unescape(place)).text


@pytest.mark.parametrize("path", ["/dead-letters", "/delayed", "/half", "/batches"])
def test_pages_of_what_waits_are_live_and_need_no_token(store: MessageStore, path: str) -> None:
    with shown(owned=store) as front, httpx.Client(base_url=front.url, headers=_PAGE, trust_env=False) as client:
        page = client.get(path).text
        assert f'data-live="/live{path}"' in page
        assert "form_token" not in page
    with browsing(store.path, headers=_PAGE) as client:
        assert client.get(path).status_code == 200
        assert client.get("/dead-letters/nothing").status_code == 404
