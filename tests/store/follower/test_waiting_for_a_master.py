"""A new mirror waits for its broker: down, starting, or without a message. What no broker answers ends it."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from commitlog_store import LogFollower
from commitlog_store.errors import RemotingFailed
from tests.store.follower.mirrors import follow, log_bytes
from tests.store.follower.test_remoting_config import ANSWERS
from tests.store.owner.owned_store import open_store, put_ok
from tests.support.scripted_broker import ScriptedBroker
from tests.support.scripted_master import ScriptedMaster, Slave
from tests.support.waiting import WAIT_LIMIT_S

EMPTY = b'{"table":{"commitLogMinOffset":"-1","commitLogMaxOffset":"0"}}'


@pytest.fixture
def port() -> int:
    """One on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        number: int = one.getsockname()[1]
        return number


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("origin")
    with open_store(path) as store:
        for number in range(150):
            put_ok(store, body=b"%d" % number * 40)
        return log_bytes(path, 0, store.physical_bounds()[1])


def sends(log: bytes) -> Callable[[Slave], None]:
    def serve(slave: Slave) -> None:
        slave.send_log(log, slave.says() or 16 << 10)
        slave.wait_until_left()

    return serve


class Stage:
    """What happens each time the follower says why it waits: a step for each new reason."""

    def __init__(self, *steps: tuple[str, Callable[[], object]]) -> None:
        self._steps = iter(steps)
        self._reason = ""

    def __call__(self, reason: str) -> None:
        if reason != self._reason:
            words, step = next(self._steps)
            assert words in reason
            step()
        self._reason = reason


@pytest.fixture
def opened() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


def test_a_new_mirror_waits_for_a_broker_that_is_down_starting_or_empty(
    tmp_path: Path, port: int, log: bytes, opened: contextlib.ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker of 5.3.3 fails at the request with this exception for a quarter of a second."""
    caplog.set_level(logging.INFO)
    answers: dict[int, bytes | tuple[int, str]] = {**ANSWERS, 28: (1, "java.util.NoSuchElementException")}
    stage = Stage(
        ("cannot be reached: [Errno 111]", lambda: opened.enter_context(ScriptedBroker(answers, port))),
        ("refused request 28 with code 1: java.util.NoSuch", lambda: answers.update({28: (2, "system busy")})),
        ("code 2: system busy", lambda: answers.update({28: EMPTY})),
    )
    with (
        ScriptedMaster(sends(log)) as master,
        follow(master.address, tmp_path, config_from=f"127.0.0.1:{port}", on_wait=stage) as follower,
    ):
        assert follower.wait_for(len(log), timeout_s=WAIT_LIMIT_S)
    assert log_bytes(tmp_path, 0, len(log)) == log
    assert caplog.text.count(f"{tmp_path} waits for its master: ") == 3, "one line for each change"
    assert f"{tmp_path}: its master answers" in caplog.text


def test_a_broker_that_closes_the_connection_is_waited_for(
    tmp_path: Path, log: bytes, opened: contextlib.ExitStack
) -> None:
    broker = opened.enter_context(ScriptedBroker({**ANSWERS, 28: EMPTY}))
    broker.closes = True

    def answer() -> None:
        broker.closes = False

    stage = Stage(("The peer closed the connection", answer))
    with (
        ScriptedMaster(sends(log)) as master,
        follow(master.address, tmp_path, config_from=broker.address, on_wait=stage) as follower,
    ):
        assert follower.wait_for(len(log), timeout_s=WAIT_LIMIT_S)


def test_what_on_wait_raises_ends_the_wait_and_nothing_was_made(tmp_path: Path, port: int) -> None:
    class Ended(Exception):
        pass

    def end(reason: str) -> None:
        raise Ended(reason)

    with pytest.raises(Ended, match="cannot be reached"):
        LogFollower("127.0.0.1:1", tmp_path / "mirror", config_from=f"127.0.0.1:{port}", on_wait=end)
    assert not (tmp_path / "mirror").exists()


def test_the_masters_last_file_is_waited_for(
    tmp_path: Path, port: int, log: bytes, opened: contextlib.ExitStack
) -> None:
    stage = Stage(("Connection refused", lambda: opened.enter_context(ScriptedMaster(sends(log), port))))
    with follow(f"127.0.0.1:{port}", tmp_path, start="latest", on_wait=stage) as follower:
        assert follower.wait_for(len(log), timeout_s=WAIT_LIMIT_S)
    assert log_bytes(tmp_path, 0, len(log)) == log[16 << 10 :]


def test_a_mirror_with_files_follows_without_its_broker(tmp_path: Path, port: int, log: bytes) -> None:
    def fail(reason: str) -> None:
        raise AssertionError(reason)

    with ScriptedMaster(sends(log)) as master:
        with follow(master.address, tmp_path) as follower:
            assert follower.wait_for(len(log), timeout_s=WAIT_LIMIT_S)
        with follow(master.address, tmp_path, config_from=f"127.0.0.1:{port}", on_wait=fail) as follower:
            assert follower.wait_for(len(log), timeout_s=WAIT_LIMIT_S)


@pytest.mark.parametrize(
    ("answers", "raw", "words"),
    [
        ({28: (3, " request type 28 not supported")}, None, "refused request 28 with code 3"),
        (
            {},
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            r"expected \d+ at most, from the remoting port of a broker \(listenPort, 10911\)\.$",
        ),
        ({28: b'{"table":{"commitLogMinOffset":"\xff"}}'}, None, "something else than its runtime info"),
        ({28: b'{"more":' + b"[" * 10_000 + b"]" * 10_000 + b"}"}, None, "something else than its runtime info"),
        ({**ANSWERS, 26: b"<html>"}, None, "something else than its configuration"),
        ({**ANSWERS, 26: b"mappedFileSizeConsumeQueue=many\n"}, None, "mappedFileSizeConsumeQueue=many"),
        ({**ANSWERS, 26: b"mappedFileSizeConsumeQueue=-20\n"}, None, "mappedFileSizeConsumeQueue=-20"),
    ],
)
def test_an_answer_that_no_broker_gives_is_not_waited_for(
    tmp_path: Path, answers: dict[int, bytes | tuple[int, str]], raw: bytes | None, words: str
) -> None:
    with ScriptedBroker(answers) as broker:
        broker.raw = raw
        with pytest.raises(RemotingFailed, match=words) as caught:
            LogFollower("127.0.0.1:1", tmp_path / "mirror", config_from=broker.address)
    assert not caught.value.may_pass
    assert not (tmp_path / "mirror").exists()
