"""Who may reach a server: loopback, or TLS with tokens; and what is said to those who may not."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.flight as flight
import pytest

from commitlog_store import MessageStore, StoreReader
from commitlog_store.errors import InvalidValue, ListenFailed, RemoteAccessRefused, RemoteFailed
from commitlog_store.remote.calls import CALLS
from commitlog_store.remote.wire import decode_error
from commitlog_store.serve.flight_server import StoreServer
from commitlog_store.serve.listen import ListenSettings, TlsFiles
from commitlog_store.serve.tokens import Role, TokenFile, new_token
from tests.store.follower.certificates import make_certificate
from tests.store.serve.servers import SPOKEN, SPOKEN_HEADERS, served
from tests.support import quick_programs


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path / "store") as store:
        store.put("orders", b"one")
    return tmp_path / "store"


@pytest.fixture(scope="module")
def reading(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A server that owns its store, and a token that may read."""
    place = tmp_path_factory.mktemp("reading")
    tokens = str(place / "tokens.jsonl")
    token = new_token(tokens, "spark", Role.READ)
    with MessageStore.open(place / "store") as owned, served(owned=owned, tokens=tokens) as url:
        yield url, token


def test_a_server_with_tokens_wants_one(store: Path, tmp_path: Path) -> None:
    tokens = str(tmp_path / "tokens.jsonl")
    token = new_token(tokens, "spark", Role.READ)
    with served(store, tokens=tokens) as url:
        with pytest.raises(RemoteAccessRefused, match="wants a token"):
            StoreReader.open(url)
        with pytest.raises(RemoteAccessRefused, match="does not know this token"):
            StoreReader.open(url, token=token + "x")
        with StoreReader.open(url, token=token) as reader:
            assert reader.topics() == ["orders"]
            assert reader.scan("orders").read_all().num_rows == 1
            assert token not in repr(reader)
            assert token not in str(vars(reader))


@pytest.mark.parametrize("call", sorted(name for name, call in CALLS.items() if call.writes))
def test_a_token_that_may_read_writes_with_no_call(reading: tuple[str, str], call: str) -> None:
    url, token = reading
    headers = [*SPOKEN_HEADERS, (b"authorization", f"Bearer {token}".encode())]
    with flight.FlightClient(url) as client, pytest.raises(flight.FlightServerError) as refused:
        list(client.do_action(flight.Action(call, b""), flight.FlightCallOptions(headers=headers)))
    error = decode_error(refused.value.extra_info)
    assert isinstance(error, RemoteAccessRefused)
    assert str(error).startswith(f"The token 'spark' may read only, and {call} writes.")


def test_the_token_may_come_from_the_environment(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = make_certificate(tmp_path)
    token = new_token(str(tmp_path / "tokens"), "spark", Role.READ)
    monkeypatch.setenv("COMMITLOG_TOKEN", token)
    monkeypatch.setenv("COMMITLOG_TLS_ROOT_CERTIFICATES", str(certificate))
    tls = TlsFiles(certificate=str(certificate), key=str(key))
    with served(store, tls=tls, tokens=str(tmp_path / "tokens")) as url:
        command = [sys.executable, "-m", "commitlog_store", "cat", url, "orders", "--json"]
        shown = quick_programs.run(command, check=True, capture_output=True, text=True)
        assert '"body"' in shown.stdout
        verified = quick_programs.run([*command[:3], "verify", url], check=True, capture_output=True, text=True)
        assert "all is well" in verified.stdout


def test_a_new_token_is_known_at_once_and_a_removed_one_is_not(store: Path, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.jsonl"
    first = new_token(str(tokens), "first", Role.READ)
    with served(store, tokens=str(tokens)) as url:
        second = new_token(str(tokens), "second", Role.ADMIN)
        with StoreReader.open(url, token=second) as reader:
            assert reader.topics()
        tokens.write_text(tokens.read_text().splitlines()[1] + "\n")
        with pytest.raises(RemoteAccessRefused):
            StoreReader.open(url, token=first)
        tokens.write_text("no token\n")
        with pytest.raises(RemoteAccessRefused, match="its token file cannot be read"):
            StoreReader.open(url, token=second)


def test_the_file_holds_hashes_only_and_is_its_owners(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.jsonl"
    token = new_token(str(tokens), "spark", Role.WRITE)
    assert token not in tokens.read_text()
    assert json.loads(tokens.read_text())["role"] == "write"
    assert tokens.stat().st_mode & 0o077 == 0
    assert TokenFile(str(tokens)).role_of(token) == ("spark", Role.WRITE)
    with pytest.raises(InvalidValue, match="has a token 'spark' already"):
        new_token(str(tokens), "spark", Role.READ)
    for wrong in (b'{"name":"x"}\n', b'{"name":"\xff"}\n', b'{"more":' + b"[" * 10_000):
        tokens.write_bytes(wrong)
        with pytest.raises(InvalidValue, match=r"Line 1 of .* is no token"):
            TokenFile(str(tokens))


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "example.org:8815"])
def test_an_address_that_others_reach_needs_tls_and_tokens(store: Path, address: str) -> None:
    with pytest.raises(InvalidValue, match="give --tls-cert and --tls-key and --tokens too"):
        StoreServer({"": lambda _: StoreReader.open(store)}, ListenSettings.parse(address))
    tls = TlsFiles(certificate="c", key="k")
    with pytest.raises(InvalidValue, match="give --tokens too"):
        StoreServer({"": lambda _: StoreReader.open(store)}, ListenSettings.parse(address, tls=tls))


def test_a_server_with_tls_is_reached_by_those_who_trust_it(store: Path, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    tls = TlsFiles(certificate=str(certificate), key=str(key))
    with served(store, tls=tls) as url:
        assert url.startswith("grpc+tls://")
        with StoreReader.open(url, tls_root_certificates=certificate.read_bytes()) as reader:
            assert reader.scan("orders").read_all().num_rows == 1
        other, _ = make_certificate(tmp_path, "other")
        with pytest.raises(RemoteFailed, match=r"answers at .* certificate is not signed by one of those"):
            StoreReader.open(url, tls_root_certificates=other.read_bytes(), rpc_timeout_s=1)
        with pytest.raises(RemoteFailed, match=r"If the server uses TLS, its address begins with grpc\+tls://"):
            StoreReader.open(url.replace("+tls", ""), rpc_timeout_s=1)
    elsewhere, its_key = make_certificate(tmp_path, "elsewhere", "10.0.0.1")
    tls = TlsFiles(certificate=str(elsewhere), key=str(its_key))
    with served(store, tls=tls) as url, pytest.raises(RemoteFailed, match="other names than that of the address"):
        StoreReader.open(url, tls_root_certificates=elsewhere.read_bytes(), rpc_timeout_s=1)
    with served(store) as url, pytest.raises(RemoteFailed, match="The server does not use TLS"):
        StoreReader.open(
            url.replace("grpc:", "grpc+tls:"), tls_root_certificates=certificate.read_bytes(), rpc_timeout_s=1
        )


def test_a_port_that_is_taken_is_named(store: Path) -> None:
    with served(store) as url:
        port = url.rpartition(":")[2]
        with pytest.raises(ListenFailed, match=rf"Cannot listen on 127\.0\.0\.1:{port}: Address already in use"):
            StoreServer({"": lambda _: StoreReader.open(store)}, ListenSettings.parse(f"127.0.0.1:{port}"))


def test_a_host_that_no_resolver_takes_is_named(store: Path, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    tokens = str(tmp_path / "tokens")
    new_token(tokens, "spark", Role.READ)
    tls = TlsFiles(certificate=str(certificate), key=str(key))
    listen = ListenSettings.parse(f"{'ä' * 70}:0", tls=tls, tokens=tokens)
    with pytest.raises(ListenFailed, match="Cannot listen on ä"):
        StoreServer({"": lambda _: StoreReader.open(store)}, listen)


@pytest.mark.parametrize(
    "text", ["", ":1", "host:99999", "host:x", "8815", pytest.param("host:" + "8" * 5_000, id="digits")]
)
def test_wrong_places_to_listen(text: str) -> None:
    with pytest.raises(InvalidValue, match="A server listens on HOST:PORT"):
        ListenSettings.parse(text)


def test_files_of_tls_that_cannot_be_used_are_named(store: Path, tmp_path: Path) -> None:
    certificate, key = map(str, make_certificate(tmp_path))
    for tls, said in (
        (TlsFiles(certificate=f"{tmp_path}/none", key=key), f"PEM, and {tmp_path}/none is not a file"),
        (TlsFiles(certificate=certificate, key=str(tmp_path)), f"PEM, and {tmp_path} is not a file"),
        (TlsFiles(certificate=key, key=certificate), f"TLS cannot use {key} and {certificate}: "),
    ):
        with pytest.raises(InvalidValue, match=said), served(store, tls=tls):
            pass


def test_a_token_file_that_does_not_exist_is_named_with_the_command_that_makes_one(store: Path, tmp_path: Path) -> None:
    said = rf"No token file at {tmp_path}/tokens: `commitlog token new {tmp_path}/tokens --name NAME` makes one"
    with pytest.raises(InvalidValue, match=said), served(store, tokens=str(tmp_path / "tokens")):
        pass
    with pytest.raises(InvalidValue, match=f"cannot be made: {tmp_path}/no is not a directory"):
        new_token(str(tmp_path / "no" / "tokens"), "spark", Role.READ)


def test_a_server_of_one_store_says_that_it_has_no_name(store: Path) -> None:
    with served(store) as url, pytest.raises(InvalidValue, match=r"Its only one has no name: grpc://HOST:PORT\."):
        StoreReader.open(f"{url}/orders")


def test_what_is_no_question_is_refused_by_name(store: Path) -> None:
    with served(store) as url, flight.connect(url) as client:
        for action in (
            flight.Action("no such question", b""),
            flight.Action("topics", b"\xff\x00"),
            flight.Action("topics", b""),
        ):
            with pytest.raises(flight.FlightServerError) as caught:
                list(client.do_action(action, SPOKEN))
            assert b"InvalidValue" in caught.value.extra_info
        for ticket in (b"", b"\x00", b"\x93\x01\x02\x03"):
            with pytest.raises(flight.FlightServerError):
                client.do_get(flight.Ticket(ticket), SPOKEN).read_all()
        with pytest.raises(flight.FlightServerError) as caught:
            list(client.do_action(flight.Action("topics", bytes(17 << 20)), SPOKEN))
        assert b"at most" in caught.value.extra_info


def test_calls_are_logged_with_the_name_of_the_token(
    store: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tokens = str(tmp_path / "tokens.jsonl")
    token = new_token(tokens, "spark", Role.READ)
    server = StoreServer(
        {"": lambda _: StoreReader.open(store)},
        ListenSettings.parse("127.0.0.1:0", tokens=tokens),
        access_log=True,
    )
    with caplog.at_level(logging.INFO, "commitlog_store.serve"):
        with StoreReader.open(f"grpc://127.0.0.1:{server.port}", token=token) as reader:
            reader.topics()
        server.shutdown()
        server.close()
    assert "spark DO_ACTION ok" in caplog.text
    assert token not in caplog.text


def test_the_command_makes_a_token_and_shows_it_once(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "commitlog_store",
        "token",
        "new",
        str(tmp_path / "t"),
        "--name",
        "me",
        "--role",
        "write",
    ]
    made = quick_programs.run(command, check=True, capture_output=True, text=True)
    assert TokenFile(str(tmp_path / "t")).role_of(made.stdout.strip()) == ("me", Role.WRITE)
    again = quick_programs.run(command, check=False, capture_output=True, text=True)
    assert again.returncode == 1
    assert "has a token 'me' already" in again.stderr
