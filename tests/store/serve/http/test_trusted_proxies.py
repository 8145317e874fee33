"""Pages behind a proxy that ends TLS under another name: sign-in, cookies, origins, headers that clients send."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request
from starlette.types import Scope

from commitlog_store import MessageStore
from commitlog_store.errors import InvalidValue
from commitlog_store.serve.http.trusted_proxies import TrustedProxies
from commitlog_store.serve.tokens import Role, new_token
from tests.store.cli.commands import ended
from tests.store.follower.certificates import make_certificate
from tests.store.serve.http.admins import Admin
from tests.store.serve.http.fronts import shown
from tests.support.tls_proxy import TlsProxy

_NAME = "store.example.org"


def _port(url: str) -> int:
    return int(url.rpartition(":")[2])


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.jsonl"
    new_token(str(path), "ana", Role.READ)
    return path


@contextlib.contextmanager
def _proxied(
    store: MessageStore, tokens: Path, *, trusted: str = "127.0.0.1", **forwarding: bool
) -> Iterator[tuple[TlsProxy, httpx.Client]]:
    """A proxy before the pages of a store, and a browser that uses it; ``forwarding`` is for ``TlsProxy``."""
    certificate, key = make_certificate(tokens.parent, address=_NAME)
    with (
        shown(owned=store, tokens=str(tokens), trusted_proxies=trusted) as front,
        TlsProxy(_port(front.url), certificate, key, **forwarding) as proxy,
        proxy.client(_NAME, certificate, accept="text/html") as client,
    ):
        yield proxy, client


@pytest.mark.parametrize("keeps_host", [False, True], ids=["as nginx", "as Caddy"])
def test_an_admin_signs_in_and_acts_through_a_trusted_proxy(tmp_path: Path, tokens: Path, keeps_host: bool) -> None:
    token = new_token(str(tokens), "bob", Role.ADMIN)
    with (
        MessageStore.open(tmp_path / "store") as store,
        _proxied(store, tokens, keeps_host=keeps_host) as (proxy, client),
    ):
        store.put("orders", b"x")
        origin = f"https://{_NAME}:{proxy.port}"
        assert client.get("/topics").headers["location"] == "/sign-in?next=%2Ftopics"
        for another in ("https://evil.example", f"http://{_NAME}:{proxy.port}", f"https://127.0.0.1:{proxy.port}"):
            assert client.post("/sign-in", data={"token": token}, headers={"origin": another}).status_code == 403
        signed = client.post("/sign-in", data={"token": token}, headers={"origin": origin})
        assert (signed.status_code, signed.headers["location"]) == (303, "/")
        assert "secure" in signed.headers["set-cookie"].lower()
        assert "Sign out bob" in client.get("/").text
        client.headers["origin"] = origin
        Admin(client, tokens, token).act("/topics/orders/produce", body="y")
        began, *_ = (Path(store.path) / "audit.jsonl").read_text().splitlines()
        assert json.loads(began)["from"] == "127.0.0.1:0", "the address of the proxy's client, without its port"


def test_a_proxy_that_is_not_trusted_gets_no_page_under_its_name(tmp_path: Path, tokens: Path) -> None:
    with (
        MessageStore.open(tmp_path / "store") as store,
        _proxied(store, tokens, trusted="10.9.8.7,10.9.0.0/16", keeps_host=True) as (_, client),
    ):
        refused = client.get("/")
        assert (refused.status_code, "--trusted-proxies" in refused.text) == (421, True)


def test_the_last_of_several_forwarded_hosts_counts(tmp_path: Path, tokens: Path) -> None:
    """A client sends some of its own to a proxy that adds to them."""
    with MessageStore.open(tmp_path / "store") as store, _proxied(store, tokens, appends=True) as (proxy, client):
        client.headers.update({"x-forwarded-host": "evil.example", "x-forwarded-proto": "http"})
        assert client.get("/").status_code == 303
        posted = [
            client.post("/sign-out", headers={"origin": f"https://{host}"}).status_code
            for host in ("evil.example", f"{_NAME}:{proxy.port}")
        ]
        assert posted == [403, 303]


def test_without_tls_at_the_proxy_a_name_may_be_made_to_lead_there(tmp_path: Path, tokens: Path) -> None:
    with (
        MessageStore.open(tmp_path / "store") as store,
        shown(owned=store, tokens=str(tokens), trusted_proxies="127.0.0.1") as front,
    ):
        asked = [
            httpx.get(front.url, headers={"x-forwarded-host": host, "x-forwarded-proto": scheme}, trust_env=False)
            for host, scheme in (("store.example", "http"), ("192.0.2.1", "http"), ("store.example", "https"))
        ]
        assert [one.status_code for one in asked] == [421, 401, 401]


@pytest.mark.parametrize(
    ("peer", "headers", "host", "scheme", "client"),
    [
        ("10.0.0.1", {"X-Forwarded-Host": "a:8443", "X-Forwarded-Proto": "HTTPS"}, "a:8443", "https", "10.0.0.1"),
        ("::ffff:10.0.0.1", {"X-Forwarded-Host": "[2001:db8::1]:80"}, "[2001:db8::1]:80", "http", "::ffff:10.0.0.1"),
        ("10.0.0.1", {"X-Forwarded-Host": "a b", "X-Forwarded-Proto": "ftp"}, "own", "http", "10.0.0.1"),
        ("10.0.0.1", {"X-Forwarded-For": "198.51.100.9, 192.0.2.7, 10.0.0.3"}, "own", "http", "192.0.2.7"),
        ("10.0.0.1", {"X-Forwarded-For": "192.0.2.7:51234, 10.0.0.3:80"}, "own", "http", "192.0.2.7"),
        ("10.0.0.1", {"X-Forwarded-For": "[2001:db8::7]:51234"}, "own", "http", "2001:db8::7"),
        ("10.0.0.1", {"X-Forwarded-For": "2001:db8::7"}, "own", "http", "2001:db8::7"),
        ("10.0.0.1", {"X-Forwarded-For": "192.0.2.7, unknown"}, "own", "http", "10.0.0.1"),
        ("11.0.0.1", {"X-Forwarded-Host": "a", "X-Forwarded-For": "192.0.2.7"}, "own", "http", "11.0.0.1"),
        ("10.0.0.1", {"X-Forwarded-For": "192.0.2.7%eth0"}, "own", "http", "10.0.0.1"),
        ("10.0.0.1", {"X-Forwarded-For": "fe80::7%eth0"}, "own", "http", "fe80::7%eth0"),
        ("a-socket", {"X-Forwarded-Host": "a"}, "own", "http", "a-socket"),
    ],
)
def test_what_was_asked_for(peer: str, headers: dict[str, str], host: str, scheme: str, client: str) -> None:
    given = [(name.lower().encode(), value.encode()) for name, value in {"Host": "own", **headers}.items()]
    scope: Scope = {"type": "http", "scheme": "http", "headers": given, "client": (peer, 1), "path": "/"}
    for network in ("10.0.0.0/8", "::ffff:10.0.0.0/104"):
        asked = Request(TrustedProxies.parse(network).as_asked(scope))
        assert asked.client is not None
        assert (asked.headers["host"], asked.url.scheme, asked.client.host) == (host, scheme, client)
    assert scope["headers"][0] == (b"host", b"own"), "the request itself is as it was"


@pytest.mark.parametrize(
    "text",
    [
        *("", "proxy.example.org", "10.0.0.1/8", "10.0.0.1,", "*"),
        *("0.0.0.0/0", "::/0", "::ffff:0:0/96", "0.0.0.0/1,128.0.0.0/1", "10.0.0.1,::/1,8000::/2,c000::/2"),
    ],
)
def test_a_list_of_proxies_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match=r"trusted proxy"):
        TrustedProxies.parse(text)


def test_the_command_refuses_them_without_http_and_names_what_is_wrong(tmp_path: Path) -> None:
    MessageStore.open(tmp_path / "store").close()
    lonely = ended("serve", tmp_path / "store", "--trusted-proxies", "127.0.0.1")
    assert (lonely.returncode, "Needs --http" in lonely.stderr) == (2, True)
    http = ("serve", tmp_path / "store", "--http", "127.0.0.1:0", "--trusted-proxies")
    everyone = ended(*http, "127.0.0.1")
    assert (everyone.returncode, "--trusted-proxies needs --tokens" in everyone.stderr) == (1, True)
    wrong = ended(*http, "proxy")
    assert (wrong.returncode, "such as 127.0.0.1 or 10.0.0.0/8, not 'proxy'" in wrong.stderr) == (1, True)
