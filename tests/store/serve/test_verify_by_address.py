"""A served store verified by its server for a client: the same assessment, one at a time, cancelled with its client."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import httpx
import msgspec
import pytest

from commitlog_store import MessageStore, MessageStoreConfig, StoreReader, assess_store, store_metadata, verify_store
from commitlog_store.errors import CommitLogError, InvalidValue, RemoteFailed, ServerBusy, StoreNotFound
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.reader import OnDamage
from commitlog_store.remote.connection import Connection, RemoteAddress
from commitlog_store.remote.wire import decode_error, encode_error, encode_printable
from commitlog_store.serve import verification as verification_module
from commitlog_store.serve.flight_server import StoreServer
from commitlog_store.serve.listen import ListenSettings
from commitlog_store.serve.tokens import Role, new_token
from commitlog_store.serve.verification import Verification
from commitlog_store.verify.assessment import Assessment, Verdict
from tests.store.cli.commands import ended
from tests.store.serve.servers import ServeProcess
from tests.store.serve.servers import served as serve
from tests.store.serve.verifying import make_store_with_a_damaged_body, stopped
from tests.support import quick_programs
from tests.support.programs import child_environment
from tests.support.waiting import WAIT_LIMIT_S, wait_for


class Served(NamedTuple):
    """A damaged store, the address of a server of it, and the verification there."""

    path: Path
    url: str
    token: str
    verification: Verification

    def reader(self) -> StoreReader:
        return StoreReader.open(self.url, token=self.token)

    def connection(self) -> contextlib.closing[Connection]:
        return contextlib.closing(Connection(RemoteAddress.parse(self.url, token=self.token)))


def _open(path: str, on_damage: OnDamage) -> StoreReader:
    return StoreReader.open(path, on_damage=on_damage)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store_with_a_damaged_body(tmp_path_factory.mktemp("verify") / "store")


@pytest.fixture
def served(damaged: Path, tmp_path: Path) -> Iterator[Served]:
    tokens = tmp_path / "tokens.jsonl"
    token = new_token(str(tokens), "ana", Role.READ)
    listen = ListenSettings.parse("127.0.0.1:0", tokens=str(tokens))
    verification = Verification()
    server = StoreServer({"": partial(_open, str(damaged))}, listen, verifications={"": verification})
    try:
        yield Served(damaged, f"grpc://127.0.0.1:{server.port}", token, verification)
    finally:
        server.shutdown()
        server.close()
        assert not verification.state.is_running


def _timeless(found: Assessment) -> str:
    """Without what differs between two runs; errors in it are equal by their words."""
    report = found.verification
    return repr(replace(found, seconds=0.0, verification=None if report is None else replace(report, seconds=0.0)))


def _stopped(verification: Verification) -> contextlib.AbstractContextManager[int]:
    """The process of the verification that begins now, which does not go on within the context."""
    wait_for(lambda: verification.state.is_running)
    process = verification.state.process
    assert process is not None
    return stopped(process)


@contextlib.contextmanager
def _in_thread(work: Callable[[], object]) -> Iterator[list[object]]:
    """What ``work`` returns or raises, in a list that has it after the context."""
    ends: list[object] = []

    def run() -> None:
        try:
            ends.append(work())
        except CommitLogError as error:
            ends.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield ends
    finally:
        thread.join(WAIT_LIMIT_S)


def _verifying(server: int) -> list[int]:
    """The processes that verify for this one. One that is stopped before its program runs would block its server."""
    found: list[int] = []
    for children in Path(f"/proc/{server}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread or a process may end during the look
            found += [
                child
                for child in map(int, children.read_text().split())
                if b"verify_child" in Path(f"/proc/{child}/cmdline").read_bytes()
            ]
    return found


def test_an_address_gives_the_assessment_of_the_directory(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMMITLOG_TOKEN", served.token)
    with StoreReader.open(served.path) as reader:
        near = [reader.assess(deep=deep) for deep in (False, True)]
    assert near[1].verdict is Verdict.DOES_NOT_OPEN
    far = [assess_store(served.url, deep=deep) for deep in (False, True)]
    assert list(map(_timeless, far)) == list(map(_timeless, near))
    assert verify_store(served.url) == near[1].findings
    with served.reader() as reader:
        assert store_metadata(reader, "findings") == store_metadata(served.path, "findings")
    with pytest.raises(InvalidValue, match="leave config out"):
        assess_store(served.url, config=MessageStoreConfig())


def test_a_name_that_is_no_text_arrives_escaped(tmp_path: Path) -> None:
    path = tmp_path / "store"
    MessageStore.open(path).close()
    Path(os.fsdecode(os.fsencode(path / "commitlog") + b"/\xff")).touch()
    with serve(path) as url:
        for deep in (False, True):
            (finding,) = assess_store(url, deep=deep).findings
            assert finding.path.endswith("/commitlog/\\udcff")


def test_an_error_about_a_name_that_is_no_text_arrives_escaped() -> None:
    error = decode_error(encode_error(StoreNotFound("No store in /\udcff.", path="/\udcff")))
    assert isinstance(error, StoreNotFound)
    assert (str(error), error.path) == ("No store in /\\udcff.", "/\\udcff")
    assert msgspec.msgpack.decode(encode_printable({"\udcff": ["\udcff"]})) == {"\\udcff": ["\\udcff"]}


def test_one_verification_at_a_time_and_what_others_are_told(served: Served) -> None:
    with served.reader() as reader, served.reader() as other:
        with _in_thread(lambda: reader.assess(deep=True)) as ends, _stopped(served.verification) as process:
            with pytest.raises(ServerBusy, match=r"ana began at .* One at a time runs: ask again when it has ended"):
                other.assess(deep=True)
            assert served.verification.state.process == process, "the one under way goes on"
        assert isinstance(ends[0], Assessment)
        with _in_thread(lambda: reader.assess(deep=True)) as ends, _stopped(served.verification):
            served.verification.cancel("bob cancelled it.")
        assert isinstance(ends[0], RemoteFailed)
        assert "ended without a report. bob cancelled it." in str(ends[0])


def test_ctrl_c_cancels_the_verification(served: Served) -> None:
    command = [sys.executable, "-m", "commitlog_store", "doctor", served.url, "--deep"]
    environment = child_environment() | {"COMMITLOG_TOKEN": served.token}
    with (
        quick_programs.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as client,
        _stopped(served.verification) as process,
    ):
        client.send_signal(signal.SIGINT)
        _, said = client.communicate(timeout=WAIT_LIMIT_S)
        assert (client.returncode, "Traceback" in said) == (130, False)
        assert not Path(f"/proc/{process}").exists()
    assert served.verification.state.problem == "Its client cancelled it."


def test_the_verification_of_a_client_that_is_gone_ends(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification_module, "LEASE_S", 0.2)
    with served.connection() as connection:
        connection.ask("verify", "raise", ("mine", True, 0.0))
        with _stopped(served.verification):
            wait_for(lambda: not served.verification.state.is_running)
        assert served.verification.state.problem == "Its client asked no more."
        answer = connection.ask("verify", "raise", ("another", False, 0.0)).value
        assert "does not know this verification any more" in str(decode_error(answer.error))


@pytest.mark.parametrize("name", ["", "x" * 65])
def test_a_client_has_no_part_in_what_the_page_began(served: Served, name: str) -> None:
    """A name that is none is refused: it neither begins nor cancels a verification, nor gives another one's report."""
    verification = served.verification
    with served.connection() as connection:
        assert verification.start(StorePaths.of(str(served.path)), "bob")
        with _stopped(verification) as process:
            for call, arguments in (("verify", (name, True, 0.0)), ("cancel_verification", (name,))):
                with pytest.raises(InvalidValue, match="`str` of length"):
                    connection.ask(call, "raise", arguments)
            connection.ask("cancel_verification", "raise", ("mine",))
            assert verification.state.process == process
        wait_for(lambda: not verification.state.is_running)
        state = verification.state
        assert state.verification_id is None
        assert state.assessment is None
        assert state.report is not None
        with pytest.raises(InvalidValue):
            connection.ask("verify", "raise", (name, True, 0.0))
        assert not verification.state.is_running


def test_the_report_of_a_client_is_forgotten_and_that_of_the_page_stays(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    verification = served.verification
    with served.connection() as connection:
        connection.ask("verify", "raise", ("mine", True, 0.0))
        wait_for(lambda: not verification.state.is_running)
        assert verification.state.assessment is not None
        assert connection.ask("verify", "raise", ("mine", True, 0.0)).value.assessment == verification.state.assessment
        monkeypatch.setattr(verification_module, "KEPT_S", 0.0)
        assert verification.start(StorePaths.of(str(served.path)), "bob")
        state = verification.state
        assert state.verification_id is None
        assert state.assessment is None
        wait_for(lambda: not verification.state.is_running)
        connection.ask("verify", "raise", ("again", True, 0.0))
        wait_for(lambda: not verification.state.is_running and verification.state.verification_id is None)
        state = verification.state
        assert state.assessment is None
        assert state.report is not None
        answer = connection.ask("verify", "raise", ("again", False, 0.0)).value
        assert "this one ended minutes ago" in str(decode_error(answer.error))


def test_pages_show_the_verification_of_a_client_and_the_servers_end_ends_it(damaged: Path) -> None:
    with ServeProcess(damaged, "--read-only", "--http", "127.0.0.1:0") as server:
        done = ended("verify", server.url)
        assert (done.returncode, "verdict DOES NOT OPEN" in done.stdout) == (1, True)
        found = re.search(r"http://\S+", server.first_line)
        assert found
        page = httpx.get(f"{found[0]}/verify", headers={"accept": "text/html"}, trust_env=False, timeout=WAIT_LIMIT_S)
        assert "Last report" in page.text
        with StoreReader.open(server.url) as reader, _in_thread(lambda: reader.assess(deep=True)) as ends:
            wait_for(lambda: _verifying(server.process.pid))
            (child,) = _verifying(server.process.pid)
            os.kill(child, signal.SIGSTOP)
            assert server.stop()[0] == 0
            assert not Path(f"/proc/{child}").exists()
        assert isinstance(ends[0], RemoteFailed)
