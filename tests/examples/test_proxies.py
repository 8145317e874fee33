"""The configurations of nginx and Caddy: each is accepted, and a browser signs in, acts and looks live through it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from commitlog_store import MessageStore
from commitlog_store.serve.tokens import Role, new_token
from tests.store.follower.certificates import make_certificate
from tests.store.serve.http.admins import Admin
from tests.store.serve.http.fronts import shown
from tests.support.local_spark import PROJECT
from tests.support.tls_proxy import client_by_name
from tests.support.waiting import WAIT_LIMIT_S, wait_for

FOLDER = PROJECT / "examples" / "proxies"
NAME = "store.example.org"
# The server's address in both configurations.
TARGET = "127.0.0.1:8816"
# Another process may take a free port before the proxy binds it: the proxy is started again with other ports.
_MOST_STARTS = 5
# A program that took the port may accept a connection and then say nothing.
_HANDSHAKE_LIMIT_S = 5.0
# A busy machine may send what comes every two seconds so late.
_LONGEST_GAP_S = 30.0


class Ports(NamedTuple):
    """Those of a proxy, and of the server that it asks."""

    tls: int
    plain: int
    target: int


def program(name: str) -> str:
    found = shutil.which(name, path=os.environ["PATH"] + os.pathsep + "/usr/sbin")
    if found is None:
        pytest.skip(f"{name} is not installed: apt-get install {name}")
    return found


def replaced(file: str, *changes: tuple[str, str]) -> str:
    """A configuration with the ports and files of a test; every change must find its place."""
    text = (FOLDER / file).read_text()
    for given, wanted in changes:
        assert given in text, given
        text = text.replace(given, wanted)
    return text


def nginx(folder: Path, ports: Ports, certificate: Path, key: Path) -> list[str]:
    """The command that runs nginx with the example, whose main configuration has what Debian's has."""
    (folder / "commitlog.conf").write_text(
        replaced(
            "nginx.conf",
            ("listen 443 ssl", f"listen 127.0.0.1:{ports.tls} ssl"),
            ("listen 80", f"listen 127.0.0.1:{ports.plain}"),
            ("X-Forwarded-Host  $host;", "X-Forwarded-Host  $host:$server_port;"),
            ("/etc/ssl/store.crt", str(certificate)),
            ("/etc/ssl/store.key", str(key)),
            (TARGET, f"127.0.0.1:{ports.target}"),
        )
    )
    main = [
        *(["user root;"] if os.geteuid() == 0 else []),
        f"daemon off; pid {folder}/pid; error_log {folder}/log; worker_processes 1;",
        "events { worker_connections 64; }",
        "http {",
        *(f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")),
        f"access_log off; include {folder}/commitlog.conf;",
        "}",
    ]
    (folder / "nginx.conf").write_text("\n".join(main) + "\n")
    return [program("nginx"), "-c", f"{folder}/nginx.conf", "-e", f"{folder}/log"]


def caddy(folder: Path, ports: Ports, certificate: Path, key: Path) -> list[str]:
    """The command that runs Caddy with the example; the certificate is given, and nothing is asked of a host."""
    options = f"{{\n\tadmin off\n\tauto_https disable_redirects\n\thttp_port {ports.plain}\n}}\n\n"
    site = f"https://{NAME}:{ports.tls} {{\n\tbind 127.0.0.1\n\ttls {certificate} {key}"
    text = replaced("Caddyfile", (f"{NAME} {{", site), (TARGET, f"127.0.0.1:{ports.target}"))
    (folder / "Caddyfile").write_text(options + text)
    return [program("caddy"), "run", "--adapter", "caddyfile", "--config", f"{folder}/Caddyfile"]


def gathering(folder: Path, ports: Ports, certificate: Path, key: Path) -> list[str]:
    """nginx as it is without the line against it: what it asks says that it should not."""
    command = nginx(folder, ports, certificate, key)
    site = folder / "commitlog.conf"
    site.write_text(site.read_text().replace("proxy_buffering off;", "proxy_buffering on;"))
    return command


COMMANDS: dict[str, Callable[[Path, Ports, Path, Path], list[str]]] = {"nginx": nginx, "caddy": caddy}


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]


class Proxied(NamedTuple):
    """A store whose pages are reached through a proxy."""

    store: MessageStore
    tokens: Path
    ports: Ports
    certificate: Path
    client: httpx.Client

    @property
    def origin(self) -> str:
        return f"https://{NAME}:{self.ports.tls}"

    def sign_in(self) -> Admin:
        token = new_token(str(self.tokens), "bob", Role.ADMIN)
        signed = self.client.post("/sign-in", data={"token": token}, headers={"origin": self.origin})
        assert (signed.status_code, signed.headers["location"]) == (303, "/")
        assert "secure" in signed.headers["set-cookie"].lower()
        self.client.headers["origin"] = self.origin
        return Admin(self.client, self.tokens, token)


@pytest.fixture(params=COMMANDS)
def proxied(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Proxied]:
    tokens = tmp_path / "tokens.jsonl"
    new_token(str(tokens), "ana", Role.READ)
    certificate, key = make_certificate(tmp_path, address=NAME)
    with (
        MessageStore.open(tmp_path / "store") as store,
        shown(owned=store, tokens=str(tokens), trusted_proxies="127.0.0.1") as front,
    ):
        store.put("orders", b"x")
        target = int(front.url.rpartition(":")[2])

        def command_for(ports: Ports) -> list[str]:
            return COMMANDS.get(request.param, gathering)(tmp_path, ports, certificate, key)

        with (
            running(command_for, tmp_path, target, certificate) as ports,
            client_by_name(f"https://{NAME}:{ports.tls}", certificate, accept="text/html") as client,
        ):
            yield Proxied(store, tokens, ports, certificate, client)


@contextlib.contextmanager
def running(command_for: Callable[[Ports], list[str]], folder: Path, target: int, certificate: Path) -> Iterator[Ports]:
    """A proxy that answers, until the end, and its ports."""
    for _ in range(_MOST_STARTS):
        tls, plain = free_ports(2)
        ports = Ports(tls, plain, target)
        process = started(command_for(ports), folder, ports.tls, certificate)
        if process is not None:
            break
    else:
        raise AssertionError((folder / "output").read_text())
    try:
        yield ports
    finally:
        stop(process)


def started(command: list[str], folder: Path, port: int, certificate: Path) -> subprocess.Popen[bytes] | None:
    """A proxy that answers at the port; None if another process has one of its ports."""
    environment = os.environ | {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=output)
    try:
        wait_for(lambda: process.poll() is not None or answers(port, certificate))
    except BaseException:
        stop(process)
        raise
    if process.poll() is None:
        return process
    said = (folder / "output").read_text()
    assert "address already in use" in said.lower(), said
    return None


def answers(port: int, certificate: Path) -> bool:
    """Whether a proxy with this certificate is at the port, and not another program."""
    context = ssl.create_default_context(cafile=str(certificate))
    with (
        contextlib.suppress(OSError),
        socket.create_connection(("127.0.0.1", port), timeout=_HANDSHAKE_LIMIT_S) as connection,
        context.wrap_socket(connection, server_hostname=NAME),
    ):
        return True
    return False


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(WAIT_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise


def test_nginx_accepts_the_example(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path, address=NAME)
    command = nginx(tmp_path, Ports(8443, 8080, 8816), certificate, key)
    tested = subprocess.run([*command, "-t"], check=False, capture_output=True, text=True)
    assert tested.returncode == 0, tested.stderr
    warnings = [line for line in tested.stderr.splitlines() if "[warn]" in line]
    assert all('"listen ... http2" directive is deprecated' in line for line in warnings), warnings  # since 1.25.1


def test_caddy_accepts_the_example_as_it_stands(tmp_path: Path) -> None:
    command = [program("caddy"), "validate", "--adapter", "caddyfile", "--config", str(FOLDER / "Caddyfile")]
    validated = subprocess.run(
        command, check=False, capture_output=True, text=True, env=os.environ | {"XDG_DATA_HOME": str(tmp_path)}
    )
    assert validated.returncode == 0, validated.stderr


def test_an_admin_signs_in_and_acts(proxied: Proxied) -> None:
    assert proxied.client.get("/topics").headers["location"] == "/sign-in?next=%2Ftopics"
    proxied.sign_in().act("/topics/orders/produce", body="y")
    began, *_ = (Path(proxied.store.path) / "audit.jsonl").read_text().splitlines()
    assert json.loads(began)["from"] == "127.0.0.1:0", "the address of the proxy's client, without its port"


@pytest.mark.parametrize("proxied", [*COMMANDS, "nginx that gathers"], indirect=True)
def test_an_event_of_a_live_page_arrives_at_once(proxied: Proxied) -> None:
    """The server sends one, or a comment, every two seconds: a proxy that gathers them sends nothing for a minute."""
    proxied.sign_in()
    limit = httpx.Timeout(WAIT_LIMIT_S, read=_LONGEST_GAP_S)
    with proxied.client.stream("GET", "/live/topics", timeout=limit) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        assert any("/topics/orders" in line for line in lines)
        proxied.store.put("payments", b"x")
        assert any("/topics/payments" in line for line in lines)


def test_what_a_client_says_of_itself_does_not_count(proxied: Proxied) -> None:
    proxied.client.headers.update({"x-forwarded-host": "evil.example", "x-forwarded-for": "192.0.2.7"})
    for origin, status in (("https://evil.example", 403), (proxied.origin, 303)):
        assert proxied.client.post("/sign-out", headers={"origin": origin}).status_code == status
    proxied.sign_in().act("/topics/orders/produce", body="y")
    began, *_ = (Path(proxied.store.path) / "audit.jsonl").read_text().splitlines()
    assert json.loads(began)["from"] == "127.0.0.1:0"


def test_pages_that_are_live_share_a_connection(proxied: Proxied) -> None:
    context = ssl.create_default_context(cafile=str(proxied.certificate))
    context.set_alpn_protocols(["h2", "http/1.1"])
    with (
        socket.create_connection(("127.0.0.1", proxied.ports.tls), timeout=WAIT_LIMIT_S) as connection,
        context.wrap_socket(connection, server_hostname=NAME) as secured,
    ):
        assert secured.selected_alpn_protocol() == "h2"


@pytest.mark.parametrize("proxied", ["nginx"], indirect=True)
def test_nginx_leads_from_http_to_https(proxied: Proxied) -> None:
    plain = f"http://127.0.0.1:{proxied.ports.plain}/topics?q=a"
    asked = httpx.get(plain, headers={"host": NAME}, trust_env=False)
    assert (asked.status_code, asked.headers["location"]) == (301, f"https://{NAME}/topics?q=a")
