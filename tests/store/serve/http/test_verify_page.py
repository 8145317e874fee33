"""The page that verifies: by a process, one at a time, cancelled, with findings that lead to their places."""

from __future__ import annotations

import contextlib
import html
import os
import re
import signal
from pathlib import Path

import httpx
import pytest

from commitlog_store import MessageStore
from commitlog_store.serve.tokens import Role, new_token
from tests.store.serve.http.admins import Admin, Forms, audit, press, signed_in
from tests.store.serve.http.fronts import browsing
from tests.store.serve.verifying import make_store_with_a_damaged_body, stop_when_begun, stopped
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store_with_a_damaged_body(tmp_path_factory.mktemp("verify") / "store")


def _text(admin: Admin) -> str:
    return html.unescape(re.sub(r"<[^>]*>", " ", admin.page("/verify")))


def _stopped(admin: Admin) -> contextlib.AbstractContextManager[int]:
    """The process of the verification under way, which does not go on within the context."""
    (process,) = re.findall(r"Process</dt><dd>([\d,]+)<", admin.page("/verify"))
    return stopped(int(process.replace(",", "")))


def test_an_admin_verifies_a_store_and_its_report_stays(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store") as store:
        store.put("orders", b"x")
        with signed_in(store, tmp_path) as admin:
            assert "Verdict: OK" in _text(admin).partition("Verification")[0].replace("  ", " ")
            assert "The verification has begun." in admin.act("/verify/start", name="")
            with _stopped(admin):
                assert "ana began is under way" in " ".join(_text(admin).split())
                again = admin.ask("/verify/start", name="")
                assert "Only one at a time runs." in again.text
                assert 'name="confirmation"' not in again.text
                store.put("orders", b"y")  # the store goes on
            wait_for(lambda: "Last report" in _text(admin))
            assert "Nothing is wrong." in _text(admin)
            assert "Quick assessment" in admin.page("/")
        began, done = audit(store)
        assert (began["action"], began["by"], done["event"]) == ("verify", "ana", "done")


def test_a_verification_is_cancelled_and_ends_with_the_server(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store") as store:
        store.put("orders", b"x")
        with signed_in(store, tmp_path) as admin:
            assert "No verification is under way." in admin.ask("/verify/cancel", name="").text
            admin.act("/verify/start", name="")
            with _stopped(admin) as process:
                assert "The verification was cancelled." in admin.act("/verify/cancel", name="")
                assert not Path(f"/proc/{process}").exists()
            assert "has no report: ana cancelled it." in _text(admin)
            admin.act("/verify/start", name="")
            with _stopped(admin) as process:
                os.kill(process, signal.SIGKILL)
            wait_for(lambda: "Signal 9 ended the process that verified" in _text(admin))
            admin.act("/verify/start", name="")
            with _stopped(admin) as process:
                pass
        assert not Path(f"/proc/{process}").exists()


def test_the_pages_own_forms_cancel_the_verification_of_one_store_of_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_when_begun(monkeypatch)
    paths = {name: tmp_path / name for name in ("a", "b")}
    for path in paths.values():
        with MessageStore.open(path) as store:
            store.put("orders", b"x")
    tokens = str(tmp_path / "tokens.jsonl")
    token = new_token(tokens, "ana", Role.ADMIN)
    with browsing(tokens=tokens, headers={"accept": "text/html"}, **paths) as client:

        def page(name: str) -> httpx.Response:
            return client.get("/verify", params={"store": name})

        def process(name: str) -> int:
            (found,) = re.findall(r"Process</dt><dd>([\d,]+)<", page(name).text)
            return int(found.replace(",", ""))

        press(client, client.get("/sign-in"), "/sign-in")  # without a token: nothing is begun
        assert "/verify/start" not in Forms(page("a").text).posts
        client.post("/sign-in", data=Forms(client.get("/sign-in").text).posts["/sign-in"] | {"token": token})
        for name, path in paths.items():
            assert "/verify/cancel" not in Forms(page(name).text).posts
            asked = press(client, page(name), "/verify/start")
            assert str(path) in asked.text
            assert "The verification has begun." in press(client, asked, "/verify/start").text
        ended, other = process("b"), process("a")
        asked = press(client, page("b"), "/verify/cancel")
        assert "It would be ended without a report." in asked.text
        assert process("b") == ended, "the first form cancels nothing"
        done = press(client, asked, "/verify/cancel")
        assert "The verification was cancelled." in done.text
        (link,) = re.findall(r'<p><a href="([^"]*)">Verify</a></p>', done.text)
        assert "has no report: ana cancelled it." in client.get(html.unescape(link)).text
        assert not Path(f"/proc/{ended}").exists()
        assert process("a") == other, "that of the other store goes on"
        assert press(client, asked, "/verify/cancel").status_code == 409, "it was confirmed already"
        assert "/verify/start" in Forms(page("b").text).posts


def test_findings_lead_to_their_places_and_a_reader_beside_the_owner_has_them(damaged: Path, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.jsonl"
    token = new_token(str(tokens), "ana", Role.ADMIN)
    before = sorted(damaged.rglob("*"))
    with browsing(damaged, tokens=str(tokens), headers={"accept": "text/html"}) as client:
        client.post("/sign-in", data={"token": token})
        form = re.findall(r'name="(form_token)" value="([^"]*)"', client.get("/verify").text)
        admin = Admin(client, tokens, token)
        asked = client.post("/verify/start", data=dict(form) | {"name": ""})
        assert "of which the log has 1 file." in asked.text
        assert "noted in the server&#39;s log" in asked.text
        assert "has begun" in admin.confirm("/verify/start", asked).text
        wait_for(lambda: "Last report" in _text(admin))
        page = admin.page("/verify")
        assert "DAMAGED" in page
        (link,) = set(re.findall(r'<td><a href="(/messages/\d+)">commitlog/', page))
        assert "Message in orders" in admin.page(link)
        changed = client.post("/topics/orders/produce", data=dict(form) | {"body": "x"})
        assert changed.status_code == 403
    assert sorted(damaged.rglob("*")) == before


def test_who_may_not_act_does_not_verify(damaged: Path, tmp_path: Path) -> None:
    with browsing(damaged) as client:
        assert client.post("/verify/start", data={"name": ""}).status_code == 403
        assert "signed in" in client.get("/verify").text
        assert client.get("/verify?store=other").status_code == 404
    with MessageStore.open(tmp_path / "store") as store, signed_in(store, tmp_path, Role.WRITE) as admin:
        assert admin.client.post("/verify/start", data={"name": ""}).status_code == 403
