"""Tokens at the pages: sign-in, what a session may do, when it ends, and requests of other sites."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from commitlog_store import MessageStore
from commitlog_store.serve.http.access import COOKIE
from commitlog_store.serve.tokens import Role, new_token
from tests.store.serve.http.fronts import browsing

_PAGE = {"accept": "text/html"}


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    return tmp_path / "tokens.jsonl"


@pytest.fixture
def token(tokens: Path) -> str:
    return new_token(str(tokens), "ana", Role.READ)


@pytest.fixture
def client(tmp_path: Path, tokens: Path, token: str) -> Iterator[httpx.Client]:
    with MessageStore.open(tmp_path / "store") as store:
        store.put("orders", b"one")
    with browsing(tmp_path / "store", tokens=str(tokens), headers=_PAGE) as client:
        yield client


def _sign_in(client: httpx.Client, token: str, **more: str) -> httpx.Response:
    return client.post("/sign-in", data={"token": token, **more})


def test_a_page_leads_to_the_sign_in_and_back(client: httpx.Client, token: str) -> None:
    asked = client.get("/topics?q=o")
    assert asked.status_code == 303
    assert asked.headers["location"] == "/sign-in?next=%2Ftopics%3Fq%3Do"
    assert 'value="/topics?q=o"' in client.get(asked.headers["location"]).text
    signed = _sign_in(client, token, next="/topics?q=o")
    assert (signed.status_code, signed.headers["location"]) == (303, "/topics?q=o")
    assert "orders" in client.get("/topics?q=o").text
    assert "Sign out ana" in client.get("/").text


def test_the_cookie_is_kept_from_scripts_and_other_sites(client: httpx.Client, token: str) -> None:
    cookie = _sign_in(client, token).headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert token.lower() not in cookie


def test_a_wrong_token_is_refused(client: httpx.Client, token: str) -> None:
    answer = _sign_in(client, token + "x")
    assert answer.status_code == 401
    assert "does not know this token" in answer.text
    assert "set-cookie" not in answer.headers
    assert client.get("/topics", headers={"accept": "*/*"}).status_code == 401
    assert client.get("/live/topics").status_code in (303, 401)


def test_a_session_ends_with_its_token_and_with_the_sign_out(client: httpx.Client, token: str, tokens: Path) -> None:
    _sign_in(client, token)
    session = client.cookies[COOKIE]
    client.post("/sign-out")
    assert client.get("/topics", headers={"cookie": f"{COOKIE}={session}"}).status_code == 303
    _sign_in(client, token)
    assert client.get("/topics").status_code == 200
    tokens.write_text("")
    assert client.get("/topics").status_code == 303


def test_a_live_page_ends_with_its_token(client: httpx.Client, token: str, tokens: Path) -> None:
    _sign_in(client, token)
    with client.stream("GET", "/live/topics") as answer:
        assert answer.status_code == 200
        tokens.write_text("")
        for _ in answer.iter_lines():
            pass  # without an end, the client would give up


def test_programs_send_the_token_itself(client: httpx.Client, token: str) -> None:
    assert client.get("/topics", headers={"authorization": f"Bearer {token}"}).status_code == 200
    wrong = client.get("/topics", headers={"authorization": "Bearer x", "accept": "*/*"})
    assert wrong.status_code == 401
    assert wrong.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "headers", [{"origin": "https://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}]
)
def test_a_form_of_another_site_is_refused(client: httpx.Client, token: str, headers: dict[str, str]) -> None:
    answer = client.post("/sign-in", data={"token": token}, headers=headers)
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


def test_a_form_that_came_to_a_proxy_by_tls_is_taken(client: httpx.Client, token: str) -> None:
    """The proxy passes the Host on; the browser names the page's scheme, which this server does not see."""
    answer = client.post(
        "/sign-in", data={"token": token}, headers={"origin": f"https://{client.base_url.netloc.decode()}"}
    )
    assert answer.status_code == 303
    assert "set-cookie" in answer.headers


@pytest.mark.parametrize("place", ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)"])
def test_the_sign_in_leads_to_no_other_site(client: httpx.Client, token: str, place: str) -> None:
    assert _sign_in(client, token, next=place).headers["location"] == "/"


def test_a_form_is_small(client: httpx.Client, token: str) -> None:
    assert _sign_in(client, token, next="/" * 10_000).status_code == 413
    assert client.post("/sign-in", content=b"{}", headers={"content-type": "application/json"}).status_code == 415


def test_without_tokens_pages_need_no_sign_in(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store") as store:
        store.put("orders", b"one")
    with browsing(tmp_path / "store", headers=_PAGE) as client:
        assert client.get("/").status_code == 200
        assert client.get("/sign-in").headers["location"] == "/"
