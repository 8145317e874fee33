"""``commitlog produce`` with the address of a server: as with the directory, and what lost answers and kills leave.

Each input goes to two stores of the same settings, one as a directory, the other through a server.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from commitlog_store import MessageStore, MessageStoreConfig, RemoteStore, StoreReader, connect
from commitlog_store.cli import produce
from commitlog_store.cli.app import app
from commitlog_store.engine.put_table import PutTableResult
from commitlog_store.message import PutMessageStatus
from commitlog_store.remote import put_wire
from tests.store.cli.commands import SCRIPT, ended, plain
from tests.store.serve.servers import ServeProcess, served, shorten_waits
from tests.support import quick_programs
from tests.support.long_runs import LONG_RUN_S, Progress, part_of
from tests.support.programs import child_environment
from tests.support.readable import readable
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import WAIT_LIMIT_S, wait_for

SMALL = MessageStoreConfig(
    mapped_file_size_commit_log=1 << 16, mapped_file_size_consume_queue=4000, max_hash_slot_num=100, max_index_num=400
)
CLOSED = {"topicConfigTable": {"closed": {"topicName": "closed", "perm": 4}}}


class Both(NamedTuple):
    """The directory of a store, and the address of another one whose owner is open here."""

    near: Path
    far: MessageStore
    url: str

    def produced(self, given: str, *options: object) -> list[tuple[int, str, str]]:
        """Exit code, output and errors, with the directory and with the address."""
        found = []
        for place in (self.near, self.url):
            done = CliRunner().invoke(app, ["produce", str(place), *map(str, options)], input=given.encode())
            said = re.sub(r"in [0-9.]+ s", "", done.stderr).replace(self.far.path, str(self.near))
            found.append((done.exit_code, done.stdout, said))
        return found


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    place = tmp_path_factory.mktemp("stores")
    for name in ("near", "far"):
        with MessageStore.open(place / name, SMALL) as store:
            store.put("orders", b"makes files of these sizes")
        (place / name / "config" / "topics.json").write_text(json.dumps(CLOSED))
    with MessageStore.open(place / "far", SMALL) as far, served(owned=far) as url:
        yield Both(place / "near", far, url)


def _bodies(path: Path | str, topic: str = "orders") -> list[bytes]:
    with StoreReader.open(path) as reader:
        found: list[bytes] = reader.scan(topic, columns=["body"]).read_all()["body"].to_pylist()
        return found


INPUTS = {
    "lines": "one\nzwei größer\n\nlast",
    "every field": json.dumps({"body": "b", "tags": "A", "keys": ["k"], "queueId": 2, "properties": {"p": "v"}}),
    "a bad line": '{"body": "a"}\nnonsense\n{"body": "c"}\n',
    "a queue that cannot be": '{"body": "a"}\n{"body": "b", "queueId": -1}\n{"body": "d", "queueId": -1}',
    "the first line refused": '{"body": "b", "topic": "no/topic"}\n{"body": "c"}\n',
    "a topic of RocketMQ's": '{"body": "a"}\n{"body": "b", "topic": "SCHEDULE_TOPIC_XXXX"}\n{"body": "c"}\n',
    "a closed topic": '{"body": "a"}\n{"body": "b", "topic": "closed"}\n{"body": "c", "topic": "new"}\n',
    "a property of the store's": '{"body": "a"}\n{"body": "b", "properties": {"REAL_TOPIC": "x"}}\n{"body": "c"}\n',
    "too long for a file": '{"body": "a"}\n' + json.dumps({"body": "b" * (70 << 10)}) + '\n{"body": "c"}\n',
    "a level that does not exist": '{"body": "a"}\n{"body": "b", "delayLevel": "7y"}\n{"body": "c"}\n',
}


def test_what_is_put_printed_and_refused_is_the_same_as_with_the_directory(both: Both) -> None:
    for name, given in INPUTS.items():
        options = ("-t", "orders", "-q", "0", "--json", *(() if name == "lines" else ("--ndjson",)))
        near, far = both.produced(given, *options)
        assert far == near, name
        assert (far[0], "put" in far[2]) == (0 if name in ("lines", "every field") else 1, True), far
    both.far.dispatch()
    assert sorted(_bodies(both.url)) == sorted(_bodies(both.near))
    with StoreReader.open(both.url) as far_reader, StoreReader.open(both.near) as near_reader:
        assert far_reader.topics() == near_reader.topics() == ["orders"]
        # Nothing of a line after the refused one is left behind, such as its topic.
        assert far_reader.topic_settings() == near_reader.topic_settings()
        assert "new" not in near_reader.topic_settings()


@pytest.mark.parametrize("rows_of_a_part", [2, 131_072])
def test_no_row_after_the_first_refused_one_is_put(
    both: Both, monkeypatch: pytest.MonkeyPatch, rows_of_a_part: int
) -> None:
    """Also of a table that goes in several parts; ``stop_at_refusal`` of the interface."""
    monkeypatch.setattr(put_wire, "PART_ROWS", rows_of_a_part)
    rows = [{"topic": "parts", "body": b"%d" % number, "queueId": -1 if number in (5, 7) else 0} for number in range(9)]
    with MessageStore.open(both.near, SMALL) as near, connect(both.url) as remote:
        stores: tuple[MessageStore | RemoteStore, ...] = near, remote
        results = [one.put_messages(rows, stop_at_refusal=True) for one in stores]
        for result in results:
            assert result.rows["status"].to_pylist() == ["PUT_OK"] * 5 + ["MESSAGE_ILLEGAL"]
            assert result.rows["queueOffset"].to_pylist()[5] == -1
            assert (result.status, result.message_num) == (PutMessageStatus.MESSAGE_ILLEGAL, 5)
            assert result.reason.startswith("Message in row 5 ")
        remote.dispatch()
    assert _bodies(both.far.path, "parts")[-5:] == [b"%d" % number for number in range(5)]


@pytest.mark.parametrize(
    "option",
    [
        *("--sync", "--async", "--create", "--lock-timeout=1", "--max-index-num=9"),
        *("--mapped-file-size-commit-log=64K", "--config=broker.conf", "--commit-log=/tmp"),
    ],
)
def test_what_only_the_owner_decides_is_refused(both: Both, option: str) -> None:
    done = ended("produce", both.url, "--topic", "orders", option)
    assert (done.returncode, done.stdout) == (2, "")
    assert option.partition("=")[0] in plain(done.stderr)
    assert "It is for a directory: at an address, the server owns the store" in plain(done.stderr)


# The command, which asks a server that does not answer again, or leaves it, after a part of a second.
_SOON_AGAIN = (
    sys.executable,
    "-c",
    """
from commitlog_store.cli import main
from commitlog_store.remote import session
session._FIRST_ATTEMPT_SECONDS = session.CLOSE_SECONDS = 0.3
main()
""",
)


def test_lines_whose_answer_is_not_waited_for_are_named(both: Both) -> None:
    with TcpProxy(int(both.url.rpartition(":")[2])) as proxy:
        command = [*_SOON_AGAIN, "produce", proxy.url, "-t", "typed", "--queue", "0", "--json", "--batch-size", "3"]
        with quick_programs.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdin.write("1\n2\n3\n")
            process.stdin.flush()
            shown = [json.loads(process.stdout.readline())["line"] for _ in range(3)]
            proxy.lose_answers = True
            before = both.far.physical_bounds()[1]
            process.stdin.write("4\n5\n6\n")
            process.stdin.flush()
            wait_for(lambda: both.far.physical_bounds()[1] > before)
            # The first Ctrl-C waits for the end of the put, and the second one does not.
            while not readable(process.stderr, 0.3):
                process.send_signal(signal.SIGINT)
            out, said = process.communicate(timeout=WAIT_LIMIT_S)
    assert (shown, out, process.returncode) == ([1, 2, 3], "", 130)
    both.far.dispatch()
    assert _bodies(both.far.path, "typed") == [b"%d" % number for number in range(1, 7)]
    assert re.search(r"Lines 4 to 6 may be stored: the server has not answered yet", said)
    assert "3 messages put" in said


def test_lines_whose_answer_is_lost_may_be_stored_and_none_after_them_is(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce, "DEFAULT_RPC_TIMEOUT_S", 1.0)
    shorten_waits(monkeypatch)
    put_table = both.far.put_messages

    def losing(*given: Any, **options: Any) -> PutTableResult:
        """The answers get lost from the second call on."""
        result = put_table(*given, **options)
        proxy.lose_answers = result.rows["queueOffset"][0].as_py() >= 2
        return result

    with TcpProxy(int(both.url.rpartition(":")[2])) as proxy:
        monkeypatch.setattr(both.far, "put_messages", losing)
        command = ["produce", proxy.url, "-t", "lost", "-q", "0", "--batch-size", "2", "--json"]
        done = CliRunner().invoke(app, command, input=b"1\n2\n3\n4\n5\n6\n")
    assert done.exit_code == 1
    assert [json.loads(line)["status"] for line in done.stdout.splitlines()] == ["PUT_OK"] * 2 + ["UNKNOWN_ERROR"] * 2
    assert done.stderr.startswith("2 messages put in ")
    assert "commitlog: Line 3 (and 1 more line): UNKNOWN_ERROR: The answer of the server at " in done.stderr
    assert "none, the first ones or all are stored, and none after them" in done.stderr
    both.far.dispatch()
    assert _bodies(both.far.path, "lost") == [b"1", b"2", b"3", b"4"]


def test_a_kill_on_either_side_loses_and_doubles_no_line(tmp_path: Path, progress: Progress) -> None:
    check_kills(tmp_path / "store", 2, 1, progress)


@pytest.mark.stress
@pytest.mark.timeout(LONG_RUN_S)
def test_many_kills_on_either_side_lose_and_double_no_line(tmp_path: Path, progress: Progress) -> None:
    check_kills(tmp_path / "store", part_of(100), 2, progress)


def check_kills(path: Path, rounds: int, seed: int, progress: Progress) -> None:
    """Each round begins with the first line that is not stored, as a user does, and kills the server or the client.

    What was acknowledged is stored, and the lines in the store are the first ones of the input, each once.
    """
    chance = random.Random(seed)
    stored = 0
    for kill in range(rounds):
        with contextlib.ExitStack() as servers:
            server = servers.enter_context(ServeProcess(path))
            process = servers.enter_context(_producer(server.url, first=stored, count=2_000))
            assert process.stdout is not None
            assert process.stderr is not None
            acknowledged = sum(1 for _ in zip(range(chance.randrange(1, 300)), process.stdout, strict=False))
            if kill % 2:
                process.kill()
            else:
                server.stop(signal.SIGKILL)
                server = servers.enter_context(ServeProcess(path, listen=server.url.removeprefix("grpc://")))
            acknowledged += sum(1 for line in process.stdout if line.endswith("}\n") and '"PUT_OK"' in line)
            said = process.stderr.read()
            process.wait(WAIT_LIMIT_S)
            # A server that was killed between two calls is waited for.
            assert process.returncode in ((-signal.SIGKILL,) if kill % 2 else (0, 1)), said
            if process.returncode == 1:
                assert re.search(r"UNKNOWN_ERROR: .* may have been done|is not put, nor is any after it", said), said
            assert server.stop()[0] == 0
        bodies = _bodies(path)
        assert bodies == [b"%d" % number for number in range(len(bodies))]
        assert stored + acknowledged <= len(bodies) <= stored + 2_000
        stored = len(bodies)
        progress.count("kills of produce", kill + 1)


def _producer(url: str, *, first: int, count: int) -> subprocess.Popen[str]:
    """The command, which is given so many lines in batches of three."""
    command = [SCRIPT, "produce", url, "-t", "orders", "--queue", "0", "--json", "--batch-size", "3"]
    pipe = subprocess.PIPE
    process = quick_programs.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=child_environment())
    assert process.stdin is not None
    process.stdin.write("".join(f"{number}\n" for number in range(first, first + count)))
    process.stdin.close()
    return process
